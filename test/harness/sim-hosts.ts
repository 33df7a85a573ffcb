import { setImmediate } from "node:timers/promises"
import { type Clock, timestamp } from "../../src/core/apis/clock.ts"
import {
  type Host,
  MACHINE_LEASE,
  type MachineFacts,
  type MachineSpec,
  type StoredMachine,
} from "../../src/core/apis/machine.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { ifFound, isConflict } from "../../src/core/kube/errors.ts"
import { MACHINES } from "../../src/core/resources.ts"

const FACTS: MachineFacts = { cpu: 8, memoryGib: 32, diskGib: 200, architecture: "amd64" }

/** Returns the fields of a machine's host that change. */
type HostChange = (machine: StoredMachine) => { [Field in keyof Host]?: Host[Field] | null }

/** Writes what hosts say, like the gateway does: on the version that it read. */
export class SimHosts {
  /** Number of runs that hosts began, by Launch. */
  readonly boots = new Map<string, number>()
  readonly #client: KubeClient
  readonly #clock: Pick<Clock, "now">
  /** Hosts of which nothing is heard any more, by name. */
  readonly #silent = new Set<string>()

  constructor(client: KubeClient, clock: Pick<Clock, "now">) {
    this.#client = client
    this.#clock = clock
  }

  /** Creates a machine whose host has joined. */
  async join(
    ref: { namespace: string; name: string },
    { spec = {}, facts = {} }: { spec?: Partial<MachineSpec>; facts?: Partial<MachineFacts> } = {},
  ): Promise<void> {
    await this.#client.create(MACHINES, { metadata: ref, spec: { joinNumber: 1, ...spec } } as StoredMachine)
    await this.joinAs(ref, facts)
  }

  /** Joins as a machine that exists. */
  async joinAs(ref: { namespace: string; name: string }, facts: Partial<MachineFacts> = {}): Promise<void> {
    await this.#say(ref, ({ spec: { leaseSeconds = MACHINE_LEASE.default } }) => ({
      joinNumber: 1,
      joinTime: this.#now(),
      signingKey: "{}",
      encryptionKey: "{}",
      version: "test",
      facts: { ...FACTS, ...facts },
      sequence: 1,
      leaseSeconds,
    }))
  }

  /** Runs one step of all hosts of a namespace: each begins or ends a run as its machine's status says. */
  async step(namespace: string): Promise<void> {
    const { items } = await this.#client.list(MACHINES, { namespace })
    for (const { metadata } of items) {
      if (!this.#silent.has(metadata.name)) await this.#stepOf({ namespace, name: metadata.name })
    }
  }

  /** Reads the machine again after a conflict: a step that is not stored is not taken, and a test would go on without it. */
  async #stepOf(ref: { namespace: string; name: string }): Promise<void> {
    for (;;) {
      const machine = await ifFound(this.#client.get(MACHINES, ref))
      const { host, launch } = machine?.status ?? {}
      if (machine === undefined || host === undefined || launch === undefined || host.freed === launch.name) return
      if (launch.endTime !== undefined) return await this.free(ref)
      if (host.running === launch.name) return
      if (await this.#write(machine, () => ({ running: launch.name }))) {
        this.boots.set(launch.name, (this.boots.get(launch.name) ?? 0) + 1)
        return
      }
      await setImmediate()
    }
  }

  /** Says that nothing of a machine's Launch is left on its host. */
  async free(ref: { namespace: string; name: string }): Promise<void> {
    await this.#say(ref, ({ status }) => ({
      running: null,
      freed: status?.launch?.name ?? null,
      freedTime: this.#now(),
    }))
  }

  /** Renews the lease of a machine. */
  async beat(ref: { namespace: string; name: string }): Promise<void> {
    await this.#say(ref, () => ({}))
  }

  /** Lets a host vanish: it says nothing any more. */
  vanish(name: string): void {
    this.#silent.add(name)
  }

  /** Writes on the newest version: a host sends again what was not stored. */
  async #say(ref: { namespace: string; name: string }, change: HostChange): Promise<void> {
    while (!(await this.#write(await this.#client.get(MACHINES, ref), change))) await setImmediate()
  }

  /** Returns false if the machine has changed since it was read. */
  async #write(machine: StoredMachine, change: HostChange): Promise<boolean> {
    const { namespace, name, resourceVersion } = machine.metadata
    const host = { lastHeartbeatTime: this.#now(), ...change(machine) }
    const merge = { metadata: { resourceVersion }, status: { host } }
    try {
      await this.#client.patchStatus(MACHINES, { namespace, name }, { merge }, { fieldManager: "berth-gateway" })
      return true
    } catch (error) {
      if (isConflict(error)) return false
      throw error
    }
  }

  #now(): string {
    return timestamp(this.#clock.now())
  }
}
