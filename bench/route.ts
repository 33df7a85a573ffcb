import { execFile } from "node:child_process"
import { join } from "node:path"
import { promisify } from "node:util"
import { cacheDirectory } from "../dev/controlplane/programs.ts"
import { buildOffers } from "../src/market/catalogue/file.ts"
import { partPrices } from "../src/market/catalogue/parts.ts"
import { readPriceList } from "../src/market/catalogue/shipped.ts"
import { Catalogue } from "../src/market/router/catalogue.ts"
import { type Requirements, toRequirements } from "../src/market/router/requirements.ts"
import { route } from "../src/market/router/route.ts"
import { randomFrom } from "../test/random.ts"
import { GPUHUNT, Peer, type PeerAnswer, SKYPILOT } from "./peer.ts"
import {
  type BenchContext,
  type BenchResult,
  type BenchRow,
  compare,
  compareLess,
  median,
  spreadOf,
  within,
} from "./result.ts"
import { syntheticTable } from "./synthetic.ts"

const execute = promisify(execFile)

const ROUNDS = 7
const QUESTIONS = 2000
/**
 * Number of times that a round asks all questions. A question's time is its median, because preemptions are not part of
 * a decision.
 */
const PASSES = 5
/** Maximum number of questions per round that a peer answers: peers need up to a second for each. */
const PEER_QUESTIONS = 5
/** Questions per round that a peer can choose from, because it does not support all of them. */
const QUESTIONS_A_ROUND = 100
const LOADS = 7

/** Goals of the project. */
const P99_MICROSECONDS = 1000
const LOAD_MILLISECONDS = 150
const TIMES_PEER = 100

const CONTEXT = {
  launchAccounts: ["aws", "gcp", "azure"].map((cloud) => ({ cloud })),
  cooldowns: [],
  room: {},
  expectedSeconds: 3600,
  now: new Date("2026-11-01T00:00:00Z"),
}

/**
 * Measures one decision over the real catalogue and over synthetic ones, in turns with peers over the same offers. So
 * other load of the machine affects all of them. Each peer gets the questions that it supports. gpuhunt (dstack's
 * matching) searches for the same optimum, so each of its answers must equal Berth's. SkyPilot's optimizer chooses from
 * fewer families: its answers may be more expensive, never cheaper, and the ratio is reported. It knows machine types
 * by name, so it gets only the real catalogue.
 */
