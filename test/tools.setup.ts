import type { TestProject } from "vitest/node"
import { inParallel } from "../src/core/apis/in-parallel.ts"
import { TIERS, TOOLS, type ToolName } from "./tools.ts"

const preparations = new Map<ToolName, Promise<string | undefined>>()

/**
 * Prepares the tools of a tier before its first test, so that no test's timeout covers an installation. A missing tool
 * isn't an error here: the tests that need it are skipped with its reason.
 */
export default async function setup(project: TestProject): Promise<void> {
  const names = namesFor(project.name)
  const missing: Partial<Record<ToolName, string>> = {}
  const tasks = names.map((name) => async () => {
    const prepared = preparations.get(name) ?? prepare(name)
    preparations.set(name, prepared)
    const reason = await prepared
    if (reason !== undefined) missing[name] = reason
  })
  // Two at a time: one downloads while another compiles.
  await inParallel(tasks, 2, (task) => task())
  project.provide("missingTools", missing)
}

/** Returns the tools of a tier and of those before it; all for the faults, which have suites of every tier. */
function namesFor(project: string): readonly ToolName[] {
  const tiers: readonly string[] = TIERS
  const wanted = tiers.slice(0, tiers.includes(project) ? tiers.indexOf(project) + 1 : undefined)
  return (Object.keys(TOOLS) as ToolName[]).filter((name) => wanted.includes(TOOLS[name].tier))
}

/** Returns the reason why the tool is missing, or undefined. */
async function prepare(name: ToolName): Promise<string | undefined> {
  try {
    await TOOLS[name].prepare()
    return undefined
  } catch (error) {
    const [reason = ""] = (error instanceof Error ? error.message : String(error)).split("\n", 1)
    console.warn(`prepare: ${name} is missing: ${error instanceof Error ? error.message : String(error)}`)
    return reason
  }
}
