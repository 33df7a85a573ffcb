import { setTimeout as delay } from "node:timers/promises"
import { type Command, Option } from "commander"
import { readArray } from "../../client/arrays.ts"
import { type BerthClient, everyItem, type JobRecord, type JobStatus, readBody } from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import { readChanges } from "../../client/events.ts"
import { isMissing } from "../../client/jobs.ts"
import { defined } from "../../core/apis/defined.ts"
import type { Call, Commands } from "../command.ts"
import { usageError } from "../exit.ts"
import { type JobSelection, LiveJobs, newestFirst } from "../live-jobs.ts"
import { type Column, formatAge, formatTable, usdText } from "../table.ts"
import type { Style } from "../terminal.ts"
import { afterOption, type Filter, filterOptions, parseLabel } from "./filter.ts"

const UNFINISHED = ["queued", "booting", "running"] as const
const STYLES: Partial<Record<JobStatus, Style>> = {
  succeeded: "green",
  failed: "red",
  queued: "yellow",
  running: "cyan",
}

interface ListFlags extends Filter {
  all?: boolean
  watch?: boolean
  queue?: boolean
  array?: string
  after?: string
  name?: string
  sort?: SortField
  limit?: string
}

/** `ps`: the list of jobs, once or live. */
export function addPsCommand(commands: Commands, program: Command): void {
  commands.add<ListFlags>(program, {
    usage: "ps",
    summary: "List the jobs that have not ended, newest first.",
    examples: [
      ["berth ps", "queued, booting and running jobs"],
      ["berth ps -a --label team=vision", "all jobs of a team"],
      ["berth ps -w", "the list, live"],
      ["berth ps -a -w --array sweep", "the jobs of an array, live"],
      ["berth ps -a --name train --sort cost", "jobs with train in their name, the most expensive first"],
      ["berth ps --after prepare", "jobs that wait for prepare"],
      ["berth ps --queue", "jobs that wait for a cap or a group, in the order of the line"],
      ["berth cancel $(berth ps -q --tag sweep)", "names for another command"],
    ],
    options: [
      new Option("-a, --all", "also jobs that have ended"),
      new Option("-w, --watch", "keep showing changes"),
      new Option("--queue", "only jobs in the project's line, in its order").conflicts([
        "watch",
        "all",
        "status",
        "sort",
      ]),
      ...filterOptions(),
      new Option("--array <name>", "only jobs of this array"),
      afterOption("jobs"),
      new Option("--name <part>", "only jobs with this part in their name"),
      new Option("--sort <field>", "order: newest, longest, most expensive or last first; name from a to z")
        .choices(SORT_FIELDS)
        .conflicts("watch"),
      new Option(
        "--limit <number>",
        `largest number of jobs; 0: all; default: ${SCREEN_LIMIT} on a terminal, else all`,
      ),
    ],
    run: async (call) => {
      const limit = limitOf(call)
      const client = call.client()
      const selection = selectionOf(call.options)
      if (call.options.watch === true) return watch(call, client, selection, limit)
      if (call.options.queue === true) return await printLine(call, await listLine(client, selection, limit))
      const { jobs, total } = await listJobs(client, selection, limit, call.options.sort)
      await printJobs(call, jobs)
      if (jobs.length < total) call.terminal.progress(`${jobs.length} of ${total} jobs; --limit 0 shows all.`)
      if (total === 0)
        call.terminal.progress(call.options.all === true ? "No jobs." : "No unfinished jobs; -a shows all.")
      return 0
    },
  })
}

/** Returns the jobs of a selection that stand in the project's line, in its order. */
async function listLine(client: BerthClient, selection: JobSelection, limit: number): Promise<JobRecord[]> {
  const { jobs } = await listJobs(client, { ...selection, statuses: ["queued"] }, Number.POSITIVE_INFINITY)
  const place = ({ queue_position }: JobRecord) => queue_position ?? Number.POSITIVE_INFINITY
  const line = jobs.filter(({ queue_position }) => queue_position !== null)
  return line.sort((a, b) => place(a) - place(b)).slice(0, limit)
}

async function printLine(call: Call<unknown>, jobs: readonly JobRecord[]): Promise<number> {
  const now = new Date()
  const columns: Column<JobRecord>[] = [
    { title: "#", cell: ({ queue_position }) => String(queue_position ?? ""), alignsRight: true },
    { title: "NAME", cell: ({ name }) => name },
    { title: "PRIORITY", cell: ({ priority }) => String(priority), alignsRight: true },
    { title: "WHY", cell: whyOf },
    { title: "AGE", cell: ({ created_at }) => formatAge(created_at, now), alignsRight: true },
    { title: "MESSAGE", cell: ({ message }) => message ?? "", isWide: true },
  ]
  await call.print(jobs, columns, ({ name }) => name)
  if (jobs.length === 0) call.terminal.progress("No job waits for a cap or a group.")
  return 0
}

