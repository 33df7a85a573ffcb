import { pause } from "../../apis/backoff.ts"
import { isTerminal, JOB_FINALIZER, type StoredJob } from "../../apis/job.ts"
import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import { monthOf, type StoredStatement } from "../../apis/statement.ts"
import { isConflict, isNotFound } from "../../kube/errors.ts"
import { hasBegun } from "../../placement/statements.ts"
import type { ReconcileContext } from "../../runtime/controller.ts"
import { inParallel } from "../../runtime/in-parallel.ts"
import { inRounds } from "../rounds.ts"
import { replaceStatus } from "../writes.ts"
import { release } from "./actions.ts"
import { endAwaited } from "./gather.ts"
import { type JobControllerOptions, jobWriter } from "./options.ts"

export interface TakeOverSettings {
  /** Jobs that are settled in a second. Each takes a read and two writes. Default 25. */
  jobsPerSecond: number
  /** Between two looks for such jobs. Default 60. */
  intervalSeconds: number
}

const DEFAULTS: TakeOverSettings = { jobsPerSecond: 25, intervalSeconds: 60 }

/** Number of jobs between two log lines about the progress. */
const LOGGED_JOBS = 1000

/**
 * Settles jobs that ended in a former version, so that they leave the operator's cache. Their finalizer is removed. It does
 * so slowly: there may be 100,000 of them, and none is in a hurry.
 */
export class TakeOver {
  readonly #options: JobControllerOptions
  readonly #settings: TakeOverSettings

  constructor(options: JobControllerOptions, settings: Partial<TakeOverSettings> = {}) {
    this.#options = options
    this.#settings = { ...DEFAULTS, ...settings }
  }

  /** Runs rounds until the signal is aborted. */
  run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options
    const { intervalSeconds } = this.#settings
    const failure = "ended jobs of a former version could not be settled"
    return inRounds(() => this.#round(signal), { clock, logger, intervalSeconds, failure }, signal)
  }

  async #round(signal: AbortSignal): Promise<void> {
    const { jobs, clock, logger } = this.#options
    const { jobsPerSecond } = this.#settings
    const left = jobs.store.list().filter((job) => this.#isLeft(job))
    const { length: total } = left
    if (total === 0) return
    logger.info({ jobs: total, jobsPerSecond }, "settling jobs that ended in a former version")
    for (let done = 0; done < total; done += jobsPerSecond) {
      if (signal.aborted) return
      const pausing = pause(clock, 1, signal).catch(() => undefined)
      const some = left.slice(done, done + jobsPerSecond)
      await inParallel(
        some.map((job) => () => this.#settle(job)),
        4,
      )
      const [before, after] = [done, done + some.length].map((count) => Math.floor(count / LOGGED_JOBS))
      if (before !== after) logger.info({ jobs: total - done - some.length }, "jobs of a former version left to settle")
      await pausing
    }
    logger.info({ jobs: total }, "settled the jobs that ended in a former version")
  }

  #isLeft(job: StoredJob): boolean {
    const { launches, statements } = this.#options
    const { namespace = "", uid } = job.metadata
    const ofProject = statements.store.byIndex("project", namespace)
    if (endAwaited(job, this.#options).endAwaited === true) return false
    return isLeftBehind(job, launches.store.byIndex("jobUid", uid), ofProject, this.#options.clock.now())
  }

  async #settle({ metadata }: StoredJob): Promise<void> {
    const { jobs, fence } = this.#options
    // It may have been deleted or written since the round began.
    const job = jobs.store.get(metadata)
    if (job === undefined || job.metadata.uid !== metadata.uid || !this.#isLeft(job)) return
    try {
      const next = (job.status?.launches?.count ?? 0) + 1
      const isHeld = job.metadata.finalizers?.includes(JOB_FINALIZER) ?? false
      const released = isHeld ? await release(job, { do: "release", next }, this.#options, UNOBSERVED) : job
      if (released === undefined) return
      fence()
      const status = { ...released.status, settled: true }
      this.#options.settled.add(await replaceStatus(released, status, jobWriter(this.#options), UNOBSERVED))
    } catch (error) {
      if (!isConflict(error) && !isNotFound(error)) throw error
    }
  }
}

/** No reconcile follows that could see an older cache. */
const UNOBSERVED: ReconcileContext = {
  signal: new AbortController().signal,
  wrote: () => undefined,
  deleted: () => undefined,
}

/**
 * Returns true if a job ended in a former version and everything has seen its end: its VMs are deleted, and its cost is in
 * the Statement of its month. Statements are begun for the current month only. Pure.
 */
export function isLeftBehind(
  { metadata, status = {} }: StoredJob,
  launches: readonly StoredLaunch[],
  statements: readonly StoredStatement[],
  now: Date,
): boolean {
  const { phase, settled, cost, completionTime } = status
  if (!isTerminal(phase) || settled === true || metadata.deletionTimestamp !== undefined) return false
  if (cost?.actualUsd === undefined || !launches.every(isOver)) return false
  const month = monthOf(now)
  if (cost.actualUsd === 0 || !completionTime?.startsWith(month)) return true
  return hasBegun(statements.find(({ spec }) => spec.month === month))
}
