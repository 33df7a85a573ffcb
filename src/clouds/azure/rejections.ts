import type { KnownRejection } from "../rejection.ts"

/** Families that a new subscription may be rejected in one region, of a hundred, before one that it may use. */
const SIZES = 35

/** Rejections of Azure. */
export const AZURE_REJECTIONS: readonly KnownRejection[] = [
  {
    // The subscription may not use the size in the region, or not as spot: mostly whole families of sizes.
    class: "InvalidRequest",
    says: /^SkuNotAvailable/,
    scope: ["region", "family", "provisioning"],
    patience: SIZES,
    remedy:
      "the subscription may not use these sizes: `az vm list-skus --location REGION --all` shows the restrictions. Set `region` " +
      "or `resources` of the job to an allowed size, or request access in Azure's portal",
  },
  {
    says: /disallowed by policy.*public IP/i,
    remedy:
      "exempt Berth's resource groups from the policy, or set `publicAddress: false` and `subnets` with a NAT gateway in the " +
      "connection: docs/azure.md",
  },
  {
    says: /RequestDisallowedByPolicy|disallowed by policy/i,
    remedy: "exempt Berth's resource groups from the policy, or set `region` of the job to an allowed one",
  },
  {
    says: /AuthorizationFailed/,
    remedy: "add the action to the service principal's role: docs/azure.md has all of them",
  },
  // Quotas, such as "exceeding approved Total Regional Cores quota", "approved standardNVSv3Family Cores quota" or
  // "approved LowPriorityCores quota" (https://learn.microsoft.com/azure/quotas/per-vm-quota-requests).
  {
    class: "Quota",
    says: /^\S*(PublicIP|Network|Disk|Instances)|approved [\w ]*(PublicIP|Network|Disk|Instances)[\w ]* quota/i,
    scope: ["region"],
  },
  {
    class: "Quota",
    says: /^Spot|approved .*(LowPriority|Spot|Total Regional).* quota/i,
    scope: ["region", "provisioning", "size"],
  },
]
