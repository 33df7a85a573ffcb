import type { StoredJob } from "../../apis/job.ts"
import { LAUNCH, type StoredLaunch } from "../../apis/launch.ts"
import { LABELS } from "../../apis/meta.ts"
import { isNotFound } from "../../kube/errors.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { Store } from "../../kube/store.ts"
import type { JobObservation } from "./decide.ts"
import type { JobControllerOptions } from "./dependencies.ts"
import { findImage } from "./image.ts"
import type { LaunchLedger } from "./ledger.ts"
import { appraise, type Market } from "./market.ts"
import type { JobSettings } from "./settings.ts"
import { findVolumes } from "./volumes.ts"

const LAUNCHES = resourceOf<StoredLaunch>(LAUNCH)

/** Reads all that a decision on this Job is made from. The market is reckoned from the caches, at the moment of asking. */
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

/** What a market is reckoned from, wherever it is: caches, nothing that is asked for. */
export interface MarketSources
  extends Pick<JobControllerOptions, "offers" | "payers" | "caps" | "clock" | "agentImage"> {
  jobs: { store: Store<StoredJob> }
  /** With the indexes `launchIndexes` of the launch controller. */
  launches: { store: Store<StoredLaunch> }
}

/** The market of a namespace's project as it is now. */
export function marketOf(
  namespace: string,
  sources: MarketSources,
  ledger: LaunchLedger,
  settings: JobSettings,
): Market {
  const now = sources.clock.now()
  const facts = {
    namespace,
    offers: sources.offers.current(),
    payers: sources.payers.of(namespace),
    refusedPayers: sources.payers.refused?.(namespace) ?? [],
    agentImage: sources.agentImage?.(),
    launches: ledger.all(),
    projectLaunches: ledger.ofNamespace(namespace),
    projectCaps: sources.caps?.(namespace),
    recordedUsd: recordedUsd(namespace, sources, settings),
  }
  return appraise(facts, now, settings)
}

/**
 * The job's Launches as cached, and by live reads where a late cache could do harm: before the finalizer is dropped
 * all of them, otherwise the one that the status names.
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

/** What jobs of the project cost that ended this month (UTC) and whose Launches' records are deleted, US dollars. */
function recordedUsd(namespace: string, sources: MarketSources, settings: JobSettings): number {
  const { caps, launches, jobs, clock } = sources
  if ((caps?.(namespace)?.maxMonthlyUsd ?? settings.caps.maxMonthlyUsd) === undefined) return 0
  const month = clock.now().toISOString().slice(0, 7)
  return jobs.store
    .list()
    .filter((job) => job.metadata.namespace === namespace && job.status?.completionTime?.startsWith(month))
    .filter((job) => launches.store.byIndex("jobUid", job.metadata.uid).length === 0)
    .reduce((total, job) => total + (job.status?.cost?.actualUsd ?? 0), 0)
}
