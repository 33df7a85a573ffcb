import { timestamp } from "../../../src/core/apis/clock.ts"
import type { CronJobSpec, StoredCronJob } from "../../../src/core/apis/cronjob.ts"
import { isTerminal, type JobPhase, type JobStatus, type StoredJob } from "../../../src/core/apis/job.ts"
import { API_VERSION } from "../../../src/core/apis/meta.ts"
import type { KubeClient } from "../../../src/core/kube/client.ts"
import type { KubeEvent } from "../../../src/core/kube/core.ts"
import { isNotFound } from "../../../src/core/kube/errors.ts"
import { EventRecorder, events } from "../../../src/core/kube/events.ts"
import { Reflector } from "../../../src/core/kube/reflector.ts"
import type { ServerMeta } from "../../../src/core/kube/resource.ts"
import { CRON_JOBS, JOBS } from "../../../src/core/resources.ts"
import { JOB_DEFAULTS } from "../../../src/market/placement/settings.ts"
import { keepChangeTime } from "../../../src/operator/caches.ts"
import { creatorIndexes } from "../../../src/operator/created-jobs.ts"
import { createCronJobController } from "../../../src/operator/cronjob/controller.ts"
import { limitsHistory } from "../../../src/operator/cronjob/jobs.ts"
import { NotLeaderError } from "../../../src/operator/fence.ts"
import { SettledJobs, UNSETTLED } from "../../../src/operator/settled-jobs.ts"
import { eventually } from "../../harness/eventually.ts"
import { harnessesOf, NamespaceHarness } from "../../harness/namespace.ts"
import { ShiftedClock } from "../../harness/shifted-clock.ts"
import { silentLogger } from "../../harness/silent-logger.ts"

/** A calendar that stands still until a test moves it; durations pass normally. */
export class TestCalendar extends ShiftedClock {
  #jumped = 0

