import { type Command, Option } from "commander"
import { type BerthClient, type JobRecord, readBody } from "../../client/client.ts"
import { isEnded, readJob, watchJobs } from "../../client/jobs.ts"
import { readLog, readLogTail } from "../../client/logs.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT, exitOfJob, Failure, toFailure } from "../exit.ts"
import { type LeaveFlags, leave } from "../leave.ts"
import { LinePrefix } from "../log-lines.ts"
import { durationText, usdText } from "../table.ts"
import { findTarget, TARGET } from "../target.ts"
import { shown } from "../terminal.ts"
import { followArray } from "./array.ts"

/** Options of commands that follow a job's log. */
export interface FollowFlags extends LeaveFlags {
  timestamps?: boolean
}

/** `attach`: follows a job or an array that exists. */
export function addAttachCommand(commands: Commands, program: Command): void {
  commands.add<FollowFlags>(program, {
    usage: `attach ${TARGET}`,
    summary: "Follow a job's log, and end with its exit code.",
    more:
      "Without a name, the last job or array from here. Of an array it shows the counts, as berth array wait does.\n" +
      "Ctrl-C detaches: the job runs on.",
    usageExit: EXIT.berth,
    examples: [
      ["berth attach train", "the log from its beginning, then the container's exit code"],
      ["berth attach", "what you submitted last"],
    ],
    options: [cancelOption(), timestampsOption()],
    run: (call) =>
      runAttached(call, async () => {
        const client = call.client()
        const target = await findTarget(call, client)
        if (target.kind === "array") return followArray(call, client, target.array.name)
        return attach(call, client, target.job.name)
      }),
  })
}

export function cancelOption(): Option {
  return new Option("--cancel-on-exit", "cancel the job if Ctrl-C or a signal ends this command")
}

export function timestampsOption(): Option {
  return new Option("--timestamps", "the time (UTC) at which the VM's agent has read each line")
}

/** Returns what a log's lines pass, if they get times; undefined if they stay as they are. */
export function timedLines({ options, terminal }: Call<FollowFlags>): LinePrefix | undefined {
  const { isScreen } = terminal
  return options.timestamps === true ? new LinePrefix("", { isTimed: true, isScreen }) : undefined
}

/** Runs a command whose exit code is a container's: its own failures are all 125, and Ctrl-C is 130. */
export async function runAttached(call: Call<unknown>, attached: () => Promise<number>): Promise<number> {
  try {
    return await attached()
  } catch (error) {
    if (call.signal.aborted) throw error
    const failure = toFailure(error)
    throw new Failure(failure.code === EXIT.interrupted ? EXIT.interrupted : EXIT.berth, failure.message)
  }
}

/** Follows a job to its end. Its log is the output; with --json the record is, and the log is on standard error. */
export async function attach(call: Call<FollowFlags>, client: BerthClient, id: string): Promise<number> {
  const { terminal, signal } = call
  const { timestamps } = call.options
  const lines = timedLines(call)
  const write = (piece: Uint8Array) => (call.isForProgram ? terminal.log(piece) : terminal.write(piece))
  const job = await readJob(client, id)
  const progress = reportProgress(call, client, job)
  try {
    const onReconnect = () => terminal.progress("The log's connection was cut: reconnecting.")
    for await (const piece of readLog(client, job.id, { follow: true, timestamps, signal, onReconnect })) {
      await write(lines?.of(piece) ?? piece)
    }
    if (lines !== undefined) await write(lines.end())
    const ended = await progress
    await reportTail(call, client, ended)
    terminal.progress(endText(ended, (text) => terminal.noted(ended.status === "succeeded" ? "green" : "red", text)))
    if (call.isForProgram) await call.printValue(ended)
    return exitOfJob(ended)
  } catch (error) {
    await progress.catch(() => undefined)
    if (signal.aborted) await leave(call, followedJob(job))
    else if (!isEnded(job)) terminal.warn(`${job.name} was submitted and may still run: berth show ${job.name}`)
    throw error
  }
}

/** Reports the end of a failed job's log, if the person who waits has not just seen it. */
async function reportTail({ terminal, isForProgram, signal }: Call<unknown>, client: BerthClient, job: JobRecord) {
  if (job.status !== "failed" || terminal.isScreen || isForProgram) return
  const tail = await readLogTail(client, job.id, signal)
  if (tail !== "") terminal.progress(`The end of its log:\n${tail.replace(/^/gm, "  ")}`)
}

function followedJob({ id, name }: JobRecord) {
  const cancel = (client: BerthClient, signal: AbortSignal) =>
    readBody(client.api.POST("/jobs/{id}/cancel", { params: { path: { id } }, signal }))
  return { name, follow: `berth attach ${name}`, end: `berth cancel ${name}`, cancel }
}

/** Reports each new status until the job has ended, and returns its record. */
async function reportProgress(call: Call<unknown>, client: BerthClient, job: JobRecord): Promise<JobRecord> {
  let last = job
  let said = ""
  for await (const record of watchJobs(client, [job.id], call.signal)) {
    last = record
    const text = stepText(record)
    if (text === said || isEnded(record)) continue
    said = text
    call.terminal.progress(call.terminal.noted("dim", text))
  }
  return last
}

function stepText(job: JobRecord): string {
  const machine = `${job.selected_provider} ${job.selected_instance_type} in ${job.selected_region}`
  if (job.status === "booting") return `${job.name}: booting ${machine}`
  if (job.status === "running") return `${job.name}: running on ${machine}`
  return `${job.name}: ${job.status}${job.message === null ? "" : `: ${shown(job.message)}`}`
}

/** Returns how a job has ended, in one line. */
export function endText(job: JobRecord, styled = (text: string): string => text): string {
  const ran =
    job.started_at === null || job.ended_at === null
      ? undefined
      : (Date.parse(job.ended_at) - Date.parse(job.started_at)) / 1000
  const why = job.error_message ?? job.message
  const parts = [
    `${job.name}: ${styled(job.status)}`,
    ...(job.status === "succeeded" || why === null ? [] : [shown(why)]),
    ...(ran === undefined ? [] : [`ran for ${durationText(ran)}`]),
    ...(job.actual_cost === null ? [] : [`cost ${usdText(job.actual_cost)}`]),
  ]
  return parts.join(", ")
}
