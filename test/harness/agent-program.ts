import { join } from "node:path"
import { inject } from "vitest"

const SOURCES = join(import.meta.dirname, "..", "..", "src", "main.ts")

/** Returns Node.js's arguments that run an agent: of the bundle where a tier has one, else from the sources. */
export function agentProgram(): [file: string, command: "agent"] {
  return [inject("agentProgram") ?? SOURCES, "agent"]
}
