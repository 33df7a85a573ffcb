import { createPublicKey, generateKeyPairSync, randomUUID, verify } from "node:crypto"
import { once } from "node:events"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { Machines } from "./booted-vm.ts"
import { type Act, FaultPlan, hasEffect } from "./faults.ts"
import { answerFaults, type Matched, matchRequest, requestFaults } from "./gce-description.ts"

type Json = Record<string, unknown>

/** VM as the API shows it, with the fields that this server reads. */
interface Instance extends Json {
  name: string
  status: string
  labels: Record<string, string>
  scheduling: { provisioningModel?: string; maxRunDuration?: { seconds?: string } }
  creationTimestamp: string
}

interface Operation extends Json {
  name: string
  status: string
  zone?: string
}

interface ApiError {
  status: number
  reason: string
  message: string
}

/** Request and the means to answer it. */
interface Exchange {
  query: URLSearchParams
  text: string
  send: (status: number, body: unknown) => void
  refuse: (error: ApiError) => void
  reset: () => void
}

/** Facts of the project that the server needs. */
export interface GceProject {
  project: string
  /** Zones of each region. */
  regions: Record<string, string[]>
  /** Machine types that each zone sells; absent: all. */
  machineTypes?: Record<string, string[]>
  /** Networks with the subnets of each region. A custom network creates no subnets by itself. Absent: all exist. */
  networks?: Record<string, { custom?: boolean; subnets?: Record<string, string[]> }>
}

/** Permissions that each request requires (Compute Engine's page on permissions). */
const PERMISSIONS: Record<string, readonly string[]> = {
  "Instances.Insert": [
    "compute.instances.create",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.disks.create",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
  ],
  "Instances.Get": ["compute.instances.get"],
  "Instances.Delete": ["compute.instances.delete"],
  "Instances.GetSerialPortOutput": ["compute.instances.getSerialPortOutput"],
  "Instances.AggregatedList": ["compute.instances.list"],
  "ZoneOperations.Wait": ["compute.zoneOperations.get"],
  "GlobalOperations.Wait": ["compute.globalOperations.get"],
  "GlobalOperations.AggregatedList": ["compute.globalOperations.list"],
  "Regions.Get": ["compute.regions.get"],
  "Firewalls.Get": ["compute.firewalls.get"],
  "Firewalls.Insert": ["compute.firewalls.create", "compute.networks.updatePolicy"],
  "Networks.Get": ["compute.networks.get"],
  "Projects.Get": ["compute.projects.get"],
}

const ACTS: Record<string, Act> = {
  "Instances.Insert": "launch",
  "Instances.AggregatedList": "list",
  "Instances.Delete": "terminate",
}

const REFUSALS: Record<string, ApiError> = {
  capacity: { status: 503, reason: "resourcesNotAvailable", message: "The zone does not have enough resources." },
  quota: { status: 403, reason: "quotaExceeded", message: "Quota 'CPUS' exceeded. Limit: 24.0 in region." },
  forbidden: { status: 403, reason: "forbidden", message: "Required permission for the project" },
  invalid: { status: 400, reason: "invalid", message: "Invalid value for field 'resource.disks[0]'" },
  rateLimit: { status: 403, reason: "rateLimitExceeded", message: "Rate Limit Exceeded" },
  serverError: { status: 503, reason: "backendError", message: "Backend Error" },
  errorAfter: { status: 503, reason: "backendError", message: "Backend Error" },
}

function keyPair(): { publicKey: string; privateKey: string } {
  return generateKeyPairSync("rsa", {
    modulusLength: 2048,
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs8", format: "pem" },
  })
}

/** Service account's key, which these servers know. */
const KEY = keyPair()

/** Returns a key file whose key the account's owner has deleted: no server knows it. */
export function deletedKeyfile(project: string): string {
  return keyfile(project, keyPair().privateKey)
}

const HOSTS = [
  "compute.googleapis.com",
  "oauth2.googleapis.com",
  "cloudresourcemanager.googleapis.com",
  "cloudbilling.googleapis.com",
]

/**
 * In-memory server with the part of Compute Engine's API that Berth uses. It checks each request and answer against
 * Google's own description (`gce-description.ts`), issues tokens for assertions that the service account's key has
 * signed, and requires the permissions that Google documents. docs/gcp.md lists what it does not cover.
 */
