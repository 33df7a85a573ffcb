import { describe, expect, it } from "vitest"
import type { JobStatus, StoredJob } from "../../../core/apis/job.ts"
import type { Match } from "../../../core/kube/page-index.ts"
import { costFields } from "../../../core/records/cost.ts"
import { costIn, JOB_NUMBERS, runSecondsIn } from "./numbers.ts"

const HOURLY = { machineUsd: 3, diskUsd: 0.5, addressUsd: 0.1 }
const SPENT = { machineUsd: 7, diskUsd: 0.25, addressUsd: 0.05 }
const NOW = "2026-05-01T12:00:00Z"
const nowMicroseconds = Date.parse(NOW) * 1000

function matchOf(status: JobStatus): Match {
  const job = { metadata: { name: "a" }, spec: { image: "a" }, status } as StoredJob
  const numbers = JOB_NUMBERS.map((of) => of(job) ?? Number.NaN)
  return { key: "ns/a", group: undefined, number: (column) => numbers[column] ?? Number.NaN }
}

describe("the numbers of a job in the index", () => {
  it.each<[string, JobStatus]>([
    ["no VM was chosen", {}],
    ["a VM was chosen, and none is billed yet", { cost: { estimatedUsd: 1, hourly: HOURLY } }],
    ["the first VM runs", { cost: { hourly: HOURLY, since: "2026-05-01T11:00:00Z" } }],
    ["the second VM runs", { cost: { hourly: HOURLY, spent: SPENT, since: "2026-05-01T11:30:00.5Z" } }],
    ["the second VM is not billed yet", { cost: { hourly: HOURLY, spent: SPENT } }],
    ["the cost is final", { cost: { hourly: HOURLY, spent: SPENT, actualUsd: 7.3 } }],
  ])("give the cost of its record: %s", (_, status) => {
    const record = costFields(status, NOW).accrued_cost
    // A record counts whole seconds.
    if (record === null) expect(costIn(matchOf(status), nowMicroseconds)).toBeNaN()
    else expect(Math.abs(costIn(matchOf(status), nowMicroseconds) - record)).toBeLessThanOrEqual(0.001)
  })

  it("give its run time until its end, or until now", () => {
    const startTime = "2026-05-01T11:59:00Z"
    const seconds = (status: JobStatus) => runSecondsIn(matchOf(status), nowMicroseconds)
    expect(seconds({ startTime })).toBe(60)
    expect(seconds({ startTime, completionTime: "2026-05-01T11:59:10.250Z" })).toBe(10.25)
    expect(seconds({})).toBeNaN()
    // The clock of the machine was ahead.
    expect(seconds({ startTime: "2026-05-01T12:00:05Z" })).toBe(0)
  })
})
