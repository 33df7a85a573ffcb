import type { VmSettings } from "../../core/apis/vm-settings.ts"
import type { Capabilities, Capability, CapabilityQuestion } from "../account.ts"
import { type Findings, judgeFindings, noFindings, notListable, settleCheck } from "../capabilities.ts"
import { type FoundNetwork, parseSubnet, subnetFault } from "./named-subnet.ts"
import { allows, missingActions, type Permission } from "./permissions.ts"
import type { SignedIn } from "./signed-in.ts"

const ARM = "https://management.azure.com"
const PERMISSIONS_API = "2022-04-01"
const SUBSCRIPTIONS_API = "2022-12-01"
const PROVIDERS_API = "2021-04-01"
const COMPUTE_API = "2024-07-01"

/** Maximum number of actions that a message names. */
const MOST_NAMED = 5
/** Maximum number of regions whose quotas one verification reads. */
const MOST_REGIONS = 3
/** Maximum number of subnets that one verification looks for. */
const MOST_SUBNETS = 10

/** Resource providers that VMs need in the subscription. */
const PROVIDERS = ["Microsoft.Compute", "Microsoft.Network"]

/** States of a subscription in which Azure creates nothing (https://learn.microsoft.com/azure/cost-management-billing/manage/subscription-states). */
const ENDED_STATES = ["Disabled", "Deleted", "Expired"]

/** Status and parsed body of a GET. */
interface Answer {
  status: number
  body: unknown
}

/** GETs a path of Azure Resource Manager, or the URL of a next page. Rejects if Azure does not answer. */
type Get = (path: string, apiVersion?: string) => Promise<Answer>

/** Checks the uses of a subscription by calls that only read. */
export async function azureCapabilities(
  azure: SignedIn,
  subscription: string,
  { regions, settings = {} }: CapabilityQuestion,
): Promise<Capabilities> {
  const get = await getter(azure)
  const scope = `/subscriptions/${subscription}`
  const permissions = permissionsOf(get, scope)
  // Each check that needs the permissions reports their failure.
  permissions.catch(() => undefined)
  const [vms, buckets, repositories] = await Promise.all([
    settleCheck(vmsOf(get, { scope, subscription, permissions, regions, settings })),
    settleCheck(
      permissions.then((all) => listAllowed(all, "storage accounts", "Microsoft.Storage/storageAccounts/read")),
    ),
    settleCheck(
      permissions.then((all) => listAllowed(all, "registries", "Microsoft.ContainerRegistry/registries/read")),
    ),
  ])
  const prices = { is: "granted", message: "Azure's price list is public" } as const
  return { vms, buckets, repositories, prices }
}

async function getter({ credential, fetch }: SignedIn): Promise<Get> {
  const token = await credential.getToken(`${ARM}/.default`)
  const headers = { authorization: `Bearer ${token?.token}` }
  return async (path, apiVersion) => {
    const response = await fetch(apiVersion === undefined ? path : `${ARM}${path}?api-version=${apiVersion}`, {
      headers,
    })
    if (response.status === 429 || response.status >= 500)
      throw new Error(`Azure answered with HTTP ${response.status}`)
    return { status: response.status, body: (await response.json().catch(() => undefined)) as unknown }
  }
}

/**
 * Returns all pages of the service principal's permissions in the subscription. Azure documents this call for
 * resources and resource groups, and also accepts it for a subscription
 * (https://learn.microsoft.com/rest/api/authorization/permissions, https://github.com/MicrosoftDocs/azure-docs:
 * resource-manager-api-authentication).
 */
async function permissionsOf(get: Get, scope: string): Promise<Permission[] | "forbidden"> {
  const permissions: Permission[] = []
  const path = `${scope}/providers/Microsoft.Authorization/permissions`
  let answer = await get(path, PERMISSIONS_API)
  for (;;) {
    if (answer.status === 403) return "forbidden"
    if (answer.status !== 200) throw new Error(`Azure answered with HTTP ${answer.status}`)
    const { value, nextLink } = (answer.body ?? {}) as { value?: Permission[]; nextLink?: string }
    if (!Array.isArray(value)) throw new Error("Azure's answer has no permissions")
    permissions.push(...value)
    if (nextLink === undefined) return permissions
    answer = await get(nextLink)
  }
}

interface VmQuestion extends Required<CapabilityQuestion> {
  scope: string
  subscription: string
  permissions: Promise<Permission[] | "forbidden">
}

async function vmsOf(get: Get, question: VmQuestion): Promise<Capability> {
  const { scope, permissions, regions, settings } = question
  const findings = noFindings()
  addPermissions(findings, await permissions, settings)
  // Each of these reads may be forbidden, or fail. The permissions decide then.
  await Promise.allSettled([
    addState(findings, get, scope),
    ...PROVIDERS.map((provider) => addProvider(findings, get, { scope, provider })),
    ...regions.slice(-MOST_REGIONS).map((region) => addQuotas(findings, get, { scope, region })),
    addSubnets(findings, get, question),
  ])
  return judgeFindings(findings, "the service principal has all actions that VMs need")
}

