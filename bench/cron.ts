import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { KubeConfig } from "@kubernetes/client-node"
import { findBinaries } from "../dev/controlplane/binaries.ts"
import { startControlPlane } from "../dev/controlplane/control-plane.ts"
import { cacheDirectory } from "../dev/controlplane/programs.ts"
import { installKinds } from "../dev/install.ts"
import { timestamp } from "../src/apis/clock.ts"
import { CRON_JOB_ANNOTATIONS, type StoredCronJob } from "../src/apis/cronjob.ts"
import type { StoredJob } from "../src/apis/job.ts"
import { API_VERSION } from "../src/apis/meta.ts"
import { creatorIndexes, JOBS } from "../src/controllers/created-jobs.ts"
import { createCronJobController } from "../src/controllers/cronjob/controller.ts"
import { jobOf } from "../src/controllers/cronjob/jobs.ts"
import { CRON_JOB_CACHE, CRON_JOBS } from "../src/controllers/cronjob/options.ts"
import { SettledJobs, UNSETTLED } from "../src/controllers/settled-jobs.ts"
import { KubeClient } from "../src/kube/client.ts"
import { NAMESPACES } from "../src/kube/core.ts"
import { EventRecorder } from "../src/kube/events.ts"
import { Reflector } from "../src/kube/reflector.ts"
import { createLogger } from "../src/telemetry/logger.ts"
import { ShiftedClock } from "../test/controllers/shifted-clock.ts"
import { type BenchContext, type BenchResult, compare, spreadOf } from "./result.ts"

const CRON_JOBS_FIRING = 10_000
const ROUNDS = 5
const CONCURRENCY = 32
const NAMESPACE = "bench"
const IDLE_SECONDS = 10
const DAY = 24 * 60 * 60 * 1000
/** Time of the first tick. It is far enough ahead, and then daily, so that no tick becomes due by itself. */
const FIRST_TICK = new Date(Math.ceil(Date.now() / 60_000) * 60_000 + DAY / 2)

const SCHEDULE = `${FIRST_TICK.getUTCMinutes()} ${FIRST_TICK.getUTCHours()} * * *`

/** Maximum CPU of an idle process with open caches and pools, milliseconds a second. */
const MOST_IDLE_CPU = 20

