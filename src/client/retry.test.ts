import { expect, test } from "vitest"
import { type Attempt, PATIENCE_SECONDS, retryDelay } from "./retry.ts"

const now = new Date("2026-11-24T10:00:00Z")

function delayOf(attempt: Partial<Attempt>): number | undefined {
  const first = { method: "GET", hasKey: false, status: 503, retryAfter: null, count: 1, spentSeconds: 0 }
  return retryDelay({ ...first, ...attempt }, now, 0.5)
}

test.each([429, 502, 503, 504, undefined])("a GET is repeated after %s", (status) => {
  expect(delayOf({ status })).toBeGreaterThan(0)
})

test.each([400, 401, 403, 404, 409, 500])("a GET is not repeated after %s", (status) => {
  expect(delayOf({ status, retryAfter: "1" })).toBeUndefined()
})

test("a POST is only repeated with an Idempotency-Key", () => {
  expect(delayOf({ method: "POST", retryAfter: "1" })).toBeUndefined()
  expect(delayOf({ method: "POST", status: undefined })).toBeUndefined()
  expect(delayOf({ method: "POST", hasKey: true, retryAfter: "1" })).toBe(1)
})

test("a delay is never shorter than Retry-After, in seconds or as a date", () => {
  expect(delayOf({ retryAfter: "17" })).toBe(17)
  expect(delayOf({ retryAfter: "Tue, 24 Nov 2026 10:00:30 GMT" })).toBe(30)
  expect(delayOf({ retryAfter: "0", count: 3 })).toBeGreaterThan(1)
})

test("a request ends when its patience is over, or after several attempts without a Retry-After", () => {
  expect(delayOf({ retryAfter: String(PATIENCE_SECONDS + 1) })).toBeUndefined()
  expect(delayOf({ retryAfter: "20", spentSeconds: PATIENCE_SECONDS - 10 })).toBeUndefined()
  expect(delayOf({ retryAfter: "1", count: 50 })).toBeGreaterThan(0)
  expect(delayOf({ count: 6 })).toBeUndefined()
  expect(delayOf({ status: undefined, count: 4 })).toBeUndefined()
})
