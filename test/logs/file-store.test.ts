import { mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe } from "vitest"
import { FileLogStore } from "../../src/logs/file-store.ts"
import { logStoreSuite } from "./conformance.ts"

describe("logs in files", () => {
  logStoreSuite(async () => {
    const folder = await mkdtemp(join(tmpdir(), "berth-logs-"))
    return {
      open: (options) => new FileLogStore(folder, options),
      entries: () => readdir(folder, { recursive: true }),
      close: () => rm(folder, { recursive: true, force: true }),
    }
  }, 50)
})
