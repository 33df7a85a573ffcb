import { type Command, Option } from "commander"
import type { ArrayRecord } from "../../client/arrays.ts"
import { type BerthClient, type JobRecord, readBody, type Schemas } from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import { isEnded, waitFor } from "../../client/jobs.ts"
import { defined } from "../../core/apis/defined.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT, exitOfStatus, Failure, usageError } from "../exit.ts"
import { allDependents, type Ordered } from "../order.ts"
import { tellStory } from "../story.ts"
import { parseSeconds } from "../submission.ts"
import { arrayNamed, findByName, findTarget, lastJob, TARGET, type Target } from "../target.ts"
import { shown } from "../terminal.ts"
import { type CancelFlags, cancelArray, confirmCancel, dependentsOption, dependentsText, showArray } from "./array.ts"
import { type Filter, filterOptions, parseLabel } from "./filter.ts"

/** `show`, `wait` and `cancel`: commands about jobs that exist. */
export function addJobCommands(commands: Commands, program: Command): void {
  commands.add(program, {
    usage: `show ${TARGET}`,
    summary: "Show the story of a job: its steps, its machine, its cost.",
    more: "Of an array, its counts and the values of its failed indexes. Without a name, the last job or array from here.",
    examples: [
      ["berth show train", "what happened, and why"],
      ["berth show", "the same for what you submitted last"],
      ["berth show train -o yaml", "its whole record"],
    ],
    run: async (call) => {
      const client = call.client()
      const target = await findTarget(call, client)
      if (target.kind === "array") await showArray(call, client, target.array)
      else if (call.isForProgram) await call.printValue(target.job)
      else await call.terminal.line(await tellStory(client, target.job, call.terminal))
      return 0
    },
  })
  addWait(commands, program)
  addPriority(commands, program)
  addCancel(commands, program)
}

function addPriority(commands: Commands, program: Command): void {
  commands.add(program, {
    usage: "priority <job> <number>",
    summary: "Move a waiting job in its project's line.",
    more: "From -100 to 100: the highest starts first. A negative number comes after --.",
    examples: [
      ["berth priority train 50", "before all jobs with a lower priority"],
      ["berth priority -- train -10", "after the others"],
    ],
    run: async (call) => {
      const [id = "", text = ""] = call.args
      const priority = Number(text)
      if (!Number.isInteger(priority)) throw usageError(`"${text}" is not a whole number: write -100 to 100.`)
      const request = { params: { path: { id } }, body: { priority } }
      const job = await readBody(call.client().api.PATCH("/jobs/{id}", request))
      if (call.isForProgram) await call.printValue(job)
      else await call.terminal.line(`${job.name} has priority ${priority}${place(job)}.`)
      return 0
    },
  })
}

function place({ queue_position }: JobRecord): string {
  return queue_position === null ? "" : `, and is number ${queue_position} in the line`
}

const GOALS = ["running", "ended", "succeeded"] as const

