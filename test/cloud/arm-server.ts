import { randomUUID } from "node:crypto"
import { once } from "node:events"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { answerFaults, type Described, requestFaults } from "./arm-description.ts"
import { documentedRoles } from "./azure-roles.ts"
import { Machines } from "./booted-vm.ts"
import { type Act, FaultPlan, hasEffect } from "./faults.ts"

type Json = Record<string, unknown>

interface Machine {
  id: string
  body: Json
  tags: Record<string, string>
  provisioning: "Creating" | "Succeeded" | "Failed" | "Deleting"
  power: "none" | "starting" | "running" | "stopped" | "deallocated"
  failure?: { code: string; message: string }
  principalId: string
  created: Date
}

interface ApiError {
  status: number
  code: string
  message: string
}

type Answer = { status: number; body?: unknown; headers?: Record<string, string> } | { refused: ApiError }

/** Request that the server knows, with Azure's action for it. */
interface Route {
  method: string
  path: RegExp
  action: string
  act?: Act
  body?: Described
  apiVersion?: string
}

const GROUP = "/subscriptions/[^/]+/resourcegroups/(?<group>[^/]+)"
const COMPUTE = `${GROUP}/providers/Microsoft.Compute/virtualMachines`
const NETWORK = `${GROUP}/providers/Microsoft.Network`
const OPERATION = "/subscriptions/[^/]+/providers/Microsoft[.]{provider}/locations/[^/]+/operations/(?<operation>[^/]+)"

/**
 * Actions that a service principal needs on other resources to put a VM there: Azure checks what a request refers to.
 * Roles that others publish for these requests also have the reads. Compute creates interface, address and disk on the
 * caller's behalf, reads them, and follows their operations
 * (https://docs.github.com/en/organizations/managing-organization-settings/configuring-private-networking-for-github-hosted-runners-in-your-organization,
 * https://kubernetes-sigs.github.io/cloud-provider-azure/topics/azure-permissions/).
 */
const LINKED: Record<string, readonly string[]> = {
  "Microsoft.Compute/virtualMachines/write": [
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Compute/virtualMachines/instanceView/read",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Compute/disks/write",
  ],
  "Microsoft.Network/virtualNetworks/write": ["Microsoft.Network/networkSecurityGroups/join/action"],
  "Microsoft.Compute/virtualMachines/delete": [
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Compute/disks/delete",
  ],
}

const ROUTES: readonly Route[] = [
  route("GET", "/subscriptions/[^/]+", "Microsoft.Resources/subscriptions/read", { apiVersion: "2022-12-01" }),
  route(
    "GET",
    "/subscriptions/[^/]+/providers/(?<name>Microsoft[.][A-Za-z]+)",
    "Microsoft.Resources/subscriptions/providers/read",
    { apiVersion: "2021-04-01" },
  ),
  route(
    "GET",
    "/subscriptions/[^/]+/providers/Microsoft.Compute/locations/(?<name>[^/]+)/usages",
    "Microsoft.Compute/locations/usages/read",
    { apiVersion: "2024-07-01" },
  ),
  route("GET", "/subscriptions/[^/]+/providers/Microsoft.Compute/skus", "Microsoft.Compute/skus/read", {
    apiVersion: "2021-07-01",
  }),
  route(
    "PUT",
    "/subscriptions/[^/]+/resourcegroups/(?<group>[^/]+)",
    "Microsoft.Resources/subscriptions/resourceGroups/write",
    {
      apiVersion: "2021-04-01",
    },
  ),
  route("PUT", `${NETWORK}/networkSecurityGroups/(?<name>[^/]+)`, "Microsoft.Network/networkSecurityGroups/write", {
    body: "networkSecurityGroup",
  }),
  route("GET", `${NETWORK}/networkSecurityGroups/(?<name>[^/]+)`, "Microsoft.Network/networkSecurityGroups/read"),
  route("GET", OPERATION.replace("{provider}", "Network"), "Microsoft.Network/locations/operations/read"),
  route("GET", OPERATION.replace("{provider}", "Compute"), "Microsoft.Compute/locations/operations/read"),
  route("GET", `${NETWORK}/virtualNetworks/(?<name>[^/]+)`, "Microsoft.Network/virtualNetworks/read"),
  route("PUT", `${NETWORK}/virtualNetworks/(?<name>[^/]+)`, "Microsoft.Network/virtualNetworks/write", {
    body: "virtualNetwork",
  }),
  route("GET", `${NETWORK}/publicIPAddresses`, "Microsoft.Network/publicIPAddresses/read"),
  route(
    "GET",
    "/subscriptions/[^/]+/providers/Microsoft.Compute/virtualMachines",
    "Microsoft.Compute/virtualMachines/read",
  ),
  route("GET", COMPUTE, "Microsoft.Compute/virtualMachines/read", { act: "list" }),
  route("GET", `${COMPUTE}/(?<name>[^/]+)`, "Microsoft.Compute/virtualMachines/read"),
  route("PUT", `${COMPUTE}/(?<name>[^/]+)`, "Microsoft.Compute/virtualMachines/write", {
    act: "launch",
    body: "virtualMachine",
  }),
  route("DELETE", `${COMPUTE}/(?<name>[^/]+)`, "Microsoft.Compute/virtualMachines/delete", { act: "terminate" }),
  route(
    "GET",
    "/subscriptions/[^/]+/providers/Microsoft.Authorization/roleDefinitions",
    "Microsoft.Authorization/roleDefinitions/read",
    {
      apiVersion: "2022-04-01",
    },
  ),
  route(
    "GET",
    "/subscriptions/[^/]+/providers/Microsoft.Authorization/permissions",
    "Microsoft.Authorization/permissions/read",
    { apiVersion: "2022-04-01" },
  ),
  route(
    "PUT",
    `${COMPUTE}/(?<name>[^/]+)/providers/Microsoft.Authorization/roleAssignments/(?<assignment>[^/]+)`,
    "Microsoft.Authorization/roleAssignments/write",
    { apiVersion: "2022-04-01" },
  ),
]