/** Jobs that a terminal shows by default. A pipe gets all: a program does not see that some are left out. */
const SCREEN_LIMIT = 50

function limitOf({ options, terminal, isForProgram }: Call<ListFlags>): number {
  const { limit: text = isForProgram || !terminal.isScreen ? "0" : String(SCREEN_LIMIT) } = options
  if (!/^\d+$/.test(text)) throw usageError(`--limit ${text} is not a whole number.`)
  return text === "0" ? Number.POSITIVE_INFINITY : Number(text)
}

function selectionOf({ all, status, tag = [], label = [], array, after, name }: ListFlags): JobSelection {
  const statuses = status !== undefined ? [status] : all === true ? [] : UNFINISHED
  return { statuses, tags: tag, labels: label.map(parseLabel), array, after, namePart: name }
}

/** Fields of `--sort`, as GET /jobs has them. */
const SORT_FIELDS = ["created_at", "started_at", "ended_at", "name", "cost", "run_time"] as const
type SortField = (typeof SORT_FIELDS)[number]

/** Returns the comparison of `--sort`. Jobs without the value are last. */
function orderOf(field: SortField, now: number): (a: JobRecord, b: JobRecord) => number {
  const sign = field === "name" ? 1 : -1
  const valueIn: (job: JobRecord) => string | number | null = {
    created_at: ({ created_at }: JobRecord) => created_at,
    started_at: ({ started_at }: JobRecord) => started_at,
    ended_at: ({ ended_at }: JobRecord) => ended_at,
    name: ({ name }: JobRecord) => name,
    cost: ({ accrued_cost }: JobRecord) => accrued_cost,
    run_time: ({ started_at, ended_at }: JobRecord) =>
      started_at === null ? null : (ended_at === null ? now : Date.parse(ended_at)) - Date.parse(started_at),
  }[field]
  return (a, b) => {
    const [one, other] = [valueIn(a), valueIn(b)]
    if (one === null || other === null) return Number(one === null) - Number(other === null)
    return one < other ? -sign : one > other ? sign : newestFirst(a, b)
  }
}

interface Listed {
  jobs: JobRecord[]
  total: number
}

/** Returns the first jobs of a selection, by one list for each status. @param sort default: newest first */
async function listJobs(
  client: BerthClient,
  selection: JobSelection,
  limit: number,
  sort: SortField = "created_at",
): Promise<Listed> {
  const { statuses, tags, labels, array, after, namePart } = selection
  const ofLabels = labels.map(([name, value]) => `${name}=${value}`)
  const filter = {
    tag: [...tags],
    label: ofLabels,
    ...defined({ array, after, name_contains: namePart }),
    sort_by: sort,
    sort_order: sort === "name" ? ("asc" as const) : ("desc" as const),
  }
  const lists = await Promise.all(
    (statuses.length === 0 ? [undefined] : statuses).map(async (status): Promise<Listed> => {
      let total = 0
      const jobs: JobRecord[] = []
      const read = async (page: { offset: number; limit: number }) => {
        const query = { ...page, ...filter, ...defined({ status }) }
        const list = await readBody(client.api.GET("/jobs", { params: { query } }))
        total = list.total
        return list
      }
      for await (const job of everyItem(read, (list) => list.jobs, limit)) jobs.push(job)
      return { jobs, total }
    }),
  )
  // A job may change its status between two of the lists.
  const unique = new Map(lists.flatMap(({ jobs }) => jobs.map((job) => [job.id, job])))
  const jobs = [...unique.values()].sort(orderOf(sort, Date.now())).slice(0, limit)
  const total = lists.reduce((sum, list) => sum + list.total, 0)
  return { jobs, total: Math.max(jobs.length, total) }
}

function printJobs(call: Call<unknown>, jobs: readonly JobRecord[]): Promise<void> {
  return call.print(jobs, columnsOf(call, new Date()), ({ name }) => name)
}

function columnsOf({ terminal }: Call<unknown>, now: Date): Column<JobRecord>[] {
  return [
    { title: "NAME", cell: ({ name }) => name },
    {
      title: "STATUS",
      cell: ({ status }) => status,
      styled: (cell, { status }) => (STYLES[status] === undefined ? cell : terminal.styled(STYLES[status], cell)),
    },
    { title: "WHY", cell: whyOf },
    { title: "MACHINE", cell: machineOf },
    { title: "$/H", cell: priceOf, alignsRight: true },
    { title: "COST", cell: costOf, alignsRight: true },
    { title: "AGE", cell: ({ created_at }) => formatAge(created_at, now), alignsRight: true },
    { title: "REGION", cell: ({ selected_region }) => selected_region ?? "", isWide: true },
    { title: "IMAGE", cell: ({ image }) => image, isWide: true },
    { title: "MESSAGE", cell: ({ message }) => message ?? "", isWide: true },
  ]
}

