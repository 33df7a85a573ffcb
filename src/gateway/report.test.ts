import fc from "fast-check"
import { describe, expect, it } from "vitest"
import type { ReportRequest } from "../agent/protocol.ts"
import type { AgentStatus } from "../apis/launch.ts"
import { takeReport } from "./report.ts"

const now = new Date("2026-01-01T00:00:00Z")
const bound: AgentStatus = {
  signingKey: "a",
  encryptionKey: "b",
  registrationTime: "2026-01-01T00:00:00Z",
  lastHeartbeatTime: "2026-01-01T00:00:00Z",
  sequence: 0,
  retryCount: 0,
}

/** What one agent sends in order: retries grow, a finish once there stays. */
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
  it("comes to the same end in whatever order, and however often, reports arrive", () => {
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

  it("never goes back", () => {
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

  it("writes a heartbeat when the clock was set back, too", () => {
    const report = { launch: "l", sequence: 1, attempt: 0, retryCount: 0 }
    const at = (time: string) => takeReport(bound, report, new Date(time))?.lastHeartbeatTime
    expect(at("2026-01-01T00:00:59Z")).toBeUndefined()
    expect(at("2026-01-01T00:01:00Z")).toBe("2026-01-01T00:01:00Z")
    expect(at("2025-12-31T23:00:00Z")).toBe("2025-12-31T23:00:00Z")
  })
})
