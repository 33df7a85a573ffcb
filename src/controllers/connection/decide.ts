import { isDeepStrictEqual } from "node:util"
import { secondsBetween, timestamp } from "../../apis/clock.ts"
import { findCondition } from "../../apis/conditions.ts"
import { ConnectionCondition, type ConnectionStatus, type StoredConnection } from "../../apis/connection.ts"
import { CredentialsUnusable, type FoundCredentials } from "./credentials.ts"
import type { Attempt, ConnectionObservation } from "./observation.ts"
import type { ConnectionSettings } from "./settings.ts"
import { type Situation, statusOf } from "./status.ts"

export type ConnectionAction =
  /** Seal the same credentials under the present key. */
  { do: "reseal"; project: string } | { do: "verify"; credentials: FoundCredentials }

export interface ConnectionDecision {
  /** To be written before the actions; absent: as it is. */
  status?: ConnectionStatus
  actions: ConnectionAction[]
  /** Seconds after which time alone changes the decision. */
  requeueAfter?: number
}

/** What is to be done about a connection. Pure. */
export function decide(
  connection: StoredConnection,
  observed: ConnectionObservation,
  now: Date,
  settings: ConnectionSettings,
): ConnectionDecision {
  if (connection.metadata.deletionTimestamp !== undefined) return { actions: [] }
  const { credentials, isOutdated } = observed
  const status = changed(connection, situationOf(connection, observed, now, settings), observed, now)
  // Whatever makes them usable (a Secret, a key, other credentials, a project) announces itself.
  if (credentials instanceof CredentialsUnusable) return { ...status, actions: [] }
  const reseal: ConnectionAction[] = isOutdated ? [{ do: "reseal", project: credentials.project }] : []
  const due = dueInSeconds(connection, observed, now, settings)
  if (due <= 0) return { ...status, actions: [...reseal, { do: "verify", credentials }] }
  return { ...status, actions: reseal, ...(Number.isFinite(due) && { requeueAfter: due }) }
}

/** Whether these very credentials were seen to work, as far as the status tells. */
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
  const { version } = credentials
  if (attempt?.outcome.is === "verified") {
    return { ...attempt.outcome, version, time: timestamp(attempt.time) }
  }
  if (attempt === undefined) return wasVerified(connection, credentials) ? { is: "unchanged" } : unasked(connection)
  if (attempt.outcome.is !== "unreachable") return { ...attempt.outcome, version }
  const { lastVerifiedTime } = connection.status ?? {}
  const isRecent =
    lastVerifiedTime !== undefined && secondsBetween(lastVerifiedTime, now) < settings.unreachableGraceSeconds
  return wasVerified(connection, credentials) && isRecent ? { is: "unchanged" } : { ...attempt.outcome, version }
}

/** A refusal that a former process has written stands until it is known better; anything else begins anew. */
function unasked({ metadata, status }: StoredConnection): Situation {
  const ready = findCondition(status?.conditions, ConnectionCondition.Ready)
  const stands = ready?.status === "False" && ready.observedGeneration === metadata.generation
  return stands ? { is: "unchanged" } : { is: "verifying" }
}

/** Seconds until the provider is to be asked; none or less: now. */
function dueInSeconds(
  connection: StoredConnection,
  { credentials, attempt, refusedTime }: ConnectionObservation,
  now: Date,
  settings: ConnectionSettings,
): number {
  if (attempt?.outcome.is === "unsupported" || credentials instanceof CredentialsUnusable) return Infinity
  const lastTime =
    attempt?.time ?? (wasVerified(connection, credentials) ? connection.status?.lastVerifiedTime : undefined)
  if (lastTime === undefined) return 0
  // Times of refusals have whole seconds: one of the same second may be later.
  const isNews = refusedTime !== undefined && refusedTime !== attempt?.refusedTime
  if (isNews && secondsBetween(timestamp(new Date(lastTime)), refusedTime) >= 0) return 0
  return pauseSeconds(connection, attempt, settings) - secondsBetween(lastTime, now)
}

function pauseSeconds(
  { metadata }: StoredConnection,
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
      return settings.intervalSeconds * (0.75 + 0.5 * shareOf(metadata.uid))
  }
}

/** A number in [0, 1) that is the object's own: not all connections shall be verified at the same moment. */
function shareOf(uid: string): number {
  return Number.parseInt(uid.slice(0, 8), 16) / 2 ** 32 || 0
}

function changed(
  connection: StoredConnection,
  situation: Situation,
  { regions }: ConnectionObservation,
  now: Date,
): { status?: ConnectionStatus } {
  const status = statusOf(connection, situation, { regions, now })
  return isDeepStrictEqual(status, connection.status) ? {} : { status }
}
