import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { expect, test } from "vitest"
import type { BenchReport } from "../bench/result.ts"
import { pageWith } from "../scripts/performance.ts"

const PAGE = join(import.meta.dirname, "..", "docs", "performance", "results.md")

const results: BenchReport = {
  name: "all",
  rows: [
    { what: "peer: jobs a second: side by side", ours: 10, peer: 20, ratio: 0.5, goal: 1, reached: false },
    { what: "scale: memory", ours: 256, peer: 512, ratio: 2, goal: 1, reached: true },
  ],
  spread: { "peer: jobs a second": [9, 11] },
  machine: { cpus: 2, model: "Some CPU", memoryGib: 8, system: "Linux 6", node: "v24.0.0", date: "2031-01-31" },
}

test("the results page gets new results in place of the former ones, with missed goals in bold", async () => {
  const page = await readFile(PAGE, "utf8")
  const written = pageWith(pageWith(page, { ...results, rows: [] }), results)
  expect(written).toContain("Of 2031-01-31, on 2 × Some CPU, 8 GiB, Linux 6, Node.js v24.0.0.")
  expect(written).toContain("| peer | jobs a second: side by side | 10 | 20 | 0.5 | 1 | **no** |")
  expect(written).toContain("| scale | memory | 256 | 512 | 2 | 1 | yes |")
  expect(written).toContain("| peer: jobs a second | 9 | 11 |")
  expect(written.slice(written.indexOf("<!-- /all -->"))).toBe(page.slice(page.indexOf("<!-- /all -->")))
})

test("the results page has a place for the full size of one benchmark, whose rows name it", async () => {
  const page = await readFile(PAGE, "utf8")
  const [row] = results.rows.map(({ what, ...rest }) => ({ ...rest, what: what.replace("peer: ", "") }))
  const written = pageWith(page, { ...results, name: "peer", rows: row === undefined ? [] : [row] })
  expect(written).toContain("| peer | jobs a second: side by side | 10 | 20 | 0.5 | 1 | **no** |")
  expect(written.slice(0, written.indexOf("<!-- peer:"))).toBe(page.slice(0, page.indexOf("<!-- peer:")))
})

test("the results page throws if it has no place for results", () => {
  expect(() => pageWith("# Nothing", results)).toThrow("has no part between")
})
