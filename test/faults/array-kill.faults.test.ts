import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { JOB_ARRAYS, JOBS } from "../../src/core/resources.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { processRuntime } from "../harness/container-runtime.ts"
import { until } from "../harness/eventually.ts"
import { Installation } from "../harness/installation.ts"
import type { Program } from "../harness/program-process.ts"
import { nameOf, type Point } from "./crash-gate.ts"
import { isBackground } from "./crash-sample.ts"
import { ONLY } from "./effort.ts"
import { suiteTally } from "./suite-tally.ts"
import type { Violation } from "./tally.ts"

/** Indexes of the array, and how many of them run when it is deleted. The others wait for a free place. */
const SIZE = 4
const RUNNING = 2

/** Kills a real operator by SIGKILL at each of its writes while it deletes an array, beside agents and containers. */
describe("SIGKILL of an operator during the deletion of an array", { timeout: 3_600_000 }, () => {
  const tally = suiteTally("array-kill", "SIGKILL during the deletion of an array")
  let berth: Installation
  let healthy: Program
  let arrays = 0

  beforeAll(async () => {
    berth = await Installation.create({ name: "array-kill", kubeconfig: kubeconfigPath(), runtime: processRuntime })
    healthy = await berth.startOperator()
  })
  afterAll(async () => {
    await berth?.close()
  })

  /** Creates an array, and returns its name once as many of its jobs run as may. */
  async function running(): Promise<string> {
    const name = `array-${arrays++}`
    await berth.client.create(JOB_ARRAYS, {
      metadata: { name, namespace: berth.namespace },
      spec: {
        ...{ size: SIZE, parallelism: RUNNING },
        jobDefinition: { image: berth.runtime.image, command: ["sh", "-c"], args: ["echo began; exec sleep 3600"] },
      },
    } as StoredJobArray)
    await berth.untilJobs(`${RUNNING} jobs of ${name} run`, () => startedOf(name).length === RUNNING)
    return name
  }

  const jobsOf = (array: string) =>
    berth.jobs.store.list().filter(({ metadata }) => metadata.labels?.[LABELS.array] === array)
  const startedOf = (array: string) => jobsOf(array).filter(({ status }) => status?.phase === "running")
  const launchesOf = (array: string) =>
    berth.launches.store.list().filter(({ spec }) => spec.job.name.startsWith(`${array}-`))

  async function remove(array: string): Promise<void> {
    await berth.client.delete(JOB_ARRAYS, { namespace: berth.namespace, name: array })
  }

  async function isThere(array: string): Promise<boolean> {
    const ref = { namespace: berth.namespace, name: array }
    return (await ifFound(berth.client.get(JOB_ARRAYS, ref))) !== undefined
  }

  /** Resolves when the array and its VMs are deleted, and its jobs are cancelled and settled. */
  async function deleted(array: string): Promise<void> {
    await until(`${array} is deleted`, async () => !(await isThere(array)), 60)
    await berth.untilJobs(`the jobs of ${array} are settled`, () =>
      jobsOf(array).every(({ metadata, status }) => status?.settled === true && !metadata.finalizers?.length),
    )
    await berth.untilLaunches(`the VMs of ${array} are terminated`, () =>
      launchesOf(array).every(({ status }) => status?.phase === "terminated" || status?.phase === "refused"),
    )
  }

  /** Returns the writes of an operator that deletes a running array. */
  async function writes(): Promise<Point[]> {
    const array = await running()
    await healthy.stop()
    const operator = await berth.startOperator()
    await remove(array)
    await deleted(array)
    await operator.stop()
    healthy = await berth.startOperator()
    const [, found = "[]"] = await operator.printed(/^CALLS (.*)$/m)
    return (JSON.parse(found) as Point[]).filter(({ call, effect }) => effect !== "read" && !isBackground(call))
  }

  /** Deletes an array under an operator with this fault. Returns undefined if it never made the call. */
  async function inject(point: Point, fault: "before" | "after"): Promise<Violation[] | undefined> {
    const array = await running()
    const before = new Set(launchesOf(array).map(({ metadata }) => metadata.name))
    await healthy.stop()
    const first = await startWithFault(point, fault)
    await remove(array)
    const over = deleted(array).then(
      () => true,
      () => false,
    )
    await Promise.race([first.ended, over])
    const isKilled = !first.running
    if (isKilled) await ifFound(berth.freeLease())
    // An operator that has not made the call yet would be killed at the next array.
    else await first.stop()
    healthy = await berth.startOperator()
    if (!(await over)) return ["stuck"]
    return isKilled ? await violationsOf(array, before) : undefined
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

  async function violationsOf(array: string, before: ReadonlySet<string>): Promise<Violation[]> {
    const launches = launchesOf(array).map(({ metadata }) => metadata.name)
    const { items } = await berth.client.list(JOBS, { namespace: berth.namespace })
    const own = items.filter(({ metadata }) => metadata.labels?.[LABELS.array] === array)
    const isUnended = own.some(({ status }) => status?.phase !== "cancelled")
    return [
      // An index of the array began after its deletion, or a second time.
      ...(own.length > RUNNING || launches.some((name) => !before.has(name)) ? ["duplicates" as const] : []),
      ...(isUnended || (await berth.runningOn(launches)).length > 0 ? ["leaks" as const] : []),
    ]
  }

  /** Deletes an array with this fault. Returns its violations as text; empty without one. */
  async function tried(point: Point, fault: "before" | "after"): Promise<string> {
    const title = titleOf(point, fault)
    const violations = await inject(point, fault)
    console.log(`${title}: ${violations?.join(", ") ?? "the call was not made"}`)
    if (violations === undefined) return ""
    tally.count({ faults: `SIGKILL ${fault} a write`, on: "local" }, violations)
    return violations.length > 0 ? `${title}: ${violations.join(", ")}` : ""
  }

  it("leaves no unfinished job, no Launch and no VM, and starts no further index", async () => {
    const reports: string[] = []
    for (const point of await writes()) {
      for (const fault of ["before", "after"] as const) {
        if (ONLY?.test(titleOf(point, fault)) !== false) reports.push(await tried(point, fault))
      }
    }
    expect(reports.filter((report) => report !== "")).toEqual([])
  })
})

function titleOf(point: Point, fault: "before" | "after"): string {
  return `array-kill: ${fault} ${nameOf(point)}`
}
