import { execFileSync } from "node:child_process"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { describe, expect, it } from "vitest"
import { KINDS } from "../src/core/apis/kinds.ts"
import { GROUP } from "../src/core/apis/meta.ts"
import { PROJECT_LIMITS } from "../src/core/quota/project-limits.ts"
import { start } from "./cli/command.ts"

const ROOT = resolve(import.meta.dirname, "..")

const documents = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "*.md"], {
  cwd: ROOT,
  encoding: "utf8",
})
  .split("\n")
  .filter((path) => path !== "" && existsSync(join(ROOT, path)))

describe("the documents' links", () => {
  it.each(documents)("links of %s lead to files and headings that exist", (path) => {
    expect(linksOf(path).filter((link) => !leadsSomewhere(path, link))).toEqual([])
  })
})

describe("the commands of docs/operate.md", () => {
  const page = readFileSync(join(ROOT, "docs/operate.md"), "utf8")
  const folder = join(ROOT, "test/operate")
  const tests = readdirSync(folder)
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => readFileSync(join(folder, name), "utf8"))
    .join("\n")
  const sections = page
    .split(/^#+ /m)
    .filter((section) => section.includes("\n```sh\n"))
    .map((section) => section.split("\n", 1)[0] ?? "")

  it.each(sections)("are run by a test: the section %s", (heading) => {
    expect(tests).toMatch(new RegExp(`(commandsOf|blocks)\\("${heading}"\\)`))
  })

  it("export every kind but Launch, which is about VMs of one cluster", () => {
    const [, exported = ""] = /^kubectl get -A -o json (\S+) > berth-backup\/objects\.json$/m.exec(page) ?? []
    const kinds = KINDS.filter(({ kind }) => kind !== "Launch").map(({ plural }) => `${plural}.${GROUP}`)
    expect(exported.split(",").toSorted()).toEqual(kinds.toSorted())
  })
})

it("the commands that remove everything delete every kind but Statement, which its namespace takes along", () => {
  const kinds = KINDS.filter(({ kind }) => kind !== "Statement").map(({ plural }) => `${plural}.${GROUP}`)
  for (const path of ["docs/install.md", "charts/berth/templates/NOTES.txt"]) {
    const deletions = readFileSync(join(ROOT, path), "utf8").matchAll(/^ *kubectl delete (\S+) --all/gm)
    expect([...deletions].flatMap(([, names = ""]) => names.split(",")).toSorted()).toEqual(kinds.toSorted())
  }
})

it("docs/failures.md has the failures that test/agent/failures.nightly.test.ts runs", () => {
  const golden = readFileSync(join(ROOT, "test/agent/golden/failures.md"), "utf8")
  expect(readFileSync(join(ROOT, "docs/failures.md"), "utf8")).toContain(golden)
})

describe("the documents' commands", () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { scripts: object }

  it.each(documents)("commands of %s exist", (path) => {
    const named = [...readFileSync(join(ROOT, path), "utf8").matchAll(/npm run (?:--\S+ )?([a-z:]+)/g)]
    expect(named.map(([, name = ""]) => name).filter((name) => !Object.hasOwn(scripts, name))).toEqual([])
  })
})

describe("the commands of berth in the documents", () => {
  /** Commands of the program in the image. */
  const OF_THE_IMAGE = ["operator", "facade", "agent", "rotate-sealing-key"]

  it.each(documents.filter((path) => /^(?:README|docs\/[^/]+)\.md$/.test(path)))(
    "%s names commands and flags that exist",
    async (path) => {
      const wrong = await Promise.all(
        commandsOfBerth(readFileSync(join(ROOT, path), "utf8"))
          .filter((command) => !OF_THE_IMAGE.includes(command.split(" ")[1] ?? ""))
          .map(async (command) => ((await existsInFull(command)) ? [] : [command])),
      )
      expect(wrong.flat()).toEqual([])
    },
  )
})

describe("figures in the documents", () => {
  it("show the end of the demo in README.md as docs/demo.txt has it", () => {
    const [, shown = ""] = /^```text\n(JOB [\s\S]*?)^```$/m.exec(readFileSync(join(ROOT, "README.md"), "utf8")) ?? []
    const output = readFileSync(join(ROOT, "docs/demo.txt"), "utf8")
    for (const part of shown.trim().split("\n\n")) expect(output).toContain(part)
  })

  // The size changes with each refresh of the list. scripts/routing-table.ts writes it into its part of a page.
  it.each(documents.filter((path) => !/^(?:CHANGELOG\.md|docs\/decisions)/.test(path)))(
    "name no size of the catalogue in the prose of %s",
    (path) => {
      const text = readFileSync(join(ROOT, path), "utf8").replace(/<!-- (\w+): generated -->[\s\S]*?<!-- \/\1 -->/g, "")
      expect(text.match(/\b1\d\d,\d{3}(?= offers)|out of 1\d\d,\d{3}|excludes? 1\d\d,\d{3}/g) ?? []).toEqual([])
    },
  )
})

