import { once } from "node:events"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { createServer, type Server } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { KubeConfig } from "@kubernetes/client-node"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { SYSTEM_NAMESPACE } from "../../dev/stack.ts"
import { OPERATOR_LEASE } from "../../src/core/identity/installation.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { type Lease, leases } from "../../src/core/kube/lease.ts"
import { eventually } from "../harness/eventually.ts"
import type { Program } from "../harness/program-process.ts"
import { noDisk, type SmallDisk, smallDisk } from "../small-disk.ts"
import { call, shellJob, untilStatus } from "./rest.ts"
import {
  freePair,
  killAll,
  killApiServer,
  measureStart,
  type StackUnderTest,
  sendSigterm,
  startStack,
  stopAt,
} from "./stops.ts"

/** Ends of the stack while one job runs. Three lost VMs would fail the job. */
const ENDS = [...repeat("SIGTERM", 3), ...repeat("death of its API server", 3)]

let folder: string
const programs: Program[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-stops-"))
})
afterAll(async () => {
  await Promise.all(programs.filter(({ running }) => running).map((program) => program.stop()))
  await rm(folder, { recursive: true, force: true, maxRetries: 3 })
})

function repeat<Value extends string>(value: Value, times: number): Value[] {
  return Array.from({ length: times }, () => value)
}

async function newStack(name: string): Promise<StackUnderTest> {
  return { command: "start", dataDir: join(folder, name), port: await freePair() }
}

/** Starts the stack and resolves when it is up. */
async function up(stack: StackUnderTest): Promise<Program> {
  const program = startStack(stack)
  programs.push(program)
  await program.printed(/Berth is up at/)
  return program
}

const NOTHING = { processes: [], ports: [] }

