import { createHash } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import type { Clock } from "../apis/clock.ts"
import { ANNOTATIONS, type KubeObject } from "../apis/meta.ts"
import { Problem, unavailable } from "../http/problem.ts"
import { IDENTITIES_NAMESPACE } from "../identity/machine-users.ts"
import type { KubeClient } from "../kube/client.ts"
import { ifFound, isAlreadyExists, isConflict, isNotFound } from "../kube/errors.ts"
import { type Lease, leases } from "../kube/lease.ts"
import type { Logger } from "../telemetry/logger.ts"

/** A request that may be sent again: its key, and the hash of its body that tells it from another one. */
export interface Idempotency {
  key: string
  requestHash: string
}

/** The Idempotency-Key of the request that made an object. */
export function usedKey(object: Pick<KubeObject, "metadata"> | undefined): string | undefined {
  return object?.metadata.annotations?.[ANNOTATIONS.idempotencyKey]
}

/** 422: the key stands for another request. */
export function keyReused(key: string): Problem {
  const detail = `The Idempotency-Key ${JSON.stringify(key)} was used with another body: choose a new key.`
  return new Problem({ type: "idempotency-key-reused", status: 422, detail })
}

/** The object, if the same request made it. @throws Problem 422 */
export function replayed<T extends Pick<KubeObject, "metadata">>(
  object: T | undefined,
  { key, requestHash }: Idempotency,
): T {
  const hash = object?.metadata.annotations?.[ANNOTATIONS.requestHash]
  if (object !== undefined && usedKey(object) === key && hash === requestHash) return object
  throw keyReused(key)
}

/** SHA-256 of a body's value, in hex: the same for JSON and YAML, whatever the order of keys. */
export function requestHash(value: unknown): string {
  return createHash("sha256").update(canonical(value)).digest("hex")
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  if (typeof value !== "object" || value === null) return JSON.stringify(value)
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonical(item)}`).join(",")}}`
}

/** Lets tasks of one key run one after the other; tasks of different keys don't wait for each other. In one process. */
export class Turns {
  readonly #last = new Map<string, Promise<unknown>>()

  /** @param known where turns are shared: what another process has made in its turn, which saves the task */
  async take<Result extends object>(
    key: string,
    task: () => Promise<Result>,
    _known: () => Promise<Result | undefined>,
  ): Promise<Result> {
    const before = this.#last.get(key) ?? Promise.resolve()
    const turn = before.then(task)
    const settled = turn.catch(() => undefined)
    this.#last.set(key, settled)
    try {
      return await turn
    } finally {
      if (this.#last.get(key) === settled) this.#last.delete(key)
    }
  }
}

export interface SharedTurnsOptions {
  /** With the façade's own rights, which has no others to write in IDENTITIES_NAMESPACE. */
  client: Pick<KubeClient, "get" | "create" | "delete">
  clock: Clock
  logger: Pick<Logger, "warn">
}

/** After so long a turn is over, seconds: whoever had it has crashed, as no request and its time-outs take so long. */
const TURN_SECONDS = 120
/** How long a request waits for another one's turn, and how often it looks, milliseconds. */
const PATIENCE_MS = 10_000
const LOOK_MS = 50

/**
 * Lets tasks of one key run one after the other, on whatever replica. Whoever has made the key's Lease has the turn; names
 * are the one thing that Kubernetes keeps unique, and requests with one key and different names would not meet by theirs.
 */
export class SharedTurns extends Turns {
  readonly #options: SharedTurnsOptions

  constructor(options: SharedTurnsOptions) {
    super()
    this.#options = options
  }

  /** @throws Problem 503 when another request's turn lasts too long; KubeError */
  override take<Result extends object>(
    key: string,
    task: () => Promise<Result>,
    known: () => Promise<Result | undefined>,
  ): Promise<Result> {
    const name = `idempotency-${createHash("sha256").update(key).digest("hex").slice(0, 40)}`
    return super.take(
      key,
      async () => {
        const deadline = this.#options.clock.monotonic() + PATIENCE_MS / 1000
        do {
          const lease = await this.#begin(name)
          if (lease !== undefined) return await this.#inTurn(lease, task)
          // The other one may have made it, and be slow or gone since.
          const made = await known()
          if (made !== undefined) return made
          await this.#endOverdue(name)
          await delay(LOOK_MS)
        } while (this.#options.clock.monotonic() < deadline)
        throw unavailable("Another request with this Idempotency-Key is in progress: try again.", 5)
      },
      known,
    )
  }

  async #inTurn<Result>(lease: Lease, task: () => Promise<Result>): Promise<Result> {
    try {
      return await task()
    } finally {
      await this.#end(lease)
    }
  }

  /** The turn; undefined while another replica has it. */
  async #begin(name: string): Promise<Lease | undefined> {
    const lease = { metadata: { name, namespace: IDENTITIES_NAMESPACE }, spec: { leaseDurationSeconds: TURN_SECONDS } }
    try {
      return await this.#options.client.create(leases, lease)
    } catch (error) {
      if (isAlreadyExists(error)) return undefined
      throw error
    }
  }

  /** What was done in the turn is done: that others have to wait until it is overdue doesn't change it. */
  async #end({ metadata }: Lease): Promise<void> {
    const { client, logger } = this.#options
    try {
      await client.delete(leases, metadata, { preconditions: { uid: metadata.uid ?? "" } })
    } catch (err) {
      if (!isNotFound(err) && !isConflict(err)) logger.warn({ err, lease: metadata.name }, "a turn can't be ended")
    }
  }

  async #endOverdue(name: string): Promise<void> {
    const { client, clock } = this.#options
    const lease = await ifFound(client.get(leases, { namespace: IDENTITIES_NAMESPACE, name }))
    const began = Date.parse(lease?.metadata.creationTimestamp ?? "")
    if (lease !== undefined && clock.now().getTime() - began > TURN_SECONDS * 1000) await this.#end(lease)
  }
}
