import { randomUUID } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import type { Pool } from "undici"
import { GatewayClient } from "../src/agent/gateway-client.ts"
import { systemClock } from "../src/core/apis/clock.ts"
import { LAUNCH, launchName, type StoredLaunch } from "../src/core/apis/launch.ts"
import { API_VERSION } from "../src/core/apis/meta.ts"
import { declareResource } from "../src/core/kube/resource.ts"
import { bootConfig, generateAgentKeys } from "../src/core/protocol/messages.ts"
import { type BenchProject, type FacadeStack, startFacadeStack } from "./facade-stack.ts"
import { SYSTEM_NAMESPACE, usageOf } from "./program.ts"
import { type BenchContext, type BenchResult, type BenchRow, compareLess } from "./result.ts"

/** The attacker. */
const EVE = "https://issuer.example#eve"
/** Connections of the attack, and of the other tenant. */
const CONNECTIONS = 96
const ROUNDS = 3
const SECONDS_PER_TURN = 3
const BODY_BYTES = 128 * 1024
/** Pause between two requests of the other tenant, milliseconds. */
const PAUSE_MS = 5
/** Connections of one key of the attacker. */
const PER_KEY = 4
/** VMs that report: each may send ten messages a second. */
const AGENTS = 10

/**
 * Aim of the project: under an attack, another tenant's requests and an agent's report take at most twice as long, or 20 ms
 * longer.
 */
const TIMES = 2
const MORE_MS = 20

/** One attack: who sends, and what. */
interface Attack {
  name: string
  senders: readonly BenchProject[]
  /** Status of each answer. */
  status: number
  request: (n: number) => { method: "GET" | "POST"; path: string; body?: string; type?: string }
}

/**
 * Measures another tenant's list, get and POST, and the report of a VM's agent, while one tenant sends the most expensive
 * requests, against the same without them. Both take turns. The façade has no rate limit here: the limit would only make the
 * attacks shorter.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const stack = await startFacadeStack(context, CONNECTIONS)
  try {
    return await measure(stack, context)
  } finally {
    await stack.stop()
  }
}

async function measure(stack: FacadeStack, { report, seconds = SECONDS_PER_TURN }: BenchContext): Promise<BenchResult> {
  const attacks = await attacksOf(stack)
  const victim = await Victim.prepare(stack)
  await victim.times(seconds)
  const rows: BenchRow[] = []
  for (const attack of attacks) {
    const rounds: { quiet: Times; hostile: Times }[] = []
    for (let round = 1; round <= ROUNDS; round++) {
      const quiet = await victim.times(seconds)
      const stop = new AbortController()
      const before = await usageOf(stack.facadePid)
      const attacking = attackUntil(stop.signal, stack.facade, attack)
      const hostile = await victim.times(seconds)
      const cpu = ((await usageOf(stack.facadePid)).cpuSeconds - before.cpuSeconds) / seconds
      stop.abort()
      const sent = await attacking
      rounds.push({ quiet, hostile })
      report(
        `${attack.name}, round ${round}: ${sent} requests, façade ${cpu.toFixed(2)} cores; ${lineOf(quiet, hostile)}`,
      )
    }
    for (const what of OPERATIONS) {
      for (const [share, name] of QUANTILES) {
        const limits = rounds.map(({ quiet }) => limitOf(quantile(quiet[what], share)))
        const found = rounds.map(({ hostile }) => quantile(hostile[what], share))
        rows.push(compareLess(`${attack.name}: ${what}, ${name} in ms, against its limit`, found, limits, 1))
      }
    }
  }
  return { name: "hostile", rows, spread: {} }
}

const QUANTILES = [
  [0.5, "median"],
  [0.95, "p95"],
] as const

function limitOf(quiet: number): number {
  return Math.max(TIMES * quiet, quiet + MORE_MS)
}

const OPERATIONS = ["list", "get", "POST", "report"] as const
type Times = Record<(typeof OPERATIONS)[number], number[]>

function lineOf(quiet: Times, hostile: Times): string {
  const both = (what: (typeof OPERATIONS)[number]) =>
    [quiet, hostile].map((times) => quantile(times[what], 0.95).toFixed(1)).join(" → ")
  return OPERATIONS.map((what) => `${what} ${both(what)} ms`).join(", ")
}

/** The other tenant, and the agents of its VMs. */
class Victim {
  readonly #facade: Pool
  readonly #project: BenchProject
  readonly #agents: readonly Reporter[]
  #count = 0