function addWait(commands: Commands, program: Command): void {
  commands.add<{ for: (typeof GOALS)[number]; timeout?: string }>(program, {
    usage: "wait [job...]",
    summary: "Wait until jobs run or have ended.",
    more: "Without a name, the last job from here. Exit code 1: a job ended in another state. 124: timeout.",
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
      const names = namesIn(call)
      const limit = timeout === undefined ? undefined : AbortSignal.timeout(parseSeconds("--timeout", timeout) * 1000)
      const signal = limit === undefined ? call.signal : AbortSignal.any([call.signal, limit])
      const isMet = (job: JobRecord) => (goal === "running" ? job.status === "running" : isEnded(job))
      try {
        const jobs = await waitFor(client, names, isMet, signal)
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

/** Returns the names of the jobs, by default of the last one from here. */
function namesIn(call: Call<unknown>): string[] {
  return call.args.length === 0 ? [lastJob(call)] : [...new Set(call.args)]
}

/** Largest number of names in one request. */
const MOST_NAMES = 1000

type Selection = Schemas["JobCancellation"]

function addCancel(commands: Commands, program: Command): void {
  commands.add<Filter & CancelFlags>(program, {
    usage: "cancel [job-or-array...]",
    summary: "Cancel jobs by name, or by label, tag or status.",
    more: "The name of an array cancels it with all its jobs. The command asks first, unless --yes is given.",
    examples: [
      ["berth cancel train", "one job, without a question"],
      ["berth cancel prepare --and-dependents", "counts what waits for it, then asks"],
      ["berth cancel --label sweep=7", "counts the jobs, then asks"],
      ["berth cancel --tag nightly --yes", "without a question"],
    ],
    options: [...filterOptions(), dependentsOption(), new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const { status, tag, label, andDependents } = call.options
      const isFiltered = status !== undefined || tag !== undefined || label !== undefined
      if (isFiltered === call.args.length > 0)
        throw usageError("Name the jobs or arrays, or give --label, --tag or --status.")
      if (isFiltered && andDependents === true)
        throw usageError("--and-dependents needs names of jobs or arrays, not --label, --tag or --status.")
      const client = call.client()
      if (isFiltered) return cancelFiltered(call, client)
      return andDependents === true ? cancelWithDependents(call, client) : cancelNamed(call, client)
    },
  })
}

/** Counts the jobs that the flags select, asks, and cancels them. */
async function cancelFiltered(call: Call<Filter & CancelFlags>, client: BerthClient): Promise<number> {
  const selection = selectionOf(call.options)
  const { matched } = await cancelSelected(client, selection, true)
  if (matched === 0) throw new Failure(EXIT.notFound, "No unfinished job matches.")
  await confirmCancel(call, `Cancel ${matched} ${matched === 1 ? "job" : "jobs"}?`)
  return cancelMatching(call, client, selection)
}

function selectionOf({ status, tag, label }: Filter): Selection {
  return {
    ...(status !== undefined && { status: status as NonNullable<Selection["status"]> }),
    ...defined({ tags: tag }),
    ...(label !== undefined && { labels: Object.fromEntries(label.map(parseLabel)) }),
  }
}

function cancelSelected(client: BerthClient, body: Selection, dry_run = false): Promise<Schemas["JobCancellations"]> {
  return readBody(client.api.POST("/jobs/cancellations", { params: { query: { dry_run } }, body }))
}

/** Cancels all jobs of a selection. One request has a time limit, so there may be several. */
async function cancelMatching(call: Call<unknown>, client: BerthClient, selection: Selection): Promise<number> {
  let sum = 0
  for (;;) {
    const result = await cancelSelected(client, selection)
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

/** Job or array to cancel. */
interface Named extends Ordered {
  name: string
}

function toNamed(target: Target): Named {
  if (target.kind === "job") return { kind: "job", id: target.job.id, name: target.job.name }
  return { kind: "array", id: target.array.id, name: target.array.name }
}

/** Cancels the jobs and arrays that the arguments name, and what waits for them, after a question that counts it. */
async function cancelWithDependents(call: Call<CancelFlags>, client: BerthClient): Promise<number> {
  const targets = [...new Set(call.args)].map(async (name) => toNamed(await findByName(client, name)))
  const named = await Promise.all(targets)
  const lists = await Promise.all(named.map((one) => allDependents(client, one)))
  const waiting = [...new Map(lists.flat().map((one) => [one.id, one])).values()]
  const others = waiting.filter(({ id }) => !named.some((one) => one.id === id))
  const names = named.map(({ kind, name }) => (kind === "job" ? name : `the array ${name}`)).join(", ")
  const too = others.length === 0 ? "" : ` and ${dependentsText(others)}`
  // A job alone is cancelled without a question, as it is without the flag.
  if (too !== "" || named.some(({ kind }) => kind === "array")) await confirmCancel(call, `Cancel ${names}${too}?`)
  const failed: Schemas["JobCancellations"]["failed"] = []
  for (const one of named) {
    try {
      await cancelOne(call, client, one)
    } catch (error) {
      if (!(error instanceof ApiError)) throw error
      failed.push({ name: one.name, status: error.status, detail: error.message })
    }
  }
  if (others.length > 0 && failed.length === 0) call.terminal.progress(`Also cancelled: ${dependentsText(others)}.`)
  return reportFailed(call, failed)
}

/** Cancels a job or an array with its dependents, and prints it. */
async function cancelOne(call: Call<unknown>, client: BerthClient, { kind, id, name }: Named): Promise<void> {
  const params = { path: { id }, query: { dependents: true } }
  const record =
    kind === "job"
      ? await readBody(client.api.POST("/jobs/{id}/cancel", { params }))
      : await readBody(client.api.POST("/arrays/{id}/cancel", { params }))
  if (call.isForProgram) await call.printValue(record)
  else await call.terminal.line(call.format === "name" ? name : `${name} cancelled`)
}

/** Cancels the jobs and arrays that the arguments name. */
async function cancelNamed(call: Call<{ yes?: boolean }>, client: BerthClient): Promise<number> {
  const failed: Schemas["JobCancellations"]["failed"] = []
  for (let at = 0; at < call.args.length; at += MOST_NAMES) {
    const names = call.args.slice(at, at + MOST_NAMES)
    const result = await cancelSelected(client, { names })
    const others = new Set(result.failed.map(({ name }) => name))
    const arrays = await arraysAmong(client, result.failed)
    const reported = result.failed.filter(({ name }) => !arrays.has(name))
    failed.push(...reported)
    if (call.isForProgram) await call.printValue({ ...result, failed: reported })
    for (const array of arrays.values()) await cancelArray(call, client, array)
    for (const name of call.isForProgram ? [] : names.filter((one) => !others.has(one)))
      await call.terminal.line(call.format === "name" ? name : `${name} cancelled`)
    // The request ended at its time limit: the rest is sent again.
    if (result.remaining > 0) at -= MOST_NAMES
  }
  return reportFailed(call, failed)
}

/** Returns the arrays that have the names of missing jobs. */
async function arraysAmong(
  client: BerthClient,
  failed: Schemas["JobCancellations"]["failed"],
): Promise<Map<string, ArrayRecord>> {
  const arrays = new Map<string, ArrayRecord>()
  for (const { name, status } of failed) {
    const array = status === 404 ? await arrayNamed(client, name) : undefined
    if (array !== undefined) arrays.set(name, array)
  }
  return arrays
}

function reportFailed({ terminal }: Call<unknown>, failed: Schemas["JobCancellations"]["failed"]): number {
  for (const { name, detail } of failed) terminal.warn(`${shown(name)}: ${shown(detail)}`)
  const [first] = failed
  return first === undefined ? 0 : exitOfStatus(first.status)
}
