import { type Command, Option } from "commander"
import type { ArrayShape } from "../../client/array-grammar.ts"
import {
  type ArrayRecord,
  definitionOf,
  indexStates,
  jobNameOf,
  readArray,
  valuesOf,
  watchArray,
} from "../../client/arrays.ts"
import {
  allItems,
  type BerthClient,
  type JobRecord,
  type JobStatus,
  type JobSubmission,
  readBody,
  type Schemas,
} from "../../client/client.ts"
import { defined } from "../../core/apis/defined.ts"
import type { Call, Commands } from "../command.ts"
import { troubleLines } from "../conditions.ts"
import { EXIT, Failure, usageError } from "../exit.ts"
import { type LeaveFlags, leave } from "../leave.ts"
import { afterText, allDependents, beforeText, namesText } from "../order.ts"
import { type Column, cut, formatAge, formatTable, usdText, wrapText } from "../table.ts"
import { arrayNameOf } from "../target.ts"
import { shown } from "../terminal.ts"
import { confirmDeletion } from "./cron.ts"
import { afterOption } from "./filter.ts"

/** `array`: arrays of jobs. `berth run --array` and `berth apply` create them. */
export function addArrayCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "array", "List, follow and cancel arrays. berth run --array creates them.")
  addReading(commands, group)
  commands.add(group, {
    usage: "wait [name]",
    summary: "Follow an array until it has ended.",
    more: "Without a name, the last array from here. Exit code 1: the array failed or was cancelled.",
    examples: [["berth array wait sweep", "its counts, until it has ended"]],
    run: async (call) => followArray(call, call.client(), arrayNameOf(call)),
  })
  addRetry(commands, group)
  addScale(commands, group)
  commands.add<CancelFlags>(group, {
    usage: "cancel <name>",
    summary: "Cancel an array and its jobs.",
    examples: [
      ["berth array cancel sweep", "asks first; --yes does not"],
      ["berth array cancel sweep --and-dependents", "also all that waits for it"],
    ],
    options: [dependentsOption(), new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const client = call.client()
      await cancelArray(call, client, await readArray(client, call.args[0] ?? ""))
      return 0
    },
  })
  commands.add<{ yes?: boolean }>(group, {
    usage: "rm <name>",
    summary: "Delete an array. Its unfinished jobs are cancelled, the others are kept.",
    examples: [["berth array rm sweep", "asks first; --yes does not"]],
    options: [new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const [id = ""] = call.args
      await confirmDeletion(call, `Delete the array ${id}? Its unfinished jobs are cancelled, the others are kept.`)
      await call.client().api.DELETE("/arrays/{id}", { params: { path: { id } } })
      call.terminal.progress(`The array ${id} is deleted.`)
      return 0
    },
  })
}

/** Flags of the cancellation of a job or an array. */
export interface CancelFlags {
  yes?: boolean
  andDependents?: boolean
}

export function dependentsOption(): Option {
  return new Option("--and-dependents", "also all that waits for it, so that nothing starts")
}

/** Asks before a cancellation, unless --yes is given. @throws Failure if the answer is no */
export async function confirmCancel({ options, terminal }: Call<CancelFlags>, question: string): Promise<void> {
  if (options.yes !== true && !(await terminal.confirm(question, "--yes", false)))
    throw new Failure(EXIT.failed, "Nothing was cancelled.")
}

/** Asks, and cancels an array. @throws Failure if the answer is no */
export async function cancelArray(
  call: Call<CancelFlags>,
  client: BerthClient,
  { id, name, counts, size }: ArrayRecord,
): Promise<void> {
  const { andDependents: dependents = false } = call.options
  const waiting = dependents ? await allDependents(client, { kind: "array", id }) : []
  const ended = counts.succeeded + counts.failed + counts.cancelled
  const others = waiting.length === 0 ? "" : ` And what waits for it: ${dependentsText(waiting)}.`
  const question = `Cancel the array ${name}? ${size - ended} of its ${size} jobs have not ended.${others}`
  await confirmCancel(call, question)
  // An API of 0.1.0 takes no parameter.
  const query = dependents ? { query: { dependents } } : {}
  await readBody(client.api.POST("/arrays/{id}/cancel", { params: { path: { id }, ...query } }))
  const too = waiting.length === 0 ? "" : ` with ${dependentsText(waiting)}`
  call.terminal.progress(`The array ${name} is cancelled${too}.`)
}

