import type { Capabilities, Capability } from "../../clouds/account.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import {
  CAPABILITIES,
  CAPABILITY_MESSAGE,
  type CapabilityName,
  ConnectionReason,
  type ConnectionStatus,
  MISSING_PERMISSIONS,
  type StoredCapabilities,
} from "../../core/apis/connection.ts"

type StoredCapability = NonNullable<StoredCapabilities[CapabilityName]>

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
  const entries = CAPABILITIES.flatMap((name) => {
    const capability = capabilities[name]
    const isKept = capability?.is === "unanswered" && known?.[name] !== undefined
    if (capability === undefined || isKept) return []
    return [[name, name === "vms" ? vmsOf(capability) : storedOf(capability)] as const]
  })
  return { ...known, ...Object.fromEntries(entries) }
}

/** Returns the verdict on VMs, whose denial stops the connection. */
function vmsOf(capability: Capability): StoredCapability {
  if (capability.is !== "denied") return storedOf(capability)
  return storedOf({ ...capability, message: `no VM is started with this connection: ${capability.message}` })
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
