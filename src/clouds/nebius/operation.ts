import { pause } from "../../core/apis/backoff.ts"
import { type Clock, systemClock } from "../../core/apis/clock.ts"
import { afterAcceptance, OutcomeUnknownError } from "../../core/outbound/errors.ts"
import type { Json } from "./api.ts"
import type { Nebius } from "./client.ts"
import { classify, statusFailure } from "./errors.ts"

/** Progress of a change (nebius/common/v1/operation.proto). It has ended if it has a status. */
export interface Operation {
  id?: string
  resourceId?: string
  createdAt?: string
  status?: Json
}

export interface FollowOptions {
  clock?: Clock
  /** Delay between two looks, seconds. Default 2. */
  lookSeconds?: number
  /** Maximum time, seconds. Default 120. Afterwards the outcome is unknown, and the next, identical call continues. */
  followSeconds?: number
}

const LOOK_SECONDS = 2
const FOLLOW_SECONDS = 120

/** Waits for the end of an operation that a method started. @throws its error, classified; OutcomeUnknownError after a timeout */
export async function follow(
  nebius: Nebius,
  started: Operation,
  options: FollowOptions & { startedBy: string },
): Promise<void> {
  const { clock = systemClock, lookSeconds = LOOK_SECONDS, followSeconds = FOLLOW_SECONDS } = options
  const deadline = clock.monotonic() + followSeconds
  let operation = started
  while (operation.status === undefined) {
    if (clock.monotonic() >= deadline) {
      const message = `operation ${started.id} has not ended: Berth polls it again`
      throw new OutcomeUnknownError("OperationPending", message)
    }
    await pause(clock, lookSeconds, new AbortController().signal)
    const look = nebius.call("common.v1.OperationService/Get", { id: started.id ?? "" }, { hostOf: options.startedBy })
    operation = (await afterAcceptance(look)) as Operation
  }
  const failure = statusFailure(operation.status)
  // The operation has ended, so its error says what became of it.
  if (failure.code !== 0) throw classify(failure, "read", failure)
}
