import { create, type DescMessage, type DescMethod, fromJson, toBinary } from "@bufbuild/protobuf"
import { AnySchema } from "@bufbuild/protobuf/wkt"
import { status } from "@grpc/grpc-js"
import { type Json, registry } from "../../src/clouds/nebius/api.ts"
import type { SendRpc } from "../../src/clouds/nebius/rpc.ts"
import { Machines } from "./booted-vm.ts"
import { type Act, FaultPlan, hasEffect } from "./faults.ts"
import {
  type CreateRequest,
  creationRefusal,
  creationViolations,
  type InstanceSpec,
  instanceTypeOf,
  type NebiusImage,
  type NebiusProject,
  regionCodeOf,
} from "./nebius-creation.ts"
import {
  answerViolations,
  badRequest,
  type FieldViolation,
  notFound,
  Refusal,
  readStrictly,
  refusal,
  refusalOf,
} from "./nebius-description.ts"
import { HOST, type Incoming, METHODS, NebiusDoor, type Outcome } from "./nebius-door.ts"
import { type NebiusQuota, shownImage, shownProject, shownQuotas } from "./nebius-facts.ts"
import { ACCOUNT_KEY, NebiusIdentity } from "./nebius-identity.ts"
import { alreadyExists, childrenOf, NebiusNetwork, named, type Shown, withId } from "./nebius-network.ts"
import { estimate, type HourlyPrices } from "./nebius-prices.ts"
import { NebiusVm } from "./nebius-vm.ts"

interface Operation {
  json: Json & { id: string; resourceId: string }
  host: string
}

/** One call, after its checks. */
interface Call {
  name: string
  json: Json
  host: string
  account: string
  key: string | undefined
}

/** Acts of the three main calls of a VM. */
const ACTS: Readonly<Record<string, Act>> = {
  "compute.v1.InstanceService/Create": "launch",
  "compute.v1.InstanceService/List": "list",
  "compute.v1.InstanceService/Delete": "terminate",
}

const OPERATIONS = "common.v1.OperationService"
const EXCHANGE = "iam.v1.TokenExchangeService/Exchange"

/** "A sufficiently long string of random alphanumeric characters" (https://github.com/nebius/api#idempotency). */
const IDEMPOTENCY_KEY = /^[A-Za-z0-9-]{16,}$/

/** Codes with which an operation may end (operation.proto). */
const OPERATION_CODES = [1, 7, 8, 9, 10, 13]

/**
 * In-memory server with the part of Nebius' API that Berth uses, by real gRPC. It checks requests and its own answers
 * against the published description and its rules, and issues tokens for assertions of its service account. Where the
 * description and https://docs.nebius.com are silent, it does what is harder for a client, and a comment says so.
 */
export class NebiusServer {
  readonly faults = new FaultPlan()
  readonly machines = new Machines()
  /** Requests and answers that the API does not describe. Must stay empty. */
  readonly violations: string[] = []
  /** Methods that were called, such as `compute.v1.InstanceService/Create`. */
  readonly calls: string[] = []
  readonly identity: NebiusIdentity
  readonly network: NebiusNetwork
  /** Public images, the newest of a family last. */
  readonly images: NebiusImage[]
  /** Errors with which the operation of a creation ends, by instance type or project. */
  readonly createErrors = new Map<string, Refusal>()
  /** Rest of a failed creation: users report a stopped VM (https://github.com/dstackai/dstack/issues/2977). */
  afterFailure: "stopped" | "error" | "nothing" = "stopped"
  /**
   * State of a VM that is being created. Users report STOPPED, with `reconciling`
   * (https://docs.nebius.com/compute/virtual-machines/lifecycle); the description also has CREATING.
   */
  firstState: "STOPPED" | "CREATING" = "STOPPED"
  /** Fate of an operation when another one is asked for. The README allows both; a refusal is harder. */
  conflicts: "refuse" | "abort" = "refuse"
  /** Answer to a used idempotency key with another request. The README does not say: it may not look at the request. */
  changedRequest: "refuse" | "ignore" = "refuse"
  /** Role of the caller in each project and in the tenant; undefined: editor everywhere. */
  permissions: ReadonlyMap<string, "viewer" | "editor"> | undefined
  readonly quotas: NebiusQuota[] = []
  readonly prices: HourlyPrices = { machines: {}, disksPerGib: {} }
  /** Maximum number of resources in a page. */
  pageSize = 1000
  /** Time from which new VMs are missing in lists, milliseconds of `now`. */
  hidesSince: number | undefined
  /** Milliseconds that the operations of VMs take; infinite: until `finish`. */
  operationMs = 20
  /** Milliseconds that the operations of security groups and rules take; 0: they are complete at once. */
  networkMs = 0
  readonly tenant = "tenant-e00berth"
  readonly credentials: Record<string, string>
  readonly now: () => number
  readonly #projects: readonly NebiusProject[]
  readonly #vms = new Map<string, NebiusVm>()
  /** VMs that ever existed. */
  readonly #everVms: NebiusVm[] = []
  readonly #operations = new Map<string, Operation>()
  readonly #keys = new Map<string, { request: string; operation: string }>()
  readonly #held: (() => void)[] = []
  readonly #door: NebiusDoor
  #ids = 1

