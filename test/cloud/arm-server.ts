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

/** A request that the server knows, by what Azure calls the right to make it. */
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
 * What the service principal needs of other resources to put a VM there: Azure checks what a request refers to. Others'
 * roles for these requests also have the reads: Compute makes interface, address and disk on the caller's behalf, looks at
 * them, and follows their operations
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
 * Azure Resource Manager as far as Berth uses it, in memory. Each resource in a request or an answer is held against
 * Azure's own description (`arm-description.ts`), and a request needs the actions that Azure documents. docs/azure.md
 * says what it does not cover.
 */
export class ArmServer {
  readonly faults = new FaultPlan()
  readonly usedActions = new Set<string>()
  /** What the API doesn't describe, of requests and of this server's answers: must stay empty. */
  readonly violations: string[] = []
  readonly calls: string[] = []
  readonly machines = new Machines()
  /** Role assignments, by the id of the VM that they hold for. */
  readonly assignments = new Map<string, Json>()
  readonly securityGroups = new Map<string, Json>()
  readonly credentials = {
    tenant_id: TENANT,
    client_id: CLIENT,
    client_secret: randomUUID(),
    subscription_id: SUBSCRIPTION,
  }
  /** What VMs' provisioning fails with. */
  failure: { code: string; message: string } | undefined
  /** What the caller may do; at first what the role `Berth` of docs/azure.md allows, and nothing else. */
  actions: readonly string[] = documentedRoles().berth.Actions
  /** Actions that a policy of the subscription's denies, whoever asks. */
  denied: RegExp | undefined
  /** An image that the region doesn't have, by its SKU. */
  missingImage: string | undefined
  pageSize = 1000
  /** How often an operation of the network is still in progress when it is asked about. */
  networkLooks = 1
  /** Milliseconds that Azure takes to find a machine, and to remove one; infinite: until `finish`. */
  operationMs = 20
  roleName = "Berth VM"
  readonly #groups = new Set<string>()
  readonly #networks = new Map<string, Json>()
  /** What ends an operation of the network, and the looks until then; by its id. */
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

  /** Calls this server in the place of Microsoft's hosts, and no other host. */
  readonly send: typeof fetch = async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input)
    if (!HOSTS.includes(url.hostname)) throw new Error(`${url.hostname} is no host of Microsoft's that is called`)
    const { port } = this.#server.address() as AddressInfo
    return await fetch(`http://127.0.0.1:${port}/${url.hostname}${url.pathname}${url.search}`, init)
  }

  /** The VM's own shutdown: its machine is kept, and billed. */
  powerOff(id: string): void {
    const machine = this.#machines.get(id.toLowerCase())
    if (machine !== undefined) machine.power = "stopped"
  }

  /** Ends what waits for it. */
  finish(): void {
    for (const act of this.#held.splice(0)) act()
  }

  #later(act: () => void): void {
    if (Number.isFinite(this.operationMs)) setTimeout(act, this.operationMs)
    else this.#held.push(act)
  }

  /** Takes a spot VM back as its eviction policy says: it is deleted. */
  evict(id: string): void {
    this.#remove(id.toLowerCase())
  }

  #remove(key: string): void {
    this.#machines.delete(key)
    this.machines.cutPower(key)
  }

  /** What whoever deletes a VM needs, with what is deleted with it. */
  get actionsToDelete(): string[] {
    const action = "Microsoft.Compute/virtualMachines/delete"
    return [action, ...(LINKED[action] ?? [])]
  }

  /** A resource group and all in it, deleted by somebody. */
  deleteGroup(group: string): void {
    this.#groups.delete(group)
    this.#networks.delete(group)
    for (const id of this.#machines.keys()) if (id.includes(`/${group}/`)) this.#remove(id)
  }

  /** What was asked for, of each VM that is there. */
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

  /** What a request meets; silence: the answer never comes, and the caller gives up by itself. */
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

  /** What Azure would refuse before it does anything. */
  #refusal({ action, body: described, apiVersion, act }: Route, { url }: Exchange, body: Json): ApiError | undefined {
    this.calls.push(action)
    const faults = described === undefined ? [] : requestFaults(described, body)
    const version = url.searchParams.get("api-version")
    if (version === null || (apiVersion !== undefined && version !== apiVersion)) faults.push(`api-version ${version}`)
    this.violations.push(...faults.map((fault) => `${action}: ${fault}`))
    if (faults.length > 0) return { status: 400, code: "InvalidRequestContent", message: faults.join("; ") }
    const needed = [action, ...(act === "list" ? [] : (LINKED[action] ?? []))]
    for (const each of needed) this.usedActions.add(each)
    const missing = needed.find((each) => !this.actions.includes(each))
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
        return this.#described("virtualNetwork", this.#networks.get(group)) ?? notFound(name)
      case "GET Microsoft.Authorization/permissions/read":
        return { status: 200, body: { value: [{ actions: this.actions, notActions: [] }] } }
      case "GET Microsoft.Network/locations/operations/read":
        return this.#lookAt(operation)
      case "PUT Microsoft.Network/virtualNetworks/write":
        return this.#putNetwork(exchange.path, group, body)
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
        return { status: 200, body: { id: exchange.path, subscriptionId: SUBSCRIPTION, state: "Enabled" } }
    }
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

  #putNetwork(id: string, group: string, body: Json): Answer {
    if (!this.#groups.has(group)) return noGroup(group)
    const properties = body["properties"] as Json
    const subnets = (properties["subnets"] as Json[]).map((subnet) => ({
      ...subnet,
      id: `${id}/subnets/${subnet["name"]}`,
    }))
    const wanted = { ...body, id, properties: { ...properties, subnets } }
    return this.#begin("virtualNetwork", wanted, (made) => this.#networks.set(group, made))
  }

  /**
   * Begins to make a resource of the network: it is there at once, and usable when its operation has ended
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

  #putMachine(at: { id: string; group: string; name: string; ifNoneMatch: string | undefined }, body: Json): Answer {
    const { id, group, name, ifNoneMatch } = at
    if (!this.#groups.has(group)) return noGroup(group)
    if (this.missingImage !== undefined && JSON.stringify(body).includes(`"sku":"${this.missingImage}"`)) {
      const message = `The platform image with SKU '${this.missingImage}' is not available.`
      return { refused: { status: 404, code: "PlatformImageNotFound", message } }
    }
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
    // The SDK asks there what became of it, when it is waited for.
    const headers = { "azure-asyncoperation": operationUrl("Microsoft.Compute", randomUUID()) }
    return { status: 201, body: this.#shown(machine), headers }
  }

  #shown({ id, body, provisioning, principalId, created }: Machine): Json {
    // What the caller must not read back is not shown.
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

  /** With `statusOnly` of the whole subscription, else the models of a group's VMs. */
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
    const machines = [...this.#machines].filter(([id]) => id.includes(`/resourcegroups/${group}/`))
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

/** As Compute's lists spell it, whatever it was asked for by: with the group in capitals. */
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

/** The part of that type, as cloud-init takes user data of several parts apart. */
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
