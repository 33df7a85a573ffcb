import type { Command } from "commander"
import { type Advice, CHANGED, resourceFlags, resourcesText } from "../../client/advice.ts"
import { allItems, readBody } from "../../client/client.ts"
import type { Commands } from "../command.ts"
import { usdText, wrapText } from "../table.ts"
import { shown } from "../terminal.ts"

/** `advice`: smaller resources with which measured jobs would cost less. */
export function addAdviceCommand(commands: Commands, program: Command): void {
  commands.add(program, {
    usage: "advice",
    summary: "Show where smaller resources would save money.",
    more: "From three measured runs on, and from a saving of 10 %. Berth changes nothing by itself.",
    examples: [
      ["berth advice", "the largest saving first, each with the change to make"],
      ["berth advice --json", "for programs"],
    ],
    run: async (call) => {
      const client = call.client()
      const read = (query: { offset: number; limit: number }) =>
        readBody(client.api.GET("/advice", { params: { query } }))
      const rows = await allItems(read, (page) => page.advice)
      await call.print(rows, COLUMNS, ({ name }) => name)
      if (call.isForProgram || call.format === "name") return 0
      for (const advice of rows) await call.terminal.line(`\n${changeText(advice)}`)
      if (rows.length === 0) call.terminal.progress("No advice: it needs three measured runs that succeeded.")
      return 0
    },
  })
}

const COLUMNS = [
  { title: "KIND", cell: ({ kind }: Advice) => kind },
  { title: "NAME", cell: ({ name }: Advice) => name },
  { title: "RUNS", cell: ({ runs }: Advice) => String(runs), alignsRight: true },
  { title: "NOW", cell: ({ current }: Advice) => current.instance_type },
  { title: "BETTER", cell: ({ advised }: Advice) => advised.instance_type },
  { title: "REGION", cell: ({ advised }: Advice) => advised.region, isWide: true },
  {
    title: "SAVES/MONTH",
    cell: ({ saving_usd_per_month }: Advice) => usdText(saving_usd_per_month),
    alignsRight: true,
  },
  { title: "%", cell: ({ saving_percent }: Advice) => String(Math.round(saving_percent)), alignsRight: true },
]

/** Returns the reason, and the change to make. */
function changeText({ kind, name, reason, latest_job, advised }: Advice): string {
  const { resources } = advised
  const change =
    kind === "image"
      ? `berth rerun ${shown(latest_job)} ${resourceFlags(resources)}`
      : `${CHANGED[kind]}: ${resourcesText(resources)}`
  return `${wrapText(`${shown(name)}: ${shown(reason)}`, "  ")}\n  ${shown(change)}`
}