/** Returns the number of dependents, and their names. */
export function dependentsText(dependents: Parameters<typeof namesText>[0]): string {
  const count = dependents.length
  return `${count} ${count === 1 ? "dependent" : "dependents"} (${namesText(dependents)})`
}

function addReading(commands: Commands, group: Command): void {
  commands.add<{ after?: string }>(group, {
    usage: "ls",
    summary: "List the arrays.",
    examples: [
      ["berth array ls", "with their counts and costs"],
      ["berth array ls --after prepare", "arrays that name this job in --after"],
    ],
    options: [afterOption("arrays")],
    run: async (call) => {
      const client = call.client()
      const { after } = call.options
      const read = (page: { offset: number; limit: number }) =>
        readBody(client.api.GET("/arrays", { params: { query: { ...page, ...defined({ after }) } } }))
      const rows = await allItems(read, (page) => page.arrays)
      const now = new Date()
      const count = (title: string, of: (counts: ArrayRecord["counts"]) => number) => ({
        title,
        cell: ({ counts }: ArrayRecord) => String(of(counts)),
        alignsRight: true,
      })
      await call.print(
        rows,
        [
          { title: "NAME", cell: ({ name }) => name },
          { title: "STATUS", cell: ({ status }) => status },
          { title: "SIZE", cell: ({ size }) => String(size), alignsRight: true },
          count("RUNNING", ({ running }) => running),
          count("SUCCEEDED", ({ succeeded }) => succeeded),
          count("FAILED", ({ failed }) => failed),
          { title: "COST", cell: ({ actual_cost }) => usdText(actual_cost), alignsRight: true },
          { title: "AGE", cell: ({ created_at }) => formatAge(created_at, now), alignsRight: true },
          { title: "IMAGE", cell: ({ job_definition }) => job_definition.image, isWide: true },
        ],
        ({ name }) => name,
      )
      if (rows.length === 0)
        call.terminal.progress(
          after === undefined ? "No arrays: berth run --array creates one." : `No array names ${after}.`,
        )
      return 0
    },
  })
  commands.add(group, {
    usage: "show [name]",
    summary: "Show an array: its counts, its cost, and the values and the end of each failed index.",
    more: "Without a name, the last array from here.",
    examples: [
      ["berth array show sweep", "where it stands, and which values failed"],
      ["berth array show sweep --json", "the record of the REST API"],
    ],
    run: async (call) => {
      const client = call.client()
      await showArray(call, client, await readArray(client, arrayNameOf(call)))
      return 0
    },
  })
}

function addRetry(commands: Commands, group: Command): void {
  commands.add<{ indexes?: string }>(group, {
    usage: "retry <name>",
    summary: "Run the failed indexes of an array again.",
    examples: [
      ["berth array retry sweep", "all that failed"],
      ["berth array retry sweep --indexes 3,7-9", "these, which failed or were cancelled"],
    ],
    options: [new Option("--indexes <indexes>", "indexes such as 3,7-9; default: all that failed")],
    run: async (call) => {
      const client = call.client()
      const before = await readArray(client, call.args[0] ?? "")
      const { indexes } = call.options
      if (indexes === undefined && before.failed_indexes === "") {
        call.terminal.progress(`No index of ${before.name} has failed.`)
        return 0
      }
      const query = indexes === undefined ? {} : { query: { indexes } }
      const params = { path: { id: before.id }, ...query }
      await readBody(client.api.POST("/arrays/{id}/retry-failed", { params }))
      call.terminal.progress(`The indexes ${indexes ?? before.failed_indexes} of ${before.name} run again.`)
      return 0
    },
  })
}

