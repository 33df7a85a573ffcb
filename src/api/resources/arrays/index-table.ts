import Type, { type Static } from "typebox"
import { indexesIn } from "../../../core/apis/array-indexes.ts"
import { secondsBetween } from "../../../core/apis/clock.ts"
import { LIMITS } from "../../../core/apis/field-limits.ts"
import type { StoredJob } from "../../../core/apis/job.ts"
import { arrayIndexOf, combinationAt, type StoredJobArray, sizeOf } from "../../../core/apis/jobarray.ts"
import { COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { costFields } from "../../../core/records/cost.ts"
import { recordStatus, UNFINISHED } from "../../../core/records/job.ts"
import { nullable } from "../../../core/records/nullable.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { choice } from "../../http/query.ts"

/** Indexes of an array as a table: the values of each, and the result of its last job. */

/** Statuses of an index. They are in the order of a table that has what needs a look first. */
export const INDEX_STATUSES = ["failed", "cancelled", "running", "booting", "queued", "pending", "succeeded"] as const
type IndexStatus = (typeof INDEX_STATUSES)[number]

const SORT_FIELDS = ["index", "status", "exit_code", "duration", "cost"] as const

/** Parameters that filter and sort the indexes. */
export const INDEX_QUERY = {
  status: choice(INDEX_STATUSES),
  sort_by: choice(SORT_FIELDS, "index"),
  sort_order: choice(["asc", "desc"], "asc"),
}

interface IndexQuery {
  status: IndexStatus | undefined
  sort_by: (typeof SORT_FIELDS)[number]
  sort_order: "asc" | "desc"
}

/** Record of an index. */
export const ArrayIndexSchema = Type.Object(
  {
    index: Type.Integer({ description: "Number of the index, from 0 on." }),
    status: StringEnum(INDEX_STATUSES, { description: "Status of the index. pending: it has no job yet." }),
    values: Type.Unsafe<Record<string, string>>({
      type: "object",
      additionalProperties: { type: "string" },
      description: "Value of each variable of matrix. Empty: the array has a size instead.",
    }),
    job: nullable<string>("string", "Name of its last job. Null: it has none, or the array has deleted it."),
    exit_code: nullable<number>("integer", "Exit code of the container. Null: none is known."),
    duration_seconds: nullable<number>(
      "number",
      "Seconds from the start of the container, until its end or until now.",
    ),
    cost_usd: nullable<number>("number", "Cost of its last job so far, USD. Null: unknown."),
    reason: nullable<string>("string", "Reason for the status of its job, one word."),
    message: nullable<string>("string", "Explanation of the reason for people."),
  },
  { [COMPONENT]: "ArrayIndex", description: "Index of an array, and the result of its last job." },
)
export type ArrayIndex = Static<typeof ArrayIndexSchema>

/** Response of GET /arrays/{id}/indexes. */
export type ArrayIndexList = PageOf<"indexes", ArrayIndex>

/** Jobs of an array, and facts about them. */
export interface ArrayJobs {
  /** The newest first. */
  jobs: readonly StoredJob[]
  /** Returns the time of the last heartbeat of a job's VM. */
  lastHeartbeatOf: (job: StoredJob) => string | undefined
  now: Date
}

/** Returns the indexes of an array that match, sorted. Unknown values come last in either order. Pure. */
export function arrayIndexes(
  array: StoredJobArray,
  known: ArrayJobs,
  { status, sort_by, sort_order }: IndexQuery,
): ArrayIndex[] {
  const newest = new Map<number | undefined, StoredJob>()
  for (const job of known.jobs) {
    const index = arrayIndexOf(job)
    if (!newest.has(index)) newest.set(index, job)
  }
  const ended = endedIn(array)
  const size = Math.min(sizeOf(array.spec), LIMITS.arraySize)
  const rows = Array.from({ length: size }, (_, index) =>
    rowOf(array, { index, job: newest.get(index), ended: ended.get(index) }, known),
  )
  const sign = sort_order === "asc" ? 1 : -1
  return rows
    .filter((row) => status === undefined || row.status === status)
    .sort((a, b) => compareNumbers(rankOf(a, sort_by), rankOf(b, sort_by), sign) || a.index - b.index)
}

function endedIn({ spec, status = {} }: StoredJobArray): Map<number, IndexStatus> {
  const entries = (["succeeded", "failed", "cancelled"] as const).flatMap((one) =>
    [...indexesIn(status[`${one}Indexes`], sizeOf(spec))].map((index) => [index, one] as const),
  )
  return new Map(entries)
}

interface Found {
  index: number
  job: StoredJob | undefined
  /** Status that the array has counted. */
  ended: IndexStatus | undefined
}

function rowOf({ spec }: StoredJobArray, { index, job, ended }: Found, known: ArrayJobs): ArrayIndex {
  const { status = {} } = job ?? {}
  const { startTime, completionTime } = status
  const cost = job && costFields(status, known.lastHeartbeatOf(job) ?? status.lastHeartbeatTime)
  return {
    index,
    status: statusIn(job, ended),
    values: combinationAt(spec.matrix ?? {}, index),
    job: job?.metadata.name ?? null,
    exit_code: status.exitCode ?? null,
    duration_seconds: startTime === undefined ? null : secondsBetween(startTime, completionTime ?? known.now),
    cost_usd: cost?.actual_cost ?? cost?.accrued_cost ?? null,
    reason: status.reason ?? null,
    message: status.message ?? null,
  }
}

/** Returns the status that the array has counted, else that of the job, which may run again. */
function statusIn(job: StoredJob | undefined, ended: IndexStatus | undefined): IndexStatus {
  const own = job && recordStatus(job)
  if (own !== undefined && (ended === undefined || UNFINISHED.some((one) => one === own))) return own
  return ended ?? "pending"
}

function rankOf(row: ArrayIndex, field: IndexQuery["sort_by"]): number | null {
  if (field === "status") return INDEX_STATUSES.indexOf(row.status)
  if (field === "duration") return row.duration_seconds
  return field === "cost" ? row.cost_usd : row[field]
}

function compareNumbers(a: number | null, b: number | null, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null)
  return sign * (a - b)
}
