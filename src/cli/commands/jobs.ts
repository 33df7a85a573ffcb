import { setTimeout as delay } from "node:timers/promises"
import { type Command, Option } from "commander"
import {
  type BerthClient,
  everyItem,
  fetched,
  type JobRecord,
  type JobStatus,
  type Schemas,
} from "../../client/client.ts"
import { changesOf } from "../../client/events.ts"
import { isEnded, isMissing, readJob, waitFor } from "../../client/jobs.ts"
import { logOf } from "../../client/logs.ts"
import { type Call, type Commands, repeated } from "../command.ts"
import { EXIT, exitOfStatus, Failure, usageError } from "../exit.ts"
import { storyOf } from "../story.ts"
import { secondsOf } from "../submission.ts"
import { ageOf, type Column, tableOf, usdText } from "../table.ts"
import { type Style, shown } from "../terminal.ts"

const STATUSES = ["queued", "booting", "running", "succeeded", "failed", "cancelled"] as const
const UNFINISHED = ["queued", "booting", "running"] as const
const STYLES: Partial<Record<JobStatus, Style>> = {
  succeeded: "green",
  failed: "red",
  queued: "yellow",
  running: "cyan",
}

interface Filter {
  status?: JobStatus
  tag?: string[]
  label?: string[]
}

interface ListFlags extends Filter {
  all?: boolean
  watch?: boolean
  limit: string
}

/** `ps`, `show`, `logs`, `wait` and `cancel`: commands about jobs that exist. */
export function addJobCommands(commands: Commands, program: Command): void {
  addPs(commands, program)
  commands.add(program, {
    usage: "show <job>",
    summary: "Show the story of a job: its steps, its machine, its cost.",
    examples: [
      ["berth show train", "what happened, and why"],
      ["berth show train -o yaml", "its whole record"],
    ],
    run: async (call) => {
      const client = call.client()
      const job = await readJob(client, call.args[0] ?? "")
      if (call.isForProgram) await call.printValue(job)
      else await call.terminal.line(await storyOf(client, job, call.terminal))
      return 0
    },
  })
  addLogs(commands, program)
  addWait(commands, program)
  addCancel(commands, program)
}

function filterOptions(): Option[] {
  return [
    new Option("--status <status>", "only jobs with this status").choices(STATUSES),
    new Option("--tag <tag>", "only jobs with this tag; may be repeated").argParser(repeated),
    new Option("-l, --label <name=value>", "only jobs with this label; may be repeated").argParser(repeated),
  ]
}

function addPs(commands: Commands, program: Command): void {
  commands.add<ListFlags>(program, {
    usage: "ps",
    summary: "List the jobs that have not ended, newest first.",
    examples: [
      ["berth ps", "queued, booting and running jobs"],
      ["berth ps -a --label team=vision", "all jobs of a team"],
      ["berth ps -w", "the list, live"],
      ["berth cancel $(berth ps -q --tag sweep)", "names for another command"],
    ],
    options: [
      new Option("-a, --all", "also jobs that have ended"),
      new Option("-w, --watch", "go on and show changes"),
      ...filterOptions(),
      new Option("--limit <number>", "largest number of jobs; 0: all").default("50"),
    ],
    run: async (call) => {
      const limit = limitOf(call.options.limit)
      const client = call.client()
      if (call.options.watch === true) return watchJobs(call, client, limit)
      const { jobs, total } = await listJobs(client, statusesOf(call.options), call.options, limit)
      await printJobs(call, jobs)
      if (jobs.length < total) call.terminal.progress(`${jobs.length} of ${total} jobs; --limit 0 shows all.`)
      if (total === 0)
        call.terminal.progress(call.options.all === true ? "No jobs." : "No unfinished jobs; -a shows all.")
      return 0
    },
  })
}

function limitOf(text: string): number {
  if (!/^\d+$/.test(text)) throw usageError(`--limit ${text} is no whole number.`)
  return text === "0" ? Number.POSITIVE_INFINITY : Number(text)
}

