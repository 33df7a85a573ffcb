import { mkdir, mkdtemp, rm } from "node:fs/promises"
import { join } from "node:path"
import type { TestProject } from "vitest/node"
import { bundleAgent } from "../scripts/bundle.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** Path of the bundled agent, in tiers that start many. */
    readonly agentProgram: string | undefined
  }
}

/** Ignored folder inside of the repository: a program reads its version from the package.json above it. */
const PARENT = join(import.meta.dirname, "..", ".berth")

/** Bundles the agent once for a tier: a VM's agent then starts with half of the CPU time that its sources take. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  await mkdir(PARENT, { recursive: true })
  const folder = await mkdtemp(join(PARENT, "agent-"))
  const file = join(folder, "agent.mjs")
  await bundleAgent(file)
  project.provide("agentProgram", file)
  return () => rm(folder, { recursive: true, force: true })
}
