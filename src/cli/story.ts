import { type BerthClient, type JobRecord, readBody, type Schemas } from "../client/client.ts"
import { troublesOf } from "../client/conditions.ts"
import { readLogTail } from "../client/logs.ts"
import { usedText } from "../client/usage.ts"
import { troubleLines } from "./conditions.ts"
import { toFailure } from "./exit.ts"
import { afterText, beforeText } from "./order.ts"
import { type Column, durationText, formatTable, formatTime, usdText, wrapText } from "./table.ts"
import { shown, type Terminal } from "./terminal.ts"

type Timeline = Schemas["Timeline"]
type Launch = Schemas["LaunchList"]["launches"][number]

/** Returns the story of a job as text: what it is, what happened when, on which VMs, and what it cost. */
export async function tellStory(client: BerthClient, job: JobRecord, terminal: Terminal): Promise<string> {
  const path = { params: { path: { id: job.id } } }
  const [timeline, launches, before, tail] = await Promise.all([
    readBody(client.api.GET("/jobs/{id}/timeline", path)),
    readBody(client.api.GET("/jobs/{id}/launches", path)),
    beforeText(client, { kind: "job", id: job.id }),
    job.status === "failed" ? logTail(client, job) : "",
  ])
  const parts = [
    [heading(job, terminal), ...facts(job, before), ...troubleLines(job.conditions, [job.message])].join("\n"),
    section("End of its log", tail, terminal),
    section("What happened (UTC)", stepsOf(timeline, terminal), terminal),
    section("VMs", vmsOf(launches.launches), terminal),
  ]
  return parts.filter((part) => part !== "").join("\n\n")
}

/** Returns the end of a job's log. The rest of the story is shown without it too. */
async function logTail(client: BerthClient, { id }: JobRecord): Promise<string> {
  try {
    return await readLogTail(client, id)
  } catch (error) {
    return `The log can't be read: ${toFailure(error).message}`
  }
}

function section(title: string, text: string, terminal: Terminal): string {
  return text === "" ? "" : `${terminal.styled("bold", title)}\n${text.replace(/^/gm, "  ")}`
}

function heading(job: JobRecord, terminal: Terminal): string {
  const style = job.status === "failed" ? "red" : job.status === "succeeded" ? "green" : "cyan"
  const code = job.exit_code === null ? "" : `, exit code ${job.exit_code}`
  return `${terminal.styled("bold", job.name)}  ${terminal.styled(style, job.status)}${code}`
}

/** Returns the lines `name: value` of the record. @param before names of what waits for the job */
function facts(job: JobRecord, before: string): string[] {
  const rows: [string, string | null][] = [
    ["Message", job.error_message ?? job.message],
    ["After", afterText(job)],
    ["Before", before],
    ["Image", job.image],
    ["Command", [...job.command, ...job.args].join(" ")],
    ["Needs", needsOf(job)],
    ["Machine", machineOf(job)],
    ["Why", job.placement_reason],
    ["Cost", costOf(job)],
    ["Used", usedText(job.usage) ?? null],
    ["Retries", job.max_retries === 0 ? null : `${job.retry_count} of ${job.max_retries}`],
    ["New VMs", newVmsOf(job)],
    [
      "Labels",
      Object.entries(job.labels)
        .map(([name, value]) => `${name}=${value}`)
        .join(", "),
    ],
    ["Tags", job.tags.join(", ")],
    ["Id", job.id],
  ]
  return rows.flatMap(([name, value]) =>
    value === null || value === "" ? [] : [wrapText(`  ${`${name}:`.padEnd(9)} ${shown(value)}`, " ".repeat(12))],
  )
}

/** Returns how many VMs the job got after failures, and its limits of them. */
function newVmsOf({ new_vm_retries, retry_rules, max_memory, max_lost_vms }: JobRecord): string {
  const limits = [
    ...(retry_rules.length === 0 ? [] : [`${retry_rules.length} retry ${retry_rules.length === 1 ? "rule" : "rules"}`]),
    ...(max_memory === null ? [] : [`memory up to ${max_memory}`]),
    ...(max_lost_vms === null ? [] : [`at most ${max_lost_vms} lost`]),
  ]
  const failed = new_vm_retries === 0 ? [] : [`${new_vm_retries} after failed runs`]
  return [...failed, ...limits].join(", ")
}

