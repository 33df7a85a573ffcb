import { expect, test } from "vitest"
import { controllerHarnesses } from "../harness/controllers.ts"
import { expectOnce, runWithKills } from "./array-kills.ts"

const newHarness = controllerHarnesses()

test("an array of 100 runs each index once, although the operator dies twice", async () => {
  const harness = await newHarness()
  const spec = { size: 100, parallelism: 30, successfulJobsHistoryLimit: 10, failedJobsHistoryLimit: 5 }
  // Each twentieth index fails.
  const work = ({ spec: { job } }: { spec: { job: { name: string } } }) =>
    /[02468]0$|-0$/.test(job.name) ? ("ContainerFailed" as const) : ("Succeeded" as const)
  const result = await runWithKills(harness, { spec, kills: 2, work, observeSeconds: 0.2 })
  expectOnce(harness, result)
  expect(result.array.status).toMatchObject({ phase: "failed", counts: { succeeded: 95, failed: 5 } })
}, 300_000)
