import type { TSchema } from "typebox"
import { indexesError, indexesIn, indexText } from "../../../core/apis/array-indexes.ts"
import { findCondition } from "../../../core/apis/conditions.ts"
import { creationTimeOf } from "../../../core/apis/creation-times.ts"
import { LIMITS } from "../../../core/apis/field-limits.ts"
import {
  type ArrayCounts,
  type ArrayPhase,
  arrayError,
  DEFAULT_HISTORY_LIMIT,
  DEFAULT_PARALLELISM,
  hasArrayEnded,
  JOB_ARRAY,
  type JobArray,
  JobArrayCondition,
  type JobArraySpec,
  type Matrix,
  type StoredJobArray,
  sizeOf,
} from "../../../core/apis/jobarray.ts"
import { ANNOTATIONS, API_VERSION } from "../../../core/apis/meta.ts"
import { roundUsd } from "../../../core/apis/money.ts"
import { withoutNulls } from "../../../core/apis/nulls.ts"
import type { FieldError } from "../../../core/apis/validate.ts"
import { toConditionRecords } from "../../../core/records/conditions.ts"
import { inUtc } from "../../../core/records/job.ts"
import { orderFields } from "../../../core/records/order.ts"
import type { Owner } from "../../../core/records/owner.ts"
import { lastUpdateTime } from "../../../core/records/update-time.ts"
import type { JobPlan } from "../../../market/placement/place.ts"
import { type Checked, checked, type Rule } from "../../http/checked.ts"
import { idempotencyMarks } from "../../idempotency-marks.ts"
import { OWNER } from "../../owner.ts"
import {
  aboutField,
  type FieldReasons,
  inDefinition,
  NAMELESS,
  NULLS_OF_DEFINITION,
  toDefinition,
  toDefinitionSpec,
} from "../jobs/definition.ts"
import { toPlanRecord } from "../jobs/plan.ts"
import {
  definitionRules,
  given,
  type JobIdentity,
  notItself,
  type SubmissionContext,
  withHint,
} from "../jobs/submission.ts"
import {
  type ArrayChange,
  ArrayChangeSchema,
  type ArrayCreation,
  ArrayCreationSchema,
  type ArrayPlanRecord,
  type ArrayRecord,
} from "./schema.ts"

/** Checks the parsed body of POST /arrays. */
export function checkCreation(value: unknown, context: SubmissionContext): Checked<ArrayCreation> {
  return check(ArrayCreationSchema, value, context, arrayRules())
}

/** Checks the parsed body of PATCH /arrays/{id}: null means unchanged. */
export function checkChange(value: unknown, context: SubmissionContext): Checked<ArrayChange> {
  return check(ArrayChangeSchema, value, context, [OWNER])
}

const FIELD_REASONS: FieldReasons = {
  names: "<array>-<index>",
  after: "the array as a whole waits, so send after beside job_definition",
}

function check<Body>(
  schema: TSchema,
  value: unknown,
  context: SubmissionContext,
  rules: readonly Rule<SubmissionContext>[],
): Checked<Body> {
  const explain = (error: FieldError, body: unknown) => withHint(aboutField(error, FIELD_REASONS), body)
  const checks = { schema, rules, context, explain }
  return checked<Body, SubmissionContext>(withoutNulls(NULLS_OF_DEFINITION, value, "fields"), checks)
}

/** Returns the rules of an array's creation. @param clouds the clouds that a job may name */
export function arrayRules(clouds: readonly string[] = []): Rule<SubmissionContext>[] {
  return [
    SIZE_OR_MATRIX,
    COMBINATIONS,
    NAMELESS,
    notItself("array"),
    ...definitionRules(clouds).map(inDefinition),
    OWNER,
  ]
}

const NEITHER = { size: { type: "null" }, matrix: { type: "null" } }

const SIZE_OR_MATRIX: Rule = {
  keywords: { "": { not: { anyOf: [given("size", "matrix"), { properties: NEITHER }] } } },
  errors: ({ size, matrix }) => {
    if ((size === undefined) !== (matrix === undefined)) return []
    return [{ pointer: "/size", detail: "size and matrix exclude each other: send one of them" }]
  },
}

