import { type Clock, secondsBetween } from "../core/apis/clock.ts"
import { CRON_JOB_ANNOTATIONS } from "../core/apis/cronjob.ts"
import { defined } from "../core/apis/defined.ts"
import { inParallel } from "../core/apis/in-parallel.ts"
import { JOB_FINALIZER, type JobPhase, type StoredJob } from "../core/apis/job.ts"
import type { Logger } from "../core/apis/logger.ts"
import { ANNOTATIONS, LABELS, type ObjectMeta } from "../core/apis/meta.ts"
import { GREATEST_AGE_SECONDS } from "../core/apis/origin.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { ifFound, isConflict, isInvalid, isNotFound } from "../core/kube/errors.ts"
import type { ServerMeta } from "../core/kube/resource.ts"
import { JOBS } from "../core/resources.ts"
import type { Fence } from "./fence.ts"
import { inRounds } from "./rounds.ts"

/** Selection of the operator's cache of Jobs. A job that is settled leaves it, which the watch reports as a deletion. */
export const UNSETTLED = { fieldSelector: "status.settled!=true" }

const SETTLED = { fieldSelector: "status.settled=true" }

/** Parts of a settled job that a controller still needs. */
export interface SettledJob extends Pick<StoredJob, "metadata" | "status"> {
  /** Length of its JSON. */
  bytes: number
  /** Time of its deletion, milliseconds since 1970. */
  expiresAt: number
}

/** A job, settled or not, without its spec. */
export type JobSummary = Pick<StoredJob, "metadata" | "status">

/** Returns true for a job that `SettledJobs` knows. */
export function isSettledJob(job: JobSummary): job is SettledJob {
  return "expiresAt" in job
}

export interface SettledJobsOptions {
  client: Pick<KubeClient, "list" | "pages" | "get" | "patch" | "replaceStatus" | "delete">
  /** Namespace of the jobs. Absent: all namespaces. */
  namespace?: string | undefined
  /** Time for which a job without its own is kept. */
  ttlSeconds: number
  /** Returns true if a CronJob or an array limits its history. All its jobs are then known, else the latest only. */
  limitsHistory: (creatorUid: string) => boolean
  /** Returns true while another job or an array lacks the outcome of a job. It is not deleted then. */
  isAwaited: (job: SettledJob) => boolean
  /** Gets each change of the bytes of settled jobs. */
  usage?: { addEnded(namespace: string, bytes: number): void }
  fence: Fence
  clock: Clock
  logger: Logger
  /** Default 60. A sweep of many jobs is repeated later. */
  sweepSeconds?: number
  /** Between two looks for expired jobs. Default 1. */
  expireSeconds?: number
  /** Number of jobs that one sweep mends, since it holds them whole. Later sweeps mend the others. Default 1000. */
  mostMended?: number
}

/** Changes of jobs by uid: `before` as they were first, `current` as they are unless they are deleted. */
type Journal = Map<string, { before?: SettledJob; current?: SettledJob }>

/** A sweep takes at most this part of the time. */
const SWEEP_SHARE = 1 / 20

/** Longest time between two sweeps, seconds. */
const LONGEST_SWEEP_SECONDS = 1200

/** Jobs that expire within this time are remembered, seconds. Sweeps find later ones. */
const HORIZON_SECONDS = 2 * LONGEST_SWEEP_SECONDS

/** Time for which the uid of a job that was settled here is remembered, seconds. Its Launches are released meanwhile. */
const RECENT_SECONDS = 600

/** Number of jobs that are remembered of a creator without limits. */
const LATEST_RUNS = 10

const CONCURRENCY = 8

/**
 * Settled jobs, which the operator does not cache. Sweeps read all of them page by page. Between two sweeps the jobs count
 * that this process settled or deleted. Only those are kept in memory that expire soon, and the history of CronJobs and arrays.
 */
export class SettledJobs {
  readonly #options: SettledJobsOptions
  #known = new Known()
  /** Changes since the begin of each running sweep, by uid. */
  readonly #journals = new Set<Journal>()
  readonly #recent = new Map<string, number>()
  readonly #handlers = new Set<(creatorUid: string) => void>()

  constructor(options: SettledJobsOptions) {
    this.#options = options
  }

