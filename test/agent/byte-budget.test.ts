import { expect, it } from "vitest"
import { lastLine } from "../../src/agent/last-line.ts"
import { LIMITS } from "../../src/core/apis/field-limits.ts"
import type { JobStatus } from "../../src/core/apis/job.ts"
import { FINISH_CAUSES, FINISH_REASONS } from "../../src/core/apis/launch.ts"

/** Most that etcd may keep of an ended job for its failure and its retries, bytes. */
const BUDGET = 1024

/** Names of the fields in `metadata.managedFields`. */
const FIELD_NAMES = `"f:lastLine":{},"f:retries":{},"f:retried":{},`

it.each(['"', "\\", "ü", "失", "😀", "x", "\u001b"])(
  "an ended job has at most 1 KiB more for its failure and its retries, with %j in its output",
  (character) => {
    const [reason = ""] = [...FINISH_REASONS, ...FINISH_CAUSES].sort((a, b) => b.length - a.length)
    const line = lastLine(Buffer.from(`Error: ${character.repeat(5000)}`))
    const retry = { launch: 20, reason, exitCode: -(2 ** 31), memoryGib: 1234.5678, time: "2026-01-01T00:00:00Z" }
    const status: JobStatus = {
      ...(line !== undefined && { lastLine: line }),
      retries: Array.from({ length: LIMITS.retries }, () => retry),
      launches: { count: 20, retried: 20 },
    }
    const without = JSON.stringify({ launches: { count: 20 } })
    const bytes = Buffer.byteLength(JSON.stringify(status)) - Buffer.byteLength(without) + FIELD_NAMES.length
    expect(bytes).toBeLessThanOrEqual(BUDGET)
  },
)
