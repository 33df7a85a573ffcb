import { type ChildProcessByStdio, execFile, spawn } from "node:child_process"
import { once } from "node:events"
import { access, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import type { Readable, Writable } from "node:stream"
import { promisify } from "node:util"
import type { Offer } from "../src/apis/offer.ts"
import { offersOf } from "../src/catalogue/file.ts"
import { readPriceList } from "../src/catalogue/shipped.ts"
import { cacheDirectory } from "../src/embedded/controlplane/programs.ts"
import { buildCatalogue, type Catalogue } from "../src/router/catalogue.ts"
import type { Requirements } from "../src/router/requirements.ts"
import { requirementsOf } from "../src/router/requirements.ts"
import { route } from "../src/router/route.ts"
import { type BenchContext, type BenchResult, type BenchRow, compare, median, spreadOf } from "./result.ts"
import { randomFrom, syntheticTable } from "./synthetic.ts"

const run_ = promisify(execFile)

const GPUHUNT = "0.1.34"
const ROUNDS = 7
const QUESTIONS = 2000
/** So often all questions are asked in a round; a question's time is its median, as preemptions are no decisions. */
const PASSES = 5
/** gpuhunt reads its whole list for each. */
const PEER_QUESTIONS = 3
const LOADS = 7

/** The aims of the project. */
const P99_MICROSECONDS = 100
const LOAD_MILLISECONDS = 150
const TIMES_GPUHUNT = 1000

const CONTEXT = {
  payers: ["aws", "gcp", "azure"].map((cloud) => ({ cloud })),
  resting: [],
  room: {},
  expectedSeconds: 3600,
  now: new Date("2026-11-01T00:00:00Z"),
}

/**
 * How long one decision takes over the real catalogue and over synthetic ones, beside gpuhunt (dstack's matching) over
 * the same offers, in turns: what else the machine does hits both. The questions are those that gpuhunt can be asked:
 * it knows clouds but no regions. Each of its answers is held against ours.
 */
export async function run({ report, cacheHome }: BenchContext): Promise<BenchResult> {
  const peer = await Gpuhunt.start(cacheDirectory(cacheHome), report)
  const rows: BenchRow[] = []
  const spread: Record<string, [number, number]> = {}
  try {
    const real = buildCatalogue(offersOf(readPriceList()))
    const catalogues: [string, () => Catalogue][] = [
      ["the real catalogue", () => real],
      ["100,000 offers", () => buildCatalogue(syntheticTable(100_000))],
      ["1,000,000 offers", () => buildCatalogue(syntheticTable(1_000_000))],
    ]
    for (const [name, make] of catalogues) {
      const measured = await measure(make(), peer, (line) => report(`${name}, ${line}`))
      rows.push(...rowsOf(name, measured))
      spread[`p99 of a decision over ${name}, µs`] = spreadOf(measured.p99)
    }
  } finally {
    await peer?.stop()
  }
  const loads = await measureLoads(report)
  rows.push(within("loading the real catalogue, ms, against the aim", loads.milliseconds, LOAD_MILLISECONDS))
  spread["loading, ms"] = spreadOf(loads.milliseconds)
  spread["memory of the real catalogue, MiB"] = spreadOf(loads.mebibytes)
  return { name: "route", rows, spread }
}

/** By round. Microseconds. */
interface Measured {
  p50: number[]
  p99: number[]
  peerP50: number[]
}

async function measure(catalogue: Catalogue, peer: Gpuhunt | undefined, report: (line: string) => void) {
  const questions = questionsFor(catalogue)
  const loaded = await peer?.load(catalogue)
  if (loaded !== undefined) report(`gpuhunt loaded ${catalogue.size} offers in ${loaded.seconds.toFixed(1)} s`)
  const measured: Measured = { p50: [], p99: [], peerP50: [] }
  // The first round warms up.
  for (let round = 0; round <= ROUNDS; round++) {
    const times = timesOf(questions, catalogue).sort((a, b) => a - b)
    const asked = questions.slice(round * PEER_QUESTIONS, (round + 1) * PEER_QUESTIONS)
    const peerTimes = (await peer?.ask(asked, catalogue)) ?? []
    const [p50, p99] = [times[Math.floor(times.length / 2)] ?? 0, times[Math.floor(times.length * 0.99)] ?? 0]
    const theirs = peerTimes.length === 0 ? "" : `, gpuhunt ${Math.round(median(peerTimes))}`
    report(`round ${round} of ${ROUNDS}, µs a decision: p50 ${p50.toFixed(1)}, p99 ${p99.toFixed(1)}${theirs}`)
    if (round === 0) continue
    measured.p50.push(p50)
    measured.p99.push(p99)
    if (peerTimes.length > 0) measured.peerP50.push(median(peerTimes))
  }
  return measured
}

/** How long each question takes, microseconds. */
function timesOf(questions: readonly Requirements[], catalogue: Catalogue): number[] {
  const times: number[][] = questions.map(() => [])
  for (let pass = 0; pass < PASSES; pass++) {
    for (const [index, question] of questions.entries()) {
      const startedAt = performance.now()
      route(question, catalogue, CONTEXT)
      times[index]?.push((performance.now() - startedAt) * 1000)
    }
  }
  return times.map(median)
}

function rowsOf(name: string, { p50, p99, peerP50 }: Measured): BenchRow[] {
  const rows = [within(`p99 of a decision over ${name}, µs, against the aim`, p99, P99_MICROSECONDS)]
  if (peerP50.length === 0) return rows
  const rate = (microseconds: number[]) => microseconds.map((time) => 1e6 / time)
  rows.unshift(compare(`decisions a second over ${name}, against gpuhunt`, rate(p50), rate(peerP50), TIMES_GPUHUNT))
  return rows
}

/** A row whose peer is a limit that must not be exceeded. */
function within(what: string, values: number[], limit: number): BenchRow {
  const ours = Math.round(median(values) * 100) / 100
  return { what, ours, peer: limit, ratio: Math.round((limit / ours) * 100) / 100, goal: 1, reached: ours <= limit }
}

async function measureLoads(report: (line: string) => void) {
  const loads = { milliseconds: [] as number[], mebibytes: [] as number[] }
  for (let n = 0; n < LOADS; n++) {
    const { stdout } = await run_(process.execPath, [join(import.meta.dirname, "load-catalogue.ts")])
    const load = JSON.parse(stdout) as { milliseconds: number; mebibytes: number; offers: number }
    loads.milliseconds.push(load.milliseconds)
    loads.mebibytes.push(load.mebibytes)
    report(`loaded ${load.offers} offers in ${load.milliseconds.toFixed(0)} ms, ${load.mebibytes.toFixed(1)} MiB`)
  }
  return loads
}

/** Jobs of all sorts that something in the catalogue can run. */
function questionsFor(catalogue: Catalogue): Requirements[] {
  const random = randomFrom(7)
  const pick = <T>(items: readonly T[]) => items[Math.floor(random() * items.length)] as T
  const questions: Requirements[] = []
  while (questions.length < QUESTIONS) {
    const cpu = pick([1, 1, 2, 4, 8, 16, 32, 48, 64, 96])
    const memory = `${Math.ceil(cpu * pick([0.5, 2, 4, 8, 16]))}Gi`
    const gpu = pick([
      undefined,
      undefined,
      { vram: pick(["12Gi", "24Gi", "80Gi", "320Gi"]) },
      { model: pick(["T4", "L4", "A10G", "L40S", "H100", "H200"]), count: pick([1, 1, 2, 4, 8]) },
    ])
    const requirements = {
      ...requirementsOf(
        { image: "x", resources: { cpu, memory, ...(gpu && { gpu }) } },
        pick([[], [], ["amd64"], ["arm64"]]),
      ),
      clouds: pick([[], [], [pick(["aws", "gcp", "azure"])]]),
      provisioning: pick(["onDemand", "onDemand", "spot"] as const),
    }
    if (route(requirements, catalogue, CONTEXT).placements.length > 0) questions.push(requirements)
  }
  return questions
}

/** gpuhunt from PyPI in a process of its own. */
class Gpuhunt {
  readonly #process: ChildProcessByStdio<Writable, Readable, null>
  readonly #answers: AsyncIterator<string>
  readonly #folder: string

  private constructor(python: string, folder: string) {
    const script = join(import.meta.dirname, "gpuhunt-peer.py")
    this.#process = spawn(python, [script], { stdio: ["pipe", "pipe", "inherit"] })
    this.#answers = createInterface({ input: this.#process.stdout })[Symbol.asyncIterator]()
    this.#folder = folder
  }

  /** Installs it once; undefined, and said so, where it can't be had. */
  static async start(cacheDir: string, report: (line: string) => void): Promise<Gpuhunt | undefined> {
    const venv = join(cacheDir, `gpuhunt-${GPUHUNT}`)
    const python = join(venv, "bin", "python")
    const done = join(venv, "installed")
    try {
      await access(done).catch(async () => {
        report(`installing gpuhunt ${GPUHUNT} from PyPI into ${venv}`)
        await run_("python3", ["-m", "venv", "--clear", venv])
        await run_(python, ["-m", "pip", "install", "--quiet", `gpuhunt==${GPUHUNT}`])
        await writeFile(done, "")
      })
    } catch (error) {
      report(`SKIPPED: no comparison with gpuhunt, as it could not be installed: ${(error as Error).message}`)
      return undefined
    }
    return new Gpuhunt(python, await mkdtemp(join(tmpdir(), "berth-bench-")))
  }

  async load(catalogue: Catalogue): Promise<{ seconds: number; mebibytes: number }> {
    const path = join(this.#folder, "offers.csv")
    const lines: string[] = []
    for (const offer of catalogue.offers()) lines.push(lineOf(offer))
    await writeFile(path, lines.join("\n"))
    return (await this.#send({ load: path })) as { seconds: number; mebibytes: number }
  }

  /** How long each takes, microseconds. @throws Error when an answer is not as cheap as ours, or cheaper */
  async ask(questions: readonly Requirements[], catalogue: Catalogue): Promise<number[]> {
    const asked = questions.filter(({ architectures }) => architectures.length < 2)
    const answers = (await this.#send({ queries: asked.map(queryOf) })) as { seconds: number; usd: number | null }[]
    return answers.map(({ seconds, usd }, index) => {
      const question = asked[index] as Requirements
      const ours = route(question, catalogue, CONTEXT).placements[0]?.offer.hourlyPriceUsd
      if (ours !== usd) throw new Error(`gpuhunt finds ${usd} USD/h, we ${ours}: ${JSON.stringify(question)}`)
      return seconds * 1e6
    })
  }

  async stop(): Promise<void> {
    this.#process.stdin.end()
    if (this.#process.exitCode === null) await once(this.#process, "exit")
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #send(request: object): Promise<unknown> {
    this.#process.stdin.write(`${JSON.stringify(request)}\n`)
    const { value, done } = await this.#answers.next()
    if (done) throw new Error("gpuhunt ended")
    return JSON.parse(value)
  }
}

function lineOf(offer: Offer): string {
  const { cloud, instanceType, region, hourlyPriceUsd, cpu, memoryGib, gpu, provisioning, architecture } = offer
  const cards = [gpu?.count ?? 0, gpu?.model ?? "", gpu?.vramGib ?? 0]
  return [
    cloud,
    instanceType,
    region,
    hourlyPriceUsd,
    cpu,
    memoryGib,
    ...cards,
    Number(provisioning === "spot"),
    architecture,
  ].join(",")
}

function queryOf({ cpu, memoryGib, gpu, clouds, architectures, provisioning }: Requirements): object {
  const [architecture] = architectures
  return {
    provider: clouds.length > 0 ? clouds : ["aws", "gcp", "azure"],
    min_cpu: cpu,
    min_memory: memoryGib,
    spot: provisioning === "spot",
    ...(architecture !== undefined && { cpu_arch: architecture === "arm64" ? "arm" : "x86" }),
    ...(gpu !== undefined && { gpu_vendor: "nvidia", min_gpu_count: gpu.count ?? 0.001 }),
    ...(gpu?.model !== undefined && { gpu_name: gpu.model }),
    ...(gpu?.vramGib !== undefined && { min_total_gpu_memory: gpu.vramGib }),
  }
}
