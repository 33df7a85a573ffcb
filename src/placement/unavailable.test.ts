import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, offerOf, time, vmStatus } from "../../test/controllers/builders.ts"
import type { LaunchSpec, LaunchStatus, REFUSALS, StoredLaunch } from "../apis/launch.ts"
import { type Offer, offerKey } from "../apis/offer.ts"
import type { Payer } from "../router/rest.ts"
import { JOB_DEFAULTS } from "./settings.ts"
import { pausedPayers, restingOffers } from "./unavailable.ts"

type RefusalClass = (typeof REFUSALS)[number]

function refused(seconds: number, kind: RefusalClass = "Capacity", offer: Partial<Offer> = {}): StoredLaunch {
  const refusal = { class: kind, message: "no", time: time(seconds) }
  const spec = { connection: "main", offer: offerOf(offer) }
  return launchOf(jobOf(), 1, { spec, status: { phase: "refused", refusal } })
}

/** A boot that had its 900 s, never registered, and was ended. */
function deadBoot(from: number, spec: Partial<LaunchSpec> = {}): StoredLaunch {
  const vm = { state: "terminated" as const, id: "vm", createTime: time(from), terminationTime: time(from + 910) }
  return launchOf(jobOf(), 1, {
    metadata: { creationTimestamp: time(from) },
    spec: { ended: true, ...spec },
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
    ["Unavailable", { cloud: "sim", region: "here", connection: "main" }],
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

  test("a machine type that two regions have denied rests in all, shortly, unless it was had anywhere", () => {
    const [there, elsewhere] = [{ region: "there" }, { region: "elsewhere" }]
    const denied = [refused(0, "Region"), refused(400, "Region", there)]
    const type = { cloud: "sim", instanceType: "small", connection: "main" }
    expect(rest(denied, 401)).toEqual([
      { ...type, until: at(700) },
      { cloud: "sim", region: "there", connection: "main", until: at(700) },
    ])
    // Twice in one region is the region's; and what is another type's, or another payer's, is no second one.
    const other = launchOf(jobOf(), 1, { ...denied[1], spec: { ...denied[1]?.spec, connection: "second" } })
    const rows = [denied[0], refused(400, "Region", { ...there, instanceType: "large" }), refused(400, "Region"), other]
    expect(rest(rows as StoredLaunch[], 401).filter(({ instanceType }) => instanceType !== undefined)).toEqual([])
    // A third doesn't make it longer, as it does for the region: the type is to be tried where it is allowed.
    const third = [...denied, refused(500, "Region", elsewhere), refused(700, "Region")]
    expect(rest(third, 701).find(({ instanceType }) => instanceType !== undefined)?.until).toEqual(at(1000))
    expect(rest(third, 701).find(({ region }) => region === "here")?.until).toEqual(at(1300))
    const had = launchOf(jobOf(), 1, {
      spec: { connection: "main", offer: offerOf({ region: "far" }) },
      status: vmStatus({ agent: agentOf({ registrationTime: time(-900) }) }),
    })
    expect(rest([...denied, had], 401)).toEqual([expect.objectContaining({ region: "there" })])
  })

  test("a time to come, which an earlier version took from a VM, makes no rest", () => {
    const finish = { reason: "Preempted" as const, time: "9999-12-31T23:59:59Z" }
    const poisoned = launchOf(jobOf(), 1, {
      status: vmStatus({ phase: "terminated", agent: agentOf({ registrationTime: time(-50), finish }) }),
    })
    expect(rest([poisoned], 10)).toEqual([])
    expect(rest([poisoned, refused(0)], 10)).toEqual([{ cloud: "sim", offer, until: at(300) }])
    const kinds = ["Capacity", "Quota", "Credentials", "Region", "InvalidRequest", "Unavailable"] as const
    for (const kind of kinds) expect(rest([refused(1e9, kind), refused(1e9, kind, { region: "b" })], 10)).toEqual([])
  })

  test("boot failures and preemptions rest; a VM that a cancelled job ended early does not", () => {
    expect(rest([deadBoot(0)], 901)).toHaveLength(1)
    const loss = { reason: "Preempted" as const, message: "", time: time(50) }
    expect(rest([launchOf(jobOf(), 1, { status: vmStatus({ phase: "terminated", loss }) })], 51)).toHaveLength(1)
    const vm = { state: "terminated" as const, id: "vm", terminationTime: time(60) }
    expect(rest([launchOf(jobOf(), 1, { spec: { ended: true }, status: { phase: "terminated", vm } })], 61)).toEqual([])
  })
})

test("the offer rests whose VM said that it can run no container, whatever its boot deadline", () => {
  const bootFailure = { reason: "EngineUnavailable" as const, message: "", time: time(40) }
  const vm = { state: "terminated" as const, id: "vm", terminationTime: time(60) }
  const over = launchOf(jobOf(), 1, { spec: { ended: true }, status: { phase: "terminated", vm, bootFailure } })
  expect(restingOffers([over], at(61), JOB_DEFAULTS)).toMatchObject([
    { cloud: "sim", offer: offerKey(over.spec.offer) },
  ])
})

describe("the breaker", () => {
  const pauses = (launches: StoredLaunch[], seconds: number, payers: Payer[] = [{ cloud: "sim" }]) =>
    pausedPayers(payers, "team", launches, { now: at(seconds), settings: JOB_DEFAULTS })
  const paused = (launches: StoredLaunch[], seconds: number) => pauses(launches, seconds)[0]?.until
  const five = [0, 10, 20, 30, 40].map((from) => deadBoot(from))
  const last = 40 + 910

  test("pauses launching after 5 boots in a row that never registered", () => {
    expect(paused(five.slice(1), last)).toBeUndefined()
    expect(paused(five, last)).toEqual(at(last + 600))
  })

  test("boots that failed in time to come pause nothing", () => {
    const ahead = five.map((_, index) => deadBoot(1e9 + index))
    expect(paused(ahead, last)).toBeUndefined()
    expect(paused([...ahead, ...five], last)).toEqual(at(last + 600))
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

  const broken = { connection: "main", account: "42" }
  const own = [0, 10, 20, 30, 40].map((from) => deadBoot(from, broken))
  const of = (namespace: string) => ({ job: { namespace, name: "train", uid: "u" } })

  test("pauses only the account whose boots they were, in every project", () => {
    const payers = [
      { cloud: "sim", ...broken },
      { cloud: "sim", connection: "renamed", account: "42" },
      { cloud: "sim", connection: "main", account: "43" },
      { cloud: "sim" },
    ]
    const until = at(last + 600)
    expect(pauses(own, last, payers)).toEqual([
      { ...payers[0], until },
      { ...payers[1], until },
    ])
    // Another account's VM that registered says nothing of this one.
    const good = launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(945) }) }) })
    expect(pauses([...own, good], last, payers)).toHaveLength(2)
    const others = [0, 10, 20, 30, 40].map((from) => deadBoot(from, of("other")))
    expect(pauses(others, last)).toEqual([])
  })

  test("pauses everybody when boots of several projects and accounts make the row", () => {
    const second = deadBoot(40, { account: "43", ...of("other") })
    const four = own.slice(0, 4)
    expect(pauses([...four, second], last)).toEqual([{ cloud: "sim", until: at(last + 600) }])
    const sameProject = deadBoot(40, { account: "43" })
    const sameAccount = deadBoot(40, { ...broken, ...of("other") })
    expect(pauses([...four, sameProject], last)).toEqual([])
    expect(pauses([...four, sameAccount], last)).toEqual([])
    const good = launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(945) }) }) })
    expect(pauses([...four, second, good], last)).toEqual([])
  })
})
