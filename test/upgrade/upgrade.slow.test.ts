import { execFile } from "node:child_process"
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { call, restOf, untilStatus } from "../e2e/rest.ts"
import { freePair, type StackUnderTest, sendSigterm, startStack } from "../e2e/stops.ts"
import type { Program } from "../harness/program-process.ts"
import { GATE, type RecordedVersion, recordedFolder } from "./recorded.ts"

/** Fields of records that say how long ago something was. */
const PASSING = ["last_heartbeat_at", "age_seconds", "last_used_at"]

const entries = await readdir(import.meta.dirname, { withFileTypes: true })
const VERSIONS = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name)

describe.each(VERSIONS)("the data of version %s", (version) => {
  let folder: string
  let stack: StackUnderTest
  let program: Program
  let recorded: RecordedVersion

  beforeAll(async () => {
    const from = recordedFolder(version)
    recorded = JSON.parse(await readFile(join(from, "records.json"), "utf8")) as RecordedVersion
    folder = await mkdtemp(join(tmpdir(), "berth-upgrade-"))
    await promisify(execFile)("tar", ["-xJf", join(from, "data.tar.xz"), "-C", folder])
    stack = { command: "start", dataDir: join(folder, "berth"), port: await freePair() }
    program = startStack(stack)
    await program.printed(/Berth is up at/)
  })
  afterAll(async () => {
    if (program?.running) await program.stop()
    await rm(GATE, { force: true })
    await rm(folder, { recursive: true, force: true, maxRetries: 3 })
  })

  const get = async (path: string) => JSON.parse(await call(stack.dataDir, "GET", path)) as Record<string, unknown>

  it("has the same records, logs and secrets", async () => {
    for (const [path, record] of Object.entries(recorded.records)) {
      const known = Object.fromEntries(Object.entries(record).filter(([field]) => !PASSING.includes(field)))
      expect(await get(path), path).toMatchObject(known)
    }
    expect(await call(stack.dataDir, "GET", "/jobs/ended/logs")).toBe("hello from this version\n")
    expect(await call(stack.dataDir, "GET", "/jobs/worked/logs")).toBe("from the working directory\n")
  })

  it("continues its jobs: one runs to its end on its VM, one is cancelled", { timeout: 300_000 }, async () => {
    expect(await get("/jobs/queued")).toMatchObject({ status: "queued" })
    await call(stack.dataDir, "POST", "/jobs/queued/cancel")
    await untilStatus(stack.dataDir, "queued", "cancelled")
    await untilStatus(stack.dataDir, "running", "running")
    await writeFile(GATE, "")
    await untilStatus(stack.dataDir, "running", "succeeded")
    expect(await get("/jobs/running")).toMatchObject({ tags: ["up"], labels: { team: "a" } })
  })

  it("knows its keys, and answers a repeated Idempotency-Key with its object", async () => {
    const headers = { "X-Service-Api-Key": recorded.key, "Idempotency-Key": recorded.idempotencyKey }
    const body = JSON.stringify(recorded.submission)
    const again = await restOf(stack.dataDir, "POST", "/jobs", { headers, body })
    expect(JSON.parse(again)).toMatchObject({ job_id: (await get("/jobs/ended"))["id"] })
  })

  it("changes and deletes its objects, and stops", { timeout: 300_000 }, async () => {
    await call(stack.dataDir, "PATCH", "/cronjobs/minutely", '{"is_active":true}')
    expect(await get("/cronjobs/minutely")).toMatchObject({ is_active: true })
    await call(stack.dataDir, "PATCH", "/cronjobs/minutely", '{"is_active":false}')
    for (const path of ["/cronjobs/minutely", "/webhooks/ends", "/connections/acme-aws"])
      await call(stack.dataDir, "DELETE", path)
    expect(await sendSigterm(program, stack), program.output).toMatchObject({ processes: [], ports: [] })
  })
})
