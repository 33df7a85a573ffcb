import type { TSchema } from "typebox"
import { findCondition } from "../../../core/apis/conditions.ts"
import { creationTimeOf } from "../../../core/apis/creation-times.ts"
import {
  CANCEL_JOBS_FINALIZER,
  CRON_JOB,
  type CronJob,
  CronJobCondition,
  type CronJobSpec,
  type StoredCronJob,
} from "../../../core/apis/cronjob.ts"
import { JobSpecSchema } from "../../../core/apis/job.ts"
import { ANNOTATIONS, API_VERSION } from "../../../core/apis/meta.ts"
import { roundUsd } from "../../../core/apis/money.ts"
import { fromMetadataName, toMetadataName } from "../../../core/apis/names.ts"
import { withoutNulls } from "../../../core/apis/nulls.ts"
import { countTicks, scheduleError } from "../../../core/apis/schedule.ts"
import { type FieldError, findErrors } from "../../../core/apis/validate.ts"
import { toConditionRecords } from "../../../core/records/conditions.ts"
import { inUtc } from "../../../core/records/job.ts"
import type { Owner } from "../../../core/records/owner.ts"
import { lastUpdateTime } from "../../../core/records/update-time.ts"
import type { JobPlan } from "../../../market/placement/place.ts"
import { type Checked, checked, type Rule } from "../../http/checked.ts"
import { inFormat } from "../../http/json-schema.ts"
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
import { definitionRules, type JobIdentity, type SubmissionContext, withHint } from "../jobs/submission.ts"
import {
  type CronJobChange,
  CronJobChangeSchema,
  type CronJobCreation,
  CronJobCreationSchema,
  type CronJobPlanRecord,
  type CronJobRecord,
} from "./schema.ts"

/** Checks the parsed body of POST /cronjobs. */
export function checkCreation(value: unknown, context: SubmissionContext): Checked<CronJobCreation> {
  return check(CronJobCreationSchema, value, context)
}

/** Checks the parsed body of PATCH /cronjobs/{name}: null means unchanged. */
export function checkChange(value: unknown, context: SubmissionContext): Checked<CronJobChange> {
  return check(CronJobChangeSchema, value, context)
}

const FIELD_REASONS: FieldReasons = {
  names: "<cronjob>-<UTC timestamp>",
  after: "the runs of a cronjob wait for no other job",
}

function check<Body>(schema: TSchema, value: unknown, context: SubmissionContext): Checked<Body> {
  const explain = (error: FieldError, body: unknown) => withHint(aboutField(error, FIELD_REASONS), body)
  const checks = { schema, rules: cronJobRules(), context, explain }
  return checked<Body, SubmissionContext>(withoutNulls(NULLS_OF_DEFINITION, value, "fields"), checks)
}

/** Returns the rules of a cronjob's creation and change. @param clouds the clouds that a job may name */
export function cronJobRules(clouds: readonly string[] = []): Rule<SubmissionContext>[] {
  return [SCHEDULE, NAMELESS, ...definitionRules(clouds).map(inDefinition), OWNER]
}

const SCHEDULE: Rule = {
  keywords: { "/properties/cron_spec": inFormat("cron") },
  errors: ({ cron_spec }) => {
    // The schema rejects an empty one.
    const error = typeof cron_spec === "string" && cron_spec !== "" ? scheduleError(cron_spec) : undefined
    return error === undefined ? [] : [{ pointer: "/cron_spec", detail: `cron_spec ${error}` }]
  },
}

/** Returns the CronJob of a checked body. */
export function toCronJob(creation: CronJobCreation, identity: Omit<JobIdentity, "name">): CronJob {
  const { namespace, createdAt, idempotency } = identity
  const { labels, annotations } = idempotencyMarks(idempotency)
  return {
    apiVersion: API_VERSION,
    kind: CRON_JOB.kind,
    metadata: {
      // Every valid name has a metadata.name. Names like a UUID have none, but the schema has rejected them.
      name: toMetadataName(creation.name) ?? creation.name,
      namespace,
      labels,
      annotations: { [ANNOTATIONS.createdAt]: createdAt, ...annotations },
    },
    spec: {
      active: true,
      ...fieldsOf(creation),
      schedule: creation.cron_spec,
      jobDefinition: toDefinitionSpec(creation.job_definition),
    },
  }
}

/** Returns the spec after a checked change, or undefined if the change is empty. */
export function changedSpec(spec: CronJobSpec, change: CronJobChange): CronJobSpec | undefined {
  const fields = fieldsOf(change)
  return Object.keys(fields).length === 0 ? undefined : { ...spec, ...fields }
}

