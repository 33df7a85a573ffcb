import { type Command, Option } from "commander"
import { type ArrayRecord, indexStates, jobNameOf, watchArray } from "../../client/arrays.ts"
import type { BerthClient, JobRecord } from "../../client/client.ts"
import { readLog } from "../../client/logs.ts"
import type { Call, Commands } from "../command.ts"
import { usageError } from "../exit.ts"
import { LinePrefix } from "../log-lines.ts"
import { findTarget, TARGET } from "../target.ts"
import { jobsOfArray } from "./array.ts"
import { timedLines, timestampsOption } from "./attach.ts"

interface LogFlags {
  follow?: boolean
  tail?: string
  timestamps?: boolean
}

/** `logs`: the log of a job, or of each index of an array. */
export function addLogsCommand(commands: Commands, program: Command): void {
  commands.add<LogFlags>(program, {
    usage: `logs ${TARGET}`,
    summary: "Print a job's log.",
    more:
      "Of an array, the log of each index, with the index before each line. With -f an index comes when it has ended.\n" +
      "Without a name, the last job or array from here. Ends with 0, however the job ends: `berth attach` ends with the\n" +
      "job's exit code.",
    examples: [
      ["berth logs train --tail 20", "the last lines"],
      ["berth logs train -f", "the whole log, to the job's end"],
      ["berth logs train --timestamps", "with the time before each line"],
      ["berth logs sweep --tail 1", "the last line of each index of an array"],
    ],
    options: [
      new Option("-f, --follow", "continue until the job has ended"),
      new Option("--tail <lines>", "only the last lines"),
      timestampsOption(),
    ],
    run: async (call) => {
      const { tail } = call.options
      if (tail !== undefined && !/^\d+$/.test(tail)) throw usageError(`--tail ${tail} is not a whole number.`)
      const client = call.client()
      const target = await findTarget(call, client)
      if (target.kind === "job") await printLog(call, client, target.job)
      else await printLogs(call, client, target.array)
      return 0
    },
  })
}

async function printLog(call: Call<LogFlags>, client: BerthClient, { id }: JobRecord): Promise<void> {
  const { terminal, signal } = call
  const { follow = false, timestamps } = call.options
  const tail = tailOf(call)
  const lines = timedLines(call)
  const onReconnect = () => terminal.progress("The log's connection was cut: reconnecting.")
  for await (const piece of readLog(client, id, { follow, tail, timestamps, signal, onReconnect }))
    await terminal.write(lines?.of(piece) ?? piece)
  if (lines !== undefined) await terminal.write(lines.end())
}

/** Prints the logs of an array's indexes, in their order. A follow prints each index when it has ended. */
async function printLogs(call: Call<LogFlags>, client: BerthClient, array: ArrayRecord): Promise<void> {
  if (call.options.follow !== true) return printIndexes(call, client, array, new Set())
  const printed = new Set<string>()
  for await (const now of watchArray(client, array.id, call.signal)) await printIndexes(call, client, now, printed)
}

/** @param printed names of the jobs whose log was printed; it gets the others. A follow prints those that have ended */
async function printIndexes(
  call: Call<LogFlags>,
  client: BerthClient,
  array: ArrayRecord,
  printed: Set<string>,
): Promise<void> {
  const { follow = false, timestamps } = call.options
  const { isScreen } = call.terminal
  const states = indexStates(array)
  const isDue = (index: number) => !follow || states[index] === "succeeded" || states[index] === "failed"
  const wanted = new Set(
    states.flatMap((_, index) => (isDue(index) ? [jobNameOf(array, index)] : [])).filter((name) => !printed.has(name)),
  )
  if (wanted.size === 0) return
  const jobs = (await jobsOfArray(client, array)).filter(({ name }) => wanted.has(name))
  for (const job of jobs.toSorted((a, b) => (a.array_index ?? 0) - (b.array_index ?? 0))) {
    const lines = new LinePrefix(`[${job.array_index}] `, { isTimed: timestamps, isScreen })
    // A follow of a job that has ended waits until its log is complete.
    const options = { follow, tail: tailOf(call), timestamps, signal: call.signal }
    for await (const piece of readLog(client, job.id, options)) await call.terminal.write(lines.of(piece))
    await call.terminal.write(lines.end())
    printed.add(job.name)
  }
}

function tailOf({ options }: Call<LogFlags>): number | undefined {
  return options.tail === undefined ? undefined : Number(options.tail)
}
