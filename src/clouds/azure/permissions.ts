import type { VmSettings } from "../../core/apis/vm-settings.ts"

/** Actions that a role allows at a scope (https://learn.microsoft.com/rest/api/authorization/permissions). */
export interface Permission {
  actions?: readonly string[]
  notActions?: readonly string[]
}

/**
 * The actions without which Azure does not create, list or delete a Berth VM. The role of docs/azure.md has more,
 * because Azure probably checks some others too. A role that works without those must remain valid.
 */
export const LAUNCH_ACTIONS: readonly string[] = [
  "Microsoft.Authorization/roleAssignments/write",
  "Microsoft.Authorization/roleDefinitions/read",
  "Microsoft.Compute/disks/delete",
  "Microsoft.Compute/disks/write",
  "Microsoft.Compute/virtualMachines/delete",
  "Microsoft.Compute/virtualMachines/read",
  "Microsoft.Compute/virtualMachines/write",
  // Network resources are created by operations, which are polled until they end
  // (https://github.com/Azure/azure-xplat-cli/issues/2051).
  "Microsoft.Network/locations/operations/read",
  "Microsoft.Network/networkInterfaces/delete",
  "Microsoft.Network/networkInterfaces/join/action",
  "Microsoft.Network/networkInterfaces/write",
  "Microsoft.Network/networkSecurityGroups/join/action",
  "Microsoft.Network/networkSecurityGroups/read",
  "Microsoft.Network/networkSecurityGroups/write",
  "Microsoft.Network/publicIPAddresses/delete",
  "Microsoft.Network/publicIPAddresses/join/action",
  "Microsoft.Network/publicIPAddresses/read",
  "Microsoft.Network/publicIPAddresses/write",
  "Microsoft.Network/virtualNetworks/read",
  "Microsoft.Network/virtualNetworks/subnets/join/action",
  "Microsoft.Network/virtualNetworks/write",
  "Microsoft.Resources/subscriptions/resourceGroups/write",
]

/** Action for networks, which Berth creates unless the connection names subnets. */
const CREATE_NETWORK = "Microsoft.Network/virtualNetworks/write"
const PUBLIC_ADDRESSES = "Microsoft.Network/publicIPAddresses/"

/** Returns those of `LAUNCH_ACTIONS` that VMs with these settings need, and no permission allows. Pure. */
export function missingActions(
  permissions: readonly Permission[],
  { subnets, publicAddress = true }: VmSettings = {},
): string[] {
  return LAUNCH_ACTIONS.filter((action) => {
    if (action === CREATE_NETWORK && subnets !== undefined) return false
    if (action.startsWith(PUBLIC_ADDRESSES) && !publicAddress) return false
    return !allows(permissions, action)
  })
}

/** Returns true if one of the permissions allows the action. Pure. */
export function allows(permissions: readonly Permission[], action: string): boolean {
  return permissions.some(
    ({ actions = [], notActions = [] }) =>
      actions.some((pattern) => covers(pattern, action)) && !notActions.some((pattern) => covers(pattern, action)),
  )
}

/** Returns true if a pattern such as `Microsoft.Compute/*` matches the action, ignoring case. */
function covers(pattern: string, action: string): boolean {
  const parts = pattern.split("*").map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"))
  return new RegExp(`^${parts.join(".*")}$`, "i").test(action)
}
