import { expect, test } from "vitest"
import type { JobRecord } from "../client/client.ts"
import { type JobSelection, LiveJobs } from "./live-jobs.ts"

const selection: JobSelection = {
  statuses: ["queued", "running"],
  tags: ["t"],
  labels: [["team", "a"]],
  array: "sweep",
  after: "array/prepare",
  namePart: "tra",
}

/** Returns a record of the selection; a higher number is a newer job. */
function jobOf(number: number, fields: Partial<JobRecord> = {}): JobRecord {
  const time = `2026-11-24T10:00:${String(number).padStart(2, "0")}Z`
  const record = {
    id: `id-${number}`,
    name: `train-${number}`,
    status: "queued",
    tags: ["t"],
    labels: { team: "a" },
    array_id: "sweep",
    after: [{ job: null, array: "prepare", outcome: "ended" }],
    ...fields,
  }
  return { created_at: time, updated_at: time, ...record } as JobRecord
}

function liveOf(jobs: JobRecord[], { total = jobs.length, limit = 50 } = {}): LiveJobs {
  const live = new LiveJobs(selection, limit)
  live.replace(jobs, total)
  return live
}

const idsOf = ({ jobs }: LiveJobs) => jobs.map(({ id }) => id)

test("jobs that begin to match are added, newest first", () => {
  const live = liveOf([jobOf(1), jobOf(3)])
  expect(live.apply(jobOf(2))).toBe(true)
  expect(idsOf(live)).toEqual(["id-3", "id-2", "id-1"])
})

test.each<[string, Partial<JobRecord> & { deleted?: true }]>([
  ["has ended", { status: "failed" }],
  ["has lost its tag", { tags: [] }],
  ["has another label", { labels: { team: "b" } }],
  ["is of another array", { array_id: "other" }],
  ["waits for another array", { after: [{ job: null, array: "other", outcome: "ended" }] }],
  ["waits for a job of that name", { after: [{ job: "prepare", array: null, outcome: "ended" }] }],
  ["waits for nothing", { after: null }],
  ["has another name", { name: "eval-1" }],
  ["is deleted", { deleted: true }],
])("a job that %s is removed, and that is a change", (_, fields) => {
  const live = liveOf([jobOf(1), jobOf(2)])
  expect(live.apply(jobOf(1, fields))).toBe(true)
  expect(idsOf(live)).toEqual(["id-2"])
  expect(live.apply(jobOf(9, fields))).toBe(false)
})

test("an event that is older than the list changes nothing", () => {
  const live = liveOf([jobOf(1, { status: "running", updated_at: "2026-11-24T10:01:00Z" })])
  expect(live.apply(jobOf(1))).toBe(false)
  expect(live.jobs[0]?.status).toBe("running")
})

test("a list with a limit must be read again only if a place is free and older jobs exist", () => {
  const live = liveOf([jobOf(2), jobOf(3)], { total: 3, limit: 2 })
  expect(live.isIncomplete).toBe(false)
  live.apply(jobOf(3, { status: "succeeded" }))
  expect(live.isIncomplete).toBe(true)
  live.apply(jobOf(4))
  expect([idsOf(live), live.isIncomplete]).toEqual([["id-4", "id-2"], false])
  expect(live.apply(jobOf(1))).toBe(false)
  expect(idsOf(live)).toEqual(["id-4", "id-2"])
  const whole = liveOf([jobOf(1)], { limit: 2 })
  whole.apply(jobOf(1, { status: "succeeded" }))
  expect(whole.isIncomplete).toBe(false)
})