  private constructor(facade: Pool, project: BenchProject, agents: readonly Reporter[]) {
    this.#facade = facade
    this.#project = project
    this.#agents = agents
  }

  static async prepare(stack: FacadeStack): Promise<Victim> {
    const project = await stack.makeProject("tenant")
    const agents = await Promise.all(Array.from({ length: AGENTS }, () => Reporter.register(stack, project.name)))
    const victim = new Victim(stack.facade, project, agents)
    await victim.#send("POST", "/1/jobs", { name: "known", image: "a" })
    return victim
  }

  /** Returns the durations of each operation for a time, milliseconds. */
  async times(seconds: number): Promise<Times> {
    const times: Times = { list: [], get: [], POST: [], report: [] }
    const endsAt = performance.now() + seconds * 1000
    const timed = async (what: keyof Times, act: () => Promise<unknown>): Promise<void> => {
      const startedAt = performance.now()
      await act()
      times[what].push(performance.now() - startedAt)
      await delay(PAUSE_MS)
    }
    while (performance.now() < endsAt) {
      this.#count++
      const name = `job-${this.#count}`
      await timed("list", () => this.#send("GET", "/1/jobs?limit=1"))
      await timed("get", () => this.#send("GET", "/1/jobs/known"))
      await timed("POST", () => this.#send("POST", "/1/jobs", { name, image: "a" }))
      await timed("report", async () => await this.#agents[this.#count % AGENTS]?.report())
    }
    return times
  }

  async #send(method: "GET" | "POST", path: string, content?: object): Promise<void> {
    const headers = { ...this.#project.headers, ...(content && { "content-type": "application/json" }) }
    const body = content === undefined ? null : JSON.stringify(content)
    const answer = await this.#facade.request({ method, path, headers, body })
    const text = await answer.body.text()
    if (answer.statusCode >= 300) throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`)
  }
}

/** The agent of a VM, which has registered. */
class Reporter {
  readonly #client: GatewayClient
  #sequence = 0

  private constructor(client: GatewayClient) {
    this.#client = client
  }

  static async register({ client, facadeUrl, installation }: FacadeStack, namespace: string): Promise<Reporter> {
    const uid = randomUUID()
    const launch = {
      apiVersion: API_VERSION,
      kind: "Launch",
      metadata: { name: launchName(uid, 1), namespace: SYSTEM_NAMESPACE },
      spec: {
        job: { namespace, name: "job", uid },
        number: 1,
        installation: installation.id,
        offer: {
          ...{ cloud: "local", region: "local", instanceType: "local", architecture: "amd64" },
          ...{ provisioning: "onDemand", cpu: 1, memoryGib: 1, hourlyPriceUsd: 0, minimumBilledSeconds: 0 },
        },
        run: { image: "none" },
        gatewayUrl: facadeUrl,
        ...{ bootDeadlineSeconds: 600, startDeadlineSeconds: 600, lifetimeSeconds: 3600 },
      },
    } as unknown as StoredLaunch
    const made = await client.create(declareResource<StoredLaunch>(LAUNCH), launch)
    const keys = await generateAgentKeys()
    const gateway = new GatewayClient(bootConfig(made, installation.bootstrapKey), keys, systemClock)
    await gateway.register({ version: "bench", runtime: "process" })
    return new Reporter(gateway)
  }

  report(): Promise<unknown> {
    this.#sequence++
    return this.#client.report({ sequence: this.#sequence, attempt: 1, retryCount: 0 })
  }
}

/** Returns the attacks: what one developer can send that costs most. */
async function attacksOf(stack: FacadeStack): Promise<Attack[]> {
  const first = await stack.makeProject("attacker", EVE)
  const keys = [first]
  while (keys.length < 20) keys.push(await stack.makeKey("attacker", `key-${keys.length}`))
  const organizations: BenchProject[] = []
  while (organizations.length < 50) organizations.push(await stack.makeProject(`front-${organizations.length}`, EVE))
  const names = JSON.stringify({ names: Array.from({ length: 1000 }, (_, n) => `unknown-${n}`) })
  const cancelMany: Attack["request"] = () => ({
    method: "POST",
    path: "/1/jobs/cancellations?dry_run=true",
    body: names,
  })
  const unknown: Attack["request"] = (n) => ({ method: "GET", path: `/1/jobs/unknown-${n}` })
  const array = JSON.stringify({ name: "many", job_definition: { image: "a" }, size: 10_000 })
  return [
    ...[1, 5, 20].map((count) => ({
      name: `1,000 unknown names to cancel, ${count} keys`,
      senders: keys.slice(0, count),
      status: 200,
      request: cancelMany,
    })),
    {
      name: "1,000 unknown names to cancel, 50 organizations of one person",
      senders: organizations,
      status: 200,
      request: cancelMany,
    },
    { name: "unknown jobs, 20 keys", senders: keys, status: 404, request: unknown },
    { name: "unknown jobs, 50 organizations of one person", senders: organizations, status: 404, request: unknown },
    {
      name: "hostile bodies, 5 keys",
      senders: keys.slice(0, 5),
      status: 400,
      request: (n) => ({ method: "POST", path: "/1/jobs", ...(BODIES[n % BODIES.length] ?? { body: "" }) }),
    },
    {
      name: "plans of an array of 10,000, 5 keys",
      senders: keys.slice(0, 5),
      status: 200,
      request: () => ({ method: "POST", path: "/1/arrays?dry_run=true", body: array }),
    },
    {
      name: "plans of a job, 20 keys",
      senders: keys,
      status: 200,
      request: () => ({ method: "POST", path: "/1/jobs?dry_run=true", body: '{"image":"a","provisioning":"spot"}' }),
    },
  ]
}

/** Sends the requests of an attack over all its connections, one after the other on each. Returns their number. */
async function attackUntil(signal: AbortSignal, facade: Pool, { senders, request, status }: Attack): Promise<number> {
  let sent = 0
  const perKey = Math.max(1, Math.min(PER_KEY, Math.floor((CONNECTIONS - 8) / senders.length)))
  const work = async ({ headers }: BenchProject): Promise<void> => {
    while (!signal.aborted) {
      const { method, path, body = null, type = "application/json" } = request(sent++)
      const answer = await facade.request({ method, path, headers: { ...headers, "content-type": type }, body })
      await answer.body.dump()
      if (answer.statusCode !== status) throw new Error(`${method} ${path} was answered with ${answer.statusCode}`)
    }
  }
  await Promise.all(senders.flatMap((sender) => Array.from({ length: perKey }, () => work(sender))))
  return sent
}

/** Repeats a text up to the largest body, or `most` times. */
function filled(start: string, part: (index: number) => string, end: string, most = Number.POSITIVE_INFINITY): string {
  const parts: string[] = []
  for (let length = start.length + end.length; ; ) {
    const next = part(parts.length)
    length += next.length
    if (length >= BODY_BYTES || parts.length >= most) return `${start}${parts.join("").replace(/,$/, "")}${end}`
    parts.push(next)
  }
}

/** Numbers of keys, values and lines that the parsers still accept: more are rejected sooner. */
const KEYS = 1990
const VALUES = 4990
const LINES = 7900

const BODIES = [
  { type: "application/json", body: filled('{"image":"a","command":[', () => "1,", "]}", VALUES) },
  { type: "application/json", body: filled('{"image":"a",', (i) => `"${i.toString(36)}":1,`, "}", KEYS) },
  { type: "application/json", body: filled('{"image":"a","env":{', (i) => `"=${i.toString(36)}":1,`, "}}", KEYS) },
  { type: "application/json", body: filled('{"image":"a",', () => '"a":1,', "}", KEYS) },
  { type: "application/yaml", body: filled("image: a\ncommand:\n", () => "- 1\n", "", LINES) },
  { type: "application/yaml", body: filled("image: a\n", (i) => `k${i.toString(36)}: 1\n`, "", LINES / 2) },
]

function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN
}