/**
 * Fires many CronJobs (default 10,000) in the same minute, on a real API server. Measures the Jobs created per second,
 * in turns with creating as many Jobs directly. Each tick must have exactly one Job: a missing or duplicate Job is an
 * error. While all CronJobs are paused, any request or CPU use is an error.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const dataDir = await mkdtemp(join(tmpdir(), "berth-bench-"))
  const binaries = await findBinaries({
    assetsDir: context.assetsDir,
    cacheDir: cacheDirectory(context.cacheHome),
    report: context.report,
  })
  const controlPlane = await startControlPlane({ binaries, dataDir, durable: false })
  const kubeConfig = new KubeConfig()
  kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
  const client = new KubeClient(kubeConfig, { maxConcurrent: CONCURRENCY })
  try {
    await installKinds(client, AbortSignal.timeout(60_000))
    await client.create(NAMESPACES, { metadata: { name: NAMESPACE } })
    return await measure(client, context.sizes?.[0] ?? CRON_JOBS_FIRING, context.report)
  } finally {
    await client.close()
    await controlPlane.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
}

async function measure(client: KubeClient, count: number, report: BenchContext["report"]): Promise<BenchResult> {
  const bench = new CronBench(client, count)
  const ours: number[] = []
  const peer: number[] = []
  try {
    report(`creating ${count} CronJobs, paused`)
    await bench.prepare()
    report(`idle with ${count} paused: ${await bench.idle()}`)
    await bench.activate()
    for (let round = 0; round <= ROUNDS; round++) {
      const bare = count / (await bench.createBare(round))
      const fired = await bench.fire()
      const rate = count / fired.jobsAfter
      const line = `bare ${Math.round(bare)} a second, fired ${Math.round(rate)} a second`
      const inAll = `all Jobs after ${fired.jobsAfter.toFixed(1)} s, all recorded after ${fired.writtenAfter.toFixed(1)} s`
      report(`round ${round} of ${ROUNDS}: ${line}; ${inAll}`)
      // The first round warms up connections, code and the server's caches.
      if (round === 0) continue
      ours.push(rate)
      peer.push(bare)
    }
  } finally {
    await bench.stop()
  }
  return {
    name: "cron",
    rows: [compare(`Jobs a second of ${count} CronJobs of one minute, against bare creates`, ours, peer, 0.4)],
    spread: { fired: spreadOf(ours), "bare creates": spreadOf(peer) },
  }
}

class CronBench {
  readonly #client: KubeClient
  readonly #count: number
  readonly #clock = new ShiftedClock()
  #fired = 0
  readonly #ending = new AbortController()
  readonly #logger = createLogger({ level: "error", name: "bench" })
  readonly #cronJobs: Reflector<StoredCronJob>
  readonly #jobs: Reflector<StoredJob>
  #running: Promise<unknown>[] = []
  #requests = 0

  constructor(client: KubeClient, count: number) {
    this.#client = client
    this.#count = count
    const base = { client, logger: this.#logger, namespace: NAMESPACE }
    this.#cronJobs = new Reflector({ ...base, ...CRON_JOB_CACHE })
    this.#jobs = new Reflector({ ...base, resource: JOBS, ...UNSETTLED, indexes: creatorIndexes })
  }

  /** Creates the CronJobs and starts the controller. Resolves when the controller has processed all of them. */
  async prepare(): Promise<void> {
    await this.#each((n) => this.#client.create(CRON_JOBS, cronJobOf(n)))
    const client = this.#counted()
    const recorder = new EventRecorder({ client, component: "bench", instance: "bench", logger: this.#logger })
    const controller = createCronJobController({
      client,
      cronJobs: this.#cronJobs,
      jobs: this.#jobs,
      settled: new SettledJobs({
        ...{ client, namespace: NAMESPACE, fence: () => undefined, clock: this.#clock, logger: this.#logger },
        ...{ ttlSeconds: 3600, limitsHistory: () => false },
      }),
      fence: () => undefined,
      clock: this.#clock,
      recorder,
      logger: this.#logger,
    })
    const { signal } = this.#ending
    this.#running = [
      this.#cronJobs.run(signal),
      this.#jobs.run(signal),
      controller.run(signal, { abort: signal }).then(() => recorder.flush()),
    ]
    await this.#untilAll(({ status }) => status?.observedGeneration === 1)
  }

  /** Measures the cost of paused CronJobs. @throws Error if there is any */
  async idle(): Promise<string> {
    // Events are written in the background.
    for (let before = -1; before !== this.#requests; await pause(2)) before = this.#requests
    const [cpu, requests] = [process.cpuUsage(), this.#requests]
    await pause(IDLE_SECONDS)
    const { user, system } = process.cpuUsage(cpu)
    const cpuMs = (user + system) / 1000 / IDLE_SECONDS
    const made = this.#requests - requests
    const found = `${made} requests in ${IDLE_SECONDS} s, ${cpuMs.toFixed(1)} ms of CPU a second`
    if (made > 0 || cpuMs > MOST_IDLE_CPU) throw new Error(`paused CronJobs cost something: ${found}`)
    return found
  }

  async activate(): Promise<void> {
    await this.#each((n) => this.#client.patch(CRON_JOBS, cronJobOf(n).metadata, { merge: { spec: { active: true } } }))
    await this.#untilAll(({ status }) => status?.nextTriggerTime !== undefined)
  }

  /** Returns the seconds for creating as many Jobs, which differ from those of a tick only in their names. */
  async createBare(round: number): Promise<number> {
    const startedAt = performance.now()
    await this.#each((n) => {
      const { metadata, ...job } = jobOf(cronJobOf(n), { tick: this.#clock.now(), createdAt: timestamp(new Date()) })
      return this.#client.create(JOBS, { ...job, metadata: { ...metadata, name: `bare-${round}-${n}` } } as StoredJob)
    })
    return (performance.now() - startedAt) / 1000
  }

  /** Fires the next tick. @throws Error if a Job is missing or duplicate */
  async fire(): Promise<{ jobsAfter: number; writtenAfter: number }> {
    const tick = new Date(FIRST_TICK.getTime() + this.#fired++ * DAY)
    const time = timestamp(tick)
    const made = new Set<string>()
    const { promise: allMade, resolve } = Promise.withResolvers<void>()
    const forget = this.#jobs.onChange(({ current }) => {
      const isOfTick = current?.metadata.annotations?.[CRON_JOB_ANNOTATIONS.scheduledTime] === time
      if (current === undefined || !isOfTick || current.metadata.name.startsWith("bare-")) return
      if (made.add(current.metadata.name).size === this.#count) resolve()
    })
    const startedAt = performance.now()
    this.#clock.advance((tick.getTime() - this.#clock.now().getTime()) / 1000)
    await allMade
    const jobsAfter = (performance.now() - startedAt) / 1000
    await this.#untilAll(({ status }) => status?.lastTriggeredTime === time)
    const writtenAfter = (performance.now() - startedAt) / 1000
    forget()
    if (made.size !== this.#count) throw new Error(`${made.size} Jobs for ${this.#count} ticks`)
    return { jobsAfter, writtenAfter }
  }

  async stop(): Promise<void> {
    this.#ending.abort()
    await Promise.all(this.#running)
  }

  /** Returns a client that counts the controller's requests. */
  #counted(): KubeClient {
    return new Proxy(this.#client, {
      get: (target, property) => {
        const value: unknown = Reflect.get(target, property)
        if (typeof value !== "function") return value
        const method = value.bind(target) as (...args: unknown[]) => unknown
        return (...args: unknown[]) => {
          this.#requests++
          return method(...args)
        }
      },
    })
  }

  async #untilAll(holds: (cronJob: StoredCronJob) => boolean): Promise<void> {
    const left = new Set(Array.from({ length: this.#count }, (_, n) => cronJobOf(n).metadata.name))
    const { promise, resolve } = Promise.withResolvers<void>()
    const forget = this.#cronJobs.onChange(({ current }) => {
      if (current !== undefined && holds(current)) left.delete(current.metadata.name)
      if (left.size === 0) resolve()
    })
    await promise
    forget()
  }

  async #each(act: (n: number) => Promise<unknown>): Promise<void> {
    let next = 0
    const worker = async (): Promise<void> => {
      while (next < this.#count) await act(next++)
    }
    await Promise.all(Array.from({ length: CONCURRENCY }, worker))
  }
}

const pause = (seconds: number): Promise<void> => sleep(seconds * 1000)

function cronJobOf(n: number): StoredCronJob {
  return {
    apiVersion: API_VERSION,
    kind: "CronJob",
    metadata: { name: `cron-${n}`, namespace: NAMESPACE },
    spec: { schedule: SCHEDULE, active: false, jobDefinition: { image: "busybox", args: ["true"] } },
  } as StoredCronJob
}