  /** Sweeps, and deletes jobs after their TTL, until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger, sweepSeconds = 60, expireSeconds = 1 } = this.#options
    let sweepAt = Number.NEGATIVE_INFINITY
    const sweepIfDue = async (): Promise<void> => {
      const startedAt = clock.monotonic()
      if (startedAt < sweepAt) return
      // A failed sweep is not repeated at once.
      sweepAt = startedAt + sweepSeconds
      await this.sweep()
      const rest = (clock.monotonic() - startedAt) / SWEEP_SHARE
      sweepAt = clock.monotonic() + Math.max(sweepSeconds, Math.min(rest, LONGEST_SWEEP_SECONDS))
    }
    const every = { clock, logger, intervalSeconds: expireSeconds }
    await Promise.all([
      inRounds(sweepIfDue, { ...every, failure: "settled jobs could not be listed" }, signal),
      inRounds(() => this.#expire(), { ...every, failure: "jobs could not be deleted after their TTL" }, signal),
    ])
  }

  /** Adds a job that was settled just now. */
  add(job: StoredJob): void {
    this.#recent.set(job.metadata.uid, this.#options.clock.monotonic())
    this.#add(this.#recordOf(job))
  }

  /** Returns true if this process settled the job a short time ago. */
  has(uid: string): boolean {
    return this.#recent.has(uid)
  }

  /** Returns the number of settled jobs by phase. */
  phases(): ReadonlyMap<JobPhase, number> {
    return this.#known.phases
  }

  /** Returns the settled jobs of a CronJob or an array: all if it limits its history, else the latest. */
  runsOf(creatorUid: string): readonly JobSummary[] {
    return [...(this.#known.runs.get(creatorUid)?.values() ?? [])]
  }

  /** Returns jobs of the last minutes that the REST API created with this submission. */
  submitted(submission: string): readonly Pick<StoredJob, "metadata">[] {
    return this.#known.submissions.get(submission) ?? []
  }

  /** Calls the handler with the uid of a CronJob or an array whose settled jobs have changed. */
  onRuns(handler: (creatorUid: string) => void): () => void {
    this.#handlers.add(handler)
    return () => this.#handlers.delete(handler)
  }

  /** Reads all settled jobs. `visit` gets each of them. */
  async sweep(visit: (job: SettledJob) => void = () => undefined): Promise<void> {
    const journal: Journal = new Map()
    const known = new Known()
    const seen = new Set<string>()
    const { mostMended = 1000 } = this.#options
    const toMend: StoredJob[] = []
    this.#journals.add(journal)
    try {
      for await (const item of this.#stored()) {
        if (toMend.length < mostMended && (isStuck(item) || isUnobserved(item))) toMend.push(item)
        if (journal.has(item.metadata.uid)) continue
        seen.add(item.metadata.uid)
        const job = this.#recordOf(item)
        this.#remember(known, job)
        visit(job)
      }
      // Changes since the begin of the sweep: those of jobs that it has read, and of all others.
      for (const [uid, { before, current }] of journal) {
        if (before !== undefined && seen.has(uid)) known.remove(before)
        if (current !== undefined) this.#remember(known, current)
      }
      this.#replace(known)
    } finally {
      this.#journals.delete(journal)
    }
    await inParallel(toMend, CONCURRENCY, (job) => (isStuck(job) ? this.#free(job) : this.#observe(job)))
  }

  async *#stored(): AsyncGenerator<StoredJob, void, void> {
    const { client, namespace } = this.#options
    for await (const page of client.pages(JOBS, { namespace, ...SETTLED })) yield* page.items
  }

  /**
   * Deletes a settled job in the version that is known. Returns false if it was changed or deleted before, or if its outcome
   * is awaited.
   */
  async delete(job: SettledJob): Promise<boolean> {
    const { client, fence, isAwaited } = this.#options
    if (isAwaited(job)) return false
    const { namespace, name, uid, resourceVersion } = job.metadata
    const ref = { namespace, name }
    fence()
    try {
      await client.delete(JOBS, ref, { preconditions: { uid, resourceVersion } })
      this.#forget(job)
      return true
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error
    }
    // Its TTL may have been changed, or another job may have its name.
    const live = await ifFound(client.get(JOBS, ref))
    if (this.#known.holds(job)) this.#forget(job)
    if (live?.metadata.uid === uid && live.status?.settled === true) this.#add(this.#recordOf(live))
    return false
  }

  #forget(job: SettledJob): void {
    const { uid, namespace = "" } = job.metadata
    for (const journal of this.#journals) journal.set(uid, { before: journal.get(uid)?.before ?? job })
    this.#known.remove(job)
    this.#options.usage?.addEnded(namespace, -job.bytes)
  }

  #add(job: SettledJob): void {
    const { uid, namespace = "" } = job.metadata
    for (const journal of this.#journals) {
      const { before } = journal.get(uid) ?? {}
      journal.set(uid, { ...(before && { before }), current: job })
    }
    this.#remember(this.#known, job)
    this.#options.usage?.addEnded(namespace, job.bytes)
    this.#notify(creatorOf(job))
  }

  #remember(known: Known, job: SettledJob): void {
    const { clock, limitsHistory } = this.#options
    const now = clock.now()
    const creator = creatorOf(job)
    known.add(job, {
      // A job that is being deleted only waits for someone's finalizer.
      isDue: job.metadata.deletionTimestamp === undefined && job.expiresAt <= now.getTime() + HORIZON_SECONDS * 1000,
      isYoung: secondsBetween(job.metadata.creationTimestamp, now) <= GREATEST_AGE_SECONDS,
      mostRuns: creator === undefined || !limitsHistory(creator) ? LATEST_RUNS : Number.POSITIVE_INFINITY,
    })
  }

  #replace(known: Known): void {
    const before = this.#known
    this.#known = known
    for (const namespace of new Set([...before.bytes.keys(), ...known.bytes.keys()])) {
      const change = (known.bytes.get(namespace) ?? 0) - (before.bytes.get(namespace) ?? 0)
      if (change !== 0) this.#options.usage?.addEnded(namespace, change)
    }
    for (const creator of known.runs.keys()) this.#notify(creator)
  }

  #notify(creatorUid: string | undefined): void {
    if (creatorUid !== undefined) for (const handler of this.#handlers) handler(creatorUid)
  }

  async #expire(): Promise<void> {
    const { clock } = this.#options
    const since = clock.monotonic() - RECENT_SECONDS
    for (const [uid, at] of this.#recent) {
      if (at > since) break
      this.#recent.delete(uid)
    }
    const now = clock.now().getTime()
    const expired = [...this.#known.due.values()].filter(({ expiresAt }) => expiresAt <= now)
    await inParallel(expired, CONCURRENCY, (job) => this.delete(job))
  }

  /** Removes the finalizer that a tool has put back on a settled job. */
  #free({ metadata }: StoredJob): Promise<void> {
    const { namespace, name, resourceVersion } = metadata
    const finalizers = metadata.finalizers?.filter((one) => one !== JOB_FINALIZER) ?? []
    const patch = { merge: { metadata: { resourceVersion, finalizers } } }
    return this.#tryTo(() => this.#options.client.patch(JOBS, { namespace, name }, patch))
  }

