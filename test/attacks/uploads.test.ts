import { createHash, randomBytes } from "node:crypto"
import { mkdtemp, rm, utimes } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setImmediate as turn } from "node:timers/promises"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { Uploads } from "../../src/api/resources/uploads/uploads.ts"
import { FileUploadStore } from "../../src/api/uploads/file-store.ts"
import { nameOfUpload, type UploadRef } from "../../src/api/uploads/store.ts"
import { systemClock } from "../../src/core/apis/clock.ts"

const HOUR_MS = 3600_000

describe("an upload that a job begins to use while it is collected", () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-collected-"))
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))

  async function turns(count: number): Promise<void> {
    for (let passed = 0; passed < count; passed++) await turn()
  }

  it("either stays, or is not there for the job", async () => {
    const store = new FileUploadStore(folder)
    const uploads = new Uploads({ store, limits: { uploadMib: 1, uploadsMib: 100 }, clock: systemClock })
    const outcomes = new Set<string>()
    for (let round = 0; round < 100; round++) {
      const content = randomBytes(8)
      const ref: UploadRef = { namespace: "a", sha256: createHash("sha256").update(content).digest("hex") }
      const pieces = async function* () {
        yield content
      }
      await store.write(ref, { bytes: 8, pieces: pieces() })
      const old = new Date(Date.now() - 2 * HOUR_MS)
      await utimes(join(folder, nameOfUpload(ref)), old, old)
      const [isRemoved, found] = await Promise.all([
        turns(round % 10).then(() => store.removeUnused(ref, new Date(Date.now() - HOUR_MS))),
        turns(Math.floor(round / 10)).then(() => uploads.find(ref)),
      ])
      const isThere = (await store.find(ref)) !== undefined
      expect(isThere).toBe(!isRemoved)
      if (found !== undefined) expect(isThere, `round ${round}`).toBe(true)
      outcomes.add(`${isRemoved} ${found !== undefined}`)
    }
    expect(outcomes).toEqual(new Set(["true false", "false true"]))
  })
})
