import { type Clock, timestamp } from "../../../core/apis/clock.ts"
import type { CreationTimes } from "../../../core/apis/creation-times.ts"
import type { StoredMachine } from "../../../core/apis/machine.ts"
import type { PageOf } from "../../../core/kube/page-index.ts"
import type { JoinCommands } from "../../../core/machines/commands.ts"
import { JOIN_TOKEN_SECONDS, joinToken } from "../../../core/protocol/machines.ts"
import type { Collection } from "../../collection.ts"
import type { Precondition } from "../../http/entity-tags.ts"
import { unavailable } from "../../http/problem.ts"
import type { Page } from "../../http/query.ts"
import { replay, requestHash } from "../../idempotency.ts"
import type { MachineChange, MachineCreation, MachineJoin } from "./schema.ts"
import { changedSpec, toMachine } from "./translate.ts"

/** Facts of the installation that a host needs to join. */
export interface JoinFacts {
  /** Key that join tokens are derived from; undefined while it is not known. */
  bootstrapKey: () => Uint8Array | undefined
  /** Returns the commands with which a host joins by this token. */
  commands: (token: string) => JoinCommands
}

export interface MachinesOptions {
  collection: Collection<StoredMachine>
  namespace: string
  creationTimes: CreationTimes
  joins: JoinFacts
  /** Throws the Problem for which no host may join as a machine. Absent: any may. */
  requireAllowed?: () => void
  clock: Clock
}

/** Machine with a way for one host to join as it. */
export interface Joining {
  machine: StoredMachine
  join: MachineJoin
}

/** Machines of one project. Writes have the caller's rights. */
export class Machines {
  readonly #options: MachinesOptions

  constructor(options: MachinesOptions) {
    this.#options = options
  }

  page(page: Page): PageOf<StoredMachine> {
    return this.#options.collection.page(page)
  }

  /** @throws Problem 404 */
  find(idOrName: string): Promise<StoredMachine> {
    return this.#options.collection.find(idOrName)
  }

  /** Creates a machine, and a token with which a host joins as it. @throws Problem 403, 409 name in use, 422, 503 */
  async create(creation: MachineCreation, idempotencyKey?: string): Promise<Joining> {
    const { collection, namespace, creationTimes } = this.#options
    const key = this.#joinKey()
    const idempotency =
      idempotencyKey === undefined ? undefined : { key: idempotencyKey, requestHash: requestHash(creation) }
    const identity = { namespace, createdAt: creationTimes.next(), idempotency }
    const wanted = toMachine(creation, identity) as StoredMachine
    const again = idempotency && {
      key: idempotency.key,
      accept: (earlier: StoredMachine) => replay(earlier, idempotency),
    }
    const machine = await collection.create(wanted, creation.name, again)
    return { machine, join: this.#joinOf(machine, key) }
  }

  /** @throws Problem 404, 412 */
  change(idOrName: string, change: MachineChange, precondition?: Precondition): Promise<StoredMachine> {
    const changed = (present: StoredMachine): StoredMachine | undefined => {
      const spec = changedSpec(present, change)
      return requestHash(spec) === requestHash(present.spec) ? undefined : { ...present, spec }
    }
    return this.#options.collection.change(idOrName, changed, precondition)
  }

  /** Issues another join token. It makes the former ones invalid. @throws Problem 403, 404, 412, 503 */
  async issueToken(idOrName: string, precondition?: Precondition): Promise<Joining> {
    const key = this.#joinKey()
    const changed = (present: StoredMachine): StoredMachine => ({
      ...present,
      spec: { ...present.spec, joinNumber: (present.spec.joinNumber ?? 0) + 1 },
    })
    const machine = await this.#options.collection.change(idOrName, changed, precondition)
    return { machine, join: this.#joinOf(machine, key) }
  }

  /** @throws Problem 404, 412 */
  remove(idOrName: string, precondition?: Precondition): Promise<void> {
    return this.#options.collection.remove(idOrName, precondition)
  }

  #joinOf({ metadata, spec }: StoredMachine, key: Uint8Array): MachineJoin {
    const { clock, joins } = this.#options
    const { name, uid, namespace = "" } = metadata
    const expires = Math.floor(clock.now().getTime() / 1000) + JOIN_TOKEN_SECONDS
    const token = joinToken(key, { namespace, name, uid, number: spec.joinNumber ?? 0, expires })
    const { docker = null, systemd = null, source = null, note = null } = joins.commands(token)
    return { token, expires_at: timestamp(new Date(expires * 1000)), docker, systemd, source, note }
  }

  /** Returns the key for a join token. @throws Problem 403 if no host may join, 503 before the operator's first start */
  #joinKey(): Uint8Array {
    this.#options.requireAllowed?.()
    const key = this.#options.joins.bootstrapKey()
    if (key !== undefined) return key
    throw unavailable("The operator has not made the installation's keys yet: try again.", 5)
  }
}
