import { join } from "node:path"
import { type JoinCommands, shellWord } from "../src/core/machines/commands.ts"
import { packageFile } from "../src/core/package.ts"
import { claimsIn } from "../src/core/protocol/machines.ts"
import type { ChosenRuntime } from "./runtime.ts"

/** Facts for the command with which this computer joins as a machine. */
export interface SourceJoin {
  /** Folder of the stack's data. */
  dataDir: string
  runtime: ChosenRuntime
  /** URL of the façade. */
  url: string
  /** Join token. */
  token: string
}

/** Returns the command that runs the agent of a machine from this repository: only this computer reaches the façade. Pure. */
export function joinFromSource({ dataDir, runtime: chosen, url, token }: SourceJoin): JoinCommands {
  const program = [process.execPath, packageFile("src", "main.ts"), "host"]
  const folder = join(dataDir, "machines", claimsIn(token).uid)
  const options = ["--gateway", url, "--data-dir", folder, "--runtime", chosen.runtime]
  const engine = chosen.runtime === "docker" ? ["--docker-socket", chosen.dockerSocket] : []
  const words = [...program, ...options, ...engine].map(shellWord)
  return {
    source: `BERTH_JOIN_TOKEN=${shellWord(token)} ${words.join(" ")}\n`,
    note: "npm start listens on this computer only, so only this computer can join.",
  }
}
