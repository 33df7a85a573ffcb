import fc from "fast-check"
import { expect, test } from "vitest"
import type { StoredJob } from "../../../core/apis/job.ts"
import { combinationAt, type StoredJobArray } from "../../../core/apis/jobarray.ts"
import { LABELS } from "../../../core/apis/meta.ts"
import { findErrors } from "../../../core/apis/validate.ts"
import { ArrayIndexSchema, arrayIndexes, INDEX_STATUSES } from "./index-table.ts"

const NOW = new Date("2026-11-24T12:00:00Z")
const MATRIX = { LR: ["0.1", "0.01"], SEED: ["1", "2", "3"] }
const ANY = { status: undefined, sort_by: "index", sort_order: "asc" } as const

const array = {
  metadata: { name: "sweep", uid: "u" },
  spec: { jobDefinition: { image: "a" }, matrix: MATRIX },
  status: { succeededIndexes: "0-1", failedIndexes: "3", activeIndexes: "1-2,4" },
} as unknown as StoredJobArray

function jobOf(index: number, status: StoredJob["status"], attempt = 1): StoredJob {
  const metadata = { name: `sweep-${index}-${attempt}`, labels: { [LABELS.arrayIndex]: String(index) } }
  return { metadata, spec: { image: "a" }, status } as unknown as StoredJob
}

const JOBS = [
  jobOf(
    3,
    { phase: "failed", exitCode: 137, startTime: "2026-11-24T11:00:00Z", completionTime: "2026-11-24T11:00:30Z" },
    2,
  ),
  jobOf(2, { phase: "running", startTime: "2026-11-24T11:59:00Z" }),
  jobOf(4, { phase: "booting" }),
  // An earlier attempt: it ended otherwise.
  jobOf(3, { phase: "failed", exitCode: 1 }, 1),
  jobOf(0, { phase: "succeeded", exitCode: 0, cost: { actualUsd: 0.5 } as never }),
]
const known = { jobs: JOBS, lastHeartbeatOf: () => undefined, now: NOW }

test("each index has its values, the result of its last job, and its status without one", () => {
  const rows = arrayIndexes(array, known, ANY)
  for (const row of rows)
    expect([row.values, findErrors(ArrayIndexSchema, row)]).toEqual([combinationAt(MATRIX, row.index), []])
  expect(rows.map((row) => [row.status, row.job, row.exit_code, row.duration_seconds, row.cost_usd])).toEqual([
    ["succeeded", "sweep-0-1", 0, null, 0.5],
    // The array has deleted its job.
    ["succeeded", null, null, null, null],
    ["running", "sweep-2-1", null, 60, null],
    ["failed", "sweep-3-2", 137, 30, null],
    ["booting", "sweep-4-1", null, null, null],
    ["pending", null, null, null, null],
  ])
})

test("indexes are filtered by status, and sorted with unknown values last", () => {
  const shown = (query: object) => arrayIndexes(array, known, { ...ANY, ...query }).map(({ index }) => index)
  expect(shown({ status: "succeeded" })).toEqual([0, 1])
  expect(shown({ sort_by: "status" })).toEqual([3, 2, 4, 5, 0, 1])
  expect(shown({ sort_by: "exit_code", sort_order: "desc" })).toEqual([3, 0, 1, 2, 4, 5])
  expect(shown({ sort_by: "duration" })).toEqual([3, 2, 0, 1, 4, 5])
  expect(shown({ sort_by: "index", sort_order: "desc" })).toEqual([5, 4, 3, 2, 1, 0])
})

test("every order has each index once, and the statuses of a filter add up to all", () => {
  const sizes = fc.integer({ min: 1, max: 40 })
  fc.assert(
    fc.property(sizes, fc.constantFrom("index", "status", "exit_code", "duration", "cost"), (size, sort_by) => {
      const one = { ...array, spec: { jobDefinition: { image: "a" }, size } } as StoredJobArray
      const all = arrayIndexes(one, known, { ...ANY, sort_by, sort_order: "desc" })
      expect(all.map(({ index }) => index).sort((a, b) => a - b)).toEqual([...Array(size).keys()])
      const parts = INDEX_STATUSES.map((status) => arrayIndexes(one, known, { ...ANY, status }).length)
      expect(parts.reduce((sum, part) => sum + part, 0)).toBe(size)
    }),
  )
})
