import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"
import { ManualClock } from "../../test/harness/manual-clock.ts"
import { Disk, makeDataDir } from "./disk.ts"
import type { GatewayClient } from "./gateway-client.ts"
import { Reporter, Shipper } from "./report.ts"
import { Spool } from "./spool.ts"

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-report-"))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

describe("Reporter", () => {
  it("reports at the interval in the answers", async () => {
    const clock = new ManualClock()
    const seconds = [60, 60, 20, 20]
    const times: number[] = []
    const client = {
      report: () => {
        times.push(clock.monotonic())
        return Promise.resolve({ desired: "run" as const, heartbeatSeconds: seconds[times.length - 1] ?? 20 })
      },
    } as Pick<GatewayClient, "report"> as GatewayClient
    const logger = { info: () => {}, warn: () => {}, error: () => {}, debug: () => {} }
    makeDataDir(join(folder, "disk"))
    const disk = await Disk.open(join(folder, "disk"), "2026-01-01T00:00:00Z", () => {})
    const on = { onRefused: () => {}, onStop: () => {}, beforeFinish: () => Promise.resolve(undefined) }
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
        return Promise.resolve({ length: offset + data.byteLength })
      },
    } as Pick<GatewayClient, "sendLog"> as GatewayClient
    let wake = (): void => {}
    await using spool = await Spool.open(join(folder, "output"), { clock, limit: 1000, onAppend: () => wake() })
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
