import { setTimeout as delay } from "node:timers/promises"
import { events } from "../src/core/kube/events.ts"
import { JOBS, LAUNCHES } from "../src/core/resources.ts"
import { sumOf, WRITTEN_GROUPS, type WriteKind, type Writes, writesBetween } from "./api-server.ts"
import { BareWriter } from "./bare-writes.ts"
import { BerthStack, cpuOfJob, JobWatch, PROJECT, type ProgramCpu } from "./berth-stack.ts"
import { SYSTEM_NAMESPACE, usageOf } from "./program.ts"
import { type BenchContext, type BenchResult, compare, spreadOf, within } from "./result.ts"

const JOB_COUNT = 5000
const ROUNDS = 5
/** Enough to warm up code, connections and caches. */
const WARM_UP_JOBS = 300
const BARE_SECONDS = 5
const PATIENCE_SECONDS = 600
/** Long enough that a job is observed as running, like any real one. */
const RUN_SECONDS = "2"

/** Floor: Berth must not get worse than this. */
const SERVER_MS = 58
/** Goals of the project. */
const OWN_MS = 18
const WRITES_A_JOB = 13.2
/** Writes that remove finalizers. They are parts of the deletion, which `steady` counts with them. */
const OF_DELETION: readonly WriteKind[] = ["PATCH jobs", "PATCH launches"]
/** `Placed`, with the VM, and the end. */
export const EVENTS_A_JOB = 2
export const EVENTS_WRITTEN = 0.999
const SHARE_OF_CEILING = 0.7
const MEMORY_MIB = 512

/**
 * Measures jobs from POST to their end, on a real API server. They pass through façade, operator, a simulated cloud and
 * the gateway. In turns, a bare client makes the same writes at the server's maximum speed. The ratio of the writes a
 * second shows how much of the server's speed reaches the jobs. All programs share the machine's cores.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const stack = await BerthStack.start(context)
  const watch = new JobWatch(stack)
  try {
    return await measure(stack, watch, context)
  } finally {
    await watch.stop()
    await stack.stop()
  }
}

async function measure(stack: BerthStack, watch: JobWatch, context: BenchContext): Promise<BenchResult> {
  const { sizes = [JOB_COUNT], seconds = BARE_SECONDS, report } = context
  const perRound = Math.ceil((sizes[0] ?? JOB_COUNT) / ROUNDS)
  const runner = new JobRunner(stack, watch)
  const warmUp = await runner.run(Math.min(WARM_UP_JOBS, perRound))
  const bare = await BareWriter.prepare(stack, await written(stack), warmUp)
  await bare.run(seconds)
  const turns: Turn[] = []
  const ceilings: number[] = []
  for (let round = 1; round <= ROUNDS; round++) {
    const ceiling = await bare.run(seconds)
    const turn = await runner.run(perRound)
    const after = await bare.run(seconds)
    turns.push(turn)
    ceilings.push((ceiling + after) / 2)
    report(`round ${round} of ${ROUNDS}: ${lineOf(turn)}; bare ${ceiling.toFixed(0)} and ${after.toFixed(0)} writes/s`)
  }
  for (const [kind, count] of [...(turns.at(-1)?.writes ?? [])].sort(([, a], [, b]) => b - a)) {
    report(`${kind}: ${(count / perRound).toFixed(2)} a job`)
  }
  return await told(stack, turns, ceilings)
}

/** Result of running a number of jobs. */
export interface Turn {
  jobs: number
  jobsPerSecond: number
  /** Made while jobs were in progress. */
  writesPerSecond: number
  /** All, until the last VM is deleted. */
  writes: Writes
  /** Milliseconds a job. */
  cpu: ProgramCpu
}

/** Runs jobs to their end, a number of them at a time. */
export class JobRunner {
  readonly #stack: BerthStack
  readonly #watch: JobWatch
  #ended = 0

  constructor(stack: BerthStack, watch: JobWatch) {
    this.#stack = stack
    this.#watch = watch
  }

