import type { OAuth2Client } from "google-auth-library"
import type { VmSettings } from "../../core/apis/vm-settings.ts"
import { CloudError, CredentialsError } from "../../core/outbound/errors.ts"
import type { Capabilities, Capability } from "../account.ts"
import {
  describe,
  type Findings,
  judgeFindings,
  noFindings,
  notListable,
  settleCheck,
  unreadConsole,
} from "../capabilities.ts"
import { firewallName } from "./firewall.ts"
import { googleError } from "./google.ts"

const RESOURCE_MANAGER = "https://cloudresourcemanager.googleapis.com"
const COMPUTE = "https://compute.googleapis.com/compute/v1"
const PRICES = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus?pageSize=1&fields=nextPageToken"

/** Scope of the reads of Compute Engine: the scope of other reads does not cover them. */
export const COMPUTE_SCOPES = ["https://www.googleapis.com/auth/compute.readonly"]
export const PRICE_SCOPES = ["https://www.googleapis.com/auth/cloud-billing.readonly"]

/**
 * Permissions without which Berth can't create, list or delete a VM in the project. The role of docs/gcp.md has more.
 * Those can be withheld, or granted on a subnetwork alone.
 */
const VM_PERMISSIONS = [
  "compute.disks.create",
  "compute.firewalls.get",
  "compute.instances.create",
  "compute.instances.delete",
  "compute.instances.get",
  "compute.instances.list",
  "compute.instances.setLabels",
  "compute.instances.setMetadata",
  "compute.instances.setTags",
  "compute.regions.get",
  "compute.zoneOperations.get",
]

/** Permissions that a subnetwork's own policy may grant instead of the project's. The second is for public addresses. */
const SUBNETWORK_PERMISSIONS = ["compute.subnetworks.use", "compute.subnetworks.useExternalIp"]
const ADDRESS_PERMISSION = "compute.subnetworks.useExternalIp"

/** Permissions to create the firewall rule. They are not needed where the rule exists. */
const FIREWALL_PERMISSIONS = ["compute.firewalls.create", "compute.networks.updatePolicy"]

/** Permission to read why a VM found no way to the gateway. VMs start without it. */
const CONSOLE_PERMISSION = "compute.instances.getSerialPortOutput"

const LIST_PERMISSIONS = { buckets: "storage.buckets.list", repositories: "artifactregistry.repositories.list" }

/** Reasons of errors for an API that is not enabled, and for a project without billing. */
const DISABLED = /^(SERVICE_DISABLED|accessNotConfigured)$/
const NO_BILLING = /^(BILLING_DISABLED|UREQ_PROJECT_BILLING_NOT_FOUND|UREQ_PROJECT_BILLING_NOT_OPEN)$/

export interface GcpChecks {
  project: string
  /** Names of the networks in which VMs are created. */
  networks: readonly string[]
  /** The connection's settings of VMs. */
  settings: VmSettings
  /** Signed-in clients, by the scope of their tokens. */
  google: { reads: OAuth2Client; compute: OAuth2Client; prices: OAuth2Client }
  signal: AbortSignal
}

/** Checks the uses of a project by calls that only read. */
export async function gcpCapabilities(checks: GcpChecks): Promise<Capabilities> {
  const permissions = grantedPermissions(checks)
  // Each check that needs the permissions reports their failure.
  permissions.catch(() => undefined)
  const lists = (things: string, permission: string) =>
    settleCheck(permissions.then((granted) => listAllowed(granted, things, permission)))
  const [vms, buckets, repositories, prices] = await Promise.all([
    settleCheck(vmsOf(checks, permissions)),
    lists("buckets", LIST_PERMISSIONS.buckets),
    lists("image repositories", LIST_PERMISSIONS.repositories),
    settleCheck(pricesOf(checks)),
  ])
  return { vms, buckets, repositories, prices }
}

/** Granted permissions, or the reason why Google does not return them. */
type Granted = ReadonlySet<string> | { unknown: string }

