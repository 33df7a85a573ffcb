import { isDeepStrictEqual } from "node:util"
import { secondsBetween, timestamp } from "../../apis/clock.ts"
import { cutTo } from "../../apis/conditions.ts"
import type { LaunchStatus, StoredLaunch } from "../../apis/launch.ts"
import { CloudError, CredentialsError } from "../../cloud/errors.ts"
import { KubeError } from "../../kube/errors.ts"
import { NotLeaderError } from "../fence.ts"
import type { LaunchSettings } from "./settings.ts"

type Unanswered = NonNullable<LaunchStatus["unanswered"]>

/** Why an attempt at a Launch's VM brought no answer. */
export type Silence = Pick<Unanswered, "class" | "message">

/** A row of attempts that brought none, all of one class. */
export interface Attempts extends Silence {
  since: Date
  /** When it was written down last, if it was. */
  told?: Date
}

/**
 * What there is to tell of an attempt that failed, for the job's owner; undefined where it was not the cloud's turn: the
 * API server's, or another leader's. Errors that are none of a cloud's are Berth's own: what they say is for its log.
 */
export function silenceOf(error: unknown): Silence | undefined {
  if (error instanceof KubeError || error instanceof NotLeaderError) return undefined
  if (error instanceof CloudError) {
    const kind = error instanceof CredentialsError ? "Credentials" : "Unavailable"
    return { class: kind, message: cutTo(error.message, 1024) }
  }
  const name = error instanceof Error ? error.name : typeof error
  return { class: "Unavailable", message: `a fault of Berth's own (${name}), which the operator's log tells more of` }
}

/**
 * What is to be written of attempts: why there is no VM yet, once it has lasted; words that change with each attempt once
 * in a while. Undefined: nothing. Pure.
 */
export function silenceToTell(
  { status }: StoredLaunch,
  attempts: Attempts,
  now: Date,
  settings: LaunchSettings,
): Unanswered | undefined {
  if (secondsBetween(attempts.since, now) < settings.settleSeconds) return undefined
  const before = status?.unanswered?.class === attempts.class ? status.unanswered : undefined
  const isFresh = attempts.told !== undefined && secondsBetween(attempts.told, now) < settings.retellSeconds
  if (before !== undefined && isFresh) return undefined
  // An earlier leader may have met the same.
  const since = before?.since ?? timestamp(attempts.since)
  const next = { class: attempts.class, message: attempts.message, since }
  return isDeepStrictEqual(before, next) ? undefined : next
}
