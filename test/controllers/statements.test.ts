import { describe, expect, test } from "vitest"
import { timestamp } from "../../src/core/apis/clock.ts"
import { roundUsd } from "../../src/core/apis/money.ts"
import { monthOf, type StatementStatus } from "../../src/core/apis/statement.ts"
import { JOBS, LAUNCHES, STATEMENTS } from "../../src/core/resources.ts"
import { launchOf } from "../harness/builders.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"

const newHarness = controllerHarnesses()

async function statementOf(harness: ControllerHarness): Promise<StatementStatus> {
  const { items } = await harness.client.list(STATEMENTS, { namespace: harness.namespace })
  expect(items.map(({ spec }) => spec)).toEqual([{ namespace: harness.namespace, month: monthOf(harness.clock.now()) }])
  return items[0]?.status ?? {}
}

/** Creates a job that ended while no operator led, and its Launch. */
async function endedJob(harness: ControllerHarness, name: string, usd: number): Promise<void> {
  const job = await harness.submit(name)
  const completionTime = timestamp(harness.clock.now())
  const status = { phase: "succeeded", completionTime, cost: { actualUsd: usd } } as const
  await harness.client.replaceStatus(JOBS, { ...job, status })
  const vm = { state: "terminated", id: "vm-0", createTime: completionTime, terminationTime: completionTime } as const
  const { metadata, spec } = launchOf(job)
  const { name: launchName, finalizers = [] } = metadata
  const launch = {
    metadata: { name: launchName, finalizers, namespace: harness.namespace },
    spec: { ...spec, labels: { team: "vision" } },
  }
  const stored = await harness.client.create(LAUNCHES, launch as never)
  const cost = { costUsd: usd, cost: { machineUsd: usd, diskUsd: 0, addressUsd: 0 } }
  await harness.client.replaceStatus(LAUNCHES, { ...stored, status: { phase: "terminated", vm, ...cost } })
}

async function run(harness: ControllerHarness, name: string): Promise<number> {
  await harness.submit(name)
  await eventually(async () => {
    await harness.agentsStep()
    expect((await harness.job(name)).status?.settled).toBe(true)
  })
  return (await harness.job(name)).status?.cost?.actualUsd ?? 0
}

async function unreleased(harness: ControllerHarness): Promise<string[]> {
  const launches = await harness.launches()
  return launches.filter(({ metadata }) => metadata.finalizers?.length).map(({ metadata }) => metadata.name)
}

describe("the Statement of a project", () => {
  test("counts what ended while no operator led, once, also under a cap", async () => {
    const harness = await newHarness()
    await endedJob(harness, "one-before", 3)
    await endedJob(harness, "another-before", 2)
    const capped = harness.operator({ caps: { maxMonthlyUsd: 5.5 } })
    await harness.submit("waits")
    await eventually(async () => expect((await harness.job("waits")).status?.reason).toBe("CapReached"))
    await eventually(async () => expect((await statementOf(harness)).spentUsd).toBe(5))
    expect((await harness.job("waits")).status?.reason).toBe("CapReached")
    await harness.cancel("waits")
    await capped.stop()

    let spentUsd = 5
    for (const name of ["one", "two"]) {
      const operator = harness.operator()
      spentUsd = roundUsd(spentUsd + (await run(harness, name)))
      await eventually(async () => {
        harness.clock.advance(1)
        expect(await unreleased(harness)).toEqual([])
      })
      await operator.stop()
      expect(await statementOf(harness)).toMatchObject({
        spentUsd,
        byCloud: { sim: spentUsd },
        byProvisioning: { onDemand: spentUsd },
        byLabel: [{ key: "team", value: "vision", usd: 5 }],
      })
    }
  })

  test("holds a deleted Launch until its cost is counted", async () => {
    const harness = await newHarness()
    await endedJob(harness, "old", 2)
    const [launch] = await harness.launches()
    await harness.client.delete(LAUNCHES, { namespace: harness.namespace, name: launch?.metadata.name ?? "" })
    await harness.delete("old")
    expect(await harness.launches()).toHaveLength(1)
    harness.operator()
    await eventually(async () => expect(await harness.launches()).toEqual([]))
    expect((await statementOf(harness)).spentUsd).toBe(2)
  })
})
