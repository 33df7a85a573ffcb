import { CreationTimes } from "../../core/apis/creation-times.ts"
import { CANCEL_JOBS_FINALIZER, type CronJobStatus, type StoredCronJob } from "../../core/apis/cronjob.ts"
import { isTerminal, type StoredJob } from "../../core/apis/job.ts"
import { keyOf, LABELS } from "../../core/apis/meta.ts"
import type { Change } from "../../core/kube/store.ts"
import { Controller, type ReconcileContext, type ReconcileResult, watchSource } from "../../core/runtime/controller.ts"
import { type ObjectReconciler, reconcileObject } from "../../core/runtime/reconcile-object.ts"
import { cancelJob, knownJobs, settledJobsSource } from "../created-jobs.ts"
import { isSettledJob } from "../settled-jobs.ts"
import { dropFinalizer, remove, replaceStatus } from "../writes.ts"
import { createJob, createWriters, toCreator } from "./actions.ts"
import { type CronJobAction, decide } from "./decide.ts"
import type { CronJobControllerDependencies } from "./dependencies.ts"
import { gather } from "./gather.ts"
import { meanSeconds } from "./jobs.ts"
import type { CronJobObservation } from "./schedule.ts"
import { type Rejection, rejectedEvent, rejectedStatus } from "./status.ts"

/** Delay before retrying a decision made on a stale cache, seconds. Usually the watch event arrives sooner. */
const STALE_SECONDS = 1

/** Delay before retrying a Job that a quota or a policy rejected, seconds. */
const REJECTED_SECONDS = 60

/** Creates the controller that creates one Job for each tick of a CronJob. */
export function createCronJobController(options: CronJobControllerDependencies): Controller {
  const { cronJobs, jobs, clock, recorder, logger, workers = 16 } = options
  const creationTimes = new CreationTimes(clock)
  const reconciler: ObjectReconciler<StoredCronJob, CronJobObservation, CronJobStatus, CronJobAction> = {
    store: cronJobs.store,
    clock,
    recorder,
    gather: (cronJob) => gather(cronJob, options),
    decide,
    writeStatus: (cronJob, status, context) => replaceStatus(cronJob, status, createWriters(options).cronJobs, context),
    act: (cronJob, action, context) => act(cronJob, action, { options, creationTimes }, context),
  }
  return new Controller({
    name: "cronjob",
    reconcile: (key, context) => reconcileObject(key, reconciler, context),
    sources: [
      watchSource(cronJobs),
      watchSource(jobs, (change) => keysOf(change, options)),
      settledJobsSource(cronJobs.store, options),
    ],
    clock,
    logger,
    workers,
  })
}

/** Returns the CronJob of a Job that was created, ended or was deleted. Other changes of a Job don't requeue it. */
function keysOf({ old, current }: Change<StoredJob>, { cronJobs }: CronJobControllerDependencies): string[] {
  const uid = (current ?? old)?.metadata.labels?.[LABELS.cronJobUid]
  const isNews = old === undefined || current === undefined || hasEnded(old) !== hasEnded(current)
  const cronJob = uid === undefined || !isNews ? undefined : cronJobs.store.getByUid(uid)
  return cronJob === undefined ? [] : [keyOf(cronJob)]
}

function hasEnded({ status }: StoredJob): boolean {
  return isTerminal(status?.phase)
}

interface Parts {
  options: CronJobControllerDependencies
  creationTimes: CreationTimes
}

async function act(
  cronJob: StoredCronJob,
  action: CronJobAction,
  { options, creationTimes }: Parts,
  context: ReconcileContext,
): Promise<ReconcileResult | undefined> {
  const { cronJobs, jobs } = createWriters(options)
  switch (action.do) {
    case "createJob": {
      const made = knownJobs(cronJob, options)
      const expectedSeconds = meanSeconds([...made.jobs, ...made.settled])
      const facts = { tick: action.run.tick, createdAt: creationTimes.next(), expectedSeconds }
      const creation = await createJob(cronJob, facts, options, context)
      // The status is written in the next reconcile, so that all due CronJobs get their Jobs first.
      if (creation.is === "created") return { requeueAfter: 0 }
      if (creation.is === "outdated") return { requeueAfter: STALE_SECONDS }
      return reject(cronJob, { run: action.run, ...creation }, options, context)
    }
    case "cancelJob":
      await cancelJob(action.job, toCreator(options), context)
      return
    case "deleteJob":
      if (isSettledJob(action.job)) await options.settled.delete(action.job)
      else await remove(action.job as StoredJob, jobs, context)
      return
    case "dropFinalizer":
      await dropFinalizer(cronJob, CANCEL_JOBS_FINALIZER, cronJobs, context)
      return
  }
}

/** Writes a rejection into the status, once, and emits its event. An invalid definition is not retried. */
async function reject(
  cronJob: StoredCronJob,
  rejection: Rejection,
  options: CronJobControllerDependencies,
  context: ReconcileContext,
): Promise<ReconcileResult | undefined> {
  const status = rejectedStatus(cronJob, rejection, options.clock.now())
  if (status !== undefined) {
    const written = await replaceStatus(cronJob, status, createWriters(options).cronJobs, context)
    options.recorder.record(written, rejectedEvent(rejection.message))
  }
  return rejection.isFinal ? undefined : { requeueAfter: REJECTED_SECONDS }
}