/** Returns the reason of a status, if it says more than the status: why a job waits, or why it failed. */
function whyOf({ status, reason, exit_code }: JobRecord): string {
  if (reason === null || status === "running" || reason.toLowerCase() === status) return ""
  return reason === "ContainerFailed" && exit_code !== null ? `exit code ${exit_code}` : reason
}

function machineOf({ selected_provider, selected_instance_type }: JobRecord): string {
  return selected_provider === null ? "" : `${selected_provider}/${selected_instance_type}`
}

function priceOf({ hourly_price_usd, cost_breakdown }: JobRecord): string {
  const price = cost_breakdown?.total_usd_per_hour ?? hourly_price_usd
  return price === null ? "" : String(Math.round(price * 10_000) / 10_000)
}

/** Returns the cost so far; before a VM costs anything, the expected one. */
function costOf({ actual_cost, accrued_cost, estimated_cost }: JobRecord): string {
  const cost = actual_cost ?? accrued_cost
  if (cost !== null) return usdText(cost)
  return estimated_cost === null ? "" : `~${usdText(estimated_cost)}`
}

/** Interval at which the shown list is drawn again, seconds. */
const REDRAW_SECONDS = 0.25
/** Least time between two reads of the list. An API without a stream of events is read at this interval, seconds. */
const LIST_SECONDS = 5

/** Shows the list and its changes: on a screen in place, else as new lines of the jobs that changed. */
async function watch(
  call: Call<ListFlags>,
  client: BerthClient,
  selection: JobSelection,
  limit: number,
): Promise<never> {
  const { signal } = call
  // Events have the id of a job's array, and the flag may be its name.
  const array = selection.array === undefined ? undefined : (await readArray(client, selection.array, signal)).id
  const live = new LiveJobs({ ...selection, array }, limit)
  const shows = call.terminal.isScreen && !call.isForProgram ? screenOf(call) : linesOf(call)
  let [listedAt, isStale, hasStream] = [Number.NEGATIVE_INFINITY, true, true]
  const changed: JobRecord[] = []
  const follow = async (): Promise<void> => {
    for await (const change of readChanges(client, signal)) {
      if (change.event === "reset") isStale = true
      else if (change.event === "job" && live.apply(change.record) && !("deleted" in change.record))
        changed.push(change.record)
    }
  }
  const failed = Promise.withResolvers<never>()
  follow().catch((error: unknown) => {
    const hasNone = isMissing(error) || (error instanceof ApiError && error.status === 429)
    if (hasNone) hasStream = false
    else failed.reject(error)
  })
  for (;;) {
    const isDue = performance.now() - listedAt >= LIST_SECONDS * 1000
    if (isDue && (isStale || live.isIncomplete || !hasStream)) {
      isStale = false
      listedAt = performance.now()
      const { jobs, total } = await listJobs(client, selection, limit)
      live.replace(jobs, total)
      changed.push(...jobs)
    }
    await shows(live.jobs, changed.splice(0))
    await Promise.race([delay(REDRAW_SECONDS * 1000, undefined, { signal }), failed.promise])
  }
}

type Show = (jobs: readonly JobRecord[], changed: readonly JobRecord[]) => Promise<void>

/** Returns a function that draws the list in place of the former one. Ages change, so it draws without a change, too. */
function screenOf(call: Call<unknown>): Show {
  const { terminal } = call
  let drawn = ""
  return async (jobs) => {
    const most = Math.max(1, terminal.rows - 3)
    const table = formatTable(
      jobs.slice(0, most),
      call.styledColumns(columnsOf(call, new Date())),
      call.format === "wide",
    )
    const rest = jobs.length > most ? `\n… and ${jobs.length - most} more` : ""
    const text = jobs.length === 0 ? "No jobs." : `${table}${rest}`
    if (text !== drawn) await terminal.redraw(text)
    drawn = text
  }
}

/** Returns a function that prints the jobs with another status or reason than before. */
function linesOf(call: Call<unknown>): Show {
  const printed = new Map<string, string>()
  return async (_jobs, changed) => {
    const stateOf = ({ status, reason }: JobRecord) => `${status} ${reason}`
    const latest = [...new Map(changed.map((job) => [job.id, job])).values()]
    const news = latest.filter((job) => printed.get(job.id) !== stateOf(job))
    for (const job of news) printed.set(job.id, stateOf(job))
    if (news.length > 0) await printJobs(call, news)
  }
}
