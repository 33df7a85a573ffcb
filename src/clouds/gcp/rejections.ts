import type { KnownRejection } from "../rejection.ts"

const NETWORK =
  "create the project's network `default` (gcloud compute networks create default --subnet-mode=auto), or name `network` " +
  "in the connection"

/** Policies of an organization (https://cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints). */
const POLICIES: readonly KnownRejection[] = [
  {
    says: /constraints\/compute\.vmExternalIpAccess/,
    remedy:
      "have the organization's policy allow external addresses in this project, or set `publicAddress: false` in the " +
      "connection, which needs Cloud NAT: docs/gcp.md",
  },
  {
    // Machines with GPUs have another image.
    says: /constraints\/compute\.(requireShieldedVm|trustedImageProjects)/,
    scope: ["gpu"],
    remedy: "have the organization's policy allow Berth's images in this project: docs/gcp.md names them",
  },
  { class: "Account", says: /constraints\/gcp\.resourceLocations/i, scope: ["region"] },
]

const NETWORKS: readonly KnownRejection[] = [
  {
    class: "Account",
    says: /subnetworks?\b.*(not found|cannot be found)/i,
    scope: ["region"],
    remedy: NETWORK,
  },
  { class: "Account", says: /subnetwork/i, scope: ["region"] },
  { says: /networks?\b.*(not found|cannot be found)|custom mode/i, remedy: NETWORK },
]

/**
 * Used-up quotas, such as "Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally."
 * (https://cloud.google.com/compute/resource-usage). A project without a quota of its own for preemptible machines uses
 * the other one for both, so only quotas that are named so are about spot.
 */
const QUOTAS: readonly KnownRejection[] = (
  [
    [/Quota 'PREEMPTIBLE_GPUS_ALL_REGIONS/i, ["gpu", "provisioning"]],
    [/Quota 'GPUS_ALL_REGIONS/i, ["gpu"]],
    [/Quota 'PREEMPTIBLE_\w*(NVIDIA|GPUS)\w*' exceeded/i, ["region", "family", "provisioning"]],
    [/Quota '\w*(NVIDIA|GPUS)\w*' exceeded/i, ["region", "family"]],
    [/Quota 'PREEMPTIBLE_CPUS_ALL_REGIONS/i, ["provisioning", "size"]],
    [/Quota '(\w+_)?CPUS_ALL_REGIONS/i, ["size"]],
    [/Quota 'PREEMPTIBLE_(\w+_)?CPUS' exceeded/i, ["region", "quota", "provisioning", "size"]],
    [/Quota '(\w+_)?CPUS' exceeded/i, ["region", "quota", "size"]],
    [/Quota '\w*(ADDRESSES|_GB|INSTANCES|DISKS|NETWORKS|FIREWALLS|SNAPSHOTS)\w*' exceeded/i, ["region"]],
  ] as const
).map(([says, scope]) => ({ class: "Quota", says, scope }))

/** Rejections of Google Cloud. */
export const GCP_REJECTIONS: readonly KnownRejection[] = [
  ...POLICIES,
  ...NETWORKS,
  ...QUOTAS,
  {
    says: /forbidden|PERMISSION_DENIED|Required '/i,
    remedy: "add the permission to the service account's role: docs/gcp.md has all",
  },
]
