import { isDeepStrictEqual } from "node:util"
import { CredentialsUnusable, type FoundCredentials } from "../../accounts/credentials.ts"
import { secondsBetween, timestamp } from "../../core/apis/clock.ts"
import { cutTo, findCondition } from "../../core/apis/conditions.ts"
import {
  ConnectionCondition,
  ConnectionReason,
  type ConnectionStatus,
  openCheck,
  type StoredConnection,
} from "../../core/apis/connection.ts"
import { defined } from "../../core/apis/defined.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import { toVmSettings } from "../../core/apis/vm-settings.ts"
import type { Decision } from "../../core/runtime/reconcile-object.ts"
import type { Attempt, ConnectionObservation } from "./gather.ts"
import type { ConnectionSettings } from "./settings.ts"
import { buildEvents, explainSituation, nextStatus, type Situation, usedRegions } from "./status.ts"

export type ConnectionAction =
  /** Seals the same credentials under the primary key. */
  | { do: "reseal"; project: string }
  /** `refusedTime`: the last rejection of a launch that is known now (RFC 3339). */
  | {
      do: "verify"
      credentials: FoundCredentials
      regions: readonly string[]
      refusedTime?: string
      /** Request of a user that it answers. */
      request?: string
    }

/** Delay before checking again whether the project has room for the connection, seconds. */
const OVER_LIMIT_SECONDS = 120

/** Decides what to do with a connection. Pure. */
export function decide(
  connection: StoredConnection,
  observed: ConnectionObservation,
  now: Date,
  settings: ConnectionSettings,
): Decision<ConnectionStatus, ConnectionAction> {
  if (connection.metadata.deletionTimestamp !== undefined) return { actions: [] }
  const { credentials, isOutdated, refusedTime } = observed
  const status = changeOf(connection, situationOf(connection, observed, now, settings), observed, now)
  // The change that makes them usable (a Secret, a key, other credentials, a project) requeues the connection.
  if (credentials instanceof CredentialsUnusable) {
    const isOverLimit = credentials.reason === ConnectionReason.ProjectLimit
    return { ...status, actions: [], ...(isOverLimit && { requeueAfter: OVER_LIMIT_SECONDS }) }
  }
  // The change of the spec requeues the connection.
  if (isOutdated) return { ...status, actions: [{ do: "reseal", project: credentials.project }] }
  const due = dueInSeconds(connection, observed, now, settings)
  const regions = usedRegions(connection.status?.regions, observed.regions)
  const request = openCheck(connection)
  const verify = {
    ...{ do: "verify" as const, credentials, regions },
    ...defined({ refusedTime, request }),
  }
  if (due <= 0) return { ...status, actions: [verify] }
  const next = Math.min(due, secondsOfCooldown(observed, now))
  return { ...status, actions: [], ...(Number.isFinite(next) && { requeueAfter: next }) }
}

/** Seconds until the cooldown has ended. */
function secondsOfCooldown({ cooldown }: ConnectionObservation, now: Date): number {
  return cooldown === undefined ? Number.POSITIVE_INFINITY : Math.max(1, secondsBetween(now, cooldown.until))
}

/** Returns true if these credentials were verified, according to the status. */
function wasVerified({ status }: StoredConnection, { version }: FoundCredentials): boolean {
  const ready = findCondition(status?.conditions, ConnectionCondition.Ready)
  return ready?.status === "True" && status?.verifiedCredentials === version
}

function situationOf(
  connection: StoredConnection,
  { credentials, attempt }: ConnectionObservation,
  now: Date,
  settings: ConnectionSettings,
): Situation {
  if (credentials instanceof CredentialsUnusable) return { is: "unusable", why: credentials }
  if (attempt === undefined)
    return wasVerified(connection, credentials) ? { is: "unchanged" } : situationAtStart(connection)
  if (attempt.outcome.is !== "unreachable") return situationAfter(attempt)
  const { lastVerifiedTime } = connection.status ?? {}
  const isRecent =
    lastVerifiedTime !== undefined && secondsBetween(lastVerifiedTime, now) < settings.unreachableGraceSeconds
  return wasVerified(connection, credentials) && isRecent ? { is: "unchanged" } : situationAfter(attempt)
}

function situationAfter({ outcome, version, time }: Attempt): Exclude<Situation, { is: "unchanged" }> {
  return outcome.is === "verified" ? { ...outcome, version, time: timestamp(time) } : { ...outcome, version }
}

/** Keeps a rejection that a former process wrote until the provider has answered. Anything else starts again. */
function situationAtStart({ metadata, status }: StoredConnection): Situation {
  const ready = findCondition(status?.conditions, ConnectionCondition.Ready)
  const stands = ready?.status === "False" && ready.observedGeneration === metadata.generation
  return stands ? { is: "unchanged" } : { is: "verifying" }
}

