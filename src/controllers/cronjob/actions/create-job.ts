import type { StoredCronJob } from "../../../apis/cronjob.ts"
import type { StoredJob } from "../../../apis/job.ts"
import { ifFound, isAlreadyExists, isForbidden, isInvalid, type KubeError } from "../../../kube/errors.ts"
import type { ReconcileContext } from "../../../runtime/controller.ts"
import { create } from "../../writes.ts"
import { CRON_JOBS, type CronJobControllerOptions, writersOf } from "../dependencies.ts"
import { nameTaken } from "../events.ts"
import { findJob } from "../gather.ts"
import { isMadeFor, jobName, jobOf } from "../job-object.ts"

/** A tick whose names others have up to this number waits until one of them is free. */
const MOST_NAMES = 9

export type Creation =
  /** There is a Job of this tick, made now or before. */
  | { is: "made" }
  /** The CronJob is another one by now: decide again. */
  | { is: "outdated" }
  /** The API server takes no such Job; `isFinal`: nor will it later, as it is not valid. */
  | { is: "refused"; message: string; isFinal: boolean }

export interface JobFacts {
  tick: Date
  createdAt: string
  expectedSeconds: number | undefined
}

/**
 * Makes the Job of a tick. Its name makes a second one impossible: where there is one, an earlier attempt of ours (or of
 * an earlier leader) made it, and it is what counts. The CronJob is read live before, so that a late cache (a new
 * leader's) never fires what was paused, changed, deleted or fired.
 */
export async function createJob(
  cronJob: StoredCronJob,
  facts: JobFacts,
  options: CronJobControllerOptions,
  context: ReconcileContext,
): Promise<Creation> {
  if (!(await isCurrent(cronJob, options))) return { is: "outdated" }
  for (let number = 1; number <= MOST_NAMES; number++) {
    try {
      options.fence()
      await create(jobOf(cronJob, { ...facts, number }) as StoredJob, writersOf(options).jobs, context)
      return { is: "made" }
    } catch (error) {
      if (isInvalid(error) || isForbidden(error)) return refusal(error)
      if (!isAlreadyExists(error)) throw error
    }
    const name = jobName(cronJob, facts.tick, number)
    const found = await findJob(name, cronJob, options)
    if (found === undefined) return { is: "outdated" }
    if (isMadeFor(found, cronJob, facts.tick)) {
      context.wrote(options.jobs.store, found)
      return { is: "made" }
    }
    options.recorder.record(cronJob, nameTaken(name, jobName(cronJob, facts.tick, number + 1)))
  }
  throw new Error(`${MOST_NAMES} Jobs of others have the names of the tick's Job: delete one of them`)
}

/** Whether the CronJob is still the version that was decided on. */
async function isCurrent({ metadata }: StoredCronJob, { client }: CronJobControllerOptions): Promise<boolean> {
  const { namespace, name, uid, resourceVersion } = metadata
  const live = await ifFound(client.get(CRON_JOBS, { namespace, name }))
  return live?.metadata.uid === uid && live.metadata.resourceVersion === resourceVersion
}

/** The message names fields and not what is in them, which a CronJob's readers may see and its events' may not. */
function refusal(error: KubeError): Creation {
  const fields = (error.details?.causes ?? []).flatMap(({ field }) => field ?? [])
  const why = isInvalid(error) && fields.length > 0 ? `not valid: ${[...new Set(fields)].join(", ")}` : error.message
  return { is: "refused", message: `the API server takes no Job of this definition: ${why}`, isFinal: isInvalid(error) }
}