  /** Records that the spec of a settled job was changed, which has no other effect here. Tools like Flux wait for that. */
  #observe(job: StoredJob): Promise<void> {
    const observedGeneration = job.metadata.generation
    const conditions = job.status?.conditions?.map((one) => ({ ...one, observedGeneration }))
    const status = { ...job.status, ...defined({ observedGeneration, conditions }) } as NonNullable<StoredJob["status"]>
    return this.#tryTo(() => this.#options.client.replaceStatus(JOBS, { ...job, status }))
  }

  /** Makes a conditional change. The next sweep looks at the new version of a job that was changed meanwhile. */
  async #tryTo(change: () => Promise<unknown>): Promise<void> {
    this.#options.fence()
    try {
      await change()
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error
    }
  }

  #recordOf(job: StoredJob): SettledJob {
    const { managedFields: _, ...metadata } = job.metadata as ServerMeta & StoredJob["metadata"]
    const { phase, startTime, completionTime, cost } = job.status ?? {}
    const status = {
      phase,
      ...(startTime && { startTime }),
      ...(completionTime && { completionTime }),
      ...(cost?.actualUsd !== undefined && { cost: { actualUsd: cost.actualUsd } }),
    }
    const ttlSeconds = job.spec.ttlSecondsAfterFinished ?? this.#options.ttlSeconds
    return {
      metadata: shorten(metadata),
      status: status as NonNullable<StoredJob["status"]>,
      bytes: Buffer.byteLength(JSON.stringify({ ...job, metadata })),
      expiresAt: Date.parse(completionTime ?? metadata.creationTimestamp) + ttlSeconds * 1000,
    }
  }
}

const KEPT_ANNOTATIONS = [CRON_JOB_ANNOTATIONS.scheduledTime, ANNOTATIONS.submission]