/**
 * Asks which permissions the project grants to the service account. The call itself needs no permission
 * (https://cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions).
 */
async function grantedPermissions({ google, project, signal }: GcpChecks): Promise<Granted> {
  const permissions = [
    ...VM_PERMISSIONS,
    ...SUBNETWORK_PERMISSIONS,
    ...FIREWALL_PERMISSIONS,
    CONSOLE_PERMISSION,
    ...Object.values(LIST_PERMISSIONS),
  ]
  const url = `${RESOURCE_MANAGER}/v1/projects/${encodeURIComponent(project)}:testIamPermissions`
  try {
    const { data } = await google.reads.request<{ permissions?: string[] }>({
      url,
      method: "POST",
      data: { permissions },
    })
    return new Set(data.permissions ?? [])
  } catch (error) {
    const explained = googleError(error, signal)
    if (!(explained instanceof CredentialsError)) throw explained
    const advice = DISABLED.test(explained.code)
      ? enabling("cloudresourcemanager.googleapis.com", project)
      : explained.message
    return { unknown: `Berth can't read which permissions the service account has: ${advice}` }
  }
}

function enabling(api: string, project: string): string {
  return `the API ${api} is not enabled: run \`gcloud services enable ${api} --project ${project}\``
}

async function vmsOf(checks: GcpChecks, permissions: Promise<Granted>): Promise<Capability> {
  const findings = noFindings()
  const granted = await permissions
  addPermissions(findings, granted, checks.settings)
  if (!(await addProject(findings, checks))) return judgeFindings(findings, "")
  await addNetworks(findings, checks)
  await addFirewalls(findings, checks, granted)
  return judgeFindings(findings, "the service account has all permissions that VMs need")
}

function addPermissions(
  { obstacles, doubts, notes }: Findings,
  granted: Granted,
  { publicAddress = true }: VmSettings,
): void {
  if ("unknown" in granted) {
    doubts.push(granted.unknown)
    return
  }
  const missing = VM_PERMISSIONS.filter((permission) => !granted.has(permission))
  const advice = "add them to its role in the project, as docs/gcp.md describes"
  if (missing.length > 0) {
    const message = `the service account lacks the permissions ${missing.join(", ")}: ${advice}`
    obstacles.push({ reason: "PermissionsMissing", message, missing })
  }
  if (!granted.has(CONSOLE_PERMISSION)) notes.push(unreadConsole(`the permission ${CONSOLE_PERMISSION}`))
  const needed = SUBNETWORK_PERMISSIONS.filter((permission) => publicAddress || permission !== ADDRESS_PERMISSION)
  const network = needed.filter((permission) => !granted.has(permission))
  if (network.length > 0)
    doubts.push(`the project does not grant ${network.join(", ")}, only a subnetwork may: ${advice}`)
}

interface Project {
  quotas?: { metric?: string; limit?: number }[]
}

/** Reads the project in Compute Engine, and returns true if it can be read. That shows a disabled API or billing. */
async function addProject(findings: Findings, checks: GcpChecks): Promise<boolean> {
  const { project } = checks
  try {
    const { quotas = [] } = await compute<Project>(checks, "")
    const isZero = (metric: string) => quotas.some((quota) => quota.metric === metric && quota.limit === 0)
    const advice = "request more under IAM & Admin, Quotas"
    if (isZero("CPUS_ALL_REGIONS")) {
      findings.obstacles.push({ reason: "QuotaMissing", message: `the quota CPUS_ALL_REGIONS is 0: ${advice}` })
    }
    if (isZero("GPUS_ALL_REGIONS")) findings.notes.push(`no GPUs, because the quota GPUS_ALL_REGIONS is 0: ${advice}`)
    return true
  } catch (error) {
    if (!(error instanceof CloudError)) throw error
    if (DISABLED.test(error.code)) {
      findings.obstacles.push({ reason: "ServiceDisabled", message: enabling("compute.googleapis.com", project) })
    } else if (NO_BILLING.test(error.code)) {
      const message = `the project ${project} has no billing: link it to a billing account`
      findings.obstacles.push({ reason: "AccountDisabled", message })
    } else if (error instanceof CredentialsError) return true
    else throw error
    return false
  }
}

