import Type, { type Static } from "typebox"
import { JobSpecSchema } from "./job.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { LIMITS } from "./limits.ts"
import type { KubeObject, Stored } from "./meta.ts"
import { ConditionList, Int, StringEnum, Time } from "./schema.ts"

export const CONCURRENCY_POLICIES = ["Allow", "Forbid", "Replace"] as const

const { cancelled: _cancelled, ...definitionFields } = JobSpecSchema.properties

export const CronJobSpecSchema = Type.Object({
  schedule: Type.String({
    minLength: 1,
    maxLength: 256,
    description: "Cron expression of five fields or an alias such as @hourly, in UTC.",
  }),
  jobDefinition: Type.Object(definitionFields, { description: "The spec of the Jobs that are created." }),
  active: Type.Optional(Type.Boolean({ default: true, description: "False: the schedule does not fire." })),
  startingDeadlineSeconds: Type.Optional(Int({ description: "How late a missed tick may still start." })),
  concurrencyPolicy: Type.Optional(
    StringEnum(CONCURRENCY_POLICIES, {
      default: "Allow",
      description:
        "What a tick does while an earlier Job is unfinished: Allow, Forbid (skip) or Replace (cancel the earlier).",
    }),
  ),
  successfulJobsHistoryLimit: Type.Optional(
    Int({ maximum: 10_000, description: "Finished Jobs to keep. Default: all." }),
  ),
  failedJobsHistoryLimit: Type.Optional(Int({ maximum: 10_000, description: "Failed Jobs to keep. Default: all." })),
})
export type CronJobSpec = Static<typeof CronJobSpecSchema>

export const CronJobStatusSchema = Type.Object({
  observedGeneration: Type.Optional(Int()),
  conditions: Type.Optional(ConditionList),
  lastTriggeredTime: Type.Optional(Time("The last tick that made a Job.")),
  nextTriggerTime: Type.Optional(Time("The next tick.")),
})
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
    AGE_COLUMN,
  ],
})