function addScale(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "scale <name> <parallelism>",
    summary: "Change the number of jobs that an array runs at the same time.",
    more: "A smaller number cancels no job.",
    examples: [["berth array scale sweep 50", "at most 50 unfinished jobs"]],
    run: async (call) => {
      const [id = "", text = ""] = call.args
      const parallelism = wholeNumber("parallelism", text)
      const { name } = await readBody(
        call.client().api.PATCH("/arrays/{id}", { params: { path: { id } }, body: { parallelism } }),
      )
      call.terminal.progress(`The array ${name} runs at most ${parallelism} jobs at the same time.`)
      return 0
    },
  })
}

/** @throws Failure that names the flag */
export function wholeNumber(flag: string, text: string): number {
  if (!/^\d{1,6}$/.test(text)) throw usageError(`${flag} must be a whole number, not ${text}.`)
  return Number(text)
}

/** @param before names of what waits for the array */
function textOf(array: ArrayRecord, before: string): string {
  const { name, status, size, counts, matrix, job_definition, message } = array
  const indexes = [
    ["Active", array.active_indexes],
    ["Succeeded", array.succeeded_indexes],
    ["Failed", array.failed_indexes],
    ["Cancelled", array.cancelled_indexes],
  ] as const
  const line = (title: string, text: string) => wrapText(`  ${`${title}:`.padEnd(13)}${text}`, " ".repeat(15))
  return [
    `${name}  ${status}${message === null ? "" : `: ${shown(message)}`}`,
    ...[["After", afterText(array)] as const, ["Before", before] as const].flatMap(([title, text]) =>
      text === "" ? [] : [line(title, shown(text))],
    ),
    line("Jobs", `${size}, at most ${array.parallelism} at the same time`),
    ...Object.entries(matrix ?? {}).map(([variable, values]) =>
      line(variable, shown(cut(values.join(", "), LONGEST_TEXT))),
    ),
    line("Counts", countsText(counts)),
    ...indexes.flatMap(([title, text]) => (text === "" ? [] : [line(title, cut(text, LONGEST_TEXT))])),
    line("Cost", usdText(array.actual_cost)),
    line("Image", shown(job_definition.image)),
    line("Command", shown([...(job_definition.command ?? []), ...(job_definition.args ?? [])].join(" "))),
    ...troubleLines(array.conditions, [message]),
  ].join("\n")
}

/** Longest text of values or indexes. -o json has all. */
const LONGEST_TEXT = 100

/** Failed indexes in a table; `-o wide` shows all. */
const SHOWN_FAILED = 20

/** Prints an array, and a table of its failed indexes. */
export async function showArray(call: Call<unknown>, client: BerthClient, array: ArrayRecord): Promise<void> {
  if (call.isForProgram) return call.printValue(array)
  const [failed, before] = await Promise.all([
    failedIndexes(client, array),
    beforeText(client, { kind: "array", id: array.id }),
  ])
  const isWide = call.format === "wide"
  const shownRows = isWide ? failed : failed.slice(0, SHOWN_FAILED)
  const rest = failed.length - shownRows.length
  const table = formatTable(shownRows, call.styledColumns(FAILED_COLUMNS), isWide).replace(/^/gm, "  ")
  const parts = [
    textOf(array, before),
    ...(failed.length === 0 ? [] : [`\n${call.terminal.styled("bold", "Failed")}\n${table}`]),
    ...(rest === 0 ? [] : [`  … and ${rest} more; -o wide shows all.`]),
  ]
  await call.terminal.line(parts.join("\n"))
}

/** Index of an array that failed, and its last job. */
interface FailedIndex {
  index: number
  values: [name: string, value: string][]
  name: string
  /** Undefined if the job is deleted. */
  job: JobRecord | undefined
}

async function failedIndexes(client: BerthClient, array: ArrayRecord): Promise<FailedIndex[]> {
  const indexes = indexStates(array).flatMap((state, index) => (state === "failed" ? [index] : []))
  if (indexes.length === 0) return []
  const jobs = new Map((await jobsOfArray(client, array, "failed")).map((job) => [job.name, job]))
  return indexes.map((index) => {
    const name = jobNameOf(array, index)
    return { index, values: valuesOf(array, index), name, job: jobs.get(name) }
  })
}

