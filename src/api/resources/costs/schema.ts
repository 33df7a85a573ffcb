import Type, { type Static } from "typebox"
import { CAP_LEVELS, ON_EXCEEDED, RESERVATIONS } from "../../../core/apis/caps.ts"
import { COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { nullable } from "../../../core/records/nullable.ts"
import { type CappedLevel, leftUsd, reservedUsd, spentUsd } from "../../../market/placement/caps.ts"

const usd = (description: string) => Type.Number({ description: `${description}, USD.` })

/** Caps of one level, and the spending under them. */
export const BudgetSchema = Type.Object(
  {
    level: StringEnum(CAP_LEVELS, { description: "Level of the caps." }),
    max_vms: nullable<number>("integer", "Maximum number of VMs at a time. Null: no cap."),
    max_gpus: nullable<number>("integer", "Maximum number of GPUs of all VMs at a time. Null: no cap."),
    max_idle_vms: nullable<number>("integer", "Maximum number of VMs that wait for another job. Null: no cap."),
    max_hourly_usd: nullable<number>("number", "Maximum price of all VMs, USD per hour. Null: no cap."),
    max_monthly_usd: nullable<number>("number", "Maximum spending in a calendar month (UTC), USD. Null: no cap."),
    on_exceeded: StringEnum(ON_EXCEEDED, { description: "Action when max_monthly_usd is spent." }),
    reserve: StringEnum(RESERVATIONS, { description: "Amount that a live VM takes from max_monthly_usd." }),
    vms: Type.Integer({ description: "Present number of VMs." }),
    gpus: Type.Integer({ description: "Present number of GPUs of all VMs." }),
    idle_vms: Type.Integer({ description: "Present number of VMs that wait for another job." }),
    hourly_usd: usd("Present price of all VMs an hour"),
    spent_usd: usd("Cost of this month so far"),
    reserved_usd: usd("Further cost that live VMs take from max_monthly_usd"),
    left_usd: nullable<number>("number", "Amount that max_monthly_usd leaves for new VMs, USD. Null: no cap."),
  },
  { [COMPONENT]: "Budget", description: "Caps of a level, and the spending under them." },
)
export type BudgetRecord = Static<typeof BudgetSchema>

export function toBudgetRecord(level: CappedLevel): BudgetRecord {
  const { caps, spending } = level
  return {
    level: level.level,
    max_vms: caps.maxVms ?? null,
    max_gpus: caps.maxGpus ?? null,
    max_idle_vms: caps.maxIdleVms ?? null,
    max_hourly_usd: caps.maxHourlyUsd ?? null,
    max_monthly_usd: caps.maxMonthlyUsd ?? null,
    on_exceeded: caps.onExceeded ?? "wait",
    reserve: caps.reserve ?? "expected",
    vms: spending.vms,
    gpus: spending.gpus,
    idle_vms: spending.idleVms,
    hourly_usd: spending.hourlyUsd,
    spent_usd: spentUsd(spending),
    reserved_usd: reservedUsd(level),
    left_usd: leftUsd(level) ?? null,
  }
}

const amounts = (description: string) =>
  Type.Unsafe<Record<string, number>>({
    type: "object",
    additionalProperties: { type: "number" },
    description: `${description}, USD. Only with by=day.`,
  })

const CostRowSchema = Type.Object(
  {
    key: nullable<string>(
      "string",
      'Day, cloud, purchase option, job, cronjob or value of the label. A deleted cronjob has " (deleted)" after its name. Null: the rest, so that the rows add up to total_usd. Negative with by=job: the jobs cost more, outside of the period.',
    ),
    cost_usd: usd("Cost"),
    by_cloud: Type.Optional(amounts("Cost of the day by cloud")),
    by_provisioning: Type.Optional(amounts("Cost of the day by purchase option")),
  },
  { [COMPONENT]: "CostRow" },
)

/** Response of GET /costs. */
export const CostReportSchema = Type.Object({
  from: Type.String({ description: "First day (UTC)." }),
  to: Type.String({ description: "Day after the last one (UTC)." }),
  by: Type.String({ description: "Property by which the rows are grouped." }),
  total_usd: usd("Cost in the period: ended VMs, and live ones so far"),
  rows: Type.Array(CostRowSchema, { description: "Days in their order; otherwise the largest cost first." }),
  budgets: Type.Array(BudgetSchema, { description: "Present caps that the project's jobs are under, nearest first." }),
})
export type CostReport = Static<typeof CostReportSchema>
