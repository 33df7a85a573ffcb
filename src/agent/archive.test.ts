import { once } from "node:events"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Readable } from "node:stream"
import { buffer } from "node:stream/consumers"
import { createGzip, gzipSync } from "node:zlib"
import { pack } from "tar-stream"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type ArchiveEntry, EntryCheck, type EntryHeader, readEntries, WORKDIR_LIMITS } from "./archive.ts"

const file = (name: string, more: Partial<EntryHeader> = {}): EntryHeader => ({ name, type: "file", ...more })
const folder = (name: string): EntryHeader => ({ name, type: "directory" })
const symlink = (name: string, linkname: string): EntryHeader => ({ name, type: "symlink", linkname })
const hardLink = (name: string, linkname: string): EntryHeader => ({ name, type: "link", linkname })

function checked(headers: readonly EntryHeader[], limits = WORKDIR_LIMITS): ArchiveEntry[] {
  const check = new EntryCheck(limits)
  return headers.flatMap((header) => check.next(header))
}

describe("an entry of an archive", () => {
  it("has a path without dots, and permissions without setuid that let its owner write", () => {
    const entries = checked([
      folder(".//"),
      file("./a//b/./c.sh", { mode: 0o6755, size: 3 }),
      file("secret", { mode: 0 }),
      { ...folder("a/d/"), mode: 0o500 },
    ])
    expect(entries.map(({ path, mode, size }) => [path, mode.toString(8), size])).toEqual([
      ["a", "755", 0],
      ["a/b", "755", 0],
      ["a/b/c.sh", "755", 3],
      ["secret", "600", 0],
      ["a/d", "700", 0],
    ])
    const [, link] = checked([file("a", { mode: 0o755 }), hardLink("b", "a")])
    expect(link).toMatchObject({ type: "link", path: "b", target: "a", mode: 0o755 })
  })

  it.each<[string, EntryHeader[]]>([
    ["links within the folder", [symlink("a/b/l", "../../c"), symlink("m", "a/b/l"), symlink("self", ".")]],
    ["a hard link to a file before it", [file("a/f"), hardLink("b/g", "./a/f")]],
    ["a folder twice, also after a file in it", [file("a/f"), folder("a"), folder("a")]],
    ["names that begin with dots", [file("..a"), file("...")]],
    ["a contiguous file", [{ name: "c", type: "contiguous-file" }]],
  ])("may be: %s", (_what, headers) => {
    expect(() => checked(headers)).not.toThrow()
  })

  it.each<[string, EntryHeader[], string]>([
    ["a name that leads out", [file("../x")], "leads out of the working directory"],
    ["a name that leads out after a folder", [file("a/../../x")], "leads out of the working directory"],
    ["a name with .. that stays inside", [file("a/../x")], "leads out of the working directory"],
    ["a name of very many folders", [file("a/".repeat(2049))], "more than 4096 characters"],
    ["an absolute name", [file("/etc/passwd")], "is an absolute path"],
    ["a name with NUL", [file("a\0b")], "NUL"],
    ["a file with the name of the folder", [file(".")], "twice"],
    ["a link to an absolute path", [symlink("l", "/etc")], "leads out"],
    ["a link to the folder above", [symlink("l", "..")], "leads out"],
    ["a link to a path outside", [symlink("a/l", "../../x")], "leads out"],
    ["a link with .. after a name, which may be a link", [symlink("a/l", "b/../../x")], "leads out"],
    ["a link to nothing", [symlink("l", "")], "leads out"],
    ["a file below a link", [symlink("l", "a"), file("l/x")], "and a file or link too"],
    ["a file below a file", [file("f"), file("f/x")], "and a file or link too"],
    ["a folder in place of a link", [symlink("l", "a"), folder("l")], "and a file or link too"],
    ["a file in place of a link", [symlink("l", "a"), file("l")], "twice"],
    ["a file twice", [file("a/f"), file("./a/f")], "twice"],
    ["a link in place of a folder", [file("a/f"), symlink("a", "b")], "twice"],
    ["a hard link to a path outside", [hardLink("l", "../x")], "leads out"],
    ["a hard link to an absolute path", [hardLink("l", "/etc/shadow")], "absolute"],
    ["a hard link to a file that is not in the archive", [hardLink("l", "x")], "not a file before it"],
    ["a hard link to a link", [symlink("s", "x"), hardLink("l", "s")], "not a file before it"],
    ["a character device", [{ name: "d", type: "character-device" }], "is a character-device"],
    ["a block device", [{ name: "d", type: "block-device" }], "is a block-device"],
    ["a pipe", [{ name: "d", type: "fifo" }], "is a fifo"],
    ["a thing of another type", [{ name: "d", type: null }], "unknown type"],
  ])("may not be: %s", (_what, headers, why) => {
    expect(() => checked(headers)).toThrow(why)
  })

  it("counts against the limits, before its content is read", () => {
    const limits = { bytes: 10, entries: 3, nameBytes: 8 }
    expect(checked([file("a", { size: 5 }), file("b", { size: 5 })], limits)).toHaveLength(2)
    expect(() => checked([file("a", { size: 5 }), file("b", { size: 6 })], limits)).toThrow("files have more than")
    expect(() =>
      checked(
        ["a", "b", "c", "d"].map((name) => file(name)),
        limits,
      ),
    ).toThrow("more than 3 files")
    expect(() => checked([symlink("aaaaa", "bbbb")], limits)).toThrow("its names have more than")
  })
})

