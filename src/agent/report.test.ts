import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"
import { ManualClock } from "../../test/harness/manual-clock.ts"
import { silentLogger } from "../../test/harness/silent-logger.ts"
import type { UsagePoint } from "../core/apis/usage.ts"
import type { ReportRequest, ReportResponse } from "../core/protocol/protocol.ts"
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
    const disk = await Disk.open(join(folder, "disk"), { launch: "l", since: "2026-01-01T00:00:00Z" }, () => {})
    const on = {
      onRefused: () => {},
      onSessions: () => Number.POSITIVE_INFINITY,
      onStop: () => {},
      beforeFinish: () => Promise.resolve(undefined),
    }
    const meter = { points: [], stored: () => undefined }
    const reporter = new Reporter({ disk, meter, client, clock, logger, ...on }, 15)
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

describe("Reporter with usage", () => {
  const point = (time: number): UsagePoint => ({ time, seconds: 60, cpu: 1, memoryMib: 100 })

  /** Starts a reporter whose meter completes a point every minute. The answers are `answer`'s. */
  async function reporting(answer: (report: Omit<ReportRequest, "launch">) => Partial<ReportResponse>) {
    const clock = new ManualClock()
    const sent: { at: number; report: Omit<ReportRequest, "launch"> }[] = []
    const client = {
      report: (report: Omit<ReportRequest, "launch">) => {
        sent.push({ at: clock.monotonic(), report })
        // Rejects if the answer is an error.
        return Promise.resolve().then(() => ({ desired: "run" as const, heartbeatSeconds: 15, ...answer(report) }))
      },
    } as Pick<GatewayClient, "report"> as GatewayClient
    makeDataDir(join(folder, "disk"))
    const disk = await Disk.open(join(folder, "disk"), { launch: "l", since: "2026-01-01T00:00:00Z" }, () => {})
    let stored = -1
    const meter = {
      get points() {
        const minutes = Math.floor(clock.monotonic() / 60)
        return Array.from({ length: minutes }, (_, index) => point(index)).filter(({ time }) => time > stored)
      },
      stored: (time: number) => {
        stored = time
      },
    }
    const on = {
      onRefused: () => {},
      onSessions: () => Number.POSITIVE_INFINITY,
      onStop: () => {},
      beforeFinish: () => Promise.resolve(undefined),
    }
    const reporter = new Reporter({ disk, meter, client, clock, logger: silentLogger, ...on }, 15)
    const stop = new AbortController()
    const done = reporter.run(stop.signal)
    const pass = (until: () => boolean): Promise<boolean> =>
      vi.waitUntil(
        () => {
          if (!until() && clock.timers > 0) clock.advance(1)
          return until()
        },
        { timeout: 30_000, interval: 1 },
      )
    return { reporter, disk, sent, pass, stop, done }
  }

  it("sends points at most once a minute, without a report of their own, until they are stored", async () => {
    const { sent, pass, stop, done } = await reporting(({ usage = [] }) => {
      // An older gateway, and then one that stores what it gets.
      const last = usage.at(-1)?.time
      return last === undefined || last < 2 ? {} : { usageStored: last }
    })
    await pass(() => sent.length === 21)
    stop.abort()
    await done
    expect(sent.map(({ at }) => at)).toEqual(Array.from({ length: 21 }, (_, index) => index * 15))
    const withPoints = sent.flatMap(({ at, report: { usage } }) =>
      usage === undefined ? [] : [[at, usage.map(({ time }) => time)]],
    )
    expect(withPoints).toEqual([
      [60, [0]],
      [120, [0, 1]],
      [180, [0, 1, 2]],
      [240, [3]],
      [300, [4]],
    ])
  })

  it("sends points with every second report if the gateway asks for few reports", async () => {
    const { sent, pass, stop, done } = await reporting(({ usage = [] }) => {
      const last = usage.at(-1)?.time
      return { heartbeatSeconds: 50, ...(last !== undefined && { usageStored: last }) }
    })
    await pass(() => sent.length === 9)
    stop.abort()
    await done
    const withPoints = sent.flatMap(({ at, report: { usage } }) =>
      usage === undefined ? [] : [[at, usage.map(({ time }) => time)]],
    )
    expect(withPoints).toEqual([
      [100, [0]],
      [200, [1, 2]],
      [300, [3, 4]],
      [400, [5]],
    ])
  })

  it("sends the rest of the points with each report that has the finish", async () => {
    let answers = 0
    const { reporter, disk, sent, pass, done } = await reporting(({ finish }) => {
      if (finish !== undefined && ++answers === 1) throw new Error("no answer")
      return {}
    })
    await pass(() => sent.length === 6)
    disk.update({ finish: { reason: "Succeeded", time: "2026-01-01T00:00:00Z" } })
    reporter.releaseFinish()
    await pass(() => disk.state.finishStored)
    await done
    expect(sent.slice(-2).map(({ report: { usage = [] } }) => usage.map(({ time }) => time))).toEqual([[0], [0]])
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
