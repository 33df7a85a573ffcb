import type { AccountOpener } from "../../src/cloud/account.ts"
import type { Provider } from "../../src/cloud/clouds.ts"
import { OutcomeUnknownError } from "../../src/cloud/errors.ts"
import type { Cloud, Clouds } from "../../src/cloud/provider.ts"
import type { KubeClient } from "../../src/kube/client.ts"
import { CLIENT_REASONS, KubeError } from "../../src/kube/errors.ts"

/**
 * What happens at a call. `before`: the operator dies, and the call is not made. `after`: it is made, and the operator
 * dies. `lost`: it is made, its answer is lost, and the operator lives on. `pause`: the whole operator stands still from
 * just before the call, until it is resumed.
 */
export type Fault = "before" | "after" | "lost" | "pause"

/** `read` changes nothing; `cloud` is an act on a cloud, `write` any other change. */
export type Effect = "read" | "write" | "cloud"

/** A call as runs of one scenario have it in common: its name, and the how many-th of that name it is. */
export interface Point {
  call: string
  nth: number
  effect: Effect
}

export function nameOf({ call, nth }: Point): string {
  return `${call} #${nth}`
}

/** Calls that come again and again by the clock alone: what is true of one of them is true of all. */
const POLLED = /Lease|^cloud list|Event|pages|watch|^GET|^Describe/

function mostOf(call: string): number {
  return POLLED.test(call) ? 1 : 6
}

/** What calls an operator makes, and where it is struck: once. */
export class Plan {
  readonly #counts = new Map<string, { count: number; effect: Effect }>()
  readonly #strike: { point: Point; fault: Fault } | undefined
  struck = false

  constructor(strike?: { point: Point; fault: Fault }) {
    this.#strike = strike
  }

