import { backoffSeconds } from "../../core/apis/backoff.ts"
import { type Clock, secondsBetween } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { Buckets, RunOrder } from "../../core/protocol/protocol.ts"
import type { Runtime } from "../runtimes/runtime.ts"
import { waitUnlessAborted } from "../timers.ts"

/** Share of the lifetime of an access that is left at its renewal, which is enough for many retries. */
const LEFT_AT_RENEWAL = 1 / 3

/** Minimum delay until a renewal, seconds, also for a short access. */
const LEAST_SECONDS = 5

const RETRY_SECONDS = { baseSeconds: 1, capSeconds: 60 }

export interface Renewal {
  order: Promise<RunOrder>
  runtime: Pick<Runtime, "renew">
  /** Requests new access. */
  fetch: () => Promise<Buckets>
  clock: Clock
  logger: Logger
}

/** Renews the access to the buckets of the order while it has an expiration, until the signal is aborted. */
export async function keepAccess(
  { order, runtime, fetch, clock, logger }: Renewal,
  signal: AbortSignal,
): Promise<void> {
  // Without an order nothing is mounted. The code that needs the order reports the error.
  let buckets = (await Promise.race([order.catch(() => undefined), untilAbort(signal)]))?.buckets ?? {}
  for (let tries = 0; !signal.aborted; ) {
    const seconds = tries === 0 ? secondsToRenewal(buckets, clock.now()) : backoffSeconds(tries + 1, RETRY_SECONDS)
    if (seconds === undefined) return
    await waitUnlessAborted(clock, seconds, signal)
    if (signal.aborted) return
    try {
      buckets = await fetch()
      await runtime.renew(buckets)
      tries = 0
    } catch (error) {
      tries++
      logger.warn({ err: error }, "failed to renew the access to the buckets; retrying")
    }
  }
}

/** Returns the seconds until access has to be renewed; undefined if no access expires. */
export function secondsToRenewal(buckets: Buckets, now: Date): number | undefined {
  const ends = Object.values(buckets).flatMap(({ expiration }) =>
    expiration === undefined ? [] : [Date.parse(expiration)],
  )
  if (ends.length === 0) return undefined
  const left = -secondsBetween(new Date(Math.min(...ends)).toISOString(), now)
  return Math.max(LEAST_SECONDS, left * (1 - LEFT_AT_RENEWAL))
}

async function untilAbort(signal: AbortSignal): Promise<undefined> {
  const { promise, resolve } = Promise.withResolvers<undefined>()
  signal.addEventListener("abort", () => resolve(undefined), { once: true })
  if (signal.aborted) resolve(undefined)
  return await promise
}
