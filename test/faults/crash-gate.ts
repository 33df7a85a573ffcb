import type { AccountOpener } from "../../src/clouds/account.ts"
import type { Cloud, Clouds } from "../../src/clouds/cloud.ts"
import type { SendRpc } from "../../src/clouds/nebius/rpc.ts"
import type { Provider } from "../../src/clouds/provider.ts"
import type { LaunchStatus } from "../../src/core/apis/launch.ts"
import type { MachineLaunch } from "../../src/core/apis/machine.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { CLIENT_REASONS, KubeError } from "../../src/core/kube/errors.ts"
import { OutcomeUnknownError } from "../../src/core/outbound/errors.ts"

/**
 * Fault at a call. `before`: the operator dies without the call. `after`: the operator dies after the call. `lost`: the
 * call is made, its answer is lost, and the operator continues. `pause`: the whole operator is paused just before the
 * call, until it is resumed.
 */
export type Fault = "before" | "after" | "lost" | "pause"

/** Effect of a call: `read` changes nothing, `cloud` acts on a cloud, `write` is any other change. */
export type Effect = "read" | "write" | "cloud"

/** Call that all runs of a scenario make: its name, and its number among the calls of that name. */
export interface Point {
  call: string
  nth: number
  effect: Effect
}

export function nameOf({ call, nth }: Point): string {
  return `${call} #${nth}`
}

/** Calls that repeat with the clock alone. One of them represents all. */
const POLLED = /Lease|^cloud list|^list Machine|Event|pages|watch|^GET|^Describe/

function mostOf(call: string): number {
  return POLLED.test(call) ? 1 : 6
}

/** Records an operator's calls, and injects one fault at most. */
export class Plan {
  readonly #counts = new Map<string, { count: number; effect: Effect }>()
  readonly #fault: { point: Point; fault: Fault } | undefined
  injected = false

  constructor(fault?: { point: Point; fault: Fault }) {
    this.#fault = fault
  }

  meet(call: string, effect: Effect): Fault | undefined {
    const count = (this.#counts.get(call)?.count ?? 0) + 1
    this.#counts.set(call, { count, effect })
    if (this.injected || call !== this.#fault?.point.call || count !== this.#fault.point.nth) return undefined
    this.injected = true
    return this.#fault.fault
  }

  /** Returns all calls, except those that only repeat others. */
  points(): Point[] {
    return [...this.#counts].flatMap(([call, { count, effect }]) =>
      Array.from({ length: Math.min(count, mostOf(call)) }, (_, index) => ({ call, nth: index + 1, effect })),
    )
  }
}

/** Injects a fault at the n-th call that changes something, whichever that is. */
export class NthChange extends Plan {
  readonly #at: number
  readonly #kind: Fault
  #changes = 0

  constructor({ at, fault }: { at: number; fault: Fault }) {
    super()
    this.#at = at
    this.#kind = fault
  }

  override meet(call: string, effect: Effect): Fault | undefined {
    super.meet(call, effect)
    if (this.injected || effect === "read" || POLLED.test(call) || ++this.#changes < this.#at) return undefined
    this.injected = true
    return this.#kind
  }
}

/** Observer of an operator's actions on clouds. */
export interface Observer {
  /** Called before the VM of this Launch is terminated. */
  onTerminate(launch: string): void
  /** Called when VMs on a cloud may have changed. */
  onCloudChange(): Promise<void>
}

/** Returns the error that the caller sees when an answer is lost. */
export type LostAnswer = (call: string) => Error

/** Gate of one process: all its requests to the API server and to clouds pass it. */
export class Life {
  readonly #plan: Plan
  readonly #observer: Observer
  readonly #onDeath: () => void
  #dead = false
  #leads = false
  #resumed = Promise.resolve()
  #resume = (): void => undefined
  #paused = false
  #pending = 0
  #changedAt = performance.now()

  constructor(plan: Plan, observer: Observer, onDeath: () => void) {
    this.#plan = plan
    this.#observer = observer
    this.#onDeath = onDeath
  }

  /** True after the process has died: its requests have no effect. */
  get dead(): boolean {
    return this.#dead
  }

  get paused(): boolean {
    return this.#paused
  }

  /** True once the process has acquired the lease. */
  get leads(): boolean {
    return this.#leads
  }

  /** Milliseconds since the last change, or 0 while an answer is pending. */
  get quietMs(): number {
    return this.#pending > 0 ? 0 : performance.now() - this.#changedAt
  }

  /** Resumes the process, like SIGCONT. */
  resume(): void {
    this.#paused = false
    this.#resume()
  }

  /** Ends the process now, like SIGKILL. */
  kill(): void {
    this.#die("SIGKILL")
    this.resume()
  }

  #pause(): void {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#paused = true
    this.#resumed = promise
    this.#resume = resolve
  }

  #die(call: string): Error {
    this.#dead = true
    this.#onDeath()
    return new Error(`crashed at ${call}`)
  }

  #mustLive(call: string): void {
    if (this.#dead) throw new Error(`no ${call}: crashed`)
  }

  /** Lets one call through, or injects the planned fault. */
  async pass<T>(call: string, effect: Effect, make: () => Promise<T>, lost: LostAnswer): Promise<T> {
    await this.#resumed
    this.#mustLive(call)
    const fault = this.#plan.meet(call, effect)
    if (fault === "before") throw this.#die(call)
    if (fault === "pause") {
      this.#pause()
      await this.#resumed
    }
    const answer = await this.#made(effect, make, fault !== "after")
    if (effect === "write" && call.endsWith(" Lease")) this.#leads = true
    if (fault === "after") throw this.#die(call)
    if (fault === "lost") throw lost(call)
    // A paused process receives no answer.
    await this.#resumed
    this.#mustLive(call)
    return answer as T
  }

  /** @param isHeard true if the caller gets the error of a failed call */
  async #made<T>(effect: Effect, make: () => Promise<T>, isHeard: boolean): Promise<T | undefined> {
    this.#pending++
    try {
      return await make()
    } catch (error) {
      if (isHeard) throw error
      return undefined
    } finally {
      this.#pending--
      if (effect !== "read") this.#changedAt = performance.now()
      if (effect === "cloud") await this.#observer.onCloudChange()
    }
  }

