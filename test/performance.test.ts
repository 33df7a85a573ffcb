import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import type { BenchReport } from "../bench/result.ts"
import { pageWith } from "../scripts/performance.ts"

const PAGE = join(import.meta.dirname, "..", "docs", "performance", "results.md")

const ALL: BenchReport = {
  name: "all",
  rows: [
    { what: "peer: jobs a second: side by side", ours: 10, peer: 20, ratio: 0.5, goal: 1, reached: false },
    { what: "scale: memory", ours: 256, peer: 512, ratio: 2, goal: 1, reached: true },
  ],
  spread: { "peer: jobs a second": [9, 11] },
  machine: { cpus: 2, model: "Some CPU", memoryGib: 8, system: "Linux 6", node: "v24.0.0", date: "2031-01-31" },
}

const PEER: BenchReport = {
  ...ALL,
  name: "peer",
  rows: [{ ...ALL.rows[0], what: "jobs a second" } as (typeof ALL.rows)[0]],
}

function section(page: string, name: string): string {
  return page.slice(page.indexOf(`<!-- ${name}: generated -->`), page.indexOf(`<!-- /${name} -->`))
}

describe("the page of results", () => {
  it("gets the rows of a run of all in the section of each benchmark", async () => {
    const page = await readFile(PAGE, "utf8")
    const written = pageWith(page, ALL)
    expect(section(written, "peer")).toContain("Of 2031-01-31, on 2 × Some CPU, 8 GiB, Linux 6, Node.js v24.0.0.")
    expect(section(written, "peer")).toContain("| jobs a second: side by side | 10 | 20 | 0.5 | 1 | **no** |")
    expect(section(written, "peer")).toContain("| jobs a second | 9 | 11 |")
    expect(section(written, "scale")).toContain("| memory | 256 | 512 | 2 | 1 | yes |")
    expect(section(written, "route")).toBe(section(page, "route"))
  })

  it("gets new results of one benchmark in place of its former ones, and keeps all else", async () => {
    const page = await readFile(PAGE, "utf8")
    const written = pageWith(pageWith(page, { ...PEER, rows: [] }), PEER)
    expect(section(written, "peer")).toContain("| jobs a second | 10 | 20 | 0.5 | 1 | **no** |")
    expect(written.slice(0, written.indexOf("<!-- peer:"))).toBe(page.slice(0, page.indexOf("<!-- peer:")))
  })

  it("throws if it has no section for the benchmark", () => {
    expect(() => pageWith("# Nothing", PEER)).toThrow("has no part between")
  })
})
