import type { KubeClient } from "../../src/core/kube/client.ts"
import { NotLeaderError } from "../../src/operator/fence.ts"
import type { ControllerHarness, OperatorClients } from "../harness/controllers.ts"

/** `before`: the call is never made. `after`: the call is made, and its response is lost. */
export type Moment = "before" | "after"

const WRITES = ["create", "patch", "patchStatus", "replaceStatus", "delete"]

/** Allows an operator a number of calls that change something, and then no call at all: it has crashed. */
export class Crash {
  /** Client for the operator. */
  readonly client: KubeClient
  /** Names of the calls, in order. */
  readonly calls: string[] = []
  readonly #last: number
  readonly #moment: Moment
  readonly #death = Promise.withResolvers<void>()
  #dead = false

  constructor(client: KubeClient, last: number, moment: Moment) {
    this.#last = last
    this.#moment = moment
    this.client = this.#crashingClient(client)
  }

  get dead(): boolean {
    return this.#dead
  }

  /** Resolves at the crash. */
  get death(): Promise<void> {
    return this.#death.promise
  }

  readonly fence = (): void => {
    if (this.#dead) throw new NotLeaderError("crashed")
  }

  /** Makes a call, or crashes at it. */
  async call<T>(name: string, call: () => Promise<T>): Promise<T> {
    this.#beAlive()
    this.calls.push(name)
    if (this.calls.length < this.#last) return call()
    this.#dead = true
    this.#death.resolve()
    if (this.#moment === "after") await call().catch(() => undefined)
    throw new Error("crashed")
  }

  /** Returns a function that makes a call which is not counted. */
  untilDead<Args extends unknown[], Answer>(call: (...args: Args) => Answer): (...args: Args) => Answer {
    return (...args) => {
      this.#beAlive()
      return call(...args)
    }
  }

  #crashingClient(client: KubeClient): KubeClient {
    return new Proxy(client, {
      get: (target, property) => {
        const value: unknown = Reflect.get(target, property)
        if (typeof value !== "function") return value
        const method = value.bind(target) as (...args: unknown[]) => unknown
        const uncounted = this.untilDead(method)
        if (!WRITES.includes(String(property))) return uncounted
        return (...args: [{ kind: string }, ...unknown[]]) => {
          // Events are written in the background, in no order.
          if (args[0].kind === "Event") return uncounted(...args)
          return this.call(`${String(property)} ${args[0].kind}`, () => method(...args) as Promise<unknown>)
        }
      },
    })
  }

  #beAlive(): void {
    if (this.#dead) throw new Error("crashed")
  }
}

/** Returns clients of an operator that work until the crash. */
export function crashingClients(harness: ControllerHarness, crash: Crash): OperatorClients {
  return { client: crash.client, clouds: cloudsUntil(crash, harness), fence: crash.fence }
}

function cloudsUntil(crash: Crash, { cloud }: ControllerHarness): OperatorClients["clouds"] {
  return {
    open: async (account) => {
      const opened = await cloud.open(account)
      return {
        consistencySeconds: opened.consistencySeconds,
        launch: (spec) => crash.call("launch", () => opened.launch(spec)),
        terminate: (vm) => crash.call("terminate", () => opened.terminate(vm)),
        list: crash.untilDead((scope) => opened.list(scope)),
        verify: () => opened.verify(),
      }
    },
  }
}
