import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import fc from "fast-check"
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"
import { ManualClock } from "../../test/kube/manual-clock.ts"
import { noDisk, smallDisk } from "../../test/small-disk.ts"
import { Disk, makeDataDir } from "./disk.ts"
import type { GatewayClient } from "./gateway-client.ts"
import { Reporter, Shipper, Spool } from "./report.ts"

let folder: string
let appends = 0

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-spool-"))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

function open(limit: number, name = "output"): Promise<Spool> {
  return Spool.open(join(folder, name), { limit, onAppend: () => appends++ })
}

async function contents(spool: Spool): Promise<string> {
  return (await spool.read(0, spool.length)).toString("latin1")
}

describe("Spool", () => {
  it("keeps a prefix of the output after each opening, and one line about the rest", async () => {
    let run = 0
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 12 }),
        fc.integer({ min: 0, max: 60 }),
        async (pieces, limit) => {
          run++
          for (const piece of pieces) {
            // Each append opens the file, so that the test sees only what is on the disk.
            await using spool = await open(limit, `output-${run}`)
            await spool.append(piece)
          }
          await using spool = await open(limit, `output-${run}`)
          const all = Buffer.concat(pieces).toString("latin1")
          const line = `\n--- log truncated: the VM keeps only the first ${limit} bytes ---\n`
          expect(await contents(spool)).toBe(all.length > limit ? all.slice(0, limit) + line : all)
        },
      ),
      { numRuns: 40 },
    )
  })

  it("writes no line if nothing is missing", async () => {
    await using spool = await open(6)
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

  it("writes the number of lost bytes to the log, even if the full disk does not accept that line", async () => {
    const errors: unknown[] = []
    await using spool = await Spool.open("/dev/full", {
      limit: 1000,
      onAppend: () => appends++,
      onWriteError: (error) => errors.push(error),
    })
    await spool.append(Buffer.from("12345"))
    await spool.append(Buffer.from("678"))
    expect(spool.length).toBe(0)
    await spool.settle()
    const line = "\n--- 8 bytes of the log are missing here: the VM could not write them to its disk ---\n"
    expect(await contents(spool)).toBe(line)
    expect((await spool.read(5, 3)).toString()).toBe(line.slice(5, 8))
    await spool.append(Buffer.from("9"))
    await spool.settle()
    expect(await contents(spool)).toBe(`${line}${line.replace("8 bytes", "1 bytes")}`)
    expect(errors[0]).toMatchObject({ code: "ENOSPC" })
  })

  it.skipIf(noDisk !== "")(
    `continues when the disk accepts output again, after a line about the gap${noDisk}`,
    async () => {
      const disk = await smallDisk(1)
      try {
        await using spool = await Spool.open(join(disk.path, "output"), { limit: 1_000_000, onAppend: () => appends++ })
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
        const lost = 7 + 2 * page.byteLength - kept
        const gap = `\n--- ${lost} bytes of the log are missing here: the VM could not write them to its disk ---\n`
        expect(log).toBe(`before\n${"x".repeat(kept - 7)}${gap}after\n`)
        expect(await readFile(join(disk.path, "output"), "latin1")).toBe(log)
      } finally {
        await disk.remove()
      }
    },
  )
})

describe("Reporter", () => {
  it("reports at the interval in the answers, and keeps it if an answer has none", async () => {
    const clock = new ManualClock()
    const answers = [{ heartbeatSeconds: 60 }, {}, { heartbeatSeconds: 20 }, {}]
    const times: number[] = []
    const client = {
      report: () => {
        times.push(clock.monotonic())
        return Promise.resolve({ desired: "run" as const, ...answers[times.length - 1] })
      },
    } as Pick<GatewayClient, "report"> as GatewayClient
    const logger = { info: () => {}, warn: () => {}, error: () => {}, debug: () => {} }
    makeDataDir(join(folder, "disk"))
    const disk = await Disk.open(join(folder, "disk"), "2026-01-01T00:00:00Z", () => {})
    const on = { onRefused: () => {}, onStop: () => {}, beforeFinish: () => Promise.resolve() }
    const reporter = new Reporter({ disk, client, clock, logger, ...on }, 15)
    const stop = new AbortController()
    const reporting = reporter.run(stop.signal)
    const toldFour = () => {
      if (clock.timers > 0) clock.advance(1)
      return times.length === 4
    }
    await vi.waitUntil(toldFour, { timeout: 30_000, interval: 1 })
    expect(times.map((time, index) => time - (times[index - 1] ?? time))).toEqual([0, 60, 60, 20])
    stop.abort()
    await reporting
  })
})

describe("Shipper", () => {
  it("sends the first output at once and collects what follows", async () => {
    const clock = new ManualClock()
    const pieces: string[] = []
    const client = {
      sendLog: (offset: number, data: Buffer) => {
        pieces.push(data.toString())
        return Promise.resolve({ length: offset + data.byteLength, full: false })
      },
    } as Pick<GatewayClient, "sendLog"> as GatewayClient
    let wake = (): void => {}
    await using spool = await Spool.open(join(folder, "output"), { limit: 1000, onAppend: () => wake() })
    const logger = { info: () => {}, warn: () => {}, error: () => {}, debug: () => {} }
    const shipper = new Shipper({ spool, client, clock, logger, onRefused: () => {} })
    wake = () => shipper.wake()
    const stop = new AbortController()
    const shipping = shipper.run(stop.signal)
    await spool.append(Buffer.from("one\n"))
    await vi.waitUntil(() => pieces.length === 1)
    await spool.append(Buffer.from("two\n"))
    await spool.append(Buffer.from("three\n"))
    await vi.waitUntil(() => {
      clock.advance(1)
      return pieces.length > 1
    })
    expect(pieces).toEqual(["one\n", "two\nthree\n"])
    stop.abort()
    await shipping
  })
})
