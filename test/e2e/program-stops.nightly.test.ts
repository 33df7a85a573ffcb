import { randomUUID } from "node:crypto"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import { makeDataDir } from "../../src/agent/disk.ts"
import { ensureInstallation } from "../../src/core/identity/installation.ts"
import { leases } from "../../src/core/kube/lease.ts"
import { kubeconfigPath, testNamespace } from "../control-plane.ts"
import { until } from "../harness/eventually.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { Program } from "../harness/program-process.ts"
import { processesNaming } from "../harness/traces.ts"
import { isNightly } from "../nightly.ts"

/** SIGTERM to each program alone, from its first millisecond until some time after it is ready. */
const MOMENTS = 50

/** Seconds from SIGTERM until a program must have ended. */
const STOP_SECONDS = 10

/** Delay of the latest SIGTERM after the program is ready, in milliseconds. */
const LIFE_MS = 3_000

/** Limit for the agent, which by default may take as long as its uploads, seconds. */
const AGENT_SECONDS = 8

const MAIN = join(import.meta.dirname, "..", "..", "src", "main.ts")

const why = isNightly ? "" : " (skipped: it takes 10 minutes; BERTH_NIGHTLY=1 runs it)"

const fixture = launchFixture("program-stops")
const systemNamespace = testNamespace("program-stops-system")
let folder: string
let gateway: TestGateway

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-program-stops-"))
  await installBase(fixture.client, AbortSignal.timeout(100_000))
  await ensureInstallation(fixture.client, systemNamespace)
  gateway = await startGateway(fixture)
})
afterAll(async () => {
  await gateway.close()
  await rm(folder, { recursive: true, force: true, maxRetries: 3 })
})

/** One start of a program. */
interface Start {
  program: Program
  /** Resolves when it has done its first work. */
  ready: () => Promise<unknown>
  /** Returns what is left of it beside its process. */
  left: () => Promise<string[]>
}

function kubeOptions(): string[] {
  return [
    "--kubeconfig",
    kubeconfigPath(),
    "--system-namespace",
    systemNamespace,
    "--watch-namespace",
    fixture.namespace,
  ]
}

function startOperator(): Start {
  const prices = ["--price-refresh-hours", "0", "--spot-price-refresh-hours", "0"]
  const args = [
    MAIN,
    "operator",
    ...kubeOptions(),
    "--gateway-url",
    "http://127.0.0.1:1",
    "--agent-image",
    "127.0.0.1:1/berth-agent:1",
    "--volumes-image",
    "127.0.0.1:1/berth-volumes:1",
    ...prices,
  ]
  const program = new Program("operator", args)
  const holder = async (): Promise<string[]> => {
    const lease = { namespace: systemNamespace, name: "berth-operator" }
    const { spec } = await fixture.client.get(leases, lease)
    return spec?.holderIdentity ? [`the lease is held by ${spec.holderIdentity}`] : []
  }
  // No operator has created the Lease before the first one leads.
  const left = () => holder().catch((error: { code?: number }) => (error.code === 404 ? [] : Promise.reject(error)))
  return { program, ready: () => program.printed(/"msg":"leading"/), left }
}

function startFacade(): Start {
  const more = ["--port", "0", "--base-domain", "berth.test", "--logs-dir", join(folder, "logs")]
  const program = new Program("facade", [MAIN, "facade", ...kubeOptions(), ...more])
  return { program, ready: () => program.printed(/"msg":"listening"/), left: async () => [] }
}

/** Starts an agent whose container ignores SIGTERM. */
async function startAgent(): Promise<Start> {
  const dataDir = join(folder, randomUUID())
  const launch = await fixture.launch({ command: ["sh", "-c"], args: ["trap '' TERM; while :; do sleep 0.1; done"] })
  makeDataDir(dataDir)
  await writeFile(join(dataDir, "user-data.json"), gateway.userData(launch))
  const limits = ["--shutdown-seconds", String(AGENT_SECONDS)]
  const program = new Program("agent", [MAIN, "agent", "--data-dir", dataDir, "--runtime", "process", ...limits])
  const ready = () =>
    until("the container runs", async () => (await fixture.agentOf(launch))?.startTime !== undefined, 100)
  return { program, ready, left: async () => (await processesNaming(dataDir)).map(({ text }) => text.slice(0, 200)) }
}

const PROGRAMS: Record<string, () => Start | Promise<Start>> = {
  operator: startOperator,
  facade: startFacade,
  agent: startAgent,
}

describe.skipIf(!isNightly)(`SIGTERM at ${MOMENTS} moments of a program${why}`, { timeout: 3_600_000 }, () => {
  it.each(Object.keys(PROGRAMS))("%s ends within ten seconds and leaves nothing", async (name) => {
    const start = PROGRAMS[name] as () => Start | Promise<Start>
    const span = (await secondsUntilReady(start)) * 1000 + LIFE_MS
    const seconds: string[] = []
    const failures: unknown[] = []
    for (let moment = 0; moment < MOMENTS; moment++) {
      const at = Math.round((moment * span) / (MOMENTS - 1))
      const { program, left } = await start()
      await delay(at)
      const took = await secondsUntilEnd(program)
      const remains = await left()
      seconds.push(`${at}:${took.toFixed(1)}`)
      if (took > STOP_SECONDS || remains.length > 0) failures.push({ at, took, remains, output: program.output })
    }
    console.log(`${name}: SIGTERM after milliseconds : seconds until the end\n${seconds.join(" ")}`)
    expect(failures).toEqual([])
    // Nothing that a stop left prevents the next start.
    await secondsUntilReady(start)
  })
})

async function secondsUntilReady(start: () => Start | Promise<Start>): Promise<number> {
  const { program, ready } = await start()
  const begun = performance.now()
  await ready()
  const seconds = (performance.now() - begun) / 1000
  await program.stop()
  return seconds
}

async function secondsUntilEnd(program: Program): Promise<number> {
  const sent = performance.now()
  await program.stop()
  return (performance.now() - sent) / 1000
}
