import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { expect, it } from "vitest"
import { TIERS, TOOLS } from "./tools.ts"

const SUITES = globSync("**/*.test.ts", { cwd: import.meta.dirname })

/** Tools that suites need by other functions than `missingTool`, so that no name stands in a suite. */
const UNNAMED = ["schemathesis", "rclone"]

const named = Object.entries(TOOLS).filter(([name]) => !UNNAMED.includes(name))

it.each(named)("prepares %s for the first tier that needs it, and for no earlier one", (name, { tier }) => {
  const need = new RegExp(`missingTool\\([^)]*"${name}"`)
  const users = SUITES.filter((suite) => need.test(readFileSync(join(import.meta.dirname, suite), "utf8")))
  const tiers = users.map((suite) => TIERS.find((each) => suite.endsWith(`.${each}.test.ts`)) ?? "api")
  expect(TIERS.find((each) => tiers.includes(each))).toBe(tier)
})
