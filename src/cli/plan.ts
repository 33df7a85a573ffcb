import type { ArrayPlan, JobPlan, JobSubmission } from "../client/client.ts"
import { VM_OVERHEAD_SECONDS } from "../core/apis/reuse.ts"
import { EXIT } from "./exit.ts"
import { type Column, durationText, formatTable, gibText, usdText, wrapText } from "./table.ts"
import { shown, type Terminal } from "./terminal.ts"

/** Plan of a job, or of an array, whose jobs have one plan. */
export type Plan = JobPlan | ArrayPlan

type Placement = JobPlan["placements"][number]

/** Placements in a plan that is shown before a question; `-o wide` shows all. */
const SHOWN_PLACEMENTS = 5

const COLUMNS: Column<[Placement, number]>[] = [
  { title: "#", cell: ([, index]) => String(index + 1), alignsRight: true },
  { title: "CLOUD", cell: ([{ provider }]) => provider },
  { title: "MACHINE", cell: ([{ instance_type }]) => instance_type },
  { title: "REGION", cell: ([{ region }]) => region },
  { title: "vCPU", cell: ([{ cpu }]) => String(cpu), alignsRight: true },
  { title: "MEM", cell: ([{ memory }]) => gibText(memory), alignsRight: true },
  { title: "GPU", cell: ([{ gpu }]) => (gpu === null ? "" : `${gpu.count}×${gpu.model}`) },
  { title: "BUY", cell: ([{ provisioning }]) => (provisioning === "spot" ? "spot" : "on demand"), isWide: true },
  { title: "ACCOUNT", cell: ([{ connection }]) => connection ?? "", isWide: true },
  { title: "PRICED", cell: ([{ price_date }]) => price_date ?? "", isWide: true },
  {
    title: "USD/H",
    cell: ([{ cost_breakdown }]) => cost_breakdown.total_usd_per_hour.toFixed(4),
    alignsRight: true,
  },
  { title: "TOTAL*", cell: ([{ estimated_cost_usd }]) => usdText(estimated_cost_usd).slice(1), alignsRight: true },
  { title: "", cell: ([, index]) => (index === 0 ? "← takes this" : "") },
]

/** Returns the plan of a job, or of each job of an array. */
export function jobPlanOf(plan: Plan): JobPlan {
  return "job" in plan ? plan.job : plan
}

/** Returns a plan as text: the machines that the job may get, and what their prices mean. */
export function planText(plan: Plan, job: JobSubmission, terminal: Terminal, isWide = false): string {
  const { placements } = jobPlanOf(plan)
  const all = placements.map((placement, index): [Placement, number] => [placement, index])
  const rows = isWide ? all : all.slice(0, SHOWN_PLACEMENTS)
  const table = rows.length === 0 ? [] : [indent(formatTable(rows, COLUMNS, isWide))]
  const notes = [verdictText(plan, terminal), ...costNotes(plan, job), warningText(plan, terminal)].filter(
    (note) => note !== "",
  )
  return [...table, ...notes.map((note) => indent(wrapText(note, "")))].join("\n")
}

function indent(text: string): string {
  return text.replace(/^/gm, "  ")
}

/** Returns the reason why a job would not start at once; empty if it would. */
export function verdictText(plan: Plan, terminal: Terminal): string {
  const { verdict, reason, message } = jobPlanOf(plan)
  if (verdict === "placeable") return ""
  const end = reason === "NoOffer" ? "Nothing fits" : "Would fail"
  const title = verdict === "waits" ? terminal.noted("yellow", "Would wait") : terminal.noted("red", end)
  return `${title} (${reason}): ${shown(message)}`
}

/** Returns the warnings of a plan; empty if it has none. A server of an earlier version sends none. */
export function warningText(plan: Plan, terminal: Terminal): string {
  const warnings: readonly string[] = jobPlanOf(plan).warnings ?? []
  return warnings.map((warning) => `${terminal.noted("yellow", "Warning")}: ${shown(warning)}`).join("\n")
}

/** Returns the question before a plan is submitted. That of an array names the sum of its jobs. */
export function planQuestion(plan: Plan): string {
  const wait = jobPlanOf(plan).verdict === "waits" ? ", and wait" : ""
  if (!("job" in plan)) return `Submit${wait}?`
  const price = plan.estimated_cost === null ? "" : ` for about ${usdText(plan.estimated_cost)} in total`
  return `Submit ${jobsText(plan.size)}${price}${wait}?`
}

function jobsText(count: number): string {
  return count === 1 ? "1 job" : `${count} jobs`
}

