import { describe, expect, it } from "vitest"
import { at, jobOf, offerOf } from "../../../test/harness/builders.ts"
import type { JobSpec, Resources } from "../../core/apis/job.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { launchHistory } from "../placement/ledger.ts"
import { appraise } from "../placement/market.ts"
import { JOB_DEFAULTS } from "../placement/settings.ts"
import { createCatalogue } from "../router/catalogue.ts"
import { advise } from "./advice.ts"
import { type MeasuredRun, neededResources } from "./needs.ts"

const DAY = 86_400
const HOUR = 3600
const MEMORY_MIB = 2.7 * 1024

const OFFERS: readonly Offer[] = [
  offerOf({ instanceType: "m7g.xlarge", cpu: 4, memoryGib: 16, hourlyPriceUsd: 0.17 }),
  offerOf({ instanceType: "c7g.large", cpu: 2, memoryGib: 4, hourlyPriceUsd: 0.08 }),
  offerOf({ instanceType: "t4g.medium", cpu: 0.4, memoryGib: 4, hourlyPriceUsd: 0.045 }),
  offerOf({ instanceType: "t4g.small", cpu: 0.4, memoryGib: 2, hourlyPriceUsd: 0.03 }),
  offerOf({
    instanceType: "g5",
    cpu: 4,
    memoryGib: 16,
    hourlyPriceUsd: 1,
    gpu: { model: "A10G", count: 1, vramGib: 24 },
  }),
  offerOf({
    instanceType: "p4",
    cpu: 8,
    memoryGib: 64,
    hourlyPriceUsd: 4,
    gpu: { model: "A100", count: 1, vramGib: 80 },
  }),
]

const run = (changes: Partial<MeasuredRun> = {}): MeasuredRun => ({
  endedAt: at(-DAY).getTime(),
  seconds: 8 * HOUR,
  cpuPeak: 0.3,
  machineCpu: 4,
  memoryPeakMib: MEMORY_MIB,
  ...changes,
})

/** Returns runs of which one ended on each of the last days. */
const daily = (count: number, changes: (day: number) => Partial<MeasuredRun> = () => ({})) =>
  Array.from({ length: count }, (_, day) => run({ endedAt: at(-DAY * (day + 0.5)).getTime(), ...changes(day) }))

function advice(runs: readonly MeasuredRun[], spec: Partial<JobSpec> = {}, offers = OFFERS) {
  const launchAccounts = [{ cloud: "sim", connection: "main" }]
  const facts = { namespace: "team", offers: createCatalogue(offers), launchAccounts, launches: launchHistory([]) }
  const latest = jobOf({ spec: { resources: { cpu: 4, memory: "12Gi" }, ...spec } })
  return advise({ latest, runs }, appraise(facts, at(0), JOB_DEFAULTS), at(0), JOB_DEFAULTS)
}

describe("advice", () => {
  it("says machine, price and saving for 30 runs of a cronjob", () => {
    // 15 runs of 8 h and 15 of 8 h 32 min: 29,760 s on average. Each costs 1.405333 now, and would cost 0.372.
    const found = advice(daily(30, (day) => ({ seconds: day % 2 === 0 ? 28_800 : 30_720 })))
    expect(found).toMatchObject({
      runs: 30,
      resources: { cpu: "400m", memory: "3.5Gi" },
      current: { offer: { instanceType: "m7g.xlarge", hourlyPriceUsd: 0.17 } },
      advised: { offer: { instanceType: "t4g.medium", hourlyPriceUsd: 0.045 } },
      savingUsdPerMonth: 30.99999,
      savingPercent: 73.5,
      reason:
        "peak 0.3 of 4 vCPUs and 2.7 of 15.5 GiB in 30 runs: with cpu 0.4 and memory 3.5Gi t4g.medium instead of m7g.xlarge, " +
        "$0.045 instead of $0.17/h, about $31 a month. Peaks shorter than 5 s are unseen.",
    })
  })

  it("counts the runs of the last 30 days, and learns from all", () => {
    const runs = [...daily(2), run({ endedAt: at(-31 * DAY).getTime(), memoryPeakMib: 7000 })]
    // 7000 MiB and a quarter are 8.5 GiB, which only the larger machine has.
    expect(advice(runs)).toBeUndefined()
    const old = runs.map((one) => ({ ...one, memoryPeakMib: MEMORY_MIB }))
    expect(advice(old)).toMatchObject({ runs: 3, savingUsdPerMonth: 2 })
    expect(advice(old.map((one) => ({ ...one, endedAt: at(-31 * DAY).getTime() })))).toBeUndefined()
  })

  it("needs three runs, and a saving of a tenth", () => {
    expect(advice(daily(2))).toBeUndefined()
    expect(advice(daily(3))).toBeDefined()
    const almost = [OFFERS[0], { ...OFFERS[2], hourlyPriceUsd: 0.1531 }] as Offer[]
    expect(advice(daily(3), {}, almost)).toBeUndefined()
    const just = [OFFERS[0], { ...OFFERS[2], hourlyPriceUsd: 0.153 }] as Offer[]
    expect(advice(daily(3), {}, just)).toMatchObject({ savingPercent: 10 })
  })

  it("keeps what the job asks for besides resources", () => {
    expect(advice(daily(3), { provisioning: "spot" })).toBeUndefined()
    expect(advice(daily(3), { region: ["elsewhere"] })).toBeUndefined()
    expect(advice(daily(3), { maxHourlyPriceUsd: 0.1 })).toBeUndefined()
  })

  it("counts the shortest time that a cloud bills", () => {
    const offers = OFFERS.map((offer) => ({ ...offer, minimumBilledSeconds: 3600 }))
    expect(
      advice(
        daily(4, () => ({ seconds: 60 })),
        {},
        offers,
      ),
    ).toMatchObject({ savingUsdPerMonth: 0.5 })
  })
})