function needsOf({ resources: { cpu, memory, gpu } }: JobRecord): string {
  const cards = gpu === null ? "" : `, GPU ${[gpu.count, gpu.model, gpu.vram].filter((one) => one !== null).join(" ")}`
  return `${cpu} vCPU, ${memory}${cards}`
}

function machineOf({
  selected_provider,
  selected_instance_type,
  selected_region,
  hourly_price_usd,
}: JobRecord): string {
  if (selected_provider === null) return ""
  const price = hourly_price_usd === null ? "" : `, ${usdText(hourly_price_usd)}/h`
  return `${selected_provider} ${selected_instance_type} in ${selected_region}${price}`
}

/** Returns the cost of a job, with the part in which its VMs waited for another one. */
function costOf({ actual_cost, estimated_cost, cost_breakdown }: JobRecord): string | null {
  if (actual_cost === null) return estimated_cost === null ? null : `about ${usdText(estimated_cost)} expected`
  // A server of 0.1.0 sends no idle_usd.
  const idleUsd = cost_breakdown?.idle_usd ?? 0
  const waited = idleUsd > 0 ? `, of which ${usdText(idleUsd)} while it waited for another job` : ""
  return `${usdText(actual_cost)}${waited}`
}

/** Entries about trouble. */
const TROUBLE: readonly string[] = [
  ...["Waiting", "Refused", "Unanswered", "BootFailed", "PreemptionNotice", "TakeoverLost", "Retried", "Lost"],
]

/** Returns the entries of the timeline, each with its time and the time since the one before. */
function stepsOf({ timeline, message }: Timeline, terminal: Terminal): string {
  const lines = timeline.map(({ at, type, message: text }, index) => {
    const before = timeline[index - 1]
    const since = before === undefined ? "" : `+${durationText((Date.parse(at) - Date.parse(before.at)) / 1000)}`
    const entry = TROUBLE.includes(type) ? terminal.styled("yellow", shown(text)) : shown(text)
    const line = `${formatTime(at)}  ${since.padStart(7)}  ${entry}`
    return wrapText(line, " ".repeat(31))
  })
  return [...lines, ...(message === null ? [] : [wrapText(shown(message), "")])].join("\n")
}

function vmsOf(launches: readonly Launch[]): string {
  if (launches.length === 0) return ""
  const troubles = launches.flatMap(({ number, conditions }) =>
    troublesOf(conditions).map((sentence) => `! ${number}: ${shown(sentence)}`),
  )
  return [formatTable(launches, VM_COLUMNS), ...launches.flatMap(reuseLines), ...troubles].join("\n")
}

/** Returns the lines about a VM that several jobs have, one after another. */
function reuseLines({ number, took_over, handed_to, idle_until, idle_usd }: Launch): string[] {
  const waited = idle_usd == null ? "" : ` It cost ${usdText(idle_usd)} while it waited.`
  return [
    ...(took_over == null ? [] : [`VM ${number} took over the idle VM of launch ${took_over}.`]),
    ...(idle_until == null ? [] : [`VM ${number} waits for another job until ${formatTime(idle_until)}.`]),
    ...(handed_to == null ? [] : [`Launch ${handed_to} has VM ${number} now.${waited}`]),
  ].map((line) => wrapText(shown(line), "  "))
}

/** Returns the reason why a VM did not bring the job to a good end, with the exit code of its container. */
function failureOf({ refusal, boot_failure, loss, failure, exit_code }: Launch): string {
  const { reason } = refusal ?? boot_failure ?? loss ?? failure ?? {}
  if (reason === undefined) return ""
  return failure === null || exit_code === null ? reason : `${reason} (${exit_code})`
}

const VM_COLUMNS: Column<Launch>[] = [
  { title: "#", cell: ({ number }) => String(number), alignsRight: true },
  { title: "MACHINE", cell: ({ provider, instance_type }) => `${provider}/${instance_type}` },
  { title: "REGION", cell: ({ region }) => region },
  { title: "BUY", cell: ({ provisioning }) => (provisioning === "spot" ? "spot" : "on demand") },
  { title: "$/H", cell: ({ hourly_price_usd }) => String(hourly_price_usd), alignsRight: true },
  { title: "COST", cell: ({ cost_usd }) => (cost_usd === null ? "" : usdText(cost_usd)), alignsRight: true },
  { title: "STATE", cell: ({ phase }) => phase },
  { title: "WHY", cell: failureOf },
]
