import Type, { type Static } from "typebox"
import { LIMITS } from "../../../core/apis/field-limits.ts"
import {
  ARRAY_PHASES,
  ArrayCountsSchema,
  DEFAULT_HISTORY_LIMIT,
  DEFAULT_PARALLELISM,
  JobArraySpecSchema,
  type Matrix,
} from "../../../core/apis/jobarray.ts"
import { ALLOWED, COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { conditionsField } from "../../../core/records/conditions.ts"
import { nullable } from "../../../core/records/nullable.ts"
import { ORDER_FIELDS } from "../../../core/records/order.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { noUuid } from "../../names.ts"
import { Ignored, Repeated } from "../../repetition.ts"
import { JobDefinitionRecordSchema, JobDefinitionSchema, ownerFields } from "../jobs/definition.ts"
import { JobPlanSchema } from "../jobs/plan.ts"

const {
  size,
  matrix,
  parallelism,
  maxFailed,
  successfulJobsHistoryLimit,
  failedJobsHistoryLimit,
  ttlSecondsAfterFinished,
  after,
} = JobArraySpecSchema.properties

/** Fields that a PATCH changes. */
const changeableFields = {
  parallelism,
  max_failed: maxFailed,
  successful_jobs_history_limit: successfulJobsHistoryLimit,
  failed_jobs_history_limit: failedJobsHistoryLimit,
  ttl_seconds_after_finished: ttlSecondsAfterFinished,
}

/** Body of POST /arrays. */
export const ArrayCreationSchema = Type.Object(
  {
    name: Type.String({
      minLength: 3,
      maxLength: LIMITS.jobArrayName,
      pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
      description: "Unique in the project.",
      [ALLOWED]: "of a-z, 0-9 and -, with a letter or digit at both ends",
      ...noUuid("array"),
    }),
    job_definition: JobDefinitionSchema,
    size,
    matrix,
    ...changeableFields,
    after,
    ...ownerFields,
  },
  { description: "New array." },
)
export type ArrayCreation = Static<typeof ArrayCreationSchema>

/** Body of PATCH /arrays/{id}. Omitted and null fields are unchanged. */
export const ArrayChangeSchema = Type.Object(
  {
    ...changeableFields,
    ...ownerFields,
    id: Repeated(),
    name: Repeated(),
    created_at: Repeated(),
    updated_at: Ignored(),
  },
  { description: "Change of an array." },
)
export type ArrayChange = Static<typeof ArrayChangeSchema>

/** Body of POST /arrays/{id}/retry-failed. */
export const ArrayRetrySchema = Type.Object(
  {
    indexes: Type.Optional(
      Type.Unsafe<string | number[]>({
        type: ["string", "array"],
        items: { type: "integer", minimum: 0, maximum: LIMITS.arraySize - 1 },
        minItems: 1,
        description:
          "Indexes that run again, as a list or as text such as 0-41,44. Each must have failed or been cancelled. " +
          "Default: all failed.",
      }),
    ),
  },
  { description: "Part of an array that runs again." },
)
export type ArrayRetry = Static<typeof ArrayRetrySchema>

const indexes = (what: string) => Type.String({ description: `Indexes ${what}, such as 0-41,44. Empty: none.` })

/** Record of an array. */
export const ArrayRecordSchema = Type.Object({
  id: Type.String({ description: "UUID." }),
  organization_id: Type.String(),
  project_id: Type.String(),
  name: Type.String({
    description: "Its jobs are named <name>-<index>, from the second attempt on <name>-<index>-<attempt>.",
  }),
  job_definition: JobDefinitionRecordSchema,
  size: Type.Integer({ description: "Number of indexes: 0 to size - 1." }),
  matrix: Type.Unsafe<Matrix | null>({
    type: ["object", "null"],
    description: "Values of each variable. The last variable of the alphabet changes fastest. Null: no variables.",
    additionalProperties: { type: "array", items: { type: "string" } },
  }),
  parallelism: Type.Integer({ description: `Maximum number of unfinished jobs. Default: ${DEFAULT_PARALLELISM}.` }),
  max_failed: nullable<number>("integer", "Number of failed indexes that the array accepts. Null: no limit."),
  successful_jobs_history_limit: Type.Integer({
    description: `Number of succeeded jobs to keep. Default: ${DEFAULT_HISTORY_LIMIT}.`,
  }),
  failed_jobs_history_limit: Type.Integer({
    description: `Number of failed and cancelled jobs to keep. Default: ${DEFAULT_HISTORY_LIMIT}.`,
  }),
  ttl_seconds_after_finished: nullable<number>(
    "integer",
    "Seconds after which the finished array is deleted. Null: the default, 30 days.",
  ),
  status: StringEnum(ARRAY_PHASES, { description: "Status of the array." }),
  reason: nullable<string>("string", "Reason for the status, one word. Null: not known yet."),
  message: nullable<string>("string", "Explanation of the reason for people."),
  conditions: conditionsField(),
  counts: Type.Object(ArrayCountsSchema.properties, { [COMPONENT]: "ArrayCounts", description: "Indexes by phase." }),
  active_indexes: indexes("with a job that has not ended, or whose cost is not final"),
  succeeded_indexes: indexes("that succeeded"),
  failed_indexes: indexes("that failed"),
  cancelled_indexes: indexes("that were cancelled"),
  attempts: Type.Array(
    Type.Object(
      { attempt: Type.Integer({ description: "Number of the attempt." }), indexes: indexes("with this number") },
      { [COMPONENT]: "ArrayAttempt" },
    ),
    { description: "Indexes that are not in their first attempt." },
  ),
  ...ORDER_FIELDS,
  actual_cost: Type.Number({ description: "Cost of the jobs whose VMs are deleted, USD." }),
  created_at: Type.String(),
  updated_at: Type.String(),
  ended_at: nullable<string>("string", "Time at which the array ended. Null: it has not."),
})
export type ArrayRecord = Static<typeof ArrayRecordSchema>

/**
 * Response of POST /arrays?dry_run=true. All indexes have one plan: they differ in their environment only, and no price
 * depends on it.
 */
export const ArrayPlanSchema = Type.Object(
  {
    dry_run: Type.Boolean({ description: "Always true: nothing was created." }),
    name: Type.String({ description: "Name of the array." }),
    size: Type.Integer({ description: "Number of indexes." }),
    parallelism: Type.Integer({ description: "Maximum number of unfinished jobs." }),
    estimated_cost: nullable<number>(
      "number",
      "Sum of the expected costs of all indexes on the first placement, USD. It does not limit the cost. It counts one job for each index: an index that runs again costs more.",
    ),
    max_cost_usd: nullable<number>(
      "number",
      "Sum of the jobs' maxCostUsd: most that all indexes may cost, each in one job, USD. Null: no limit.",
    ),
    hourly_usd: nullable<number>(
      "number",
      "Price of as many VMs of the first placement as run at the same time, USD per hour. parallelism limits it.",
    ),
    job: { ...JobPlanSchema, [COMPONENT]: "JobPlan" },
  },
  { description: "Plan for the array, if it were created now." },
)
export type ArrayPlanRecord = Static<typeof ArrayPlanSchema>

/** Response of GET /arrays. */
export type ArrayList = PageOf<"arrays", ArrayRecord>