export class GceServer {
  readonly faults = new FaultPlan()
  readonly firewalls = new Map<string, Json>()
  readonly machines = new Machines()
  /** Text on the serial console of an instance, by name. */
  readonly consoles = new Map<string, string>()
  readonly usedPermissions = new Set<string>()
  /** Requests and answers that the API doesn't describe. Must stay empty. */
  readonly violations: string[] = []
  readonly calls: string[] = []
  /** Errors of insert operations, by zone. */
  readonly insertErrors = new Map<string, { code: string; message: string }>()
  /** Constraints of the organization that are enforced for the project, such as `compute.vmExternalIpAccess`. */
  readonly constraints = new Set<string>()
  /** Projects whose images `compute.trustedImageProjects` allows. */
  readonly trustedImageProjects = new Set<string>()
  /** Regions that `gcp.resourceLocations` allows. */
  readonly allowedRegions = new Set<string>()
  /** Quota of GPUs in all regions, `GPUS_ALL_REGIONS`. New projects have 0. */
  gpuQuota = Number.POSITIVE_INFINITY
  /** Quotas of each region by metric, such as `NVIDIA_T4_GPUS`, `CPUS` or `N2_CPUS`. Default: no limit. */
  readonly regionalQuotas = new Map<string, number>()
  /** Permissions of the caller; undefined: all. */
  permissions: ReadonlySet<string> | undefined
  /**
   * Permissions that a binding with a condition grants: on the resources of the condition, not on the project
   * (https://cloud.google.com/iam/docs/conditions-overview).
   */
  readonly conditional = new Set<string>()
  /** APIs that the project has not enabled, such as `compute.googleapis.com`. */
  readonly disabled = new Set<string>()
  /** Networks of the project. */
  readonly networks = new Set(["default"])
  /** Sizes of the disks in images, GB, by a part of their names. */
  readonly imageDisksGb: Record<string, number> = { "cos-cloud": 10, "deeplearning-platform-release": 50 }
  /** Limits of the project's quotas. */
  readonly quotas: Record<string, number> = {}
  /** Maximum number of VMs in a page. */
  pageSize = 500
  /** Time from which new VMs are missing in lists. */
  hidesSince: number | undefined
  /** Milliseconds that the operations of VMs take; infinite: until `finish`. */
  operationMs = 20
  /** Milliseconds that the operation of a firewall rule takes. */
  firewallMs = 0
  readonly keyfile: string
  readonly #project: GceProject
  readonly #instances = new Map<string, Instance>()
  readonly #operations = new Map<string, Operation>()
  readonly #byRequestId = new Map<string, string>()
  readonly #preemptions: Operation[] = []
  readonly #tokens = new Set<string>()
  /** Public keys of the service account. */
  readonly #keys = [createPublicKey(KEY.publicKey)]
  readonly #server: Server
  readonly #held: (() => void)[] = []
  #ids = 1000n
  #aheadMs = 0

