import { once } from "node:events"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"
import { MOTO_ACCOUNT, type Moto, motoEnvironment } from "../moto.ts"
import { documentedActions } from "./aws-policy.ts"
import { Ec2Schema } from "./ec2-schema.ts"

/**
 * Failure of a call. `before`: an error, without an effect. `after`: an error, although the call had its effect.
 * `lost`: the call has its effect, and the connection breaks instead of an answer. `reset`: the connection breaks,
 * without an effect. `slow`: the call has its effect, and no answer ever comes.
 */
export interface Ec2Fault {
  action: string
  when: "before" | "after" | "lost" | "reset" | "slow"
  /** AWS' error code, for faults that answer one. */
  code?: string
  message?: string
  /** HTTP status. Default 400. */
  status?: number
  /** Number of calls that fail. Default 1. */
  times?: number
  /** Condition on the call. */
  if?: (request: AwsRequest) => boolean
}

/** Call that passed the proxy. */
export interface AwsRequest {
  service: string
  action: string
  region: string
  accessKeyId: string
  parameters: URLSearchParams
}

interface Answer {
  status: number
  type: string
  body: string
}

interface Asked {
  method: string
  path: string
  headers: Record<string, string>
  body: string
}

/** Proxy that adds EC2's behaviour to moto: moto ignores client tokens, shows everything at once, and never fails. */
export class Ec2Proxy {
  /** Endpoint for an SDK. */
  readonly url: string
  readonly requests: AwsRequest[] = []
  /** All actions that were called, named like in IAM policies, such as ec2:RunInstances. */
  readonly actions = new Set<string>()
  /** Requests that violate AWS' published API model. */
  readonly breaches: string[] = []
  readonly faults: Ec2Fault[] = []
  /** Access keys that the proxy rejects. */
  readonly refusedKeys = new Set<string>()
  /** Actions that the policy of an access key allows. Default: those of docs/aws.md. */
  readonly policies = new Map<string, readonly string[]>()
  /** vCPUs in each region by quota, such as "onDemand G and VT". Default: no limit. */
  readonly vcpuQuotas = new Map<string, number>()
  /** Seconds for which a new instance is in no list and unknown to other calls. */
  hideSeconds = 0
  /** Text on the serial console of an instance, by id. Without `isNitro`, EC2 has no newest output. */
  readonly consoles = new Map<string, { text: string; isNitro: boolean }>()
  /** Size of the snapshot of every machine image, GB. */
  imageDiskGb = 30
  /** Maximum number of reservations in a page, whatever the caller requested. */
  pageSize = 1000
  readonly #server: Server
  readonly #moto: Moto
  readonly #schema: Ec2Schema
  /** Request and answer, by region and token. */
  readonly #tokens = new Map<string, { request: string; answer: Promise<Answer> }>()
  readonly #hiddenUntil = new Map<string, number>()
  readonly #takenBack = new Set<string>()
  readonly #ended = new Set<string>()
  /** vCPUs of the instances that have not ended, by id. */
  readonly #vcpus = new Map<string, { quota: string; vcpus: number }>()
  readonly #documented = documentedActions()

  private constructor(moto: Moto, schema: Ec2Schema, server: Server) {
    this.#moto = moto
    this.#schema = schema
    this.#server = server
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    server.on("request", (request, response) => void this.#serve(request, response))
  }

  static async start(moto: Moto): Promise<Ec2Proxy> {
    const schema = await Ec2Schema.load(await motoEnvironment())
    const server = createServer()
    server.listen(0, "127.0.0.1")
    await once(server, "listening")
    return new Ec2Proxy(moto, schema, server)
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, "close")
  }

  /** Returns the calls of an action of EC2. */
  of(action: string): AwsRequest[] {
    return this.requests.filter((request) => request.action === action)
  }

  /** Preempts a spot instance, by default of moto's first account. */
  async takeBack(id: string, region: string, account?: string): Promise<void> {
    this.#takenBack.add(id)
    this.#end(id)
    const body = new URLSearchParams({ Action: "TerminateInstances", Version: "2016-11-15", "InstanceId.1": id })
    const authorization = `AWS4-HMAC-SHA256 Credential=any/20260101/${region}/ec2/aws4_request, Signature=none`
    const headers = { authorization, ...(account !== undefined && { [MOTO_ACCOUNT]: account }) }
    const answer = await fetch(this.#moto.url, { method: "POST", headers, body })
    if (!answer.ok) throw new Error(`${id} could not be taken back: ${await answer.text()}`)
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      const body = await text(request)
      const headers = Object.fromEntries(
        Object.entries(request.headers).flatMap(([name, value]) => (typeof value === "string" ? [[name, value]] : [])),
      )
      const asked: Asked = { method: request.method ?? "GET", path: request.url ?? "/", headers, body }
      const answer = await this.#answer(asked)
      if (answer === undefined) request.socket.destroy()
      else response.writeHead(answer.status, { "content-type": answer.type }).end(answer.body)
    } catch (error) {
      this.breaches.push(`the proxy failed: ${error instanceof Error ? error.stack : String(error)}`)
      request.socket.destroy()
    }
  }

