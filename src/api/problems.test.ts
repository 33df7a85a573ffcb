import { globSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { PROBLEM_STATUSES } from "./http/problem-types.ts"
import { accountRoutes } from "./resources/accounts/routes.ts"
import { arrayRoutes } from "./resources/arrays/routes.ts"
import { connectionRoutes } from "./resources/connections/routes.ts"
import { cronJobRoutes } from "./resources/cronjobs/routes.ts"
import { jobRoutes } from "./resources/jobs/routes.ts"
import { keyRoutes } from "./resources/keys/routes.ts"
import { uploadRoutes } from "./resources/uploads/routes.ts"
import { webhookRoutes, webhookTestRoutes } from "./resources/webhooks/routes.ts"

/** Returns the text of the modules of a folder. */
function sourceOf(folder: string): string {
  const files = globSync("*.ts", { cwd: join(import.meta.dirname, "resources", folder) }).filter(
    (name) => !name.endsWith(".test.ts"),
  )
  return files.map((name) => readFileSync(join(import.meta.dirname, "resources", folder, name), "utf8")).join("\n")
}

/** Functions that throw a type of problem. */
const THROWN_BY: Readonly<Record<string, string>> = {
  "being-deleted": "beingDeleted(",
  "project-limit": "projectLimit(",
}

const OPERATIONS = {
  accounts: accountRoutes,
  arrays: arrayRoutes([]),
  connections: connectionRoutes,
  cronjobs: cronJobRoutes([]),
  jobs: jobRoutes([]),
  keys: keyRoutes,
  uploads: uploadRoutes,
  webhooks: [...webhookRoutes, ...webhookTestRoutes],
}

describe("a problem that an operation declares", () => {
  it.each(Object.entries(OPERATIONS))("is thrown in the code of %s", (folder, routes) => {
    const source = sourceOf(folder)
    const unthrown = routes.flatMap(({ operation: { id, problems = [] } }) =>
      problems.filter((type) => !source.includes(THROWN_BY[type] ?? `type: "${type}"`)).map((type) => `${id}: ${type}`),
    )
    expect(unthrown).toEqual([])
  })

  it("has the status of its type", () => {
    const source = globSync("*/", { cwd: join(import.meta.dirname, "resources") })
      .map(sourceOf)
      .join("\n")
    const thrown = [...source.matchAll(/type: "([a-z-]+)", status: (\d+)/g)]
    expect(thrown.length).toBeGreaterThan(8)
    // The sign-in of the console isn't an operation of the document.
    const others = thrown.filter(([, type = ""]) => type !== "sign-in-rejected")
    for (const [, type = "", status] of others)
      expect(PROBLEM_STATUSES, type).toHaveProperty(type, expect.arrayContaining([Number(status)]))
  })
})
