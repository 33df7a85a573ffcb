import type { SmokeKind } from "./jobs.ts"

/** Fields of a plan that the smoke test shows. */
export interface SmokePlan {
  verdict: string
  message: string
  placements: readonly { instance_type: string; region: string; provisioning: string; hourly_price_usd: number }[]
}

/** Fields of a job's record that the smoke test shows. */
export interface SmokeRecord {
  name: string
  status: string
  vm_status: string
  selected_instance_type: string | null
  selected_region: string | null
  vm_instance_id: string | null
  actual_cost: number | null
  created_at: string
  started_at: string | null
  ended_at: string | null
  reason: string | null
  message: string | null
  exit_code: number | null
}

/** Result of one job. */
export interface SmokeResult {
  kind: SmokeKind
  plan: SmokePlan
  /** Last record; absent: the job was not created. */
  record?: SmokeRecord
  /** Error of a call, or the reason why the job was not created. */
  problem?: string
  /** Last lines of the log. */
  log?: string
}

export interface SmokeFacts {
  berth: string
  cloud: string
  /** Capabilities of the connections of this cloud, as `name: vms True, buckets Unknown (…)`. */
  connections: readonly string[]
  results: readonly SmokeResult[]
}

/** Returns the most that the jobs may cost if each runs to its limit, USD. Disks, addresses and traffic are not in it. */
export function highestCostUsd(plans: readonly SmokePlan[], minutes: number): number {
  return plans.reduce((sum, { placements: [first] }) => sum + ((first?.hourly_price_usd ?? 0) * minutes) / 60, 0)
}

/** Returns true if the job succeeded and its VM is deleted. */
export function isPassed({ record }: SmokeResult): boolean {
  return record?.status === "succeeded" && isVmGone(record)
}

/** Returns true if the job has no VM, or no longer. */
export function isVmGone({ vm_status }: Pick<SmokeRecord, "vm_status">): boolean {
  return vm_status === "terminated" || vm_status === "nonassigned"
}

/** Returns the report in Markdown, for people and for bug reports. Pure. */
export function reportOf({ berth, cloud, connections, results }: SmokeFacts): string {
  const rows = results.map((result) => {
    const { kind, plan, record } = result
    const [first] = plan.placements
    const machine = record?.selected_instance_type ?? first?.instance_type ?? "–"
    const region = record?.selected_region ?? first?.region ?? "–"
    const cost = record?.actual_cost === null || record === undefined ? "–" : `$${record.actual_cost.toFixed(4)}`
    const verdict = isPassed(result) ? "passed" : `**${record?.status ?? "not run"}**`
    return `| ${kind} | ${verdict} | ${machine} | ${region} | ${seconds(record, "started_at")} | ${seconds(record, "ended_at")} | ${cost} |`
  })
  const left = results.flatMap(({ record }) => (record === undefined || isVmGone(record) ? [] : [record]))
  return [
    `# Smoke test of Berth ${berth} on ${cloud}`,
    "",
    ...connections.map((connection) => `- connection ${connection}`),
    "",
    "| job | result | machine | region | seconds to start | seconds to end | cost |",
    "|---|---|---|---|---|---|---|",
    ...rows,
    "",
    ...results.flatMap(detailsOf),
    left.length === 0
      ? "No VM is left."
      : `**VMs that may be left**, delete them in the cloud's console: ${left.map(({ vm_instance_id, selected_region }) => `${vm_instance_id} in ${selected_region}`).join(", ")}.`,
    "",
  ].join("\n")
}

function seconds(record: SmokeRecord | undefined, field: "started_at" | "ended_at"): string {
  const time = record?.[field]
  if (record === undefined || time == null) return "–"
  return String(Math.round((Date.parse(time) - Date.parse(record.created_at)) / 1000))
}

/** Returns the explanation of a job that did not pass. */
function detailsOf(result: SmokeResult): string[] {
  if (isPassed(result)) return []
  const { kind, plan, record, problem, log } = result
  const why = problem ?? (record === undefined ? plan.message : `${record.reason ?? ""}: ${record.message ?? ""}`)
  const code = record?.exit_code == null ? "" : ` (exit code ${record.exit_code})`
  const lines = log === undefined || log === "" ? [] : ["```", log, "```", ""]
  return [`**${kind}**${code}: ${why}`, "", ...lines]
}