  async #answer(asked: Asked): Promise<Answer | undefined> {
    const call = requestOf(asked)
    this.requests.push(call)
    this.actions.add(`${call.service}:${call.action}`)
    if (this.refusedKeys.has(call.accessKeyId)) return failure(call, refusalOf(call))
    const denial = denialOf(call, this.policies.get(call.accessKeyId) ?? this.#documented)
    if (denial !== undefined) return failure(call, denial)
    const fault = this.#faultFor(call)
    if (fault?.when === "before") return failure(call, fault)
    if (fault?.when === "reset") return undefined
    const answer = call.service === "ec2" ? await this.#ec2(call, asked) : await this.#forward(asked)
    if (fault?.when === "lost") return undefined
    if (fault?.when === "slow") return await new Promise(() => undefined)
    return fault === undefined ? answer : failure(call, fault)
  }

  /** Faults are for requests with an effect: a check must not use one up. */
  #faultFor(call: AwsRequest): Ec2Fault | undefined {
    if (isDryRun(call)) return undefined
    const index = this.faults.findIndex((fault) => fault.action === call.action && (fault.if?.(call) ?? true))
    const fault = this.faults[index]
    if (fault === undefined) return undefined
    const times = (fault.times ?? 1) - 1
    if (times === 0) this.faults.splice(index, 1)
    else this.faults[index] = { ...fault, times }
    return fault
  }

  async #ec2(call: AwsRequest, asked: Asked): Promise<Answer> {
    const { action, parameters } = call
    const wrong = this.#schema.errorsOf(parameters)
    if (wrong.length > 0) {
      this.breaches.push(...wrong)
      return failure(call, { code: "InvalidParameter", status: 400 })
    }
    // Moto rejects it as EC2 does: with DryRunOperation, and without an effect.
    if (isDryRun(call)) return await this.#forward(asked)
    if (action === "RunInstances") return await this.#runInstances(call, asked)
    if (action === "DescribeInstances") return this.#shown(await this.#forward(this.#cutPage(asked, parameters)))
    if (action === "TerminateInstances") return await this.#terminateInstances(call, asked)
    if (action === "GetConsoleOutput") return this.#consoleOf(call) ?? (await this.#forward(asked))
    return await this.#forward(asked)
  }

  /** Returns an instance's console (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html). */
  #consoleOf(call: AwsRequest): Answer | undefined {
    const console = this.consoles.get(call.parameters.get("InstanceId") ?? "")
    if (console === undefined) return undefined
    if (call.parameters.get("Latest") === "true" && !console.isNitro) {
      return failure(call, { code: "UnsupportedOperation", message: "This instance type does not support Latest" })
    }
    const output = Buffer.from(console.text).toString("base64")
    const body = `<GetConsoleOutputResponse><output>${output}</output></GetConsoleOutputResponse>`
    return { status: 200, type: "text/xml", body }
  }

  async #runInstances(call: AwsRequest, asked: Asked): Promise<Answer> {
    const disk = Number(call.parameters.get("BlockDeviceMapping.1.Ebs.VolumeSize") ?? this.imageDiskGb)
    if (disk < this.imageDiskGb) {
      const message = `Volume of size ${disk}GB is smaller than snapshot 'snap-0a1b2c3d4e5f60718', expect size >= ${this.imageDiskGb}GB`
      return failure(call, { code: "InvalidBlockDeviceMapping", message: message.replace(">", "&gt;"), status: 400 })
    }
    const overQuota = this.#overQuota(call)
    if (overQuota !== undefined) return failure(call, overQuota)
    const token = call.parameters.get("ClientToken")
    if (token === null) {
      this.breaches.push("RunInstances without a ClientToken")
      return await this.#made(await this.#forward(asked), call)
    }
    if (!/^[\x20-\x7e]{1,64}$/.test(token))
      this.breaches.push(`a ClientToken has at most 64 ASCII characters: ${token}`)
    const key = `${call.region}/${token}`
    const known = this.#tokens.get(key)
    if (known !== undefined) {
      if (known.request !== asked.body) return failure(call, { code: "IdempotentParameterMismatch", status: 400 })
      return await known.answer
    }
    const answer = this.#forward(asked).then((made) => this.#made(made, call))
    this.#tokens.set(key, { request: asked.body, answer })
    // A request that failed has not used up its token.
    if ((await answer).status !== 200) this.#tokens.delete(key)
    return await answer
  }

  async #terminateInstances(call: AwsRequest, asked: Asked): Promise<Answer> {
    const ids = valuesOf(call.parameters, "InstanceId")
    if (ids.some((id) => this.#isHidden(id))) {
      return failure(call, { code: "InvalidInstanceID.NotFound", status: 400 })
    }
    // Moto terminates an instance again with each call.
    const left = ids.filter((id) => !this.#ended.has(id))
    if (left.length === 0) return { status: 200, type: "text/xml", body: "<TerminateInstancesResponse/>" }
    const body = new URLSearchParams([...call.parameters].filter(([key]) => !key.startsWith("InstanceId.")))
    for (const [index, id] of left.entries()) body.set(`InstanceId.${index + 1}`, id)
    const answer = await this.#forward({ ...asked, body: String(body) })
    if (answer.status === 200) for (const id of left) this.#end(id)
    return answer
  }

  #end(id: string): void {
    this.#ended.add(id)
    this.#vcpus.delete(id)
  }

  /** Returns EC2's error for an instance beyond its quota (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html). */
  #overQuota(call: AwsRequest): Failure | undefined {
    const { quota, vcpus } = vcpusOf(call)
    const limit = this.vcpuQuotas.get(quota.slice(quota.indexOf(" ") + 1)) ?? Number.POSITIVE_INFINITY
    const used = [...this.#vcpus.values()].reduce((sum, each) => sum + (each.quota === quota ? each.vcpus : 0), 0)
    if (used + vcpus <= limit) return undefined
    if (isSpot(call)) return { code: "MaxSpotInstanceCountExceeded", message: "Max spot instance count exceeded" }
    const message = `You have requested more vCPU capacity than your current vCPU limit of ${limit} allows for the instance bucket that the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.`
    return { code: "VcpuLimitExceeded", message }
  }

  /** Shows the hidden instances from now on. */
  reveal(): void {
    this.#hiddenUntil.clear()
  }

  #made(answer: Answer, call: AwsRequest): Answer {
    for (const [, id = ""] of answer.body.matchAll(/<instanceId>(i-[0-9a-f]+)<[/]instanceId>/g)) {
      this.#vcpus.set(id, vcpusOf(call))
      this.#hiddenUntil.set(id, performance.now() + this.hideSeconds * 1000)
    }
    return answer
  }

  #isHidden(id: string): boolean {
    return performance.now() < (this.#hiddenUntil.get(id) ?? 0)
  }

  #cutPage(asked: Asked, parameters: URLSearchParams): Asked {
    const most = Math.min(this.pageSize, Number(parameters.get("MaxResults") ?? this.pageSize))
    const cut = new URLSearchParams(parameters)
    cut.set("MaxResults", String(most))
    return { ...asked, body: String(cut) }
  }

  /** Returns a list as EC2 would: without new instances, and with the true reason of each termination. */
  #shown(answer: Answer): Answer {
    const [before, inside, after] = parted(answer.body, "reservationSet")
    const reservations = itemsOf(inside).filter((item) => !this.#isHidden(instanceIdOf(item)))
    const told = reservations.map((item) => (this.#takenBack.has(instanceIdOf(item)) ? asTakenBack(item) : item))
    return { ...answer, body: before + told.join("") + after }
  }

  async #forward({ method, path, headers, body }: Asked): Promise<Answer> {
    const { host: _, connection: __, "content-length": ___, expect: ____, ...kept } = headers
    const answer = await fetch(this.#moto.url + path, { method, headers: kept, ...(body !== "" && { body }) })
    return { status: answer.status, type: answer.headers.get("content-type") ?? "text/xml", body: await answer.text() }
  }
}

function requestOf({ headers, body }: Asked): AwsRequest {
  const scope = /Credential=([^/]*)\/\d+\/([^/]+)\/([^/]+)\//.exec(headers["authorization"] ?? "")
  const [, accessKeyId = "", region = "", service = ""] = scope ?? []
  const target = headers["x-amz-target"]?.split(".")[1]
  const parameters = new URLSearchParams(target === undefined ? body : "")
  const action = target ?? parameters.get("Action") ?? ""
  return { service, action, region, accessKeyId, parameters }
}

function isSpot({ parameters }: AwsRequest): boolean {
  return parameters.get("InstanceMarketOptions.MarketType") === "spot"
}

/** Groups of instance families with a quota each, by the first letters (https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html). */
const QUOTA_GROUPS: readonly [RegExp, string][] = [
  [/^(g|gr|vt)\d/, "G and VT"],
  [/^p\d/, "P"],
  [/^(f|x|inf|trn|dl|hpc|u)\d?/, "other"],
  [/^[acdhimrtz]/, "Standard"],
]

/** Returns the quota of an instance, with its region first, and its vCPUs, as far as the size has them. */
function vcpusOf(call: AwsRequest): { quota: string; vcpus: number } {
  const type = call.parameters.get("InstanceType") ?? ""
  const group = QUOTA_GROUPS.find(([pattern]) => pattern.test(type))?.[1] ?? "other"
  const xlarges = /[.](\d*)xlarge$/.exec(type)?.[1]
  const vcpus = xlarges === undefined ? 2 : 4 * Number(xlarges || 1)
  return { quota: `${call.region} ${isSpot(call) ? "spot" : "onDemand"} ${group}`, vcpus }
}

/** Actions that need no permission. */
const FREE_ACTIONS = ["sts:GetCallerIdentity"]

/**
 * Returns AWS' error for a call that the policy does not allow. RunInstances and CreateSecurityGroup also need the right
 * to tag, and a spot instance the role of the spot market.
 */
function denialOf(call: AwsRequest, allowed: readonly string[]): Failure | undefined {
  const { service, action, parameters } = call
  const isTagged = [...parameters.keys()].some((key) => key.startsWith("TagSpecification."))
  const needed = [
    `${service}:${action}`,
    ...(service === "ec2" && isTagged && action !== "CreateTags" ? ["ec2:CreateTags"] : []),
  ].filter((each) => !FREE_ACTIONS.includes(each))
  const missing = needed.find((each) => !allowed.includes(each))
  if (missing !== undefined) {
    const user = "arn:aws:iam::123456789012:user/berth"
    const message = `You are not authorized to perform this operation. User: ${user} is not authorized to perform: ${missing} because no identity-based policy allows the ${missing} action.`
    return service === "ec2"
      ? {
          code: "UnauthorizedOperation",
          message: `${message} Encoded authorization failure message: ${"x".repeat(600)}`,
          status: 403,
        }
      : { code: "AccessDeniedException", message, status: 400 }
  }
  if (action !== "RunInstances" || !isSpot(call) || isDryRun(call)) return undefined
  if (allowed.includes("iam:CreateServiceLinkedRole")) return undefined
  const message =
    "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances."
  return { code: "AuthFailure.ServiceLinkedRoleCreationNotPermitted", message, status: 403 }
}

function isDryRun({ parameters }: AwsRequest): boolean {
  return parameters.get("DryRun") === "true"
}

/** Returns AWS' error for an unknown key. */
function refusalOf({ service }: AwsRequest): Failure {
  return service === "ec2" ? { code: "AuthFailure", status: 401 } : { code: "InvalidClientTokenId", status: 403 }
}

type Failure = Pick<Ec2Fault, "code" | "message" | "status">

function failure(
  { service }: AwsRequest,
  { code = "InternalError", message = "An internal error has occurred", status = 400 }: Failure,
): Answer {
  if (service === "ec2") {
    const error = `<Errors><Error><Code>${code}</Code><Message>${message}</Message></Error></Errors>`
    return { status, type: "text/xml", body: `<Response>${error}<RequestID>test</RequestID></Response>` }
  }
  if (service === "sts") {
    const error = `<Error><Type>Sender</Type><Code>${code}</Code><Message>${message}</Message></Error>`
    return { status, type: "text/xml", body: `<ErrorResponse>${error}<RequestId>test</RequestId></ErrorResponse>` }
  }
  return { status, type: "application/x-amz-json-1.1", body: JSON.stringify({ __type: code, message }) }
}

function valuesOf(parameters: URLSearchParams, name: string): string[] {
  return [...parameters].filter(([key]) => key.startsWith(`${name}.`)).map(([, value]) => value)
}

/** Returns the text before an element's content, the content, and the text after it. */
function parted(xml: string, element: string): [string, string, string] {
  const start = xml.indexOf(`<${element}>`)
  const end = xml.lastIndexOf(`</${element}>`)
  if (start === -1 || end === -1) return [xml, "", ""]
  const inside = start + element.length + 2
  return [xml.slice(0, inside), xml.slice(inside, end), xml.slice(end)]
}

/** Returns the outermost items. */
function itemsOf(xml: string): string[] {
  const items: string[] = []
  let depth = 0
  let start = 0
  for (const match of xml.matchAll(/<(\/?)item>/g)) {
    if (match[1] === "" && depth++ === 0) start = match.index
    if (match[1] === "/" && --depth === 0) items.push(xml.slice(start, match.index + match[0].length))
  }
  return items
}

function instanceIdOf(reservation: string): string {
  return /<instanceId>(i-[0-9a-f]+)<[/]instanceId>/.exec(reservation)?.[1] ?? ""
}

function asTakenBack(reservation: string): string {
  return reservation.replaceAll(/Client\.User[A-Za-z]+/g, "Server.SpotInstanceTermination")
}