function route(method: string, path: string, action: string, more: Partial<Route> = {}): Route {
  // Azure compares ids and paths without regard to case.
  return { method, path: new RegExp(`^${path}$`, "i"), action, ...more }
}

const REFUSALS: Record<string, ApiError> = {
  capacity: { status: 409, code: "SkuNotAvailable", message: "The requested VM size is currently not available" },
  quota: { status: 409, code: "OperationNotAllowed", message: "Operation results in exceeding approved Cores quota." },
  forbidden: { status: 403, code: "AuthorizationFailed", message: "The client does not have authorization" },
  invalid: { status: 400, code: "InvalidParameter", message: "The value of parameter vmSize is invalid" },
  rateLimit: { status: 429, code: "TooManyRequests", message: "The request is being throttled" },
  serverError: { status: 500, code: "InternalServerError", message: "An internal error occurred" },
  errorAfter: { status: 500, code: "InternalServerError", message: "An internal error occurred" },
}

const TENANT = "11111111-1111-1111-1111-111111111111"
const CLIENT = "22222222-2222-2222-2222-222222222222"
const SUBSCRIPTION = "33333333-3333-3333-3333-333333333333"
const HOSTS = ["management.azure.com", "login.microsoftonline.com"]

/**
 * In-memory server with the part of Azure Resource Manager that Berth uses. It checks each resource in a request or an
 * answer against Azure's own description (`arm-description.ts`), and requires the actions that Azure documents.
 * docs/azure.md lists what it does not cover.
 */
export class ArmServer {
  readonly faults = new FaultPlan()
  readonly usedActions = new Set<string>()
  /** Parts of requests and answers that the API doesn't describe. Must stay empty. */
  readonly violations: string[] = []
  readonly calls: string[] = []
  readonly machines = new Machines()
  /** Role assignments, by the id of the VM in their scope. */
  readonly assignments = new Map<string, Json>()
  readonly securityGroups = new Map<string, Json>()
  readonly credentials = {
    tenant_id: TENANT,
    client_id: CLIENT,
    client_secret: randomUUID(),
    subscription_id: SUBSCRIPTION,
  }
  /** Error of VMs' provisioning. */
  failure: { code: string; message: string } | undefined
  /** Actions of the caller. Initially those of the role `Berth` in docs/azure.md. */
  actions: readonly string[] = documentedRoles().berth.Actions
  /** Actions that a policy of the subscription denies to every caller. */
  denied: RegExp | undefined
  /** True if a policy of the subscription denies interfaces with public addresses. */
  deniesPublicAddresses = false
  /** vCPUs that each region's quota allows on demand. */
  regionalCores = Number.POSITIVE_INFINITY
  /** Spot vCPUs that each region's quota allows. */
  lowPriorityCores = Number.POSITIVE_INFINITY
  /** vCPUs of a size family that each region's quota allows on demand, by the family's quota, such as `standardNCASv3_T4Family`. */
  readonly familyCores = new Map<string, number>()
  /** True for a size that the subscription may not use, as trial subscriptions may not use spot. */
  restricts: ((size: string, isSpot: boolean) => boolean) | undefined
  /** Sizes of each region, and the restrictions of the subscription. A size that no entry names is in no list. */
  readonly skus: { name: string; isRestricted?: boolean; zones?: readonly string[] }[] = []
  /** Number of requests for the list of sizes. */
  skuLists = 0
  /** State of the subscription. */
  state = "Enabled"
  /** Resource providers that the subscription has not registered. */
  readonly unregistered = new Set<string>()
  /** Limits of quotas by their names, in every region. */
  readonly quotas: Record<string, number> = { cores: 10, lowPriorityCores: 3 }
  /** Sizes of the disks in images, GB, by their offers. */
  readonly imageDisksGb: Record<string, number> = { "ubuntu-24_04-lts": 30, "ubuntu-hpc": 64 }
  /** SKU of an image that the region doesn't have. */
  missingImage: string | undefined
  pageSize = 1000
  /** Number of polls that show an operation of the network as in progress. */
  networkLooks = 1
  /** Milliseconds that Azure takes to allocate a machine, and to delete one; infinite: until `finish`. */
  operationMs = 20
  roleName = "Berth VM"
  readonly #groups = new Set<string>()
  readonly #networks = new Map<string, Json>()
  /** Callback that completes an operation of the network, and the polls until then, by operation id. */
  readonly #operations = new Map<string, { looksLeft: number; end: () => void }>()
  readonly #machines = new Map<string, Machine>()
  readonly #tokens = new Set<string>()
  readonly #server: Server
  readonly #held: (() => void)[] = []

