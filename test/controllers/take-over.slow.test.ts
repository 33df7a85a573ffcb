import { expect, test } from "vitest"
import { JOB_FINALIZER } from "../../src/apis/job.ts"
import { STATEMENTS } from "../../src/controllers/statement/options.ts"
import { inParallel } from "../../src/runtime/in-parallel.ts"
import { eventually } from "../cloud/eventually.ts"
import { isNightly } from "../nightly.ts"
import { controllerHarnesses, JOBS } from "./harness.ts"

const newHarness = controllerHarnesses()

const COUNT = isNightly ? 10_000 : 300
const PATIENCE_MS = isNightly ? 1_200_000 : 120_000

test(
  `${COUNT} jobs that ended in a former version are taken over, their costs count once, and no VM ends`,
  async () => {
    const harness = await newHarness()
    const { client, namespace } = harness
    const end = async (n: number): Promise<void> => {
      const job = await harness.submit(`ended-${n}`, {}, { finalizers: [JOB_FINALIZER] })
      const completionTime = job.metadata.creationTimestamp
      const status = { phase: n % 2 === 0 ? "succeeded" : "failed", completionTime, cost: { actualUsd: 0.01 } } as const
      await client.replaceStatus(JOBS, { ...job, status })
    }
    await inParallel(
      Array.from({ length: COUNT }, (_, n) => () => end(n)),
      16,
    )
    await harness.submit("running")
    const first = harness.operator({ takeOver: { jobsPerSecond: 200 } })
    const left = async () =>
      (await client.list(JOBS, { namespace, fieldSelector: "status.settled!=true" })).items.map(
        ({ metadata }) => metadata.name,
      )
    // Another leader continues where this one stops.
    await eventually(async () => expect((await left()).length).toBeLessThan(COUNT), PATIENCE_MS / 1000)
    await first.stop()
    const second = harness.operator({ takeOver: { jobsPerSecond: 200 } })
    await eventually(async () => {
      await harness.agentsStep("run")
      expect(await left()).toEqual(["running"])
    }, PATIENCE_MS / 1000)
    await eventually(() => expect(second.jobs.list().map(({ metadata }) => metadata.name)).toEqual(["running"]))
    for await (const { items } of client.pages(JOBS, { namespace, fieldSelector: "status.settled=true" }))
      expect(items.filter(({ metadata }) => metadata.finalizers?.length)).toEqual([])
    const { items } = await client.list(STATEMENTS, { namespace })
    expect(items.map(({ status }) => status?.spentUsd)).toEqual([COUNT / 100])
    expect(harness.cloud.alive).toHaveLength(1)
    expect((await harness.job("running")).status?.phase).toBe("running")
  },
  3 * PATIENCE_MS,
)
