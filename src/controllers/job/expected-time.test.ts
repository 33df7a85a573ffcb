import { expect, it } from "vitest"
import { jobOf } from "../../../test/controllers/builders.ts"
import { CRON_JOB_ANNOTATIONS } from "../../apis/cronjob.ts"
import { expectedSecondsOf } from "./expected-time.ts"

const settings = { expectedSeconds: 3600 }
const annotated = (value: string) => ({ metadata: { annotations: { [CRON_JOB_ANNOTATIONS.expectedSeconds]: value } } })

it("is the timeout, else what earlier runs took, else the setting", () => {
  expect(expectedSecondsOf(jobOf({ spec: { timeoutSeconds: 60 }, ...annotated("90") }), settings)).toBe(60)
  expect(expectedSecondsOf(jobOf(annotated("90")), settings)).toBe(90)
  expect(expectedSecondsOf(jobOf(), settings)).toBe(3600)
})

it.each(["", "0", "-1", "1e9", "12 h", "NaN"])("is not what somebody wrote who can't count: %j", (value) => {
  expect(expectedSecondsOf(jobOf(annotated(value)), settings)).toBe(3600)
})

it("is never longer than a job may run", () => {
  expect(expectedSecondsOf(jobOf(annotated("9999999999")), settings)).toBe(30 * 24 * 3600)
})
