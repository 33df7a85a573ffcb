import { mkdtemp, readdir, rm, utimes, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { describe, expect, it } from "vitest"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import { FileUploadStore } from "../../src/api/uploads/file-store.ts"
import { UPLOADS_FOLDER } from "../../src/api/uploads/store.ts"
import { sha256Of, uploadStoreSuite } from "./conformance.ts"

const emptyFolder = (): Promise<string> => mkdtemp(join(tmpdir(), "berth-uploads-"))

describe("uploads in files", () => {
  uploadStoreSuite(async () => {
    const folder = await emptyFolder()
    return {
      store: new FileUploadStore(join(folder, UPLOADS_FOLDER)),
      entries: async () => (await readdir(folder, { recursive: true })).filter((name) => name !== UPLOADS_FOLDER),
      close: () => rm(folder, { recursive: true, force: true }),
    }
  })

  it("removes old files of uploads whose process has ended, and no other", async () => {
    const folder = await emptyFolder()
    const sha256 = sha256Of(Buffer.from("x"))
    for (const name of [`a.${sha256}.tar.gz.1.part`, `a.${sha256}.tar.gz.2.part`, `a.${sha256}.tar.gz`])
      await writeFile(join(folder, name), "x")
    for (const name of [`a.${sha256}.tar.gz.1.part`, `a.${sha256}.tar.gz`]) await utimes(join(folder, name), 1, 1)
    await new FileUploadStore(folder).removeUnfinished(new Date(2000))
    expect((await readdir(folder)).toSorted()).toEqual([`a.${sha256}.tar.gz`, `a.${sha256}.tar.gz.2.part`])
    await rm(folder, { recursive: true })
  })

  it("are no logs for the store of logs, whose orphans are removed", async () => {
    const folder = await emptyFolder()
    const data = Buffer.from("x")
    async function* pieces() {
      yield data
    }
    const store = new FileUploadStore(join(folder, UPLOADS_FOLDER))
    await store.write({ namespace: "a", sha256: sha256Of(data) }, { bytes: 1, pieces: pieces() })
    const logs: unknown[] = []
    for await (const log of new FileLogStore(folder).list()) logs.push(log)
    expect(logs).toEqual([])
    await rm(folder, { recursive: true })
  })
})
