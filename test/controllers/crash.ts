import type { KubeClient } from "../../src/core/kube/client.ts"
import { NotLeaderError } from "../../src/operator/fence.ts"

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
  #dead = false

  constructor(client: KubeClient, last: number, moment: Moment) {
    this.#last = last
    this.#moment = moment
    this.client = this.#crashingClient(client)
  }

  get dead(): boolean {
    return this.#dead
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
