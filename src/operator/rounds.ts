import { pause } from "../core/apis/backoff.ts"
import type { Clock } from "../core/apis/clock.ts"
import type { Logger } from "../core/apis/logger.ts"
import { NotLeaderError } from "./fence.ts"

export interface RoundsOptions {
  clock: Clock
  logger: Logger
  /** Delay between two rounds, seconds. */
  intervalSeconds: number
  /** Log message of a round that failed. */
  failure: string
}

/**
 * Repeats a leader's round until the signal is aborted. A failed round is logged and does not end the others.
 * @throws NotLeaderError as soon as another leads
 */
export async function inRounds(
  round: () => Promise<unknown>,
  { clock, logger, intervalSeconds, failure }: RoundsOptions,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    await round().catch((error: unknown) => {
      if (error instanceof NotLeaderError) throw error
      logger.warn({ err: error }, failure)
    })
    await pause(clock, intervalSeconds, signal).catch(() => undefined)
  }
}