function fieldsOf(change: CronJobChange): Partial<CronJobSpec> {
  const { cron_spec, job_definition, is_active, starting_deadline_seconds, concurrency_policy } = change
  const { successful_jobs_history_limit, failed_jobs_history_limit } = change
  return {
    ...(cron_spec !== undefined && { schedule: cron_spec }),
    ...(job_definition !== undefined && { jobDefinition: toDefinitionSpec(job_definition) }),
    ...(is_active !== undefined && { active: is_active }),
    ...(starting_deadline_seconds !== undefined && { startingDeadlineSeconds: starting_deadline_seconds }),
    ...(concurrency_policy !== undefined && { concurrencyPolicy: concurrency_policy }),
    ...(successful_jobs_history_limit !== undefined && { successfulJobsHistoryLimit: successful_jobs_history_limit }),
    ...(failed_jobs_history_limit !== undefined && { failedJobsHistoryLimit: failed_jobs_history_limit }),
  }
}

/**
 * Returns the errors for which a paused cronjob would create no jobs after the change. kubectl may have
 * stored what is rejected now.
 */
export function errorsOfResumption(present: CronJobSpec, change: CronJobChange): FieldError[] {
  const { cron_spec, job_definition, is_active } = change
  if (is_active !== true || present.active !== false) return []
  const schedule = cron_spec === undefined ? scheduleError(present.schedule) : undefined
  const errors = schedule === undefined ? [] : [`cron_spec ${schedule}: send a valid cron_spec with it`]
  if (job_definition === undefined) {
    const [error] = findErrors(JobSpecSchema, present.jobDefinition)
    if (error !== undefined) errors.push(`job_definition.${error.detail}: send a valid job_definition with it`)
  }
  return errors.map((error) => ({ pointer: "/is_active", detail: `is_active can't be true while ${error}` }))
}

/** Returns the CronJob with or without the finalizer that cancels its jobs. Undefined if nothing has to change. */
export function withCascade(cronJob: StoredCronJob, cascade: boolean): StoredCronJob | undefined {
  const { deletionTimestamp, finalizers = [] } = cronJob.metadata
  const isAsked = finalizers.includes(CANCEL_JOBS_FINALIZER)
  // Kubernetes accepts no new finalizer on an object that is being deleted.
  if (isAsked === cascade || deletionTimestamp !== undefined) return undefined
  const others = finalizers.filter((finalizer) => finalizer !== CANCEL_JOBS_FINALIZER)
  const wanted = cascade ? [...others, CANCEL_JOBS_FINALIZER] : others
  return { ...cronJob, metadata: { ...cronJob.metadata, finalizers: wanted } }
}

/** Returns the record of a CronJob, with every field of the contract. */
export function toCronJobRecord(cronJob: StoredCronJob, owner: Owner): CronJobRecord {
  const { metadata, spec, status } = cronJob
  return {
    id: metadata.uid,
    organization_id: owner.organizationId,
    project_id: owner.projectId,
    name: fromMetadataName(metadata.name),
    cron_spec: spec.schedule,
    job_definition: toDefinition(spec.jobDefinition),
    is_active: spec.active ?? true,
    starting_deadline_seconds: spec.startingDeadlineSeconds ?? null,
    concurrency_policy: spec.concurrencyPolicy ?? "Allow",
    successful_jobs_history_limit: spec.successfulJobsHistoryLimit ?? null,
    failed_jobs_history_limit: spec.failedJobsHistoryLimit ?? null,
    ...conditionOf(cronJob),
    last_triggered_at: inUtc(status?.lastTriggeredTime),
    ...toConditionRecords(cronJob),
    created_at: creationTimeOf(cronJob),
    updated_at: lastUpdateTime(cronJob),
  }
}

const YEAR_MS = 365 * 86_400_000

/** Returns the record of a cronjob's plan. @param plan the plan of one of its jobs */
export function toCronJobPlanRecord({ metadata, spec }: CronJob, plan: JobPlan, now: Date): CronJobPlanRecord {
  const name = fromMetadataName(metadata.name)
  const job = toPlanRecord(name, plan)
  const runs = Math.round((countTicks(spec.schedule, now, new Date(now.getTime() + YEAR_MS)) / 12) * 100) / 100
  return {
    dry_run: true,
    name,
    runs_per_month: runs,
    estimated_cost: job.estimated_cost,
    estimated_monthly_cost: job.estimated_cost === null ? null : roundUsd(runs * job.estimated_cost),
    job,
  }
}

/** Returns the cause of the Ready condition, unless the CronJob has changed since the controller looked at it. */
function conditionOf({ metadata, status }: StoredCronJob): Pick<CronJobRecord, "reason" | "message"> {
  const isCurrent = status?.observedGeneration === metadata.generation
  const ready = isCurrent ? findCondition(status.conditions, CronJobCondition.Ready) : undefined
  return { reason: ready?.reason ?? null, message: ready?.message ?? null }
}
