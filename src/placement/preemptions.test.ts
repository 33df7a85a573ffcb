import { describe, expect, test } from "vitest"
import { at, jobOf, launchOf, offerOf, time, vmStatus } from "../../test/controllers/builders.ts"
import type { StoredLaunch } from "../apis/launch.ts"
import { MOST_POOLS, PreemptionHistory, rateOf } from "./preemptions.ts"

const HOUR = 3600
const spot = offerOf({ provisioning: "spot" })
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

describe("the rate of preemptions", () => {
  test("is the assumed one before anything was seen, and changes with what was seen", () => {
    expect(rateOf({ hours: 0, preemptions: 0 }).perHour).toBe(0.005)
    expect(rateOf({ hours: 1, preemptions: 1 }).perHour).toBeCloseTo(0.00995, 5)
    expect(rateOf({ hours: 1000, preemptions: 0 }).perHour).toBeCloseTo(0.00083, 5)
    expect(rateOf({ hours: 10_000, preemptions: 1000 }).perHour).toBeCloseTo(0.098, 3)
  })

  test("counts the hours and preemptions of the machine type in its region, also of running VMs", () => {
    const launches = [vm(0, 4), vm(1, 3, true), vm(2, undefined), vm(0, 9, true, "medium")]
    const rates = new PreemptionHistory().rates(() => launches, at(4 * HOUR))
    expect(rates(spot)).toMatchObject({ hours: 8, preemptions: 1 })
    expect(rates({ ...spot, region: "elsewhere" })).toMatchObject({ hours: 0, preemptions: 0 })
  })

  test("ignores on-demand VMs, and spot offers that gave no VM", () => {
    const onDemand = launchOf(jobOf(), ++number, { status: vmStatus({ phase: "terminated" }) })
    const refusal = { class: "Capacity", message: "", time: time(0) } as const
    const refused = launchOf(jobOf(), ++number, { spec: { offer: spot }, status: { phase: "refused", refusal } })
    const rates = new PreemptionHistory().rates(() => [onDemand, refused], at(HOUR))
    expect(rates(spot)).toMatchObject({ hours: 0, preemptions: 0 })
  })

  test("remembers VMs whose records are deleted, counts each once, and fades by half in a week", () => {
    const history = new PreemptionHistory()
    const ended = vm(0, 2, true)
    history.rates(() => [ended], at(2 * HOUR))
    expect(history.rates(() => [ended], at(3 * HOUR))(spot).hours).toBeCloseTo(2, 1)
    expect(history.rates(() => [ended], at(2 * HOUR))(spot)).toMatchObject({ hours: 2, preemptions: 1 })
    expect(history.rates(() => [], at((2 + 7 * 24) * HOUR))(spot)).toMatchObject({ hours: 1, preemptions: 0.5 })
  })

  test("is counted again after 10 seconds, and when the clock is set back", () => {
    const history = new PreemptionHistory()
    const preempted = vm(0, 2, true)
    const seen = (seconds: number, launches: readonly StoredLaunch[]) =>
      history.rates(() => launches, at(2 * HOUR + seconds))(spot).preemptions
    expect(seen(0, [])).toBe(0)
    expect(seen(9, [preempted])).toBe(0)
    expect(seen(10, [preempted])).toBeCloseTo(1)
    const another = new PreemptionHistory()
    another.rates(() => [], at(5 * HOUR))
    expect(another.rates(() => [preempted], at(4 * HOUR))(spot).preemptions).toBeCloseTo(1, 1)
  })

  test("remembers a limited number of machine types, those that ran last", () => {
    const history = new PreemptionHistory()
    const many = Array.from({ length: MOST_POOLS + 1 }, (_, index) => vm(0, 1, false, `type-${index}`))
    const rates = history.rates(() => many, at(HOUR))
    expect(rates({ ...spot, instanceType: "type-0" }).hours).toBe(0)
    expect(rates({ ...spot, instanceType: "type-1" }).hours).toBe(1)
  })
})
