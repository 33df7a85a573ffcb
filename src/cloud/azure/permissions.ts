/** Actions that a role allows at a scope (https://learn.microsoft.com/rest/api/authorization/permissions). */
export interface Permission {
  actions?: readonly string[]
  notActions?: readonly string[]
}

/**
 * The actions without which Azure refuses to make, list or delete a VM of Berth's. The role of docs/azure.md has more: some
 * are likely asked for, and a role that works without them must go on.
 */
export const LAUNCH_ACTIONS: readonly string[] = [
  "Microsoft.Authorization/roleAssignments/write",
  "Microsoft.Authorization/roleDefinitions/read",
  "Microsoft.Compute/disks/delete",
  "Microsoft.Compute/disks/write",
  "Microsoft.Compute/virtualMachines/delete",
  "Microsoft.Compute/virtualMachines/read",
  "Microsoft.Compute/virtualMachines/write",
  // A network's resources are made by operations, which are looked at until they end
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

/** Returns those of `LAUNCH_ACTIONS` that no permission allows. Pure. */
export function missingActions(permissions: readonly Permission[]): string[] {
  const isAllowed = (action: string): boolean =>
    permissions.some(
      ({ actions = [], notActions = [] }) =>
        actions.some((pattern) => covers(pattern, action)) && !notActions.some((pattern) => covers(pattern, action)),
    )
  return LAUNCH_ACTIONS.filter((action) => !isAllowed(action))
}

/** Returns true where a pattern such as `Microsoft.Compute/*` stands for the action, whatever their case. */
function covers(pattern: string, action: string): boolean {
  const parts = pattern.split("*").map((part) => part.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"))
  return new RegExp(`^${parts.join(".*")}$`, "i").test(action)
}
