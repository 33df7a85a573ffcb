import { randomUUID } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Pool } from "undici"
import { CACHE_OPTIONS } from "../src/api/caches.ts"
import type { JobGroupList, JobList } from "../src/api/resources/jobs/groups.ts"
import type { StoredJob } from "../src/core/apis/job.ts"
import { Reflector } from "../src/core/kube/reflector.ts"
import { JOBS } from "../src/core/resources.ts"
import { createLogger } from "../src/core/telemetry/logger.ts"
import { Etcd } from "./api-server.ts"
import { BerthStack, PROJECT } from "./berth-stack.ts"
import { type BenchProject, makeProject } from "./facade-stack.ts"
import { usageOf } from "./program.ts"
import { type BenchContext, type BenchResult, type BenchRow, type Measured, spreadOf, within } from "./result.ts"

const SIZE = 50_000
const SAMPLES = 4
const ROUNDS = 5
const PAGES_PER_ROUND = 100
const SEARCHES_PER_ROUND = 20
const LIMIT = 50
const PATIENCE_SECONDS = 300

/** Goals of the project. */
const KIB_AN_OBJECT = 2.2
const START_SECONDS_OF_100_000 = 20
/** Limit of a page of 50 among all jobs: a person doesn't notice it. */
const PAGE_MS = 50
/** Limit of a page in another order, or by origin: a person waits for it. */
const SEARCH_MS = 1000

/**
 * Measures the cost of ended jobs for the façade: heap of each, its start with a warm API server, and pages of GET
 * /1/jobs and /1/job-groups of a project with all of them. The jobs are copies of jobs that ran completely, each with its own name, uid,
 * times and label. They are written into etcd as the API server had stored them.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const [size = SIZE] = context.sizes ?? []
  const stack = await BerthStack.start(context)
  const etcd = await Etcd.open(stack.controlPlane)
  try {
    const samples = await endedSamples(stack, etcd)
    const project = { ...(await makeProject(stack.client, "ended")), size }
    await stack.stopPrograms()
    await etcd.write(copiesOf(samples, project))
    await stack.restartApiServer()
    const memory = await measureMemory(stack, size, context.report)
    const { facade } = await stack.startPrograms()
    const { cpuSeconds } = await usageOf(facade.pid)
    context.report(`the façade was ready after ${facade.startSeconds.toFixed(1)} s, of CPU ${cpuSeconds.toFixed(1)} s`)
    const limit = Math.max(3, (START_SECONDS_OF_100_000 * size) / 100_000)
    const start = within(
      `start of the façade with ${inWords(size)}, server warm, s`,
      [facade.startSeconds],
      Math.round(limit),
    )
    const pages = await measurePages(stack, project, context)
    return { name: "ended", rows: [memory, start, ...pages.rows], spread: pages.spread }
  } finally {
    await etcd.close()
    await stack.stop()
  }
}

interface Filled extends BenchProject {
  size: number
}

/** Lets jobs run to their ends. Returns their stored objects. */
async function endedSamples(stack: BerthStack, etcd: Etcd): Promise<string[]> {
  const names = Array.from({ length: SAMPLES }, (_, n) => `sample-${n}`)
  await stack.submitAll(
    names.map((name, n) => ({
      name,
      image: "busybox",
      command: ["sleep", "0"],
      env: { RUN: name, STAGE: "test" },
      labels: { team: `team-${n}`, run: name },
      tags: n % 2 === 0 ? ["nightly", "gpu"] : ["adhoc"],
    })),
  )
  const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
  const isOver = async (name: string): Promise<boolean> =>
    (await stack.client.get(JOBS, { namespace: PROJECT, name })).status?.cost?.actualUsd !== undefined
  for (const name of names) while (!(await isOver(name))) await delay(200, undefined, { signal })
  return Promise.all(names.map((name) => etcd.read(`jobs/${PROJECT}/${name}`)))
}

const TIME = /"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"/g

/** Yields copies for a project. Each is a second newer than the one before. */
function* copiesOf(samples: readonly string[], { name, size }: Filled): Generator<readonly [string, string]> {
  for (let n = 0; n < size; n++) {
    const sample = samples[n % samples.length] as string
    const { metadata } = JSON.parse(sample) as StoredJob
    const later = (quoted: string, fraction = ""): string => {
      const time = new Date(Date.parse(quoted.slice(1, 20).concat("Z")) - (size - n) * 1000)
      return `"${time.toISOString().slice(0, 19)}${fraction}Z"`
    }
    const json = sample
      .replaceAll(metadata.uid, randomUUID())
      .replaceAll(metadata.name, `copy-${n}`)
      .replaceAll(`"namespace":"${PROJECT}"`, `"namespace":"${name}"`)
      .replaceAll(TIME, later)
    yield [`jobs/${name}/copy-${n}`, json]
  }
}

