import { mkdtemp, readdir, rm, utimes } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import { noDisk, smallDisk } from "../small-disk.ts"
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

describe.skipIf(noDisk !== "")("logs on a full disk", () => {
  it("are deleted: the oldest of the project with the most bytes, and none of another project", async () => {
    const disk = await smallDisk(1)
    try {
      const removed: string[] = []
      const store = new FileLogStore(disk.path, { onRemovedForSpace: ({ uid }) => removed.push(uid) })
      const block = Buffer.alloc(64 * 1024, "x")
      const write = (namespace: string, uid: string) => store.append({ job: { namespace, uid }, launch: 1 }, 0, block)
      await write("small", "mine")
      for (let count = 1; count <= 30; count++) {
        await write("greedy", `log-${count}`)
        // The file system may give the same time to files that are written within milliseconds.
        await utimes(join(disk.path, "greedy", `log-${count}`, "1.log"), count, count)
      }
      await write("small", "second")
      expect(removed.slice(0, 2)).toEqual(["log-1", "log-2"])
      expect(removed).not.toContain("mine")
      const kept: string[] = []
      for await (const { uid } of store.list()) kept.push(uid)
      expect(kept).toEqual(expect.arrayContaining(["mine", "second", "log-30"]))
    } finally {
      await disk.remove()
    }
  })
})