describe("npm start", { timeout: 600_000 }, () => {
  // A start takes seconds of both cores, so all stops are those of one stack. Its disk can be filled.
  let disk: SmallDisk | undefined
  let stack: StackUnderTest
  let program: Program

  beforeAll(async () => {
    disk = noDisk === "" ? await smallDisk(600) : undefined
    stack = { ...(await newStack("stopped")), ...(disk && { dataDir: join(disk.path, "berth") }) }
  })
  afterAll(async () => {
    if (program?.running) await program.stop()
    await disk?.remove()
  })

  it("ends within ten seconds of SIGTERM at any moment, and leaves no process", async () => {
    const moments = await newStack("moments")
    const start = await measureStart(moments)
    for (const share of [0.1, 0.5, 0.9, 1.5]) {
      const { output, seconds, ...remains } = await stopAt(moments, share * start)
      expect(remains, output).toEqual(NOTHING)
      expect(seconds, `seconds until the end after SIGTERM:\n${output}`).toBeDefined()
    }
    const next = await up(moments)
    expect(await sendSigterm(next, moments)).toMatchObject(NOTHING)
  })

  it("names each port that is in use, its purpose and --port, before it starts anything", async () => {
    const { port } = stack
    const [first, second] = [await listen(port), await listen(port + 1)]
    const refused = startStack(stack)
    expect(await refused.ended).toMatchObject({ code: 1 })
    expect(refused.output).toContain(`port ${port} (for the REST API)`)
    expect(refused.output).toContain(`port ${port + 1} (for sign-in`)
    expect(refused.output).toContain(`--port ${port + 1000}`)
    expect(refused.output).not.toContain("starting")
    await close(first)
    const refusedAgain = startStack(stack)
    expect(await refusedAgain.ended).toMatchObject({ code: 1 })
    expect(refusedAgain.output).toContain(`port ${port + 1} (for sign-in`)
    expect(refusedAgain.output).not.toContain("REST API)")
    await close(second)
    program = await up(stack)
  })

  it(`runs a job again after each stop (${ENDS.length}), and counts none as a lost VM`, async () => {
    const { dataDir } = stack
    const gate = join(folder, "gate")
    await call(
      dataDir,
      "POST",
      "/jobs",
      shellJob("patient", `echo begun; until [ -e ${gate} ]; do sleep 0.1; done; echo done`),
    )
    // Until the operator has looked at the VM, the status is still that of the run before the stop.
    const begun = async (runs: number): Promise<void> => {
      const log = () => call(dataDir, "GET", "/jobs/patient/logs")
      await eventually(async () => expect((await log()).match(/begun/g)).toHaveLength(runs))
      await untilStatus(dataDir, "patient", "running")
    }
    for (const [index, end] of ENDS.entries()) {
      await begun(index + 1)
      if (index === 0) await endInTheSecondOfAStop()
      if (end === "SIGTERM") expect(await sendSigterm(program, stack), program.output).toMatchObject(NOTHING)
      else await killApiServer(stack)
      await program.ended
      program = await up(stack)
    }
    await begun(ENDS.length + 1)
    await writeFile(gate, "")
    await untilStatus(dataDir, "patient", "succeeded")
    expect((await call(dataDir, "GET", "/jobs/patient/logs")).match(/begun/g)).toHaveLength(ENDS.length + 1)
  })

  const LINES = 2000
  const ENDING = ["one", "two", "three"]

  /** Lets some jobs write their log and end. The stop follows a moment later. */
  async function endInTheSecondOfAStop(): Promise<void> {
    const { dataDir } = stack
    const gate = join(folder, "results-gate")
    const script = `until [ -e ${gate} ]; do sleep 0.02; done; seq ${LINES}`
    for (const job of ENDING) await call(dataDir, "POST", "/jobs", shellJob(job, script))
    for (const job of ENDING) await untilStatus(dataDir, job, "running")
    await writeFile(gate, "")
    await delay(200)
  }

  it("keeps the result and the whole log of a job that ended in the second of a SIGTERM", async () => {
    const { dataDir } = stack
    for (const job of ENDING) {
      await untilStatus(dataDir, job, "succeeded")
      const log = await call(dataDir, "GET", `/jobs/${job}/logs`)
      const whole = Array.from({ length: LINES }, (_, index) => `${index + 1}\n`).join("")
      expect(log.endsWith(whole), `${job}: ${log.length} characters, ${log.slice(0, 200)}`).toBe(true)
    }
  })

  it("continues after a SIGKILL of all its processes, without a wait for the dead operator's Lease", async () => {
    const { dataDir } = stack
    const gate = join(folder, "killed-gate")
    await call(dataDir, "POST", "/jobs", shellJob("killed", `until [ -e ${gate} ]; do sleep 0.1; done; echo done`))
    await untilStatus(dataDir, "killed", "running")
    const before = await operatorLease(dataDir)
    await killAll(stack)
    await program.ended
    program = await up(stack)
    await writeFile(gate, "")
    await untilStatus(dataDir, "killed", "succeeded")
    // Another object: the former one had 15 seconds to expire.
    expect((await operatorLease(dataDir)).metadata.uid).not.toBe(before.metadata.uid)
    expect(await call(dataDir, "GET", "/jobs/killed/logs")).toMatch(/done\n$/)
  })

  it.skipIf(noDisk !== "")(`stops on a full disk, and continues after space was freed${noDisk}`, async () => {
    const { dataDir } = stack
    const gate = join(folder, "disk-gate")
    const script = `echo begun; until [ -e ${gate} ]; do sleep 0.05; done; seq 100000; sleep 1000`
    await call(dataDir, "POST", "/jobs", shellJob("writer", script))
    await untilStatus(dataDir, "writer", "running")
    await disk?.fill()
    await writeFile(gate, "")
    await delay(2000)
    expect(await sendSigterm(program, stack), program.output).toMatchObject(NOTHING)
    expect(program.output).toContain("stopped")
    await disk?.empty()
    program = await up(stack)
    await untilStatus(dataDir, "writer", "running")
    expect(await sendSigterm(program, stack), program.output).toMatchObject(NOTHING)
  })
})

async function operatorLease(dataDir: string): Promise<Lease> {
  const config = new KubeConfig()
  config.loadFromFile(join(dataDir, "control-plane", "kubeconfig"))
  const client = new KubeClient(config)
  try {
    return await client.get(leases, { namespace: SYSTEM_NAMESPACE, name: OPERATOR_LEASE })
  } finally {
    await client.close()
  }
}

async function listen(port: number): Promise<Server> {
  const server = createServer().listen(port, "127.0.0.1")
  await once(server, "listening")
  return server
}

async function close(server: Server): Promise<void> {
  server.close()
  await once(server, "close")
}
