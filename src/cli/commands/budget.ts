import { type Command, Option } from "commander"
import { listProjects } from "../../client/accounts.ts"
import { readBody, type Schemas } from "../../client/client.ts"
import { costReport } from "../../client/costs.ts"
import { defined } from "../../core/apis/defined.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT, Failure, usageError } from "../exit.ts"
import { usdText } from "../table.ts"

type Budget = Schemas["Budget"]
type Caps = NonNullable<Schemas["ProjectRecord"]["caps"]>

interface BudgetFlags {
  monthly?: string
  hourly?: string
  vms?: string
  gpus?: string
  idleVms?: string
  onExceeded?: Caps["onExceeded"]
  reserve?: Caps["reserve"]
}

/** Word that removes a cap. */
const NONE = "none"

/** `budget`: caps of the project, and of its organization and the installation. */
export function addBudgetCommands(commands: Commands, program: Command): void {
  const group = commands.group(program, "budget", "Show the budgets of the project, and set its caps.")
  commands.add(group, {
    usage: "show",
    summary: "Show the caps that the project's jobs are under, and what is spent.",
    examples: [["berth budget show", "of the project, its organization and the installation"]],
    run: async (call) => {
      const { budgets } = await costReport(call.client())
      if (budgets.length === 0 && !call.isForProgram) call.terminal.progress("The project is under no caps.")
      await call.print(budgets, COLUMNS, ({ level }) => level)
      return 0
    },
  })
  commands.add<BudgetFlags>(group, {
    usage: "set",
    summary: "Set caps of the project.",
    more: `For admins of the organization who are signed in. Caps that are not given stay; ${NONE} removes one.`,
    examples: [
      ["berth budget set --monthly 90", "jobs wait when $90 a month is spent or reserved"],
      ["berth budget set --monthly 90 --on-exceeded cancel", "running jobs are cancelled too"],
      ["berth budget set --monthly 90 --reserve strict", "the cap is never exceeded"],
      ["berth budget set --hourly none", "remove a cap"],
    ],
    options: [
      new Option("--monthly <usd>", "maximum spending in a calendar month (UTC), USD"),
      new Option("--hourly <usd>", "maximum price of all VMs, USD per hour"),
      new Option("--vms <number>", "maximum number of VMs at a time"),
      new Option("--gpus <number>", "maximum number of GPUs of all VMs at a time"),
      new Option("--idle-vms <number>", "maximum number of VMs that wait for another job; 0: none waits"),
      new Option("--on-exceeded <action>", "action when the month's cap is spent").choices(["wait", "cancel"]),
      new Option("--reserve <amount>", "amount that a live VM takes from the month's cap").choices([
        "expected",
        "strict",
      ]),
    ],
    run: async (call) => {
      // An API key can't do this, whatever the flags are.
      const accounts = call.accounts()
      const changes = changesOf(call)
      const { context } = call.chosen()
      if (context.project === undefined) throw usageError("Give --project: the context has none.")
      const found = (await listProjects(accounts)).find(({ id }) => id === context.project)
      if (found === undefined) throw new Failure(EXIT.notFound, `You have no project ${context.project}.`)
      const caps: Caps = defined({ ...found.caps, ...changes })
      const path = { params: { path: { project_id: found.id } } }
      const body = { displayName: found.displayName, caps }
      const changed = await readBody(accounts.api.PATCH("/projects/{project_id}", { ...path, body }))
      await call.printValue(changed.caps)
      const { maxMonthlyUsd, reserve } = changed.caps ?? {}
      if (maxMonthlyUsd !== undefined && reserve !== "strict") call.terminal.progress(NOT_STRICT)
      return 0
    },
  })
}

const NOT_STRICT =
  "A job without a timeout counts as an hour, so such jobs may exceed the month's cap. `--reserve strict` prevents that."

/** Returns the given caps; undefined for one to remove. @throws Failure if none is given, or one isn't a number */
function changesOf({ options }: Call<BudgetFlags>): object {
  const { monthly, hourly, vms, gpus, idleVms, onExceeded, reserve } = options
  const amounts = {
    ...{ maxMonthlyUsd: monthly, maxHourlyUsd: hourly },
    ...{ maxVms: vms, maxGpus: gpus, maxIdleVms: idleVms },
  }
  const given = Object.entries({ ...amounts, onExceeded, reserve }).filter(([, value]) => value !== undefined)
  if (given.length === 0) throw usageError("Give a cap to set, such as --monthly 90.")
  return Object.fromEntries(given.map(([name, text = ""]) => [name, name in amounts ? amountOf(text) : text]))
}

function amountOf(text: string): number | undefined {
  if (text === NONE) return undefined
  const amount = Number(text)
  if (text.trim() === "" || Number.isNaN(amount)) throw usageError(`"${text}" is not a number; ${NONE} removes a cap.`)
  return amount
}

const COLUMNS = [
  { title: "LEVEL", cell: ({ level }: Budget) => level },
  { title: "MONTH", cell: ({ max_monthly_usd: usd }: Budget) => amountText(usd), alignsRight: true },
  { title: "SPENT", cell: ({ spent_usd }: Budget) => usdText(spent_usd), alignsRight: true },
  { title: "RESERVED", cell: ({ reserved_usd }: Budget) => usdText(reserved_usd), alignsRight: true },
  { title: "LEFT", cell: ({ left_usd }: Budget) => amountText(left_usd), alignsRight: true },
  { title: "THEN", cell: ({ on_exceeded }: Budget) => on_exceeded },
  { title: "RESERVES", cell: ({ reserve }: Budget) => reserve },
  {
    title: "USD/H",
    cell: ({ hourly_usd, max_hourly_usd: most }: Budget) =>
      `${usdText(hourly_usd)}${most === null ? "" : ` of ${usdText(most)}`}`,
    alignsRight: true,
  },
  {
    title: "VMS",
    cell: ({ vms, max_vms: most }: Budget) => `${vms}${most === null ? "" : ` of ${most}`}`,
    alignsRight: true,
  },
  {
    title: "GPUS",
    cell: ({ gpus, max_gpus: most }: Budget) => `${gpus}${most === null ? "" : ` of ${most}`}`,
    alignsRight: true,
  },
  {
    title: "IDLE",
    // A server of 0.1.0 sends neither.
    cell: ({ idle_vms = 0, max_idle_vms: most = null }: Budget) => `${idle_vms}${most === null ? "" : ` of ${most}`}`,
    alignsRight: true,
  },
]

function amountText(usd: number | null): string {
  return usd === null ? "" : usdText(usd)
}