  constructor() {
    this.#server = createServer((request, response) => void this.#answer(request, response))
  }

  async start(): Promise<void> {
    this.#server.listen(0, "127.0.0.1")
    await once(this.#server, "listening")
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, "close")
  }

  /** Sends a request to this server in place of Microsoft's hosts. Throws for any other host. */
  readonly send: typeof fetch = async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input)
    if (!HOSTS.includes(url.hostname)) throw new Error(`${url.hostname} is no host of Microsoft's that is called`)
    const { port } = this.#server.address() as AddressInfo
    return await fetch(`http://127.0.0.1:${port}/${url.hostname}${url.pathname}${url.search}`, init)
  }

  /** Shuts the VM down from within: Azure keeps and bills its machine. */
  powerOff(id: string): void {
    const machine = this.#machines.get(id.toLowerCase())
    if (machine !== undefined) machine.power = "stopped"
  }

  /** Completes the pending operations. */
  finish(): void {
    for (const act of this.#held.splice(0)) act()
  }

  #later(act: () => void): void {
    if (Number.isFinite(this.operationMs)) setTimeout(act, this.operationMs)
    else this.#held.push(act)
  }

  /** Evicts a spot VM according to its eviction policy, which deletes it. */
  evict(id: string): void {
    this.#remove(id.toLowerCase())
  }

  #remove(key: string): void {
    this.#machines.delete(key)
    this.machines.cutPower(key)
  }

  /** Actions needed to delete a VM and the resources deleted with it. */
  get actionsToDelete(): string[] {
    const action = "Microsoft.Compute/virtualMachines/delete"
    return [action, ...(LINKED[action] ?? [])]
  }

  /** Deletes a resource group and everything in it, like a user of the subscription. */
  deleteGroup(group: string): void {
    this.#groups.delete(group)
    for (const key of this.#networks.keys()) if (key.startsWith(`${group}/`)) this.#networks.delete(key)
    this.securityGroups.delete(group)
    for (const id of this.#machines.keys()) if (id.includes(`/${group}/`)) this.#remove(id)
  }

  /** Returns the requested model of each existing VM. */
  /** Creates a virtual network with these subnets, like a user of the subscription. */
  addNetwork(group: string, name: string, { location, subnets }: { location: string; subnets: string[] }): void {
    const id = `/subscriptions/${SUBSCRIPTION}/resourceGroups/${group}/providers/Microsoft.Network/virtualNetworks/${name}`
    const shown = subnets.map((subnet) => ({ name: subnet, id: `${id}/subnets/${subnet}`, properties: {} }))
    const properties = { provisioningState: "Succeeded", subnets: shown }
    this.#networks.set(keyOf(group, name), { id, name, location, properties })
  }

  /** Deletes a virtual network, like a user of the subscription. */
  removeNetwork(group: string, name: string): void {
    this.#networks.delete(keyOf(group, name))
  }

  requested(): Json[] {
    return [...this.#machines.values()].map(({ body }) => body)
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = await textOf(request)
    const url = new URL(request.url ?? "/", "http://server")
    const [, host, ...rest] = url.pathname.split("/")
    const path = `/${rest.map(decodeURIComponent).join("/")}`
    const send = (status: number, body?: unknown, headers: Record<string, string> = {}) => {
      response.writeHead(status, { "content-type": "application/json", ...headers })
      response.end(body === undefined ? undefined : JSON.stringify(body))
    }
    if (host === "login.microsoftonline.com") {
      const { status, body } = this.#signIn(path, new URLSearchParams(text))
      send(status, body)
      return
    }
    const refuse = ({ status, code, message }: ApiError) => send(status, { error: { code, message } })
    const found = ROUTES.find((each) => each.method === request.method && each.path.test(path))
    if (!this.#tokens.has((request.headers.authorization ?? "").replace("Bearer ", ""))) {
      refuse({ status: 401, code: "InvalidAuthenticationToken", message: "The access token is invalid." })
    } else if (found === undefined) {
      this.violations.push(`no such request: ${request.method} ${path}`)
      refuse({ status: 404, code: "InvalidResourceType", message: "no such request" })
    } else {
      const outcome = this.#outcome(found, { path, url, text, ifNoneMatch: request.headers["if-none-match"] })
      if (outcome === "reset") response.destroy()
      else if (outcome !== "silence" && "refused" in outcome) refuse(outcome.refused)
      else if (outcome !== "silence") send(outcome.status, outcome.body, outcome.headers)
    }
  }

  /** Returns the result of a request. For silence, no answer comes and the caller times out. */
  #outcome(found: Route, exchange: Exchange): Answer | "reset" | "silence" {
    const body = exchange.text === "" ? {} : (JSON.parse(exchange.text) as Json)
    const refusal = this.#refusal(found, exchange, body)
    if (refusal !== undefined) return { refused: refusal }
    const fault = this.faults.take(found.act)
    if (fault === "reset") return "reset"
    if (fault !== undefined && !hasEffect(fault)) return { refused: REFUSALS[fault] as ApiError }
    const answer = this.#act(found, exchange, body)
    if (fault === "lost") return "reset"
    if (fault === "slow") return "silence"
    return fault === undefined ? answer : { refused: REFUSALS[fault] as ApiError }
  }

  #signIn(path: string, form: URLSearchParams): { status: number; body: unknown } {
    if (path.endsWith("/.well-known/openid-configuration")) {
      const base = `https://login.microsoftonline.com/${TENANT}`
      const issuer = `${base}/v2.0`
      const body = {
        issuer,
        token_endpoint: `${base}/oauth2/v2.0/token`,
        authorization_endpoint: `${base}/oauth2/v2.0/authorize`,
        jwks_uri: `${base}/discovery/v2.0/keys`,
      }
      return { status: 200, body }
    }
    const asked = path === `/${TENANT}/oauth2/v2.0/token` && form.get("grant_type") === "client_credentials"
    const known = form.get("client_id") === CLIENT && form.get("client_secret") === this.credentials.client_secret
    if (!asked || !known || !form.get("scope")?.includes("https://management.azure.com/.default")) {
      const error_description = "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 0"
      return { status: 401, body: { error: "invalid_client", error_description, error_codes: [7000215] } }
    }
    const token = randomUUID()
    this.#tokens.add(token)
    return { status: 200, body: { token_type: "Bearer", expires_in: 3599, access_token: token } }
  }

  /** Returns the error with which Azure rejects a request before any effect. */
  #refusal(
    { method, action, body: described, apiVersion, act }: Route,
    { url }: Exchange,
    body: Json,
  ): ApiError | undefined {
    this.calls.push(action)
    const faults = described === undefined ? [] : requestFaults(described, body)
    const version = url.searchParams.get("api-version")
    if (version === null || (apiVersion !== undefined && version !== apiVersion)) faults.push(`api-version ${version}`)
    this.violations.push(...faults.map((fault) => `${action}: ${fault}`))
    if (faults.length > 0) return { status: 400, code: "InvalidRequestContent", message: faults.join("; ") }
    const linked = act === "list" ? [] : (LINKED[action] ?? [])
    // Only a VM with a public address needs the rights on addresses.
    const hasAddress = act !== "launch" || JSON.stringify(body).includes('"publicIPAddressConfiguration"')
    const needed = [action, ...linked.filter((each) => hasAddress || !each.includes("/publicIPAddresses/"))]
    for (const each of needed) this.usedActions.add(each)
    const missing = needed.find((each) => !this.actions.includes(each))
    const provider = /^[/]subscriptions[/].*[/]providers[/](Microsoft[.](?:Compute|Network))[/]/i.exec(
      url.pathname,
    )?.[1]
    if (missing === undefined && provider !== undefined && method !== "GET" && this.unregistered.has(provider)) {
      const message = `The subscription is not registered to use namespace '${provider}'.`
      return { status: 409, code: "MissingSubscriptionRegistration", message }
    }
    if (missing === undefined && !this.denied?.test(action)) return undefined
    if (missing === undefined) {
      const message = "Resource was disallowed by policy. Reasons: 'Allowed sizes and places'."
      return { status: 403, code: "RequestDisallowedByPolicy", message }
    }
    return { status: 403, code: "AuthorizationFailed", message: `does not have authorization to perform '${missing}'` }
  }

  #act({ method, path: pattern, action, act }: Route, exchange: Exchange, body: Json): Answer {
    const { group = "", name = "", assignment, operation = "" } = pattern.exec(exchange.path)?.groups ?? {}
    const id = exchange.path.toLowerCase()
    switch (`${method} ${action}`) {
      case "PUT Microsoft.Resources/subscriptions/resourceGroups/write":
        this.#groups.add(group)
        return { status: 201, body: { id: exchange.path, name: group, ...body } }
      case "PUT Microsoft.Network/networkSecurityGroups/write":
        return this.#putSecurityGroup(exchange.path, group, body)
      case "GET Microsoft.Network/networkSecurityGroups/read":
        return this.#described("networkSecurityGroup", this.securityGroups.get(group)) ?? notFound(name)
      case "GET Microsoft.Network/virtualNetworks/read":
        return this.#described("virtualNetwork", this.#networks.get(keyOf(group, name))) ?? notFound(name)
      case "GET Microsoft.Authorization/permissions/read":
        return { status: 200, body: { value: [{ actions: this.actions, notActions: [] }] } }
      case "GET Microsoft.Resources/subscriptions/providers/read":
        return this.#provider(name)
      case "GET Microsoft.Compute/locations/usages/read":
        return this.#usages()
      case "GET Microsoft.Compute/skus/read":
        return this.#listSkus(exchange.url)
      case "GET Microsoft.Network/locations/operations/read":
        return this.#lookAt(operation)
      case "PUT Microsoft.Network/virtualNetworks/write":
        return this.#putNetwork(exchange.path, keyOf(group, name), body)
      case "GET Microsoft.Network/publicIPAddresses/read":
        return this.#listAddresses(group)
      case "PUT Microsoft.Compute/virtualMachines/write":
        return this.#putMachine({ id: exchange.path, group, name, ifNoneMatch: exchange.ifNoneMatch }, body)
      case "DELETE Microsoft.Compute/virtualMachines/delete":
        return this.#deleteMachine(id)
      case "GET Microsoft.Authorization/roleDefinitions/read":
        return this.#listRoles(exchange.url)
      case "PUT Microsoft.Authorization/roleAssignments/write":
        return this.#assign(exchange.path, assignment ?? "", body)
      case "GET Microsoft.Compute/virtualMachines/read":
        return act === "list" || name === "" ? this.#listMachines(group, exchange.url) : this.#getMachine(id)
      default:
        return { status: 200, body: { id: exchange.path, subscriptionId: SUBSCRIPTION, state: this.state } }
    }
  }

  /** https://learn.microsoft.com/rest/api/resources/providers/get */
  #provider(namespace: string): Answer {
    const registrationState = this.unregistered.has(namespace) ? "NotRegistered" : "Registered"
    const id = `/subscriptions/${SUBSCRIPTION}/providers/${namespace}`
    return { status: 200, body: { id, namespace, registrationState, resourceTypes: [] } }
  }

  /** https://learn.microsoft.com/rest/api/compute/usage/list */
  #usages(): Answer {
    const value = Object.entries(this.quotas).map(([quota, limit]) => ({
      unit: "Count",
      currentValue: 0,
      limit,
      name: { value: quota, localizedValue: quota },
    }))
    return { status: 200, body: { value } }
  }

  /** https://learn.microsoft.com/rest/api/compute/resource-skus/list: in pages, with disks among the sizes. */
  #listSkus(url: URL): Answer {
    const region = /^location eq '([a-z0-9]+)'$/.exec(url.searchParams.get("$filter") ?? "")?.[1]
    if (region === undefined) return { refused: { status: 400, code: "InvalidFilter", message: "not supported" } }
    const from = Number(url.searchParams.get("$skiptoken") ?? 0)
    if (from === 0) this.skuLists++
    const shown = this.skus.slice(from, from + this.pageSize).map(({ name, isRestricted = false, zones = [] }) => ({
      ...{ resourceType: "virtualMachines", name, locations: [region] },
      restrictions: [
        ...(isRestricted ? [restriction("Location", region, { locations: [region] })] : []),
        ...(zones.length > 0 ? [restriction("Zone", region, { locations: [region], zones })] : []),
      ],
    }))
    const disk = { resourceType: "disks", name: "Premium_LRS", locations: [region], restrictions: [] }
    const next = new URL(`https://management.azure.com/subscriptions/${SUBSCRIPTION}/providers/Microsoft.Compute/skus`)
    for (const [name, value] of url.searchParams) next.searchParams.set(name, value)
    next.searchParams.set("$skiptoken", String(from + this.pageSize))
    const more = from + this.pageSize < this.skus.length ? { nextLink: String(next) } : {}
    return { status: 200, body: { value: [disk, ...shown], ...more } }
  }

  #described(kind: Described, body: Json | undefined, status = 200): Answer | undefined {
    if (body === undefined) return undefined
    this.violations.push(...answerFaults(kind, body).map((fault) => `answer of ${kind}: ${fault}`))
    return { status, body }
  }

  #putSecurityGroup(id: string, group: string, body: Json): Answer {
    if (!this.#groups.has(group)) return noGroup(group)
    return this.#begin("networkSecurityGroup", { ...body, id }, (made) => this.securityGroups.set(group, made))
  }

  #putNetwork(id: string, key: string, body: Json): Answer {
    const [group = ""] = key.split("/")
    if (!this.#groups.has(group)) return noGroup(group)
    const properties = body["properties"] as Json
    const subnets = (properties["subnets"] as Json[]).map((subnet) => ({
      ...subnet,
      id: `${id}/subnets/${subnet["name"]}`,
    }))
    const wanted = { ...body, id, properties: { ...properties, subnets } }
    return this.#begin("virtualNetwork", wanted, (made) => this.#networks.set(key, made))
  }

  /**
   * Starts to create a resource of the network: it exists at once, and is usable after its operation has ended
   * (https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations).
   */
  #begin(kind: Described, wanted: Json, keep: (made: Json) => void): Answer {
    const shown = (provisioningState: string): Json => ({
      ...wanted,
      properties: { ...(wanted["properties"] as Json), provisioningState },
    })
    keep(shown("Updating"))
    const operation = randomUUID()
    this.#operations.set(operation, { looksLeft: this.networkLooks, end: () => keep(shown("Succeeded")) })
    const answer = this.#described(kind, shown("Updating"), 201) ?? notFound(String(wanted["id"]))
    return { ...answer, headers: { "azure-asyncoperation": operationUrl("Microsoft.Network", operation) } }
  }

  #lookAt(id: string): Answer {
    const operation = this.#operations.get(id)
    if (operation === undefined) return notFound(id)
    if (operation.looksLeft-- > 0) return { status: 200, body: { status: "InProgress" } }
    operation.end()
    return { status: 200, body: { status: "Succeeded" } }
  }

  /**
   * Returns Azure's answer about a used-up quota: of the region, of the size family, or of spot
   * (https://learn.microsoft.com/azure/quotas/regional-quota-requests, per-vm-quota-requests, spot-quota).
   */
  #overQuota(body: Json): Answer | undefined {
    const { family, cores, isSpot } = sizeOf(body)
    const limits: [name: string, limit: number, counts: (size: Size) => boolean][] = isSpot
      ? [["LowPriorityCores", this.lowPriorityCores, (size) => size.isSpot]]
      : [
          ["Total Regional Cores", this.regionalCores, (size) => !size.isSpot],
          [
            `${family} Cores`,
            this.familyCores.get(family) ?? Infinity,
            (size) => !size.isSpot && size.family === family,
          ],
        ]
    const own = [...this.#machines.values()].filter((machine) => machine.body["location"] === body["location"])
    for (const [name, limit, counts] of limits) {
      const used = own.map((machine) => sizeOf(machine.body)).filter(counts)
      const usage = used.reduce((sum, size) => sum + size.cores, 0)
      if (usage + cores <= limit) continue
      const message = `Operation could not be completed as it results in exceeding approved ${name} quota. Additional details - Deployment Model: Resource Manager, Location: ${body["location"]}, Current Limit: ${limit}, Current Usage: ${usage}, Additional Required: ${cores}, (Minimum) New Limit Required: ${usage + cores}.`
      return { refused: { status: 409, code: "OperationNotAllowed", message } }
    }
    return undefined
  }

  /** Returns Azure's answer about a size that the subscription may not use (https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-sku-not-available). */
  #restricted(id: string, body: Json): Answer | undefined {
    const { size, isSpot } = sizeOf(body)
    if (this.restricts?.(size, isSpot) !== true) return undefined
    const message = `The requested size for resource '${id}' is currently not available in location '${body["location"]}' zones '' for subscription '${SUBSCRIPTION}'. Please try another size or deploy to a different location or zones. See https://aka.ms/azureskunotavailable for details.`
    return { refused: { status: 409, code: "SkuNotAvailable", message } }
  }

  /** Returns Azure's answer about a denied interface (https://learn.microsoft.com/azure/governance/policy/samples/built-in-policies). */
  #forbidden(body: Json): Answer | undefined {
    if (!this.deniesPublicAddresses || !JSON.stringify(body).includes('"publicIPAddressConfiguration"'))
      return undefined
    const message = `Resource was disallowed by policy. Policy identifiers: '[{"policyAssignment":{"name":"Network interfaces should not have public IPs"}}]'.`
    return { refused: { status: 403, code: "RequestDisallowedByPolicy", message } }
  }

  #tooSmallDisk(body: Json): Answer | undefined {
    const { storageProfile } = body["properties"] as {
      storageProfile: { imageReference: { offer: string }; osDisk: { diskSizeGB: number } }
    }
    const least = this.imageDisksGb[storageProfile.imageReference.offer] ?? 0
    const { diskSizeGB } = storageProfile.osDisk
    if (diskSizeGB >= least) return undefined
    const message = `The specified disk size ${diskSizeGB} GB is smaller than the size of the corresponding disk in the VM image: ${least} GB. This is not allowed. Please choose equal or greater size or do not specify an explicit size.`
    return { refused: { status: 409, code: "OperationNotAllowed", message } }
  }

  #putMachine(at: { id: string; group: string; name: string; ifNoneMatch: string | undefined }, body: Json): Answer {
    const { id, group, name, ifNoneMatch } = at
    if (!this.#groups.has(group)) return noGroup(group)
    if (this.missingImage !== undefined && JSON.stringify(body).includes(`"sku":"${this.missingImage}"`)) {
      const message = `The platform image with SKU '${this.missingImage}' is not available.`
      return { refused: { status: 404, code: "PlatformImageNotFound", message } }
    }
    const missing =
      this.#missingReference(body) ??
      this.#restricted(id, body) ??
      this.#tooSmallDisk(body) ??
      this.#overQuota(body) ??
      this.#forbidden(body)
    if (missing !== undefined) return missing
    if (this.#machines.has(id.toLowerCase())) {
      const refused = { status: 412, code: "PreconditionFailed", message: "The resource exists." }
      return ifNoneMatch === "*" ? { refused } : conflict(name)
    }
    const machine: Machine = {
      id,
      body,
      tags: body["tags"] as Record<string, string>,
      provisioning: "Creating",
      power: "none",
      principalId: randomUUID(),
      created: new Date(),
    }
    this.#machines.set(id.toLowerCase(), machine)
    const { failure } = this
    this.#later(() => {
      machine.provisioning = failure === undefined ? "Succeeded" : "Failed"
      if (failure !== undefined) machine.failure = failure
      else {
        machine.power = "running"
        const { customData } = (body["properties"] as { osProfile: { customData: string } }).osProfile
        this.machines.start(id.toLowerCase(), {
          name,
          launch: machine.tags["berth-launch"] ?? "",
          userData: cloudConfigIn(Buffer.from(customData, "base64").toString()),
          powerOff: () => this.powerOff(id),
        })
      }
    })
    // The SDK polls this URL while it waits.
    const headers = { "azure-asyncoperation": operationUrl("Microsoft.Compute", randomUUID()) }
    return { status: 201, body: this.#shown(machine), headers }
  }

  /**
   * Returns Azure's error for a subnet or security group that does not exist, or is in another region
   * (https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors).
   */
  #missingReference(body: Json): Answer | undefined {
    const text = JSON.stringify(body)
    const refused = (message: string): Answer => ({
      refused: { status: 400, code: "InvalidResourceReference", message },
    })
    const subnetId = /"subnet":\{"id":"([^"]+)"/.exec(text)?.[1] ?? ""
    const [, networkId = "", group = "", name = ""] =
      /^(.*\/resource[Gg]roups\/([^/]+)\/providers\/Microsoft[.]Network\/virtualNetworks\/([^/]+))\/subnets\//.exec(
        subnetId,
      ) ?? []
    const network = this.#networks.get(keyOf(group, name)) as NetworkShown | undefined
    const ids = (network?.properties.subnets ?? []).map(({ id }) => id.toLowerCase())
    if (!ids.includes(subnetId.toLowerCase())) {
      return refused(`Resource ${subnetId} referenced by resource ${networkId} was not found.`)
    }
    if (network?.location !== body["location"]) return refused(`Resource ${subnetId} is in another location.`)
    const securityGroup = /"networkSecurityGroup":\{"id":"([^"]+)"/.exec(text)?.[1] ?? ""
    const known = [...this.securityGroups.values()].some(({ id }) => id === securityGroup)
    return known ? undefined : refused(`Resource ${securityGroup} was not found.`)
  }

  #shown({ id, body, provisioning, principalId, created }: Machine): Json {
    // Azure hides the write-only fields.
    const { osProfile: _, ...properties } = body["properties"] as Json
    const shown = {
      ...body,
      id,
      name: id.split("/").at(-1) ?? "",
      type: "Microsoft.Compute/virtualMachines",
      identity: { type: "SystemAssigned", principalId, tenantId: TENANT },
      properties: { ...properties, provisioningState: provisioning, timeCreated: created.toISOString() },
    }
    this.violations.push(...answerFaults("virtualMachine", shown).map((fault) => `answer of a VM: ${fault}`))
    return shown
  }

  #getMachine(id: string): Answer {
    const machine = this.#machines.get(id)
    return machine === undefined ? notFound(id) : { status: 200, body: this.#shown(machine) }
  }

  #deleteMachine(id: string): Answer {
    const machine = this.#machines.get(id)
    if (machine === undefined) return { status: 204 }
    machine.provisioning = "Deleting"
    this.#later(() => this.#remove(id))
    return { status: 202, headers: { location: "https://management.azure.com/operations/1" } }
  }

  /** Lists the whole subscription with `statusOnly`, else the models of a group's VMs. */
  #listMachines(group: string, url: URL): Answer {
    const statusOnly = url.searchParams.get("statusOnly") === "true"
    if (!statusOnly && !this.#groups.has(group)) return noGroup(group)
    const all = [...this.#machines].filter(([id]) => statusOnly || id.includes(`/resourcegroups/${group}/`))
    const from = Number(url.searchParams.get("$skiptoken") ?? 0)
    const value = all
      .slice(from, from + this.pageSize)
      .map(([, machine]) => ({ ...(statusOnly ? statusOf(machine) : this.#shown(machine)), id: listedId(machine) }))
    url.searchParams.set("$skiptoken", String(from + this.pageSize))
    const nextLink = `https://management.azure.com${url.pathname.replace("/management.azure.com", "")}${url.search}`
    return { status: 200, body: { value, ...(from + this.pageSize < all.length && { nextLink }) } }
  }

  #listAddresses(group: string): Answer {
    const machines = [...this.#machines].filter(
      ([id, { body }]) =>
        id.includes(`/resourcegroups/${group}/`) && JSON.stringify(body).includes('"publicIPAddressConfiguration"'),
    )
    const value = machines.map(([id, { tags }]) => ({
      id: id.replace("microsoft.compute/virtualmachines", "Microsoft.Network/publicIPAddresses"),
      name: `${id.split("/").at(-1)}-ip`,
      location: "westeurope",
      tags,
      properties: { ipAddress: "203.0.113.8", provisioningState: "Succeeded" },
    }))
    for (const each of value) this.#described("publicIPAddress", each)
    return { status: 200, body: { value } }
  }

  #listRoles(url: URL): Answer {
    const asked = /^roleName eq '([^']+)'$/.exec(url.searchParams.get("$filter") ?? "")?.[1]
    const role = { id: `/subscriptions/${SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/1` }
    return { status: 200, body: { value: asked === this.roleName ? [role] : [] } }
  }

  #assign(path: string, name: string, body: Json): Answer {
    const vmId = path.slice(0, path.indexOf("/providers/Microsoft.Authorization")).toLowerCase()
    const machine = this.#machines.get(vmId)
    if (machine === undefined) return notFound(vmId)
    const { principalId, principalType, roleDefinitionId } = body["properties"] as Record<string, string>
    const isUuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(name)
    if (principalId !== machine.principalId || principalType !== "ServicePrincipal" || !roleDefinitionId || !isUuid) {
      return {
        refused: { status: 400, code: "PrincipalNotFound", message: "Principal does not exist in the directory" },
      }
    }
    this.assignments.set(vmId, body["properties"] as Json)
    return { status: 201, body: { id: path, name, properties: body["properties"] } }
  }
}

