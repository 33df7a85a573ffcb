import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { ifFound } from "../../src/kube/errors.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { processRuntime } from "../e2e/container-runtime.ts"
import { Installation } from "../e2e/installation.ts"
import type { Program } from "../e2e/program.ts"
import { nameOf, type Point } from "./crash-gate.ts"
import { ONLY } from "./effort.ts"
import { type Harm, Tally } from "./tally.ts"

/** As a process of its own that SIGKILL ends, with a façade, agents and containers. `npm test` has e2e/operator-crash. */
describe("an operator that SIGKILL ends at any call", { timeout: 3_600_000 }, () => {
  const tally = new Tally("crash-kill", "SIGKILL of a process")
  let berth: Installation
  let jobs = 0

  beforeAll(async () => {
    berth = await Installation.create({ name: "kill", kubeconfig: kubeconfigPath(), runtime: processRuntime })
  })
  afterAll(async () => {
    await berth?.close()
    await tally.close()
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

  /** Starts one that is struck, which may be before it is up. */
  async function startStruck(point: Point, fault: "before" | "after"): Promise<Program> {
    try {
      return await berth.startOperator({ strike: { point, fault } })
    } catch (error) {
      const last = berth.programs.at(-1)
      if (last === undefined || last.running) throw error
      return last
    }
  }

  async function harmsOf(job: string): Promise<Harm[]> {
    const launches = berth.launchesOf(job).map(({ metadata }) => metadata.name)
    const runs = (await berth.log(job)).match(/began/g)?.length ?? 0
    const isLeft = (await berth.runningOn(launches)).length > 0
    return [
      ...(launches.length > 1 || runs > 1 ? ["duplicates" as const] : []),
      ...(runs < 1 ? ["lost" as const] : []),
      ...(isLeft ? ["leaks" as const] : []),
    ]
  }

  async function strike(point: Point, fault: "before" | "after"): Promise<Harm[] | undefined> {
    const job = await submit()
    const struck = await startStruck(point, fault)
    const over = berth.reached("succeeded", job).then(() => berth.allOver())
    await Promise.race([struck.ended, over])
    const isStruck = !struck.running
    if (isStruck) await ifFound(berth.freeLease())
    const next = isStruck ? await berth.startOperator() : struck
    const isOver = await over.then(
      () => true,
      () => false,
    )
    await next.stop()
    if (!isOver) return ["stuck"]
    return isStruck ? await harmsOf(job) : undefined
  }

  /** What it did that it should not have; undefined when nothing. */
  async function tried(point: Point, fault: "before" | "after"): Promise<string | undefined> {
    const harms = await strike(point, fault)
    if (harms === undefined) return undefined
    tally.count({ faults: `SIGKILL ${fault} a call`, on: "local" }, harms)
    // At once, as the long run is long.
    console.log(`${titleOf(point, fault)}: ${harms.join(", ") || "no harm"}`)
    return harms.length === 0 ? undefined : `${titleOf(point, fault)}: ${harms.join(", ")}`
  }

  it("leaves each job its one run in one VM", async () => {
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
