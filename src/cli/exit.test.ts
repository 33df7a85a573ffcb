import { readFileSync } from "node:fs"
import { join } from "node:path"
import { expect, test } from "vitest"
import type { JobRecord } from "../client/client.ts"
import { ApiError, Unreachable } from "../client/errors.ts"
import { EXIT, exitOfJob, toFailure } from "./exit.ts"

test.each<[JobRecord["status"], string | null, number | null, number]>([
  ["succeeded", "Succeeded", 0, 0],
  ["failed", "ContainerFailed", 1, 1],
  ["failed", "ContainerFailed", 125, 125],
  ["failed", "ContainerFailed", 137, 137],
  ["failed", "ContainerFailed", 255, 255],
  ["failed", "DeadlineExceeded", 143, 124],
  ["failed", "BudgetExceeded", 143, 124],
  ["failed", "QueueDeadlineExceeded", null, 124],
  ["failed", "NoOffer", null, 125],
  ["failed", "ImagePullFailed", null, 125],
  ["failed", "VMLost", null, 125],
  ["cancelled", "Cancelled", null, 125],
])("a job that is %s (%s, code %s) ends with %d", (status, reason, exit_code, code) => {
  expect(exitOfJob({ status, reason, exit_code })).toBe(code)
})

test.each([
  [400, 2],
  [401, 6],
  [403, 6],
  [404, 7],
  [409, 5],
  [412, 5],
  [422, 2],
  [429, 75],
  [500, 1],
  [503, 75],
])("a response %d ends with %d", (status, code) => {
  expect(toFailure(new ApiError(new Response(null, { status }), {})).code).toBe(code)
})

test("an answer of another form names the versions as the cause", () => {
  const jobs = (answer: unknown) => (answer as { jobs: { name: string }[] }).jobs.map(({ name }) => name)
  const failed = (() => {
    try {
      return jobs({ items: [] })
    } catch (error) {
      return toFailure(error)
    }
  })()
  expect(failed).toMatchObject({
    code: 1,
    message: expect.stringMatching(/^The API's answer has another form .*berth check/),
  })
})

test("an API that can't be reached ends with 75", () => {
  expect(toFailure(new Unreachable("no")).code).toBe(75)
})

test("the page about the command has each exit code in a table", () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/cli.md"), "utf8")
  const section = page.split("## Exit codes")[1]?.split("\n## ")[0] ?? ""
  const documented = [...section.matchAll(/^\| (\d+) \|/gm)].map(([, code]) => Number(code))
  expect(new Set(documented)).toEqual(new Set([0, ...Object.values(EXIT)]))
})

test("a failure shows each field of the problem, and when to try again", () => {
  const response = new Response(null, { status: 429, headers: { "retry-after": "17" } })
  const problem = { detail: "Too many.", errors: [{ pointer: "/image", detail: "image is required" }] }
  expect(toFailure(new ApiError(response, problem)).message).toBe("Too many. Try again in 17 s.\n  image is required")
})
