import type { ArrayPlan, CronJobPlan, JobPlan } from "../client/client.ts"
import type { CostReport } from "../client/costs.ts"
import { count, usd } from "./format.ts"

/** Plan of a job, or of an array or a cronjob, whose jobs have one plan. */
export type AnyPlan = JobPlan | ArrayPlan | CronJobPlan

/** Returns the plan of a job, or of each job of an array or a cronjob. */
export function jobPlanOf(plan: AnyPlan): JobPlan {
  return "job" in plan ? plan.job : plan
}

/** Beginnings of the sentences about jobs that wait for others. */
const ORDER_TEXTS: Readonly<Record<string, string>> = {
  DependencyFailed: "The job would fail",
  DependencyCycle: "The job would never start",
}

/** Returns the beginning of the sentence that says why a job would have no machine yet, or never. */
export function verdictText({ verdict, reason }: Pick<JobPlan, "verdict" | "reason">): string {
  return ORDER_TEXTS[reason] ?? (verdict === "waits" ? "The job would wait" : "Nothing fits")
}

/** Returns the price of all jobs in sentences, and what it counts; empty for a single job. */
export function sumOf(plan: AnyPlan): string[] {
  if ("size" in plan) return sumOfArray(plan)
  return "runs_per_month" in plan ? sumOfCronJob(plan) : []
}

function sumOfArray({ size, parallelism, estimated_cost, max_cost_usd, hourly_usd, job }: ArrayPlan): string[] {
  const each = job.estimated_cost === null ? "" : `, ${usd(job.estimated_cost)} each`
  const atOnce = Math.min(size, parallelism)
  return [
    estimated_cost === null
      ? `${jobsText(size)}.`
      : `${jobsText(size)}: about ${usd(estimated_cost)} in total${each}. This counts each index once; a retry costs more.`,
    `At most ${count(atOnce)} at the same time${hourly_usd === null ? "" : `: ${usd(hourly_usd)} an hour`}.`,
    ...(max_cost_usd === null ? [] : [`At most ${usd(max_cost_usd)} in total.`]),
  ]
}

function jobsText(size: number): string {
  return size === 1 ? "1 job" : `${count(size)} jobs`
}

function sumOfCronJob({ runs_per_month: runs, estimated_cost, estimated_monthly_cost }: CronJobPlan): string[] {
  const often = `about ${count(Math.round(runs * 10) / 10)} runs a month`
  if (estimated_cost === null || estimated_monthly_cost === null) return [`The schedule has ${often}.`]
  return [
    `One run: about ${usd(estimated_cost)}.`,
    `The schedule has ${often}: about ${usd(estimated_monthly_cost)} a month. This is an estimate, at the prices of now.`,
  ]
}

type Budget = CostReport["budgets"][number]

/** Returns which caps the jobs of an array or a cronjob break together, in sentences. The verdict of a plan is about one job. */
export function capNotes(plan: AnyPlan, budgets: readonly Budget[]): string[] {
  if ("size" in plan) return budgets.flatMap((budget) => arrayNotes(plan, budget))
  if (!("runs_per_month" in plan)) return []
  const { estimated_monthly_cost: monthlyUsd } = plan
  return budgets.flatMap(({ level, max_monthly_usd: most }) =>
    most === null || monthlyUsd === null || monthlyUsd <= most
      ? []
      : [
          `The cap of the ${level} is ${usd(most)} a month. All runs of a month cost about ${usd(monthlyUsd)}: later ones wait for the next month.`,
        ],
  )
}

function arrayNotes(
  { size, parallelism, estimated_cost: sumUsd, hourly_usd: hourlyUsd }: ArrayPlan,
  { level, left_usd, max_monthly_usd, max_hourly_usd, hourly_usd, max_vms, vms }: Budget,
): string[] {
  const cap = `The cap of the ${level}`
  const atOnce = Math.min(size, parallelism)
  const notes: string[] = []
  if (max_monthly_usd !== null && left_usd !== null && sumUsd !== null && sumUsd > left_usd)
    notes.push(
      `${cap} leaves ${usd(left_usd)} of ${usd(max_monthly_usd)} this month. All jobs cost about ${usd(sumUsd)}: the rest waits for the next month.`,
    )
  const leftHourlyUsd = max_hourly_usd === null ? Number.POSITIVE_INFINITY : Math.max(0, max_hourly_usd - hourly_usd)
  if (hourlyUsd !== null && hourlyUsd > leftHourlyUsd)
    notes.push(`${cap} leaves ${usd(leftHourlyUsd)} an hour: fewer than ${count(atOnce)} jobs run at the same time.`)
  const leftVms = max_vms === null ? Number.POSITIVE_INFINITY : Math.max(0, max_vms - vms)
  if (atOnce > leftVms) notes.push(`${cap} leaves ${count(leftVms)} machines: the other jobs wait.`)
  return notes
}
