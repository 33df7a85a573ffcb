import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, offerOf, time, vmStatus } from "../../../test/controllers/builders.ts"
import type { LaunchStatus, StoredLaunch } from "../../apis/launch.ts"
import { offerKey } from "../../apis/offer.ts"
import { catalogueOf } from "../../router/catalogue.ts"
import { pausedUntil } from "./breaker.ts"
import { appraise } from "./market.ts"
import { restingOffers } from "./resting.ts"
import { JOB_DEFAULTS } from "./settings.ts"
import { roomUnder, spendingOf } from "./spend.ts"

function refused(seconds: number, kind: "Capacity" | "Quota" | "Credentials" | "Region" = "Capacity"): StoredLaunch {
  const refusal = { class: kind, message: "no", time: time(seconds) }
  return launchOf(jobOf(), 1, { spec: { connection: "main" }, status: { phase: "refused", refusal } })
}

/** A boot that had its 900 s, never registered, and was ended. */
function deadBoot(from: number): StoredLaunch {
  const vm = { state: "terminated" as const, id: "vm", createTime: time(from), terminationTime: time(from + 910) }
  return launchOf(jobOf(), 1, {
    metadata: { creationTimestamp: time(from) },
    spec: { ended: true },
    status: { phase: "terminated", vm },
  })
}

describe("resting offers", () => {
  const offer = offerKey(refused(0).spec.offer)
  const rest = (launches: StoredLaunch[], seconds: number) => restingOffers(launches, at(seconds), JOB_DEFAULTS)

  test("rest for 5 minutes, doubled with each refusal in a row up to an hour", () => {
    expect(rest([refused(0)], 10)).toEqual([{ cloud: "sim", offer, until: at(300) }])
    expect(rest([refused(0)], 300)).toEqual([])
    expect(rest([refused(300), refused(0)], 310)[0]?.until).toEqual(at(300 + 600))
    const many = Array.from({ length: 9 }, (_, i) => refused(i * 3600))
    expect(rest(many, 8 * 3600)[0]?.until).toEqual(at(9 * 3600))
  })

  test("a VM of that offer that registered ends the row", () => {
    const good = launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(50) }) }) })
    expect(rest([refused(0), good], 60)).toEqual([])
    expect(rest([refused(0), good, refused(100)], 110)[0]?.until).toEqual(at(400))
  })

  test.each([
    ["Capacity", { cloud: "sim", offer }],
    [
      "Quota",
      { cloud: "sim", region: "here", family: "small", provisioning: "onDemand", minCpu: 2, connection: "main" },
    ],
    ["Credentials", { cloud: "sim", connection: "main" }],
    ["Region", { cloud: "sim", region: "here", connection: "main" }],
  ] as const)("%s rests %o", (kind, expected) => {
    expect(rest([refused(0, kind)], 1)).toEqual([{ ...expected, until: at(300) }])
  })

  test("quota rests from the smallest size on that was refused, until a VM of that size registers; by account if known", () => {
    const launch = (cpu: number, status: LaunchStatus) =>
      launchOf(jobOf(), 1, { spec: { connection: "main", account: "42", offer: offerOf({ cpu }) }, status })
    const refusal = (seconds: number) => ({ class: "Quota" as const, message: "no", time: time(seconds) })
    const small = launch(4, { phase: "refused", refusal: refusal(0) })
    const large = launch(8, { phase: "refused", refusal: refusal(10) })
    const scope = { cloud: "sim", region: "here", family: "small", provisioning: "onDemand", account: "42" }
    expect(rest([large, small], 20)).toEqual([{ ...scope, minCpu: 4, until: at(10 + 600) }])
    const registered = (cpu: number) => launch(cpu, vmStatus({ agent: agentOf({ registrationTime: time(30) }) }))
    expect(rest([large, small, registered(2)], 40)).toHaveLength(1)
    expect(rest([large, small, registered(4)], 40)).toEqual([])
  })

  test("boot failures and preemptions rest; a VM that a cancelled job ended early does not", () => {
    expect(rest([deadBoot(0)], 901)).toHaveLength(1)
    const loss = { reason: "Preempted" as const, message: "", time: time(50) }
    expect(rest([launchOf(jobOf(), 1, { status: vmStatus({ phase: "terminated", loss }) })], 51)).toHaveLength(1)
    const vm = { state: "terminated" as const, id: "vm", terminationTime: time(60) }
    expect(rest([launchOf(jobOf(), 1, { spec: { ended: true }, status: { phase: "terminated", vm } })], 61)).toEqual([])
  })
})

describe("the breaker", () => {
  const paused = (launches: StoredLaunch[], seconds: number) => pausedUntil(launches, at(seconds), JOB_DEFAULTS)
  const five = [0, 10, 20, 30, 40].map(deadBoot)
  const last = 40 + 910

  test("pauses launching after 5 boots in a row that never registered", () => {
    expect(paused(five.slice(1), last)).toBeUndefined()
    expect(paused(five, last)).toEqual(at(last + 600))
  })

  test("a VM that registered in between makes it no row", () => {
    const good = launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(925) }) }) })
    expect(paused([...five, good], last)).toBeUndefined()
  })

  test("then lets one through: while it boots the others wait, its failure pauses again, its success ends it", () => {
    expect(paused(five, last + 600)).toBeUndefined()
    const probe = (status: LaunchStatus) =>
      launchOf(jobOf(), 1, { metadata: { creationTimestamp: time(last + 601) }, status })
    expect(paused([...five, probe({})], last + 610)).toEqual(at(last + 625))
    expect(paused([...five, deadBoot(last + 601)], last + 601 + 910)).toEqual(at(last + 601 + 910 + 600))
    const registered = vmStatus({ agent: agentOf({ registrationTime: time(last + 620) }) })
    expect(paused([...five, probe(registered)], last + 630)).toBeUndefined()
  })
})

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

  test("a project's own caps go before the installation's, and what is recorded elsewhere counts", () => {
    const facts = {
      offers: catalogueOf([]),
      payers: [],
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
      offers: catalogueOf([]),
      payers: [],
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
})
