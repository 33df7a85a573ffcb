import type { Pool } from "undici"
import type { JobList } from "../src/api/resources/jobs/groups.ts"
import type { JobSubmission } from "../src/api/resources/jobs/schema.ts"
import { toJob } from "../src/api/resources/jobs/submission.ts"
import { systemClock } from "../src/core/apis/clock.ts"
import { CreationTimes } from "../src/core/apis/creation-times.ts"
import type { StoredJob } from "../src/core/apis/job.ts"
import type { KubeClient } from "../src/core/kube/client.ts"
import { JOBS } from "../src/core/resources.ts"
import { type BenchProject, type FacadeStack, startFacadeStack } from "./facade-stack.ts"
import {
  type BenchContext,
  type BenchResult,
  type BenchRow,
  compare,
  compareLess,
  type Measured,
  spreadOf,
  within,
} from "./result.ts"

const CONCURRENCY = 32
const ROUNDS = 7
const SECONDS_PER_TURN = 2
const LIST_ROUNDS = 7
const LISTS_PER_TURN = 300
const SIZES = [1000, 50_000]
const LIMIT = 50

/** Goals of the project. */
const POST_THROUGHPUT = 0.8
const POST_P99 = 1 / 1.3
/** Limit of a page of 50 among all jobs: a person doesn't notice it. */
const PAGE_MS = 50

/**
 * Measures the cost of the façade. Compares POST /1/jobs with a direct create of the same Job, and GET /1/jobs with the
 * API server's own list. Uses projects of different sizes, and each kind of filter. All turns share one API server, so
 * that other load of the machine affects all of them. Checks totals and pages against an oracle that reads everything.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const stack = await startFacadeStack(context, CONCURRENCY)
  try {
    const posts = await measurePosts(stack, context)
    const lists = await measureLists(stack, context)
    return { name: "facade", rows: [...posts.rows, ...lists.rows], spread: { ...posts.spread, ...lists.spread } }
  } finally {
    await stack.stop()
  }
}

async function measurePosts(
  stack: FacadeStack,
  { report, seconds = SECONDS_PER_TURN }: BenchContext,
): Promise<Measured> {
  const project = await stack.makeProject("posts")
  const rates = { facade: [] as number[], direct: [] as number[] }
  const p99s = { facade: [] as number[], direct: [] as number[] }
  const creators = { facade: throughFacade(stack.facade, project), direct: directly(stack.client, project) }
  // The first round warms up.
  for (let round = 0; round <= ROUNDS; round++) {
    const turns = ["facade", "direct"] as const
    const line: string[] = []
    for (const turn of round % 2 === 0 ? turns : turns.toReversed()) {
      const times = await loadOf(seconds, (n) => creators[turn](submissionOf(n, `${turn}-${round}-${n}`)))
      const [rate, p99] = [times.length / seconds, quantile(times, 0.99)]
      line.push(`${turn} ${Math.round(rate)}/s, p99 ${p99.toFixed(1)} ms`)
      if (round === 0) continue
      rates[turn].push(rate)
      p99s[turn].push(p99)
    }
    report(`POST, round ${round} of ${ROUNDS}: ${line.join("; ")}`)
  }
  return {
    rows: [
      compare("POST /1/jobs a second, against direct creates", rates.facade, rates.direct, POST_THROUGHPUT),
      compareLess("POST /1/jobs, p99 in ms, against direct creates", p99s.facade, p99s.direct, POST_P99),
    ],
    spread: { "POST /1/jobs a second": spreadOf(rates.facade), "direct creates a second": spreadOf(rates.direct) },
  }
}

type Create = (submission: JobSubmission & { name: string }) => Promise<void>

function throughFacade(facade: Pool, { headers }: BenchProject): Create {
  return async (submission) => {
    const { statusCode, body } = await facade.request({
      method: "POST",
      path: "/1/jobs",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify(submission),
    })
    const text = await body.text()
    if (statusCode !== 201) throw new Error(`POST /1/jobs: ${statusCode} ${text}`)
  }
}

const creationTimes = new CreationTimes(systemClock)

function directly(client: KubeClient, project: BenchProject): Create {
  return async (submission) => void (await client.create(JOBS, newJob(submission, project)))
}

function newJob(submission: JobSubmission & { name: string }, { name: namespace }: BenchProject): StoredJob {
  return toJob(submission, { namespace, name: submission.name, createdAt: creationTimes.next() }) as StoredJob
}

/** Returns the milliseconds of each call; CONCURRENCY workers make calls for this many seconds. */
async function loadOf(seconds: number, call: (n: number) => Promise<void>): Promise<number[]> {
  const times: number[] = []
  const endsAt = performance.now() + seconds * 1000
  let next = 0
  const worker = async (): Promise<void> => {
    while (performance.now() < endsAt) {
      const startedAt = performance.now()
      await call(next++)
      times.push(performance.now() - startedAt)
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, worker))
  return times
}

