// Runs benchmarks: `npm run bench` runs all, shortened, `npm run bench -- NAME` one, `npm run bench:long` all at their
// full size. With --json standard output is one object, `{name, rows: [{what, ours, peer, ratio, goal, reached}], spread, machine}`. `scripts/performance.ts` writes the
// tables of docs/performance/results.md from such objects. Exits with 1 if a goal is missed or a benchmark
// failed, with 2 on a wrong command line. --sizes and --seconds make a quick run, whose figures aren't results.
// --profile DIR makes operator and façade write CPU profiles there, if they are separate processes (throughput, scale,
// peer). --baseline DIR compares `start` with another checkout of Berth.
import { spawn } from "node:child_process"
import { Console } from "node:console"
import { once } from "node:events"
import { cpus, release, totalmem, type } from "node:os"
import { resolve } from "node:path"
import { text } from "node:stream/consumers"
import { parseArgs } from "node:util"
import CliTable3 from "cli-table3"
import type { BenchContext, BenchReport, BenchResult, BenchRow } from "../bench/result.ts"

const BENCHES: Record<string, () => Promise<{ run(context: BenchContext): Promise<BenchResult> }>> = {
  route: () => import("../bench/route.ts"),
  facade: () => import("../bench/facade.ts"),
  ended: () => import("../bench/ended-jobs.ts"),
  clients: () => import("../bench/event-clients.ts"),
  hostile: () => import("../bench/hostile.ts"),
  aws: () => import("../bench/aws.ts"),
  throughput: () => import("../bench/throughput.ts"),
  steady: () => import("../bench/steady.ts"),
  scale: () => import("../bench/scale.ts"),
  peer: () => import("../bench/peer-jobs.ts"),
  start: () => import("../bench/start.ts"),
  volumes: () => import("../bench/volumes.ts"),
  line: () => import("../bench/line.ts"),
}

/**
 * Options that shorten benchmarks in a run of all, so that it ends within half an hour. A benchmark run by its name
 * takes its full time.
 */
const SHORTENED: Record<string, string[]> = {
  facade: ["--sizes", "1000,16000"],
  ended: ["--sizes", "10000"],
  aws: ["--sizes", "150"],
  throughput: ["--sizes", "1000"],
  scale: ["--sizes", "3000,10000", "--seconds", "90"],
  peer: ["--sizes", "500"],
  volumes: ["--sizes", "256"],
}

/** Benchmarks that `npm run bench` leaves to `npm run bench:long`: they take minutes at any size. */
const LONG: readonly string[] = ["steady", "start"]

/** Row of a benchmark that failed. */
const FAILED: BenchRow = { what: "runs to its end", ours: 0, peer: 1, ratio: 0, goal: 1, reached: false }

const options = {
  json: { type: "boolean" },
  long: { type: "boolean" },
  sizes: { type: "string" },
  seconds: { type: "string" },
  profile: { type: "string" },
  baseline: { type: "string" },
} as const

// Standard output is the report's alone. Parts that the tests share with benchmarks say on the console what they build.
globalThis.console = new Console(process.stderr)

// Exits normally at a signal, so that the started programs are ended.
for (const [signal, number] of [
  ["SIGINT", 2],
  ["SIGTERM", 15],
] as const)
  process.on(signal, () => process.exit(128 + number))

const { name, json = false, long = false, ...settings } = commandLine()
const report = name === "all" ? await runAll() : await runOne(name)
process.stdout.write(`${json ? JSON.stringify(report) : printed(report)}\n`)
process.exitCode = report.rows.every(({ reached }) => reached) ? 0 : 1

async function runOne(bench: string): Promise<BenchReport> {
  const { sizes, seconds, profile, baseline } = settings
  const load = BENCHES[bench] as (typeof BENCHES)[string]
  const result = await (await load()).run({
    report: (line) => console.error(line),
    assetsDir: process.env["KUBEBUILDER_ASSETS"],
    cacheHome: process.env["XDG_CACHE_HOME"],
    ...(sizes !== undefined && { sizes: sizes.split(",").map(Number) }),
    ...(seconds !== undefined && { seconds: Number(seconds) }),
    ...(profile !== undefined && { profileDir: profile }),
    ...(baseline !== undefined && { baseline: resolve(baseline) }),
  })
  return { ...result, machine: machine() }
}

/** Runs each benchmark in a process of its own, so that none inherits another's memory. A failed one becomes a row. */
async function runAll(): Promise<BenchReport> {
  const rows: BenchRow[] = []
  const spread: BenchResult["spread"] = {}
  for (const bench of Object.keys(BENCHES).filter((each) => long || !LONG.includes(each))) {
    const startedAt = performance.now()
    console.error(`\n${bench}:`)
    const result = await runApart(bench)
    rows.push(...(result?.rows ?? [FAILED]).map((row) => ({ ...row, what: `${bench}: ${row.what}` })))
    for (const [what, range] of Object.entries(result?.spread ?? {})) spread[`${bench}: ${what}`] = range
    console.error(`${bench} took ${((performance.now() - startedAt) / 1000).toFixed(0)} s`)
  }
  return { name: "all", rows, spread, machine: machine() }
}

/** Runs one benchmark; undefined if it failed. Its output explains why on standard error. */
async function runApart(bench: string): Promise<BenchReport | undefined> {
  const args = [import.meta.filename, bench, "--json", ...(long ? [] : (SHORTENED[bench] ?? []))]
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] })
  const end = (): void => void child.kill("SIGTERM")
  process.once("exit", end)
  const [output] = await Promise.all([text(child.stdout), once(child, "exit")])
  process.off("exit", end)
  return output === "" ? undefined : parsed(output)
}

/** Returns undefined for other output and prints it on standard error, so that the other benchmarks' figures stay. */
function parsed(output: string): BenchReport | undefined {
  try {
    return JSON.parse(output) as BenchReport
  } catch (error) {
    console.error(`${(error as Error).message}: ${output}`)
    return undefined
  }
}

/** Parses the command line. Prints the usage and ends the process if it is wrong. */
function commandLine() {
  try {
    const { values, positionals } = parseArgs({ options, allowPositionals: true })
    const [name = "all", ...more] = positionals
    if ((name === "all" || Object.hasOwn(BENCHES, name)) && more.length === 0) return { ...values, name }
  } catch (error) {
    console.error((error as Error).message)
  }
  const names = Object.keys(BENCHES).join(", ")
  console.error(
    "usage: npm run bench -- [NAME] [--json] [--long] [--sizes N,N] [--seconds N] [--profile DIR] [--baseline DIR], " +
      `where NAME is one of: ${names}; without NAME all are run, shortened without --long`,
  )
  return process.exit(2)
}

function machine(): BenchReport["machine"] {
  return {
    cpus: cpus().length,
    model: cpus()[0]?.model ?? "unknown",
    memoryGib: Math.round(totalmem() / 2 ** 30),
    system: `${type()} ${release()}`,
    node: process.version,
    date: new Date().toISOString().slice(0, 10),
  }
}

function printed({ rows, spread }: BenchReport): string {
  const table = new CliTable3({ head: ["what", "ours", "peer", "ratio", "goal", "reached"], style: { head: [] } })
  for (const { what, ours, peer, ratio, goal, reached } of rows) {
    table.push([what, ours, peer, ratio, `>= ${goal}`, reached ? "yes" : "NO"])
  }
  const ranges = Object.entries(spread).map(([what, [low, high]]) => `${what}: ${low} to ${high} in single rounds`)
  return [table.toString(), ...ranges].join("\n")
}
