import Type, { type Static } from "typebox"
import { CONCURRENCY_POLICIES, CronJobSpecSchema, LONGEST_SCHEDULE } from "../../../core/apis/cronjob.ts"
import { ALLOWED, COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { conditionsField, ignoredConditions } from "../../../core/records/conditions.ts"
import { nullable } from "../../../core/records/nullable.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { noUuid } from "../../names.ts"
import { Ignored, Repeated } from "../../repetition.ts"
import { JobDefinitionRecordSchema, JobDefinitionSchema, ownerFields } from "../jobs/definition.ts"
import { JobPlanSchema } from "../jobs/plan.ts"

/** Schemas of a cronjob. The property names are exactly those of the contract. */

const { startingDeadlineSeconds, concurrencyPolicy, successfulJobsHistoryLimit, failedJobsHistoryLimit } =
  CronJobSpecSchema.properties

const settings = {
  starting_deadline_seconds: startingDeadlineSeconds,
  concurrency_policy: concurrencyPolicy,
  successful_jobs_history_limit: successfulJobsHistoryLimit,
  failed_jobs_history_limit: failedJobsHistoryLimit,
}

const changeableFields = {
  // Without the kind's pattern: a rule of the body finds the part that is wrong.
  cron_spec: Type.String({
    minLength: 1,
    maxLength: LONGEST_SCHEDULE,
    description: "Standard cron expression of five fields, or an alias such as @hourly; in UTC.",
  }),
  job_definition: JobDefinitionSchema,
  is_active: Type.Boolean({ description: "False while the schedule is paused." }),
}

/** Body of POST /cronjobs. */
export const CronJobCreationSchema = Type.Object(
  {
    name: Type.String({
      minLength: 3,
      maxLength: 100,
      pattern: "^[a-z0-9][a-z0-9-]*$",
      description: "Unique in the project.",
      [ALLOWED]: "of a-z, 0-9 and -, with a letter or digit first",
      ...noUuid("cronjob"),
    }),
    cron_spec: changeableFields.cron_spec,
    job_definition: changeableFields.job_definition,
    is_active: Type.Optional(Type.Boolean({ ...changeableFields.is_active, default: true })),
    ...settings,
    ...ownerFields,
  },
  { description: "New cronjob." },
)
export type CronJobCreation = Static<typeof CronJobCreationSchema>

/** Body of PATCH /cronjobs/{name}. Omitted and null fields are unchanged. */
export const CronJobChangeSchema = Type.Object(
  {
    cron_spec: Type.Optional(changeableFields.cron_spec),
    job_definition: Type.Optional(changeableFields.job_definition),
    is_active: Type.Optional(changeableFields.is_active),
    ...settings,
    ...ownerFields,
    id: Repeated(),
    name: Repeated(),
    created_at: Repeated(),
    updated_at: Ignored(),
    last_triggered_at: Ignored(),
    reason: Ignored(),
    message: Ignored(),
    conditions: ignoredConditions(),
  },
  { description: "Change of a cronjob." },
)
export type CronJobChange = Static<typeof CronJobChangeSchema>

/** Record of a cronjob: every field of the contract. */
export const CronJobRecordSchema = Type.Object({
  id: Type.String({ description: "UUID." }),
  organization_id: Type.String(),
  project_id: Type.String(),
  name: Type.String(),
  cron_spec: Type.String({ description: "Cron expression, in UTC." }),
  job_definition: JobDefinitionRecordSchema,
  is_active: Type.Boolean(),
  starting_deadline_seconds: nullable<number>(
    "integer",
    "Seconds after the scheduled time in which a missed job may still start. Null: no deadline.",
  ),
  concurrency_policy: StringEnum(CONCURRENCY_POLICIES, {
    description: "Policy for a tick while an earlier job is unfinished. Default: Allow.",
  }),
  successful_jobs_history_limit: nullable<number>("integer", "Number of succeeded jobs to keep. Null: all."),
  failed_jobs_history_limit: nullable<number>("integer", "Number of failed and cancelled jobs to keep. Null: all."),
  reason: nullable<string>("string", "Reason why the cronjob creates jobs or does not, one word. Null: not known yet."),
  message: nullable<string>("string", "Explanation of the reason for people."),
  conditions: conditionsField(),
  last_triggered_at: Type.Unsafe<string | null>({
    type: ["string", "null"],
    description: "Scheduled time of the last tick that created a job.",
  }),
  created_at: Type.String(),
  updated_at: Type.String(),
})
export type CronJobRecord = Static<typeof CronJobRecordSchema>

/** Response of POST /cronjobs?dry_run=true. All runs have one plan, at the prices of now. */
export const CronJobPlanSchema = Type.Object(
  {
    dry_run: Type.Boolean({ description: "Always true: nothing was created." }),
    name: Type.String({ description: "Name of the cronjob." }),
    runs_per_month: Type.Number({ description: "Ticks of the schedule in the next 365 days, for each of 12 months." }),
    estimated_cost: nullable<number>(
      "number",
      "Expected cost of one run on the first placement, USD. It does not limit the cost.",
    ),
    estimated_monthly_cost: nullable<number>(
      "number",
      "Expected cost of all runs of a month at the prices of now, USD. It does not limit the cost.",
    ),
    job: { ...JobPlanSchema, [COMPONENT]: "JobPlan" },
  },
  { description: "Plan for the cronjob, if it were created now." },
)
export type CronJobPlanRecord = Static<typeof CronJobPlanSchema>

/** Response of GET /cronjobs. */
export type CronJobList = PageOf<"cronjobs", CronJobRecord>
