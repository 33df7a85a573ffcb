import { quotaOf, seriesOf } from "../../clouds/machines/machines.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { type Offer, offerKey } from "../../core/apis/offer.ts"
import type { Scope } from "../router/cooldown.ts"

/** Part of a scope that says which offers, without the account. */
type Offers = Omit<Scope, "cloud" | "connection" | "account">

/** A cloud's code and message of a rejected launch, with the offer. */
export interface Said {
  offer: Offer
  /** The cloud's own code; "" for Launches that have none. */
  code: string
  message: string
  /** Types and series that the account may not use in the region, if the cloud lists them. */
  machines?: readonly string[]
}

export function saidOf({ spec, status }: StoredLaunch): Said {
  const { code = "", message = "", machines } = status?.refusal ?? {}
  return { offer: spec.offer, code, message, ...defined({ machines }) }
}

/**
 * Returns the words of a message that do not depend on the offer: without ids, names, places and numbers. Two rejections
 * with one code and equal words have one cause.
 */
export function likeText({ offer, message }: Said): string {
  const { region, zone = region, instanceType } = offer
  const bare = [instanceType, zone, region].reduce((text, name) => text.replaceAll(name, " "), message)
  const words = bare
    .replace(/"[^"]*"|`[^`]*`/g, " ")
    .split(/[\s,;()]+/)
    .map((word) => word.replace(/[.:!?]+$/, "").replace(/^'+|'+$/g, ""))
    // Digits, dashes, slashes, dots and capitals within a word are of names, ids and codes.
    .filter((word) => /^[A-Za-z]?[a-z]+$/.test(word))
  return words.join(" ").toLowerCase().slice(0, 300)
}

/**
 * Instance types that an account on AWS' Free plan may launch
 * (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-free-tier-usage.html). AWS rejects all others with
 * InvalidParameterCombination, "The specified instance type is not eligible for Free Tier", and a dry run does not.
 */
const FREE_PLAN_TYPES = ["t3.micro", "t3.small", "t4g.micro", "t4g.small", "c7i-flex.large", "m7i-flex.large"]

const FREE_PLAN = /not eligible for Free Tier/i

/** Policies of an organization about the image: machines with GPUs have another image. */
const IMAGE_POLICY = /constraints\/compute\.(requireShieldedVm|trustedImageProjects)/

/** Settings of one region: AWS' default VPC, Google's subnetworks and resource locations. */
const OF_REGION = /no default VPC|subnetwork|constraints\/gcp\.resourceLocations/i

/** AWS needs a role in the account for spot VMs, and the policy does not let it create the role. */
const NO_SPOT_ROLE = /ServiceLinkedRoleCreationNotPermitted/

/** Returns the offers that a rejection by an account's own settings is about; {}: all of the cloud's. */
export function accountScope({ offer, code, message }: Said): Offers {
  if (NO_SPOT_ROLE.test(code)) return { provisioning: "spot" }
  // Older accounts have fewer of these types.
  if (FREE_PLAN.test(message) && FREE_PLAN_TYPES.includes(offer.instanceType))
    return { instanceType: offer.instanceType }
  if (FREE_PLAN.test(message)) return { exceptTypes: FREE_PLAN_TYPES }
  if (OF_REGION.test(message)) return { region: offer.region }
  if (IMAGE_POLICY.test(message)) return { gpu: offer.gpu !== undefined }
  return {}
}

/** True for Azure's words about sizes that a subscription may not use in a region: mostly whole families of them. */
export function isAboutSizes({ code }: Said): boolean {
  return code === "SkuNotAvailable"
}

/** Returns the offers that a request that can't succeed is about, before further ones widen it. */
export function requestScope(said: Said): Offers {
  const { offer } = said
  if (!isAboutSizes(said)) return { offer: offerKey(offer) }
  const { cloud, region, instanceType, provisioning } = offer
  // Azure's own list, on demand and spot.
  if (said.machines !== undefined) return { region, machines: said.machines }
  return { region, family: seriesOf(cloud, instanceType), provisioning }
}

/** Quotas that count something else than vCPUs or GPUs: addresses, disks, instances, networks. */
const OTHER_QUOTA: Readonly<Record<string, RegExp>> = {
  aws: /^(Volume|MaxIOPS|NetworkInterface|PrivateIpAddress|SecurityGroup|Address)/,
  gcp: /(ADDRESSES|_GB|INSTANCES|DISKS|NETWORKS|FIREWALLS|SNAPSHOTS)/,
  azure: /(PublicIP|NetworkInterface|Disk|Network|Instances)/i,
}

/**
 * Returns the offers that a used-up quota covers, by the name in the error. Without a known name it is the vCPUs of the
 * machine's own quota in the region. Sources:
 * - AWS: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html (by region, apart for spot)
 * - GCP: https://cloud.google.com/compute/resource-usage ("Quota 'GPUS_ALL_REGIONS' exceeded. Limit: 0.0 globally.")
 * - Azure: https://learn.microsoft.com/azure/quotas/per-vm-quota-requests ("exceeding approved Total Regional Cores quota",
 *   "approved standardNVSv3Family Cores quota", "approved LowPriorityCores quota")
 */
