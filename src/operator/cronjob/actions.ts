import type { StoredCronJob } from "../../core/apis/cronjob.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import { CRON_JOBS, JOBS } from "../../core/resources.ts"
import type { ReconcileContext } from "../../core/runtime/controller.ts"
import {
  type CreatorOptions,
  createJob as create,
  findJob,
  isCurrent,
  note,
  type RejectedJob,
} from "../created-jobs.ts"
import type { StatusReplacer, Writer } from "../writes.ts"
import type { CronJobControllerDependencies } from "./dependencies.ts"
import { buildJob, isMadeFor, type JobFacts, jobName } from "./jobs.ts"
import { nameTakenEvent } from "./status.ts"

/** Owner of the fields that the cronjob controller writes. */
const FIELD_MANAGER = "berth-cronjob-controller"

/** Names that are tried for the Job of one tick. */
const MOST_NAMES = 9

/** Outcome of `createJob`. */
export type Creation =
  /** The tick has a Job, from this call or an earlier one. */
  | { is: "created" }
  /** The CronJob has changed since the decision. */
  | { is: "outdated" }
  | RejectedJob

/**
 * Creates the Job of a tick. Its name makes a second one impossible: an existing Job of this tick is from an earlier
 * attempt or an earlier leader, and it counts. The CronJob is read live first: a new leader's stale cache must not run
 * a CronJob that was paused, changed or deleted, or a tick that ran already.
 * @throws Error if Jobs that others created have all the names of the tick's Job
 */
export async function createJob(
  cronJob: StoredCronJob,
  facts: Omit<JobFacts, "number">,
  options: CronJobControllerDependencies,
  context: ReconcileContext,
): Promise<Creation> {
  if (!(await isCurrent(cronJob, CRON_JOBS, options))) return { is: "outdated" }
  for (let number = 1; number <= MOST_NAMES; number++) {
    const job = buildJob(cronJob, { ...facts, number }) as StoredJob
    const creation = await create(job, toCreator(options), context)
    if (creation.is !== "exists") return creation
    const name = jobName(cronJob, facts.tick, number)
    const found = await findJob(name, cronJob.metadata.namespace, options)
    if (found === undefined) return { is: "outdated" }
    if (isMadeFor(found, cronJob, facts.tick)) {
      note(found, options, context)
      return { is: "created" }
    }
    options.recorder.record(cronJob, nameTakenEvent(name, jobName(cronJob, facts.tick, number + 1)))
  }
  const last = jobName(cronJob, facts.tick, MOST_NAMES)
  throw new Error(
    `all ${MOST_NAMES} names of the tick's Job, up to ${last}, are in use by other Jobs: delete one of them`,
  )
}

/** Returns the options of the actions on Jobs. */
export function toCreator(options: CronJobControllerDependencies): CreatorOptions {
  return { ...options, fieldManager: FIELD_MANAGER }
}

export function createWriters({ client, cronJobs, jobs }: CronJobControllerDependencies): {
  cronJobs: Writer<StoredCronJob> & StatusReplacer<StoredCronJob>
  jobs: Writer<StoredJob>
} {
  const shared = { client, fieldManager: FIELD_MANAGER }
  return {
    cronJobs: { ...shared, resource: CRON_JOBS, store: cronJobs.store },
    jobs: { ...shared, resource: JOBS, store: jobs.store },
  }
}
