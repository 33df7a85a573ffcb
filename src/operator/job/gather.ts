import { secondsBetween } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import { isTerminal, type StoredJob } from "../../core/apis/job.ts"
import { type StoredLaunch, withHeartbeat } from "../../core/apis/launch.ts"
import { ANNOTATIONS, LABELS } from "../../core/apis/meta.ts"
import { markCopy, type Origin, readOrigin } from "../../core/apis/origin.ts"
import { whySecretMissing } from "../../core/apis/secret-env.ts"
import { endingIn } from "../../core/identity/projects.ts"
import { isNotFound } from "../../core/kube/errors.ts"
import { limitForPlacement } from "../../core/quota/project-limits.ts"
import { LAUNCHES } from "../../core/resources.ts"
import { findImage, findVolumes } from "../../market/placement/inputs.ts"
import type { Waiter } from "../../market/placement/line.ts"
import type { JobControllerDependencies } from "./dependencies.ts"
import type { JobObservation } from "./facts.ts"
import type { JobMarkets } from "./markets.ts"
import type { JobTimes } from "./times.ts"

/** Reads the inputs of a decision on a Job. The market is calculated later from the caches. */
export async function gather(
  job: StoredJob,
  options: JobControllerDependencies,
  { times, markets }: { times: JobTimes; markets: JobMarkets },
): Promise<JobObservation> {
  const { namespace = "" } = job.metadata
  const launches = (await readLaunches(job, options)).map((launch) => withHeartbeat(launch, options.heartbeatTimes))
  const origin = launches.length === 0 ? originAmong(job, options) : readOrigin(job, options.installation.id)
  const order = await orderOf(job, options)
  const secretMissing = whyWithoutSecrets(job, options)
  const isEndRead = isEndAwaited(job, options)
  const { tenancy } = options
  const base = {
    origin,
    ...order,
    isEndAwaited: order.isOutcomeAwaited || isEndRead,
    ...defined({
      cancel: markets.cancelState(namespace),
      organization: options.tenants?.organizationOf(namespace),
      ending: tenancy && endingIn(tenancy.projects.store, tenancy.organizations.store)(namespace),
    }),
    ...times.of(job, launches),
    launches,
    installation: options.installation,
    surplusIdle: () => markets.surplusIdle(namespace),
    market: (waiter: Waiter) => markets.marketFor(waiter),
  }
  if (base.ending !== undefined) return base
  const overLimit = options.quota && limitForPlacement(options.quota, job)
  if (overLimit !== undefined) return { ...base, overLimit: overLimit.message }
  const volumes = options.buckets && findVolumes(job, options.buckets)
  const image = options.images && findImage(job, options.images)
  return { ...base, ...defined({ secretMissing, volumes, image }) }
}

/** Returns what a job waits for, unless it has ended, and if something waits for it. */
async function orderOf(job: StoredJob, { prerequisites }: Pick<JobControllerDependencies, "prerequisites">) {
  const name = { job: job.metadata.name }
  const found = isTerminal(job.status?.phase) ? undefined : await prerequisites.look(name, job)
  return { ...(found && { prerequisites: found }), isOutcomeAwaited: prerequisites.isAwaited(name, job.metadata) }
}

/** Returns why a job that waits for a place has not all values of its secretEnv. A job with a VM has asked for them. */
function whyWithoutSecrets(
  { metadata, spec, status }: StoredJob,
  { envSecrets }: Pick<JobControllerDependencies, "envSecrets">,
): string | undefined {
  const isWaiting = status?.phase === undefined || status.phase === "queued"
  if (!isWaiting || envSecrets === undefined || spec.secretEnv === undefined) return undefined
  return whySecretMissing(
    spec.secretEnv,
    (name) => envSecrets.store.getByKey(`${metadata.namespace ?? ""}/${name}`)?.keys,
  )
}

function isEndAwaited(job: StoredJob, { endReaders = [] }: Pick<JobControllerDependencies, "endReaders">): boolean {
  return endReaders.some((reader) => reader.awaits(job))
}

/**
 * Returns the origin of a Job that has no Launch. A young copy has the submission of another Job, which is older or
 * already has a Launch.
 */
function originAmong(job: StoredJob, { jobs, settled, launches, installation }: JobControllerDependencies): Origin {
  const origin = readOrigin(job, installation.id)
  if (origin.is !== "recorded" || origin.submission === undefined) return origin
  const { uid, creationTimestamp } = job.metadata
  const launch = launches.store.byIndex("submission", origin.submission).find(({ spec }) => spec.job.uid !== uid)
  const earlier = ({ metadata }: StoredJob) =>
    metadata.creationTimestamp === creationTimestamp
      ? metadata.uid < uid
      : metadata.creationTimestamp < creationTimestamp
  // Of two in the same second, the one that has ended was there first.
  const ended = settled
    .submitted(origin.submission)
    .find(({ metadata }) => metadata.uid !== uid && metadata.creationTimestamp <= creationTimestamp)
  const other = ended ?? jobs.store.byIndex("submission", origin.submission).find(earlier)
  const original = launch?.spec.job.uid ?? other?.metadata.uid
  return original === undefined ? origin : markCopy(`the Job with the uid ${original}`, ANNOTATIONS.submission)
}

/** Returns true if the calendar says that the job's `maxQueueSeconds` are over before a start of its container is known. */
function hasWaitedTooLong({ metadata, spec, status }: StoredJob, now: Date): boolean {
  if (spec.maxQueueSeconds === undefined || status?.startTime !== undefined || isTerminal(status?.phase)) return false
  return secondsBetween(metadata.creationTimestamp, now) >= spec.maxQueueSeconds
}

/**
 * Returns the job's Launches from the cache. Live reads replace it where a stale cache could do harm. They read all
 * Launches before the finalizer is dropped or the job fails for its wait, and otherwise the one of the status.
 */
async function readLaunches(job: StoredJob, options: JobControllerDependencies): Promise<StoredLaunch[]> {
  const { uid, deletionTimestamp } = job.metadata
  const cached = options.launches.store.byIndex("jobUid", uid)
  const { systemNamespace } = options.installation
  if (deletionTimestamp !== undefined || hasWaitedTooLong(job, options.clock.now())) {
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
