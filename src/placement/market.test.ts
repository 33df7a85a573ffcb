import { describe, expect, test } from "vitest"
import { at, jobOf, launchOf, time, vmStatus } from "../../test/controllers/builders.ts"
import { CRON_JOB_ANNOTATIONS } from "../apis/cronjob.ts"
import { ANNOTATIONS } from "../apis/meta.ts"
import { catalogueOf } from "../router/catalogue.ts"
import { appraise, expectedSecondsOf, roomUnder, spendingOf } from "./market.ts"
import { JOB_DEFAULTS } from "./settings.ts"

describe("caps", () => {
  const live = launchOf(jobOf(), 1, { status: vmStatus() })
  const ended = (seconds: number) =>
    launchOf(jobOf(), 1, {
      status: { phase: "terminated", vm: { state: "terminated", terminationTime: time(seconds) }, costUsd: 2 },
    })

  test("count what lives, and what ended this month", () => {
    const lastMonth = ended(-31 * 24 * 3600)
    expect(spendingOf([live, ended(0), lastMonth], at(10), 3600)).toEqual({ vms: 1, hourlyUsd: 0.6, monthlyUsd: 2.6 })
    expect(roomUnder({ maxHourlyUsd: 1, maxMonthlyUsd: 2 }, { vms: 1, hourlyUsd: 0.6, monthlyUsd: 2.6 })).toEqual({
      hourlyUsd: 0.4,
      monthlyUsd: 0,
    })
  })

  test("count an ended VM once: in its Statement, or from its Launch", () => {
    const month = (recorded: readonly string[], launch = ended(0)) =>
      spendingOf([launch], at(10), 3600, new Set(recorded)).monthlyUsd
    const launch = ended(0)
    expect([month([], launch), month([launch.metadata.name], launch)]).toEqual([2, 0])
    const marked = { ...launch, metadata: { ...launch.metadata, annotations: { [ANNOTATIONS.counted]: "2026-05" } } }
    expect(month([], marked)).toBe(0)
  })

  test("a project's own caps go before the installation's, and what is recorded elsewhere counts", () => {
    const facts = {
      namespace: "team",
      offers: catalogueOf([]),
      launchAccounts: [],
      launches: [live],
      projectLaunches: [live],
      projectCaps: { maxVms: 3 },
      recordedUsd: 5,
    }
    const market = appraise(facts, at(10), { ...JOB_DEFAULTS, caps: { maxVms: 1, maxHourlyUsd: 9 } })
    expect(market.caps).toEqual({ maxVms: 3, maxHourlyUsd: 9 })
    expect(market.spending.monthlyUsd).toBe(5.6)
  })

  test("the launch rate", () => {
    const launches = [0, 20, 40].map((s) => launchOf(jobOf(), 1, { metadata: { creationTimestamp: time(s) } }))
    const facts = {
      namespace: "team",
      offers: catalogueOf([]),
      launchAccounts: [],
      launches,
      projectLaunches: [],
      projectCaps: undefined,
      recordedUsd: 0,
    }
    const wait = (perMinute: number) =>
      appraise(facts, at(50), { ...JOB_DEFAULTS, launchesPerMinute: perMinute }).rateWaitSeconds
    expect(wait(4)).toBe(0)
    expect(wait(3)).toBe(10)
    expect(wait(1)).toBe(50)
  })

  test("the launch rate leaves each project its share", () => {
    const made = (namespace: string, seconds: readonly number[]) =>
      seconds.map((s) => {
        const job = jobOf({ metadata: { namespace } })
        return launchOf(job, 1, { metadata: { creationTimestamp: time(s) } })
      })
    const launches = [...made("greedy", [10, 20, 30, 40]), ...made("team", [15])]
    const base = {
      offers: catalogueOf([]),
      launchAccounts: [],
      projectLaunches: [],
      projectCaps: undefined,
      recordedUsd: 0,
    }
    const wait = (namespace: string, seen = launches) =>
      appraise({ ...base, launches: seen, namespace }, at(50), { ...JOB_DEFAULTS, launchesPerMinute: 5 })
        .rateWaitSeconds
    expect(wait("team")).toBe(0)
    expect(wait("newcomer")).toBe(0)
    expect(wait("greedy")).toBe(20)
    expect(wait("team", [...launches, ...made("team", [45])])).toBe(25)
  })
})

describe("the expected time of a job", () => {
  const settings = { expectedSeconds: 3600 }
  const annotated = (value: string) => ({
    metadata: { annotations: { [CRON_JOB_ANNOTATIONS.expectedSeconds]: value } },
  })

  test("is the timeout, else what earlier runs took, else the setting", () => {
    expect(expectedSecondsOf(jobOf({ spec: { timeoutSeconds: 60 }, ...annotated("90") }), settings)).toBe(60)
    expect(expectedSecondsOf(jobOf(annotated("90")), settings)).toBe(90)
    expect(expectedSecondsOf(jobOf(), settings)).toBe(3600)
  })

  test.each(["", "0", "-1", "1e9", "12 h", "NaN"])("ignores a malformed annotation: %j", (value) => {
    expect(expectedSecondsOf(jobOf(annotated(value)), settings)).toBe(3600)
  })

  test("is never longer than a job may run", () => {
    expect(expectedSecondsOf(jobOf(annotated("9999999999")), settings)).toBe(30 * 24 * 3600)
  })
})