export function quotaScope({ offer, code, message }: Said): Offers {
  const { cloud, region, provisioning, cpu } = offer
  const named = nameOfQuota({ offer, code, message })
  const own = { region, quota: quotaOf(cloud, offer.instanceType), provisioning, minCpu: cpu }
  if (named === undefined) return own
  if (cloud === "gcp") return gcpQuota(named, offer)
  if (OTHER_QUOTA[cloud]?.test(named)) return { region }
  if (cloud === "azure" && /LowPriority|Spot/i.test(named)) return { region, provisioning: "spot", minCpu: cpu }
  if (cloud === "azure" && /Total Regional/i.test(named)) return { region, provisioning: "onDemand", minCpu: cpu }
  return own
}

function nameOfQuota({ offer, code, message }: Said): string | undefined {
  switch (offer.cloud) {
    case "aws":
      return code
    case "gcp":
      return /Quota '([A-Z0-9_]+)' exceeded/i.exec(message)?.[1]
    case "azure":
      return /approved (.+?) quota/i.exec(message)?.[1] ?? code
    default:
      return undefined
  }
}

function gcpQuota(name: string, { region, instanceType, cpu, provisioning }: Offer): Offers {
  const isGlobal = /_ALL_REGIONS(_|$)/.test(name)
  const where = isGlobal ? {} : { region }
  // A project without a quota of its own for preemptible machines uses the other one for both.
  const how = name.startsWith("PREEMPTIBLE_") ? { provisioning: "spot" as const } : {}
  if (/^(PREEMPTIBLE_)?GPUS_ALL_REGIONS/.test(name)) return { ...how, gpu: true }
  if (/NVIDIA|GPUS/.test(name)) return { ...where, ...how, family: seriesOf("gcp", instanceType) }
  if (/(^|_)CPUS_ALL_REGIONS/.test(name)) return { ...how, minCpu: cpu }
  if (/(^|_)CPUS$/.test(name)) return { ...where, ...how, quota: quotaOf("gcp", instanceType), minCpu: cpu }
  if (OTHER_QUOTA["gcp"]?.test(name)) return where
  return { region, quota: quotaOf("gcp", instanceType), provisioning, minCpu: cpu }
}

/** Advice by the cloud's code or message; the first match holds. */
const REMEDIES: readonly (readonly [RegExp, string])[] = [
  [
    /DefaultVpcDoesNotExist|no default VPC/i,
    "create a default VPC in a region (aws ec2 create-default-vpc), name `subnets` in the connection, or set `region` of the " +
      "job to one that has it",
  ],
  [
    NO_SPOT_ROLE,
    "create the role (aws iam create-service-linked-role --aws-service-name spot.amazonaws.com), or add " +
      "iam:CreateServiceLinkedRole to the connection's IAM policy: docs/aws.md has it",
  ],
  [
    /PendingVerification/,
    "wait: AWS validates new accounts, mostly within minutes and at most 4 hours; after that write to aws-verification@amazon.com",
  ],
  [/\bBlocked\b|AccountDisabled/, "ask AWS to unblock the account: aws-verification@amazon.com"],
  [FREE_PLAN, "upgrade the account to AWS' paid plan, or request at most 2 vCPU and 7.5Gi (m7i-flex.large)"],
  [
    /constraints\/compute\.vmExternalIpAccess/,
    "have the organization's policy allow external addresses in this project, or set `publicAddress: false` in the " +
      "connection, which needs Cloud NAT: docs/gcp.md",
  ],
  [IMAGE_POLICY, "have the organization's policy allow Berth's images in this project: docs/gcp.md names them"],
  [
    /networks?\b.*(not found|cannot be found)|custom mode/i,
    "create the project's network `default` (gcloud compute networks create default --subnet-mode=auto), or name `network` " +
      "in the connection",
  ],
  [
    /SkuNotAvailable/,
    "the subscription may not use these sizes: `az vm list-skus --location REGION --all` shows the restrictions. Set `region` " +
      "or `resources` of the job to an allowed size, or request access in Azure's portal",
  ],
  [
    /disallowed by policy.*public IP/i,
    "exempt Berth's resource groups from the policy, or set `publicAddress: false` and `subnets` with a NAT gateway in the " +
      "connection: docs/azure.md",
  ],
  [
    /RequestDisallowedByPolicy|disallowed by policy/i,
    "exempt Berth's resource groups from the policy, or set `region` of the job to an allowed one",
  ],
  [
    /UnauthorizedOperation|AccessDenied|not authorized to perform/i,
    "add the action to the connection's IAM policy (docs/aws.md has all), or set `region` of the job to an allowed one",
  ],
  [/AuthorizationFailed/, "add the action to the service principal's role: docs/azure.md has all of them"],
  [/forbidden|PERMISSION_DENIED|Required '/i, "add the permission to the service account's role: docs/gcp.md has all"],
  [/OptInRequired/, "enable the region in the account, or set `region` of the job to an enabled one"],
]

/** Advice by the class of the rejection. */
const CLASS_REMEDIES: Readonly<Record<string, string>> = {
  Quota: "request a higher quota from the cloud, or allow smaller machines, other regions or other clouds",
  Credentials: "replace the credentials of the connection, which ends the cooldown at once",
  Account: "change the setting or use another account",
  Region: "set `region` of the job to a region that the account allows",
}

/** Returns the action that fixes the cause of a rejection, for people. */
export function remedyOf(kind: string, { code, message }: Said): string | undefined {
  const text = `${code} ${message}`
  return REMEDIES.find(([pattern]) => pattern.test(text))?.[1] ?? CLASS_REMEDIES[kind]
}