/** Returns a typical job: with a team, a stage, a few tags, and sometimes cancelled. */
function submissionOf(n: number, name: string): JobSubmission & { name: string } {
  return {
    name,
    image: "registry.example/team/trainer:1.4.2",
    command: ["python", "train.py"],
    args: ["--epochs", "3"],
    env: { MODEL: "small", RUN: String(n) },
    resources: { cpu: 2, memory: "8Gi" },
    labels: { team: `team-${n % 4}`, run: `run-${n}` },
    tags: n % 3 === 0 ? ["nightly", "gpu"] : ["adhoc"],
  }
}

interface Filter {
  name: string
  query: string
  passes: (job: StoredJob) => boolean
  /** The API server's own selector; absent if it has no such filter. */
  peer?: { labelSelector?: string }
  /** Position in the list, as a share of all jobs. */
  depth?: number
}

const isCancelled = (job: StoredJob): boolean => job.spec.cancelled === true
const isNightly = (job: StoredJob): boolean => job.spec.tags?.includes("nightly") ?? false
const isOfTeam1 = (job: StoredJob): boolean => job.spec.labels?.["team"] === "team-1"

const FILTERS: Filter[] = [
  { name: "no filter", query: "", passes: () => true, peer: {} },
  { name: "status", query: "status=cancelled", passes: isCancelled },
  { name: "tag", query: "tag=nightly", passes: isNightly },
  { name: "label", query: "label=team:team-1", passes: isOfTeam1, peer: { labelSelector: "team=team-1" } },
  {
    name: "status, tag and label",
    query: "status=cancelled&tag=nightly&tag=gpu&label=team:team-1",
    passes: (job) => isCancelled(job) && isNightly(job) && isOfTeam1(job),
  },
  { name: "no filter, from the middle on", query: "", passes: () => true, depth: 0.5 },
]

/** A project with this many jobs. */
interface Filled extends BenchProject {
  size: number
  /** Newest first. */
  jobs: StoredJob[]
}

async function measureLists(stack: FacadeStack, { report, sizes = SIZES }: BenchContext): Promise<Measured> {
  const projects: Filled[] = []
  for (const size of sizes) projects.push(await fill(stack, size, report))
  for (const project of projects) await caughtUp(stack.facade, project)
  const p99s = new Map<string, number[]>()
  const judged = { right: 0, asked: 0 }
  for (let round = 0; round <= LIST_ROUNDS; round++) {
    // The first round warms up: its results are dropped.
    const kept = round === 0 ? new Map<string, number[]>() : p99s
    for (const filter of FILTERS) await measureTurn(stack, { projects, filter, judged }, kept)
    const shown = projects.map(({ size }) => `${size}: ${kept.get(`${size} no filter`)?.at(-1)?.toFixed(1)}`)
    report(`GET, round ${round} of ${LIST_ROUNDS}, p99 in ms without a filter: ${shown.join(", ")}`)
  }
  return listResult(sizes, p99s, judged)
}

/**
 * Measures one turn of one filter. Queries the projects one after the other, page by page, and then the API server in
 * the same way. A 99th percentile consists of rare slow moments of the machine, so this order spreads them over all
 * sizes.
 */
async function measureTurn(stack: FacadeStack, turn: Turn, p99s: Map<string, number[]>): Promise<void> {
  const { projects, filter } = turn
  const through = await listsThroughFacade(stack.facade, turn)
  for (const { size } of projects) note(p99s, keyOf(size, filter), quantile(through.get(size) ?? [], 0.99))
  if (filter.peer === undefined) return
  const direct = await listsOfApiServer(stack.client, projects, filter.peer)
  for (const { size } of projects) note(p99s, `${keyOf(size, filter)} peer`, quantile(direct.get(size) ?? [], 0.99))
}

function listResult(sizes: readonly number[], p99s: ReadonlyMap<string, number[]>, judged: Judged): Measured {
  const rows: BenchRow[] = []
  const spread: BenchResult["spread"] = {}
  const of = (key: string): number[] => p99s.get(key) ?? []
  const largest = Math.max(...sizes)
  for (const filter of FILTERS) {
    const what = `GET /1/jobs, p99 in ms, ${filter.name}`
    for (const size of filter.peer === undefined ? [] : sizes) {
      const key = keyOf(size, filter)
      rows.push(compareLess(`${what}, of ${count(size)}, against the API server's list`, of(key), of(`${key} peer`), 1))
    }
    const large = of(keyOf(largest, filter))
    rows.push(within(`${what}, of ${count(largest)}, against the limit`, large, PAGE_MS))
    spread[`${what}, of ${count(largest)}`] = spreadOf(large)
  }
  const { right, asked } = judged
  const ratio = right / asked
  rows.push({
    what: "totals and pages as the oracle's",
    ours: right,
    peer: asked,
    ratio,
    goal: 1,
    reached: ratio === 1,
  })
  return { rows, spread }
}

