import { performance } from "node:perf_hooks"
import { expect, test } from "vitest"
import { isTerminal, type StoredJob } from "../../src/core/apis/job.ts"
import { JOBS } from "../../src/core/resources.ts"
import { UNSETTLED } from "../../src/operator/settled-jobs.ts"
import { controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { expectOnce, runWithKills } from "./array-kills.ts"

const newHarness = controllerHarnesses()

/** Jobs that exist at the same time: those of the parallelism, those whose VM is being deleted, and the history. */
const MOST_JOBS = 500

test(
  "an array of 10,000 runs each index once, although the operator dies 20 times",
  async () => {
    const harness = await newHarness()
    const spec = { size: 10_000, parallelism: 100, successfulJobsHistoryLimit: 50 }
    const result = await runWithKills(harness, { spec, kills: 20, observeSeconds: 1 })
    expectOnce(harness, result)
    expect(result.array.status).toMatchObject({ phase: "succeeded", succeededIndexes: "0-9999", activeIndexes: "" })
    const { mostUnfinished, mostJobs, mostLaunches } = result.seen
    // Launches stay for an hour after their end, whatever created their jobs.
    console.log(`at most ${mostUnfinished} unfinished jobs, ${mostJobs} jobs in all, and ${mostLaunches} Launches`)
    console.log(`cost: ${result.array.status?.costUsd} USD`)
    expect(mostJobs).toBeLessThan(MOST_JOBS)
  },
  4 * 3_600_000,
)

test("an array of 10,000 with 1,000 unfinished jobs is cancelled within 30 s", async () => {
  const harness = await newHarness()
  harness.operator({ observeSeconds: 1, settings: { launchesPerMinute: 1_000_000 } })
  await harness.submitArray("sweep", { size: 10_000, parallelism: 1000 })
  const jobs = async (): Promise<StoredJob[]> =>
    (await harness.client.list(JOBS, { namespace: harness.namespace, ...UNSETTLED })).items
  await eventually(
    async () => expect((await jobs()).filter(({ status }) => status !== undefined)).toHaveLength(1000),
    600,
  )
  const start = performance.now()
  await harness.changeArray("sweep", { cancelled: true })
  await eventually(async () => {
    expect((await jobs()).filter(({ status }) => !isTerminal(status?.phase))).toEqual([])
  }, 600)
  const seconds = (performance.now() - start) / 1000
  console.log(`cancelled in ${seconds.toFixed(1)} s`)
  expect((await harness.array("sweep")).status?.counts).toMatchObject({ pending: 0 })
  expect(seconds).toBeLessThan(30)
}, 1_800_000)
