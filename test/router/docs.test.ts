import { readFileSync } from "node:fs"
import { join } from "node:path"
import { expect, test } from "vitest"
import { currentPage } from "../../scripts/routing-table.ts"

test("docs/routing.md has the numbers of the shipped price list; to update, run scripts/routing-table.ts", () => {
  const page = readFileSync(join(import.meta.dirname, "..", "..", "docs", "routing.md"), "utf8")
  expect(currentPage(page)).toBe(page)
})
