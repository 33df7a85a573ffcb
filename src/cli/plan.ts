import type { JobPlan, JobSubmission } from "../client/client.ts"
import { EXIT } from "./exit.ts"
import { type Column, durationText, gibText, tableOf, usdText } from "./table.ts"
import { shown, type Terminal } from "./terminal.ts"

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

/** Returns a plan as text: the machines that the job may get, and what their prices mean. */
export function planText(plan: JobPlan, job: JobSubmission, terminal: Terminal, isWide = false): string {
  const all = plan.placements.map((placement, index): [Placement, number] => [placement, index])
  const rows = isWide ? all : all.slice(0, SHOWN_PLACEMENTS)
  const table = rows.length === 0 ? [] : [indented(tableOf(rows, COLUMNS, isWide))]
  const notes = [verdictNote(plan, terminal), ...costNotes(plan, job)].filter((note) => note !== "")
  return [...table, ...notes.map((note) => `  ${note}`)].join("\n")
}

function indented(text: string): string {
  return text.replace(/^/gm, "  ")
}

function verdictNote({ verdict, reason, message }: JobPlan, terminal: Terminal): string {
  if (verdict === "placeable") return ""
  const title = verdict === "waits" ? terminal.noted("yellow", "Would wait") : terminal.noted("red", "Nothing fits")
  return `${title} (${reason}): ${shown(message)}`
}

/** Returns what the prices include, and the limits of the cost on the first machine. */
function costNotes({ placements: [first] }: JobPlan, job: JobSubmission): string[] {
  if (first === undefined) return []
  const { total_usd_per_hour: hourlyUsd, total_usd, traffic_usd } = first.cost_breakdown
  const expectedSeconds = hourlyUsd > 0 ? Math.round(((total_usd - traffic_usd) / hourlyUsd) * 3600) : undefined
  const expected = expectedSeconds === undefined ? "" : `${durationText(expectedSeconds)} expected, `
  const isOnDemand = first.provisioning === "onDemand" && job.provisioning == null
  const spot = isOnDemand ? ". --spot shows spot machines" : ""
  return [`* ${expected}with disk and address${spot}.`, limitsOf(job, hourlyUsd).join(" ")]
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

/** Returns the exit code of a plan that is not submitted. */
export function exitOfPlan({ verdict }: JobPlan): number {
  if (verdict === "noOffer") return EXIT.nothingFits
  return verdict === "waits" ? EXIT.wouldWait : 0
}