  constructor(project: GceProject) {
    this.#project = project
    this.keyfile = keyfile(project.project, KEY.privateKey)
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

  /** Sends a request to this server in place of Google's hosts. Throws for any other host. */
  readonly send: typeof fetch = async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input)
    if (!HOSTS.includes(url.hostname)) throw new Error(`${url.hostname} is no host of Google's that is called`)
    const { port } = this.#server.address() as AddressInfo
    return await fetch(`http://127.0.0.1:${port}/${url.hostname}${url.pathname}${url.search}`, init)
  }

  /** Accepts one more key of the service account, by its key file. */
  accept(keyfile: string): void {
    const { private_key } = JSON.parse(keyfile) as { private_key: string }
    this.#keys.push(createPublicKey(private_key))
  }

  /** Removes the stored ids of requests: Google keeps them only for a while. */
  forgetRequests(): void {
    this.#byRequestId.clear()
  }

  /** Shuts the VM down from within: it stays, stopped. */
  powerOff(zone: string, name: string): void {
    const instance = this.#instances.get(`${zone}/${name}`)
    if (instance !== undefined) instance.status = "TERMINATED"
  }

  /** Completes the pending operations. */
  finish(): void {
    for (const act of this.#held.splice(0)) act()
  }

  #later(act: () => void): void {
    if (Number.isFinite(this.operationMs)) setTimeout(act, this.operationMs)
    else this.#held.push(act)
  }

  /** Preempts a spot VM according to `instanceTerminationAction`: deletes it, and records an operation. */
  preempt(zone: string, name: string): void {
    this.#remove(`${zone}/${name}`)
    this.#preemptions.push(this.#operation("compute.instances.preempted", zone, name, "DONE"))
  }

  /** Advances the time: deletes VMs that have reached their `maxRunDuration`. */
  elapse(seconds: number): void {
    this.#aheadMs += seconds * 1000
    for (const [key, { scheduling, creationTimestamp }] of this.#instances) {
      const runs = Number(scheduling.maxRunDuration?.seconds ?? Number.POSITIVE_INFINITY)
      if (this.#now() - Date.parse(creationTimestamp) >= runs * 1000) this.#remove(key)
    }
  }

  instances(): Instance[] {
    return [...this.#instances.values()]
  }

  #now(): number {
    return Date.now() + this.#aheadMs
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const text = await textOf(request)
    const url = new URL(request.url ?? "/", "http://server")
    const [, host, ...path] = url.pathname.split("/")
    const send = (status: number, body: unknown) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
    }
    const refuse = ({ status, reason, message }: ApiError) =>
      send(status, { error: { code: status, message, errors: [{ message, domain: "global", reason }] } })
    if (host === "oauth2.googleapis.com") {
      const token = this.#tokenFor(new URLSearchParams(text))
      if (token === undefined) send(400, { error: "invalid_grant", error_description: "Invalid JWT Signature." })
      else send(200, { access_token: token, expires_in: 3599, token_type: "Bearer" })
      return
    }
    if (this.disabled.has(host ?? "")) {
      send(403, disabledAnswer(host ?? "", this.#project.project))
      return
    }
    const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? ""
    const matched = matchRequest(request.method ?? "", `/${path.join("/")}`)
    if (!this.#tokens.has(token)) refuse({ status: 401, reason: "authError", message: "Invalid Credentials" })
    else if (host !== "compute.googleapis.com") this.#serveOther(request, { host, path: path.join("/"), text, send })
    else if (matched === undefined) {
      this.violations.push(`no such request: ${request.method} ${url.pathname}`)
      refuse({ status: 404, reason: "notFound", message: "no such request" })
    } else await this.#serve(matched, { query: url.searchParams, text, send, refuse, reset: () => response.destroy() })
  }

  #serveOther(
    request: IncomingMessage,
    { host, path, text, send }: { host: string | undefined; path: string; text: string; send: Exchange["send"] },
  ): void {
    if (host === "cloudbilling.googleapis.com") send(200, { skus: [] })
    else this.#testPermissions(request, path, text, send)
  }

  /**
   * Answers testIamPermissions, which needs no permission
   * (https://cloud.google.com/resource-manager/reference/rest/v1/projects/testIamPermissions).
   */
  #testPermissions(request: IncomingMessage, path: string, text: string, send: Exchange["send"]): void {
    const { permissions } = JSON.parse(text || "{}") as { permissions?: string[] }
    const isKnown = request.method === "POST" && path === `v1/projects/${this.#project.project}:testIamPermissions`
    if (!isKnown || !Array.isArray(permissions) || permissions.length > 100) {
      this.violations.push(`no such request: ${request.method} ${path} ${text}`)
      send(400, { error: { code: 400, message: "Invalid request", status: "INVALID_ARGUMENT" } })
      return
    }
    const isGranted = (permission: string) =>
      this.permissions?.has(permission) !== false && !this.conditional.has(permission)
    const granted = permissions.filter(isGranted)
    // An empty list is left out of the answer.
    send(200, granted.length > 0 ? { permissions: granted } : {})
  }

  async #serve(matched: Matched, { query, text, send, refuse, reset }: Exchange): Promise<void> {
    const body = text === "" ? undefined : (JSON.parse(text) as Json)
    const refusal = this.#refusal(matched, query, body)
    if (refusal !== undefined) return refuse(refusal)
    const fault = this.faults.take(ACTS[matched.name])
    if (fault === "reset") return reset()
    if (fault !== undefined && !hasEffect(fault)) return refuse(REFUSALS[fault] as ApiError)
    const answer = await this.#act(matched, query, body ?? {})
    if (fault === "lost") return reset()
    // No answer comes; the caller times out.
    if (fault === "slow") return
    if (fault === "errorAfter") return refuse(REFUSALS["errorAfter"] as ApiError)
    if ("refused" in answer) return refuse(answer["refused"] as ApiError)
    for (const each of answerFaults(matched, answer)) this.violations.push(`answer to ${matched.name}: ${each}`)
    send(200, answer)
  }

  /** Returns the token for an assertion that the service account's key has signed. */
  #tokenFor(form: URLSearchParams): string | undefined {
    const [head = "", claims = "", signature = ""] = (form.get("assertion") ?? "").split(".")
    const signed = Buffer.from(`${head}.${claims}`)
    const isSigned = this.#keys.some((key) => verify("RSA-SHA256", signed, key, Buffer.from(signature, "base64url")))
    if (!isSigned) return undefined
    const { aud, iss } = JSON.parse(Buffer.from(claims, "base64url").toString()) as { aud?: string; iss?: string }
    if (aud !== "https://oauth2.googleapis.com/token" || iss !== `berth@${this.#project.project}.iam`) return undefined
    if (form.get("grant_type") !== "urn:ietf:params:oauth:grant-type:jwt-bearer") return undefined
    const token = randomUUID()
    this.#tokens.add(token)
    return token
  }

  /** Returns the error with which Google rejects a request before any effect. */
  #refusal(matched: Matched, query: URLSearchParams, body: unknown): ApiError | undefined {
    this.calls.push(matched.name)
    const faults = requestFaults(matched, query, body)
    this.violations.push(...faults.map((fault) => `${matched.name}: ${fault}`))
    if (faults.length > 0) return { status: 400, reason: "invalid", message: faults.join("; ") }
    const needed = permissionsFor(matched.name, body)
    if (needed === undefined) throw new Error(`${matched.name} is not known here: add its permissions and its effect`)
    for (const permission of needed) this.usedPermissions.add(permission)
    const missing = needed.find((permission) => this.permissions?.has(permission) === false)
    if (missing !== undefined) {
      return { status: 403, reason: "forbidden", message: `Required '${missing}' permission for 'projects/p'` }
    }
    if (matched.path["project"] === this.#project.project) return undefined
    return {
      status: 404,
      reason: "notFound",
      message: `The resource 'projects/${matched.path["project"]}' was not found`,
    }
  }

  async #act({ name, path }: Matched, query: URLSearchParams, body: Json): Promise<Json> {
    const { zone = "", instance = "", operation = "", region = "", firewall = "", network = "" } = path
    switch (name) {
      case "Instances.Insert":
        return this.#insert(zone, query.get("requestId") ?? "", body as Instance)
      case "Instances.Get":
        return this.#shown(zone, instance) ?? notFound(`zones/${zone}/instances/${instance}`)
      case "Instances.GetSerialPortOutput":
        return this.#shown(zone, instance) === undefined
          ? notFound(`zones/${zone}/instances/${instance}`)
          : { kind: "compute#serialPortOutput", contents: this.consoles.get(instance) ?? "", start: "0", next: "0" }
      case "Instances.Delete":
        return this.#delete(zone, instance)
      case "Instances.AggregatedList":
        return this.#list(query)
      case "ZoneOperations.Wait":
      case "GlobalOperations.Wait":
        return (await this.#wait(operation)) ?? notFound(`operations/${operation}`)
      case "GlobalOperations.AggregatedList":
        return this.#listOperations(query)
      case "Regions.Get":
        return this.#region(region)
      case "Firewalls.Get":
        return this.firewalls.get(firewall) ?? notFound(`global/firewalls/${firewall}`)
      case "Firewalls.Insert":
        return this.#insertFirewall(body)
      case "Networks.Get":
        return this.networks.has(network) ? { kind: "compute#network", name: network } : notFound(`networks/${network}`)
      default:
        return { kind: "compute#project", name: this.#project.project, id: "1", quotas: this.#quotas() }
    }
  }

  #quotas(): Json[] {
    return Object.entries(this.quotas).map(([metric, limit]) => ({ metric, limit, usage: 0 }))
  }

  #insert(zone: string, requestId: string, body: Instance): Json {
    const repeated = this.#operations.get(this.#byRequestId.get(`${zone}/${requestId}`) ?? "")
    if (repeated !== undefined) return repeated
    const key = `${zone}/${body.name}`
    const machineType = String(body["machineType"]).split("/").at(-1) ?? ""
    if (!Object.values(this.#project.regions).some((zones) => zones.includes(zone))) return notFound(`zones/${zone}`)
    if (this.#project.machineTypes?.[zone]?.includes(machineType) === false) {
      const message = `Invalid value for field 'resource.machineType': The machine type '${machineType}' does not exist in zone`
      return { refused: { status: 400, reason: "invalid", message } }
    }
    const network = this.#networkRefusal(zone.slice(0, zone.lastIndexOf("-")), body)
    if (network !== undefined) return { refused: { status: 400, reason: "invalid", message: network } }
    const disk = this.#diskRefusal(body)
    if (disk !== undefined) return { refused: { status: 400, reason: "invalid", message: disk } }
    const seconds = Number(body.scheduling.maxRunDuration?.seconds ?? 30)
    if (seconds < 30 || seconds > 120 * 24 * 3600) {
      return { refused: { status: 400, reason: "invalid", message: "Invalid value for field 'maxRunDuration'" } }
    }
    const violated = this.#violatedConstraint(zone, body)
    if (violated !== undefined) return { refused: { status: 412, reason: "conditionNotMet", message: violated } }
    if (this.#instances.has(key)) {
      return { refused: { status: 409, reason: "alreadyExists", message: `The resource '${key}' already exists` } }
    }
    const operation = this.#operation("insert", zone, body.name, "RUNNING")
    this.#byRequestId.set(`${zone}/${requestId}`, operation.name)
    this.#instances.set(key, this.#made(zone, body))
    this.#later(() => this.#finishInsert(key, zone, operation))
    return operation
  }

  /** Returns Google's message for a boot disk that is smaller than its image. */
  #diskRefusal(body: Instance): string | undefined {
    const [{ initializeParams }] = body["disks"] as [{ initializeParams: { sourceImage: string; diskSizeGb: string } }]
    const { sourceImage, diskSizeGb } = initializeParams
    const [, least = 0] = Object.entries(this.imageDisksGb).find(([part]) => sourceImage.includes(part)) ?? []
    if (Number(diskSizeGb) >= least) return undefined
    return `Invalid value for field 'resource.disks[0].initializeParams.diskSizeGb': '${diskSizeGb}'. Requested disk size cannot be smaller than the image size (${least} GB)`
  }

  /**
   * Returns Google's message for a VM that a constraint of the organization forbids
   * (https://cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints).
   */
  #violatedConstraint(zone: string, body: Instance): string | undefined {
    const name = `projects/${this.#project.project}/zones/${zone}/instances/${body.name}`
    const violated = (constraint: string) => `Constraint constraints/${constraint} violated for project 123456789.`
    if (this.constraints.has("gcp.resourceLocations") && !this.allowedRegions.has(zone.slice(0, zone.lastIndexOf("-"))))
      return `Location ZONE:${zone} violates constraint constraints/gcp.resourceLocations on the resource ${name}.`
    const shielded = body["shieldedInstanceConfig"] as { enableSecureBoot?: boolean } | undefined
    if (this.constraints.has("compute.requireShieldedVm") && shielded?.enableSecureBoot !== true)
      return `${violated("compute.requireShieldedVm")} Secure Boot is not enabled in the 'shielded_instance_config' field.`
    const image = /projects\/([^/"]+)\/global\/images/.exec(JSON.stringify(body["disks"]))?.[1] ?? ""
    if (this.constraints.has("compute.trustedImageProjects") && !this.trustedImageProjects.has(image))
      return `${violated("compute.trustedImageProjects")} Use of images from project ${image} is prohibited.`
    return this.#violatedByAddress(zone, body)
  }

  #violatedByAddress(zone: string, body: Instance): string | undefined {
    const interfaces = body["networkInterfaces"] as { accessConfigs?: unknown[] }[]
    const isPublic = interfaces.some(({ accessConfigs = [] }) => accessConfigs.length > 0)
    if (!isPublic || !this.constraints.has("compute.vmExternalIpAccess")) return undefined
    const target = `projects/${this.#project.project}/zones/${zone}/instances/${body.name}`
    return `Constraint constraints/compute.vmExternalIpAccess violated for project 123456789. Add instance ${target} to the constraint to use external IP with it.`
  }

  /** Returns the error of an operation whose VM exceeds a quota, with the other VMs of its region. */
  #quotaError(zone: string, instance: Instance | undefined): { code: string; message: string } | undefined {
    if (instance === undefined) return undefined
    const exceeded = (metric: string, limit: number, where: string) => {
      const message = `Quota '${metric}' exceeded.  Limit: ${limit.toFixed(1)} ${where}.`
      return { code: "QUOTA_EXCEEDED", message }
    }
    if (gpusOf(instance) > this.gpuQuota) return exceeded("GPUS_ALL_REGIONS", this.gpuQuota, "globally")
    const region = zone.slice(0, zone.lastIndexOf("-"))
    const inRegion = [...this.#instances].filter(([key]) => key.startsWith(`${region}-`))
    for (const metric of Object.keys(usageOf(instance))) {
      const limit = this.regionalQuotas.get(metric) ?? Number.POSITIVE_INFINITY
      const used = inRegion.reduce((sum, [, each]) => sum + (usageOf(each)[metric] ?? 0), 0)
      if (used > limit) return exceeded(metric, limit, `in region ${region}`)
    }
    return undefined
  }

  /**
   * Returns Google's message about a network or subnet that does not exist, as users report it
   * (https://github.com/google/anthos-microk8s/issues/1, https://github.com/hashicorp/terraform-provider-google/issues/2140
   * and /175).
   */
  #networkRefusal(region: string, body: Instance): string | undefined {
    const { networks } = this.#project
    if (networks === undefined) return undefined
    const [first] = body["networkInterfaces"] as { network: string; subnetwork?: string }[]
    const field = "Invalid value for field 'resource.networkInterfaces[0]"
    const known = networks[first?.network.split("/").at(-1) ?? ""]
    if (known === undefined) {
      return `${field}.network': '${first?.network}'. The referenced network resource cannot be found.`
    }
    const subnet = first?.subnetwork?.split("/")
    if (subnet === undefined) {
      if (known.custom !== true) return undefined
      return `${field}': ''. Subnetwork should be specified for custom subnetmode network`
    }
    if (subnet.at(-3) === region && known.subnets?.[region]?.includes(subnet.at(-1) ?? "")) return undefined
    return `${field}.subnetwork': '${first?.subnetwork}'. The referenced subnetwork resource cannot be found.`
  }

  #made(zone: string, body: Instance): Instance {
    const base = `https://www.googleapis.com/compute/v1/projects/${this.#project.project}`
    const interfaces = (body["networkInterfaces"] as Json[]).map((each) => ({
      ...each,
      name: "nic0",
      ...(each["accessConfigs"] !== undefined && {
        accessConfigs: (each["accessConfigs"] as Json[]).map((config) => ({ ...config, natIP: "203.0.113.7" })),
      }),
    }))
    return {
      ...body,
      id: String(this.#ids++),
      kind: "compute#instance",
      zone: `${base}/zones/${zone}`,
      status: "PROVISIONING",
      // Google's own time zone, as in real answers.
      creationTimestamp: new Date(this.#now() - 8 * 3600_000).toISOString().replace("Z", "-08:00"),
      networkInterfaces: interfaces,
    }
  }

  #finishInsert(key: string, zone: string, operation: Operation): void {
    const instance = this.#instances.get(key)
    const error = this.insertErrors.get(zone) ?? this.#quotaError(zone, instance)
    operation.status = "DONE"
    operation["endTime"] = new Date(this.#now()).toISOString()
    if (error !== undefined) {
      this.#instances.delete(key)
      operation["error"] = { errors: [error] }
      operation["httpErrorStatusCode"] = /QUOTA|PERMISSION/.test(error.code) ? 403 : 503
      operation["httpErrorMessage"] = "SERVICE UNAVAILABLE"
      return
    }
    if (instance === undefined) return
    instance.status = "RUNNING"
    const metadata = instance["metadata"] as { items: { key: string; value: string }[] }
    this.machines.start(key, {
      name: instance.name,
      launch: instance.labels["berth-launch"] ?? "",
      userData: metadata.items.find((item) => item.key === "user-data")?.value ?? "",
      powerOff: () => this.powerOff(zone, instance.name),
    })
  }

  #delete(zone: string, name: string): Json {
    const key = `${zone}/${name}`
    const instance = this.#instances.get(key)
    if (instance === undefined) return notFound(`zones/${zone}/instances/${name}`)
    const operation = this.#operation("delete", zone, name, "RUNNING")
    instance.status = "STOPPING"
    this.#later(() => {
      this.#remove(key)
      operation.status = "DONE"
    })
    return operation
  }

  #remove(key: string): void {
    this.#instances.delete(key)
    this.machines.cutPower(key)
  }

  #operation(operationType: string, zone: string | undefined, target: string, status: string): Operation {
    const base = `https://www.googleapis.com/compute/v1/projects/${this.#project.project}`
    const name = `operation-${this.#ids++}`
    const operation: Operation = {
      kind: "compute#operation",
      id: String(this.#ids++),
      name,
      operationType,
      status,
      progress: status === "DONE" ? 100 : 0,
      insertTime: new Date(this.#now()).toISOString(),
      targetLink:
        zone === undefined ? `${base}/global/firewalls/${target}` : `${base}/zones/${zone}/instances/${target}`,
      ...(zone !== undefined && { zone: `${base}/zones/${zone}` }),
    }
    this.#operations.set(name, operation)
    return operation
  }

  async #wait(name: string): Promise<Operation | undefined> {
    const operation = this.#operations.get(name)
    while (operation !== undefined && operation.status !== "DONE") await new Promise((done) => setTimeout(done, 5))
    return operation
  }

  #shown(zone: string, name: string): Instance | undefined {
    return this.#instances.get(`${zone}/${name}`)
  }

  #list(query: URLSearchParams): Json {
    const [, label = "", value] = /^labels\.([a-z-]+) = "([^"]*)"$/.exec(query.get("filter") ?? "") ?? []
    const visible = [...this.#instances].filter(
      ([, { labels, creationTimestamp }]) =>
        labels[label] === value && Date.parse(creationTimestamp) < (this.hidesSince ?? Number.POSITIVE_INFINITY),
    )
    const from = Number(query.get("pageToken") ?? 0)
    const size = Math.min(this.pageSize, Number(query.get("maxResults") ?? 500))
    const page = visible.slice(from, from + size)
    const items: Record<string, Json> = {}
    for (const zone of Object.values(this.#project.regions).flat()) {
      const instances = page.filter(([key]) => key.startsWith(`${zone}/`)).map(([, instance]) => instance)
      const empty = { warning: { code: "NO_RESULTS_ON_PAGE", message: `no results for zones/${zone} on this page` } }
      items[`zones/${zone}`] = instances.length > 0 ? { instances } : empty
    }
    const more = from + size < visible.length
    return { kind: "compute#instanceAggregatedList", items, ...(more && { nextPageToken: String(from + size) }) }
  }

  #listOperations(query: URLSearchParams): Json {
    const type = /^operationType = "([a-z.]+)"$/.exec(query.get("filter") ?? "")?.[1]
    const items: Record<string, { operations: Operation[] }> = {}
    for (const operation of this.#preemptions.filter((each) => each["operationType"] === type)) {
      const scope = `zones/${operation.zone?.split("/").at(-1)}`
      items[scope] = { operations: [...(items[scope]?.operations ?? []), operation] }
    }
    return { kind: "compute#operationAggregatedList", items }
  }

  #region(name: string): Json {
    const zones = this.#project.regions[name]
    if (zones === undefined) return notFound(`regions/${name}`)
    const base = `https://www.googleapis.com/compute/v1/projects/${this.#project.project}/zones`
    return { kind: "compute#region", name, status: "UP", zones: zones.map((zone) => `${base}/${zone}`) }
  }

  #insertFirewall(body: Json): Json {
    const name = String(body["name"])
    const network = String(body["network"])
    if (
      this.#project.networks !== undefined &&
      !Object.hasOwn(this.#project.networks, network.split("/").at(-1) ?? "")
    ) {
      return notFound(`projects/${this.#project.project}/${network}`)
    }
    if (this.firewalls.has(name)) {
      return { refused: { status: 409, reason: "alreadyExists", message: `The resource '${name}' already exists` } }
    }
    this.firewalls.set(name, body)
    const operation = this.#operation("insert", undefined, name, this.firewallMs === 0 ? "DONE" : "RUNNING")
    setTimeout(() => {
      operation.status = "DONE"
    }, this.firewallMs)
    return operation
  }
}

