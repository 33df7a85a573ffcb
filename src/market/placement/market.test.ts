import { describe, expect, test } from "vitest"
import { at, jobOf, launchOf, time } from "../../../test/harness/builders.ts"
import { CRON_JOB_ANNOTATIONS } from "../../core/apis/cronjob.ts"
import { createCatalogue } from "../router/catalogue.ts"
import { launchHistory } from "./ledger.ts"
import { appraise, expectedRunSeconds } from "./market.ts"
import { JOB_DEFAULTS } from "./settings.ts"

describe("a market", () => {
  test("has the launch rate", () => {
    const launches = [0, 20, 40].map((s) => launchOf(jobOf(), 1, { metadata: { creationTimestamp: time(s) } }))
    const facts = {
      namespace: "team",
      offers: createCatalogue([]),
      launchAccounts: [],
      launches: launchHistory(launches),
    }
    const wait = (perMinute: number) =>
      appraise(facts, at(50), { ...JOB_DEFAULTS, launchesPerMinute: perMinute }).rateWaitSeconds
    expect(wait(4)).toBe(0)
    expect(wait(3)).toBe(10)
    expect(wait(1)).toBe(50)
  })

  test("leaves each project its share of the launch rate", () => {
    const made = (namespace: string, seconds: readonly number[]) =>
      seconds.map((s) => {
        const job = jobOf({ metadata: { namespace } })
        return launchOf(job, 1, { metadata: { creationTimestamp: time(s) } })
      })
    const launches = [...made("greedy", [10, 20, 30, 40]), ...made("team", [15])]
    const base = {
      offers: createCatalogue([]),
      launchAccounts: [],
    }
    const wait = (namespace: string, seen = launches) =>
      appraise({ ...base, launches: launchHistory(seen), namespace }, at(50), { ...JOB_DEFAULTS, launchesPerMinute: 5 })
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
    expect(expectedRunSeconds(jobOf({ spec: { timeoutSeconds: 60 }, ...annotated("90") }), settings)).toBe(60)
    expect(expectedRunSeconds(jobOf(annotated("90")), settings)).toBe(90)
    expect(expectedRunSeconds(jobOf(), settings)).toBe(3600)
  })

  test.each(["", "0", "-1", "1e9", "12 h", "NaN"])("ignores a malformed annotation: %j", (value) => {
    expect(expectedRunSeconds(jobOf(annotated(value)), settings)).toBe(3600)
  })

  test("is never longer than a job may run", () => {
    expect(expectedRunSeconds(jobOf(annotated("9999999999")), settings)).toBe(30 * 24 * 3600)
  })
})
