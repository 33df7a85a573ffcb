// Writes results of `npm run bench -- [NAME] --json` into docs/performance/results.md: `scripts/performance.ts FILE.json…`.
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { BenchReport } from "../bench/result.ts"

const PAGE = join(import.meta.dirname, "..", "docs", "performance", "results.md")

/** Rows of a run of all benchmarks begin with the benchmark's name. Those of a single one have none. */
function resultsOf({ name, rows, spread, machine }: BenchReport): string {
  const { cpus, model, memoryGib, system, node, date } = machine
  const cells = rows.map(({ what, ours, peer, ratio, goal, reached }) => {
    const [bench, ...text] = name === "all" ? what.split(": ") : [name, what]
    return `| ${[bench, text.join(": "), ours, peer, ratio, goal, reached ? "yes" : "**no**"].join(" | ")} |`
  })
  const ranges = Object.entries(spread).map(([what, [low, high]]) => `| ${what} | ${low} | ${high} |`)
  return [
    `Of ${date}, on ${cpus} × ${model}, ${memoryGib} GiB, ${system}, Node.js ${node}.`,
    "",
    "| benchmark | what | ours | peer | ratio | goal | reached |",
    "|---|---|---:|---:|---:|---:|---|",
    ...cells,
    "",
    "The lowest and the highest single round of what was measured in rounds:",
    "",
    "| what | lowest | highest |",
    "|---|---:|---:|",
    ...ranges,
  ].join("\n")
}

/** Returns the page with these results in it. @throws Error if the page has no place for them */
export function pageWith(page: string, results: BenchReport): string {
  const [begin, end] = [`<!-- ${results.name}: generated -->`, `<!-- /${results.name} -->`]
  const [from, to] = [page.indexOf(begin), page.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`docs/performance/results.md has no part between ${begin} and ${end}`)
  return `${page.slice(0, from + begin.length)}\n${resultsOf(results)}\n${page.slice(to)}`
}

if (import.meta.main) {
  const files = process.argv.slice(2)
  if (files.length === 0) throw new Error("usage: scripts/performance.ts RESULTS.json…")
  const results = files.map((file) => JSON.parse(readFileSync(file, "utf8")) as BenchReport)
  writeFileSync(PAGE, results.reduce(pageWith, readFileSync(PAGE, "utf8")))
}