/** Returns the jobs of an array that still exist, of all attempts. */
export function jobsOfArray(client: BerthClient, { id }: ArrayRecord, status?: JobStatus): Promise<JobRecord[]> {
  const read = (page: { offset: number; limit: number }) => {
    const query = { ...page, array: id, ...defined({ status }) }
    return readBody(client.api.GET("/jobs", { params: { query } }))
  }
  return allItems(read, (page) => page.jobs)
}

const FAILED_COLUMNS: Column<FailedIndex>[] = [
  { title: "INDEX", cell: ({ index }) => String(index), alignsRight: true },
  { title: "VALUES", cell: ({ values }) => cut(values.map(([name, value]) => `${name}=${value}`).join(" "), 48) },
  { title: "JOB", cell: ({ name }) => name },
  { title: "EXIT", cell: ({ job }) => (job?.exit_code == null ? "" : String(job.exit_code)), alignsRight: true },
  { title: "WHY", cell: ({ job }) => (job === undefined ? "its job is deleted" : (job.reason ?? "")) },
  { title: "MESSAGE", cell: ({ job }) => job?.error_message ?? job?.message ?? "", isWide: true },
]

const PHASES = ["pending", "queued", "booting", "running", "succeeded", "failed", "cancelled"] as const

function countsText(counts: ArrayRecord["counts"]): string {
  const phases = PHASES.filter((phase) => counts[phase] > 0)
  return phases.map((phase) => `${counts[phase]} ${phase}`).join(", ")
}

/** Array that the flags of `berth run` describe, besides its jobs. */
export type ArraySettings = ArrayShape & { name: string; parallelism?: number; max_failed?: number }

/** Returns the body of an array of a job. The array as a whole waits for what the job names. */
export function toArrayBody(job: JobSubmission, settings: ArraySettings): Schemas["ArrayCreation"] {
  return { ...settings, ...(job.after != null && { after: job.after }), job_definition: definitionOf(job) }
}

/** Creates an array, and follows it unless it is detached. */
export async function submitArray(
  call: Call<LeaveFlags & { detach?: boolean; idempotencyKey?: string }>,
  client: BerthClient,
  body: Schemas["ArrayCreation"],
): Promise<number> {
  const params = { header: defined({ "Idempotency-Key": call.options.idempotencyKey }) }
  const { name } = (await readBody(client.api.POST("/arrays", { params, body: body as never }))) as ArrayRecord
  call.remember({ kind: "array", name })
  if (call.options.detach !== true) return followArray(call, client, name)
  call.terminal.progress(`Created the array ${name}. Follow it: berth array wait ${name}`)
  if (call.isForProgram) await call.printValue(await readArray(client, name))
  else await call.terminal.line(name)
  return 0
}

/** Reports each new state of an array until it has ended. Ends with 0 if all indexes succeeded. */
export async function followArray(call: Call<LeaveFlags>, client: BerthClient, id: string): Promise<number> {
  const { terminal, signal } = call
  let last: ArrayRecord | undefined
  let said = ""
  try {
    for await (const array of watchArray(client, id, signal)) {
      last = array
      const text = `${array.name}: ${countsText(array.counts)}`
      if (text === said || array.ended_at !== null) continue
      said = text
      terminal.progress(terminal.noted("dim", text))
    }
  } catch (error) {
    if (signal.aborted) {
      const name = last?.name ?? id
      const cancel = (fresh: BerthClient, within: AbortSignal) =>
        readBody(fresh.api.POST("/arrays/{id}/cancel", { params: { path: { id } }, signal: within }))
      await leave(call, { name, follow: `berth array wait ${name}`, end: `berth array cancel ${name}`, cancel })
    }
    throw error
  }
  if (last === undefined) return EXIT.failed
  const hasSucceeded = last.status === "succeeded"
  const status = terminal.noted(hasSucceeded ? "green" : "red", last.status)
  terminal.progress(`${last.name}: ${status}, ${countsText(last.counts)}, cost ${usdText(last.actual_cost)}`)
  if (call.isForProgram) await call.printValue(last)
  return hasSucceeded ? 0 : EXIT.failed
}
