import { setTimeout as delay } from "node:timers/promises"
import { isTerminal, type StoredJob } from "../src/core/apis/job.ts"
import { Reflector } from "../src/core/kube/reflector.ts"
import { JOBS, LAUNCHES } from "../src/core/resources.ts"
import { createLogger } from "../src/core/telemetry/logger.ts"
import { sumOf, WRITTEN_GROUPS, type Writes, writesBetween } from "./api-server.ts"
import { BerthStack, cpuOfJob, PROJECT, type ProgramCpu } from "./berth-stack.ts"
import { SYSTEM_NAMESPACE } from "./program.ts"
import { type BenchContext, type BenchResult, type BenchRow, compare, within } from "./result.ts"
import { BOOT_SECONDS } from "./simulated-cloud.ts"
import { EVENTS_A_JOB, EVENTS_WRITTEN } from "./throughput.ts"

/** Jobs a second, one after the other. */
const RATES = [5, 10, 15]
const SECONDS = 180
/** Jobs and the records of their VMs are deleted so soon that their deletion is a part of the measurement. */
const KEPT_SECONDS = 60
const RUN_SECONDS = 2
const PATIENCE_SECONDS = 900

/** Goals, with the times of VM and container: a job must not wait for the control plane. */
const RUNNING_P50_SECONDS = BOOT_SECONDS + 2
const RUNNING_P99_SECONDS = BOOT_SECONDS + 8
const SUCCEEDED_P99_SECONDS = RUNNING_P99_SECONDS + RUN_SECONDS + 5
/** From the end of its time until the job is deleted. */
const DELETED_P99_SECONDS = 30
const WRITES_A_JOB = 16.2

/**
 * Measures jobs that arrive one by one at a fixed rate, with their deletion: the times until they are seen running,
 * succeeded and deleted, their writes and their CPU by program.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const { sizes: rates = RATES, seconds = SECONDS, report } = context
  const stack = await BerthStack.start(context, { retentionSeconds: KEPT_SECONDS })
  const times = new JobTimes(stack)
  try {
    await phase(stack, times, { rate: rates[0] ?? 1, seconds: Math.min(20, seconds), name: "warm" })
    const rows: BenchRow[] = []
    for (const rate of rates) {
      const measured = await phase(stack, times, { rate, seconds, name: `steady-${rate}` })
      report(`${rate} jobs a second: ${lineOf(measured)}`)
      rows.push(...steadyRows(`at ${rate} jobs a second`, measured))
    }
    return { name: "steady", rows, spread: {} }
  } finally {
    await times.stop()
    await stack.stop()
  }
}

interface Phase {
  /** Jobs a second. */
  rate: number
  seconds: number
  /** Beginning of the names. */
  name: string
}

interface Measured {
  jobs: number
  /** Times since the POST, seconds, sorted. */
  running: number[]
  succeeded: number[]
  /** From the end of the TTL, sorted. */
  deleted: number[]
  writes: Writes
  cpu: ProgramCpu
}

/** Submits jobs at a rate, whatever becomes of them, and waits until all traces of them are deleted. */
async function phase(stack: BerthStack, times: JobTimes, { rate, seconds, name }: Phase): Promise<Measured> {
  const jobs = Math.ceil(rate * seconds)
  const before = await stack.api.writes(WRITTEN_GROUPS)
  const cpuBefore = await stack.cpuSeconds()
  const startedAt = performance.now()
  const submissions: Promise<void>[] = []
  for (let n = 0; n < jobs; n++) {
    await delay(Math.max(0, startedAt + (n * 1000) / rate - performance.now()))
    const job = jobOf(`${name}-${n}`, n)
    times.submitted(job.name)
    submissions.push(stack.submit(job))
  }
  await Promise.all(submissions)
  await untilGone(stack, times)
  const of = times.take()
  return {
    jobs,
    running: sorted(of.map(({ submitted, running }) => running - submitted)),
    succeeded: sorted(of.map(({ submitted, succeeded }) => succeeded - submitted)),
    deleted: sorted(of.map(({ succeeded, deleted }) => deleted - succeeded - KEPT_SECONDS)),
    writes: writesBetween(before, await stack.api.writes(WRITTEN_GROUPS)),
    cpu: cpuOfJob(cpuBefore, await stack.cpuSeconds(), jobs),
  }
}

function jobOf(name: string, n: number) {
  return {
    ...{ name, image: "busybox", command: ["sleep", String(RUN_SECONDS)], labels: { team: `team-${n % 10}` } },
    ...{ resources: { cpu: 1 + (n % 4), memory: "2Gi" }, ttlSecondsAfterFinished: KEPT_SECONDS },
  }
}