describe("an archive of many files", () => {
  const names = Array.from({ length: 60_000 }, (_, number) => `${number}`)

  it("may have 60,000 files", () => {
    expect(checked(names.map((name) => file(name)))).toHaveLength(60_000)
  })

  it("is rejected when files and their folders together are too many", () => {
    expect(() => checked(names.map((name) => file(`${name}/file`)))).toThrow("it has more than 100000 files")
  })
})

describe("an archive", () => {
  let disk = ""
  beforeAll(async () => {
    disk = await mkdtemp(join(tmpdir(), "berth-archive-"))
  })
  afterAll(() => rm(disk, { recursive: true }))

  async function read(archive: Buffer | Readable): Promise<string[]> {
    const path = join(disk, "archive")
    await writeFile(path, archive)
    const found: string[] = []
    for await (const { entry, content } of readEntries(path)) {
      const bytes = entry.type === "file" ? await buffer(content) : Buffer.alloc(0)
      found.push(`${entry.type} ${entry.path} ${bytes.toString()}`)
    }
    return found
  }

  async function* zeros(mib: number): AsyncGenerator<Buffer> {
    const block = Buffer.alloc(1024 * 1024)
    for (let count = 0; count < mib; count++) yield block
  }

  it("yields each file with its content, also with long names and of no size", async () => {
    const archive = pack()
    const long = `${"folder/".repeat(60)}file`
    archive.entry({ name: "a.txt" }, "hello")
    archive.entry({ name: "empty" }, "")
    archive.entry({ name: long }, "deep")
    archive.entry({ name: "link", type: "symlink", linkname: "a.txt" })
    archive.finalize()
    const entries = await read(gzipSync(await buffer(archive)))
    expect(entries.filter((entry) => !entry.startsWith("directory"))).toEqual([
      "file a.txt hello",
      "file empty ",
      `file ${long} deep`,
      "symlink link ",
    ])
  })

  it("may be left unread", async () => {
    const archive = pack()
    archive.entry({ name: "a" }, "x".repeat(300_000))
    archive.entry({ name: "b" }, "x".repeat(300_000))
    archive.finalize()
    await writeFile(join(disk, "archive"), gzipSync(await buffer(archive)))
    for await (const { entry } of readEntries(join(disk, "archive"))) {
      expect(entry.path).toBe("a")
      break
    }
  })

  it("is rejected when it is no gzip, no tar, or ends early", async () => {
    await expect(read(Buffer.from("hello"))).rejects.toThrow("it is not a tar.gz")
    await expect(read(gzipSync("x".repeat(2000)))).rejects.toThrow("it is not a tar.gz")
    const archive = pack()
    archive.entry({ name: "a" }, "x".repeat(100_000))
    archive.finalize()
    const tar = await buffer(archive)
    await expect(read(gzipSync(tar.subarray(0, 50_000)))).rejects.toThrow("it is not a tar.gz")
    const whole = gzipSync(tar)
    await expect(read(whole.subarray(0, whole.byteLength - 20))).rejects.toThrow("it is not a tar.gz")
  })

  it("is rejected when it unpacks to 10 GB of zeros, after the first MiB of them", async () => {
    // A gzip may have many members: 640 times 16 MiB.
    const member = gzipSync(Buffer.alloc(16 * 1024 * 1024))
    await expect(read(Buffer.concat(Array(640).fill(member)))).rejects.toThrow("bytes outside of files")
  })

  it("is rejected when one file has 10 GB, before any of them", async () => {
    const archive = pack()
    const sink = archive.entry({ name: "zeros", size: 10 * 1024 ** 3 })
    sink.write(Buffer.alloc(1024))
    const [header] = (await once(archive, "data")) as [Buffer]
    await expect(read(gzipSync(header))).rejects.toThrow("its files have more than 2048 MiB")
    archive.destroy()
  })

  it("is rejected when a name needs more memory than a name can", async () => {
    const header = Buffer.alloc(512)
    header.write("name", 0)
    header.write("0000644\0", 100)
    header.write(`${(2 ** 30).toString(8).padStart(11, "0")}\0`, 124)
    header.write("ustar\0", 257)
    header.write("x", 156)
    header.write("        ", 148)
    const sum = header.reduce((total, byte) => total + byte, 0)
    header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148)
    const huge = Readable.from(
      (async function* () {
        yield header
        yield* zeros(200)
      })(),
    )
    await expect(read(huge.pipe(createGzip()))).rejects.toThrow(/bytes outside of files|exceeds max size/)
  })
})
