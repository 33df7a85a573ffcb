import type { Fault } from "../../apis/validate.ts"

/** A body that makes nothing, and everything that is wrong with it. */
export interface Refused<Body> {
  faults: Fault[]
  /** The body, where only the time or the catalogue is against it by now: sent earlier, it may have made something. */
  once?: Body
}

/**
 * What is to be refused of a body; undefined: nothing is wrong with it.
 * @param faults what is wrong whenever it is sent
 * @param now what the time or the catalogue has against it
 */
export function refusedBy<Body>(
  body: Body,
  faults: readonly Fault[],
  now: readonly Fault[],
): Refused<Body> | undefined {
  if (faults.length + now.length === 0) return undefined
  return { faults: [...faults, ...now], ...(faults.length === 0 && { once: body }) }
}
