// Writes results of `npm run bench -- [NAME] --json` into docs/performance/results.md: `scripts/performance.ts FILE.json…`.
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { BenchReport } from "../bench/result.ts"

const PAGE = join(import.meta.dirname, "..", "docs", "performance", "results.md")

function tableOf({ rows, spread, machine }: BenchReport): string {
  const { cpus, model, memoryGib, system, node, date } = machine
  const ranges = Object.entries(spread).map(([what, [low, high]]) => `| ${what} | ${low} | ${high} |`)
  const spreadTable = [
    "",
    "The lowest and the highest single round:",
    "",
    "| what | lowest | highest |",
    "|---|---:|---:|",
    ...ranges,
  ]
  return [
    `Of ${date}, on ${cpus} × ${model}, ${memoryGib} GiB, ${system}, Node.js ${node}.`,
    "",
    "| what | ours | peer | ratio | goal | reached |",
    "|---|---:|---:|---:|---:|---|",
    ...rows.map(({ what, reached, ...row }) => {
      const numbers = [row.ours, row.peer, row.ratio, row.goal]
      return `| ${[what, ...numbers, reached ? "yes" : "**no**"].join(" | ")} |`
    }),
    ...(ranges.length === 0 ? [] : spreadTable),
  ].join("\n")
}

/** Returns the reports of the single benchmarks in a run of all, whose rows begin with the benchmark's name. */
function parts({ rows, spread, machine }: BenchReport): BenchReport[] {
  const split = (text: string) => [text.slice(0, text.indexOf(": ")), text.slice(text.indexOf(": ") + 2)] as const
  const names = [...new Set(rows.map(({ what }) => split(what)[0]))]
  return names.map((name) => ({
    name,
    machine,
    rows: rows.flatMap((row) => (split(row.what)[0] === name ? [{ ...row, what: split(row.what)[1] }] : [])),
    spread: Object.fromEntries(
      Object.entries(spread).flatMap(([what, range]) => (split(what)[0] === name ? [[split(what)[1], range]] : [])),
    ),
  }))
}

/** Returns the page with these results in it. @throws Error if the page has no place for them */
export function pageWith(page: string, results: BenchReport): string {
  if (results.name === "all") return parts(results).reduce(pageWith, page)
  const [begin, end] = [`<!-- ${results.name}: generated -->`, `<!-- /${results.name} -->`]
  const [from, to] = [page.indexOf(begin), page.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`docs/performance/results.md has no part between ${begin} and ${end}`)
  return `${page.slice(0, from + begin.length)}\n${tableOf(results)}\n${page.slice(to)}`
}

if (import.meta.main) {
  const files = process.argv.slice(2)
  if (files.length === 0) throw new Error("usage: scripts/performance.ts RESULTS.json…")
  const results = files.map((file) => JSON.parse(readFileSync(file, "utf8")) as BenchReport)
  writeFileSync(PAGE, results.reduce(pageWith, readFileSync(PAGE, "utf8")))
}
