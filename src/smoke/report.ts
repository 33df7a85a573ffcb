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

/** Fields that the smoke test shows of one VM of a job, or one attempt to get one. */
export interface SmokeLaunch {
  number: number
  phase: string
  region: string
  zone: string | null
  instance_type: string
  provisioning: string
  vm_instance_id: string | null
  vm_status: string | null
  refusal: SmokeFailure | null
  boot_failure: SmokeFailure | null
  loss: SmokeFailure | null
}

interface SmokeFailure {
  reason: string
  message: string
}

/** Result of one job. */
export interface SmokeResult {
  kind: SmokeKind
  plan: SmokePlan
  /** Last record; absent: the job was not created. */
  record?: SmokeRecord
  /** All attempts to get a VM. */
  launches?: readonly SmokeLaunch[]
  /** Explanation of a job that waited in vain, before it was cancelled. */
  waiting?: string
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

/** Returns true if the job succeeded and its VMs are deleted. */
export function isPassed(result: SmokeResult): boolean {
  return result.record?.status === "succeeded" && vmsLeft(result).length === 0
}

/** Returns the VMs of a job that may still exist. */
function vmsLeft({ record, launches = [] }: SmokeResult): { id: string; region: string }[] {
  const left = launches.filter(({ vm_instance_id, vm_status }) => vm_instance_id !== null && vm_status !== "terminated")
  const ids = left.map(({ vm_instance_id, region }) => ({ id: vm_instance_id ?? "", region }))
  if (ids.length > 0 || record === undefined || isVmGone(record)) return ids
  return [{ id: record.vm_instance_id ?? `a VM of ${record.name}`, region: record.selected_region ?? "any region" }]
}

/** Returns true if the job has no VM, or no longer. */
export function isVmGone({ vm_status }: Pick<SmokeRecord, "vm_status">): boolean {
  return vm_status === "terminated" || vm_status === "nonassigned"
}

/** Returns the report in Markdown, for people and for bug reports. Pure. */
export function renderReport({ berth, cloud, connections, results }: SmokeFacts): string {
  const rows = results.map((result) => {
    const { kind, plan, record } = result
    const [first] = plan.placements
    const machine = record?.selected_instance_type ?? first?.instance_type ?? "–"
    const region = record?.selected_region ?? first?.region ?? "–"
    const cost = record?.actual_cost === null || record === undefined ? "–" : `$${record.actual_cost.toFixed(4)}`
    const verdict = isPassed(result) ? "passed" : `**${record?.status ?? "not run"}**`
    return `| ${kind} | ${verdict} | ${machine} | ${region} | ${seconds(record, "started_at")} | ${seconds(record, "ended_at")} | ${cost} |`
  })
  const left = results.flatMap(vmsLeft)
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
      : `**VMs that may be left**, delete them in the cloud's console: ${left.map(({ id, region }) => `${id} in ${region}`).join(", ")}.`,
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
  const { kind, plan, record, problem, waiting, launches = [], log } = result
  const end = record === undefined ? plan.message : `${record.reason ?? ""}: ${record.message ?? ""}`
  const why = problem ?? waiting ?? end
  const code = record?.exit_code == null ? "" : ` (exit code ${record.exit_code})`
  const lines = log === undefined || log === "" ? [] : ["```", log, "```", ""]
  return [`**${kind}**${code}: ${why}`, "", ...attemptsOf(launches), ...lines]
}

/** Returns a list of the attempts to get a VM, with the cloud's or the VM's own words. */
function attemptsOf(launches: readonly SmokeLaunch[]): string[] {
  const lines = launches.map((launch) => {
    const { number, phase, region, zone, instance_type, provisioning, refusal, boot_failure, loss } = launch
    const failure = refusal ?? boot_failure ?? loss
    const why = failure === null ? "" : `: ${failure.reason}: ${failure.message}`
    return `- launch ${number}: ${instance_type} in ${zone ?? region}, ${provisioning}, ${phase}${why}`
  })
  return lines.length === 0 ? [] : [...lines, ""]
}