  /** Submits them over REST and waits until all have succeeded, and then until their VMs are deleted. */
  async run(jobs: number): Promise<Turn> {
    const { api } = this.#stack
    const before = await api.writes(WRITTEN_GROUPS)
    const cpuBefore = await this.#stack.cpuSeconds()
    const submissions = Array.from({ length: jobs }, (_, n) => submissionOf(this.#ended + n))
    const startedAt = performance.now()
    await this.#stack.submitAll(submissions)
    this.#ended += jobs
    await this.#watch.untilEnded(this.#ended, PATIENCE_SECONDS)
    const elapsed = (performance.now() - startedAt) / 1000
    const atEnd = await api.writes(WRITTEN_GROUPS)
    await this.#untilVmsGone()
    const cpu = await this.#stack.cpuSeconds()
    return {
      jobs,
      jobsPerSecond: jobs / elapsed,
      writesPerSecond: sumOf(writesBetween(before, atEnd)) / elapsed,
      writes: writesBetween(before, await api.writes(WRITTEN_GROUPS)),
      cpu: cpuOfJob(cpuBefore, cpu, jobs),
    }
  }

  async #untilVmsGone(): Promise<void> {
    const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
    while ((await this.#stack.metric("operator", "berth_vms")) > 0) await delay(500, undefined, { signal })
  }
}

function submissionOf(n: number): object {
  const resources = { cpu: 1 + (n % 4), memory: "2Gi" }
  return {
    name: `job-${n}`,
    image: "busybox",
    command: ["sleep", RUN_SECONDS],
    labels: { team: `team-${n % 10}` },
    resources,
  }
}

/** Returns a job that has ended, with the objects that belong to it. */
async function written({ client }: BerthStack) {
  const { items } = await client.list(JOBS, { namespace: PROJECT, limit: 1 })
  const [job] = items
  if (job === undefined) throw new Error("there is no job to make bare writes like")
  const launch = await client.get(LAUNCHES, { namespace: SYSTEM_NAMESPACE, name: job.status?.launches?.current ?? "" })
  const fieldSelector = `involvedObject.uid=${job.metadata.uid}`
  const [event] = (await client.list(events, { namespace: PROJECT, fieldSelector, limit: 1 })).items
  if (event === undefined) throw new Error(`job ${job.metadata.name} has no events`)
  return { job, launch, event }
}

function withoutDeletion(writes: Writes): Writes {
  return new Map([...writes].filter(([kind]) => !OF_DELETION.includes(kind)))
}

function lineOf({ jobsPerSecond, writesPerSecond, writes, jobs, cpu }: Turn): string {
  const rates = `${jobsPerSecond.toFixed(1)} jobs/s, ${writesPerSecond.toFixed(0)} writes/s, ${(sumOf(writes) / jobs).toFixed(2)} a job`
  const [operator, facade, server] = [cpu.operator, cpu.facade, cpu.server].map((ms) => ms.toFixed(1))
  return `${rates}; CPU ms a job: operator ${operator}, façade ${facade}, API server and etcd ${server}`
}

async function told(stack: BerthStack, turns: readonly Turn[], ceilings: number[]): Promise<BenchResult> {
  const { operator, facade } = stack.programs
  const [operatorUsage, facadeUsage] = [await usageOf(operator.pid), await usageOf(facade.pid)]
  const writesPerSecond = turns.map((turn) => turn.writesPerSecond)
  const writesPerJob = turns.map(({ writes, jobs }) => sumOf(writes) / jobs)
  const writesOfLife = turns.map(({ writes, jobs }) => sumOf(withoutDeletion(writes)) / jobs)
  const serverCpu = turns.map(({ cpu }) => cpu.server)
  const jobsPerSecond = turns.map((turn) => turn.jobsPerSecond)
  const all = turns.reduce((sum, { jobs }) => sum + jobs, 0).toLocaleString("en")
  const eventsPerJob = turns.map(({ writes, jobs }) => (writes.get("POST events") ?? 0) / jobs)
  // Jobs a second of the server if it did nothing except their writes.
  const possible = turns.map((_, round) => (ceilings[round] ?? 0) / (writesPerJob[round] ?? 1))
  return {
    name: "throughput",
    rows: [
      within("CPU ms a job, API server and etcd, from queued until the VM is deleted", serverCpu, SERVER_MS),
      within(
        "CPU ms a job, operator, façade and gateway together",
        turns.map(({ cpu }) => cpu.operator + cpu.facade),
        OWN_MS,
      ),
      within("API writes a job, its launch, events and Statement counted", writesOfLife, WRITES_A_JOB),
      compare(
        "events written a job, of those that are due",
        eventsPerJob,
        turns.map(() => EVENTS_A_JOB),
        EVENTS_WRITTEN,
      ),
      compare(
        `jobs a second, ${all} queued to ended, against what the API server's bare speed allows`,
        jobsPerSecond,
        possible,
        SHARE_OF_CEILING,
      ),
      compare("writes a second, against bare writes of the same kind", writesPerSecond, ceilings, SHARE_OF_CEILING),
      within("peak memory of the operator, MiB", [operatorUsage.peakMiB], MEMORY_MIB),
      within("peak memory of the façade, MiB", [facadeUsage.peakMiB], MEMORY_MIB),
    ],
    spread: {
      "jobs a second": spreadOf(jobsPerSecond),
      "writes a second": spreadOf(writesPerSecond),
      "bare writes a second": spreadOf(ceilings),
      "writes a job, with those that remove finalizers": spreadOf(writesPerJob),
      "CPU ms a job, API server and etcd": spreadOf(serverCpu),
      "CPU ms a job, operator": spreadOf(turns.map(({ cpu }) => cpu.operator)),
      "CPU ms a job, façade and gateway": spreadOf(turns.map(({ cpu }) => cpu.facade)),
    },
  }
}
