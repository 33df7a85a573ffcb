import type { StoredCronJob } from "../../apis/cronjob.ts"
import type { StoredJob } from "../../apis/job.ts"
import {
  ifFound,
  isAlreadyExists,
  isConflict,
  isForbidden,
  isInvalid,
  isNotFound,
  type KubeError,
} from "../../kube/errors.ts"
import type { ReconcileContext } from "../../runtime/controller.ts"
import { create } from "../writes.ts"
import { findJob } from "./gather.ts"
import { isMadeFor, type JobFacts, jobName, jobOf } from "./jobs.ts"
import { CRON_JOBS, type CronJobControllerOptions, FIELD_MANAGER, JOBS, writersOf } from "./options.ts"
import { nameTakenEvent } from "./status.ts"

/** Names that are tried for the Job of one tick. */
const MOST_NAMES = 9

/** Outcome of `createJob`. */
export type Creation =
  /** The tick has a Job, from this call or an earlier one. */
  | { is: "created" }
  /** The CronJob has changed since the decision. */
  | { is: "outdated" }
  /** The API server rejected the Job. `isFinal`: the Job is invalid, so a retry fails too. */
  | { is: "rejected"; message: string; isFinal: boolean }

/**
 * Creates the Job of a tick. Its name makes a second one impossible: an existing Job of this tick is from an earlier
 * attempt or an earlier leader, and it counts. The CronJob is read live first: a new leader's stale cache must not run
 * a CronJob that was paused, changed or deleted, or a tick that ran already.
 * @throws Error if Jobs that others created have all the names of the tick's Job
 */
export async function createJob(
  cronJob: StoredCronJob,
  facts: Omit<JobFacts, "number">,
  options: CronJobControllerOptions,
  context: ReconcileContext,
): Promise<Creation> {
  if (!(await isCurrent(cronJob, options))) return { is: "outdated" }
  for (let number = 1; number <= MOST_NAMES; number++) {
    try {
      options.fence()
      await create(jobOf(cronJob, { ...facts, number }) as StoredJob, writersOf(options).jobs, context)
      return { is: "created" }
    } catch (error) {
      if (isInvalid(error) || isForbidden(error)) return rejection(error)
      if (!isAlreadyExists(error)) throw error
    }
    const name = jobName(cronJob, facts.tick, number)
    const found = await findJob(name, cronJob, options)
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

/** Makes a Job known to the next reconcile. A settled one is never in the cache, and without it the tick would be tried again. */
function note(job: StoredJob, { jobs, settled }: CronJobControllerOptions, context: ReconcileContext): void {
  if (job.status?.settled === true) settled.add(job)
  else context.wrote(jobs.store, job)
}

/** True if the CronJob is still the version that was decided on. */
async function isCurrent({ metadata }: StoredCronJob, { client }: CronJobControllerOptions): Promise<boolean> {
  const { namespace, name, uid, resourceVersion } = metadata
  const live = await ifFound(client.get(CRON_JOBS, { namespace, name }))
  return live?.metadata.uid === uid && live.metadata.resourceVersion === resourceVersion
}

/** The message names fields without their values: readers of the CronJob's events may lack the right to see them. */
function rejection(error: KubeError): Creation {
  const fields = (error.details?.causes ?? []).flatMap(({ field }) => field ?? [])
  const why = isInvalid(error) && fields.length > 0 ? `invalid ${[...new Set(fields)].join(", ")}` : error.message
  return { is: "rejected", message: `the API server rejects Jobs of jobDefinition: ${why}`, isFinal: isInvalid(error) }
}

/** Sets `spec.cancelled` of a Job, as a user would. */
export async function cancelJob(
  job: StoredJob,
  { client, jobs, fence }: CronJobControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { namespace, name, uid } = job.metadata
  try {
    fence()
    const merge = { metadata: { uid }, spec: { cancelled: true } }
    context.wrote(jobs.store, await client.patch(JOBS, { namespace, name }, { merge }, { fieldManager: FIELD_MANAGER }))
  } catch (error) {
    // The Job was deleted, and another one may have its name.
    if (!isNotFound(error) && !isConflict(error)) throw error
  }
}
