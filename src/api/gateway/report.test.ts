import fc from "fast-check"
import { describe, expect, it } from "vitest"
import type { AgentStatus } from "../../core/apis/launch.ts"
import type { ReportRequest } from "../../core/protocol/protocol.ts"
import { heartbeatSecondsFor, takeReport } from "./report.ts"

const now = new Date("2026-01-01T00:00:30Z")
const bound: AgentStatus = {
  signingKey: "a",
  encryptionKey: "b",
  registrationTime: "2026-01-01T00:00:00Z",
  lastHeartbeatTime: "2026-01-01T00:00:00Z",
  sequence: 0,
  retryCount: 0,
}

/** Reports of one agent in order. Retries never decrease, and a finish stays. */
const life = fc
  .record({ heartbeats: fc.integer({ min: 1, max: 12 }), finishAt: fc.option(fc.nat(12)) })
  .map(({ heartbeats, finishAt }) =>
    Array.from({ length: heartbeats }, (_, index): ReportRequest => {
      const finish = { reason: "ContainerFailed" as const, exitCode: 3, time: "2026-01-01T00:00:09Z" }
      return {
        launch: "l",
        sequence: index + 1,
        attempt: index,
        retryCount: Math.floor(index / 2),
        ...(finishAt !== null && index >= finishAt && { finish }),
      }
    }),
  )

function take(reports: readonly ReportRequest[]): AgentStatus {
  return reports.reduce((agent, report) => takeReport(agent, report, now) ?? agent, bound)
}

describe("takeReport", () => {
  it("has the same result for any order and any repetition of reports", () => {
    fc.assert(
      fc.property(
        life.chain((reports) =>
          fc.tuple(fc.constant(reports), fc.array(fc.constantFrom(...reports), { maxLength: 30 })),
        ),
        ([reports, noise]) => {
          const end = take([...noise, ...reports])
          const last = reports.at(-1)
          expect(end.finish).toEqual(last?.finish)
          if (last?.finish === undefined) expect(end.retryCount).toBe(last?.retryCount)
          expect(take([...noise, ...reports, ...noise])).toEqual(end)
        },
      ),
    )
  })

  it("never reverts to an earlier state", () => {
    fc.assert(
      fc.property(
        life.chain((reports) => fc.array(fc.constantFrom(...reports), { minLength: 1, maxLength: 40 })),
        (arrivals) => {
          let agent = bound
          for (const report of arrivals) {
            const next = takeReport(agent, report, now) ?? agent
            expect(next.sequence).toBeGreaterThanOrEqual(agent.sequence)
            expect(next.retryCount).toBeGreaterThanOrEqual(agent.retryCount)
            if (agent.finish !== undefined) expect(next).toBe(agent)
            agent = next
          }
        },
      ),
    )
  })

  it.each([
    ["9999-12-31T23:59:59Z", "2026-01-01T00:00:30Z"],
    ["9999-12-31T23:59:59-23:59", "2026-01-01T00:00:30Z"],
    ["2026-01-01T00:00:31Z", "2026-01-01T00:00:30Z"],
    ["2026-01-01T23:59:60Z", "2026-01-01T00:00:30Z"],
    ["0000-01-01T00:00:00Z", "2026-01-01T00:00:00Z"],
    ["2025-12-31T23:59:59.999Z", "2026-01-01T00:00:00Z"],
    ["2026-01-01T00:00:09.123456789Z", "2026-01-01T00:00:09Z"],
    ["2026-01-01T01:00:09+01:00", "2026-01-01T00:00:09Z"],
  ])("moves the VM's time %s into the time since its registration: %s", (time, stored) => {
    const finish = { reason: "Preempted" as const, time }
    const report = { launch: "l", sequence: 1, attempt: 1, retryCount: 0, startTime: time, preemptionNotice: time }
    const taken = takeReport(bound, { ...report, finish }, now)
    expect(taken).toMatchObject({ startTime: stored, preemptionNotice: stored, finish: { time: stored } })
    expect(takeReport({ ...bound, sequence: 2 }, { ...report, finish }, now)?.finish?.time).toBe(stored)
  })

  it("keeps the number of retries within what a job may have, and never lowers it", () => {
    const counted = (before: AgentStatus, retryCount: number): AgentStatus => {
      const report = { launch: "l", sequence: before.sequence + 1, attempt: 0, retryCount }
      return takeReport(before, report, now) ?? { ...before, sequence: report.sequence }
    }
    expect(counted(bound, 1e9).retryCount).toBe(100)
    expect(counted(counted(bound, 3), 1).retryCount).toBe(3)
  })

  it("writes a heartbeat also if the clock was set back", () => {
    const report = { launch: "l", sequence: 1, attempt: 0, retryCount: 0 }
    const at = (time: string) => takeReport(bound, report, new Date(time))?.lastHeartbeatTime
    expect(at("2026-01-01T00:00:59Z")).toBeUndefined()
    expect(at("2026-01-01T00:01:00Z")).toBe("2026-01-01T00:01:00Z")
    expect(at("2025-12-31T23:00:00Z")).toBe("2025-12-31T23:00:00Z")
  })
})

it("the gateway asks VMs for a report every 15 s, and less often when there are many", () => {
  const intervals = [0, 1, 1500, 1501, 3000, 6000, 100_000].map(heartbeatSecondsFor)
  expect(intervals).toEqual([15, 15, 15, 16, 30, 60, 60])
})

describe("the time of a VM that is kept", () => {
  const finish = { reason: "ContainerFailed", exitCode: 1, time: "2026-01-01T00:00:09Z" } as const
  const report = { launch: "l", sequence: 1, attempt: 1, retryCount: 0 }
  const taken = (keepSeconds: number, debug?: { keepSeconds: number }) =>
    takeReport(bound, { ...report, finish: { ...finish, keepSeconds } }, now, debug)?.finish

  it("counts from now, and is no longer than its job has asked for", () => {
    expect(taken(60, { keepSeconds: 3600 })).toEqual({ ...finish, keptUntil: "2026-01-01T00:01:30Z" })
    expect(taken(86_400, { keepSeconds: 600 })).toEqual({ ...finish, keptUntil: "2026-01-01T00:10:30Z" })
    expect(taken(600)).toEqual(finish)
  })
})
