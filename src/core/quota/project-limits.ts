import Type, { type Static } from "typebox"
import { findCondition } from "../apis/conditions.ts"
import type { StoredJob } from "../apis/job.ts"
import type { KubeObject, Stored } from "../apis/meta.ts"
import type { Condition } from "../apis/schema.ts"
import { type CountedKind, creationOrder, type Usage } from "./usage.ts"

/** Limits of what a project, and the whole installation, may store. */
export const ProjectLimitsSchema = Type.Object(
  {
    unfinishedJobs: most("Jobs of a project that have not ended."),
    cronJobs: most("CronJobs of a project."),
    cronJobRunsPerMinute: most("Jobs that the CronJobs of a project create in a minute."),
    jobArrays: most("JobArrays of a project."),
    apiKeys: most("API keys of a project."),
    connections: most("Connections of a project."),
    webhooks: most("Webhooks of a project."),
    machines: most("Machines that a project owns. 0: none, and those that exist get no other job.", 0),
    webhookMessagesPerMinute: most("Messages that the webhooks of a project send in a minute, retries included."),
    projectMib: most(
      "MiB of JSON that a project stores: jobs, CronJobs, JobArrays, keys, connections, webhooks and machines.",
    ),
    uploadMib: most("MiB of one upload: a working directory of jobs, compressed."),
    uploadsMib: most("MiB of all uploads that a project stores."),
    installationMib: most("MiB of JSON that all projects store. It must stay under etcd's quota."),
  },
  { additionalProperties: false },
)
export type ProjectLimits = Static<typeof ProjectLimitsSchema>

function most(description: string, minimum = 1) {
  return Type.Integer({ minimum, maximum: 1_000_000_000, description })
}

export const PROJECT_LIMITS: ProjectLimits = {
  unfinishedJobs: 20_000,
  cronJobs: 1000,
  cronJobRunsPerMinute: 600,
  jobArrays: 1000,
  apiKeys: 500,
  connections: 100,
  webhooks: 50,
  machines: 50,
  webhookMessagesPerMinute: 1200,
  projectMib: 256,
  uploadMib: 100,
  uploadsMib: 2048,
  installationMib: 1536,
}

export const MIB = 1024 * 1024

/** A limit that leaves no room for another object. */
export interface LimitReached {
  limit: keyof ProjectLimits
  /** Says the limit, the use, and what the user can do. */
  message: string
}

/** Limits and their use. */
export interface Quota {
  limits: ProjectLimits
  usage: Usage
}

const NOUNS: Record<CountedKind, string> = {
  cronJobs: "cronjobs",
  jobArrays: "arrays",
  apiKeys: "API keys",
  connections: "connections",
  webhooks: "webhooks",
  machines: "machines",
}

/**
 * Share of a limit of bytes that history may exceed. Berth deletes the oldest ended jobs, so objects are rejected for
 * history only while the deletion is behind.
 */
const HISTORY_MARGIN = 1.1

/** Returns the limit that leaves a project no room for another job; undefined if there is room. */
export function limitForJob({ usage, limits }: Quota, namespace: string): LimitReached | undefined {
  const { unfinishedJobs } = usage.of(namespace)
  if (unfinishedJobs >= limits.unfinishedJobs) return unfinishedReached(unfinishedJobs, limits)
  return limitOfBytes({ usage, limits }, namespace)
}

/** Returns the number of jobs that a project may create before it reaches its limit of unfinished jobs. */
export function roomForJobs({ usage, limits }: Quota, namespace: string): number {
  return Math.max(0, limits.unfinishedJobs - usage.of(namespace).unfinishedJobs)
}

/** Returns the limit of 0 with which an installation forbids a kind to all projects; undefined if it allows some. */
export function limitThatForbids(limits: ProjectLimits, kind: CountedKind): LimitReached | undefined {
  return limits[kind] === 0 ? { limit: kind, message: tooMany(kind, 0, limits) } : undefined
}

/** Returns the limit that leaves a project no room for another object of a kind; undefined if there is room. */
export function limitForObject(
  { usage, limits }: Quota,
  namespace: string,
  kind: CountedKind,
): LimitReached | undefined {
  const count = usage.of(namespace)[kind]
  if (count >= limits[kind]) return { limit: kind, message: tooMany(kind, count, limits) }
  return limitOfBytes({ usage, limits }, namespace)
}

/** Reason of the condition of an object that a limit keeps from working. */
export const PROJECT_LIMIT = "ProjectLimit"

type Conditioned = Stored<KubeObject> & { status?: { conditions?: readonly Condition[] } }

/**
 * Returns the limit that keeps an existing object from working: it was created with kubectl beyond the maximum number of
 * its kind. The oldest objects of a project work, and so does each that worked before the limit was reached. A limit of 0
 * turns the kind off: none works any more.
 * @param all objects of the kind, in any namespace
 */