  constructor(projects: readonly NebiusProject[], now: () => number = Date.now) {
    this.#projects = projects
    this.now = now
    this.identity = new NebiusIdentity(now)
    this.network = new NebiusNetwork(projects)
    this.credentials = { ...ACCOUNT_KEY, projects: projects.map(({ id }) => id).join(",") }
    this.images = projects.flatMap(({ id, region }) =>
      ["ubuntu24.04-driverless", "ubuntu24.04-cuda13.0"].map((family) => {
        const minDiskGib = family.includes("cuda") ? 50 : 10
        return { id: `computeimage-${regionCodeOf(id)}${family.replaceAll(".", "")}`, family, region, minDiskGib }
      }),
    )
    this.#door = new NebiusDoor((call) => this.#serve(call))
  }

  start(): Promise<void> {
    return this.#door.open()
  }

  close(): Promise<void> {
    return this.#door.close()
  }

  /** Sends a call to this server in place of Nebius' hosts. Throws for a host that does not have the method. */
  readonly send: SendRpc = (rpc) => this.#door.send(rpc)

  /** Removes the completed operations and their idempotency keys: Nebius keeps them for an unknown time. */
  forgetOperations(): void {
    for (const [id, { json }] of this.#operations) if (json["status"] !== undefined) this.#operations.delete(id)
    for (const [key, { operation }] of this.#keys) if (!this.#operations.has(operation)) this.#keys.delete(key)
  }

  /** Completes the pending operations. */
  finish(): void {
    while (this.#held.length > 0) this.#held.shift()?.()
  }

  #later(act: () => void): void {
    if (Number.isFinite(this.operationMs)) setTimeout(act, this.operationMs / 2)
    else this.#held.push(act)
  }

  /** Shuts a VM down from within. "Subject to recovery policy" (instance.proto): the default boots it again. */
  powerOff(id: string): void {
    const vm = this.#vms.get(id)
    if (vm?.state !== "RUNNING") return
    if (vm.spec.recoveryPolicy === "FAIL") vm.enter("STOPPED")
    else {
      this.machines.cutPower(id)
      this.#boot(vm)
    }
  }

  /** Stops a preemptible VM. No operation and no field says why (the description has none). */
  preempt(id: string): void {
    const vm = this.#vms.get(id)
    if (vm?.spec.preemptible === undefined) throw new RangeError(`${id} is no preemptible VM`)
    vm.enter("STOPPED")
    this.machines.cutPower(id)
  }

  /** Lets a VM crash for ever. */
  crash(id: string): void {
    const vm = this.#vms.get(id)
    if (vm !== undefined) vm.enter("ERROR")
    this.machines.cutPower(id)
  }

  instances(): NebiusVm[] {
    return [...this.#vms.values()]
  }

  /** Returns the size of each disk that exists, GiB by id. A disk is billed in every state of its VM. */
  disks(): Map<string, number> {
    return new Map(this.instances().map(({ diskId, diskGib }) => [diskId, diskGib]))
  }

  /** Returns the seconds for which each VM that ever existed was billed, by id. */
  billed(now = this.now()): Map<string, number> {
    return new Map(this.#everVms.map((vm) => [vm.metadata.id, vm.billedSeconds(now)]))
  }

  async #serve(call: Incoming): Promise<Outcome> {
    this.calls.push(call.name)
    try {
      return await this.#answer(call)
    } catch (error) {
      if (error instanceof Refusal) return error
      this.violations.push(`${call.name}: ${(error as Error).stack}`)
      return new Refusal(status.INTERNAL, String(error))
    }
  }

  async #answer({ name, method, metadata, request }: Incoming): Promise<Outcome> {
    const header = (key: string): string | undefined => metadata.get(key)[0]?.toString()
    const { json, violations } = readStrictly(method, request)
    if (name === EXCHANGE) return this.#encoded(method.output, await this.identity.exchange(json))
    const account = this.identity.accountOf(header("authorization") ?? "")
    const key = header("x-idempotency-key")
    if (key === undefined ? ACTS[name] === "launch" : !IDEMPOTENCY_KEY.test(key))
      violations.push({ field: "x-idempotency-key", message: `${key} is no key` })
    this.#refuseViolations(name, violations)
    this.#authorize(name, json)
    const fault = this.faults.take(ACTS[name])
    if (fault === "reset") return "reset"
    if (fault !== undefined && !hasEffect(fault)) throw refusalOf(fault)
    const act = this.#handlers[name]
    if (act === undefined) throw new Error("the stand-in does not have this method")
    const answer = this.#once({ name, json, host: header(HOST) ?? "", account, key }, act)
    if (fault === "lost") return "reset"
    if (fault === "slow") return "silence"
    if (fault === "errorAfter") throw refusalOf(fault)
    return this.#encoded(method.output, answer)
  }

  #refuseViolations(name: string, violations: readonly FieldViolation[]): void {
    if (violations.length === 0) return
    this.violations.push(...violations.map(({ field, message }) => `${name}: ${field}: ${message}`))
    throw badRequest(violations)
  }

  #encoded(type: DescMessage, json: Json): Uint8Array {
    const message = fromJson(type, json, { registry: registry() })
    // "May be absent while the operation is running": of a message that the API does not publish.
    if (type.name === "Operation" && json["status"] === undefined) {
      const typeUrl = "type.googleapis.com/nebius.compute.v1.UnpublishedProgress"
      Object.assign(message, { progressData: create(AnySchema, { typeUrl, value: new Uint8Array([8, 1]) }) })
    }
    const bytes = toBinary(type, message)
    for (const each of answerViolations(type, bytes)) this.violations.push(`answer ${type.name}: ${each}`)
    return bytes
  }

