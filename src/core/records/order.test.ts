import { expect, test } from "vitest"
import { jobOf } from "../../../test/harness/builders.ts"
import { findErrors } from "../apis/validate.ts"
import { JobRecordSchema, toRecord } from "./job.ts"

const OWNER = { organizationId: "acme", projectId: "prod" }

test("a record has the prerequisites of its job, and those that it waits for", () => {
  const after = [{ job: "prepare" }, { array: "sweep", outcome: "ended" as const }]
  const seen = [{ job: "prepare", uid: "u1", outcome: "succeeded" as const }]
  const record = toRecord(jobOf({ spec: { after }, status: { phase: "queued", after: seen } }), OWNER)
  expect(findErrors(JobRecordSchema, record)).toEqual([])
  expect(record).toMatchObject({
    after: [
      { job: "prepare", array: null, outcome: "succeeded" },
      { job: null, array: "sweep", outcome: "ended" },
    ],
    waits_for: [{ job: null, array: "sweep", id: null, outcome: "ended" }],
  })
})

test("a record without prerequisites has null", () => {
  expect(toRecord(jobOf(), OWNER)).toMatchObject({ after: null, waits_for: null })
})
