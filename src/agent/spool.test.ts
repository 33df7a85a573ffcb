import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import fc from "fast-check"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { ManualClock } from "../../test/harness/manual-clock.ts"
import { noDisk, smallDisk } from "../../test/small-disk.ts"
import { LOG_MARKS } from "../core/protocol/protocol.ts"
import { DEFAULT_SPOOL_BYTES, gapLine, limitCause, Spool } from "./spool.ts"

const FULL = "the VM's disk was full"

let folder: string
let appends = 0
let clock = new ManualClock()

beforeEach(async () => {
  clock = new ManualClock()
  folder = await mkdtemp(join(tmpdir(), "berth-spool-"))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

function open(limit: number, name = "output"): Promise<Spool> {
  return Spool.open(join(folder, name), { clock, limit, onAppend: () => appends++ })
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
    expect(await contents(spool)).toBe(all.slice(0, 640) + gapLine(all.length - 650, limitCause(640)) + all.slice(-10))
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

  it("names the limit of 128 MiB by its size, not the disk", () => {
    expect(limitCause(DEFAULT_SPOOL_BYTES)).toBe("the VM keeps at most 128 MiB that Berth has not stored yet")
  })

  it.skipIf(noDisk !== "")(`names the cause of each gap, first a full disk and then the limit${noDisk}`, async () => {
    const disk = await smallDisk(1)
    try {
      const path = join(disk.path, "output")
      await using spool = await Spool.open(path, { clock, limit: 64_000, onAppend: () => appends++ })
      await disk.fill()
      await spool.append(Buffer.alloc(3000, "x"))
      await disk.empty()
      await spool.append(Buffer.alloc(100_000, "y"))
      await spool.settle()
      const head = gapLine(2000, FULL) + "x".repeat(1000)
      const kept = 64_000 - head.length
      const tail = gapLine(99_000 - kept, limitCause(64_000)) + "y".repeat(1000)
      expect(await contents(spool)).toBe(head + "y".repeat(kept) + tail)
    } finally {
      await disk.remove()
    }
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
      clock,
      limit: 192,
      onAppend: () => appends++,
      onWriteError: (error) => errors.push(error),
    })
    await spool.append(Buffer.from("12345"))
    await spool.append(Buffer.from("678"))
    expect(spool.length).toBe(0)
    await spool.settle()
    expect(await contents(spool)).toBe(`${gapLine(5, FULL)}678`)
    expect((await spool.read(5, 3)).toString()).toBe(gapLine(5, FULL).slice(5, 8))
    await spool.append(Buffer.from("9"))
    await spool.settle()
    expect(await contents(spool)).toBe(`${gapLine(5, FULL)}6789`)
    expect(errors[0]).toMatchObject({ code: "ENOSPC" })
  })

  it.skipIf(noDisk !== "")(
    `continues when the disk accepts output again, after a line about the gap${noDisk}`,
    async () => {
      const disk = await smallDisk(1)
      try {
        await using spool = await Spool.open(join(disk.path, "output"), {
          clock,
          limit: 640_000,
          onAppend: () => appends++,
        })
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
        expect(log).toBe(`before\n${"x".repeat(kept - 7)}${gapLine(lost, FULL)}${"x".repeat(10_000)}after\n`)
        expect(await readFile(join(disk.path, "output"), "latin1")).toBe(log)
      } finally {
        await disk.remove()
      }
    },
  )
})

describe("the times of the output", () => {
  it("are those of the reads, at most half a second apart, also of output that waits for the gateway", async () => {
    const wait = fc.constantFrom(0, 0.1, 0.5, 3, 700)
    let run = 0
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(wait, fc.integer({ min: 1, max: 9 })), { maxLength: 30 }), async (reads) => {
        await using spool = await open(10_000, `times-${run++}`)
        const readAt: number[] = []
        for (const [seconds, size] of reads) {
          clock.advance(seconds)
          await spool.append(Buffer.alloc(size))
          for (let byte = 0; byte < size; byte++) readAt.push(clock.monotonic())
        }
        const half = Math.floor(readAt.length / 2)
        const check = (from: number): void => {
          const marks = spool.marks(from, readAt.length)
          for (let byte = from; byte < readAt.length; byte++) {
            const marked = marks.findLast(({ offset }) => offset <= byte)?.seconds ?? Number.NaN
            expect((readAt[byte] ?? 0) - marked).toBeGreaterThanOrEqual(0)
            expect((readAt[byte] ?? 0) - marked).toBeLessThan(0.5)
          }
        }
        check(0)
        await spool.release(half)
        check(half)
      }),
      { numRuns: 60 },
    )
  })

  it("become rarer while the gateway is away for long, and never too many", async () => {
    await using spool = await open(1_000_000)
    for (let count = 0; count < 5000; count++) {
      clock.advance(1)
      await spool.append(Buffer.from("x"))
    }
    const marks = spool.marks(0, spool.length)
    expect(marks.length).toBeLessThan(LOG_MARKS)
    expect(marks.length).toBeGreaterThan(LOG_MARKS / 2)
    const gaps = marks.slice(1).map(({ seconds }, index) => seconds - (marks[index]?.seconds ?? 0))
    expect(Math.max(...gaps)).toBeLessThanOrEqual(8)
    await spool.release(spool.length)
    for (const text of ["a", "b"]) {
      clock.advance(1)
      await spool.append(Buffer.from(text))
    }
    expect(spool.marks(5000, 5002).map(({ seconds }) => seconds)).toEqual([5001, 5002])
  })

  it("are that of the last write for a spool that an earlier agent has left", async () => {
    await writeFile(join(folder, "output"), "before\n")
    await utimes(join(folder, "output"), 1000, 1000)
    clock.advance(1000)
    clock.advance(60)
    await using spool = await open(1000)
    await spool.append(Buffer.from("after\n"))
    expect(spool.marks(0, spool.length)).toEqual([
      { offset: 0, seconds: 1000 },
      { offset: 7, seconds: 1060 },
    ])
  })
})
