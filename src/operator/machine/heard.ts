import type { Clock } from "../../core/apis/clock.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import { MachineCondition, type StoredMachine } from "../../core/apis/machine.ts"
import { SILENT, SILENT_SECONDS } from "../../core/machines/machine.ts"

/** Heartbeat of a host, as this process has seen it. */
interface Heard {
  beat: string
  /** Monotonic time at which this process saw it, seconds. */
  at: number
}

/**
 * Times for which hosts were silent, by this process's own clock. The time of a heartbeat is by the clock of a gateway, which
 * may be wrong by hours, and a lease that ends too early runs a job twice. So only a change of it counts, as Kubernetes does
 * with the leases of its nodes. After a restart the time begins again: late is better than twice.
 */
export class HeardHosts {
  readonly #clock: Pick<Clock, "monotonic">
  readonly #heard = new Map<string, Heard>()

  constructor(clock: Pick<Clock, "monotonic">) {
    this.#clock = clock
  }

  /** Returns the seconds for which nothing was heard of a machine's host; undefined if no host has joined. */
  silence({ metadata: { uid }, status }: StoredMachine): number | undefined {
    const { host } = status ?? {}
    const beat = host && JSON.stringify([host.joinNumber, host.sequence, host.lastHeartbeatTime])
    if (beat === undefined) return void this.#heard.delete(uid)
    const now = this.#clock.monotonic()
    const known = this.#heard.get(uid)
    if (known?.beat === beat) return now - known.at
    // A host that was silent before this process began is silent still.
    const { reason = "" } = findCondition(status?.conditions, MachineCondition.Ready) ?? {}
    const wasSilent = known === undefined && SILENT.includes(reason)
    const at = now - (wasSilent ? SILENT_SECONDS : 0)
    this.#heard.set(uid, { beat, at })
    return now - at
  }

  /** Forgets machines that are deleted. */
  forget(uid: string): void {
    this.#heard.delete(uid)
  }
}
