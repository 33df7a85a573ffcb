/** Failures of a request, independent of the cloud. Each server translates them into its cloud's errors. */
export const FAULTS = [
  "capacity",
  "quota",
  "forbidden",
  "invalid",
  "rateLimit",
  "serverError",
  /** The connection breaks before the request has an effect. The caller can't know that. */
  "reset",
  /** The request has its effect, and the answer is a server error. */
  "errorAfter",
  /** The request has its effect, and the connection breaks before the answer. */
  "lost",
  /** The request has its effect, and the answer does not arrive in time. */
  "slow",
] as const
export type FaultKind = (typeof FAULTS)[number]

/** Operations of a `Cloud`, by their main request: the one that creates a VM, lists VMs, or terminates one. */
export type Act = "launch" | "list" | "terminate"

/** Returns true for faults after which the request has had its effect. */
export function hasEffect(fault: FaultKind): boolean {
  return fault === "errorAfter" || fault === "lost" || fault === "slow"
}

/** HTTP statuses of a failing look; undefined for a broken connection. */
export const LOOK_FAULTS = [undefined, 403, 429] as const

/** Requests, as `METHOD https://host/path?query`, and the answer to the first look after the act. */
export interface FailingLook {
  act: RegExp
  look: RegExp
  answer: Response | undefined
}

/** Returns a `fetch` that passes all requests on, except for one. */
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

/** Planned faults, each for one request. */
export class FaultPlan {
  readonly #planned: { act: Act; fault: FaultKind }[] = []

  add(act: Act, fault: FaultKind, times = 1): void {
    for (let time = 0; time < times; time++) this.#planned.push({ act, fault })
  }

  /** Returns the fault for this request and removes it from the plan. */
  take(act: Act | undefined): FaultKind | undefined {
    const index = this.#planned.findIndex((planned) => planned.act === act)
    return index < 0 ? undefined : this.#planned.splice(index, 1)[0]?.fault
  }

  clear(): void {
    this.#planned.length = 0
  }
}
