// Runs one benchmark by name: `npm run bench -- client [--json]`. With --json standard output holds one
// object `{name, rows: [{what, ours, peer, ratio, goal, reached}]}` and nothing else. Exits 1 when a
// goal is missed, 2 on a wrong command line. --sizes and --seconds make a quick run, whose figures are no results.
import { parseArgs } from "node:util"
import CliTable3 from "cli-table3"
import type { BenchContext, BenchResult } from "../bench/result.ts"

const BENCHES: Record<string, () => Promise<{ run(context: BenchContext): Promise<BenchResult> }>> = {
  client: () => import("../bench/client.ts"),
  route: () => import("../bench/route.ts"),
  facade: () => import("../bench/facade.ts"),
  cron: () => import("../bench/cron.ts"),
  aws: () => import("../bench/aws.ts"),
}

const { name, json = false, sizes, seconds } = commandLine()
const load = BENCHES[name ?? ""]
if (load === undefined) {
  console.error(
    "usage: npm run bench -- NAME [--json] [--sizes N,N] [--seconds N], " +
      `where NAME is one of: ${Object.keys(BENCHES).join(", ")}`,
  )
  process.exit(2)
}
const bench = await load()
const result = await bench.run({
  report: (line) => console.error(line),
  assetsDir: process.env["KUBEBUILDER_ASSETS"],
  cacheHome: process.env["XDG_CACHE_HOME"],
  ...(sizes !== undefined && { sizes: sizes.split(",").map(Number) }),
  ...(seconds !== undefined && { seconds: Number(seconds) }),
})
if (json) console.log(JSON.stringify({ name: result.name, rows: result.rows }))
else print(result)
process.exitCode = result.rows.every(({ reached }) => reached) ? 0 : 1

/** Without a name when it can't be understood. */
function commandLine(): { name?: string | undefined; json?: boolean; sizes?: string; seconds?: string } {
  const options = { json: { type: "boolean" }, sizes: { type: "string" }, seconds: { type: "string" } } as const
  try {
    const { values, positionals } = parseArgs({ options, allowPositionals: true })
    return { ...values, name: positionals.length === 1 ? positionals[0] : undefined }
  } catch (error) {
    console.error((error as Error).message)
    return {}
  }
}

function print({ rows, spread }: BenchResult): void {
  const table = new CliTable3({ head: ["what", "ours", "peer", "ratio", "goal", "reached"], style: { head: [] } })
  for (const { what, ours, peer, ratio, goal, reached } of rows) {
    table.push([what, ours, peer, ratio, `>= ${goal}`, reached ? "yes" : "NO"])
  }
  console.log(table.toString())
  for (const [name, [low, high]] of Object.entries(spread)) console.log(`${name}: ${low} to ${high} in single rounds`)
}
