import { describe, expect, test } from "vitest"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import type { JobSpec, StoredJob } from "../../src/core/apis/job.ts"
import { isOver } from "../../src/core/apis/launch.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { JOBS } from "../../src/core/resources.ts"
import { type ControllerHarness, controllerHarnesses, type Work } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { isNightly } from "../nightly.ts"
import { randomFrom } from "../random.ts"
import { Crash, crashingClients, type Moment } from "./crash.ts"
import { runGroupsWithCrashes } from "./group-crashes.ts"

const newHarness = controllerHarnesses()

interface Scenario {
  /** Adds faults of the cloud. */
  prepare?: (harness: ControllerHarness) => void
  /** Acts like a user; called again and again. */
  interfere?: (harness: ControllerHarness) => Promise<void>
  /** Last step of the agents' work. */
  agents: "succeed" | "run" | Work
  spec?: Partial<JobSpec>
  /** Seconds that a state of a VM lasts before it is written to the status. Default: a moment. */
  settleSeconds?: number
  /** Required end, however often the operator crashed. */
  expected: { phase: string | undefined; launches: readonly number[]; vms: number }
}

async function isRunning(harness: ControllerHarness): Promise<boolean> {
  const job = await ifFound(harness.job("job"))
  return job?.status?.phase === "running"
}

const SCENARIOS: Record<string, Scenario> = {
  success: { agents: "succeed", expected: { phase: "succeeded", launches: [1], vms: 1 } },
  "capacity failover and a lost answer": {
    // A rejection that was not written before the crash is requested again, and the retry may succeed.
    prepare: (harness) => harness.cloud.faults.push({ fault: "capacity" }, { fault: "answerLost" }),
    agents: "succeed",
    expected: { phase: "succeeded", launches: [1, 2], vms: 1 },
  },
  "three new VMs after failed runs": {
    agents: ({ spec: { number } }) => (number < 4 ? "ContainerFailed" : "Succeeded"),
    spec: { retryRules: [{ action: "newVm", limit: 3 }] },
    expected: { phase: "succeeded", launches: [4], vms: 4 },
  },
  "cancel while running": {
    interfere: async (harness) => ((await isRunning(harness)) ? harness.cancel("job") : undefined),
    agents: "run",
    expected: { phase: "cancelled", launches: [1], vms: 1 },
  },
  "delete while running": {
    interfere: async (harness) => ((await isRunning(harness)) ? ifFound(harness.delete("job")) : undefined),
    agents: "run",
    expected: { phase: undefined, launches: [1], vms: 1 },
  },
}

async function jobsOf({ client, namespace }: ControllerHarness): Promise<StoredJob[]> {
  return (await client.list(JOBS, { namespace })).items
}

/** True if the status of the job's Launch has its VM. */
async function hasItsVm(harness: ControllerHarness): Promise<boolean> {
  const [launch] = await harness.launches()
  return launch?.status?.vm?.id !== undefined
}

/** True if the job has ended with its final cost (or is deleted), and its Launches are over. */
async function isSettled(harness: ControllerHarness): Promise<boolean> {
  const job = await ifFound(harness.job("job"))
  const isDone = job === undefined || job.status?.cost?.actualUsd !== undefined
  return isDone && (await harness.launches()).every(isOver)
}

/**
 * Runs the scenario with an operator that crashes at its n-th write, and a second one. Returns the first one's calls.
 */
async function runWithCrash(scenario: Scenario, last: number, moment: Moment): Promise<string[]> {
  const harness = await newHarness()
  scenario.prepare?.(harness)
  await harness.submit("job", scenario.spec)
  const crash = new Crash(harness.client, last, moment)
  const { settleSeconds } = scenario
  const clients = crashingClients(harness, crash)
  const first = harness.operator({ clients, ...(settleSeconds !== undefined && { settleSeconds }) })
  const live = async (isOverNow: () => Promise<boolean> | boolean) => {
    await eventually(async () => {
      await scenario.interfere?.(harness)
      await harness.agentsStep(scenario.agents)
      expect(await isOverNow()).toBe(true)
    })
  }
  await live(async () => crash.dead || (await isSettled(harness)))
  await first.stop()
  if (crash.dead) {
    harness.operator()
    await live(() => isSettled(harness))
  }
  await check(harness, scenario, `${moment} call ${last} (${crash.calls.at(-1)})`)
  await harness.close()
  return crash.calls
}

async function check(harness: ControllerHarness, { expected }: Scenario, about: string): Promise<void> {
  const job = await ifFound(harness.job("job"))
  expect(job?.status?.phase, about).toBe(expected.phase)
  expect(harness.cloud.breaches, about).toEqual([])
  expect(harness.cloud.alive, about).toEqual([])
  expect(harness.cloud.vms.length, about).toBe(expected.vms)
  const launches = await harness.launches()
  expect(expected.launches, about).toContain(launches.length)
  if (job !== undefined) {
    expect(job.status?.launches?.count, about).toBe(launches.length)
    const paid = launches.reduce((total, launch) => total + (launch.status?.costUsd ?? 0), 0)
    expect(job.status?.cost?.actualUsd, about).toBeCloseTo(paid, 6)
  }
}

