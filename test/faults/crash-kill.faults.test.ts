import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { ifFound } from "../../src/core/kube/errors.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { processRuntime } from "../harness/container-runtime.ts"
import { Installation } from "../harness/installation.ts"
import type { Program } from "../harness/program-process.ts"
import { nameOf, type Point } from "./crash-gate.ts"
import { ONLY } from "./effort.ts"
import { suiteTally } from "./suite-tally.ts"
import type { Violation } from "./tally.ts"

/** Kills a real process by SIGKILL, beside a façade, agents and containers. `npm test` has e2e/operator-crash. */
describe("SIGKILL of an operator at any call", { timeout: 3_600_000 }, () => {
  const tally = suiteTally("crash-kill", "SIGKILL of a process")
  let berth: Installation
  let jobs = 0

  beforeAll(async () => {
    berth = await Installation.create({ name: "kill", kubeconfig: kubeconfigPath(), runtime: processRuntime })
  })
  afterAll(async () => {
    await berth?.close()
  })

  async function submit(): Promise<string> {
    const job = `job-${jobs++}`
    await berth.submit(job, "echo began; sleep 1")
    return job
  }

  async function calls(): Promise<Point[]> {
    const operator = await berth.startOperator()
    await berth.reached("succeeded", await submit())
    await berth.allOver()
    await operator.stop()
    const [, found = "[]"] = await operator.printed(/^CALLS (.*)$/m)
    return JSON.parse(found) as Point[]
  }

  /** Starts an operator with this fault, which may kill it before it is up. */
  async function startWithFault(point: Point, fault: "before" | "after"): Promise<Program> {
    try {
      return await berth.startOperator({ inject: { point, fault } })
    } catch (error) {
      const last = berth.programs.at(-1)
      if (last === undefined || last.running) throw error
      return last
    }
  }

  async function violationsOf(job: string): Promise<Violation[]> {
    const launches = berth.launchesOf(job).map(({ metadata }) => metadata.name)
    const runs = (await berth.log(job)).match(/began/g)?.length ?? 0
    const isLeft = (await berth.runningOn(launches)).length > 0
    return [
      ...(launches.length > 1 || runs > 1 ? ["duplicates" as const] : []),
      ...(runs < 1 ? ["lost" as const] : []),
      ...(isLeft ? ["leaks" as const] : []),
    ]
  }

  async function inject(point: Point, fault: "before" | "after"): Promise<Violation[] | undefined> {
    const job = await submit()
    const first = await startWithFault(point, fault)
    const over = berth.reached("succeeded", job).then(() => berth.allOver())
    await Promise.race([first.ended, over])
    const isKilled = !first.running
    if (isKilled) await ifFound(berth.freeLease())
    const next = isKilled ? await berth.startOperator() : first
    const isOver = await over.then(
      () => true,
      () => false,
    )
    await next.stop()
    if (!isOver) return ["stuck"]
    return isKilled ? await violationsOf(job) : undefined
  }

  /** Runs the jobs with this fault. Returns the violations, or undefined if the call was never made. */
  async function tried(point: Point, fault: "before" | "after"): Promise<string | undefined> {
    const violations = await inject(point, fault)
    if (violations === undefined) return undefined
    tally.count({ faults: `SIGKILL ${fault} a call`, on: "local" }, violations)
    // Prints each result at once, because the run takes long.
    console.log(`${titleOf(point, fault)}: ${violations.join(", ") || "no violation"}`)
    return violations.length === 0 ? undefined : `${titleOf(point, fault)}: ${violations.join(", ")}`
  }

  it("leaves each job with one run in one VM after SIGKILL at any call", async () => {
    const reports: (string | undefined)[] = []
    for (const point of await calls()) {
      const faults = point.effect === "read" ? (["before"] as const) : (["before", "after"] as const)
      for (const fault of faults.filter((each) => ONLY?.test(titleOf(point, each)) ?? true)) {
        reports.push(await tried(point, fault))
      }
    }
    expect(reports.filter((report) => report !== undefined)).toEqual([])
  })
})

function titleOf(point: Point, fault: "before" | "after"): string {
  return `kill: ${fault} ${nameOf(point)}`
}