/** Returns what the prices include, and the limits of the cost on the first machine. */
function costNotes(plan: Plan, job: JobSubmission): string[] {
  const [first] = jobPlanOf(plan).placements
  if (first === undefined) return []
  const { total_usd_per_hour: hourlyUsd, total_usd, traffic_usd } = first.cost_breakdown
  const expectedSeconds = hourlyUsd > 0 ? Math.round(((total_usd - traffic_usd) / hourlyUsd) * 3600) : undefined
  const each = "job" in plan ? " for each job" : ""
  const expected = expectedSeconds === undefined ? "" : `${durationText(expectedSeconds)} expected${each}, `
  const isOnDemand = first.provisioning === "onDemand" && job.provisioning == null
  const spot = isOnDemand ? ". --spot shows spot machines" : ""
  const limits = "job" in plan ? limitsOfArray(plan, job, hourlyUsd) : limitsOf(job, hourlyUsd)
  return [
    `* ${expected}with disk and address${spot}.`,
    ...("job" in plan ? arrayNotes(plan, hourlyUsd) : []),
    limits.join(" "),
    reuseNote(plan, job, { hourlyUsd, expectedSeconds }),
  ]
}

/** Expected time of a job below which the boot and end of a VM of its own are a large part of its cost, seconds. */
const SHORT_SECONDS = 600

/**
 * Returns what the reuse of machines costs or would save; empty if there is nothing to say. Servers of an earlier version
 * don't name it.
 */
function reuseNote(
  plan: Plan,
  { reuse: own }: JobSubmission,
  { hourlyUsd, expectedSeconds = SHORT_SECONDS }: { hourlyUsd: number; expectedSeconds: number | undefined },
): string {
  const { reuse, can_reuse: canReuse } = jobPlanOf(plan)
  if (reuse != null) {
    const origin = own == null ? ", as this installation sets it. --reuse 0s turns that off." : "."
    if ("job" in plan) return own == null ? `Its machines run one job after another${origin}` : ""
    const wait = durationText(reuse.idle_seconds)
    return `Then the machine waits ${wait} for another job, for ${usdText((reuse.idle_seconds * hourlyUsd) / 3600)}${origin}`
  }
  if (!("job" in plan) || canReuse !== true || own != null || expectedSeconds >= SHORT_SECONDS) return ""
  const machines = Math.min(plan.size, plan.parallelism)
  const saved = ((plan.size - machines) * VM_OVERHEAD_SECONDS * hourlyUsd) / 3600
  if (saved === 0) return ""
  return `Each job boots a machine of its own: ${plan.size} boots. With --reuse 5m it is about ${machines}, which saves about ${usdText(saved)}.`
}

/** Returns the price of all jobs of an array, and what it counts. */
function arrayNotes(
  { size, parallelism, estimated_cost: sum, hourly_usd, job }: ArrayPlan,
  hourlyUsd: number,
): string[] {
  const atOnce = Math.min(size, parallelism)
  const each = job.estimated_cost === null ? "" : `, ${usdText(job.estimated_cost)} each`
  return [
    ...(sum === null
      ? []
      : [
          `${jobsText(size)}: ${usdText(sum)} expected in total${each}. This counts each index once; a retry costs more.`,
        ]),
    `At most ${atOnce} at the same time: ${usdText(hourly_usd ?? atOnce * hourlyUsd)} an hour.`,
  ]
}

/** Returns the sentences about the limits of a job's cost on a machine of this price. */
function limitsOf({ maxCostUsd, timeoutSeconds }: JobSubmission, hourlyUsd: number): string[] {
  const budget = maxCostUsd ?? undefined
  const lasting = budget !== undefined && hourlyUsd > 0 ? ` (${durationText((budget / hourlyUsd) * 3600)} here)` : ""
  const untilTimeout = ((timeoutSeconds ?? 0) * hourlyUsd) / 3600
  return [
    ...(budget === undefined ? [] : [`At most ${usdText(budget)}${lasting}.`]),
    // The VM is also billed while it boots and ends.
    ...(untilTimeout === 0
      ? []
      : [`A run until the timeout costs ${usdText(untilTimeout)}, and its boot a little more.`]),
  ]
}

/** Returns the sentences about the limits of what an array costs. The limits of its jobs hold for each of them. */
function limitsOfArray(plan: ArrayPlan, { maxCostUsd, timeoutSeconds }: JobSubmission, hourlyUsd: number): string[] {
  const { size, max_cost_usd: most } = plan
  const untilTimeout = (size * (timeoutSeconds ?? 0) * hourlyUsd) / 3600
  return [
    ...(most === null || maxCostUsd == null
      ? []
      : [`At most ${usdText(most)} in total, ${usdText(maxCostUsd)} for each job.`]),
    ...(untilTimeout === 0
      ? []
      : [`Runs until the timeout cost ${usdText(untilTimeout)} in total, and their boots a little more.`]),
  ]
}

/** Returns the exit code of a plan that is not submitted. */
export function exitOfPlan(plan: Plan): number {
  const { verdict } = jobPlanOf(plan)
  if (verdict === "noOffer") return EXIT.nothingFits
  return verdict === "waits" ? EXIT.wouldWait : 0
}
