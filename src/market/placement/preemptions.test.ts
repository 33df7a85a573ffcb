import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, offerOf, time, vmStatus } from "../../../test/harness/builders.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { MOST_RECORDS, PreemptionHistory, preemptionRate, type Viewer } from "./preemptions.ts"

const HOUR = 3600
const spot = offerOf({ provisioning: "spot" })
const TEAM: Viewer = { namespace: "team", launchAccounts: [] }
let number = 0

/** Returns a spot VM that ran from one hour to another. */
function vm(fromHour: number, toHour: number | undefined, isPreempted = false, instanceType = "small"): StoredLaunch {
  const terminationTime = toHour === undefined ? undefined : time(toHour * HOUR)
  const loss = { reason: "Preempted", message: "", time: terminationTime ?? "" } as const
  return launchOf(jobOf(), ++number, {
    spec: { offer: { ...spot, instanceType } },
    status: vmStatus({
      phase: terminationTime === undefined ? "created" : "terminated",
      vm: { state: "running", id: "i", createTime: time(fromHour * HOUR), ...(terminationTime && { terminationTime }) },
      ...(isPreempted && { loss }),
    }),
  })
}

/** Returns a spot VM of another project. Its agent alone says that it was preempted, unless `isCloudsWord`. */
function another(namespace: string, account: string, isCloudsWord: boolean, hours = 1): StoredLaunch {
  const [preemptionNotice, end] = [time(hours * HOUR - 60), time(hours * HOUR)]
  const vmOf = {
    state: "terminated",
    id: "i",
    createTime: time(0),
    terminationTime: end,
    preempted: isCloudsWord,
  } as const
  return launchOf(jobOf(), ++number, {
    spec: { offer: spot, connection: "main", account, job: { namespace, name: "train", uid: "u" } },
    status: vmStatus({
      phase: "terminated",
      vm: vmOf,
      agent: agentOf({ preemptionNotice, finish: { reason: "Preempted", time: end } }),
    }),
  })
}

describe("the rate of preemptions, between tenants", () => {
  const persons: Record<string, string> = { team: "ada", a: "eve", b: "eve", c: "bea" }
  const viewer = (more: Partial<Viewer> = {}): Viewer => ({ ...TEAM, personOf: (name) => persons[name], ...more })
  const seen = (launches: readonly StoredLaunch[], of = viewer()) =>
    new PreemptionHistory().rates(() => launches, of, at(HOUR))(spot)

  test("is the same whatever the agents of another project and account say", () => {
    const forged = Array.from({ length: 50 }, () => another("a", "66", false))
    expect(seen(forged)).toEqual(seen([]))
    // The one who forges sees it, and so does each project with the same account.
    expect(seen(forged, viewer({ namespace: "a" })).preemptions).toBeCloseTo(50, 5)
    const sharing = viewer({ launchAccounts: [{ cloud: spot.cloud, connection: "ours", account: "66" }] })
    expect(seen(forged, sharing).preemptions).toBeCloseTo(50, 5)
  })

  test("counts the cloud's word of others' VMs, but no person for more than one preemption or 200 hours", () => {
    expect(seen([another("a", "66", true)])).toMatchObject({ preemptions: 1, hours: 1 })
    const many = Array.from({ length: 50 }, (_, index) => another(index % 2 ? "a" : "b", String(index), true))
    expect(seen(many)).toMatchObject({ preemptions: 1, hours: 50 })
    expect(seen([...many, another("c", "7", true)])).toMatchObject({ preemptions: 2, hours: 51 })
    const calm = Array.from({ length: 50 }, () => vm(-999, 1)).map((launch) => ({
      ...launch,
      spec: { ...launch.spec, job: { ...launch.spec.job, namespace: "c" } },
    }))
    expect(seen(calm)).toMatchObject({ preemptions: 0, hours: 200 })
  })
})

describe("the rate of preemptions", () => {
  test("is the assumed one before anything was seen, and changes with what was seen", () => {
    expect(preemptionRate({ hours: 0, preemptions: 0 }).perHour).toBe(0.005)
    expect(preemptionRate({ hours: 1, preemptions: 1 }).perHour).toBeCloseTo(0.00995, 5)
    expect(preemptionRate({ hours: 1000, preemptions: 0 }).perHour).toBeCloseTo(0.00083, 5)
    expect(preemptionRate({ hours: 10_000, preemptions: 1000 }).perHour).toBeCloseTo(0.098, 3)
  })

  test("counts the hours and preemptions of the machine type in its region, also of running VMs", () => {
    const launches = [vm(0, 4), vm(1, 3, true), vm(2, undefined), vm(0, 9, true, "medium")]
    const rates = new PreemptionHistory().rates(() => launches, TEAM, at(4 * HOUR))
    expect(rates(spot)).toMatchObject({ hours: 8, preemptions: 1 })
    expect(rates({ ...spot, region: "elsewhere" })).toMatchObject({ hours: 0, preemptions: 0 })
  })

  test("ignores on-demand VMs, and spot offers that gave no VM", () => {
    const onDemand = launchOf(jobOf(), ++number, { status: vmStatus({ phase: "terminated" }) })
    const refusal = { class: "Capacity", message: "", time: time(0) } as const
    const refused = launchOf(jobOf(), ++number, { spec: { offer: spot }, status: { phase: "refused", refusal } })
    const rates = new PreemptionHistory().rates(() => [onDemand, refused], TEAM, at(HOUR))
    expect(rates(spot)).toMatchObject({ hours: 0, preemptions: 0 })
  })

  test("remembers VMs whose records are deleted, counts each once, and fades by half in a week", () => {
    const history = new PreemptionHistory()
    const ended = vm(0, 2, true)
    history.rates(() => [ended], TEAM, at(2 * HOUR))
    expect(history.rates(() => [ended], TEAM, at(3 * HOUR))(spot).hours).toBeCloseTo(2, 1)
    expect(history.rates(() => [ended], TEAM, at(2 * HOUR))(spot)).toMatchObject({ hours: 2, preemptions: 1 })
    expect(history.rates(() => [], TEAM, at((2 + 7 * 24) * HOUR))(spot)).toMatchObject({ hours: 1, preemptions: 0.5 })
  })

  test("is counted again after 10 seconds, and when the clock is set back", () => {
    const history = new PreemptionHistory()
    const preempted = vm(0, 2, true)
    const seen = (seconds: number, launches: readonly StoredLaunch[]) =>
      history.rates(() => launches, TEAM, at(2 * HOUR + seconds))(spot).preemptions
    expect(seen(0, [])).toBe(0)
    expect(seen(9, [preempted])).toBe(0)
    expect(seen(10, [preempted])).toBeCloseTo(1)
    const another = new PreemptionHistory()
    another.rates(() => [], TEAM, at(5 * HOUR))
    expect(another.rates(() => [preempted], TEAM, at(4 * HOUR))(spot).preemptions).toBeCloseTo(1, 1)
  })

  test("remembers a limited number of machine types, those that ran last", () => {
    const history = new PreemptionHistory()
    const many = Array.from({ length: MOST_RECORDS + 1 }, (_, index) => vm(0, 1, false, `type-${index}`))
    const rates = history.rates(() => many, TEAM, at(HOUR))
    expect(rates({ ...spot, instanceType: "type-0" }).hours).toBe(0)
    expect(rates({ ...spot, instanceType: "type-1" }).hours).toBe(1)
  })
})