function statusesOf({ all, status }: ListFlags): readonly (JobStatus | undefined)[] {
  if (status !== undefined) return [status]
  return all === true ? [undefined] : UNFINISHED
}

interface Listed {
  jobs: JobRecord[]
  total: number
}

/** Returns the newest jobs with one of the statuses; undefined: any status. */
async function listJobs(
  client: BerthClient,
  statuses: readonly (JobStatus | undefined)[],
  { tag = [], label = [] }: Filter,
  limit: number,
): Promise<Listed> {
  const lists = await Promise.all(
    statuses.map(async (status): Promise<Listed> => {
      let total = 0
      const jobs: JobRecord[] = []
      const read = async (page: { offset: number; limit: number }) => {
        const query = { ...page, tag, label, ...(status !== undefined && { status }) }
        const list = await fetched(client.api.GET("/jobs", { params: { query } }))
        total = list.total
        return list
      }
      for await (const job of everyItem(read, (list) => list.jobs, limit)) jobs.push(job)
      return { jobs, total }
    }),
  )
  // A job may change its status between two of the lists.
  const unique = new Map(lists.flatMap(({ jobs }) => jobs.map((job) => [job.id, job])))
  const jobs = [...unique.values()].sort((a, b) => b.created_at.localeCompare(a.created_at)).slice(0, limit)
  return {
    jobs,
    total: Math.max(
      jobs.length,
      lists.reduce((sum, { total }) => sum + total, 0),
    ),
  }
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
    { title: "AGE", cell: ({ created_at }) => ageOf(created_at, now), alignsRight: true },
    { title: "REGION", cell: ({ selected_region }) => selected_region ?? "", isWide: true },
    { title: "IMAGE", cell: ({ image }) => image, isWide: true },
    { title: "MESSAGE", cell: ({ message }) => message ?? "", isWide: true },
  ]
}

/** Returns the reason of a status that needs one: why a job waits, or why it failed. */
function whyOf({ status, reason, exit_code }: JobRecord): string {
  if (status === "succeeded" || status === "running") return ""
  return reason === "ContainerFailed" && exit_code !== null ? `exit code ${exit_code}` : (reason ?? "")
}

function machineOf({ selected_provider, selected_instance_type }: JobRecord): string {
  return selected_provider === null ? "" : `${selected_provider}/${selected_instance_type}`
}

function priceOf({ hourly_price_usd }: JobRecord): string {
  return hourly_price_usd === null ? "" : String(Math.round(hourly_price_usd * 10_000) / 10_000)
}

function costOf({ actual_cost, estimated_cost }: JobRecord): string {
  if (actual_cost !== null) return usdText(actual_cost)
  return estimated_cost === null ? "" : `~${usdText(estimated_cost)}`
}

/** Interval of reads, where the API has no stream of events, seconds. */
const POLL_SECONDS = 2
/** Changes within this time are shown together, seconds. */
const REDRAW_SECONDS = 0.25

/** Shows the list again after changes: on a screen in place, else as new lines of the jobs that changed. */
async function watchJobs(call: Call<ListFlags>, client: BerthClient, limit: number): Promise<number> {
  const printed = new Map<string, string>()
  const show = async () => {
    const { jobs } = await listJobs(client, statusesOf(call.options), call.options, limit)
    if (call.terminal.isScreen && !call.isForProgram) return redraw(call, jobs)
    const changed = jobs.filter((job) => printed.get(job.id) !== `${job.status} ${job.reason}`)
    for (const job of changed) printed.set(job.id, `${job.status} ${job.reason}`)
    if (changed.length > 0) await printJobs(call, changed)
  }
  for await (const _ of ticks(client, call.signal)) await show()
  return 0
}

