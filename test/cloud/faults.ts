/** What goes wrong with a request, in words that hold for every cloud; each server says it in its cloud's way. */
export const FAULTS = [
  "capacity",
  "quota",
  "forbidden",
  "invalid",
  "rateLimit",
  "serverError",
  /** The connection breaks before the request has an effect: nobody can tell. */
  "reset",
  /** It has its effect, and the answer is an error of the server. */
  "errorAfter",
  /** It has its effect, and the connection breaks before the answer. */
  "lost",
  /** It has its effect, and the answer doesn't come in time. */
  "slow",
] as const
export type FaultKind = (typeof FAULTS)[number]

/** Acts of a `Cloud`, by the request that matters in each: the one that makes a VM, lists VMs, or ends one. */
export type Act = "launch" | "list" | "terminate"

/** Those faults after which the effect is there. */
export function hasEffect(fault: FaultKind): boolean {
  return fault === "errorAfter" || fault === "lost" || fault === "slow"
}

/** What is answered to a look that fails, by HTTP status; undefined: nobody was reached. */
export const LOOK_FAULTS = [undefined, 403, 429] as const

/** Requests, as `METHOD https://host/path?query`, and what is answered to the first look after the act. */
export interface FailingLook {
  act: RegExp
  look: RegExp
  answer: Response | undefined
}

/** Passes requests on, but for one. */
export function failingAfter(send: typeof fetch, { act, look, answer }: FailingLook): typeof fetch {
  let state: "before" | "acted" | "failed" = "before"
  return async (input, init) => {
    const request = `${init?.method ?? "GET"} ${input instanceof Request ? input.url : String(input)}`
    if (state === "acted" && look.test(request)) {
      state = "failed"
      if (answer !== undefined) return answer
      throw new TypeError("fetch failed", { cause: Object.assign(new Error("refused"), { code: "ECONNREFUSED" }) })
    }
    const response = await send(input, init)
    if (state === "before" && act.test(request)) state = "acted"
    return response
  }
}

/** Faults that wait for the requests that they are meant for, each for one. */
export class FaultPlan {
  readonly #planned: { act: Act; fault: FaultKind }[] = []

  add(act: Act, fault: FaultKind, times = 1): void {
    for (let time = 0; time < times; time++) this.#planned.push({ act, fault })
  }

  /** The fault that this request meets, which is used up by it. */
  take(act: Act | undefined): FaultKind | undefined {
    const index = this.#planned.findIndex((planned) => planned.act === act)
    return index < 0 ? undefined : this.#planned.splice(index, 1)[0]?.fault
  }

  clear(): void {
    this.#planned.length = 0
  }
}
