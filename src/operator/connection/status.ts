import type { CredentialsUnusable } from "../../accounts/credentials.ts"
import type { Capabilities } from "../../clouds/account.ts"
import { type ConditionUpdate, cutTo, findCondition, setConditions } from "../../core/apis/conditions.ts"
import {
  type CloudIdentity,
  ConnectionCondition,
  ConnectionReason,
  type ConnectionStatus,
  type StoredConnection,
} from "../../core/apis/connection.ts"
import { defined } from "../../core/apis/defined.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import type { EventNote } from "../../core/kube/events.ts"
import type { Cooldown } from "../../market/router/cooldown.ts"
import { capabilitiesAfter } from "./capabilities.ts"
import { cooldownCondition } from "./cooldown.ts"
import { type PriceState, pricesCondition } from "./prices.ts"

/** State of a connection. `version` is that of the credentials. */
export type Situation =
  /** The status stays as it is. */
  | { is: "unchanged" }
  | { is: "unusable"; why: Pick<CredentialsUnusable, "reason" | "message"> }
  | { is: "verifying" }
  | { is: "verified"; version: string; account: string; time: string; capabilities?: Capabilities }
  | { is: "refused"; version: string; message: string }
  | { is: "unreachable"; version: string; message: string }
  | { is: "unsupported"; version: string }

/** Reasons that can resolve without a user: GitOps and secret managers create objects in any order. */
const TRANSIENT_REASONS: readonly ConnectionReason[] = [ConnectionReason.SecretNotFound, ConnectionReason.NoProject]

/** Returns true if only a user can resolve the situation. */
function isStalledBy(situation: Situation): boolean {
  if (situation.is === "unusable") return !TRANSIENT_REASONS.includes(situation.why.reason)
  return situation.is === "refused" || situation.is === "unsupported"
}

/** Facts of a status that do not depend on the verification. */
export interface StatusFacts {
  regions: readonly string[]
  cooldown?: Cooldown | undefined
  prices?: readonly PriceState[] | undefined
  identity?: CloudIdentity | undefined
  /** Result of the last check that a user has asked for. */
  lastCheck?: ConnectionStatus["lastCheck"]
  now: Date
}

/**
 * Returns the status of a connection. For kstatus (Helm, Flux, Argo CD) it is Reconciling until its credentials are
 * there and the provider has answered, then Ready. It is Stalled when only a user can resolve it. Pure.
 */
export function nextStatus(
  connection: StoredConnection,
  situation: Situation,
  { regions, cooldown, prices, identity, lastCheck, now }: StatusFacts,
): ConnectionStatus {
  const { status = {}, metadata } = connection
  const before = status.conditions
  const found = situation.is === "verified" ? situation.capabilities : undefined
  const capabilities = capabilitiesAfter(status, {
    isSame: isOfSameCredentials(status, situation),
    capabilities: found,
  })
  const verdicts = capabilities === undefined ? status : { ...status, capabilities }
  const updates = [
    ...updatesOf(connection, situation, capabilities),
    cooldownCondition(cooldown),
    ...pricesCondition({ ...connection, status: verdicts }, prices),
  ]
  const conditions = setConditions(before, updates, metadata.generation, now)
  const used = usedRegions(status.regions, regions)
  return {
    ...verificationOf(status, situation),
    ...(used.length > 0 && { regions: used }),
    ...defined({ capabilities, identity, lastCheck }),
    conditions,
    observedGeneration: metadata.generation,
  }
}

/** Returns true if the verdicts of the status are about the credentials of the situation. */
function isOfSameCredentials({ verifiedCredentials }: ConnectionStatus, situation: Situation): boolean {
  return situation.is === "unchanged" || ("version" in situation && situation.version === verifiedCredentials)
}

type Verification = Pick<ConnectionStatus, "account" | "lastVerifiedTime" | "verifiedCredentials">

