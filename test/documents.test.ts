import { execFileSync } from "node:child_process"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { load } from "js-yaml"
import { describe, expect, it } from "vitest"

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

describe("the roles in docs/roles", () => {
  it.each([
    ["aws.json", "aws.md"],
    ["azure.json", "azure.md"],
    ["azure-vm.json", "azure.md"],
    ["gcp.yaml", "gcp.md"],
  ])("%s is the role of %s", (file, page) => {
    const role = load(readFileSync(join(ROOT, "docs/roles", file), "utf8"))
    const text = readFileSync(join(ROOT, "docs", page), "utf8")
    const blocks = [...text.matchAll(/```(?:json|yaml)\n([\s\S]*?)```/g)].map(([, block = ""]) => load(block))
    expect(blocks).toContainEqual(role)
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

  it.each(sections)("a test runs those of the section %s", (heading) => {
    expect(tests).toMatch(new RegExp(`(commandsOf|blocks)\\("${heading}"\\)`))
  })
})

describe("the documents' commands", () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as { scripts: object }

  it.each(documents)("commands of %s exist", (path) => {
    const named = [...readFileSync(join(ROOT, path), "utf8").matchAll(/npm run (?:--\S+ )?([a-z:]+)/g)]
    expect(named.map(([, name = ""]) => name).filter((name) => !Object.hasOwn(scripts, name))).toEqual([])
  })
})

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
