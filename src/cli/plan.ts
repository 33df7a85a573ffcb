import type { JobPlan, JobSubmission } from "../client/client.ts"
import { EXIT } from "./exit.ts"
import { type Column, gibText, tableOf, usdText } from "./table.ts"
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
  { title: "USD/H", cell: ([{ hourly_price_usd }]) => hourly_price_usd.toFixed(4), alignsRight: true },
  { title: "TOTAL*", cell: ([{ estimated_cost_usd }]) => usdText(estimated_cost_usd).slice(1), alignsRight: true },
  { title: "", cell: ([, index]) => (index === 0 ? "← takes this" : "") },
]

/** Returns a plan as text: the machines that the job may get, and what their prices mean. */
export function planText(plan: JobPlan, job: JobSubmission, terminal: Terminal, isWide = false): string {
  const all = plan.placements.map((placement, index): [Placement, number] => [placement, index])
  const rows = isWide ? all : all.slice(0, SHOWN_PLACEMENTS)
  const notes = [verdictNote(plan, terminal), ...(rows.length === 0 ? [] : [costNote(plan, job)])]
  const table = rows.length === 0 ? [] : [indented(tableOf(rows, COLUMNS, isWide))]
  return [...table, ...notes.flatMap((note) => (note === "" ? [] : [`  ${note}`]))].join("\n")
}

function indented(text: string): string {
  return text.replace(/^/gm, "  ")
}

function verdictNote({ verdict, reason, message }: JobPlan, terminal: Terminal): string {
  if (verdict === "placeable") return ""
  const title = verdict === "waits" ? terminal.noted("yellow", "Would wait") : terminal.noted("red", "Nothing fits")
  return `${title} (${reason}): ${shown(message)}`
}

function costNote({ placements: [first] }: JobPlan, job: JobSubmission): string {
  if (first === undefined) return ""
  const hours = first.hourly_price_usd > 0 ? first.estimated_cost_usd / first.hourly_price_usd : 1
  const expected = `* for the expected run time, about ${Math.max(0.1, Math.round(hours * 10) / 10)} h`
  const cap =
    job.timeoutSeconds == null
      ? ""
      : `; at most ${usdText((first.hourly_price_usd * job.timeoutSeconds) / 3600)} until the timeout`
  const spot =
    first.provisioning === "spot" || job.provisioning != null ? "" : ". --spot shows the prices of spot machines"
  return `${expected}${cap}${spot}.`
}

/** Returns the exit code of a plan that is not submitted. */
export function exitOfPlan({ verdict }: JobPlan): number {
  if (verdict === "noOffer") return EXIT.nothingFits
  return verdict === "waits" ? EXIT.wouldWait : 0
}
