import { type Command, Option } from "commander"
import { allItems, type BerthClient, readBody, type Schemas } from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT, Failure, usageError } from "../exit.ts"
import { formatAge, usdText } from "../table.ts"
import { confirmDeletion } from "./cron.ts"

type IdleVm = Schemas["IdleVm"]

/** `idle`: VMs that wait for another job. */
export function addIdleCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "idle", "List and end the machines that wait for another job (--reuse).")
  commands.add(group, {
    usage: "ls",
    summary: "List the machines that wait for another job, with the cost of the wait.",
    examples: [["berth idle ls -o wide", "with the names of their launches, and their keys"]],
    run: async (call) => {
      const rows = await idleVms(call.client())
      await call.print(rows, columnsAt(new Date()), ({ launch }) => launch)
      if (rows.length === 0 && !call.isForProgram) call.terminal.progress("No machine waits for a job.")
      return 0
    },
  })
  commands.add<{ all?: boolean; yes?: boolean }>(group, {
    usage: "end [name]",
    summary: "End a machine that waits for another job.",
    more: "The name is that of the launch, or of the job that ran on it last.",
    examples: [
      ["berth idle end resize-7", "the machine of this job"],
      ["berth idle end --all --yes", "all of the project, without a question"],
    ],
    options: [new Option("--all", "end all machines of the project that wait"), new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const [name] = call.args
      const isAll = call.options.all === true
      if (isAll === (name !== undefined)) throw usageError("Name a machine, or give --all.")
      const client = call.client()
      const found = (await idleVms(client)).filter(({ launch, job }) => isAll || launch === name || job === name)
      if (found.length === 0 && !isAll) throw new Failure(EXIT.failed, `No machine of ${name} waits for a job.`)
      if (found.length === 0) call.terminal.progress("No machine waits for a job.")
      else
        await confirmDeletion(call, `End ${found.length === 1 ? "the idle machine" : `${found.length} idle machines`}?`)
      const ended = await Promise.all(found.map((machine) => endMachine(call, client, machine)))
      return ended.includes(false) ? EXIT.failed : 0
    },
  })
}

/** Ends an idle machine. Returns false, with a message, if a job has taken it meanwhile, or if it has ended. */
async function endMachine(
  { terminal }: Pick<Call<object>, "terminal">,
  client: BerthClient,
  { launch, job }: IdleVm,
): Promise<boolean> {
  try {
    await client.api.DELETE("/idle/{launch}", { params: { path: { launch } } })
  } catch (error) {
    if (!(error instanceof ApiError && [404, 409].includes(error.status))) throw error
    terminal.warn(`The machine of ${job}: ${error.message}`)
    return false
  }
  terminal.progress(`The idle machine of ${job} is ended.`)
  return true
}

function idleVms(client: BerthClient): Promise<IdleVm[]> {
  const read = (query: { offset: number; limit: number }) => readBody(client.api.GET("/idle", { params: { query } }))
  return allItems(read, (page) => page.idle)
}

function columnsAt(now: Date) {
  return [
    { title: "JOB", cell: ({ job }: IdleVm) => job },
    { title: "MACHINE", cell: ({ provider, instance_type }: IdleVm) => `${provider}/${instance_type}` },
    { title: "REGION", cell: ({ region }: IdleVm) => region },
    { title: "$/H", cell: ({ total_usd_per_hour }: IdleVm) => String(total_usd_per_hour), alignsRight: true },
    { title: "IDLE", cell: ({ idle_since }: IdleVm) => formatAge(idle_since, now), alignsRight: true },
    { title: "UNTIL (UTC)", cell: ({ idle_until }: IdleVm) => idle_until.slice(11, 19) },
    { title: "COST", cell: ({ idle_usd }: IdleVm) => usdText(idle_usd), alignsRight: true },
    { title: "KEY", cell: ({ key }: IdleVm) => key ?? "", isWide: true },
    { title: "LAUNCH", cell: ({ launch }: IdleVm) => launch, isWide: true },
  ]
}
