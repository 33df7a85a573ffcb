import Type, { type Static } from "typebox"
import { LIMITS } from "./field-limits.ts"
import { jobDefinition } from "./job.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { GROUP, type KubeObject, type Stored } from "./meta.ts"
import { SCHEDULE_PATTERN, SHAPE } from "./schedule.ts"
import { ALLOWED, ConditionList, Int, ObservedGeneration, PATTERN_AS_RULE, StringEnum, Text, Time } from "./schema.ts"

export const CONCURRENCY_POLICIES = ["Allow", "Forbid", "Replace"] as const

/**
 * Finalizer of a CronJob whose unfinished Jobs are cancelled when it is deleted. The finalizer is the request: REST
 * sets it for `?cascade=true`, and kubectl or a manifest can set it too. Without it the Jobs continue.
 */
export const CANCEL_JOBS_FINALIZER = `${GROUP}/cancel-jobs`

/** Annotations of Jobs that a CronJob created. */
export const CRON_JOB_ANNOTATIONS = {
  /** Scheduled time of the Job, RFC 3339. */
  scheduledTime: `${GROUP}/scheduled-time`,
  /** Mean duration of the earlier Jobs that succeeded, whole seconds. It gives the estimated cost. */
  expectedSeconds: `${GROUP}/expected-seconds`,
  /** Name of the CronJob, by which its costs are shown after it is deleted. A label has too few characters for it. */
  name: `${GROUP}/cronjob`,
  /** `manual` on a Job that a person ran, beside the schedule. Kubernetes' CronJobs have it as cronjob.kubernetes.io/instantiate. */
  instantiate: `${GROUP}/instantiate`,
} as const

/** Types of a CronJob's conditions. Helm, Flux and Argo CD read them (kstatus). */
export const CronJobCondition = { Ready: "Ready", Stalled: "Stalled" } as const
export type CronJobCondition = (typeof CronJobCondition)[keyof typeof CronJobCondition]

/** Reasons of a CronJob's conditions and events. They are stable: programs match on them. */
export const CronJobReason = {
  Scheduled: "Scheduled",
  Paused: "Paused",
  InvalidSchedule: "InvalidSchedule",
  InvalidDefinition: "InvalidDefinition",
  /** The API server or an admission policy rejected the Job. */
  JobRefused: "JobRefused",
  /** The project, or its organization, is being deleted. */
  ProjectDeleting: "ProjectDeleting",
  /** The project has reached a limit of what it may store or create. */
  ProjectLimit: "ProjectLimit",
  JobCreated: "JobCreated",
  TicksSkipped: "TicksSkipped",
  /** The tick is later than `startingDeadlineSeconds`. */
  DeadlineExceeded: "DeadlineExceeded",
  /** concurrencyPolicy Forbid: an earlier Job is unfinished. */
  JobActive: "JobActive",
  /** concurrencyPolicy Replace. */
  JobReplaced: "JobReplaced",
  NameTaken: "NameTaken",
} as const
export type CronJobReason = (typeof CronJobReason)[keyof typeof CronJobReason]

export const LONGEST_SCHEDULE = 256

export const CronJobSpecSchema = Type.Object({
  schedule: Type.String({
    minLength: 1,
    maxLength: LONGEST_SCHEDULE,
    pattern: SCHEDULE_PATTERN,
    description: "Cron expression of five fields, or an alias such as @hourly. Times are in UTC.",
    [ALLOWED]: `${SHAPE}, or an alias such as @hourly`,
    [PATTERN_AS_RULE]: true,
  }),
  jobDefinition: jobDefinition("Spec of the Jobs that the schedule creates."),
  active: Type.Optional(Type.Boolean({ default: true, description: "Set to false to pause the schedule." })),
  startingDeadlineSeconds: Type.Optional(
    Int({
      description: "Seconds after the scheduled time in which a missed Job may still start. Default: no deadline.",
    }),
  ),
  concurrencyPolicy: Type.Optional(
    StringEnum(CONCURRENCY_POLICIES, {
      default: "Allow",
      description:
        "Policy for a tick while an earlier Job is unfinished. Allow: start the Job. Forbid: wait until the earlier Job ends; only the latest tick is kept. Replace: cancel the earlier Job.",
    }),
  ),
  successfulJobsHistoryLimit: Type.Optional(
    Int({ maximum: 10_000, description: "Number of succeeded Jobs to keep. Default: all." }),
  ),
  failedJobsHistoryLimit: Type.Optional(
    Int({ maximum: 10_000, description: "Number of failed and cancelled Jobs to keep. Default: all." }),
  ),
})
export type CronJobSpec = Static<typeof CronJobSpecSchema>

export const CronJobStatusSchema = Type.Object(
  {
    observedGeneration: ObservedGeneration,
    conditions: Type.Optional(ConditionList),
    observedSchedule: Type.Optional(Text(LONGEST_SCHEDULE, "Schedule that nextTriggerTime was calculated from.")),
    countsFrom: Type.Optional(
      Time("Time of the last processed tick, or of the last change of schedule or active. Later ticks are still due."),
    ),
    lastTriggeredTime: Type.Optional(Time("Scheduled time of the last tick that created a Job.")),
    nextTriggerTime: Type.Optional(Time("Time of the next tick. Absent while the schedule is paused or invalid.")),
  },
  { description: "Observed state. Only Berth's cronjob controller writes it." },
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
  description: "Creates a Job at each tick of a schedule, in UTC.",
  spec: CronJobSpecSchema,
  status: CronJobStatusSchema,
  conditions: Object.values(CronJobCondition),
  rules: [
    ...nameRules(LIMITS.cronJobName),
    {
      // Jobs have its name as a prefix. The second form is a contract name that ends with a dash (names.ts).
      rule: "self.metadata.name.matches('^[a-z0-9][-a-z0-9]*(-x[.]x0)?$')",
      message: "metadata.name must consist of a-z, 0-9 and -, and begin with a letter or digit",
    },
  ],
  printerColumns: [
    { name: "Schedule", type: "string", jsonPath: ".spec.schedule" },
    { name: "Active", type: "boolean", jsonPath: ".spec.active" },
    { name: "Last", type: "date", jsonPath: ".status.lastTriggeredTime" },
    { name: "Next", type: "string", jsonPath: ".status.nextTriggerTime" },
    { name: "State", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].reason" },
    { name: "Concurrency", type: "string", jsonPath: ".spec.concurrencyPolicy", priority: 1 },
    AGE_COLUMN,
  ],
})