/** Returns the number of GPUs of a VM. Machine types of some families contain at least one. */
function gpusOf(instance: Instance | undefined): number {
  const cards = (instance?.["guestAccelerators"] ?? []) as { acceleratorCount?: number }[]
  const attached = cards.reduce((sum, { acceleratorCount = 0 }) => sum + acceleratorCount, 0)
  const hasOwn = /\/machineTypes\/(a2|a3|a4|g2|g4)-/.test(String(instance?.["machineType"]))
  return attached + (hasOwn ? 1 : 0)
}

/** Cards that machine types of some series contain. */
const CARDS: Record<string, string> = { a2: "A100", a3: "H100", a4: "B200", g2: "L4", g4: "RTX_PRO_6000" }

/**
 * Returns what an instance uses of the quotas of its region, by metric. CPUS counts E2, N1 and shared cores, and a
 * preemptible card has a quota of its own (https://cloud.google.com/compute/resource-usage).
 */
function usageOf(instance: Instance): Record<string, number> {
  const type = String(instance["machineType"]).split("/").at(-1) ?? ""
  const series = type.split("-")[0] ?? ""
  const cpus = Number(/-(\d+)g?$/.exec(type)?.[1] ?? 1)
  const metric = /^(e2|n1|f1|g1)$/.test(series) ? "CPUS" : `${series.toUpperCase()}_CPUS`
  const [attached] = (instance["guestAccelerators"] ?? []) as { acceleratorType?: string }[]
  const card = CARDS[series] ?? /nvidia-tesla-([a-z0-9]+)$/.exec(attached?.acceleratorType ?? "")?.[1]?.toUpperCase()
  if (card === undefined) return { [metric]: cpus }
  const market = instance.scheduling.provisioningModel === "SPOT" ? "PREEMPTIBLE_" : ""
  return { [metric]: cpus, [`${market}NVIDIA_${card}_GPUS`]: gpusOf(instance) }
}

