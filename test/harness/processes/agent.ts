import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { runAgent } from "../../../src/agent/main.ts"
import { createLogger } from "../../../src/core/telemetry/logger.ts"
import { configuration } from "./entry.ts"

/** Configuration of an agent of these tests. */
export interface AgentConfig {
  dataDir: string
  /** URL of the VM's metadata service. */
  metadataUrl: string
}

const { dataDir, metadataUrl } = configuration<AgentConfig>()
await runAgent({
  dataDir,
  metadataUrl,
  userData: await readFile(join(dataDir, "user-data.json"), "utf8"),
  runtime: "docker",
  logger: createLogger({ level: "debug", name: "agent" }),
})
process.exit(0)