/** Returns the verified account only for the verified credentials: other credentials may open another account. */
function verificationOf(status: ConnectionStatus, situation: Situation): Verification {
  if (situation.is === "verified") {
    const { account, time, version } = situation
    return { account: cutTo(account, 256), lastVerifiedTime: time, verifiedCredentials: version }
  }
  const { account, lastVerifiedTime, verifiedCredentials } = status
  if (!isOfSameCredentials(status, situation)) return {}
  return {
    ...defined({ account, lastVerifiedTime, verifiedCredentials }),
  }
}

/** Returns the regions of the status and those that are new, at most as many as a status holds. */
export function usedRegions(known: readonly string[] = [], seen: readonly string[]): string[] {
  return [...new Set([...known, ...seen])].slice(-LIMITS.usedRegions)
}

function updatesOf(
  connection: StoredConnection,
  situation: Situation,
  capabilities: ConnectionStatus["capabilities"],
): ConditionUpdate[] {
  const before = connection.status?.conditions
  if (situation.is === "unchanged") return [...(before ?? [])]
  const why = explainSituation(connection, situation)
  const isStalled = isStalledBy(situation)
  const isReady = situation.is === "verified"
  const stalled = condition(ConnectionCondition.Stalled, isStalled, why)
  return [
    condition(ConnectionCondition.Ready, isReady, why),
    condition(ConnectionCondition.Reconciling, !isReady && !isStalled, why),
    ...(isStalled || findCondition(before, ConnectionCondition.Stalled) !== undefined ? [stalled] : []),
    ...(situation.is === "verified" && capabilities?.vms !== undefined
      ? [{ type: ConnectionCondition.LaunchPermitted, ...capabilities.vms }]
      : []),
  ]
}

interface Why {
  reason: ConnectionReason
  message: string
}

/** Returns the reason of a situation, and its words. Pure. */
export function explainSituation(
  { spec }: Pick<StoredConnection, "spec">,
  situation: Exclude<Situation, { is: "unchanged" }>,
): Why {
  switch (situation.is) {
    case "unusable":
      return { reason: situation.why.reason, message: situation.why.message }
    case "verifying":
      return {
        reason: ConnectionReason.Verifying,
        message: "verifying with the provider which account the credentials open",
      }
    case "verified":
      return { reason: ConnectionReason.Verified, message: `the credentials open ${spec.type} ${situation.account}` }
    case "refused":
      return {
        reason: ConnectionReason.CredentialsRefused,
        message: `the provider rejected the credentials: ${situation.message}`,
      }
    case "unreachable":
      return {
        reason: ConnectionReason.ProviderUnreachable,
        message: `the provider could not be reached; Berth retries: ${situation.message}`,
      }
    case "unsupported":
      return {
        reason: ConnectionReason.Unverified,
        message: `this version of Berth can't verify or use connections of type ${spec.type} yet`,
      }
  }
}

function condition(type: string, isTrue: boolean, why: Why): ConditionUpdate {
  return { type, status: isTrue ? "True" : "False", ...why }
}

/** Reasons that announce a step of Berth. They emit no event. */
const QUIET: readonly string[] = [ConnectionReason.Verifying, ConnectionReason.NotRead]

/** Returns an event for each condition whose reason has changed. Pure. */
export function buildEvents(before: ConnectionStatus | undefined, after: ConnectionStatus): EventNote[] {
  const { Ready, LaunchPermitted, CoolingDown, Prices } = ConnectionCondition
  return [Ready, LaunchPermitted, CoolingDown, Prices].flatMap((type) => {
    const old = findCondition(before?.conditions, type)
    const current = findCondition(after.conditions, type)
    if (current === undefined || current.reason === old?.reason || QUIET.includes(current.reason)) return []
    const { status, reason, message } = current
    const isGood = (status === "True") !== (type === CoolingDown)
    return [{ type: isGood ? ("Normal" as const) : ("Warning" as const), reason, message }]
  })
}