/** Rule of the combinations of a matrix. The schema finds values of other types. */
const COMBINATIONS: Rule = {
  errors: ({ matrix, job_definition }) => {
    if (!isMatrix(matrix) || typeof job_definition !== "object" || job_definition === null) return []
    const { env, secretEnv } = job_definition as Record<string, unknown>
    const jobDefinition = { image: "image", ...(isMap(env) && { env }), ...(isMap(secretEnv) && { secretEnv }) }
    const error = arrayError({ matrix, jobDefinition: jobDefinition as JobArraySpec["jobDefinition"] })
    // Errors of the definition have their own place.
    if (error?.startsWith("matrix") !== true) return []
    return [{ pointer: "/matrix", detail: error.replace("jobDefinition", "job_definition") }]
  },
}

function isMap(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
}

function isMatrix(value: unknown): value is Matrix {
  return isMap(value) && Object.values(value).every((values) => Array.isArray(values))
}

/** Returns the JobArray of a checked body. */
export function toArray(creation: ArrayCreation, identity: Omit<JobIdentity, "name">): JobArray {
  const { namespace, createdAt, idempotency } = identity
  const { labels, annotations } = idempotencyMarks(idempotency)
  const { name, size, matrix, job_definition, after } = creation
  return {
    apiVersion: API_VERSION,
    kind: JOB_ARRAY.kind,
    metadata: { name, namespace, labels, annotations: { [ANNOTATIONS.createdAt]: createdAt, ...annotations } },
    spec: {
      jobDefinition: toDefinitionSpec(job_definition),
      ...(size !== undefined && { size }),
      ...(matrix !== undefined && { matrix }),
      ...(after !== undefined && { after }),
      ...changeableOf(creation),
    },
  }
}

function changeableOf(change: ArrayChange): Partial<JobArraySpec> {
  const { parallelism, max_failed, successful_jobs_history_limit, failed_jobs_history_limit } = change
  const { ttl_seconds_after_finished } = change
  return {
    ...(parallelism !== undefined && { parallelism }),
    ...(max_failed !== undefined && { maxFailed: max_failed }),
    ...(successful_jobs_history_limit !== undefined && { successfulJobsHistoryLimit: successful_jobs_history_limit }),
    ...(failed_jobs_history_limit !== undefined && { failedJobsHistoryLimit: failed_jobs_history_limit }),
    ...(ttl_seconds_after_finished !== undefined && { ttlSecondsAfterFinished: ttl_seconds_after_finished }),
  }
}

/** Returns the array after a checked change, or undefined if the change is empty. */
export function withChange(array: StoredJobArray, change: ArrayChange): StoredJobArray | undefined {
  const fields = changeableOf(change)
  return Object.keys(fields).length === 0 ? undefined : { ...array, spec: { ...array.spec, ...fields } }
}

/** Returns the cancelled array, or undefined if it is cancelled already. */
export function withCancel(array: StoredJobArray): StoredJobArray | undefined {
  return array.spec.cancelled === true ? undefined : { ...array, spec: { ...array.spec, cancelled: true } }
}

/** Returns the error of the indexes that a retry names; undefined if there is none. */
export function retryError(array: StoredJobArray, indexes: string | undefined): string | undefined {
  const error = indexes === undefined ? undefined : indexesError(indexes, sizeOf(array.spec))
  return error && `indexes ${error}`
}

/** Returns the named indexes that have neither failed nor been cancelled. Those of an open retry may be named again. */
export function notRetriable({ spec, status = {} }: StoredJobArray, indexes: string): string {
  const isOpen = (spec.retry?.number ?? 0) > (status.retried ?? 0)
  const texts = [status.failedIndexes, status.cancelledIndexes, isOpen ? spec.retry?.indexes : ""]
  const allowed = new Set(texts.flatMap((text) => [...indexesIn(text, LIMITS.arraySize)]))
  return indexText([...indexesIn(indexes, LIMITS.arraySize)].filter((index) => !allowed.has(index)))
}

/**
 * Returns the array with a request to run indexes again, or undefined if there is nothing to run again. A request that was
 * not carried out yet is part of the new one. @param indexes default: all that have failed
 */
export function withRetry(array: StoredJobArray, indexes: string | undefined): StoredJobArray | undefined {
  const { spec, status = {} } = array
  const wanted = indexes ?? status.failedIndexes ?? ""
  if (wanted === "") return undefined
  const { number = 0, indexes: earlier = "" } = spec.retry ?? {}
  const isOpen = number > (status.retried ?? 0)
  const all = (text: string) => indexesIn(text, LIMITS.arraySize)
  if (isOpen && earlier === wanted) return undefined
  const retry = { number: number + 1, indexes: isOpen ? indexText(new Set([...all(earlier), ...all(wanted)])) : wanted }
  return { ...array, spec: { ...spec, retry } }
}

