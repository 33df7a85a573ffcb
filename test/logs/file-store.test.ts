import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { FileLogStore } from "../../src/logs/file-store.ts"
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
  it("deletes the oldest logs of the project with the most bytes, and no log of another project", async () => {
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

describe("logs in files of former versions", () => {
  it("reads a log that was cut, and continues it", async () => {
    const folder = await mkdtemp(join(tmpdir(), "berth-logs-"))
    const job = { namespace: "project-a", uid: "a" }
    await mkdir(join(folder, "project-a", "a"), { recursive: true })
    await writeFile(join(folder, "project-a", "a", "1.log"), "0123456789")
    await writeFile(join(folder, "project-a", "a", "1.truncated"), "--- log truncated ---\n")
    const store = new FileLogStore(folder, { capBytes: 16 })
    const text = async (tail?: number): Promise<string> => {
      const pieces: Uint8Array[] = []
      for await (const piece of store.read(job, tail === undefined ? {} : { tail })) pieces.push(piece)
      return Buffer.concat(pieces).toString()
    }
    const line = "--- log truncated: a former version of Berth kept only the beginning of this log ---\n"
    expect(await text()).toBe(`0123456789\n${line}`)
    expect(await text(1)).toBe(line)
    expect(await store.append({ job, launch: 1 }, 0, Buffer.from("0123456789ab"))).toEqual({ length: 12 })
    expect(await text()).toBe("0123456789ab")
    await store.append({ job, launch: 2 }, 0, Buffer.from("again\n"))
    expect(await text(1)).toBe("again\n")
    await rm(folder, { recursive: true })
  })
})
