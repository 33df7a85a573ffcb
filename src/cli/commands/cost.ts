import { type Command, Option } from "commander"
import { type CostReport, costReport, daysOfMonth, focusReport, toCsv } from "../../client/costs.ts"
import { defined } from "../../core/apis/defined.ts"
import type { Call, Commands } from "../command.ts"
import { usageError } from "../exit.ts"
import { usdText } from "../table.ts"

type CostRow = CostReport["rows"][number]

interface CostFlags {
  month?: string
  from?: string
  to?: string
  by: string
  csv?: boolean
  focus?: boolean
}

/** `cost`: what the project's VMs cost. */
export function addCostCommand(commands: Commands, program: Command): void {
  commands.add<CostFlags>(program, {
    usage: "cost",
    summary: "Show what the project's VMs cost.",
    more: "Amounts are calculated from list prices: machine, disk and public address. docs/costs.md says what they leave out.",
    examples: [
      ["berth cost", "this month by day"],
      ["berth cost --month 2026-10 --by label:team", "a month by the values of a label"],
      ["berth cost --by cloud --csv", "for a spreadsheet"],
      ["berth cost --focus > costs.csv", "in the columns of FOCUS 1.2, for tools"],
    ],
    options: [
      new Option("--month <month>", "calendar month (UTC), such as 2026-10; default: this month").conflicts([
        "from",
        "to",
      ]),
      new Option("--from <day>", "first day (UTC), such as 2026-10-15"),
      new Option("--to <day>", "day after the last one (UTC)"),
      new Option("--by <property>", "day, cloud, provisioning, job, cronjob or label:KEY").default("day"),
      new Option("--csv", "print the rows as CSV"),
      new Option("--focus", "print CSV in the columns of FOCUS 1.2").conflicts("csv"),
    ],
    run: async (call) => {
      const { by, csv, focus } = call.options
      const query = { ...periodOf(call.options), by }
      const report = focus === true ? undefined : await costReport(call.client(), query)
      if (report === undefined) await call.terminal.write(await focusReport(call.client(), query))
      else if (call.isForProgram) await call.printValue(report)
      else if (csv === true) await call.terminal.write(toCsv(report))
      else await printReport(call, report)
      return 0
    },
  })
}

async function printReport(call: Call<CostFlags>, report: CostReport): Promise<void> {
  const columns = [
    { title: report.by.toUpperCase(), cell: ({ key }: CostRow) => key ?? REST },
    { title: "COST", cell: ({ cost_usd }: CostRow) => usdText(cost_usd), alignsRight: true },
  ]
  await call.print(report.rows, columns, ({ key }) => key ?? REST)
  if (call.format === "name") return
  call.terminal.progress(`${usdText(report.total_usd)} from ${report.from} until before ${report.to} (UTC).`)
}

/** Key of a row for costs that have none. */
const REST = "(other)"

/** Returns the days of a month, or those that were given. @throws Failure for no month */
function periodOf({ month, from, to }: CostFlags): { from?: string; to?: string } {
  if (month === undefined) return { ...defined({ from, to }) }
  const days = daysOfMonth(month)
  if (days === undefined) throw usageError(`--month must be YYYY-MM, such as 2026-10; got ${month}.`)
  return days
}
