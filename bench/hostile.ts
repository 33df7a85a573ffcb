import { setTimeout as delay } from "node:timers/promises"
import type { Pool } from "undici"
import { type BenchProject, type FacadeStack, startFacadeStack } from "./facade-stack.ts"
import { type BenchContext, type BenchResult, compareLess, spreadOf } from "./result.ts"

const CONNECTIONS = 16
const ROUNDS = 5
const SECONDS_PER_TURN = 5
const HOSTILE_PER_SECOND = 10
const BODY_BYTES = 128 * 1024
/** Pause between two requests of the other tenant, milliseconds. */
const PAUSE_MS = 10

/** Aim of the project: under hostile bodies, another tenant's requests take at most 5 times as long. */
const GOAL = 1 / 5

/**
 * Measures another tenant's GET /1/jobs?limit=1 while one key sends 10 of the most expensive bodies a second, against
 * the same without them. The façade has no rate limit here: the limit would only make the attack shorter.
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
  const [attacker, tenant] = [await stack.makeProject("attacker"), await stack.makeProject("tenant")]
  const found = {
    quiet: { p50: [] as number[], p95: [] as number[] },
    hostile: { p50: [] as number[], p95: [] as number[] },
  }
  // The first round warms up.
  for (let round = 0; round <= ROUNDS; round++) {
    for (const turn of ["quiet", "hostile"] as const) {
      const stop = new AbortController()
      const attack = turn === "hostile" ? attackUntil(stop.signal, stack.facade, attacker) : undefined
      const times = await listTimes(stack.facade, tenant, seconds)
      stop.abort()
      await attack
      const [p50, p95] = [quantile(times, 0.5), quantile(times, 0.95)]
      report(`round ${round} of ${ROUNDS}, ${turn}: median ${p50.toFixed(1)} ms, p95 ${p95.toFixed(1)} ms`)
      if (round === 0) continue
      found[turn].p50.push(p50)
      found[turn].p95.push(p95)
    }
  }
  const { quiet, hostile } = found
  return {
    name: "hostile",
    rows: [
      compareLess("GET under hostile bodies, median in ms, against quiet", hostile.p50, quiet.p50, GOAL),
      compareLess("GET under hostile bodies, p95 in ms, against quiet", hostile.p95, quiet.p95, GOAL),
    ],
    spread: { "hostile, p95 in ms": spreadOf(hostile.p95), "quiet, p95 in ms": spreadOf(quiet.p95) },
  }
}

async function listTimes(facade: Pool, { headers }: BenchProject, seconds: number): Promise<number[]> {
  const times: number[] = []
  const endsAt = performance.now() + seconds * 1000
  while (performance.now() < endsAt) {
    const startedAt = performance.now()
    const { statusCode, body } = await facade.request({ method: "GET", path: "/1/jobs?limit=1", headers })
    await body.dump()
    if (statusCode !== 200) throw new Error(`GET /1/jobs: ${statusCode}`)
    times.push(performance.now() - startedAt)
    await delay(PAUSE_MS)
  }
  return times
}

/** Sends hostile bodies at a constant rate, whether or not the earlier ones have a response. */
async function attackUntil(signal: AbortSignal, facade: Pool, { headers }: BenchProject): Promise<void> {
  const requests: Promise<void>[] = []
  for (let n = 0; !signal.aborted; n++) {
    requests.push(attackOnce(facade, headers, n))
    await delay(1000 / HOSTILE_PER_SECOND, undefined, { signal }).catch(() => undefined)
  }
  await Promise.all(requests)
}

async function attackOnce(facade: Pool, headers: BenchProject["headers"], n: number): Promise<void> {
  const { type, body: text } = BODIES[n % BODIES.length] ?? { type: "application/json", body: "" }
  const request = { ...headers, "content-type": type }
  const { statusCode, body } = await facade.request({ method: "POST", path: "/1/jobs", headers: request, body: text })
  await body.dump()
  if (![400, 429].includes(statusCode)) throw new Error(`a hostile body was answered with ${statusCode}`)
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
