import { expect, it } from "vitest"
import { JOB_DEFAULTS } from "./settings.ts"
import { warningsOf } from "./warnings.ts"

it("a job without any limit has a warning with the most that it may cost", () => {
  expect(warningsOf({ image: "a" }, 0.17)).toEqual([
    "This job has no timeoutSeconds: it may run for 30 days and cost up to $122.40. Set timeoutSeconds, maxCostUsd or idleLimit.",
  ])
  expect(warningsOf({ image: "a" }, undefined)).toEqual([
    "This job has no timeoutSeconds: it may run for 30 days. Set timeoutSeconds, maxCostUsd or idleLimit.",
  ])
})

it.each([{ timeoutSeconds: 60 }, { maxCostUsd: 5 }, { idleLimit: {} }])("a job with %o needs no warning", (limit) => {
  expect(warningsOf({ image: "a", ...limit }, 0.17)).toEqual([])
})

it("a job that keeps its VM after a failure says for how long and for how much", () => {
  const job = { image: "a", timeoutSeconds: 60, debug: { keepSeconds: 3600 } }
  const settings = { ...JOB_DEFAULTS, allowsSessions: true }
  expect(warningsOf(job, 0.17, settings)).toEqual([
    "If its container fails, its VM is kept for 60 minutes and costs up to $0.17.",
  ])
  expect(warningsOf({ ...job, maxCostUsd: 5 }, 0.17, settings)[0]).toMatch(/, within its maxCostUsd of \$5\.$/)
  expect(warningsOf(job, 0.17)).toEqual([
    "If its container fails, its VM ends at once: this installation allows no sessions (--sessions).",
  ])
})