export function limitForExisting(
  quota: Quota | undefined,
  kind: CountedKind,
  { metadata, status }: Conditioned,
  all: { list: () => readonly Stored<KubeObject>[] },
): LimitReached | undefined {
  if (quota === undefined) return undefined
  const { usage, limits } = quota
  const ready = findCondition(status?.conditions, "Ready")
  if (limits[kind] > 0 && ready !== undefined && ready.reason !== PROJECT_LIMIT) return undefined
  const { namespace = "" } = metadata
  const count = usage.of(namespace)[kind]
  if (count <= limits[kind]) return undefined
  const order = creationOrder(metadata)
  const others = all.list().filter((one) => one.metadata.namespace === namespace)
  const older = others.filter((one) => creationOrder(one.metadata) < order).length
  return older < limits[kind] ? undefined : { limit: kind, message: tooMany(kind, count, limits) }
}

/** Returns the reason why an object beyond its kind's maximum number does not work. */
export function tooMany(kind: CountedKind, count: number, limits: ProjectLimits): string {
  if (limits[kind] === 0)
    return `this installation allows projects no ${NOUNS[kind]} of their own: its administrator has set limits.${kind} to 0`
  return `the project has ${count} ${NOUNS[kind]}; the limit is ${limits[kind]}. Delete some that you no longer need`
}

/** Returns the reached limit of unfinished jobs. */
export function unfinishedReached(count: number, { unfinishedJobs: limit }: ProjectLimits): LimitReached {
  const message = `the project has ${count} unfinished jobs; the limit is ${limit}. Wait until jobs end, or cancel some`
  return { limit: "unfinishedJobs", message }
}

/**
 * Returns the limit that keeps an unfinished job waiting, however it was created; undefined if the job may start. The
 * oldest jobs of a project go first, so the project's work never stops.
 */
export function limitForPlacement({ usage, limits }: Quota, job: StoredJob): LimitReached | undefined {
  const { namespace = "" } = job.metadata
  const total = usage.all()
  const isFull = total.bytes - total.endedBytes > limits.installationMib * MIB
  const share = isFull ? (limits.installationMib * MIB) / usage.busyNamespaces() : Number.POSITIVE_INFINITY
  const bytes = Math.min(limits.projectMib * MIB, share)
  if (usage.isAmongOldest(job, { jobs: limits.unfinishedJobs, bytes })) return undefined
  const { unfinishedJobs } = usage.of(namespace)
  if (unfinishedJobs > limits.unfinishedJobs) return unfinishedReached(unfinishedJobs, limits)
  const limit = bytes < limits.projectMib * MIB ? "installationMib" : "projectMib"
  const use = usage.of(namespace)
  const message = `${limit === "projectMib" ? "the project stores" : "this installation is full and the project stores"} ${mib(use.bytes - use.endedBytes)} without ended jobs; the limit is ${mib(bytes)}. The oldest jobs start first`
  return { limit, message }
}

/** Returns the reached limit of jobs that CronJobs create in a minute; undefined if it is not reached. */
export function limitForCronJobRun({ usage, limits }: Quota, namespace: string): LimitReached | undefined {
  const runs = usage.cronJobRuns(namespace)
  const limit = limits.cronJobRunsPerMinute
  if (runs < limit) return limitForJob({ usage, limits }, namespace)
  const message = `the project's cronjobs created ${runs} jobs within a minute; the limit is ${limit}. Run some less often`
  return { limit: "cronJobRunsPerMinute", message }
}

/** History counts only while its deletion is behind, so that it never rejects work for long. */
function limitOfBytes({ usage, limits }: Quota, namespace: string): LimitReached | undefined {
  return (
    bytesReached("projectMib", usage.of(namespace), limits, "the project stores") ??
    bytesReached("installationMib", usage.all(), limits, "all projects of this installation store")
  )
}

/** Returns the reached limit of bytes; undefined if there is room. */
export function bytesReached(
  limit: "projectMib" | "installationMib",
  { bytes, endedBytes }: { bytes: number; endedBytes: number },
  limits: ProjectLimits,
  what: string,
): LimitReached | undefined {
  const most = limits[limit] * MIB
  const live = bytes - endedBytes
  if (live >= most) {
    const message = `${what} ${mib(live)} without ended jobs; the limit is ${mib(most)}. Wait until jobs end, or delete objects`
    return { limit, message }
  }
  if (bytes < most * HISTORY_MARGIN) return undefined
  const message = `${what} ${mib(bytes)}; the limit is ${mib(most)}. Berth is deleting the oldest ended jobs; retry in a minute`
  return { limit, message }
}

function mib(bytes: number): string {
  return `${(bytes / MIB).toFixed(1)} MiB`
}