async function fill(
  { client, makeProject }: FacadeStack,
  size: number,
  report: BenchContext["report"],
): Promise<Filled> {
  const project = await makeProject(`jobs-${size}`)
  const startedAt = performance.now()
  const jobs: StoredJob[] = []
  let next = 0
  const worker = async (): Promise<void> => {
    while (next < size) {
      const n = next++
      const job = newJob(submissionOf(n, `job-${n}`), project)
      if (n % 2 === 1) job.spec.cancelled = true
      jobs[n] = job
      await client.create(JOBS, job)
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, worker))
  report(`made ${count(size)} in ${((performance.now() - startedAt) / 1000).toFixed(0)} s`)
  return { ...project, size, jobs: jobs.reverse() }
}

async function caughtUp(facade: Pool, project: Filled): Promise<void> {
  for (const deadline = performance.now() + 30_000; ; ) {
    const { total } = await page(facade, project, "limit=1")
    if (total === project.size) return
    if (performance.now() > deadline) throw new Error(`the façade has ${total} of ${project.size} jobs`)
  }
}

interface Judged {
  right: number
  asked: number
}

interface Turn {
  projects: readonly Filled[]
  filter: Filter
  judged: Judged
}

/**
 * Returns the milliseconds of some lists, by the projects' size. Checks each list against the oracle, outside the
 * measured time.
 */
async function listsThroughFacade(facade: Pool, { projects, filter, judged }: Turn): Promise<Map<number, number[]>> {
  const views = projects.map((project) => viewOf(project, filter))
  const times = new Map<number, number[]>()
  for (let n = 0; n < LISTS_PER_TURN; n++) {
    for (const view of n % 2 === 0 ? views : views.toReversed()) {
      const offset = view.start + (n % view.pages) * LIMIT
      const startedAt = performance.now()
      const list = await page(facade, view.project, `${filter.query}&limit=${LIMIT}&offset=${offset}`)
      note(times, view.project.size, performance.now() - startedAt)
      judged.asked++
      if (isRight(list, view, offset)) judged.right++
    }
  }
  return times
}

/** Expected answer of the façade to a filter. */
interface View {
  project: Filled
  names: string[]
  start: number
  /** Full pages, so that all projects' answers have the same size. */
  pages: number
}

function viewOf(project: Filled, { passes, depth = 0 }: Filter): View {
  const names = project.jobs.filter(passes).map(({ metadata }) => metadata.name)
  const start = Math.floor(names.length * depth)
  return { project, names, start, pages: Math.min(10, Math.floor((names.length - start) / LIMIT)) || 1 }
}

function isRight({ total, jobs }: JobList, { names }: View, offset: number): boolean {
  const expected = names.slice(offset, offset + LIMIT)
  return total === names.length && jobs.map(({ name }) => name).join() === expected.join()
}

async function page(facade: Pool, { headers }: BenchProject, query: string): Promise<JobList> {
  const { statusCode, body } = await facade.request({ method: "GET", path: `/1/jobs?${query}`, headers })
  if (statusCode !== 200) throw new Error(`GET /1/jobs?${query}: ${statusCode} ${await body.text()}`)
  return (await body.json()) as JobList
}

async function listsOfApiServer(
  client: KubeClient,
  projects: readonly Filled[],
  selection: NonNullable<Filter["peer"]>,
): Promise<Map<number, number[]>> {
  const times = new Map<number, number[]>()
  for (let n = 0; n < LISTS_PER_TURN; n++) {
    for (const { name: namespace, size } of n % 2 === 0 ? projects : projects.toReversed()) {
      const startedAt = performance.now()
      await client.list(JOBS, { namespace, limit: LIMIT, ...selection })
      note(times, size, performance.now() - startedAt)
    }
  }
  return times
}

function keyOf(size: number, { name }: Filter): string {
  return `${size} ${name}`
}

function note<Key>(values: Map<Key, number[]>, key: Key, value: number): void {
  const known = values.get(key)
  if (known === undefined) values.set(key, [value])
  else known.push(value)
}

function count(size: number): string {
  return `${size.toLocaleString("en")} jobs`
}

function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN
}
