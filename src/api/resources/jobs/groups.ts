import Type, { type Static } from "typebox"
import { CRON_JOB_ANNOTATIONS, type StoredCronJob } from "../../../core/apis/cronjob.ts"
import { JOB_PHASES, type JobPhase, type StoredJob } from "../../../core/apis/job.ts"
import type { StoredJobArray } from "../../../core/apis/jobarray.ts"
import { LABELS } from "../../../core/apis/meta.ts"
import { roundUsd } from "../../../core/apis/money.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import { COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { comparing, type Match } from "../../../core/kube/page-index.ts"
import { type JobRecord, JobRecordSchema } from "../../../core/records/job.ts"
import { nullable } from "../../../core/records/nullable.ts"
import type { Owner } from "../../../core/records/owner.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { nameIn } from "../../sorting.ts"
import { type ArrayRecord, ArrayRecordSchema } from "../arrays/schema.ts"
import { toArrayRecord } from "../arrays/translate.ts"
import { costIn, endIn, type JobSortField, phaseIn, runSecondsIn, startIn } from "./numbers.ts"

/** Response of GET /jobs. */
export type JobList = PageOf<"jobs", JobRecord>

const { status, size, counts, actual_cost } = ArrayRecordSchema.properties
const ArrayAsWholeSchema = Type.Object({ status, size, counts, actual_cost })

/** Kinds of what created jobs; `job`: the job itself. */
const GROUP_KINDS = ["array", "cronjob", "job"] as const

/** Jobs with the same origin in the response of GET /job-groups: those that match the filter. */
export const JobGroupSchema = Type.Object({
  kind: StringEnum(GROUP_KINDS, {
    description: "array and cronjob: all its jobs that match. job: a single job.",
  }),
  id: Type.String({ description: "UUID of the array, cronjob or job." }),
  name: Type.String({ description: "Name of the array, cronjob or job." }),
  exists: Type.Boolean({ description: "False if the array or cronjob was deleted. Its jobs are still there." }),
  jobs: Type.Integer({ description: "Number of its jobs that match." }),
  counts: Type.Object(
    Object.fromEntries(JOB_PHASES.map((phase) => [phase, Type.Integer()])) as Record<JobPhase, Type.TInteger>,
    { [COMPONENT]: "JobCounts", description: "These jobs by status." },
  ),
  cost_usd: Type.Number({ description: "Cost of these jobs so far, USD. A live VM counts until now." }),
  run_seconds: Type.Number({
    description: "Sum of their run times, each from its first start to its end, or until now.",
  }),
  created_at: Type.String({ description: "Creation time of the newest of them." }),
  ended_at: nullable<string>("string", "Time of the last end. Null: none has ended."),
  latest: Type.Unsafe<JobRecord>({ ...JobRecordSchema, [COMPONENT]: "JobRecord" }),
  whole: Type.Unsafe<Static<typeof ArrayAsWholeSchema> | null>({
    ...ArrayAsWholeSchema,
    [COMPONENT]: "ArrayAsWhole",
    type: ["object", "null"],
    description:
      "The array itself, as in its own record: with jobs that don't match, and with jobs that were deleted. Null: no array, or a deleted one.",
  }),
})
export type JobGroupRecord = Static<typeof JobGroupSchema>

/** Response of GET /job-groups. */
export type JobGroupList = PageOf<"groups", JobGroupRecord>

/** Jobs with the same origin. */
export interface JobGroup {
  /** Origin of the jobs; undefined: a job without one. */
  origin: Origin | undefined
  /** Key of the newest job in the store. */
  newestKey: string
  counts: Record<JobPhase, number>
  jobs: number
  /** USD; NaN: no VM was chosen for any of them. */
  cost: number
  /** NaN: none has started. */
  runSeconds: number
  /** Latest start and end, microseconds from 1970; NaN: none. */
  start: number
  end: number
}

/** Creator of jobs: an array or a cronjob. */
export interface Origin {
  kind: "array" | "cronjob"
  uid: string
}

/** Returns the group of a job in the index; undefined: it was created by itself. */
export function groupOf({ metadata: { labels } }: StoredJob): string | undefined {
  const array = labels?.[LABELS.arrayUid]
  if (array !== undefined) return `array/${array}`
  const cronJob = labels?.[LABELS.cronJobUid]
  return cronJob === undefined ? undefined : `cronjob/${cronJob}`
}

/** Returns the origin that a group in the index stands for. */
export function originOf(group: string): Origin {
  const [kind, uid = ""] = group.split("/")
  return { kind: kind === "array" ? "array" : "cronjob", uid }
}