const NO_COUNTS: ArrayCounts = { pending: 0, queued: 0, booting: 0, running: 0, succeeded: 0, failed: 0, cancelled: 0 }

/** Returns the record of an array. */
export function toArrayRecord(array: StoredJobArray, owner: Owner): ArrayRecord {
  const { metadata, spec, status = {} } = array
  const size = status.size ?? Math.min(sizeOf(spec), LIMITS.arraySize)
  return {
    id: metadata.uid,
    organization_id: owner.organizationId,
    project_id: owner.projectId,
    name: metadata.name,
    job_definition: toDefinition(spec.jobDefinition),
    size,
    matrix: spec.matrix ?? null,
    parallelism: spec.parallelism ?? DEFAULT_PARALLELISM,
    max_failed: spec.maxFailed ?? null,
    successful_jobs_history_limit: spec.successfulJobsHistoryLimit ?? DEFAULT_HISTORY_LIMIT,
    failed_jobs_history_limit: spec.failedJobsHistoryLimit ?? DEFAULT_HISTORY_LIMIT,
    ttl_seconds_after_finished: spec.ttlSecondsAfterFinished ?? null,
    status: arrayStatus(array),
    ...conditionOf(array),
    counts: status.counts ?? { ...NO_COUNTS, pending: size },
    active_indexes: status.activeIndexes ?? "",
    succeeded_indexes: status.succeededIndexes ?? "",
    failed_indexes: status.failedIndexes ?? "",
    cancelled_indexes: status.cancelledIndexes ?? "",
    attempts: status.attempts ?? [],
    ...orderFields({ array: metadata.name }, array),
    actual_cost: status.costUsd ?? 0,
    ...toConditionRecords(array),
    created_at: creationTimeOf(array),
    updated_at: lastUpdateTime(array),
    ended_at: hasEnded(array) ? inUtc(status.completionTime) : null,
  }
}

/** Returns the record of an array's plan. @param plan the plan of one of its jobs */
export function toArrayPlanRecord({ metadata, spec }: JobArray, plan: JobPlan): ArrayPlanRecord {
  const { parallelism = DEFAULT_PARALLELISM, jobDefinition } = spec
  const size = sizeOf(spec)
  const job = toPlanRecord(`${metadata.name}-0`, plan)
  const hourlyUsd = job.placements[0]?.cost_breakdown.total_usd_per_hour
  return {
    dry_run: true,
    name: metadata.name,
    size,
    parallelism,
    estimated_cost: job.estimated_cost === null ? null : roundUsd(size * job.estimated_cost),
    max_cost_usd: jobDefinition.maxCostUsd === undefined ? null : roundUsd(size * jobDefinition.maxCostUsd),
    hourly_usd: hourlyUsd === undefined ? null : roundUsd(Math.min(size, parallelism) * hourlyUsd),
    job,
  }
}

/** True if a retry was requested that the controller has not carried out yet. */
function hasOpenRetry({ spec, status }: StoredJobArray): boolean {
  return spec.cancelled !== true && (spec.retry?.number ?? 0) > (status?.retried ?? 0)
}

/** True if an array has ended, and nothing was requested that lets it run again. */
export function hasEnded(array: StoredJobArray): boolean {
  return hasArrayEnded(array) && !hasOpenRetry(array)
}

/** Returns the status of an array. A cancellation and a retry show at once. */
export function arrayStatus(array: StoredJobArray): ArrayPhase {
  const { spec, status } = array
  if (spec.cancelled === true && !hasArrayEnded(array)) return "cancelled"
  return hasArrayEnded(array) && hasOpenRetry(array) ? "running" : (status?.phase ?? "queued")
}

/** Returns the cause of the Ready condition, unless the array has changed since the controller looked at it. */
function conditionOf({ metadata, status }: StoredJobArray): Pick<ArrayRecord, "reason" | "message"> {
  const isCurrent = status?.observedGeneration === metadata.generation
  const ready = isCurrent ? findCondition(status.conditions, JobArrayCondition.Ready) : undefined
  return { reason: ready?.reason ?? null, message: ready?.message ?? null }
}