/** Operators that crash one after the other while jobs fail and get new VMs. */
const KILLS = isNightly ? 200 : 15
const ATTEMPTS = 3
const GROUP_CRASHES = isNightly ? 40 : 4

describe("an operator that takes over after a crash at any write", () => {
  test.each(Object.entries(SCENARIOS))(
    "reaches the same end with one VM for each Launch and no VM left: %s",
    async (_, scenario) => {
      const calls = await runWithCrash(scenario, Number.POSITIVE_INFINITY, "before")
      expect(calls).toContain("launch")
      const numbers = calls.map((_call, index) => index + 1)
      const tried = (last: number, moment: Moment): boolean => isNightly || last % 4 === (moment === "before" ? 0 : 2)
      const moments: Moment[] = ["before", "after"]
      await inParallel(
        numbers.flatMap((last) => moments.filter((moment) => tried(last, moment)).map((moment) => ({ last, moment }))),
        6,
        ({ last, moment }) => runWithCrash(scenario, last, moment),
      )
    },
    900_000,
  )

  test(`runs each attempt of failing jobs once, over ${KILLS} crashes at random writes`, async () => {
    const harness = await newHarness()
    const random = randomFrom(12)
    const work: Work = ({ spec: { number } }) => (number < ATTEMPTS ? "ContainerFailed" : "Succeeded")
    const names: string[] = []
    const areOver = async () => {
      const jobs = await jobsOf(harness)
      return jobs.every(({ status }) => status?.cost?.actualUsd !== undefined)
    }
    const live = (isOverNow: () => Promise<boolean> | boolean) =>
      eventually(async () => {
        await harness.agentsStep(work)
        expect(await isOverNow()).toBe(true)
      })
    for (let kills = 0; kills < KILLS; ) {
      // There is always a job that has not ended.
      if (await areOver()) {
        names.push(`job-${names.length}`)
        await harness.submit(names.at(-1) ?? "", { retryRules: [{ reasons: ["ContainerFailed"], action: "newVm" }] })
      }
      const crash = new Crash(harness.client, 1 + Math.floor(random() * 12), random() < 0.5 ? "before" : "after")
      const clients = crashingClients(harness, crash)
      const operator = harness.operator({ clients })
      await live(async () => crash.dead || (await areOver()))
      if (crash.dead) kills++
      await operator.stop()
    }
    harness.operator()
    await live(areOver)
    const starts = new Set(harness.cloud.vms.map(({ vm }) => vm.launch))
    expect(harness.cloud.breaches).toEqual([])
    expect(harness.cloud.alive).toEqual([])
    expect(starts.size).toBe(names.length * ATTEMPTS)
    expect(harness.cloud.vms.length).toBe(names.length * ATTEMPTS)
    const jobs = await jobsOf(harness)
    expect(jobs.map(({ status }) => [status?.phase, status?.launches?.count, status?.launches?.retried])).toEqual(
      names.map(() => ["succeeded", ATTEMPTS, ATTEMPTS - 1]),
    )
    console.info(`${KILLS} crashes, ${names.length} jobs, ${harness.cloud.vms.length} attempts, none doubled`)
    await harness.close()
  }, 1_800_000)

  test(`never has more VMs of a group than its limit, over ${GROUP_CRASHES} crashes`, async () => {
    const harness = await newHarness()
    const { crashes, ...result } = await runGroupsWithCrashes(harness, {
      limits: { export: 1, train: 4 },
      jobsOfEach: isNightly ? 80 : 6,
      ...{ crashes: GROUP_CRASHES, random: randomFrom(51) },
    })
    expect(crashes).toBeGreaterThanOrEqual(GROUP_CRASHES)
    expect(harness.cloud.breaches).toEqual([])
    // Every fifth job fails once.
    expect(result.vms).toBe(result.jobs + Math.ceil(result.jobs / 5))
    for (const most of [result.mostLaunches, result.mostVms]) {
      expect(most["export"]).toBe(1)
      expect(most["train"]).toBeGreaterThan(isNightly ? 1 : 0)
      expect(most["train"]).toBeLessThanOrEqual(4)
    }
    const atATime = `at most ${JSON.stringify(result.mostVms)} at a time`
    console.info(`${crashes} crashes, ${result.jobs} jobs, ${result.vms} VMs, ${atATime}`)
    await harness.close()
  }, 3_600_000)

  test("makes few writes for an undisturbed job", async () => {
    const scenario: Scenario = {
      // States of a VM that pass quickly are not written. Here all of them are quick, however slow the machine is.
      settleSeconds: 3600,
      // The operator writes once more if a report conflicts with its write.
      interfere: (harness) => expect(hasItsVm(harness)).resolves.toBe(true),
      agents: "succeed",
      expected: { phase: "succeeded", launches: [1], vms: 1 },
    }
    const calls = await runWithCrash(scenario, Number.POSITIVE_INFINITY, "before")
    const writes = calls.filter((call) => call.includes(" "))
    // Many jobs share the write of a month's Statement.
    const own = writes.filter((call) => !call.includes("Statement"))
    // The last PATCH of the Job and that of the Launch remove the finalizers, which deletion needed before.
    expect(own.length, writes.join(", ")).toBeLessThanOrEqual(8 + 2)
    expect(writes.length - own.length, writes.join(", ")).toBe(2)
  })
})