/** Collects jobs in groups, which are in the order of their first job. */
export class JobGroups {
  readonly #now: number
  readonly #byOrigin = new Map<string, JobGroup>()
  readonly groups: JobGroup[] = []

  /** @param now microseconds from 1970 */
  constructor(now: number) {
    this.#now = now
  }

  /** Adds a job. The first one of a group must be its newest. */
  add(match: Match): void {
    const group = this.#groupOf(match)
    group.counts[phaseIn(match)]++
    group.jobs++
    group.cost = sumOf(group.cost, costIn(match, this.#now))
    group.runSeconds = sumOf(group.runSeconds, runSecondsIn(match, this.#now))
    group.start = latestOf(group.start, startIn(match))
    group.end = latestOf(group.end, endIn(match))
  }

  #groupOf({ group: name, key }: Match): JobGroup {
    const known = name === undefined ? undefined : this.#byOrigin.get(name)
    if (known !== undefined) return known
    const group: JobGroup = {
      origin: name === undefined ? undefined : originOf(name),
      newestKey: key,
      counts: { queued: 0, booting: 0, running: 0, succeeded: 0, failed: 0, cancelled: 0 },
      jobs: 0,
      cost: Number.NaN,
      runSeconds: Number.NaN,
      start: Number.NaN,
      end: Number.NaN,
    }
    this.groups.push(group)
    if (name !== undefined) this.#byOrigin.set(name, group)
    return group
  }
}

function sumOf(sum: number, more: number): number {
  return Number.isNaN(more) ? sum : (Number.isNaN(sum) ? 0 : sum) + more
}

function latestOf(latest: number, time: number): number {
  return time > latest || Number.isNaN(latest) ? time : latest
}

/** Sorts groups by what a list of jobs is sorted by: by a sum, or by the latest time. @param groups newest first */
export function sortedGroups(
  groups: readonly JobGroup[],
  { sort_by, sort_order }: { sort_by: JobSortField; sort_order: "asc" | "desc" },
  nameOf: (group: JobGroup) => string,
): JobGroup[] {
  if (sort_by === "created_at") return sort_order === "asc" ? groups.toReversed() : [...groups]
  const sortedBy = (group: JobGroup): number | string => {
    if (sort_by === "name") return nameOf(group)
    if (sort_by === "cost") return group.cost
    if (sort_by === "run_time") return group.runSeconds
    return sort_by === "started_at" ? group.start : group.end
  }
  const valued = groups.map((group) => ({ group, value: sortedBy(group) }))
  return valued.sort(comparing(sort_order === "asc")).map(({ group }) => group)
}

/** Object that created jobs. */
export type Creator = StoredJobArray | StoredCronJob

/**
 * Returns the name of a group.
 * @param newest reads the group's newest job, which knows the name of a creator that was deleted
 */
export function groupName(
  { origin, newestKey }: Pick<JobGroup, "origin" | "newestKey">,
  creator: Creator | undefined,
  newest: () => StoredJob | undefined,
): string {
  if (origin === undefined) return nameIn(newestKey)
  if (creator !== undefined) return fromMetadataName(creator.metadata.name)
  const { labels, annotations } = newest()?.metadata ?? {}
  const recorded = origin.kind === "array" ? labels?.[LABELS.array] : annotations?.[CRON_JOB_ANNOTATIONS.name]
  return recorded === undefined ? origin.uid : fromMetadataName(recorded)
}

interface Shown {
  name: string
  /** Undefined: it was deleted, or there was none. */
  by: Creator | undefined
  latest: JobRecord
  owner: Owner
}

/** Returns the record of a group. */
export function toGroupRecord(group: JobGroup, { name, by, latest, owner }: Shown): JobGroupRecord {
  const { origin, counts, jobs, cost, runSeconds, end } = group
  const array = origin?.kind === "array" && by !== undefined ? toArrayRecord(by as StoredJobArray, owner) : undefined
  return {
    kind: origin?.kind ?? "job",
    id: origin?.uid ?? latest.id,
    name,
    exists: origin === undefined || by !== undefined,
    jobs,
    counts,
    cost_usd: roundUsd(orZero(cost)),
    run_seconds: Math.round(orZero(runSeconds) * 1000) / 1000,
    created_at: latest.created_at,
    ended_at: Number.isNaN(end) ? null : new Date(end / 1000).toISOString(),
    latest,
    whole: array === undefined ? null : wholeOf(array),
  }
}

function wholeOf({ status, size, counts, actual_cost }: ArrayRecord): Static<typeof ArrayAsWholeSchema> {
  return { status, size, counts, actual_cost }
}

function orZero(value: number): number {
  return Number.isNaN(value) ? 0 : value
}