/** Returns the permissions for a request. An external address needs one more. */
function permissionsFor(name: string, body: unknown): readonly string[] | undefined {
  const hasAddress = JSON.stringify(body ?? {}).includes('"accessConfigs"')
  return PERMISSIONS[name]?.filter((each) => hasAddress || each !== "compute.subnetworks.useExternalIp")
}

/** Returns Google's answer for an API that is not enabled (https://cloud.google.com/apis/design/errors). */
function disabledAnswer(service: string, project: string): Json {
  const message = `The API ${service} has not been used in project ${project} before or it is disabled.`
  const info = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    reason: "SERVICE_DISABLED",
    domain: "googleapis.com",
    metadata: { service, consumer: `projects/${project}` },
  }
  const errors = [{ message, domain: "usageLimits", reason: "accessNotConfigured" }]
  return { error: { code: 403, message, errors, status: "PERMISSION_DENIED", details: [info] } }
}

function notFound(resource: string): Json {
  return { refused: { status: 404, reason: "notFound", message: `The resource '${resource}' was not found` } }
}

/** Returns the content of a service account's key file. */
function keyfile(project: string, privateKey: string): string {
  return JSON.stringify({
    type: "service_account",
    project_id: project,
    private_key_id: "1",
    private_key: privateKey,
    client_email: `berth@${project}.iam`,
    token_uri: "https://oauth2.googleapis.com/token",
  })
}

async function textOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part as Buffer)
  return Buffer.concat(parts).toString()
}
