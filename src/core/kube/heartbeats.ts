import type { Clock } from "../apis/clock.ts"
import type { HeartbeatTimes } from "../apis/launch.ts"
import { ANNOTATIONS, LABELS } from "../apis/meta.ts"
import { type Lease, leases } from "./lease.ts"
import type { Reflector, ReflectorOptions } from "./reflector.ts"

/** Options of the reflector of the Leases with heartbeats. Its namespace is where the gateway writes them. */
export const HEARTBEATS_CACHE: Pick<ReflectorOptions<Lease>, "resource" | "labelSelector"> = {
  resource: leases,
  labelSelector: LABELS.heartbeats,
}

/**
 * A time that is further in the future than this is ignored, seconds. Otherwise a Lease that was written under a wrong
 * clock would make VMs look alive for long after its writer has ended.
 */
const FUTURE_SECONDS = 60

/** Heartbeats in all cached Leases. A name may be in several, because an agent may report to any replica. */
export class SharedHeartbeats implements HeartbeatTimes {
  readonly #clock: Clock
  readonly #byLease = new Map<string, ReadonlyMap<string, number>>()

  constructor(cache: Pick<Reflector<Lease>, "onChange">, clock: Clock) {
    this.#clock = clock
    cache.onChange(({ key, current }) => {
      if (current === undefined) this.#byLease.delete(key)
      else this.#byLease.set(key, parseHeartbeats(current.metadata.annotations?.[ANNOTATIONS.heartbeats]))
    })
  }

  get(name: string): Date | undefined {
    const latest = this.#clock.now().getTime() / 1000 + FUTURE_SECONDS
    let last: number | undefined
    for (const times of this.#byLease.values()) {
      const time = times.get(name)
      if (time !== undefined && time <= latest && !(last !== undefined && last >= time)) last = time
    }
    return last === undefined ? undefined : new Date(last * 1000)
  }
}

/**
 * Returns heartbeats as the text of an annotation: `name:seconds` of each, where seconds count from 1970. No Kubernetes
 * name has a colon or a space.
 */
export function heartbeatsText(times: Iterable<readonly [name: string, seconds: number]>): string {
  return Array.from(times, ([name, seconds]) => `${name}:${Math.floor(seconds)}`).join(" ")
}

/** Returns the heartbeats of such a text. Anything else in it is ignored. */
export function parseHeartbeats(text = ""): Map<string, number> {
  const times = new Map<string, number>()
  for (const one of text.split(" ")) {
    const colon = one.indexOf(":")
    const seconds = Number(one.slice(colon + 1))
    if (colon > 0 && Number.isSafeInteger(seconds) && seconds > 0) times.set(one.slice(0, colon), seconds)
  }
  return times
}