  meet(call: string, effect: Effect): Fault | undefined {
    const count = (this.#counts.get(call)?.count ?? 0) + 1
    this.#counts.set(call, { count, effect })
    if (this.struck || call !== this.#strike?.point.call || count !== this.#strike.point.nth) return undefined
    this.struck = true
    return this.#strike.fault
  }

  /** All calls that were made, but for those that only repeat others. */
  points(): Point[] {
    return [...this.#counts].flatMap(([call, { count, effect }]) =>
      Array.from({ length: Math.min(count, mostOf(call)) }, (_, index) => ({ call, nth: index + 1, effect })),
    )
  }
}

/** What is seen of an operator's acts on clouds. */
export interface Witness {
  /** About to end the VM of this Launch. */
  onTerminate(launch: string): void
  /** Something on a cloud may have changed. */
  onCloudChange(): Promise<void>
}

/** How an answer that got lost looks to its caller. */
export type LostAnswer = (call: string) => Error

/** One process' life: all that it asks of the API server and of clouds goes through here. */
export class Life {
  readonly #plan: Plan
  readonly #witness: Witness
  readonly #onDeath: () => void
  #dead = false
  #leads = false
  #resumed = Promise.resolve()
  #resume = (): void => undefined
  #paused = false
  #pending = 0
  #changedAt = performance.now()

  constructor(plan: Plan, witness: Witness, onDeath: () => void) {
    this.#plan = plan
    this.#witness = witness
    this.#onDeath = onDeath
  }

  /** Nothing more that it does has any effect. */
  get dead(): boolean {
    return this.#dead
  }

  get paused(): boolean {
    return this.#paused
  }

  /** Whether it has ever got the lease. */
  get leads(): boolean {
    return this.#leads
  }

  /** For how long it has neither changed anything nor waited for an answer, milliseconds. */
  get quietMs(): number {
    return this.#pending > 0 ? 0 : performance.now() - this.#changedAt
  }

  /** As SIGCONT does. */
  resume(): void {
    this.#paused = false
    this.#resume()
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

  /** Lets one call through, or does to it what is planned. */
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
    // A process that stands still hears no answer.
    await this.#resumed
    this.#mustLive(call)
    return answer as T
  }

  /** @param tells whether anybody is to hear how it failed */
  async #made<T>(effect: Effect, make: () => Promise<T>, tells: boolean): Promise<T | undefined> {
    this.#pending++
    try {
      return await make()
    } catch (error) {
      if (tells) throw error
      return undefined
    } finally {
      this.#pending--
      if (effect !== "read") this.#changedAt = performance.now()
      if (effect === "cloud") await this.#witness.onCloudChange()
    }
  }

  /** What arrives by itself, as long as there is somebody to hear it. */
  async *hear<T>(call: string, stream: () => AsyncIterable<T>): AsyncGenerator<T> {
    await this.#resumed
    this.#mustLive(call)
    if (this.#plan.meet(call, "read") === "before") throw this.#die(call)
    // A list is an answer that is waited for; a watch has no end.
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

  /** The API server as this process reaches it. @param labelled kinds of the whole cluster, and what it sees of them */
  client(real: KubeClient, labelled: { kinds: readonly string[]; selector: string }): KubeClient {
    return new Proxy(real, {
      get: (target, property) => {
        const value: unknown = Reflect.get(target, property)
        if (typeof value !== "function") return value
        const method = value.bind(target) as (...args: unknown[]) => unknown
        const name = String(property)
        if (name === "onExchange" || name === "close") return method
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
    return this.pass(call, READS.includes(name) ? "read" : "write", () => method(...args) as Promise<unknown>, cutOff)
  }

  /** Clouds as this process reaches them. */
  clouds(real: Clouds): Clouds {
    return { open: async (account) => this.#cloud(await real.open(account)) }
  }

  #cloud(cloud: Cloud): Cloud {
    const imageFor = cloud.imageFor?.bind(cloud)
    return {
      consistencySeconds: cloud.consistencySeconds,
      launch: (spec, fence) => this.pass("cloud launch", "cloud", () => cloud.launch(spec, fence), unknownOutcome),
      terminate: (vm, fence) => {
        const end = (): Promise<void> =>
          cloud.terminate(vm, () => {
            fence?.()
            this.#witness.onTerminate(vm.launch)
          })
        return this.pass("cloud terminate", "cloud", end, unknownOutcome)
      },
      list: (scope) => this.pass("cloud list", "read", () => cloud.list(scope), unknownOutcome),
      verify: () => this.pass("cloud verify", "read", () => cloud.verify(), unknownOutcome),
      ...(imageFor !== undefined && {
        imageFor: (offer) => this.pass("cloud image", "read", () => imageFor(offer), unknownOutcome),
      }),
    }
  }

  /** A provider's accounts as this process reaches them. */
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

  /** A cloud's hosts as this process reaches them. @param isRead whether a request changes nothing */
  fetch(real: typeof fetch, isRead: (method: string, path: string) => boolean): typeof fetch {
    return async (input, init) => {
      const url = new URL(input instanceof Request ? input.url : input)
      const method = init?.method ?? (input instanceof Request ? input.method : "GET")
      const effect = isRead(method, url.pathname) ? "read" : "cloud"
      return await this.pass(`${method} ${placeOf(url)}`, effect, () => real(input, init), brokenConnection)
    }
  }
}

const READS: readonly string[] = ["get", "list"]

type KubeArguments = [{ kind?: string; method?: string; path?: string }, ...unknown[]]

interface KubeCall {
  name: string
  args: KubeArguments
  method: (...args: unknown[]) => unknown
  labelled: { kinds: readonly string[]; selector: string }
}

/** What a call to the API server is about: the kind, and of an event its reason. */
function subjectOf(name: string, [first, second]: KubeArguments): string {
  if (name === "request") return `${first.method} ${first.path?.split("/").at(-1)}`
  const reason = first.kind === "Event" ? ` ${(second as { reason?: string }).reason ?? ""}` : ""
  return `${first.kind}${reason}`
}

/** The kind of thing that a path names: all that is not a name or an id somebody has given. */
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
