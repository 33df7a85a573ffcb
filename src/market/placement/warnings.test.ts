import { expect, it } from "vitest"
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
