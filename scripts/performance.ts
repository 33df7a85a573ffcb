// Writes the results of `npm run bench -- --json` into docs/performance.md: `scripts/performance.ts RESULTS.json`.
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import type { BenchReport } from "../bench/result.ts"

const PAGE = join(import.meta.dirname, "..", "docs", "performance.md")
const [BEGIN, END] = ["<!-- results: generated -->", "<!-- /results -->"]

function resultsOf({ rows, spread, machine }: BenchReport): string {
  const { cpus, model, memoryGib, system, node, date } = machine
  const cells = rows.map(({ what, ours, peer, ratio, goal, reached }) => {
    const [bench, ...text] = what.split(": ")
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
  const [from, to] = [page.indexOf(BEGIN), page.indexOf(END)]
  if (from < 0 || to < from) throw new Error(`docs/performance.md has no part between ${BEGIN} and ${END}`)
  return `${page.slice(0, from + BEGIN.length)}\n${resultsOf(results)}\n${page.slice(to)}`
}

if (import.meta.main) {
  const [file] = process.argv.slice(2)
  if (file === undefined) throw new Error("usage: scripts/performance.ts RESULTS.json")
  const results = JSON.parse(readFileSync(file, "utf8")) as BenchReport
  writeFileSync(PAGE, pageWith(readFileSync(PAGE, "utf8"), results))
}
