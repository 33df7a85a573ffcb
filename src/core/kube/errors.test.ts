import { describe, expect, test } from "vitest"
import {
  CLIENT_REASONS,
  errorFromAnswer,
  isAlreadyExists,
  isConflict,
  isGone,
  isInvalid,
  isNotFound,
  isTooLargeResourceVersion,
  isTooManyRequests,
  isUnavailable,
  KubeError,
  policyDenial,
} from "./errors.ts"
import { retryDelaySeconds } from "./transport.ts"

const answer = { method: "POST", path: "/api/v1/things", retryAfter: undefined }
const status = (code: number, reason: string): object => ({ kind: "Status", code, reason, message: "why" })

describe("errorFromAnswer", () => {
  test("keeps reason, message and details of a Status", () => {
    const details = { name: "a", retryAfterSeconds: 7, causes: [{ field: "spec.x", message: "bad" }] }
    const body = { kind: "Status", reason: "Invalid", message: "not valid", details }
    const error = errorFromAnswer({ ...answer, code: 422, body })
    expect(error).toMatchObject({ code: 422, reason: "Invalid", details, retryAfterSeconds: 7, outcomeUnknown: false })
    expect(error.message).toBe("POST /api/v1/things: not valid")
  })

  test("removes the empty field before the message of a policy", () => {
    const message = `Job.berth.dev "a" is invalid: : ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`
    const error = errorFromAnswer({ ...answer, code: 422, body: { ...status(422, "Invalid"), message } })
    expect(error.message).toBe(`POST /api/v1/things: ${message.replace(": : ", ": ")}`)
  })

  test("reads the policy that rejected a request", () => {
    const message = `jobs.berth.dev "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`
    const error = errorFromAnswer({ ...answer, code: 403, body: { ...status(403, "Forbidden"), message } })
    expect(policyDenial(error)).toEqual({ policy: "p", message: "no" })
    expect(policyDenial(errorFromAnswer({ ...answer, code: 403, body: status(403, "Forbidden") }))).toBeUndefined()
  })

  test("takes a policy that can't be evaluated for an unavailable API server", () => {
    const why = "failed to configure binding: paramKind kind `coordination.k8s.io/v1, Kind=Lease` not yet synced"
    const message = `jobs.berth.dev "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ${why}`
    const error = errorFromAnswer({ ...answer, code: 422, body: { ...status(422, "Invalid"), message } })
    expect([isInvalid(error), isUnavailable(error)]).toEqual([false, true])
  })

  test("distinguishes AlreadyExists from Conflict, which share 409", () => {
    const exists = errorFromAnswer({ ...answer, code: 409, body: status(409, "AlreadyExists") })
    const conflict = errorFromAnswer({ ...answer, code: 409, body: status(409, "Conflict") })
    expect([isAlreadyExists(exists), isConflict(exists)]).toEqual([true, false])
    expect([isAlreadyExists(conflict), isConflict(conflict)]).toEqual([false, true])
  })

  test.each([
    [404, isNotFound],
    [410, isGone],
    [422, isInvalid],
    [429, isTooManyRequests],
    [502, isUnavailable],
    [503, isUnavailable],
    [504, isUnavailable],
  ])("recognizes %i without a Status", (code, predicate) => {
    expect(predicate(errorFromAnswer({ ...answer, code, body: undefined }))).toBe(true)
    expect(predicate(errorFromAnswer({ ...answer, code: 500, body: undefined }))).toBe(false)
  })

  test("reads Retry-After as seconds and as a date", () => {
    expect(errorFromAnswer({ ...answer, code: 503, body: undefined, retryAfter: "12" }).retryAfterSeconds).toBe(12)
    const retryAfter = new Date(Date.now() + 3_600_000).toUTCString()
    const seconds = errorFromAnswer({ ...answer, code: 503, body: undefined, retryAfter }).retryAfterSeconds
    expect(seconds).toBeGreaterThan(3500)
  })

  test("recognizes a resourceVersion from before a restore", () => {
    const details = { causes: [{ reason: "ResourceVersionTooLarge" }] }
    const body = { kind: "Status", reason: "Timeout", details }
    expect(isTooLargeResourceVersion(errorFromAnswer({ ...answer, code: 504, body }))).toBe(true)
  })
})

describe("retryDelaySeconds", () => {
  const failed = (code: number, reason: string, retryAfterSeconds?: number): KubeError =>
    new KubeError({ code, reason, message: "", retryAfterSeconds })
  const delay = (
    error: KubeError,
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE",
    attempt = 1,
  ): number | undefined => retryDelaySeconds(error, method, attempt, () => 0)

  test("never retries a POST with an unknown outcome", () => {
    for (const error of [
      failed(503, "ServiceUnavailable"),
      failed(504, "Timeout"),
      failed(0, CLIENT_REASONS.network),
    ]) {
      expect(delay(error, "POST")).toBeUndefined()
      expect(delay(error, "GET")).toBeDefined()
    }
  })

  test("retries no write after a lost connection: the replay's Conflict or NotFound would mislead", () => {
    for (const method of ["PUT", "PATCH", "DELETE"] as const) {
      expect(delay(failed(0, CLIENT_REASONS.network), method)).toBeUndefined()
      expect(delay(failed(503, "ServiceUnavailable"), method)).toBeDefined()
    }
  })

  test("retries every request that was rejected before execution", () => {
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"] as const) {
      expect(delay(failed(429, "TooManyRequests", 3), method)).toBe(3)
      expect(delay(failed(401, "Unauthorized"), method)).toBe(0)
      expect(delay(failed(401, "Unauthorized"), method, 2)).toBeUndefined()
    }
  })

  test("grows, is never shorter than Retry-After, and ends", () => {
    const error = failed(429, "TooManyRequests")
    const delays = [1, 2, 3, 4, 5].map((attempt) => delay(error, "GET", attempt))
    expect(delays).toEqual([0.1, 0.2, 0.4, 0.8, undefined])
    expect(retryDelaySeconds(failed(429, "TooManyRequests", 3), "GET", 1, () => 0.99)).toBeGreaterThanOrEqual(3)
  })

  test("does not retry permanent errors", () => {
    for (const error of [failed(404, "NotFound"), failed(409, "Conflict"), failed(500, "InternalError")]) {
      expect(delay(error, "GET")).toBeUndefined()
    }
  })
})
