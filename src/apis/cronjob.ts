import Type, { type Static } from "typebox"
import { JobSpecSchema } from "./job.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { LIMITS } from "./limits.ts"
import { GROUP, type KubeObject, type Stored } from "./meta.ts"
import { ConditionList, Int, StringEnum, Text, Time } from "./schema.ts"

export const CONCURRENCY_POLICIES = ["Allow", "Forbid", "Replace"] as const

/**
 * On a CronJob whose deletion shall cancel what of its Jobs has not ended: the finalizer itself is how that is asked
 * for, by REST (`?cascade=true`), by kubectl or in a manifest. Where it is not, nothing holds a deletion up.
 */
export const CANCEL_JOBS_FINALIZER = `${GROUP}/cancel-jobs`

/** Annotations of the Jobs that a CronJob has made. */
export const CRON_JOB_ANNOTATIONS = {
  /** The tick that it was made for, RFC 3339. */
  scheduledTime: `${GROUP}/scheduled-time`,
  /** How long its like took so far, the mean of those that succeeded, whole seconds: for its estimated cost. */
  expectedSeconds: `${GROUP}/expected-seconds`,
} as const

/** Types of a CronJob's conditions, which are those that kstatus (Helm, Flux, Argo CD) reads. */
export const CronJobCondition = { Ready: "Ready", Stalled: "Stalled" } as const
export type CronJobCondition = (typeof CronJobCondition)[keyof typeof CronJobCondition]

/** Reasons in a CronJob's conditions and events, stable: programs match on them. */
export const CronJobReason = {
  Scheduled: "Scheduled",
  Paused: "Paused",
  InvalidSchedule: "InvalidSchedule",
  InvalidDefinition: "InvalidDefinition",
  /** The API server, or a policy of it, takes no Job of this definition. */
  JobRefused: "JobRefused",
  JobCreated: "JobCreated",
  TicksSkipped: "TicksSkipped",
  /** Too late by `startingDeadlineSeconds`. */
  DeadlineExceeded: "DeadlineExceeded",
  /** concurrencyPolicy Forbid: an earlier Job has not ended. */
  JobActive: "JobActive",
  /** concurrencyPolicy Replace. */
  JobReplaced: "JobReplaced",
  NameTaken: "NameTaken",
} as const
export type CronJobReason = (typeof CronJobReason)[keyof typeof CronJobReason]

const LONGEST_SCHEDULE = 256

const { cancelled: _cancelled, ...definitionFields } = JobSpecSchema.properties

export const CronJobSpecSchema = Type.Object({
  schedule: Type.String({
    minLength: 1,
    maxLength: LONGEST_SCHEDULE,
    description: "Cron expression of five fields or an alias such as @hourly, in UTC.",
  }),
  jobDefinition: Type.Object(definitionFields, { description: "The spec of the Jobs that are created." }),
  active: Type.Optional(Type.Boolean({ default: true, description: "False: the schedule does not fire." })),
  startingDeadlineSeconds: Type.Optional(
    Int({ description: "How late a missed tick may still start, seconds. Default: however late." }),
  ),
  concurrencyPolicy: Type.Optional(
    StringEnum(CONCURRENCY_POLICIES, {
      default: "Allow",
      description:
        "What a tick does while an earlier Job is unfinished: Allow, Forbid (wait for its end; the latest one counts) or Replace (cancel the earlier).",
    }),
  ),
  successfulJobsHistoryLimit: Type.Optional(
    Int({ maximum: 10_000, description: "Succeeded Jobs to keep. Default: all." }),
  ),
  failedJobsHistoryLimit: Type.Optional(
    Int({ maximum: 10_000, description: "Failed and cancelled Jobs to keep. Default: all." }),
  ),
})
export type CronJobSpec = Static<typeof CronJobSpecSchema>

export const CronJobStatusSchema = Type.Object(
  {
    observedGeneration: Type.Optional(Int()),
    conditions: Type.Optional(ConditionList),
    observedSchedule: Type.Optional(Text(LONGEST_SCHEDULE, "The schedule that nextTriggerTime is of.")),
    countsFrom: Type.Optional(
      Time("Ticks after this are still to come: the last one dealt with, or when schedule or active changed."),
    ),
    lastTriggeredTime: Type.Optional(Time("The last tick that made a Job.")),
    nextTriggerTime: Type.Optional(Time("The next tick; none while paused or not valid.")),
  },
  { description: "What has happened so far. Written by Berth's cronjob controller only." },
)
export type CronJobStatus = Static<typeof CronJobStatusSchema>

export type CronJob = KubeObject<CronJobSpec, CronJobStatus>
export type StoredCronJob = Stored<CronJob>

export const CRON_JOB = defineKind({
  kind: "CronJob",
  plural: "cronjobs",
  singular: "cronjob",
  shortNames: ["bcj"],
  namespaced: true,
  description: "Makes a Job at each tick of a schedule, in UTC.",
  spec: CronJobSpecSchema,
  status: CronJobStatusSchema,
  rules: [
    ...nameRules(LIMITS.cronJobName),
    {
      // Its Jobs are named after it. The second form is that of a contract name with a dash at its end (names.ts).
      rule: "self.metadata.name.matches('^[a-z0-9][-a-z0-9]*(-x[.]x0)?$')",
      message: "metadata.name must be of a-z, 0-9 and -",
    },
  ],
  printerColumns: [
    { name: "Schedule", type: "string", jsonPath: ".spec.schedule" },
    { name: "Active", type: "boolean", jsonPath: ".spec.active" },
    { name: "Last", type: "date", jsonPath: ".status.lastTriggeredTime" },
    { name: "Next", type: "string", jsonPath: ".status.nextTriggerTime" },
    { name: "State", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].reason" },
    { name: "Concurrency", type: "string", jsonPath: ".spec.concurrencyPolicy", priority: 1 },
    { name: "Image", type: "string", jsonPath: ".spec.jobDefinition.image", priority: 1 },
    AGE_COLUMN,
  ],
})