/** Measures the heap of the jobs in the façade's own cache, filled twice: the first time warms the server. */
async function measureMemory({ client }: BerthStack, count: number, report: BenchContext["report"]): Promise<BenchRow> {
  setFlagsFromString("--expose-gc")
  const gc = runInNewContext("gc") as () => void
  // Several collections: finalizers and buffers of one are freed in the next.
  const heap = async (): Promise<number> => {
    for (let n = 0; n < 4; n++) {
      gc()
      await delay(250)
    }
    return process.memoryUsage().heapUsed
  }
  const before = await heap()
  const first = await listed(client)
  const kibibytes = ((await heap()) - before) / 1024 / first.size
  report(`${first.size} jobs listed in ${first.seconds.toFixed(1)} s, server cold; ${kibibytes.toFixed(2)} KiB each`)
  await first.stop()
  const second = await listed(client)
  report(`the same in ${second.seconds.toFixed(1)} s, server warm`)
  await second.stop()
  return within(`heap of the façade's cache for each of ${inWords(count)}, KiB`, [kibibytes], KIB_AN_OBJECT)
}

/** Fills the façade's cache of jobs. */
async function listed(client: BerthStack["client"]) {
  const ending = new AbortController()
  const startedAt = performance.now()
  const logger = createLogger({ level: "warn", name: "bench" })
  const jobs = new Reflector<StoredJob>({ client, logger, ...CACHE_OPTIONS.jobs })
  const running = jobs.run(ending.signal)
  await jobs.whenSynced(AbortSignal.timeout(PATIENCE_SECONDS * 1000))
  const stop = (): Promise<void> => {
    ending.abort()
    return running
  }
  return { seconds: (performance.now() - startedAt) / 1000, size: jobs.store.size, stop }
}

interface Filter {
  name: string
  /** Default: jobs. */
  path?: "jobs" | "job-groups"
  query: string
  /** Position of the first page, as a share of all jobs. */
  depth?: number
}

const FILTERS: Filter[] = [
  { name: "no filter", query: "" },
  { name: "status", query: "status=succeeded" },
  { name: "label", query: "label=team:team-1" },
  { name: "tag", query: "tag=nightly" },
  { name: "no filter, from 90 % on", query: "", depth: 0.9 },
]

/** Lists whose cost grows with the number of jobs. */
const SEARCHES: Filter[] = [
  { name: "a part of the name", query: "name_contains=opy-" },
  { name: "sorted by name", query: "sort_by=name&sort_order=asc" },
  { name: "sorted by cost", query: "sort_by=cost" },
  { name: "sorted by run time, from 90 % on", query: "sort_by=run_time", depth: 0.9 },
  { name: "by origin", path: "job-groups", query: "" },
  { name: "by origin, sorted by name", path: "job-groups", query: "sort_by=name" },
]

async function measurePages({ url }: BerthStack, project: Filled, { report }: BenchContext): Promise<Measured> {
  const pool = new Pool(url, { connections: 1 })
  const filters = [...FILTERS, ...SEARCHES]
  const p99s = new Map(filters.map((filter) => [filter, [] as number[]]))
  for (let round = 0; round <= ROUNDS; round++) {
    for (const filter of filters) {
      const p99 = await measureRound(pool, project, filter)
      report(`round ${round}, ${filter.name}: ${p99.toFixed(1)} ms`)
      // The first round warms up.
      if (round > 0) p99s.get(filter)?.push(p99)
    }
  }
  await pool.close()
  const of = (filter: Filter): number[] => p99s.get(filter) ?? []
  const what = ({ name, path = "jobs" }: Filter): string =>
    `GET /1/${path}, p99 in ms, ${name}, of ${inWords(project.size)}`
  return {
    rows: filters.map((filter) => within(what(filter), of(filter), SEARCHES.includes(filter) ? SEARCH_MS : PAGE_MS)),
    spread: Object.fromEntries(filters.map((filter) => [what(filter), spreadOf(of(filter))])),
  }
}

/** Returns the 99th percentile, ms. */
async function measureRound(pool: Pool, project: Filled, filter: Filter): Promise<number> {
  const times: number[] = []
  const pages = SEARCHES.includes(filter) ? SEARCHES_PER_ROUND : PAGES_PER_ROUND
  for (let n = 0; n < pages; n++) times.push(await readPage(pool, project, filter, n))
  return quantile(times, 0.99)
}

/** Returns the milliseconds of one page. @throws Error if it is not a full page */
async function readPage(pool: Pool, { headers, size }: Filled, filter: Filter, n: number) {
  const { path: list = "jobs", query, depth = 0 } = filter
  const offset = Math.floor((size - 2 * LIMIT) * depth) + (depth === 0 ? (n % 4) * LIMIT : n % LIMIT)
  const path = `/1/${list}?${query}&limit=${LIMIT}&offset=${offset}`
  const startedAt = performance.now()
  const { statusCode, body } = await pool.request({ method: "GET", path, headers })
  const text = await body.text()
  const milliseconds = performance.now() - startedAt
  if (statusCode !== 200) throw new Error(`GET ${path}: ${statusCode} ${text}`)
  const { jobs = [], groups = [] } = JSON.parse(text) as Partial<JobList & JobGroupList>
  const found = jobs.length + groups.length
  if (found !== LIMIT) throw new Error(`GET ${path}: ${found} rows instead of ${LIMIT}`)
  return milliseconds
}

function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN
}

function inWords(count: number): string {
  return `${count.toLocaleString("en")} ended jobs`
}