/** Returns the identity of a job, its creator's and that of its submission. */
function shorten(metadata: StoredJob["metadata"]): StoredJob["metadata"] {
  const { namespace, name, uid, resourceVersion, generation, creationTimestamp, deletionTimestamp } = metadata
  return {
    ...{ name, uid, resourceVersion, generation, creationTimestamp },
    ...defined({ namespace, deletionTimestamp }),
    labels: pickNames(metadata.labels, [LABELS.cronJobUid, LABELS.arrayUid, LABELS.arrayIndex]),
    annotations: pickNames(metadata.annotations, KEPT_ANNOTATIONS),
  }
}

function pickNames(values: Record<string, string> = {}, names: readonly string[]): Record<string, string> {
  return Object.fromEntries(Object.entries(values).filter(([name]) => names.includes(name)))
}

function isStuck({ metadata }: StoredJob): boolean {
  return metadata.deletionTimestamp !== undefined && (metadata.finalizers?.includes(JOB_FINALIZER) ?? false)
}

/** Returns true if the status was not written since the last change of the spec. */
function isUnobserved({ metadata, status }: StoredJob): boolean {
  return status?.observedGeneration !== metadata.generation
}

/** Returns the uid of the CronJob or the array that created a job. */
function creatorOf({ metadata }: { metadata: ObjectMeta }): string | undefined {
  return metadata.labels?.[LABELS.cronJobUid] ?? metadata.labels?.[LABELS.arrayUid]
}

/** Sums of the settled jobs, and those of them that are needed one by one. */
class Known {
  readonly bytes = new Map<string, number>()
  readonly phases = new Map<JobPhase, number>()
  /** Jobs that expire soon, by uid. */
  readonly due = new Map<string, SettledJob>()
  /** Jobs of each CronJob and array, by uid. */
  readonly runs = new Map<string, Map<string, SettledJob>>()
  /** Jobs of the last minutes, by submission. */
  readonly submissions = new Map<string, SettledJob[]>()

  add(job: SettledJob, { isDue, isYoung, mostRuns }: { isDue: boolean; isYoung: boolean; mostRuns: number }): void {
    const { uid, annotations } = job.metadata
    this.#count(job, 1)
    if (isDue) this.due.set(uid, job)
    const creator = creatorOf(job)
    if (creator !== undefined) this.runs.set(creator, latest(this.runs.get(creator), job, mostRuns))
    const submission = annotations?.[ANNOTATIONS.submission]
    if (isYoung && submission !== undefined) {
      const jobs = this.submissions.get(submission)
      if (jobs === undefined) this.submissions.set(submission, [job])
      else jobs.push(job)
    }
  }

  remove(job: SettledJob): void {
    const { uid } = job.metadata
    this.#count(job, -1)
    this.due.delete(uid)
    this.runs.get(creatorOf(job) ?? "")?.delete(uid)
  }

  holds(job: SettledJob): boolean {
    const { uid } = job.metadata
    return this.due.has(uid) || (this.runs.get(creatorOf(job) ?? "")?.has(uid) ?? false)
  }

  #count({ metadata: { namespace = "" }, status, bytes }: SettledJob, sign: 1 | -1): void {
    this.bytes.set(namespace, (this.bytes.get(namespace) ?? 0) + sign * bytes)
    const phase = status?.phase
    if (phase !== undefined) this.phases.set(phase, (this.phases.get(phase) ?? 0) + sign)
  }
}

/** Returns the runs with one more, without the oldest beyond the maximum. */
function latest(runs: Map<string, SettledJob> = new Map(), job: SettledJob, most: number): Map<string, SettledJob> {
  runs.set(job.metadata.uid, job)
  if (runs.size <= most) return runs
  const createdAt = ({ metadata }: SettledJob) => metadata.creationTimestamp
  const oldest = [...runs.values()].reduce((one, other) => (createdAt(other) < createdAt(one) ? other : one))
  runs.delete(oldest.metadata.uid)
  return runs
}

/**
 * Checks that the API server can select Jobs by `status.settled`.
 * @throws Error if it can't; other failures are left to the caches, which retry
 */
export async function checkSelection(client: Pick<KubeClient, "list">, namespace?: string): Promise<void> {
  try {
    await client.list(JOBS, { namespace, ...UNSETTLED, limit: 1 })
  } catch (error) {
    if (!isInvalid(error)) return
    const message =
      `the API server can't select Jobs by ${UNSETTLED.fieldSelector} (${error.message}). ` +
      "Berth needs Kubernetes 1.31 or newer and the CustomResourceDefinitions of its own version. " +
      "Upgrade the cluster, or apply the folder crds of this version, and start the operator again"
    throw new Error(message, { cause: error })
  }
}