const needs = (resources: Resources, changes: Partial<MeasuredRun>[], spec: Partial<JobSpec> = {}) =>
  neededResources({ image: "a", resources, ...spec }, changes.map(run))

describe("the needs of runs", () => {
  it("are a quarter above the largest peak, in sizes that leave no machine out", () => {
    const asked = { cpu: 16, memory: "64Gi" }
    expect(needs(asked, [{ cpuPeak: 1.3 }, { cpuPeak: 2.1 }])).toMatchObject({ cpu: "3", memory: "3.5Gi" })
    expect(needs(asked, [{ memoryPeakMib: 1400 }])).toMatchObject({ memory: "1792Mi" })
    expect(needs(asked, [{ memoryPeakMib: 6144 }])).toMatchObject({ memory: "7.5Gi" })
    expect(needs(asked, [{ cpuPeak: 0, memoryPeakMib: 1 }])).toMatchObject({ cpu: "100m", memory: "128Mi" })
  })

  it("don't grow for a job that used its whole machine", () => {
    expect(needs({ memory: "64Gi" }, [{ cpuPeak: 1.99, machineCpu: 2 }])).toMatchObject({ cpu: "2" })
    // A burstable machine gave more than it sustains.
    expect(needs({ memory: "64Gi" }, [{ cpuPeak: 1.99, machineCpu: 0.4 }])).toMatchObject({ cpu: "2" })
  })

  it("name memory and CPU that the job got by chance", () => {
    // It asks for 4 vCPUs and no memory: its machine had 16 GiB.
    expect(needs({ cpu: 4 }, [{ memoryPeakMib: 10_240 }])).toMatchObject({ cpu: "400m", memory: "12.5Gi" })
    expect(needs({ memory: "12Gi" }, [{ cpuPeak: 1.7, machineCpu: 4 }])).toMatchObject({
      cpu: "2500m",
      memory: "3.5Gi",
    })
  })

  it("are unknown to advice if they are no less than what is asked for", () => {
    expect(needs({ cpu: 0.4, memory: "3.5Gi" }, [{}])).toBeUndefined()
    expect(needs({}, [{ cpuPeak: 0.9, memoryPeakMib: 3000 }])).toBeUndefined()
  })

  it("change GPU memory only if all runs know it, and never to more", () => {
    const gpu = { vram: "80Gi" }
    const known = { vramPeakMib: 14_000 }
    expect(needs({ gpu }, [known])).toMatchObject({ gpu: { vram: "18Gi" } })
    expect(needs({ gpu: { ...gpu, model: "A100" } }, [known])).toMatchObject({ gpu: { model: "A100", vram: "18Gi" } })
    expect(needs({ gpu, cpu: 8 }, [known, {}])).toMatchObject({ gpu })
    expect(needs({ gpu: { model: "A100", count: 2 }, cpu: 8 }, [known])).toMatchObject({
      gpu: { model: "A100", count: 2 },
    })
    expect(needs({ gpu: { vram: "16Gi" }, cpu: 8 }, [known])).toMatchObject({ gpu: { vram: "16Gi" } })
    expect(
      advice(
        daily(3, () => known),
        { resources: { cpu: 4, memory: "12Gi", gpu } },
      ),
    ).toMatchObject({
      advised: { offer: { instanceType: "g5" } },
      reason: expect.stringContaining(
        "13.7 of 80 GiB of GPU memory in 3 runs: with cpu 0.4, memory 3.5Gi and gpu 18Gi",
      ),
    })
  })

  it("change a disk if all runs know its use, and name one that is larger than the smallest", () => {
    expect(needs({ disk: "200Gi" }, [{ diskPeakGib: 30.1 }])).toMatchObject({ disk: "38Gi" })
    expect(needs({ disk: "200Gi" }, [{ diskPeakGib: 1 }])).toMatchObject({ disk: "10Gi" })
    expect(needs({ disk: "200Gi", cpu: 8 }, [{ diskPeakGib: 1 }, {}])).toMatchObject({ disk: "200Gi" })
    expect(needs({ cpu: 8 }, [{ diskPeakGib: 20 }])).toMatchObject({ disk: "25Gi" })
    expect(needs({ cpu: 8 }, [{ diskPeakGib: 7 }])).not.toHaveProperty("disk")
  })

  it("stay below the memory up to which a job grows", () => {
    expect(needs({ cpu: 8, memory: "2Gi" }, [{}], { maxMemory: "3Gi" })).toBeUndefined()
    expect(needs({ cpu: 8, memory: "2Gi" }, [{}], { maxMemory: "4Gi" })).toMatchObject({ memory: "3.5Gi" })
  })
})
