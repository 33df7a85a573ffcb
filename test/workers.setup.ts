import { rmSync, writeFileSync } from "node:fs"
import { join, relative } from "node:path"
import { afterAll, beforeAll, expect } from "vitest"

/** Says to continuous integration which test file this process runs now: what it uses is counted by file. */
const folder = process.env["BERTH_WORKERS"]

if (folder !== undefined) {
  const path = join(folder, String(process.pid))
  beforeAll(() => {
    writeFileSync(path, relative(process.cwd(), expect.getState().testPath ?? "unknown"))
  })
  afterAll(() => rmSync(path, { force: true }))
}
