import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { runAgent } from "../../src/agent/main.ts"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import type { Finish, StoredLaunch } from "../../src/core/apis/launch.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { noDisk, type SmallDisk, smallDisk } from "../small-disk.ts"
import { shell } from "./suite.ts"

const fixture = launchFixture("log-store")
let gateway: TestGateway
let disk: SmallDisk
let logs: FileLogStore
let dataDir: string

beforeAll(async () => {
  const store = { append: (...piece: Parameters<FileLogStore["append"]>) => logs.append(...piece) }
  gateway = await startGateway(fixture, { parts: { logs: store as FileLogStore } })
})
afterAll(() => gateway.close())
beforeEach(async () => {
  disk = await smallDisk(1)
  logs = new FileLogStore(disk.path)
  dataDir = await mkdtemp(join(tmpdir(), "berth-agent-"))
})
afterEach(async () => {
  await disk.remove()
  await rm(dataDir, { recursive: true, force: true })
})

/** Runs a job to its end. Returns the finish that the gateway has stored, and the log. */
async function run(script: string, flushSeconds: number): Promise<{ finish: Finish | undefined; log: string }> {
  const launch = await fixture.launch(shell(script))
  const { cause } = await runAgent({
    userData: gateway.userData(launch),
    logger: silentLogger,
    runtime: "process",
    dataDir,
    flushSeconds,
  })
  expect(cause).toBe("finished")
  return { finish: (await fixture.agentOf(launch))?.finish, log: await logOf(launch) }
}

async function logOf({ spec: { job } }: StoredLaunch): Promise<string> {
  const pieces: Uint8Array[] = []
  for await (const piece of logs.read({ namespace: job.namespace, uid: job.uid })) pieces.push(piece)
  return Buffer.concat(pieces).toString()
}

describe.skipIf(noDisk !== "")(`a log store on a full disk, while the façade lives on${noDisk}`, () => {
  const LINES = Array.from({ length: 2000 }, (_, index) => `${index + 1}\n`).join("")

  it("gets every line once as soon as there is space", async () => {
    await disk.fill()
    const rejected = () => gateway.answered.some(({ kind, status }) => kind === "logs" && status === 503)
    const freed = expect
      .poll(rejected)
      .toBe(true)
      .then(() => disk.empty())
    const [{ finish, log }] = await Promise.all([run("seq 1 2000", 60), freed])
    expect(log).toBe(LINES)
    expect(finish).toMatchObject({ reason: "Succeeded", exitCode: 0 })
    expect(finish?.message).toBeUndefined()
  })

  it.each([
    ["exit 0", "Succeeded", "succeeded"],
    ["exit 3", "ContainerFailed", "exit code 3"],
  ])(
    "delays a result no longer than the limit, and the result says what is missing (%s)",
    async (end, reason, said) => {
      await disk.fill()
      const { finish, log } = await run(`seq 1 2000; ${end}`, 1)
      expect(LINES.startsWith(log)).toBe(true)
      expect(log.length).toBeLessThan(LINES.length)
      expect(finish?.reason).toBe(reason)
      expect(finish?.message).toContain(said)
      expect(finish?.message).toContain(`, but the last ${LINES.length - log.length} bytes of its log are missing: `)
      expect(finish?.message).toContain("503")
    },
  )
})