async function untilGone({ client }: BerthStack, times: JobTimes): Promise<void> {
  const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
  await times.untilGone(signal)
  const launches = () => client.list(LAUNCHES, { namespace: SYSTEM_NAMESPACE, limit: 1 })
  while ((await launches()).items.length > 0) await delay(1000, undefined, { signal })
}

function sorted(values: number[]): number[] {
  return values.toSorted((a, b) => a - b)
}

function quantile(values: readonly number[], part: number): number {
  return values[Math.min(values.length - 1, Math.floor(values.length * part))] ?? Number.NaN
}

function steadyRows(about: string, measured: Measured): BenchRow[] {
  const { running, succeeded, deleted, writes, jobs } = measured
  return [
    within(`submit to running, p50 in s, ${about}`, [quantile(running, 0.5)], RUNNING_P50_SECONDS),
    within(`submit to running, p99 in s, ${about}`, [quantile(running, 0.99)], RUNNING_P99_SECONDS),
    within(`submit to succeeded, p99 in s, ${about}`, [quantile(succeeded, 0.99)], SUCCEEDED_P99_SECONDS),
    within(
      `end of the TTL to deleted, p99 in s, ${about}`,
      [Math.max(0.01, quantile(deleted, 0.99))],
      DELETED_P99_SECONDS,
    ),
    within(`API writes a job, deletion included, ${about}`, [sumOf(writes) / jobs], WRITES_A_JOB),
    compare(
      `events written a job, of those that are due, ${about}`,
      [(writes.get("POST events") ?? 0) / jobs],
      [EVENTS_A_JOB],
      EVENTS_WRITTEN,
    ),
  ]
}

function lineOf({ running, succeeded, deleted, writes, jobs, cpu }: Measured): string {
  const both = (values: readonly number[]) => [0.5, 0.99].map((part) => quantile(values, part).toFixed(1)).join(" and ")
  const { operator, facade, server } = cpu
  return (
    `running after ${both(running)} s (p50 and p99), succeeded after ${both(succeeded)} s, ` +
    `deleted ${both(deleted)} s after the TTL; ${(sumOf(writes) / jobs).toFixed(2)} writes a job; CPU ms a job, deletion included: ` +
    `operator ${operator.toFixed(1)}, façade ${facade.toFixed(1)}, API server and etcd ${server.toFixed(1)}`
  )
}

/** Times at which a job's states were first seen by a watch, seconds. */
interface Times {
  submitted: number
  running: number
  succeeded: number
  deleted: number
}

/** Follows jobs by a watch of its own, like any client that waits for them. */
class JobTimes {
  readonly #jobs = new Map<string, Partial<Times>>()
  readonly #reflector: Reflector<StoredJob>
  readonly #stop = new AbortController()
  readonly #running: Promise<void>

  constructor({ client }: BerthStack) {
    const logger = createLogger({ level: "warn", name: "bench" })
    this.#reflector = new Reflector({ client, resource: JOBS, namespace: PROJECT, logger })
    this.#reflector.onChange(({ old, current }) => {
      const times = this.#jobs.get((current ?? old)?.metadata.name ?? "")
      if (times === undefined) return
      const now = performance.now() / 1000
      const phase = current?.status?.phase
      if (current === undefined) times.deleted ??= now
      else if (phase === "running") times.running ??= now
      else if (phase === "succeeded") times.succeeded ??= now
      else if (isTerminal(phase)) throw new Error(`${current.metadata.name} is ${phase}: ${current.status?.message}`)
    })
    this.#running = this.#reflector.run(this.#stop.signal)
  }

  submitted(name: string): void {
    this.#jobs.set(name, { submitted: performance.now() / 1000 })
  }

  /** Resolves when all jobs are deleted. */
  async untilGone(signal: AbortSignal): Promise<void> {
    const isGone = (): boolean => [...this.#jobs.values()].every(({ deleted }) => deleted !== undefined)
    while (!isGone()) await delay(500, undefined, { signal })
  }

  /** Returns the times of all jobs, and forgets them. A watch may skip a state: then the next one's time counts. */
  take(): Times[] {
    const all = [...this.#jobs.values()].map(({ submitted = 0, running, succeeded, deleted = 0 }) => ({
      ...{ submitted, deleted, succeeded: succeeded ?? deleted },
      running: running ?? succeeded ?? deleted,
    }))
    this.#jobs.clear()
    return all
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#running
  }
}
