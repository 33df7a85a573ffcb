import { cutTo, findCondition } from "../../apis/conditions.ts"
import {
  CAPABILITIES,
  CAPABILITY_MESSAGE,
  type CapabilityName,
  ConnectionCondition,
  ConnectionReason,
  type ConnectionStatus,
  MISSING_PERMISSIONS,
  type StoredCapabilities,
} from "../../apis/connection.ts"
import type { Capabilities, Capability, DenialReason } from "../../cloud/account.ts"

type StoredCapability = NonNullable<StoredCapabilities[CapabilityName]>

const DENIALS: readonly DenialReason[] = [
  "PermissionsMissing",
  "NetworkMissing",
  "ServiceDisabled",
  "AccountDisabled",
  "QuotaMissing",
]

/** Answer to a check of capabilities. */
export interface CapabilityAnswer {
  /** True if the status is about the same credentials. */
  isSame: boolean
  /** Absent without a check. */
  capabilities: Capabilities | undefined
}

/**
 * Returns the capabilities after an answer; undefined if none was ever checked. Without a new verdict, a verdict on the
 * same credentials remains: the provider may only be unreachable. Pure.
 */
export function capabilitiesAfter(
  status: ConnectionStatus,
  { isSame, capabilities }: CapabilityAnswer,
): StoredCapabilities | undefined {
  const known = isSame ? status.capabilities : undefined
  if (capabilities === undefined) return known
  const isGuarded = isSame && wasReadyUnchecked(status)
  const entries = CAPABILITIES.flatMap((name) => {
    const capability = capabilities[name]
    const isKept = capability?.is === "unanswered" && (known?.[name] !== undefined || (name === "vms" && isSame))
    if (capability === undefined || isKept) return []
    return [[name, name === "vms" ? vmsOf(capability, isGuarded) : storedOf(capability)] as const]
  })
  return { ...known, ...Object.fromEntries(entries) }
}

/**
 * Returns true if these credentials were Ready before Berth checked capabilities, and no check has found them able since.
 * A new check must not stop a connection that worked before an upgrade.
 */
function wasReadyUnchecked({ capabilities, conditions }: ConnectionStatus): boolean {
  const vms = capabilities?.vms
  if (vms !== undefined) return vms.status === "Unknown" && DENIALS.some((reason) => reason === vms.reason)
  return findCondition(conditions, ConnectionCondition.LaunchPermitted)?.status !== "False"
}

/** Returns the verdict on VMs. @param isGuarded true if a denial must not stop the connection */
function vmsOf(capability: Capability, isGuarded: boolean): StoredCapability {
  if (capability.is !== "denied") return storedOf(capability)
  const start = isGuarded
    ? "VMs may fail to start; Berth tries, because the connection was in use before this check"
    : "no VM is started with this connection"
  const denied = storedOf({ ...capability, message: `${start}: ${capability.message}` })
  return isGuarded ? { ...denied, status: "Unknown" } : denied
}

function storedOf(capability: Capability): StoredCapability {
  const missing = capability.is === "denied" ? capability.missing : undefined
  const message = cutTo(capability.message, CAPABILITY_MESSAGE)
  return { ...verdictOf(capability), message, ...(missing && { missing: missing.slice(0, MISSING_PERMISSIONS) }) }
}

function verdictOf(capability: Capability): Pick<StoredCapability, "status" | "reason"> {
  switch (capability.is) {
    case "granted":
      return { status: "True", reason: ConnectionReason.PermissionsGranted }
    case "denied":
      return { status: "False", reason: capability.reason }
    case "unknown":
      return { status: "Unknown", reason: ConnectionReason.PermissionsUnknown }
    case "unanswered":
      return { status: "Unknown", reason: ConnectionReason.Unanswered }
  }
}