/** Seconds until the next verification; 0 or less: now. A user may ask for one earlier, but not often. */
function dueInSeconds(
  connection: StoredConnection,
  observed: ConnectionObservation,
  now: Date,
  settings: ConnectionSettings,
): number {
  const due = dueByItself(connection, observed, now, settings)
  const { attempt } = observed
  const request = openCheck(connection)
  if (request === undefined || request === attempt?.request) return due
  const pause = attempt === undefined ? 0 : settings.requestedPauseSeconds - secondsBetween(attempt.time, now)
  return Math.min(due, pause)
}

function dueByItself(
  connection: StoredConnection,
  { credentials, attempt, refusedTime }: ConnectionObservation,
  now: Date,
  settings: ConnectionSettings,
): number {
  if (attempt?.outcome.is === "unsupported" || credentials instanceof CredentialsUnusable) return Infinity
  const lastTime =
    attempt?.time ?? (wasVerified(connection, credentials) ? connection.status?.lastVerifiedTime : undefined)
  if (lastTime === undefined) return 0
  // The check was about another network. This process has no attempt after its start: the status is checked again soon.
  if (attempt !== undefined && !isDeepStrictEqual(attempt.settings, toVmSettings(connection.spec))) return 0
  // Times of refusals have whole seconds: one of the same second may be later.
  const isNews = refusedTime !== undefined && refusedTime !== attempt?.refusedTime
  if (isNews && secondsBetween(timestamp(new Date(lastTime)), refusedTime) >= 0) return 0
  // A fast clock may have written the time.
  return pauseSeconds(connection, attempt, settings) - Math.max(0, secondsBetween(lastTime, now))
}

function pauseSeconds(
  { metadata, status }: StoredConnection,
  attempt: Attempt | undefined,
  settings: ConnectionSettings,
): number {
  const doubled = 2 ** ((attempt?.count ?? 1) - 1)
  switch (attempt?.outcome.is) {
    case "refused":
      return Math.min(settings.refusedRetrySeconds * doubled, settings.intervalSeconds)
    case "unreachable":
      return Math.min(settings.unreachableRetrySeconds * doubled, settings.unreachableRetryCapSeconds)
    default:
      if (isUnable(status, attempt)) return Math.min(settings.unableIntervalSeconds, settings.intervalSeconds)
      return settings.intervalSeconds * (0.75 + 0.5 * shareOf(metadata.uid))
  }
}

/** Returns true if the last check found that the credentials can't start VMs. */
function isUnable(status: ConnectionStatus | undefined, attempt: Attempt | undefined): boolean {
  if (attempt?.outcome.is !== "verified") return status?.capabilities?.vms?.status === "False"
  return attempt.outcome.capabilities?.vms?.is === "denied"
}

/** A number in [0, 1), constant for an object. It spreads the verifications of all connections over time. */
function shareOf(uid: string): number {
  return Number.parseInt(uid.slice(0, 8), 16) / 2 ** 32 || 0
}

/**
 * Returns the result of the last check that a user has asked for. An unreachable provider is a result, although the
 * connection stays Ready for some time. Credentials that can't be used are one at once: there is nothing to ask the provider.
 */
function lastCheckOf(
  connection: StoredConnection,
  { credentials, attempt }: ConnectionObservation,
  now: Date,
): ConnectionStatus["lastCheck"] {
  const request = openCheck(connection)
  if (request === undefined) return connection.status?.lastCheck
  const result = (time: Date, situation: Parameters<typeof explainSituation>[1]) => {
    const { reason, message } = explainSituation(connection, situation)
    return { request, time: timestamp(time), reason, message: cutTo(message, LIMITS.message) }
  }
  if (credentials instanceof CredentialsUnusable) return result(now, { is: "unusable", why: credentials })
  if (attempt === undefined || attempt.request !== request) return connection.status?.lastCheck
  return result(attempt.time, situationAfter(attempt))
}

function changeOf(
  connection: StoredConnection,
  situation: Situation,
  observed: ConnectionObservation,
  now: Date,
): Pick<Decision<ConnectionStatus, ConnectionAction>, "status" | "events"> {
  const { regions, cooldown, credentials, prices } = observed
  const identity = credentials instanceof CredentialsUnusable ? undefined : credentials.identity
  const lastCheck = lastCheckOf(connection, observed, now)
  const status = nextStatus(connection, situation, { regions, cooldown, prices, identity, lastCheck, now })
  return isDeepStrictEqual(status, connection.status) ? {} : { status, events: buildEvents(connection.status, status) }
}