/** Looks for the networks of VMs. A role of an older version of docs/gcp.md can't read networks. */
async function addNetworks({ obstacles, notes, doubts }: Findings, checks: GcpChecks): Promise<void> {
  const { networks, project, settings } = checks
  const missing: string[] = []
  for (const network of networks) {
    const state = await existence(checks, `/global/networks/${encodeURIComponent(network)}`)
    if (state === "missing") missing.push(network)
    if (state === "unknown") notes.push(`the network ${network} was not checked: add compute.networks.get to the role`)
    else if (state instanceof CloudError) doubts.push(describe(state))
  }
  if (missing.length === 0) return
  const create = `create it by \`gcloud compute networks create ${missing[0]} --subnet-mode auto --project ${project}\``
  const message =
    settings.network === undefined
      ? `the project has no network ${missing.join(", ")}: ${create}, or name another in \`network\` of the connection`
      : `the connection's \`network\` ${settings.network} does not exist in its project: create it, or correct the name`
  if (missing.length === networks.length) obstacles.push({ reason: "NetworkMissing", message })
  else notes.push(message)
}

/** Without the permission to create it, the firewall rule of each network must exist. */
async function addFirewalls({ obstacles, doubts }: Findings, checks: GcpChecks, granted: Granted): Promise<void> {
  if ("unknown" in granted || FIREWALL_PERMISSIONS.every((permission) => granted.has(permission))) return
  for (const network of checks.networks) {
    const rule = firewallName(network)
    const state = await existence(checks, `/global/firewalls/${encodeURIComponent(rule)}`)
    if (state instanceof CloudError) doubts.push(describe(state))
    if (state !== "missing") continue
    const advice = `create the rule, or grant ${FIREWALL_PERMISSIONS.join(" and ")}; docs/gcp.md has the command`
    obstacles.push({ reason: "PermissionsMissing", message: `the firewall rule ${rule} is missing: ${advice}` })
  }
}

/** Returns the existence of a resource; an error if Compute Engine did not answer. `unknown`: it may not be read. */
async function existence(checks: GcpChecks, path: string): Promise<"there" | "missing" | "unknown" | CloudError> {
  try {
    await compute(checks, path)
    return "there"
  } catch (error) {
    if (!(error instanceof CloudError)) throw error
    if (error.code === "notFound" || error.code === "HTTP404") return "missing"
    return error instanceof CredentialsError ? "unknown" : error
  }
}

async function compute<T>({ google, project, signal }: GcpChecks, path: string): Promise<T> {
  try {
    const url = `${COMPUTE}/projects/${encodeURIComponent(project)}${path}`
    return (await google.compute.request<T>({ url })).data
  } catch (error) {
    throw googleError(error, signal)
  }
}

function listAllowed(granted: Granted, things: string, permission: string): Capability {
  if ("unknown" in granted) return notListable(things, granted.unknown)
  if (granted.has(permission)) return { is: "granted", message: `the credentials can list ${things}` }
  return notListable(things, `the project does not grant ${permission}`)
}

async function pricesOf({ google, project, signal }: GcpChecks): Promise<Capability> {
  try {
    await google.prices.request({ url: PRICES })
    return { is: "granted", message: "the credentials can read current prices" }
  } catch (error) {
    const explained = googleError(error, signal)
    if (!(explained instanceof CredentialsError)) throw explained
    const isDisabled = DISABLED.test(explained.code)
    const message = isDisabled ? enabling("cloudbilling.googleapis.com", project) : describe(explained)
    return { is: "denied", reason: isDisabled ? "ServiceDisabled" : "PermissionsMissing", message }
  }
}
