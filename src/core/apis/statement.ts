import Type, { type Static } from "typebox"
import { LIMITS } from "./field-limits.ts"
import { PROVISIONINGS } from "./job.ts"
import { AGE_COLUMN, defineKind } from "./kind.ts"
import type { KubeObject, Stored } from "./meta.ts"
import { ALLOWED, Int, immutable, MapSchema, ObservedGeneration, Text } from "./schema.ts"

export const StatementSpecSchema = Type.Object(
  {
    namespace: Text(63, "Namespace of the project."),
    month: Type.String({
      pattern: "^[0-9]{4}-(0[1-9]|1[0-2])$",
      maxLength: 7,
      description: "Calendar month (UTC), such as 2026-11.",
      [ALLOWED]: "a calendar month such as 2026-11",
    }),
    organization: Type.Optional(Text(63, "Organization of the project. Its caps count the costs.")),
  },
  {
    description: "Project and month of the statement.",
    "x-kubernetes-validations": [immutable(["namespace", "month", "organization"])],
  },
)
export type StatementSpec = Static<typeof StatementSpecSchema>

/** Most pairs of a label and its value whose costs are kept apart. */
export const MOST_LABELS = 100

/** Most CronJobs whose costs are kept apart. */
export const MOST_CRON_JOBS = 100

/** Most parts of days, by cloud and purchase option, whose costs are kept apart: 8 for each day. */
export const MOST_DAILY = 248

/** Most Launches that a Statement has counted and that do not say so yet. */
export const MOST_COUNTED = 2000

function Usd(description: string) {
  return Type.Number({ minimum: 0, description })
}

const DailyCostSchema = Type.Object({
  day: Int({ minimum: 1, maximum: 31, description: "Day of the month (UTC)." }),
  cloud: Text(32, "Cloud."),
  provisioning: Text(16, "Purchase option."),
  vmSeconds: Type.Optional(Type.Number({ minimum: 0, description: "Lifetime of the VMs on this day, seconds." })),
  machineUsd: Usd("Machines, USD."),
  diskUsd: Usd("Disks, USD."),
  addressUsd: Usd("Public IPv4 addresses, USD."),
})
export type DailyCost = Static<typeof DailyCostSchema>

export const StatementStatusSchema = Type.Object(
  {
    observedGeneration: ObservedGeneration,
    spentUsd: Type.Optional(Usd("Cost of the project's ended VMs in this month, USD.")),
    byCloud: Type.Optional(
      MapSchema(Usd("USD."), {
        keys: { maxLength: 32, allowed: "at most 32 characters" },
        maxProperties: 32,
        description: "Cost by cloud, USD.",
      }),
    ),
    byProvisioning: Type.Optional(
      MapSchema(Usd("USD."), {
        keys: { maxLength: 16, allowed: "at most 16 characters" },
        maxProperties: PROVISIONINGS.length,
        description: "Cost by purchase option, USD.",
      }),
    ),
    byLabel: Type.Optional(
      Type.Array(
        Type.Object({
          key: Text(LIMITS.labelKey, "Key of the label."),
          value: Text(LIMITS.labelValue, "Value of the label."),
          usd: Usd("Cost of the jobs with this label, USD."),
        }),
        {
          maxItems: MOST_LABELS,
          description: "Cost by the labels of the jobs, USD. A job with two labels counts twice.",
        },
      ),
    ),
    otherLabelsUsd: Type.Optional(Usd(`Cost by all labels that are not among the ${MOST_LABELS} of byLabel, USD.`)),
    byCronJob: Type.Optional(
      Type.Array(
        Type.Object({
          uid: Text(64, "Uid of the CronJob."),
          name: Type.Optional(Text(LIMITS.cronJobName, "Name of the CronJob. It may be deleted.")),
          usd: Usd("Cost of the jobs that the CronJob created, USD."),
        }),
        { maxItems: MOST_CRON_JOBS, description: "Cost by the CronJobs that created the jobs, USD." },
      ),
    ),
    otherCronJobsUsd: Type.Optional(
      Usd(`Cost by all CronJobs that are not among the ${MOST_CRON_JOBS} of byCronJob, USD.`),
    ),
    daily: Type.Optional(
      Type.Array(DailyCostSchema, {
        maxItems: MOST_DAILY,
        description: "Cost by day, cloud and purchase option.",
      }),
    ),
    marginUsd: Type.Optional(
      Usd(
        "Amount by which spot VMs may have cost more than spentUsd, because their prices may have risen to their ceilings, USD. Strict caps count it.",
      ),
    ),
    counted: Type.Optional(
      Type.Array(Text(253, "Name of a Launch."), {
        maxItems: MOST_COUNTED,
        description: "Launches whose cost is counted here, and that may not say so yet.",
      }),
    ),
  },
  { description: "Costs so far. Only Berth's operator writes it." },
)
export type StatementStatus = Static<typeof StatementStatusSchema>

export type Statement = KubeObject<StatementSpec, StatementStatus>
export type StoredStatement = Stored<Statement>

/** Returns the name of a project's Statement of a month. A namespace has no other project at the same time. */
export function statementName(namespace: string, month: string): string {
  return `${namespace}-${month}`
}

/** Returns the calendar day (UTC) of a time, such as `2026-11-24`. */
export function dayOf(time: Date): string {
  return time.toISOString().slice(0, 10)
}

/** Returns the calendar month (UTC) of a time, such as `2026-11`. */
export function monthOf(time: Date): string {
  return time.toISOString().slice(0, 7)
}

export const STATEMENT = defineKind({
  kind: "Statement",
  plural: "statements",
  singular: "statement",
  shortNames: ["bstmt"],
  namespaced: true,
  description: "Cost of a project in one month. Berth writes it; tenants do not.",
  spec: StatementSpecSchema,
  status: StatementStatusSchema,
  conditions: [],
  owned: ["spec", "status"],
  printerColumns: [
    { name: "Project", type: "string", jsonPath: ".spec.namespace" },
    { name: "Month", type: "string", jsonPath: ".spec.month" },
    { name: "USD", type: "number", jsonPath: ".status.spentUsd", description: "Cost of the ended VMs, USD." },
    AGE_COLUMN,
  ],
  selectableFields: [".spec.namespace", ".spec.month"],
})
