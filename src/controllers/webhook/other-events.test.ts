import { describe, expect, it } from "vitest"
import { otherEventOf } from "./other-events.ts"

const NOW = new Date("2026-01-31T12:00:00Z")
const time = "2026-01-31T11:00:00Z"
const warning = (reason: string, message = "it happened") => ({ type: "Warning" as const, reason, message })
const objectOf = (kind: string, status: object = {}) =>
  ({ apiVersion: "berth.dev/v1alpha1", kind, metadata: { name: "a", namespace: "team", uid: "u" }, status }) as never

describe("the event of a webhook", () => {
  it("is a tick that got no job", () => {
    const event = otherEventOf(objectOf("CronJob"), warning("TicksSkipped", "skipped 2 ticks"), NOW)
    expect(event).toEqual({
      ...{ namespace: "team", type: "cronjob.skipped", subject: "cronjobs/a", time: "2026-01-31T12:00:00Z" },
      key: ["u", "TicksSkipped", "skipped 2 ticks"],
      data: { name: "a", reason: "TicksSkipped", message: "skipped 2 ticks" },
    })
  })

  it("is a connection that no longer works, with the time of the transition as its key", () => {
    const conditions = [{ type: "Ready", status: "False", reason: "CredentialsRefused", lastTransitionTime: time }]
    const event = otherEventOf(objectOf("Connection", { conditions }), warning("CredentialsRefused"), NOW)
    expect(event).toMatchObject({ type: "connection.failed", key: ["u", "CredentialsRefused", time] })
  })

  it("is a threshold of a project's cap, in the project's namespace", () => {
    const status = { namespace: "p-team", spending: { maxMonthlyUsd: 100 } }
    const event = otherEventOf(objectOf("Project", status), warning("CapSpent80Percent"), NOW)
    expect(event).toMatchObject({
      ...{ namespace: "p-team", type: "budget.threshold", key: ["u", "CapSpent80Percent", "2026-01"] },
      data: { reached_percent: 80, max_monthly_usd: 100 },
    })
    expect(otherEventOf(objectOf("Project", status), warning("CapSpent"), NOW)?.data).toMatchObject({
      reached_percent: 100,
    })
  })

  it.each([
    ["CronJob", "JobCreated"],
    ["CronJob", "JobActive"],
    ["Connection", "LaunchesRejected"],
    ["Organization", "CapSpent"],
    ["Project", "CapSpent"],
    ["Job", "Failed"],
  ])("is none for %s with the reason %s", (kind, reason) => {
    expect(otherEventOf(objectOf(kind), warning(reason), NOW)).toBeUndefined()
  })
})
