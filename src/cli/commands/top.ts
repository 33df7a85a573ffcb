import { setTimeout as delay } from "node:timers/promises"
import type { Command } from "commander"
import { type BerthClient, everyItem, type JobRecord, readBody } from "../../client/client.ts"
import { isEnded, isMissing, readJob } from "../../client/jobs.ts"
import { gibOf, type JobUsage, partOf, shortNumber, type UsagePoint, usedText } from "../../client/usage.ts"
import { inParallel } from "../../core/apis/in-parallel.ts"
import type { Call, Commands } from "../command.ts"
import { type Column, formatAge, formatTable } from "../table.ts"
import { shown } from "../terminal.ts"

/** Delay between two looks, seconds. Agents report a point a minute. */
const LOOK_SECONDS = 5

/** Age from which a job's usage is read again, seconds: 100 jobs cost 200 of 600 requests a minute. */
const USAGE_SECONDS = 30

/** Jobs in the table, at most. */
const MOST_JOBS = 100

/** Requests at the same time. */
const PARALLEL = 8

/** Points that are shown of one job. */
const LAST_POINTS = 15

/** A running job, and what it uses. */
interface Row {
  job: JobRecord
  /** Undefined: an older API, or a job that was deleted meanwhile. */
  usage: JobUsage | undefined
  /** Milliseconds, monotonic. */
  readAt: number
}

/** `top`: what running jobs use, or one job. */
export function addTopCommand(commands: Commands, program: Command): void {
  commands.add(program, {
    usage: "top [job]",
    summary: "Show what running jobs use: CPU, memory and GPUs.",
    more:
      "With a name, the job's last minutes, also after its end. On a terminal it is drawn again every few seconds until Ctrl-C. " +
      "VMs report once a minute. SEEN is the age of the last report.",
    examples: [
      ["berth top", "all running jobs, the most expensive first"],
      ["berth top train", "one job: its last minutes and its peaks"],
      ["berth top train --json", "all of its points, for programs"],
    ],
    run: async (call) => {
      const client = call.client()
      const [name] = call.args
      return name === undefined ? await showAll(call, client) : await showOne(call, client, name)
    },
  })
}

async function showAll(call: Call<object>, client: BerthClient): Promise<number> {
  const known = new Map<string, Row>()
  const rows = async (): Promise<Row[]> => {
    const jobs = await runningJobs(client)
    const now = performance.now()
    const read = await inParallel(jobs, PARALLEL, async (job): Promise<Row> => {
      const former = known.get(job.id)
      if (former !== undefined && now - former.readAt < USAGE_SECONDS * 1000) return { ...former, job }
      return { job, usage: await readUsage(client, job.id, 1, call.signal), readAt: now }
    })
    known.clear()
    for (const row of read) known.set(row.job.id, row)
    return read
  }
  if (!isLive(call)) return await printAll(call, await rows())
  for (;;) {
    const all = await rows()
    const table = tableOf(call, all.slice(0, Math.max(1, call.terminal.rows - 3)))
    await call.terminal.redraw(all.length === 0 ? "No job is running." : table)
    await delay(LOOK_SECONDS * 1000, undefined, { signal: call.signal })
  }
}

async function printAll(call: Call<object>, rows: readonly Row[]): Promise<number> {
  if (call.isForProgram) {
    await call.printValue(rows.map(({ job, usage }) => ({ id: job.id, name: job.name, usage: usage ?? null })))
  } else if (call.format === "name") {
    await call.terminal.write(rows.map(({ job }) => `${job.name}\n`).join(""))
  } else if (rows.length === 0) call.terminal.progress("No job is running.")
  else await call.terminal.line(tableOf(call, rows))
  return 0
}

function isLive({ terminal, isForProgram, format }: Call<object>): boolean {
  return terminal.isScreen && !isForProgram && format !== "name"
}

async function runningJobs(client: BerthClient): Promise<JobRecord[]> {
  const read = (page: { offset: number; limit: number }) =>
    readBody(client.api.GET("/jobs", { params: { query: { ...page, status: "running" } } }))
  const jobs: JobRecord[] = []
  for await (const job of everyItem(read, (list) => list.jobs, MOST_JOBS)) jobs.push(job)
  return jobs.sort((a, b) => (priceOf(b) ?? 0) - (priceOf(a) ?? 0))
}

function priceOf({ hourly_price_usd, cost_breakdown }: JobRecord): number | null {
  return cost_breakdown?.total_usd_per_hour ?? hourly_price_usd
}

function tableOf(call: Call<object>, rows: readonly Row[]): string {
  return formatTable(rows, call.styledColumns(columnsOf(new Date())), call.format === "wide")
}