  /** Acts, or returns the operation of an earlier call with the same key, whatever became of it. */
  #once(call: Call, act: (call: Call) => Json): Json {
    const { name, json, key } = call
    const isChange = !isRead(name)
    const known = isChange ? this.#keys.get(key ?? "") : undefined
    const request = `${name} ${JSON.stringify(json)}`
    if (known === undefined) {
      const answer = act(call)
      if (isChange && key !== undefined) this.#keys.set(key, { request, operation: String(answer["id"]) })
      return answer
    }
    if (known.request === request || this.changedRequest === "ignore")
      return (this.#operations.get(known.operation) as Operation).json
    throw badRequest([{ field: "x-idempotency-key", message: "was used for another request" }])
  }

  /** @throws Refusal of a caller without the role. A project that does not exist gives no rights. */
  #authorize(name: string, json: Json): void {
    const { parentId, id, metadata } = json as Json & { metadata?: Json }
    const place = this.#placeOf(String(parentId ?? metadata?.["parentId"] ?? id ?? ""))
    if (place === undefined) return
    const exists = place === this.tenant || this.#projects.some((each) => each.id === place)
    const role = this.permissions === undefined ? "editor" : this.permissions.get(place)
    if (exists && (role === "editor" || (role === "viewer" && isRead(name)))) return
    throw refusal("PERMISSION_DENIED", `Permission denied for ${place}`, "permissionDenied", { resourceId: place })
  }

  /** Returns the project or tenant of an id; undefined if it is public, or of nothing that exists. */
  #placeOf(id: string): string | undefined {
    if (/^project-\w+public-images$/.test(id)) return undefined
    if (/^(project|tenant)-/.test(id)) return id
    const resource = String(this.#operations.get(id)?.json.resourceId ?? id)
    return this.#vms.get(resource)?.metadata.parentId ?? this.network.projectOf(resource)
  }

  readonly #handlers: Readonly<Record<string, (call: Call) => Json>> = {
    [`${OPERATIONS}/Get`]: (call) => this.#operationOf(call),
    "compute.v1.InstanceService/Create": (call) => this.#create(call),
    "compute.v1.InstanceService/Delete": (call) => this.#delete(call),
    "compute.v1.InstanceService/Get": ({ json }) => this.#vm(String(json["id"])).shown(),
    "compute.v1.InstanceService/GetByName": ({ json }) => named(this.instances(), json).shown(),
    "compute.v1.InstanceService/List": ({ json }) => this.#list(json),
    "compute.v1.ImageService/Get": ({ json }) => this.#image(({ id }) => id === json["id"]),
    "compute.v1.ImageService/GetLatestByFamily": ({ json }) => this.#latestImage(json),
    "compute.v1.ImageService/ListPublic": ({ json }) =>
      this.#page(json, this.images.filter(({ region }) => region === json["region"]).map(shownImage)),
    "iam.v1.ProjectService/Get": ({ json }) =>
      withId(
        this.#projects.map((project) => shownProject(project, this.tenant)),
        json,
      ),
    "vpc.v1.SubnetService/Get": ({ json }) => withId(this.network.subnets(), json),
    "vpc.v1.SubnetService/GetByName": ({ json }) => named(this.network.subnets(), json),
    "vpc.v1.SubnetService/List": ({ json }) => this.#page(json, childrenOf(this.network.subnets(), json)),
    "vpc.v1.SecurityGroupService/Create": (call) => this.#made(call, this.network.createGroup(call.json)),
    "vpc.v1.SecurityGroupService/Get": ({ json }) => withId(this.network.groups.values(), json),
    "vpc.v1.SecurityGroupService/GetByName": ({ json }) => named(this.network.groups.values(), json),
    "vpc.v1.SecurityGroupService/List": ({ json }) => this.#page(json, childrenOf(this.network.groups.values(), json)),
    "vpc.v1.SecurityRuleService/Create": (call) => this.#made(call, this.network.createRule(call.json)),
    "vpc.v1.SecurityRuleService/GetByName": ({ json }) => named(this.network.rules.values(), json),
    "vpc.v1.SecurityRuleService/List": ({ json }) => this.#page(json, childrenOf(this.network.rules.values(), json)),
    "quotas.v1.QuotaAllowanceService/List": ({ json }) => this.#page(json, shownQuotas(this.quotas, json)),
    "billing.v1.CalculatorService/EstimateBatch": ({ name, json }) => {
      const requests = (json["resourceSpecs"] as unknown as { spec: CreateRequest }[]).map(({ spec }) => spec)
      // Another service than Compute: it does not know whether disk and subnet exist.
      for (const each of requests) this.#sellerOf(name, each)
      return estimate(json, requests, this.prices)
    },
  }

  #operationOf({ json: { id }, host }: Call): Json {
    const found = this.#operations.get(String(id))
    // An operation is at the service that began it (https://github.com/nebius/api#api-endpoints).
    if (found === undefined || found.host !== host) throw notFound(String(id))
    return found.json
  }

  #vm(id: string): NebiusVm {
    const found = this.#vms.get(id)
    if (found === undefined) throw notFound(id)
    return found
  }

  #list(json: Json): Json {
    const isShown = ({ metadata: { createdAt } }: NebiusVm) =>
      Date.parse(createdAt) < (this.hidesSince ?? Number.POSITIVE_INFINITY)
    return this.#page(
      json,
      childrenOf(this.instances().filter(isShown), json).map((vm) => vm.shown()),
    )
  }

  #image(isWanted: (image: NebiusImage) => boolean): Json {
    const found = this.images.findLast(isWanted)
    if (found === undefined) throw notFound("image")
    return shownImage(found)
  }

  /** Without a parent, the region is that of the first project: the description says "project-{region}public-images". */
  #latestImage({ imageFamily, parentId }: Json): Json {
    const code = regionCodeOf(String(parentId ?? this.#projects[0]?.id))
    return this.#image(({ id, family }) => family === imageFamily && regionCodeOf(id) === code)
  }

  /** Returns the operation that made a resource of the network. */
  #made(call: Call, { metadata }: Shown): Json {
    const { json } = this.#operation(call, metadata.id)
    const end = (): void => void Object.assign(json, this.#end())
    if (this.networkMs === 0) end()
    else setTimeout(end, this.networkMs)
    return { ...json }
  }

  #page(json: Json, items: readonly Shown[]): Json {
    const size = Number(json["pageSize"] ?? 0)
    this.#refuseViolations("List", size >= 0 && size <= 1000 ? [] : [{ field: "page_size", message: `${size}` }])
    const after = Buffer.from(String(json["pageToken"] ?? ""), "base64url").toString()
    const rest = items.filter(({ metadata }) => metadata.id > after).sort((a, b) => (idOf(a) < idOf(b) ? -1 : 1))
    // "A reasonable default": 10, as for projects (project_service.proto).
    const page = rest.slice(0, Math.min(size || 10, this.pageSize))
    const last = page.length < rest.length ? page.at(-1)?.metadata.id : undefined
    return {
      items: page,
      ...(last !== undefined && { nextPageToken: Buffer.from(last).toString("base64url") }),
    }
  }

  #operation({ name, json, account, host }: Call, resourceId: string): Operation {
    const kind = host.startsWith("vpc") ? "vpcoperation" : "computeoperation"
    const id = `${kind}-${regionCodeOf(resourceId)}${this.#nextId()}`
    const spec = { ...(json["spec"] as Json | undefined) }
    // "Sensitive": masked or removed (annotations.proto).
    delete spec["cloudInitUserData"]
    const { method } = METHODS.get(`/nebius.${name}`) as { method: DescMethod }
    const request = {
      "@type": `type.googleapis.com/${method.input.typeName}`,
      ...json,
      ...("spec" in json && { spec }),
    }
    const started = { id, description: name, createdAt: this.#time(), createdBy: account, request, resourceId }
    const operation = { json: started, host }
    this.#operations.set(id, operation)
    return operation
  }

  /** Returns the fields of an operation that has ended. */
  #end(error?: Refusal): Json {
    if (error !== undefined && !OPERATION_CODES.includes(error.code))
      throw new RangeError(`no operation ends with the code ${error.code}`)
    return { status: error?.status ?? { code: 0 }, finishedAt: this.#time() }
  }

  #nextId = (): string => String(this.#ids++).padStart(8, "0")

  /** Times have microseconds. */
  #time = (): string => new Date(this.now()).toISOString().replace("Z", "123Z")

  /** Returns the project of a creation whose region sells the machine. @throws Refusal */
  #sellerOf(name: string, request: CreateRequest): NebiusProject {
    this.#refuseViolations(name, creationViolations(request))
    const project = this.#projects.find(({ id }) => id === request.metadata?.parentId)
    if (project === undefined) throw notFound(String(request.metadata?.parentId))
    const platform = request.spec?.resources.platform ?? ""
    if (project.platforms?.includes(platform) !== false) return project
    throw badRequest([{ field: "spec.resources.platform", message: `${platform} is not sold in ${project.region}` }])
  }

  #create(call: Call): Json {
    const request = call.json as CreateRequest
    const project = this.#sellerOf(call.name, request)
    const { images, network } = this
    const tenant = { projects: this.#projects, images, groupNetworks: network.groupNetworks }
    const refused = creationRefusal(request, project, tenant)
    if (refused !== undefined) throw refused
    const { metadata: { name = "", labels = {} } = {}, spec } = request as CreateRequest & { spec: InstanceSpec }
    const others = this.instances().filter((vm) => vm.metadata.parentId === project.id)
    const taken = others.find((vm) => name !== "" && vm.metadata.name === name)
    if (taken !== undefined) throw alreadyExists(taken.metadata.id)
    const disk = spec.bootDisk.managedDisk?.name
    const owner = others.find((vm) => disk !== undefined && vm.spec.bootDisk.managedDisk?.name === disk)
    // "Instance create/update fails if there is already a disk with the same name" (instance.proto).
    if (owner !== undefined) throw alreadyExists(owner.diskId)
    const code = regionCodeOf(project.id)
    const id = `computeinstance-${code}${this.#nextId()}`
    const { json } = this.#operation(call, id)
    const vm = new NebiusVm(
      {
        metadata: { id, parentId: project.id, name, labels, createdAt: this.#time() },
        ...{ spec, state: this.firstState, operation: json.id, diskId: `computedisk-${code}${this.#nextId()}` },
      },
      { now: this.now, nextAddress: () => `203.0.113.${this.#ids++ % 250}` },
    )
    this.#vms.set(id, vm)
    this.#everVms.push(vm)
    this.#later(() => this.#startCreated(vm, json))
    return { ...json }
  }

  #startCreated(vm: NebiusVm, operation: Json): void {
    if (operation["status"] !== undefined) return
    const error = this.createErrors.get(instanceTypeOf(vm.spec)) ?? this.createErrors.get(vm.metadata.parentId)
    if (error !== undefined) {
      this.#failCreation(vm, operation, error)
      return
    }
    vm.enter("STARTING")
    this.#later(() => {
      if (operation["status"] !== undefined) return
      vm.enter("RUNNING")
      this.#boot(vm)
      this.#finish(vm, operation)
    })
  }

  #failCreation(vm: NebiusVm, operation: Json, error: Refusal): void {
    this.#finish(vm, operation, error)
    if (this.afterFailure === "nothing") this.#remove(vm)
    else vm.enter(this.afterFailure === "error" ? "ERROR" : "STOPPED")
  }

  #finish(vm: NebiusVm, operation: Json, error?: Refusal): void {
    Object.assign(operation, this.#end(error))
    if (vm.operation === operation["id"]) vm.operation = undefined
  }

  #boot({ metadata: { id, name, labels }, spec }: NebiusVm): void {
    const launch = labels["berth-launch"] ?? ""
    const userData = spec.cloudInitUserData ?? ""
    this.machines.start(id, { name, launch, userData, powerOff: () => this.powerOff(id) })
  }

  /** Deletes a VM and its managed disk. A VM that runs is billed until it is deleted, which the documents do not say. */
  #delete(call: Call): Json {
    const id = String(call.json["id"])
    const vm = this.#vm(id)
    const running = vm.operation === undefined ? undefined : this.#operations.get(vm.operation)
    const { json } = this.#operation(call, id)
    if (running !== undefined) this.#endRunning(vm, running.json, json.id)
    vm.operation = json.id
    vm.enter("DELETING")
    this.#later(() =>
      this.#later(() => {
        this.#finish(vm, json)
        this.#remove(vm)
      }),
    )
    return { ...json }
  }

  /** Refuses another operation on a VM, or aborts the one that runs: the README allows both. */
  #endRunning(vm: NebiusVm, running: Operation["json"], next: string): void {
    const { id: resourceId } = vm.metadata
    if (vm.state === "DELETING" || this.conflicts === "refuse") {
      this.#operations.delete(next)
      const detail = { conflictingOperationId: running.id, resourceId }
      throw refusal("ABORTED", "another operation is running", "operationConflict", detail)
    }
    const detail = { operationId: running.id, abortedByOperationId: next, resourceId }
    this.#finish(vm, running, refusal("ABORTED", "a later operation aborted it", "operationAborted", detail))
  }

  #remove(vm: NebiusVm): void {
    vm.enter("STOPPED")
    this.#vms.delete(vm.metadata.id)
    this.machines.cutPower(vm.metadata.id)
  }
}

const idOf = ({ metadata }: Shown): string => metadata.id

/** Methods that change nothing: they need the role viewer, and no idempotency key. */
const isRead = (name: string): boolean => /[/](Get|List|Estimate)/.test(name)
