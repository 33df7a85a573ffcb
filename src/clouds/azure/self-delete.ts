import { createHash } from "node:crypto"
import { CredentialsError } from "../../core/outbound/errors.ts"
import type { Arm } from "./arm.ts"

const AUTHORIZATION_API = "2022-04-01"

/** The custom role that lets a VM delete itself. The owner of the subscription creates it (docs/azure.md). */
export const VM_ROLE = "Berth VM"

/** Returns the id of the role `Berth VM`. @throws CredentialsError if the subscription has none */
export async function vmRoleId(arm: Arm): Promise<string> {
  const filter = encodeURIComponent(`roleName eq '${VM_ROLE}'`)
  const path = `/subscriptions/${arm.subscription}/providers/Microsoft.Authorization/roleDefinitions?$filter=${filter}`
  const answer = await arm.request("read", { method: "GET", path, apiVersion: AUTHORIZATION_API })
  const { value = [] } = answer as { value?: { id?: string }[] }
  const id = value[0]?.id
  if (id !== undefined) return id
  const message = `the subscription has no role "${VM_ROLE}", by which a VM deletes itself: create it as docs/azure.md describes`
  throw new CredentialsError("RoleMissing", message)
}

/**
 * Lets a VM delete itself, and nothing else: a VM that only shuts down is still billed. Idempotent.
 * @param principalId of the VM's own identity
 * @throws CloudError, a CredentialsError if the service principal may not assign the role
 */
export async function letDeleteItself(
  arm: Arm,
  { vmId, principalId, roleId }: { vmId: string; principalId: string; roleId: string },
  fence?: () => void,
): Promise<void> {
  const path = `${vmId}/providers/Microsoft.Authorization/roleAssignments/${assignmentName(vmId, principalId)}`
  // With the type given, Azure does not look up the identity in the directory, which may not have it yet.
  const properties = { roleDefinitionId: roleId, principalId, principalType: "ServicePrincipal" }
  await arm.request("change", { method: "PUT", path, apiVersion: AUTHORIZATION_API, body: { properties } }, fence)
}

/** Returns the assignment's name, a UUID that is always the same for a VM (version 8: free content). */
function assignmentName(vmId: string, principalId: string): string {
  const hex = createHash("sha256").update(`${vmId.toLowerCase()} ${principalId}`).digest("hex")
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}
