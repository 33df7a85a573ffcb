import { mkdtemp, readdir, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import fc from "fast-check"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { noDisk, smallDisk } from "../../test/small-disk.ts"
import { gapLine, Spool } from "./spool.ts"

let folder: string
let appends = 0

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-spool-"))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

function open(limit: number, name = "output"): Promise<Spool> {
  return Spool.open(join(folder, name), { limit, onAppend: () => appends++ })
}

/** Lines with the numbers from 0 on. */
function numbers(count: number): string {
  return Array.from({ length: count }, (_, index) => `${index}\n`).join("")
}

async function contents(spool: Spool): Promise<string> {
  return (await spool.read(0, spool.length)).toString("latin1")
}

describe("Spool", () => {
  it("keeps all output below the limit after each opening", async () => {
    let run = 0
    await fc.assert(
      fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 12 }), async (pieces) => {
        run++
        for (const piece of pieces) {
          // Each append opens the files, so that the test sees only what is on the disk.
          await using spool = await open(240, `output-${run}`)
          await spool.append(piece)
        }
        await using spool = await open(240, `output-${run}`)
        expect(await contents(spool)).toBe(Buffer.concat(pieces).toString("latin1"))
      }),
      { numRuns: 40 },
    )
  })

  it("keeps the first output at the limit, and the end of the rest after a line", async () => {
    await using spool = await open(640)
    const all = numbers(1000)
    for (let at = 0; at < all.length; at += 100) await spool.append(Buffer.from(all.slice(at, at + 100)))
    expect(await contents(spool)).toBe(all.slice(0, 640))
    await spool.settle()
    expect(await contents(spool)).toBe(all.slice(0, 640) + gapLine(all.length - 650) + all.slice(-10))
    expect((await readdir(folder)).sort()).toHaveLength(8)
  })

  it("gives a reader who keeps up every byte of an output far beyond the limit", async () => {
    const all = numbers(1000)
    let read = ""
    for (let at = 0; at < all.length; at += 50) {
      // Opened each time: the start of the output is found on the disk.
      await using spool = await open(640)
      await spool.release(read.length)
      await spool.append(Buffer.from(all.slice(at, at + 50)))
      read += (await spool.read(read.length, 1000)).toString()
      expect(spool.length - spool.start).toBeLessThanOrEqual(640)
    }
    expect(read).toBe(all)
    expect((await readdir(folder)).sort()).toHaveLength(8)
  })

  it("writes what waited as soon as the reader makes room", async () => {
    await using spool = await open(640)
    await spool.append(Buffer.from("x".repeat(640)))
    await spool.append(Buffer.from("waits"))
    appends = 0
    await spool.release(79)
    expect([spool.length, appends]).toEqual([640, 0])
    await spool.release(80)
    expect([spool.length, spool.start, appends]).toEqual([645, 80, 1])
    expect((await spool.read(638, 100)).toString()).toBe("xxwaits")
  })

  it("writes no line if nothing is missing", async () => {
    await using spool = await open(1000)
    await spool.append(Buffer.from("abc"))
    await spool.append(Buffer.from("def"))
    await spool.append(new Uint8Array())
    expect(await contents(spool)).toBe("abcdef")
  })

  it("begins its own line at the start of a line", async () => {
    await using spool = await open(1000)
    await spool.appendLine("one")
    await spool.append(Buffer.from("unfinished"))
    await spool.appendLine("two")
    await spool.append(Buffer.from("finished\n"))
    await spool.appendLine("three")
    expect(await contents(spool)).toBe("one\nunfinished\ntwo\nfinished\nthree\n")
  })

  it("notifies of each append, and reads at most what exists", async () => {
    await using spool = await open(1000)
    appends = 0
    await spool.append(Buffer.from("abc"))
    expect(appends).toBe(1)
    expect((await spool.read(1, 100)).toString()).toBe("bc")
    expect((await spool.read(3, 100)).byteLength).toBe(0)
  })

  it("adds the number of lost bytes and the last ones to the log, even if the full disk accepts nothing", async () => {
    const errors: unknown[] = []
    await using spool = await Spool.open("/dev/full", {
      limit: 192,
      onAppend: () => appends++,
      onWriteError: (error) => errors.push(error),
    })
    await spool.append(Buffer.from("12345"))
    await spool.append(Buffer.from("678"))
    expect(spool.length).toBe(0)
    await spool.settle()
    expect(await contents(spool)).toBe(`${gapLine(5)}678`)
    expect((await spool.read(5, 3)).toString()).toBe(gapLine(5).slice(5, 8))
    await spool.append(Buffer.from("9"))
    await spool.settle()
    expect(await contents(spool)).toBe(`${gapLine(5)}6789`)
    expect(errors[0]).toMatchObject({ code: "ENOSPC" })
  })

  it.skipIf(noDisk !== "")(
    `continues when the disk accepts output again, after a line about the gap${noDisk}`,
    async () => {
      const disk = await smallDisk(1)
      try {
        await using spool = await Spool.open(join(disk.path, "output"), { limit: 640_000, onAppend: () => appends++ })
        await spool.append(Buffer.from("before\n"))
        await disk.fill()
        const page = Buffer.alloc(8192, "x")
        await spool.append(page)
        const kept = spool.length
        await spool.append(page)
        await disk.empty()
        await spool.append(Buffer.from("after\n"))
        await spool.settle()
        const log = await contents(spool)
        const lost = 7 + 2 * page.byteLength - kept - 10_000
        expect(log).toBe(`before\n${"x".repeat(kept - 7)}${gapLine(lost)}${"x".repeat(10_000)}after\n`)
        expect(await readFile(join(disk.path, "output"), "latin1")).toBe(log)
      } finally {
        await disk.remove()
      }
    },
  )
})