  /** Passes on a stream while the process lives. */
  async *hear<T>(call: string, stream: () => AsyncIterable<T>): AsyncGenerator<T> {
    await this.#resumed
    this.#mustLive(call)
    if (this.#plan.meet(call, "read") === "before") throw this.#die(call)
    // A list is an answer that the process waits for. A watch has no end.
    const isAnswer = call.startsWith("pages ")
    if (isAnswer) this.#pending++
    try {
      for await (const item of stream()) {
        await this.#resumed
        this.#mustLive(call)
        yield item
      }
    } finally {
      if (isAnswer) this.#pending--
    }
  }

  /**
   * Returns the API server's client for this process. @param labelled cluster-wide kinds, and the objects of them that
   * it sees
   */
  client(real: KubeClient, labelled: { kinds: readonly string[]; selector: string }): KubeClient {
    return new Proxy(real, {
      get: (target, property) => {
        const value: unknown = Reflect.get(target, property)
        if (typeof value !== "function") return value
        const method = value.bind(target) as (...args: unknown[]) => unknown
        const name = String(property)
        if (["onExchange", "onWait", "waiting", "close"].includes(name)) return method
        return (...args: KubeArguments) => this.#ask({ name, args, method, labelled })
      },
    })
  }

  #ask({ name, args, method, labelled }: KubeCall): unknown {
    const call = `${name} ${subjectOf(name, args)}`
    if (name === "pages" || name === "watch") {
      const [resource, options = {}] = args as [{ kind: string }, { labelSelector?: string }?]
      const own = labelled.kinds.includes(resource.kind) ? [labelled.selector] : []
      const labelSelector = [...own, ...(options.labelSelector === undefined ? [] : [options.labelSelector])].join(",")
      const selection = { ...options, ...(labelSelector !== "" && { labelSelector }) }
      return this.hear(call, () => method(resource, selection) as AsyncIterable<unknown>)
    }
    return this.pass(call, effectOf(name, call), () => method(...args) as Promise<unknown>, cutOff)
  }

  /** Returns the clouds for this process. */
  clouds(real: Clouds): Clouds {
    return { open: async (account) => this.#cloud(await real.open(account)) }
  }

  #cloud(cloud: Cloud): Cloud {
    const imageFor = cloud.imageFor?.bind(cloud)
    const completeLaunch = cloud.completeLaunch?.bind(cloud)
    return {
      consistencySeconds: cloud.consistencySeconds,
      launch: (spec, fence) => this.pass("cloud launch", "cloud", () => cloud.launch(spec, fence), unknownOutcome),
      terminate: (vm, fence) => {
        const end = (): Promise<void> =>
          cloud.terminate(vm, () => {
            fence?.()
            this.#observer.onTerminate(vm.launch)
          })
        return this.pass("cloud terminate", "cloud", end, unknownOutcome)
      },
      list: (scope) => this.pass("cloud list", "read", () => cloud.list(scope), unknownOutcome),
      verify: () => this.pass("cloud verify", "read", () => cloud.verify(), unknownOutcome),
      ...(completeLaunch !== undefined && {
        completeLaunch: (spec, fence) =>
          this.pass("cloud completeLaunch", "cloud", () => completeLaunch(spec, fence), unknownOutcome),
      }),
      ...(imageFor !== undefined && {
        imageFor: (offer) => this.pass("cloud image", "read", () => imageFor(offer), unknownOutcome),
      }),
    }
  }

