import { describe, expect, it } from "vitest"
import type { CapLevel, SpendingStatus } from "../../core/apis/caps.ts"
import type { OtherEvent } from "./deliveries.ts"
import { reportThreshold, toOtherEvent, toThresholdEvent } from "./other-events.ts"

const NOW = new Date("2026-01-31T12:00:00Z")
const time = "2026-01-31T11:00:00Z"
const warning = (reason: string, message = "it happened") => ({ type: "Warning" as const, reason, message })
const objectOf = (kind: string, status: object = {}) =>
  ({ apiVersion: "berth.dev/v1alpha1", kind, metadata: { name: "a", namespace: "team", uid: "u" }, status }) as never

describe("the event of a webhook", () => {
  it("is a tick that got no job", () => {
    const event = toOtherEvent(objectOf("CronJob"), warning("TicksSkipped", "skipped 2 ticks"), NOW)
    expect(event).toEqual({
      ...{ type: "cronjob.skipped", subject: "cronjobs/a", time: "2026-01-31T12:00:00Z" },
      key: ["u", "TicksSkipped", "skipped 2 ticks"],
      data: { name: "a", reason: "TicksSkipped", message: "skipped 2 ticks" },
    })
  })

  it("is a rejected job of a tick, with the time of the transition in its key", () => {
    const conditions = [{ type: "Ready", status: "False", reason: "JobRefused", lastTransitionTime: time }]
    const event = toOtherEvent(objectOf("CronJob", { conditions }), warning("JobRefused", "no quota"), NOW)
    expect(event?.key).toEqual(["u", "JobRefused", "no quota", time])
  })

  it("is a connection that no longer works, with the time of the transition and in its key", () => {
    const conditions = [{ type: "Ready", status: "False", reason: "CredentialsRefused", lastTransitionTime: time }]
    const event = toOtherEvent(objectOf("Connection", { conditions }), warning("CredentialsRefused"), NOW)
    expect(event).toMatchObject({ type: "connection.failed", time, key: ["u", "CredentialsRefused", time] })
  })

  it.each([
    ["CronJob", "JobCreated"],
    ["CronJob", "JobActive"],
    ["Connection", "LaunchesRejected"],
    ["Project", "CapSpent"],
    ["Job", "Failed"],
  ])("is none for %s with the reason %s", (kind, reason) => {
    expect(toOtherEvent(objectOf(kind), warning(reason), NOW)).toBeUndefined()
  })
})

describe("the event of a threshold", () => {
  const spending = { month: "2026-01", spentUsd: 85, reservedUsd: 3, maxMonthlyUsd: 100, reachedPercent: 80 }
  const reached = (level: CapLevel, name?: string, changes: Partial<SpendingStatus> = {}) => ({
    level: {
      level,
      ...(name !== undefined && { name }),
      caps: {},
      owns: (namespace: string) => namespace === "p-team",
    },
    ...{ uid: "u", spending: { ...spending, ...changes }, note: warning("CapSpent80Percent") },
  })

  it.each([
    ["project", "team", "projects/team"],
    ["organization", "acme", "organizations/acme"],
    ["installation", undefined, "installation"],
  ] as const)("names the %s whose cap it is, with the amounts", (level, name, subject) => {
    expect(toThresholdEvent(reached(level, name), NOW)).toEqual({
      ...{ type: "budget.threshold", subject, time: "2026-01-31T12:00:00Z" },
      key: [level, "u", "2026-01", "100", "80"],
      data: {
        ...{ level, name: name ?? null, reason: "CapSpent80Percent", message: "it happened", month: "2026-01" },
        ...{ spent_usd: 85, max_monthly_usd: 100, reached_percent: 80 },
      },
    })
  })

  it("has another key with another cap, month or threshold, and the same with other amounts", () => {
    const keyWith = (changes: Partial<SpendingStatus>) => toThresholdEvent(reached("project", "team", changes), NOW).key
    const keys = [{}, { maxMonthlyUsd: 200 }, { month: "2026-02" }, { reachedPercent: 100 }, { spentUsd: 90 }].map(
      (changes) => keyWith(changes).join(),
    )
    expect([new Set(keys).size, keys[4] === keys[0]]).toEqual([4, true])
  })

  it("concerns the projects that the cap holds for", () => {
    const emitted: [OtherEvent, boolean[]][] = []
    const emit = (event: OtherEvent, concerns: (namespace: string) => boolean) =>
      void emitted.push([event, ["p-team", "p-other"].map(concerns)])
    reportThreshold(reached("project", "team"), { emit }, NOW)
    expect(emitted).toMatchObject([[{ subject: "projects/team" }, [true, false]]])
  })
})
