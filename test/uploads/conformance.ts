import { createHash, randomBytes } from "node:crypto"
import { afterEach, beforeEach, expect, it } from "vitest"
import type { UploadStore } from "../../src/api/uploads/store.ts"

/** Store of one kind, as the suite needs it. */
export interface StoreUnderTest {
  store: UploadStore
  /** Returns the names of all stored entries, in any form. */
  entries: () => Promise<string[]>
  close: () => Promise<void>
}

export const sha256Of = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex")

async function* piecesOf(data: Buffer, size = 65_536): AsyncGenerator<Buffer> {
  for (let at = 0; at < data.byteLength; at += size) yield data.subarray(at, at + size)
}

/**
 * Tests that every UploadStore must pass. `make` returns a new, empty store. `atOnce` is the number of concurrent uploads
 * of one hash that the store's server can take.
 */
export function uploadStoreSuite(make: () => Promise<StoreUnderTest>, { atOnce = 3 } = {}): void {
  let under: StoreUnderTest
  const data = randomBytes(300_000)
  const ref = { namespace: "project-a", sha256: sha256Of(data) }

  beforeEach(async () => {
    under = await make()
  })
  afterEach(() => under.close())

  const write = (content = data, of = ref, bytes = content.byteLength) =>
    under.store.write(of, { bytes, pieces: piecesOf(content) })
  const read = async (from = 0, of = ref): Promise<Buffer> => {
    const pieces: Uint8Array[] = []
    for await (const piece of under.store.read(of, from)) pieces.push(piece)
    return Buffer.concat(pieces)
  }
  const listed = async (namespace?: string): Promise<string[]> => {
    const found: string[] = []
    for await (const upload of under.store.list(namespace)) found.push(`${upload.namespace} ${upload.bytes}`)
    return found.toSorted()
  }

  it("returns the bytes of an upload, from any byte on, and its size", async () => {
    await write()
    expect((await read()).equals(data)).toBe(true)
    expect((await read(299_999)).equals(data.subarray(299_999))).toBe(true)
    expect(await under.store.find(ref)).toMatchObject({ ...ref, bytes: 300_000 })
  })

  it("keeps the uploads of each namespace apart", async () => {
    await write()
    const other = { ...ref, namespace: "project-a-2" }
    expect(await under.store.find(other)).toBeUndefined()
    await expect(read(0, other)).rejects.toThrow()
    const small = Buffer.from("small")
    await write(small, { namespace: "project-a-2", sha256: sha256Of(small) })
    expect(await listed("project-a")).toEqual(["project-a 300000"])
    expect(await listed()).toEqual(["project-a 300000", "project-a-2 5"])
  })

  it.each([
    ["another content", randomBytes(300_000), 300_000],
    ["a content that ends early", data.subarray(0, 200_000), 300_000],
    ["a content that is longer than announced", Buffer.concat([data, data]), 300_000],
  ])("rejects %s, and stores nothing", async (_what, content, bytes) => {
    await expect(write(content, ref, bytes)).rejects.toThrow("the")
    expect(await under.entries()).toEqual([])
    expect(await under.store.find(ref)).toBeUndefined()
  })

  it("stores nothing of an upload whose connection breaks, and its repetition", async () => {
    async function* broken(): AsyncGenerator<Buffer> {
      yield data.subarray(0, 100_000)
      throw new Error("the connection broke")
    }
    await expect(under.store.write(ref, { bytes: 300_000, pieces: broken() })).rejects.toThrow("the connection broke")
    expect(await under.entries()).toEqual([])
    await write()
    expect((await read()).equals(data)).toBe(true)
  })

  it("takes several uploads of one hash at the same time", async () => {
    await Promise.all(Array.from({ length: atOnce }, () => write()))
    await write()
    expect((await read()).equals(data)).toBe(true)
    expect(await listed()).toEqual(["project-a 300000"])
    expect(await under.entries()).toHaveLength(1)
  })

  it("removes an upload that was not used since a time, and no other", async () => {
    const [before, after] = [new Date(Date.now() - 3600_000), new Date(Date.now() + 3600_000)]
    await write()
    expect(await under.store.removeUnused(ref, before)).toBe(false)
    expect((await read()).equals(data)).toBe(true)
    expect(await under.store.removeUnused(ref, after)).toBe(true)
    expect(await under.store.removeUnused(ref, after)).toBe(false)
    expect(await under.store.touch(ref)).toBe(false)
    expect(await under.entries()).toEqual([])
  })

  it("notes the use of an upload without a change of its bytes", async () => {
    await write()
    expect(await under.store.touch(ref)).toBe(true)
    expect((await read()).equals(data)).toBe(true)
    expect(Date.now() - ((await under.store.find(ref))?.usedAt.getTime() ?? 0)).toBeLessThan(3600_000)
  })

  it.each([
    { namespace: "../a", sha256: ref.sha256 },
    { namespace: "a.b", sha256: ref.sha256 },
    { namespace: "a", sha256: "../../etc/passwd" },
  ])("rejects the name $namespace $sha256", async (bad) => {
    await expect(write(data, bad)).rejects.toThrow("no upload can have")
  })
}
