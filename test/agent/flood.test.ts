import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { Pool } from "undici"
import { afterAll, beforeAll, expect, it } from "vitest"
import { GatewayClient } from "../../src/agent/gateway-client.ts"
import { runAgent } from "../../src/agent/main.ts"
import { systemClock, timestamp } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { Logger } from "../../src/core/apis/logger.ts"
import { type AgentKeys, bootConfig, generateAgentKeys, signMessage } from "../../src/core/protocol/messages.ts"
import { GATEWAY_PATH, JWS_CONTENT_TYPE, JWS_TYPES, type MessageKind } from "../../src/core/protocol/protocol.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { isNightly } from "../nightly.ts"

/** Duration of the flood: five minutes in the nightly run, else a few seconds. */
const SECONDS = isNightly ? 300 : 6

/** Requests of the flood before the first valid message: more than one Launch may send in a minute. */
const HEAD_START = 1000

/** Requests of the flood per second after that. */
const RATE = 100

const VMS = 50

const fixture = launchFixture("flood")
let gateway: TestGateway
let dataDir: string

beforeAll(async () => {
  gateway = await startGateway(fixture)
  dataDir = await mkdtemp(join(tmpdir(), "berth-flood-"))
})
afterAll(async () => {
  await gateway?.close()
  await rm(dataDir, { recursive: true, force: true })
})

/** Returns one client's connections to the gateway, with timeouts for a slow machine. */
function connect(connections: number): Pool {
  return new Pool(gateway.url, { connections, connect: { timeout: 0 }, headersTimeout: 0, bodyTimeout: 0 })
}

interface Sent {
  kind: string
  launch: string
  body: string
  token?: string | undefined
}

async function post(pool: Pool, { kind, launch, body, token }: Sent): Promise<number> {
  const headers = { "Content-Type": JWS_CONTENT_TYPE, ...(token && { Authorization: `Bearer ${token}` }) }
  const path = `${GATEWAY_PATH}/launches/${launch}/${kind}`
  const answer = await pool.request({ method: "POST", path, headers, body })
  await answer.body.dump()
  return answer.statusCode
}

/** Client without credentials. It knows the names of the Launches and shares its address with their VMs. */
class Flood {
  readonly #launches: readonly StoredLaunch[]
  readonly #keys: AgentKeys
  readonly #stop = new AbortController()
  readonly #pool = connect(50)
  #sent = 0
  readonly statuses = new Map<number, number>()

  constructor(launches: readonly StoredLaunch[], keys: AgentKeys) {
    this.#launches = launches
    this.#keys = keys
  }

