import { type ConditionUpdate, cutTo, findCondition, setCondition } from "../../apis/conditions.ts"
import {
  ConnectionCondition,
  ConnectionReason,
  type ConnectionStatus,
  type StoredConnection,
} from "../../apis/connection.ts"
import { LIMITS } from "../../apis/limits.ts"
import type { Condition } from "../../apis/schema.ts"
import type { LaunchPermission } from "../../cloud/account.ts"
import type { EventNote } from "../../kube/events.ts"
import type { CredentialsUnusable } from "./credentials.ts"

/** How a connection stands. `version` says with which credentials. */
export type Situation =
  /** As its status says. */
  | { is: "unchanged" }
  | { is: "unusable"; why: Pick<CredentialsUnusable, "reason" | "message"> }
  | { is: "verifying" }
  | { is: "verified"; version: string; account: string; time: string; launch?: LaunchPermission }
  | { is: "refused"; version: string; message: string }
  | { is: "unreachable"; version: string; message: string }
  | { is: "unsupported"; version: string }

/** Why credentials can't be had yet that may be on their way: a repository's objects, and a vault's, come in any order. */
const ON_THEIR_WAY: readonly ConnectionReason[] = [ConnectionReason.SecretNotFound, ConnectionReason.NoProject]

/** Whether only somebody's act can change it. */
function isStalledBy(situation: Situation): boolean {
  if (situation.is === "unusable") return !ON_THEIR_WAY.includes(situation.why.reason)
  return situation.is === "refused" || situation.is === "unsupported"
}

/**
 * What is told of a connection. For kstatus (Helm, Flux, Argo CD): Reconciling until its credentials are there and the
 * provider has been asked, then Ready; Stalled when only somebody's act can help. Pure.
 */
export function statusOf(
  connection: StoredConnection,
  situation: Situation,
  { regions, now }: { regions: readonly string[]; now: Date },
): ConnectionStatus {
  const { status = {}, metadata } = connection
  const before = status.conditions ?? []
  const conditions = updatesOf(connection, situation).reduce<Condition[]>(
    (all, update) => setCondition(all, update, metadata.generation, now),
    [...before],
  )
  const used = usedRegions(status.regions, regions)
  return {
    ...verificationOf(status, situation),
    ...(used.length > 0 && { regions: used }),
    conditions,
    observedGeneration: metadata.generation,
  }
}

type Verification = Pick<ConnectionStatus, "account" | "lastVerifiedTime" | "verifiedCredentials">

/** Whose account it is goes with the credentials that were verified: others may open another one. */
function verificationOf(status: ConnectionStatus, situation: Situation): Verification {
  if (situation.is === "verified") {
    const { account, time, version } = situation
    return { account: cutTo(account, 256), lastVerifiedTime: time, verifiedCredentials: version }
  }
  const { account, lastVerifiedTime, verifiedCredentials } = status
  const isSame = situation.is === "unchanged" || ("version" in situation && situation.version === verifiedCredentials)
  if (!isSame) return {}
  return {
    ...(account !== undefined && { account }),
    ...(lastVerifiedTime !== undefined && { lastVerifiedTime }),
    ...(verifiedCredentials !== undefined && { verifiedCredentials }),
  }
}

function usedRegions(known: readonly string[] = [], seen: readonly string[]): string[] {
  return [...new Set([...known, ...seen])].slice(-LIMITS.usedRegions)
}

function updatesOf(connection: StoredConnection, situation: Situation): ConditionUpdate[] {
  const before = connection.status?.conditions
  if (situation.is === "unchanged") return [...(before ?? [])]
  const why = whyOf(connection, situation)
  const isStalled = isStalledBy(situation)
  const isReady = situation.is === "verified"
  const stalled = condition(ConnectionCondition.Stalled, isStalled, why)
  return [
    condition(ConnectionCondition.Ready, isReady, why),
    condition(ConnectionCondition.Reconciling, !isReady && !isStalled, why),
    ...(isStalled || findCondition(before, ConnectionCondition.Stalled) !== undefined ? [stalled] : []),
    ...(situation.is === "verified" && situation.launch !== undefined ? [launchCondition(situation.launch)] : []),
  ]
}

function launchCondition(launch: LaunchPermission): ConditionUpdate {
  const type = ConnectionCondition.LaunchPermitted
  switch (launch.is) {
    case "granted": {
      const message = "the credentials may do all that starting VMs needs"
      return { type, status: "True", reason: ConnectionReason.PermissionsGranted, message }
    }
    case "denied": {
      const message = `no VM is started with this connection: ${launch.message}`
      return { type, status: "False", reason: ConnectionReason.PermissionsMissing, message }
    }
    case "unknown":
      return { type, status: "Unknown", reason: ConnectionReason.PermissionsUnknown, message: launch.message }
  }
}

interface Why {
  reason: ConnectionReason
  message: string
}

function whyOf({ spec }: StoredConnection, situation: Exclude<Situation, { is: "unchanged" }>): Why {
  switch (situation.is) {
    case "unusable":
      return { reason: situation.why.reason, message: situation.why.message }
    case "verifying":
      return { reason: ConnectionReason.Verifying, message: "the provider is asked whose credentials these are" }
    case "verified":
      return { reason: ConnectionReason.Verified, message: `the credentials open ${spec.type} ${situation.account}` }
    case "refused":
      return {
        reason: ConnectionReason.CredentialsRefused,
        message: `the provider does not take the credentials: ${situation.message}`,
      }
    case "unreachable":
      return {
        reason: ConnectionReason.ProviderUnreachable,
        message: `the provider could not be asked, this is tried again: ${situation.message}`,
      }
    case "unsupported":
      return {
        reason: ConnectionReason.Unverified,
        message: `this version can't verify or use connections of type ${spec.type} yet`,
      }
  }
}

function condition(type: string, isTrue: boolean, why: Why): ConditionUpdate {
  return { type, status: isTrue ? "True" : "False", ...why }
}

/** Returns an event for each condition whose reason has changed. The start of a verification emits none. Pure. */
export function eventsOf(before: ConnectionStatus | undefined, after: ConnectionStatus): EventNote[] {
  return [ConnectionCondition.Ready, ConnectionCondition.LaunchPermitted].flatMap((type) => {
    const old = findCondition(before?.conditions, type)
    const current = findCondition(after.conditions, type)
    if (current === undefined || current.reason === old?.reason || current.reason === ConnectionReason.Verifying)
      return []
    const { status, reason, message } = current
    return [{ type: status === "True" ? ("Normal" as const) : ("Warning" as const), reason, message }]
  })
}
