import type { StoredJob } from "../../apis/job.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import { LABELS } from "../../apis/meta.ts"
import { isNotFound } from "../../kube/errors.ts"
import { findImage, findVolumes } from "../../placement/inputs.ts"
import { type LaunchLedger, marketOf } from "../../placement/market.ts"
import type { JobSettings } from "../../placement/settings.ts"
import type { JobObservation } from "./decide.ts"
import { type JobControllerOptions, LAUNCHES } from "./options.ts"

/** Reads the inputs of a decision on a Job. The market is calculated later from the caches. */
export async function gather(
  job: StoredJob,
  options: JobControllerOptions,
  ledger: LaunchLedger,
  settings: JobSettings,
): Promise<JobObservation> {
  const { namespace = "" } = job.metadata
  const volumes = options.buckets && findVolumes(job, options.buckets)
  const image = options.images && findImage(job, options.images)
  return {
    ...(volumes !== undefined && { volumes }),
    ...(image !== undefined && { image }),
    launches: await launchesOf(job, options),
    installation: options.installation,
    market: () => marketOf(namespace, options, ledger, settings),
  }
}

/**
 * Returns the job's Launches from the cache. Live reads replace it where a stale cache could do harm: all Launches
 * before the finalizer is dropped, else the one that the status names.
 */
async function launchesOf(job: StoredJob, options: JobControllerOptions): Promise<StoredLaunch[]> {
  const { uid, deletionTimestamp } = job.metadata
  const cached = options.launches.store.byIndex("jobUid", uid)
  const { systemNamespace } = options.installation
  if (deletionTimestamp !== undefined) {
    const selector = { namespace: systemNamespace, labelSelector: `${LABELS.jobUid}=${uid}` }
    return (await options.client.list(LAUNCHES, selector)).items.filter((launch) => launch.spec.job.uid === uid)
  }
  const current = job.status?.launches?.current
  const isEnded = job.status?.cost?.actualUsd !== undefined
  if (current === undefined || isEnded || cached.some(({ metadata }) => metadata.name === current)) return cached
  try {
    return [...cached, await options.client.get(LAUNCHES, { namespace: systemNamespace, name: current })]
  } catch (error) {
    if (isNotFound(error)) return cached
    throw error
  }
}
