import { execFile } from "node:child_process"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect, it } from "vitest"
import type { Program } from "../e2e/program.ts"
import { call, freePair, type StackUnderTest, sendSigterm, startStack, untilStatus } from "../e2e/stops.ts"

/**
 * Data directory that `npm start` of commit 8624ab5 (November 2026) left after SIGTERM. Left out: certificates, which each
 * start creates, and logs of the control plane. It has these objects, all created over REST:
 * - jobs `ended` (Idempotency-Key `former`), `running` (until a file exists), `queued` and `cancelled` (for AWS)
 * - a paused cronjob `minutely`, a connection `acme-aws` with sealed credentials, and a developer key `former`
 */
const FORMER_DATA = join(import.meta.dirname, "former-version.tar.xz")
/** Value of the key `former`. It is valid in this data only. */
const FORMER_KEY = "berth_rfa1mblglhra_V1OUotiGEEFvH2GwYXdJn4e2iv66QOUJqE95xzn2uQo"
/** File that the job `running` waits for. */
const GATE = "/tmp/berth-upgrade-go"

let folder: string
let stack: StackUnderTest
let program: Program

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-upgrade-"))
  await promisify(execFile)("tar", ["-xJf", FORMER_DATA, "-C", folder])
  stack = { command: "start", dataDir: join(folder, "berth"), port: await freePair() }
  program = startStack(stack)
  await program.printed(/Berth is up at/)
})
afterAll(async () => {
  if (program.running) await program.stop()
  await rm(GATE, { force: true })
  await rm(folder, { recursive: true, force: true, maxRetries: 3 })
})

const get = async (path: string) => JSON.parse(await call(stack.dataDir, "GET", path)) as Record<string, unknown>

it("continues with the jobs of the former version", { timeout: 300_000 }, async () => {
  expect(await get("/jobs/ended")).toMatchObject({ name: "ended", status: "succeeded" })
  expect(await call(stack.dataDir, "GET", "/jobs/ended/logs")).toBe("hello from the former version\n")
  expect(await get("/jobs/cancelled")).toMatchObject({ status: "cancelled" })
  expect(await get("/jobs/queued")).toMatchObject({ status: "queued" })
  await call(stack.dataDir, "POST", "/jobs/queued/cancel")
  await untilStatus(stack.dataDir, "queued", "cancelled")
  await untilStatus(stack.dataDir, "running", "running")
  await writeFile(GATE, "")
  await untilStatus(stack.dataDir, "running", "succeeded")
  expect(await get("/jobs/running")).toMatchObject({ tags: ["up"], labels: { team: "a" } })
})

it("accepts the keys of the former version, and returns its object for a repeated Idempotency-Key", async () => {
  const url = /^BERTH_URL=(\S+)$/m.exec(await readFile(join(stack.dataDir, "env"), "utf8"))?.[1]
  const body = {
    name: "ended",
    image: "busybox",
    command: ["sh", "-c", "echo hello from the former version"],
    cloud: ["local"],
  }
  const answer = await fetch(`${url}/1/jobs`, {
    method: "POST",
    headers: { "X-Service-Api-Key": FORMER_KEY, "Content-Type": "application/json", "Idempotency-Key": "former" },
    body: JSON.stringify(body),
  })
  expect(answer.status).toBe(201)
  expect(await answer.json()).toMatchObject({ job_id: (await get("/jobs/ended"))["id"] })
})

it("resumes, pauses and deletes the cronjob, and opens the sealed connection of the former version", async () => {
  const credentials = {
    access_key_id: "AKIAIOSFODNN7EXAMPLE",
    secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
  }
  expect(await get("/connections/acme-aws")).toMatchObject(credentials)
  await call(stack.dataDir, "PATCH", "/cronjobs/minutely", '{"is_active":true}')
  expect(await get("/cronjobs/minutely")).toMatchObject({ is_active: true })
  await call(stack.dataDir, "PATCH", "/cronjobs/minutely", '{"is_active":false}')
  await call(stack.dataDir, "DELETE", "/cronjobs/minutely")
  expect(await sendSigterm(program, stack), program.output).toMatchObject({ processes: [], ports: [] })
})