function columnsOf(now: Date): Column<Row>[] {
  const ofLast = (cell: (point: UsagePoint, machine: JobUsage["machine"]) => string) => (row: Row) => {
    const point = row.usage?.points.at(-1)
    return point === undefined ? "" : cell(point, row.usage?.machine ?? null)
  }
  const right = { alignsRight: true }
  return [
    { title: "NAME", cell: ({ job }) => job.name },
    {
      title: "MACHINE",
      cell: ({ job }) => [job.selected_provider, job.selected_instance_type].filter((one) => one !== null).join("/"),
    },
    { title: "CPU", cell: ofLast(({ cpu }, machine) => partOf(shortNumber(cpu), machine?.cpu)), ...right },
    {
      title: "MEMORY GIB",
      cell: ofLast(({ memory_mib }, machine) => partOf(gibOf(memory_mib), machine?.memory_gib)),
      ...right,
    },
    { title: "GPU", cell: ofLast(({ gpu_percent }) => percent(gpu_percent)), ...right },
    { title: "VRAM GIB", cell: ofLast(({ vram_mib }, machine) => ifKnown(vram_mib, machine?.vram_gib)), ...right },
    { title: "SEEN", cell: ({ usage }) => formatAge(usage?.known_until, now), ...right },
    { title: "AGE", cell: ({ job }) => formatAge(job.started_at, now), ...right },
    { title: "$/H", cell: ({ job }) => String(Math.round((priceOf(job) ?? 0) * 10_000) / 10_000), ...right },
  ]
}

function percent(value: number | null): string {
  return value === null ? "" : `${Math.round(value)}%`
}

function ifKnown(mib: number | null, sizeGib?: number | null): string {
  return mib === null ? "" : partOf(gibOf(mib), sizeGib)
}

async function showOne(call: Call<object>, client: BerthClient, name: string): Promise<number> {
  if (call.isForProgram) {
    const { id } = await readJob(client, name, call.signal)
    await call.printValue((await readUsage(client, id, undefined, call.signal)) ?? null)
    return 0
  }
  for (;;) {
    const job = await readJob(client, name, call.signal)
    const text = storyOf(call, job, await readUsage(client, job.id, LAST_POINTS, call.signal))
    if (!isLive(call)) await call.terminal.line(text)
    else await call.terminal.redraw(text)
    if (!isLive(call) || isEnded(job)) return 0
    await delay(LOOK_SECONDS * 1000, undefined, { signal: call.signal })
  }
}

/** Returns the peaks of a job, and its last minutes. */
function storyOf(call: Call<object>, job: JobRecord, usage: JobUsage | undefined): string {
  const { terminal } = call
  const head = `${terminal.styled("bold", shown(job.name))}  ${shown(job.status)}`
  const used = usedText(usage?.usage, usage?.machine)
  if (usage === undefined) return `${head}\nThe API is older than this command: it measures no use.`
  if (used === undefined) {
    const why = job.started_at === null ? "It has not started." : "Its VM has reported none, or its agent is older."
    return `${head}\nNo use is known. ${why}`
  }
  const rows = usage.points.slice(-LAST_POINTS)
  return `${head}\n${used}\n\n${formatTable(rows, call.styledColumns(POINT_COLUMNS), call.format === "wide")}`
}

const amount = (value: number | null) => (value === null ? "" : shortNumber(value))

const POINT_COLUMNS: Column<UsagePoint>[] = [
  { title: "TIME (UTC)", cell: ({ time }) => time.slice(11, 16) },
  { title: "CPU", cell: ({ cpu }) => shortNumber(cpu), alignsRight: true },
  { title: "MEMORY GIB", cell: ({ memory_mib }) => gibOf(memory_mib), alignsRight: true },
  { title: "GPU", cell: ({ gpu_percent }) => percent(gpu_percent), alignsRight: true },
  { title: "VRAM GIB", cell: ({ vram_mib }) => ifKnown(vram_mib), alignsRight: true },
  { title: "DISK GIB", cell: ({ disk_gib }) => amount(disk_gib), alignsRight: true },
  { title: "RECEIVED MIB", cell: ({ received_mib }) => amount(received_mib), alignsRight: true },
  { title: "SENT MIB", cell: ({ sent_mib }) => amount(sent_mib), alignsRight: true },
]

/**
 * Returns what a job uses; undefined if the API is older than this client, or the job was deleted.
 * @param last number of last points; undefined: all
 */
async function readUsage(
  client: BerthClient,
  id: string,
  last?: number,
  signal?: AbortSignal,
): Promise<JobUsage | undefined> {
  const params = { path: { id }, query: last === undefined ? {} : { last } }
  try {
    return await readBody(client.api.GET("/jobs/{id}/usage", { params, ...(signal !== undefined && { signal }) }))
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}