describe("the figures of a table in the documents", () => {
  it("are the defaults of a project's limits in docs/limits.md", () => {
    const rows = readFileSync(join(ROOT, "docs/limits.md"), "utf8").matchAll(/^\| `(\w+)`[^|]*\| ([\d,]+)/gm)
    const shown = Object.fromEntries([...rows].map(([, name, value = ""]) => [name, Number(value.replaceAll(",", ""))]))
    expect(shown).toEqual(PROJECT_LIMITS)
  })

  it("are goals of the benchmark's own results in docs/performance.md", () => {
    const results = rowsOf("docs/performance/results.md")
    const wrong = rowsOf("docs/performance.md").flatMap(([name = "", , goals = ""]) => {
      const [, bench] = /^`(\w+)`$/.exec(name) ?? []
      if (bench === undefined || bench === "start") return []
      const numbers = results.filter(([section]) => section === bench).flatMap((cells) => cells.flatMap(numbersIn))
      // The goal of a ratio is shown as its inverse where less is better.
      const known = new Set([...numbers, ...numbers.map((number) => Math.round(10 / number) / 10)])
      return numbersIn(goals).flatMap((number) => (known.has(number) ? [] : [`${bench}: ${number}`]))
    })
    expect(wrong).toEqual([])
  })
})

/** Returns the cells of each row of a page's tables. A table under the heading of a benchmark gets its name as a cell. */
function rowsOf(path: string): string[][] {
  let heading = ""
  return readFileSync(join(ROOT, path), "utf8")
    .split("\n")
    .flatMap((line) => {
      const [, title] = /^## (\w+)$/.exec(line) ?? []
      heading = title ?? (line.startsWith("## ") ? "" : heading)
      const cells = line.startsWith("| ")
        ? line
            .split("|")
            .slice(1, -1)
            .map((cell) => cell.trim())
        : undefined
      return cells === undefined ? [] : [heading === "" ? cells : [heading, ...cells]]
    })
}

function numbersIn(text: string): number[] {
  return [...text.matchAll(/(?<![\w.])\d[\d,]*(?:\.\d+)?/g)].map(([number]) => Number(number.replaceAll(",", "")))
}

/** Returns the command lines of `berth` in code, each without comments, pipes and the job's own command. */
function commandsOfBerth(text: string): string[] {
  const joined = text.replaceAll(/\\\n\s*/g, " ")
  const lines = [...joined.matchAll(/^(?: {4}|\$ )?(berth [a-z].*)$/gm), ...joined.matchAll(/`(berth [a-z][^`]*)`/g)]
  return lines.map(([, line = ""]) => (line.split(/ -- | --$| #| \| | > | < |;/)[0] ?? "").trim())
}

/** Returns true if the help of the command has each of its flags. */
async function existsInFull(command: string): Promise<boolean> {
  const [, ...words] = command.replaceAll(/'[^']*'/g, "VALUE").split(/ +/)
  const name = words.slice(0, words.findIndex((word) => !/^[a-z]+$/.test(word)) >>> 0)
  const help = await helpOf(name.slice(0, 1))
  // A group of commands lists them. Other commands have arguments behind their name.
  const isGroup = help.includes("Commands:\n")
  const text = isGroup && name.length > 1 ? await helpOf(name.slice(0, 2)) : help
  const path = name.slice(0, isGroup ? 2 : 1)
  const flags = words.filter((word) => /^--?[a-z]/.test(word)).map((word) => word.split("=")[0] ?? "")
  return (
    text.startsWith(`Usage: berth ${path.join(" ")}`) &&
    flags.every((flag) => new RegExp(`(^|[ ,])${flag}\\b`, "m").test(text))
  )
}

async function helpOf(words: string[]): Promise<string> {
  return (await start([...words, "--help"], {}).ended).out
}

/** Returns the relative links, without those in code. */
function linksOf(path: string): string[] {
  const text = readFileSync(join(ROOT, path), "utf8").replace(/^(```|~~~)[\s\S]*?^\1/gm, "")
  const targets = [...text.replace(/`[^`\n]*`/g, "").matchAll(/\]\(([^)\s]+)[^)]*\)/g)].map(
    ([, target]) => target ?? "",
  )
  return targets.filter((target) => !/^[a-z]+:/i.test(target))
}

function leadsSomewhere(from: string, link: string): boolean {
  const [target = "", anchor] = link.split("#")
  const path = target === "" ? join(ROOT, from) : join(ROOT, dirname(from), target)
  if (!existsSync(path)) return false
  return anchor === undefined || anchorsOf(path).includes(anchor)
}

/** Returns the headings' anchors in GitHub's form: lower case, without punctuation, hyphens for spaces. */
function anchorsOf(path: string): string[] {
  const headings = readFileSync(path, "utf8").matchAll(/^#+ +(.+)$/gm)
  return [...headings].map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .trim()
      .replaceAll(" ", "-"),
  )
}