async function redraw(call: Call<unknown>, jobs: readonly JobRecord[]): Promise<void> {
  const fitting = jobs.slice(0, Math.max(1, call.terminal.rows - 2))
  const table =
    fitting.length === 0 ? "No jobs." : tableOf(fitting, columnsOf(call, new Date()), call.format === "wide")
  await call.terminal.write(`\u001b[H\u001b[J${table}\n`)
}

/** Yields now, and after each change of a job. */
async function* ticks(client: BerthClient, signal: AbortSignal): AsyncGenerator<void> {
  yield
  try {
    const changes = changesOf(client, signal)
    let next = changes.next()
    for (;;) {
      await next
      next = changes.next()
      // Ages change too, so a quiet project is also drawn again.
      yield
      await delay(REDRAW_SECONDS * 1000, undefined, { signal })
    }
  } catch (error) {
    if (!isMissing(error)) throw error
  }
  for (;;) {
    await delay(POLL_SECONDS * 1000, undefined, { signal })
    yield
  }
}

function addLogs(commands: Commands, program: Command): void {
  commands.add<{ follow?: boolean; tail?: string }>(program, {
    usage: "logs <job>",
    summary: "Print a job's log.",
    more: "Ends with 0, however the job ends. `berth attach` ends with the job's exit code.",
    examples: [
      ["berth logs train --tail 20", "the last lines"],
      ["berth logs train -f", "the whole log, to the job's end"],
    ],
    options: [
      new Option("-f, --follow", "go on until the job has ended"),
      new Option("--tail <lines>", "only the last lines"),
    ],
    run: async (call) => {
      const { follow = false, tail } = call.options
      if (tail !== undefined && !/^\d+$/.test(tail)) throw usageError(`--tail ${tail} is no whole number.`)
      const { terminal, signal } = call
      const onReconnect = () => terminal.progress("The log's connection was cut: reconnecting.")
      const options = { follow, signal, onReconnect, ...(tail !== undefined && { tail: Number(tail) }) }
      for await (const piece of logOf(call.client(), call.args[0] ?? "", options)) await terminal.write(piece)
      return 0
    },
  })
}

const GOALS = ["running", "ended", "succeeded"] as const

function addWait(commands: Commands, program: Command): void {
  commands.add<{ for: (typeof GOALS)[number]; timeout?: string }>(program, {
    usage: "wait <job...>",
    summary: "Wait until jobs run or have ended.",
    more: "Exit code 1: a job ended otherwise than wanted. 124: the time was over.",
    examples: [
      ["berth wait train", "until it has ended"],
      ["berth wait a b --for succeeded --timeout 2h", "fails if one fails, or after two hours"],
    ],
    options: [
      new Option("--for <state>", "state to wait for").choices(GOALS).default("ended"),
      new Option("--timeout <duration>", "longest time to wait, such as 2h"),
    ],
    run: async (call) => {
      const { for: goal, timeout } = call.options
      const client = call.client()
      const limit = timeout === undefined ? undefined : AbortSignal.timeout(secondsOf("--timeout", timeout) * 1000)
      const signal = limit === undefined ? call.signal : AbortSignal.any([call.signal, limit])
      const isMet = (job: JobRecord) => (goal === "running" ? job.status === "running" : isEnded(job))
      try {
        const jobs = await waitFor(client, [...new Set(call.args)], isMet, signal)
        if (call.isForProgram) await call.printValue(jobs)
        else for (const { name, status } of jobs) await call.terminal.line(`${name} ${status}`)
        const isAsWanted = jobs.every(({ status }) => goal !== "succeeded" || status === "succeeded")
        return isAsWanted ? 0 : EXIT.failed
      } catch (error) {
        if (limit?.aborted !== true || call.signal.aborted) throw error
        throw new Failure(EXIT.timeout, `Not all of the jobs are ${goal} after ${timeout}: berth ps`)
      }
    },
  })
}

/** Largest number of names in one request. */
const MOST_NAMES = 1000

type Selection = Schemas["JobCancellation"]