/** Action that reads which sizes the subscription may not use. VMs start without it. */
const SKUS_ACTION = "Microsoft.Compute/skus/read"

function addPermissions(
  { obstacles, doubts, notes }: Findings,
  permissions: Permission[] | "forbidden",
  settings: VmSettings,
): void {
  if (permissions === "forbidden") {
    doubts.push("the service principal may not read its own permissions: give its role all actions of docs/azure.md")
    return
  }
  if (!allows(permissions, SKUS_ACTION))
    notes.push(`sizes that the subscription may not use are found only by launches: add ${SKUS_ACTION}`)
  const missing = missingActions(permissions, settings)
  if (missing.length === 0) return
  const named = missing.slice(0, MOST_NAMED).join(", ")
  const more = missing.length > MOST_NAMED ? ` and ${missing.length - MOST_NAMED} more` : ""
  const advice = "add them to its role at the subscription, as docs/azure.md describes"
  const message = `the service principal lacks the actions ${named}${more}: ${advice}`
  obstacles.push({ reason: "PermissionsMissing", message, missing })
}

async function addState({ obstacles }: Findings, get: Get, scope: string): Promise<void> {
  const { body } = await get(scope, SUBSCRIPTIONS_API)
  const { state } = (body ?? {}) as { state?: string }
  if (state === undefined || !ENDED_STATES.includes(state)) return
  const message = `the subscription is ${state.toLowerCase()}: reactivate it in Azure's portal`
  obstacles.push({ reason: "AccountDisabled", message })
}

/** A subscription accepts no VM before its owner has registered both providers. */
async function addProvider(
  { obstacles, doubts }: Findings,
  get: Get,
  { scope, provider }: { scope: string; provider: string },
): Promise<void> {
  const { body } = await get(`${scope}/providers/${provider}`, PROVIDERS_API)
  const { registrationState } = (body ?? {}) as { registrationState?: string }
  if (registrationState === "Registering") doubts.push(`Azure is registering the provider ${provider}`)
  if (registrationState !== "NotRegistered" && registrationState !== "Unregistered") return
  const message = `the subscription has not registered ${provider}: run \`az provider register --namespace ${provider}\``
  obstacles.push({ reason: "ServiceDisabled", message })
}

/** Looks for the subnets that the connection names. No VM can start if none of them can be used. */
async function addSubnets(
  { obstacles, notes }: Findings,
  get: Get,
  { subscription, settings: { network = "", subnets = {} } }: VmQuestion,
): Promise<void> {
  const named = Object.entries(subnets).flatMap(([region, names]) => names.map((name) => ({ region, name })))
  const find = async (path: string, apiVersion: string): Promise<FoundNetwork | undefined> => {
    const { status, body } = await get(path, apiVersion)
    if (status === 404) return undefined
    if (status !== 200) throw new Error(`Azure answered with HTTP ${status}`)
    return body as FoundNetwork
  }
  const faults = await Promise.all(
    named.slice(0, MOST_SUBNETS).map(async ({ region, name }) => {
      const subnet = parseSubnet(name, { network, subscription })
      return (await subnetFault(subnet, { region, subscription }, find))?.message
    }),
  )
  const found = faults.filter((fault) => fault !== undefined)
  const [first] = found
  if (first === undefined) return
  if (found.length === named.length) obstacles.push({ reason: "NetworkMissing", message: first })
  else notes.push(...found.slice(0, MOST_NAMED))
}

interface Usage {
  limit?: number
  name?: { value?: string }
}

/** Notes quotas of zero: a new subscription often has none for spot VMs. Quotas differ by region. */
async function addQuotas(
  { notes }: Findings,
  get: Get,
  { scope, region }: { scope: string; region: string },
): Promise<void> {
  const { status, body } = await get(`${scope}/providers/Microsoft.Compute/locations/${region}/usages`, COMPUTE_API)
  if (status !== 200) return
  const { value = [] } = (body ?? {}) as { value?: Usage[] }
  const isZero = (quota: string) => value.some(({ limit, name }) => name?.value === quota && limit === 0)
  const advice = "request more under Quotas in Azure's portal"
  if (isZero("cores")) notes.push(`the quota of vCPUs in ${region} is 0: ${advice}`)
  else if (isZero("lowPriorityCores")) notes.push(`the quota of spot vCPUs in ${region} is 0: ${advice}`)
}

function listAllowed(permissions: Permission[] | "forbidden", things: string, action: string): Capability {
  if (permissions === "forbidden") return notListable(things, "its permissions can't be read")
  if (!allows(permissions, action)) return notListable(things, `the role at the subscription lacks ${action}`)
  return { is: "granted", message: `the credentials can list ${things}` }
}
