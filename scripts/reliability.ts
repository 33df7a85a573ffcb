import { readdir, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { shareOf, type TallyFile, type TallyRow, VIOLATIONS } from "../test/faults/tally.ts"

/** Writes the tables of docs/reliability.md from the results of the fault suites' long runs. */

const DOCS = join(import.meta.dirname, "..", "docs")
const PAGE = join(DOCS, "reliability.md")
const FOLDER = join(DOCS, "reliability")
const BEGIN = "<!-- tables: written by scripts/reliability.ts -->"
const END = "<!-- end of tables -->"

const HEADINGS = ["faults", "on", "tried", "duplicates", "leaks", "lost", "stuck", "killed by mistake"]

const files = (await readdir(FOLDER)).filter((name) => name.endsWith(".json")).sort()
const tallies = await Promise.all(
  files.map(async (name) => JSON.parse(await readFile(join(FOLDER, name), "utf8")) as TallyFile),
)
const page = await readFile(PAGE, "utf8")
const [before, rest] = page.split(BEGIN)
const after = rest?.split(END)[1]
if (before === undefined || after === undefined) throw new Error(`${PAGE} needs the lines ${BEGIN} and ${END}`)
await writeFile(PAGE, `${before}${BEGIN}\n\n${tallies.map(section).join("\n")}\n${END}${after}`)

function section(file: TallyFile): string {
  const { title, seed, rows, points = 0 } = file
  const share =
    file.slices === undefined ? "" : ` Tried: ${shareOf(file).toFixed(1)} % of ${points.toLocaleString("en")} faults.`
  const lines = [HEADINGS, HEADINGS.map(() => "---"), ...rows.map(cells)]
  return `### ${title}\n\nSeed ${seed}.${share}\n\n${lines.map((line) => `| ${line.join(" | ")} |`).join("\n")}\n`
}

function cells(row: TallyRow): string[] {
  return [
    row.faults,
    row.on ?? "",
    row.tried.toLocaleString("en"),
    ...VIOLATIONS.map((violation) => String(row[violation])),
  ]
}
