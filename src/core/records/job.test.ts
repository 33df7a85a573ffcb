import { describe, expect, it } from "vitest"
import { jobOf } from "../../../test/harness/builders.ts"
import type { JobStatus } from "../apis/job.ts"
import { toRecord, withoutOutput } from "./job.ts"

const OWNER = { projectId: "p", organizationId: "o" }
const ended = (status: JobStatus) => jobOf({ status: { phase: "failed", reason: "ContainerFailed", ...status } })

describe("error_message", () => {
  it.each([
    ["exit code 1", "no module", "exit code 1: no module"],
    ["exit code 139 (SIGSEGV); correct it", "at 0x0", "exit code 139 (SIGSEGV); correct it; last line: at 0x0"],
    ["exit code 137 (SIGKILL): OOMKilled", "Killed", "exit code 137 (SIGKILL): OOMKilled; last line: Killed"],
    ["exit code 1", undefined, "exit code 1"],
    [undefined, "no module", "no module"],
    [undefined, undefined, null],
  ])("is the message %j with the last line %j", (message, lastLine, said) => {
    const job = ended({ ...(message !== undefined && { message }), ...(lastLine !== undefined && { lastLine }) })
    expect(toRecord(job, OWNER)).toMatchObject({ error_message: said, message: message ?? null })
  })

  it("has no output for readers who did not ask for it", () => {
    const job = withoutOutput(ended({ message: "exit code 1", lastLine: "private" }))
    expect(JSON.stringify(toRecord(job, OWNER))).not.toContain("private")
    expect(toRecord(job, OWNER).error_message).toBe("exit code 1")
  })
})