interface Size {
  size: string
  /** Name of the family's quota, such as standardNCASv3_T4Family. */
  family: string
  cores: number
  isSpot: boolean
}

/** Returns the size of a requested VM, as far as its name says. */
function sizeOf(body: Json): Size {
  const { hardwareProfile, priority } = body["properties"] as { hardwareProfile: { vmSize: string }; priority?: string }
  const { vmSize: size } = hardwareProfile
  const series = size
    .replace(/^(Standard|Basic)_/, "")
    .replace(/\d+(-\d+)?/, "")
    .toUpperCase()
  const cores = Number(/\d+/.exec(size)?.[0] ?? 1)
  return { size, cores, family: `standard${series}Family`, isSpot: priority === "Spot" }
}

interface NetworkShown {
  location: string
  properties: { subnets?: { id: string }[] }
}

/** Azure compares names without regard to case. */
function keyOf(group: string, name: string): string {
  return `${group}/${name}`.toLowerCase()
}

interface Exchange {
  path: string
  url: URL
  text: string
  ifNoneMatch: string | undefined
}

function operationUrl(provider: string, operation: string): string {
  const path = `/subscriptions/${SUBSCRIPTION}/providers/${provider}/locations/westeurope/operations/${operation}`
  return `https://management.azure.com${path}?api-version=2024-05-01`
}