export async function run({ report, cacheHome }: BenchContext): Promise<BenchResult> {
  const cacheDir = cacheDirectory(cacheHome)
  const gpuhunt = await Peer.start(GPUHUNT, cacheDir, report)
  const skypilot = await Peer.start(SKYPILOT, cacheDir, report)
  const everywhere = gpuhunt === undefined ? [] : [gpuhunt]
  const rows: BenchRow[] = []
  const spread: Record<string, [number, number]> = {}
  const measureOver = async (name: string, catalogue: Catalogue, peers: Peer[]) => {
    const measured = await measure(catalogue, peers, (line) => report(`${name}, ${line}`))
    rows.push(...rowsOf(name, measured))
    spread[`p99 of a decision over ${name}, µs`] = spreadOf(measured.p99)
    const prices = measured.peers.get(SKYPILOT.name)?.prices ?? []
    if (prices.length > 0) spread["price of SkyPilot's pick, times ours"] = spreadOf(prices.map(timesOurs))
  }
  try {
    const real = new Catalogue(buildOffers(readPriceList()), partPrices())
    await measureOver("the real catalogue", real, skypilot === undefined ? everywhere : [...everywhere, skypilot])
    for (const size of [100_000, 1_000_000]) {
      await measureOver(`${size.toLocaleString("en")} offers`, new Catalogue(syntheticTable(size)), everywhere)
    }
  } finally {
    await gpuhunt?.stop()
    await skypilot?.stop()
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
  peers: Map<string, PeerMeasured>
}

interface PeerMeasured {
  /** By round. Microseconds. */
  p50: number[]
  /** By question that both found something for, US dollars an hour. */
  prices: { ours: number; theirs: number }[]
  /** Questions for which only Berth found something. */
  unanswered: number
}

async function measure(catalogue: Catalogue, peers: Peer[], report: (line: string) => void): Promise<Measured> {
  const questions = questionsFor(catalogue)
  const measured: Measured = { p50: [], p99: [], peers: new Map() }
  for (const peer of peers) {
    const { seconds } = await peer.load(catalogue)
    report(`${peer.name} loaded ${catalogue.size} offers in ${seconds.toFixed(1)} s`)
    measured.peers.set(peer.name, { p50: [], prices: [], unanswered: 0 })
  }
  for (let round = 0; round <= ROUNDS; round++) {
    const times = timesOf(questions, catalogue).sort((a, b) => a - b)
    const [p50, p99] = [times[Math.floor(times.length / 2)] ?? 0, times[Math.floor(times.length * 0.99)] ?? 0]
    measured.p50.push(p50)
    measured.p99.push(p99)
    const line = [`round ${round} of ${ROUNDS}, µs a decision: p50 ${p50.toFixed(1)}, p99 ${p99.toFixed(1)}`]
    const asked = questions.slice(round * QUESTIONS_A_ROUND, (round + 1) * QUESTIONS_A_ROUND)
    for (const peer of peers) {
      const answers = await peer.ask(asked, PEER_QUESTIONS)
      const theirs = measured.peers.get(peer.name) as PeerMeasured
      theirs.p50.push(median(answers.map(({ seconds }) => seconds * 1e6)))
      line.push(`${peer.name} ${Math.round(theirs.p50.at(-1) ?? 0)}`)
      for (const answer of answers) judge(peer.name, answer, { catalogue, theirs })
    }
    report(line.join(", "))
  }
  // The first round warmed up.
  for (const times of [measured.p50, measured.p99, ...[...measured.peers.values()].map(({ p50 }) => p50)]) times.shift()
  return measured
}

/**
 * Compares a peer's answer with Berth's. @throws Error if the peer finds something cheaper, or does not find an offer
 * that it should
 */
function judge(
  name: string,
  { question, usd }: PeerAnswer,
  { catalogue, theirs }: { catalogue: Catalogue; theirs: PeerMeasured },
): void {
  // Peers know the price of the machine only, and take all of its memory for the job.
  const asked: Requirements = { ...question, memoryOf: "machine" }
  const ours = route(asked, new Catalogue(catalogue.table), CONTEXT).placements[0]?.offer.hourlyPriceUsd
  if (ours === undefined) throw new Error(`Berth finds nothing for ${JSON.stringify(question)}`)
  const mayBeDearer = name !== GPUHUNT.name
  if (usd === null && mayBeDearer) theirs.unanswered++
  else if (usd === null || usd < ours * (1 - 1e-9) || (usd !== ours && !mayBeDearer))
    throw new Error(`${name} finds ${usd} USD/h, Berth ${ours}: ${JSON.stringify(question)}`)
  else theirs.prices.push({ ours, theirs: usd })
}

/** Returns the time of each question, microseconds. */
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

function rowsOf(name: string, { p50, p99, peers }: Measured): BenchRow[] {
  const rate = (microseconds: number[]) => microseconds.map((time) => 1e6 / time)
  const rows = [...peers].map(([peer, theirs]) =>
    compare(`decisions a second over ${name}, against ${peer}`, rate(p50), rate(theirs.p50), TIMES_PEER),
  )
  const { prices = [], unanswered = 0 } = peers.get(SKYPILOT.name) ?? {}
  if (prices.length > 0) {
    const [ours, theirs] = [prices.map((price) => price.ours), prices.map((price) => price.theirs)]
    const questions = `${prices.length} questions${unanswered === 0 ? "" : `, ${unanswered} more had no answer from it`}`
    rows.push(compareLess(`USD an hour of the pick over ${name}, against SkyPilot (${questions})`, ours, theirs, 1))
  }
  return [...rows, within(`p99 of a decision over ${name}, µs, against the aim`, p99, P99_MICROSECONDS)]
}

function timesOurs({ ours, theirs }: { ours: number; theirs: number }): number {
  return theirs / ours
}

async function measureLoads(report: (line: string) => void) {
  const loads = { milliseconds: [] as number[], mebibytes: [] as number[] }
  for (let n = 0; n < LOADS; n++) {
    const { stdout } = await execute(process.execPath, [join(import.meta.dirname, "load-catalogue.ts")])
    const load = JSON.parse(stdout) as { milliseconds: number; mebibytes: number; offers: number }
    loads.milliseconds.push(load.milliseconds)
    loads.mebibytes.push(load.mebibytes)
    report(`loaded ${load.offers} offers in ${load.milliseconds.toFixed(0)} ms, ${load.mebibytes.toFixed(1)} MiB`)
  }
  return loads
}

/** Returns jobs of all kinds that some offer of the catalogue can run. */
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
      ...toRequirements(
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
