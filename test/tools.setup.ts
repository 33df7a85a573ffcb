import type { TestProject } from "vitest/node"
import { inParallel } from "../src/runtime/in-parallel.ts"
import { TOOLS, type ToolName } from "./tools.ts"

/** Tools that `npm test` uses; every other tier uses all of them. */
const OF_API_TIER: readonly ToolName[] = ["moto"]

const preparations = new Map<ToolName, Promise<string | undefined>>()

/**
 * Prepares the tools of a tier before its first test, so that no test's timeout covers an installation. A missing tool
 * is no error here: the tests that need it are skipped with its reason.
 */
export default async function setup(project: TestProject): Promise<void> {
  const names = project.name === "api" ? OF_API_TIER : (Object.keys(TOOLS) as ToolName[])
  const missing: Partial<Record<ToolName, string>> = {}
  const tasks = names.map((name) => async () => {
    const prepared = preparations.get(name) ?? prepare(name)
    preparations.set(name, prepared)
    const reason = await prepared
    if (reason !== undefined) missing[name] = reason
  })
  // Two at a time: one downloads while another compiles.
  await inParallel(tasks, 2)
  project.provide("missingTools", missing)
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