/** Returns the id as Compute's lists spell it: with the group in capitals. */
function listedId({ id }: Machine): string {
  return id.replace(/(?<=resourcegroups[/])[^/]+/i, (group) => group.toUpperCase())
}

function statusOf({ id, provisioning, power, failure }: Machine): Json {
  const failed = `ProvisioningState/failed/${failure?.code}`
  const first = provisioning === "Failed" ? failed : `ProvisioningState/${provisioning.toLowerCase()}`
  const statuses = [
    { code: first, level: failure === undefined ? "Info" : "Error", ...(failure && { message: failure.message }) },
    ...(power === "none" ? [] : [{ code: `PowerState/${power}`, level: "Info" }]),
  ]
  return { id, name: id.split("/").at(-1), location: "westeurope", properties: { instanceView: { statuses } } }
}

function notFound(what: string): Answer {
  return { refused: { status: 404, code: "ResourceNotFound", message: `The Resource '${what}' was not found.` } }
}

function noGroup(group: string): Answer {
  const message = `Resource group '${group}' could not be found.`
  return { refused: { status: 404, code: "ResourceGroupNotFound", message } }
}

function conflict(name: string): Answer {
  const message = `Changing property 'osProfile' of ${name} is not allowed.`
  return { refused: { status: 409, code: "PropertyChangeNotAllowed", message } }
}

/** Returns the part of that type, like cloud-init splits user data of several parts. */
function cloudConfigIn(userData: string): string {
  const boundary = /boundary="([^"]+)"/.exec(userData)?.[1]
  const parts = boundary === undefined ? [] : userData.split(`--${boundary}`)
  const part = parts.find((each) => each.startsWith("\nContent-Type: text/cloud-config;"))
  return part === undefined ? userData : part.slice(part.indexOf("\n\n") + 2).trimEnd()
}

async function textOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part as Buffer)
  return Buffer.concat(parts).toString()
}

function restriction(type: string, region: string, restrictionInfo: Json): Json {
  return { type, values: [region], restrictionInfo, reasonCode: "NotAvailableForSubscription" }
}
