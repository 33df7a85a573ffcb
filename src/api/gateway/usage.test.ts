import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { findErrors } from "../../core/apis/validate.ts"
import { ReportRequestSchema } from "../../core/protocol/protocol.ts"
import { boundsOf, ReceivedReportSchema, readUsage } from "./usage.ts"

const now = new Date("2026-01-01T02:00:00Z")
const registered = Date.parse("2026-01-01T01:00:00Z")
const bounds = boundsOf(
  {
    signingKey: "a",
    encryptionKey: "b",
    registrationTime: new Date(registered).toISOString(),
    sequence: 0,
    retryCount: 0,
  },
  now,
)
const report = { launch: "l", sequence: 1, attempt: 0, retryCount: 0 }
const finish = { reason: "Succeeded" as const, exitCode: 0, time: now.toISOString() }
const at = (minute: number, fields: object = {}) => ({
  ...{ time: registered + minute * 60_000, seconds: 60, cpu: 1, memoryMib: 100 },
  ...fields,
})
const read = (usage: unknown) => readUsage({ ...report, usage }, bounds).reported

describe("usage in a report", () => {
  it("is in order, each point once, within the run's time, and without fields of a newer agent", () => {
    const past = at(0, { time: 5 })
    const future = at(60, { time: now.getTime() + 3_600_000 })
    const last = at(2)
    expect(read([last, past, at(1, { disks: [1] }), at(1), future])).toEqual({
      points: [at(1), last],
      upTo: last.time,
    })
    // A point that was dropped is not sent again.
    expect(read([past])).toEqual({ points: [], upTo: 5 })
  })

  it("waits for points that end in the future, except with the finish, whose points are cut", () => {
    const [latest, cut] = [at(60), at(59.5, { seconds: 1e9 })]
    expect(read([latest])).toEqual({ points: [latest], upTo: latest.time })
    expect(read([{ ...latest, time: latest.time + 1 }])).toEqual({ points: [], upTo: -1 })
    expect(read([at(59), at(61), cut])).toEqual({ points: [at(59)], upTo: at(59).time })
    expect(read([cut])).toEqual({ points: [], upTo: -1 })
    const { reported } = readUsage({ ...report, finish, usage: [cut] }, bounds)
    expect(reported).toEqual({ points: [{ ...cut, seconds: 90 }], upTo: cut.time })
  })

  it("says after which point it begins, if that is a time", () => {
    const readAfter = (usageAfter: unknown) => readUsage({ ...report, usage: [at(1)], usageAfter }, bounds).reported
    expect(readAfter(5)).toMatchObject({ after: 5 })
    for (const none of [undefined, null, "5", Number.NaN, {}]) expect(readAfter(none)).not.toHaveProperty("after")
  })

  it("makes no report invalid, whatever it is", () => {
    fc.assert(
      fc.property(fc.anything(), fc.anything(), fc.anything(), (usage, usageAfter, ofFinish) => {
        const received = { ...report, usage, usageAfter, finish: { ...finish, usage: ofFinish } }
        expect(findErrors(ReceivedReportSchema, received)).toEqual([])
        const { report: sound } = readUsage(received, bounds)
        expect(findErrors(ReportRequestSchema, sound)).toEqual([])
      }),
    )
    for (const none of [undefined, null, 5, "x", {}, [], [null], [{ time: 5 }], [at(1, { cpu: "1" })]])
      expect(read(none)).toBeUndefined()
  })

  it("has at most 64 points, the last ones", () => {
    const hour = Array.from({ length: 200 }, (_, index) => at(index / 4))
    expect(read(hour)?.points).toEqual(hour.slice(-64))
  })

  it("is in a finish with bounded values, or absent", () => {
    const usage = { seconds: 1e9, cpuMean: 1.23456, cpuPeak: 1e9, memoryPeakMib: 5, gpuMean: 400, unknown: "x" }
    const taken = readUsage({ ...report, finish: { ...finish, usage } }, bounds).report.finish
    expect(taken).toEqual({
      ...finish,
      usage: { seconds: 3720, cpuMean: 1.235, cpuPeak: 1e5, memoryPeakMib: 5, gpuMean: 100 },
    })
    for (const none of [null, 1, { ...usage, cpuMean: -1 }, { ...usage, seconds: "1" }, { gpuMean: 4 }])
      expect(readUsage({ ...report, finish: { ...finish, usage: none } }, bounds).report.finish).toEqual(finish)
  })
})