  /** Returns a provider's accounts for this process. */
  provider(real: Provider): Provider {
    const { account } = real
    if (account === undefined) return real
    const open: AccountOpener = (fields) => {
      const opened = account(fields)
      return {
        ...opened,
        verify: (signal) => this.pass("verify account", "read", () => opened.verify(signal), unknownOutcome),
      }
    }
    return { ...real, account: open }
  }

  /** Returns `fetch` for a cloud's hosts for this process. @param isRead returns true if a request changes nothing */
  fetch(real: typeof fetch, isRead: (method: string, path: string) => boolean): typeof fetch {
    return async (input, init) => {
      const url = new URL(input instanceof Request ? input.url : input)
      const method = init?.method ?? (input instanceof Request ? input.method : "GET")
      const effect = isRead(method, url.pathname) ? "read" : "cloud"
      return await this.pass(`${method} ${placeOf(url)}`, effect, () => real(input, init), brokenConnection)
    }
  }

  /** Returns the calls of gRPC to a cloud's hosts for this process. @param isRead returns true if a call changes nothing */
  call(real: SendRpc, isRead: (path: string) => boolean): SendRpc {
    return async (rpc) => {
      const [service = "", method = ""] = rpc.path.split("/").slice(1)
      const name = `${service.split(".").at(-1)}/${method}`
      if (isRead(rpc.path)) return await this.pass(`GET ${name}`, "read", () => real(rpc), brokenCall)
      return await this.pass(`call ${name}`, "cloud", () => real(rpc), brokenCall)
    }
  }
}

const READS: readonly string[] = ["get", "list"]

/** Own machines are a cloud whose requests are writes of their status. */
const MACHINE_WRITE = "patchStatus Machine"

function effectOf(name: string, call: string): Effect {
  if (READS.includes(name)) return "read"
  return call.startsWith(`${MACHINE_WRITE} `) ? "cloud" : "write"
}

type KubeArguments = [{ kind?: string; method?: string; path?: string }, ...unknown[]]

interface KubeCall {
  name: string
  args: KubeArguments
  method: (...args: unknown[]) => unknown
  labelled: { kinds: readonly string[]; selector: string }
}

/**
 * Returns the subject of a call to the API server: the kind, for an event also its reason, for the handover of a VM its
 * side, and for a machine what becomes of its Launch.
 */
function subjectOf(name: string, [first, second, third]: KubeArguments): string {
  if (name === "request") return `${first.method} ${first.path?.split("/").at(-1)}`
  const reason = first.kind === "Event" ? ` ${(second as { reason?: string }).reason ?? ""}` : ""
  if (name !== "patchStatus") return `${first.kind}${reason}`
  if (first.kind === "Launch") return `${first.kind}${sideOf(third as LaunchPatch)}`
  return first.kind === "Machine" ? `${first.kind}${stepOf(third as MachinePatch)}` : `${first.kind}`
}

interface MachinePatch {
  merge?: { status?: { launch?: { [Field in keyof MachineLaunch]?: MachineLaunch[Field] | null } } }
}

/** Returns what a write of a machine's status does to its Launch; empty for other writes. */
function stepOf({ merge }: MachinePatch): string {
  const { launch } = merge?.status ?? {}
  if (launch === undefined) return ""
  if (launch.lostTime) return " loses"
  return launch.endTime ? " ends" : " gives"
}

interface LaunchPatch {
  merge?: { status?: LaunchStatus }
}

/** Returns the side of a VM's handover that a write of a Launch's status is; empty for other writes. */
function sideOf({ merge }: LaunchPatch): string {
  const { handedTo, phase, vm } = merge?.status ?? {}
  if (phase === "handedOver" && handedTo !== undefined) return HANDS_OVER
  return phase === "created" && vm?.bootTime !== undefined ? TAKES_OVER : ""
}

/** Ends of the names of the two writes of a takeover: of the predecessor's status, and of its heir's. */
export const HANDS_OVER = " hands over"
export const TAKES_OVER = " takes over"

/** Returns the path with the names and ids removed, which leaves the kind of resource. */
function placeOf({ hostname, pathname }: URL): string {
  const words = pathname.split("/").filter((word) => /^[a-z]+$/i.test(word))
  return `${hostname.split(".")[0]} ${words.slice(-2).join("/")}`
}

const cutOff: LostAnswer = (call) =>
  new KubeError({ code: 0, reason: CLIENT_REASONS.network, message: `${call}: reset`, outcomeUnknown: true })

const unknownOutcome: LostAnswer = (call) => new OutcomeUnknownError("ConnectionReset", `${call}: reset`)

const brokenConnection: LostAnswer = (call) => {
  const cause = Object.assign(new Error(`read ECONNRESET at ${call}`), { code: "ECONNRESET" })
  return new TypeError("fetch failed", { cause })
}

/** As `@grpc/grpc-js` throws it: UNAVAILABLE. */
const brokenCall: LostAnswer = (call) =>
  Object.assign(new Error(`14 UNAVAILABLE: read ECONNRESET at ${call}`), { code: 14, details: "Connection dropped" })
