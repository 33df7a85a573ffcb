import type { KubeClient } from "../../src/core/kube/client.ts"
import { NotLeaderError } from "../../src/operator/fence.ts"
import type { ControllerHarness, OperatorClients } from "../harness/controllers.ts"

/** Clients that are cut at a moment, in the middle of whatever they do: their operator has died. */
export class Mortal implements OperatorClients {
  readonly client: KubeClient
  readonly clouds: OperatorClients["clouds"]
  #isDead = false

  constructor({ client, cloud }: ControllerHarness) {
    this.client = this.#until(client)
    this.clouds = { open: async (account) => this.#until(await cloud.open(account)) }
  }

  readonly fence = (): void => {
    if (this.#isDead) throw new NotLeaderError("killed")
  }

  kill(): void {
    this.#isDead = true
  }

  /** Every answer after the death is lost, also that of a call that has taken effect. */
  #until<T extends object>(whole: T): T {
    return new Proxy(whole, {
      get: (target, property) => {
        const value: unknown = Reflect.get(target, property)
        if (typeof value !== "function") return value
        const method = value.bind(target) as (...args: unknown[]) => unknown
        return (...args: unknown[]) => {
          if (this.#isDead) throw new Error("killed")
          const answer = method(...args)
          if (!(answer instanceof Promise)) return answer
          return answer.then((result: unknown) => {
            if (this.#isDead) throw new Error("killed")
            return result
          })
        }
      },
    })
  }
}
