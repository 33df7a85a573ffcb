import { CreationTimes } from "../../apis/creation-times.ts"
import { CANCEL_JOBS_FINALIZER, type StoredCronJob } from "../../apis/cronjob.ts"
import { isTerminal, type StoredJob } from "../../apis/job.ts"
import { keyOf, LABELS } from "../../apis/meta.ts"
import type { Change } from "../../kube/store.ts"
import { Controller, type ReconcileContext, type ReconcileResult, watches } from "../../runtime/controller.ts"
import { dropFinalizer, remove } from "../writes.ts"
import { cancelJob } from "./actions/cancel-job.ts"
import { createJob } from "./actions/create-job.ts"
import { writeStatus } from "./actions/write-status.ts"
import { type CronJobAction, decide } from "./decide.ts"
import { type CronJobControllerOptions, jobsOf, writersOf } from "./dependencies.ts"
import { refused } from "./events.ts"
import { gather } from "./gather.ts"
import { meanSeconds } from "./history.ts"
import { type Firing, refusedStatus } from "./status.ts"
import { Timetable } from "./timetable.ts"

export type { CronJobControllerOptions } from "./dependencies.ts"

/** What was decided from a late cache is decided again; its next change comes first, as a rule. */
const AGAIN_SECONDS = 1

/** Between two attempts to make a Job that the API server refuses for now (a quota, a policy). */
const REFUSED_SECONDS = 60

/** Makes the controller that gives each tick of a CronJob its one Job. */
export function createCronJobController(options: CronJobControllerOptions): Controller {
  const { cronJobs, jobs, clock, logger, workers = 16 } = options
  const timetable = new Timetable(clock)
  const reconciler = new CronJobReconciler(options, timetable)
  return new Controller({
    name: "cronjob",
    reconcile: (key, context) => reconciler.reconcile(key, context),
    sources: [timetable, watches(cronJobs), watches(jobs, (change) => keysOf(change, options))],
    clock,
    logger,
    workers,
  })
}

/** The CronJob of a Job that came, ended or went: what else happens to it is nothing to its CronJob. */
function keysOf({ old, current }: Change<StoredJob>, { cronJobs }: CronJobControllerOptions): string[] {
  const uid = (current ?? old)?.metadata.labels?.[LABELS.cronJobUid]
  const isNews = old === undefined || current === undefined || hasEnded(old) !== hasEnded(current)
  const cronJob = uid === undefined || !isNews ? undefined : cronJobs.store.getByUid(uid)
  return cronJob === undefined ? [] : [keyOf(cronJob)]
}

function hasEnded({ status }: StoredJob): boolean {
  return isTerminal(status?.phase)
}

class CronJobReconciler {
  readonly #options: CronJobControllerOptions
  readonly #timetable: Timetable
  readonly #creationTimes: CreationTimes

  constructor(options: CronJobControllerOptions, timetable: Timetable) {
    this.#options = options
    this.#timetable = timetable
    this.#creationTimes = new CreationTimes(options.clock)
  }

  async reconcile(key: string, context: ReconcileContext): Promise<ReconcileResult> {
    const cronJob = this.#options.cronJobs.store.getByKey(key)
    if (cronJob === undefined) {
      this.#timetable.set(key, undefined)
      return {}
    }
    const { actions, events, wakeAt } = decide(cronJob, await gather(cronJob, this.#options), this.#options.clock.now())
    this.#timetable.set(key, wakeAt)
    let result: ReconcileResult = {}
    for (const action of actions) {
      context.signal.throwIfAborted()
      result = { ...result, ...(await this.#act(cronJob, action, context)) }
    }
    for (const note of events) this.#options.recorder.record(cronJob, note)
    return result
  }

  async #act(cronJob: StoredCronJob, action: CronJobAction, context: ReconcileContext): Promise<ReconcileResult> {
    const options = this.#options
    const writers = writersOf(options)
    switch (action.do) {
      case "createJob":
        return this.#fire(cronJob, action.firing, context)
      case "cancelJob":
        await cancelJob(action.job, options, context)
        return {}
      case "writeStatus":
        await writeStatus(cronJob, action.status, options, context)
        return {}
      case "deleteJob":
        await remove(action.job, writers.jobs, context)
        return {}
      case "dropFinalizer":
        await dropFinalizer(cronJob, CANCEL_JOBS_FINALIZER, writers.cronJobs, context)
        return {}
    }
  }

  /** After it, what was made is written down in its turn: behind the ticks of others that wait for their Jobs. */
  async #fire(cronJob: StoredCronJob, firing: Firing, context: ReconcileContext): Promise<ReconcileResult> {
    const expectedSeconds = meanSeconds(jobsOf(cronJob, this.#options))
    const facts = { tick: firing.tick, createdAt: this.#creationTimes.next(), expectedSeconds }
    const creation = await createJob(cronJob, facts, this.#options, context)
    switch (creation.is) {
      case "made":
        return { requeueAfter: 0 }
      case "outdated":
        return { requeueAfter: AGAIN_SECONDS }
      case "refused":
        return this.#refused(cronJob, { firing, ...creation }, context)
    }
  }

  /** A definition that is not taken is told of, not tried again and again. */
  async #refused(
    cronJob: StoredCronJob,
    refusal: { firing: Firing; message: string; isFinal: boolean },
    context: ReconcileContext,
  ): Promise<ReconcileResult> {
    const { clock, recorder } = this.#options
    const status = refusedStatus(cronJob, refusal, clock.now())
    if (status !== undefined) {
      await writeStatus(cronJob, status, this.#options, context)
      recorder.record(cronJob, refused(refusal.message))
    }
    return refusal.isFinal ? {} : { requeueAfter: REFUSED_SECONDS }
  }
}
