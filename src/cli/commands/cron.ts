import { type Command, Option } from "commander"
import { allItems, readBody, type Schemas } from "../../client/client.ts"
import { timestamp } from "../../core/apis/clock.ts"
import { nextTick } from "../../core/apis/schedule.ts"
import type { Call, Commands } from "../command.ts"
import { troubleLines } from "../conditions.ts"
import { EXIT, Failure, usageError } from "../exit.ts"
import { durationText, formatAge, formatTime } from "../table.ts"
import { shown } from "../terminal.ts"

type CronJob = Schemas["CronJobRecord"]

/** `cron`: cronjobs. `berth apply` creates and changes them. */
export function addCronCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "cron", "List, pause and run cronjobs. berth apply creates them.")
  addReading(commands, group)
  addChange(commands, group, { usage: "pause <name>", summary: "Stop a cronjob from creating jobs.", isActive: false })
  addChange(commands, group, { usage: "resume <name>", summary: "Let a cronjob create jobs again.", isActive: true })
  commands.add(group, {
    usage: "run <name>",
    summary: "Create a job of a cronjob now, and print its name.",
    examples: [["berth attach $(berth cron run nightly)", "run it now, and follow the log"]],
    run: async (call) => {
      const path = { name: call.args[0] ?? "" }
      const created = await readBody(call.client().api.POST("/cronjobs/{name}/run", { params: { path } }))
      call.remember({ kind: "job", name: created.name })
      await call.terminal.line(created.name)
      return 0
    },
  })
  commands.add<{ yes?: boolean }>(group, {
    usage: "rm <name>",
    summary: "Delete a cronjob. Its jobs are kept.",
    examples: [["berth cron rm nightly", "asks first; --yes does not"]],
    options: [new Option("-y, --yes", "do not ask")],
    run: async (call) => {
      const [name = ""] = call.args
      await confirmDeletion(call, `Delete the cronjob ${name}? Its jobs are kept.`)
      await call.client().api.DELETE("/cronjobs/{name}", { params: { path: { name } } })
      call.terminal.progress(`The cronjob ${name} is deleted.`)
      return 0
    },
  })
}

/** Asks before something is deleted. @throws Failure if the answer is no */
export async function confirmDeletion(call: Call<{ yes?: boolean }>, question: string): Promise<void> {
  if (call.options.yes === true || (await call.terminal.confirm(question, "--yes", false))) return
  throw new Failure(EXIT.failed, "Nothing was deleted.")
}

function addReading(commands: Commands, group: Command): void {
  commands.add(group, {
    usage: "ls",
    summary: "List the cronjobs.",
    examples: [["berth cron ls", "with their schedules, in UTC"]],
    run: async (call) => {
      const client = call.client()
      const read = (query: { offset: number; limit: number }) =>
        readBody(client.api.GET("/cronjobs", { params: { query } }))
      const rows = await allItems(read, (page) => page.cronjobs)
      const now = new Date()
      await call.print(
        rows,
        [
          { title: "NAME", cell: ({ name }) => name },
          { title: "SCHEDULE (UTC)", cell: ({ cron_spec }) => cron_spec },
          { title: "ACTIVE", cell: ({ is_active }) => (is_active ? "yes" : "paused") },
          { title: "NEXT", cell: (cronjob) => timesOf(cronjob, 1)[0] ?? "" },
          { title: "LAST", cell: ({ last_triggered_at }) => formatAge(last_triggered_at, now), alignsRight: true },
          { title: "IMAGE", cell: ({ job_definition }) => job_definition.image, isWide: true },
        ],
        ({ name }) => name,
      )
      if (rows.length === 0) call.terminal.progress("No cronjobs: berth apply creates one.")
      return 0
    },
  })
  commands.add(group, {
    usage: "show <name>",
    summary: "Show a cronjob, and its next times.",
    examples: [["berth cron show nightly", "its definition and its next times"]],
    run: async (call) => {
      const cronjob = await cronJobOf(call)
      if (call.isForProgram) await call.printValue(cronjob)
      else await call.terminal.line(textOf(cronjob))
      return 0
    },
  })
  commands.add(group, {
    usage: "next <name> [count]",
    summary: "Print the next times of a cronjob, in UTC.",
    examples: [["berth cron next nightly 10", "the next ten"]],
    run: async (call) => {
      const count = Number(call.args[1] ?? "5")
      if (!Number.isInteger(count) || count < 1) throw usageError(`${call.args[1]} is not a number of times.`)
      const times = timesOf({ ...(await cronJobOf(call)), is_active: true }, count)
      if (call.isForProgram) await call.printValue(times)
      else await call.terminal.line(times.join("\n"))
      return 0
    },
  })
}

function cronJobOf(call: Call<unknown>): Promise<CronJob> {
  return readBody(call.client().api.GET("/cronjobs/{name}", { params: { path: { name: call.args[0] ?? "" } } }))
}

/** Returns the next times of a schedule; none while it is paused. */
function timesOf({ cron_spec, is_active }: CronJob, count: number): string[] {
  if (!is_active) return []
  const times: Date[] = []
  while (times.length < count) {
    const next = nextTick(cron_spec, times.at(-1) ?? new Date())
    if (next === undefined) break
    times.push(next)
  }
  return times.map(timestamp)
}

function textOf(cronjob: CronJob): string {
  const { name, cron_spec, is_active, last_triggered_at, job_definition } = cronjob
  const { concurrency_policy, starting_deadline_seconds: deadline } = cronjob
  const { successful_jobs_history_limit: succeeded, failed_jobs_history_limit: failed } = cronjob
  const startWithin = deadline === null ? "" : `, each job within ${durationText(deadline)} of its time`
  return [
    `${shown(name)}  ${is_active ? "active" : "paused"}`,
    `  Schedule: ${shown(cron_spec)} (UTC)`,
    `  Next:     ${timesOf(cronjob, 3).join(", ") || "none: it is paused"}`,
    `  Last:     ${last_triggered_at === null ? "never" : formatTime(last_triggered_at)}`,
    `  Policy:   ${concurrency_policy}${startWithin}`,
    `  Keeps:    ${succeeded ?? "all"} succeeded, ${failed ?? "all"} failed and cancelled jobs`,
    `  Image:    ${shown(job_definition.image)}`,
    `  Command:  ${shown([...(job_definition.command ?? []), ...(job_definition.args ?? [])].join(" "))}`,
    ...troubleLines(cronjob.conditions),
  ].join("\n")
}

interface Change {
  usage: string
  summary: string
  isActive: boolean
}

function addChange(commands: Commands, group: Command, { usage, summary, isActive }: Change): void {
  const word = isActive ? "resume" : "pause"
  commands.add(group, {
    usage,
    summary,
    examples: [[`berth cron ${word} nightly`, isActive ? "jobs are created again" : "until berth cron resume"]],
    run: async (call) => {
      const path = { params: { path: { name: call.args[0] ?? "" } } }
      const record = await readBody(
        call.client().api.PATCH("/cronjobs/{name}", { ...path, body: { is_active: isActive } }),
      )
      call.terminal.progress(`The cronjob ${record.name} is ${isActive ? "active" : "paused"}.`)
      return 0
    },
  })
}