  /** Sends this many requests and waits for their answers. */
  async send(count: number): Promise<void> {
    const statuses = await Promise.all(Array.from({ length: count }, () => this.#sendOne()))
    for (const status of statuses) this.statuses.set(status, (this.statuses.get(status) ?? 0) + 1)
  }

  /** Sends at the rate until it is stopped. */
  async run(): Promise<void> {
    const batches: Promise<void>[] = []
    for (; !this.#stop.signal.aborted; await sleep(100)) batches.push(this.send(RATE / 10))
    await Promise.all(batches)
    await this.#pool.close()
  }

  stop(): void {
    this.#stop.abort()
  }

  /** Sends a message or forgery of a random kind: four of five to the first Launch, the others to all in turn. */
  async #sendOne(): Promise<number> {
    const turn = this.#sent++
    // The proof of a session comes by a WebSocket (test/sessions).
    const kinds = (Object.keys(JWS_TYPES) as MessageKind[]).filter((kind) => kind !== "session")
    const kind = kinds[turn % kinds.length] ?? "report"
    const launch = this.#launches[turn % 5 === 0 ? (turn / 5) % this.#launches.length : 0]?.metadata.name ?? ""
    const forged = { launch, sequence: 1_000_000, attempt: 1, retryCount: 0, offset: 0, data: "" }
    const body = turn % 3 === 0 ? "x.y.z" : await signMessage(kind, forged, this.#keys.signing)
    const token = turn % 2 === 0 ? "x".repeat(43) : undefined
    return await post(this.#pool, { kind, launch, body, token })
  }
}

/** VM's side of the protocol, which records each answer that is not a success. */
interface Vm {
  launch: StoredLaunch
  register: () => Promise<void>
  report: (sequence: number, finish?: object) => Promise<void>
  log: (offset: number, text: string) => Promise<void>
  close: () => Promise<void>
}

async function vmOf(launch: StoredLaunch): Promise<Vm> {
  const spec = { ...launch.spec, gatewayUrl: gateway.url }
  const client = new GatewayClient(
    bootConfig({ ...launch, spec }, BOOTSTRAP_KEY),
    await generateAgentKeys(),
    systemClock,
  )
  return {
    launch,
    register: async () => void (await client.register({ version: "test", runtime: "process" })),
    report: async (sequence, finish) =>
      void (await client.report({ sequence, attempt: 1, retryCount: 0, ...(finish && { finish: finish as never }) })),
    log: async (offset, text) => void (await client.sendLog(offset, Buffer.from(text))),
    close: () => client.close(),
  }
}

/** Sends a heartbeat and a line of log each second until the job ends. Returns the answers. */
async function live(vm: Vm, { until, refused }: { until: Promise<unknown>; refused: string[] }): Promise<number> {
  let isOver = false
  void until.then(() => {
    isOver = true
  })
  const attempt = async (what: string, send: Promise<void>) => {
    await send.catch((error: unknown) => refused.push(`${what}: ${error}`))
  }
  let length = 0
  let answers = 1
  for (let beat = 1; !isOver; beat++) {
    await attempt(`heartbeat ${beat}`, vm.report(beat))
    const line = `line ${beat}\n`
    await attempt(`line ${beat}`, vm.log(length, line))
    length += line.length
    answers += 2
    await Promise.race([until, sleep(1000)])
  }
  const finish = { reason: "Succeeded", exitCode: 0, time: timestamp(new Date()) }
  await attempt("the finish", vm.report(1_000_000, finish))
  return answers
}

function lines(text: string, count: number): string {
  return Array.from({ length: count }, (_, index) => `${text} ${index + 1}\n`).join("")
}

/** Returns a logger that records an agent's warnings. */
function watchedLogger(warnings: string[]): Logger {
  const keep = ({ err }: { err?: unknown }, message: string) => void warnings.push(`${message}: ${err}`)
  return { ...silentLogger, debug: () => undefined, info: () => undefined, warn: keep, error: keep }
}

it("a flood without credentials costs no VM a heartbeat or a line of its log, even from the same address", {
  timeout: (SECONDS + 170) * 1000,
}, async () => {
  const written = SECONDS * 10
  const script = `until [ -e go ]; do sleep 0.1; done; i=0; while [ $i -lt ${written} ]; do i=$((i+1)); echo tick $i; sleep 0.1; done`
  const launch = await fixture.launch({ image: "none", command: ["sh", "-c", script] })
  const others = await Promise.all(Array.from({ length: VMS }, () => fixture.launch({})))
  const vms = await Promise.all(others.map(vmOf))
  const refused: string[] = []
  const warnings: string[] = []
  const flood = new Flood([launch, ...others], await generateAgentKeys())
  for (const vm of vms) await vm.register()

  const vm = runAgent({
    userData: gateway.userData(launch),
    dataDir,
    runtime: "process",
    logger: watchedLogger(warnings),
  })
  await expect.poll(async () => (await fixture.agentOf(launch))?.startTime).toBeDefined()
  await flood.send(HEAD_START)
  await writeFile(join(dataDir, "work", "go"), "")
  const flooding = flood.run()
  const lives = vms.map((each) => live(each, { until: vm, refused }))
  const exit = await vm
  const answers = await Promise.all(lives)
  flood.stop()
  await flooding

  const taken = answers.reduce((sum, count) => sum + count, 0)
  if (isNightly) console.info("answers to the flood:", Object.fromEntries(flood.statuses), "and to the VMs:", taken)
  expect(warnings).toEqual([])
  expect(refused).toEqual([])
  expect(exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded", exitCode: 0 } })
  expect((await gateway.logOf(launch)).toString()).toBe(lines("tick", written))
  for (const status of flood.statuses.keys()) expect([400, 401, 429]).toContain(status)
  for (const [index, each] of vms.entries()) {
    expect((await fixture.agentOf(each.launch))?.finish?.reason).toBe("Succeeded")
    expect((await gateway.logOf(each.launch)).toString()).toBe(lines("line", ((answers[index] ?? 0) - 1) / 2))
    await each.close()
  }
})