function addCancel(commands: Commands, program: Command): void {
  commands.add<Filter & { yes?: boolean }>(program, {
    usage: "cancel [job...]",
    summary: "Cancel jobs by name, or by label, tag or status.",
    examples: [
      ["berth cancel train", "one job, without a question"],
      ["berth cancel --label sweep=7", "counts the jobs, then asks"],
      ["berth cancel --tag nightly --yes", "without a question"],
    ],
    options: [...filterOptions(), new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const { status, tag, label, yes } = call.options
      const isFiltered = status !== undefined || tag !== undefined || label !== undefined
      if (isFiltered === call.args.length > 0) throw usageError("Name the jobs, or give --label, --tag or --status.")
      const client = call.client()
      if (!isFiltered) return cancelNamed(call, client)
      const selection = selectionOf(call.options)
      const { matched } = await cancelled(client, selection, true)
      if (matched === 0) throw new Failure(EXIT.notFound, "No unfinished job matches.")
      const question = `Cancel ${matched} ${matched === 1 ? "job" : "jobs"}?`
      if (yes !== true && !(await call.terminal.confirm(question, "--yes", false)))
        throw new Failure(EXIT.failed, "Nothing was cancelled.")
      return cancelMatching(call, client, selection)
    },
  })
}

function selectionOf({ status, tag, label }: Filter): Selection {
  return {
    ...(status !== undefined && { status: status as NonNullable<Selection["status"]> }),
    ...(tag !== undefined && { tags: tag }),
    ...(label !== undefined && { labels: Object.fromEntries(label.map(labelOf)) }),
  }
}

function labelOf(text: string): [string, string] {
  const at = text.search(/[:=]/)
  if (at < 1) throw usageError(`--label ${text} must be NAME=VALUE.`)
  return [text.slice(0, at), text.slice(at + 1)]
}

function cancelled(client: BerthClient, body: Selection, dry_run = false): Promise<Schemas["JobCancellations"]> {
  return fetched(client.api.POST("/jobs/cancellations", { params: { query: { dry_run } }, body }))
}

/** Cancels all jobs of a selection. One request has a time limit, so there may be several. */
async function cancelMatching(call: Call<unknown>, client: BerthClient, selection: Selection): Promise<number> {
  let sum = 0
  for (;;) {
    const result = await cancelled(client, selection)
    sum += result.cancelled
    if (result.remaining > 0) {
      call.terminal.progress(`${sum} cancelled, ${result.remaining} left ...`)
      continue
    }
    if (call.isForProgram) await call.printValue({ ...result, cancelled: sum })
    else await call.terminal.line(`${sum} ${sum === 1 ? "job" : "jobs"} cancelled`)
    return reportFailed(call, result.failed)
  }
}

/** Cancels the jobs that the arguments name. */
async function cancelNamed(call: Call<unknown>, client: BerthClient): Promise<number> {
  const failed: Schemas["JobCancellations"]["failed"] = []
  for (let at = 0; at < call.args.length; at += MOST_NAMES) {
    const names = call.args.slice(at, at + MOST_NAMES)
    const result = await cancelled(client, { names })
    failed.push(...result.failed)
    if (call.isForProgram) await call.printValue(result)
    const others = new Set(result.failed.map(({ name }) => name))
    for (const name of call.isForProgram ? [] : names.filter((one) => !others.has(one)))
      await call.terminal.line(call.format === "name" ? name : `${name} cancelled`)
    // The request ended at its time limit: the rest is sent again.
    if (result.remaining > 0) at -= MOST_NAMES
  }
  return reportFailed(call, failed)
}

function reportFailed({ terminal }: Call<unknown>, failed: Schemas["JobCancellations"]["failed"]): number {
  for (const { name, detail } of failed) terminal.warn(`${shown(name)}: ${shown(detail)}`)
  const [first] = failed
  return first === undefined ? 0 : exitOfStatus(first.status)
}