  override now(): Date {
    return new Date(START.getTime() + (this.ahead + this.#jumped) * 1000)
  }

  /** Moves the calendar and no timer, like a suspended machine or an administrator does. */
  jump(seconds: number): void {
    this.#jumped += seconds
  }

  /** Moves to this time, on the first day of the tests or later. */
  goTo(time: string): void {
    this.advance((Date.parse(time) - this.now().getTime()) / 1000)
  }
}

export const START = new Date("2026-05-01T12:00:30Z")

/** A controller that runs in this process. */
export interface Operator {
  /** Resolves when its caches are filled. */
  synced(): Promise<unknown>
  stop(): Promise<void>
}

export interface OperatorOptions {
  client?: KubeClient
  fence?: () => void
  /** Resolves when it leads; before, it only fills its caches. Default: at once. */
  leads?: Promise<void>
}

/** One namespace of the shared API server with its own calendar, and operators on demand. */
export class CronHarness extends NamespaceHarness<Operator> {
  readonly clock = new TestCalendar()
  /** Calendar time of each generation of a CronJob, by its name. */
  readonly #times = new Map<string, Date>()
  readonly #settled = new Set<SettledJobs>()

  constructor(client: KubeClient) {
    super(client, "cron")
  }

  operator({ client = this.client, fence = () => undefined, leads }: OperatorOptions = {}): Operator {
    const { namespace, clock } = this
    const recorder = new EventRecorder({ client, component: "test", instance: "test", logger: silentLogger })
    const cronJobs = new Reflector<StoredCronJob>({
      client,
      resource: CRON_JOBS,
      namespace,
      logger: silentLogger,
      transform: (cronJob) => keepChangeTime(this.#dated(cronJob)),
    })
    const jobs = new Reflector<StoredJob>({
      ...{ client, resource: JOBS, namespace, ...UNSETTLED, indexes: creatorIndexes, logger: silentLogger },
    })
    const settled = new SettledJobs({
      ...{
        client,
        namespace,
        fence,
        clock,
        logger: silentLogger,
        ttlSeconds: JOB_DEFAULTS.ttlSeconds,
        sweepSeconds: 0.5,
      },
      isAwaited: () => false,
      limitsHistory: (uid) => {
        const cronJob = cronJobs.store.getByUid(uid)
        return cronJob !== undefined && limitsHistory(cronJob)
      },
    })
    this.#settled.add(settled)
    const options = { client, cronJobs, jobs, settled, fence, clock, recorder, logger: silentLogger }
    const controller = createCronJobController(options)
    const ending = new AbortController()
    const { signal } = ending
    const lead = async (): Promise<void> => {
      await leads
      await Promise.all([controller.run(signal, { abort: signal }), settled.run(signal)]).catch((error: unknown) => {
        if (!(error instanceof NotLeaderError)) throw error
      })
    }
    const running = [cronJobs.run(signal), jobs.run(signal), lead()]
    return this.started({
      synced: () => Promise.all([cronJobs, jobs].map((cache) => cache.whenSynced(signal))),
      stop: async () => {
        this.#settled.delete(settled)
        ending.abort()
        await Promise.all(running)
        await recorder.flush()
      },
    })
  }

  /** Returns the CronJob like an API server with this harness' calendar would. */
  #dated(cronJob: StoredCronJob): StoredCronJob {
    const { name, generation } = cronJob.metadata
    const made = this.#times.get(`${name}/1`)
    if (made !== undefined) cronJob.metadata.creationTimestamp = timestamp(made)
    const changed = this.#times.get(`${name}/${generation}`)
    for (const entry of (cronJob.metadata as ServerMeta).managedFields ?? []) {
      if (changed !== undefined) entry.time = timestamp(changed)
    }
    return cronJob
  }

  /** Before the write, because a watch may be faster than the response. */
  #note(name: string, generation: number): void {
    this.#times.set(`${name}/${generation}`, this.clock.now())
  }

  async create(name: string, spec: Partial<CronJobSpec> = {}, finalizers: string[] = []): Promise<StoredCronJob> {
    this.#note(name, 1)
    const cronJob = {
      apiVersion: API_VERSION,
      kind: "CronJob",
      metadata: { name, namespace: this.namespace, finalizers },
      spec: { schedule: "* * * * *", jobDefinition: { image: "busybox" }, ...spec },
    }
    return this.client.create(CRON_JOBS, cronJob as StoredCronJob)
  }

  async change(name: string, spec: { [Field in keyof CronJobSpec]?: unknown }): Promise<StoredCronJob> {
    this.#note(name, (await this.cronJob(name)).metadata.generation + 1)
    return this.client.patch(CRON_JOBS, { namespace: this.namespace, name }, { merge: { spec } })
  }

  cronJob(name: string): Promise<StoredCronJob> {
    return this.client.get(CRON_JOBS, { namespace: this.namespace, name })
  }

  async jobs(): Promise<StoredJob[]> {
    const { items } = await this.client.list(JOBS, { namespace: this.namespace })
    return items.sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
  }

  async jobNames(): Promise<string[]> {
    return (await this.jobs()).map(({ metadata }) => metadata.name)
  }

  /**
   * Writes a Job's status like the job controller does, and adds it to the settled jobs of the operator. Sweeps alone would
   * not do: one that a jump of the clock hits seems to last for minutes, and the next one comes much later.
   */
  async report(name: string, phase: JobPhase, status: Partial<JobStatus> = {}): Promise<void> {
    const merge = { status: { phase, ...(isTerminal(phase) && { settled: true }), ...status } }
    const job = await this.client.patchStatus(JOBS, { namespace: this.namespace, name }, { merge })
    if (job.status?.settled === true) for (const settled of this.#settled) settled.add(job)
  }

  async delete(name: string): Promise<void> {
    await this.client.delete(CRON_JOBS, { namespace: this.namespace, name })
  }

  async isGone(name: string): Promise<boolean> {
    try {
      await this.cronJob(name)
      return false
    } catch (error) {
      if (!isNotFound(error)) throw error
      return true
    }
  }

  /** Resolves when the controller has seen the present spec and written the next tick. */
  async waitsFor(name: string, next: string | undefined): Promise<StoredCronJob> {
    return eventually(async () => {
      const cronJob = await this.cronJob(name)
      const { metadata, status } = cronJob
      if (status?.observedGeneration !== metadata.generation || status.nextTriggerTime !== next) {
        throw new Error(`${name}: ${JSON.stringify({ ...status, generation: metadata.generation })}`)
      }
      return cronJob
    })
  }

  async eventsOf(name: string): Promise<{ reason: string; message: string; count: number }[]> {
    const { items } = await this.client.list<KubeEvent>(events, { namespace: this.namespace })
    return items
      .filter((event) => event.involvedObject.name === name && event.involvedObject.kind === "CronJob")
      .map(({ reason, message, count }) => ({ reason, message, count }))
  }
}

/** Returns a function that creates harnesses, and closes them after the suite. */
export function cronHarnesses(): () => Promise<CronHarness> {
  return harnessesOf((client) => new CronHarness(client))
}
