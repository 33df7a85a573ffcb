import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { type Offer, offerKey } from "../apis/offer.ts"
import { explainChoice, explainExclusions } from "./explain.ts"
import { isInRegions, macroRegionOf } from "./regions.ts"
import { type Requirements, requirementsOf } from "./requirements.ts"
import { type RouteContext, route } from "./route.ts"

const NOW = new Date("2026-05-01T12:00:00Z")

function offer(changes: Partial<Offer> = {}): Offer {
  return {
    cloud: "aws",
    region: "eu-central-1",
    instanceType: "m7a.large",
    architecture: "amd64",
    provisioning: "onDemand",
    cpu: 2,
    memoryGib: 8,
    hourlyPriceUsd: 0.1,
    minimumBilledSeconds: 60,
    ...changes,
  }
}

function context(changes: Partial<RouteContext> = {}): RouteContext {
  return {
    payers: [{ cloud: "aws", connection: "main" }],
    resting: [],
    room: {},
    expectedSeconds: 3600,
    now: NOW,
    ...changes,
  }
}

const anyJob = requirementsOf({ image: "busybox" })

describe("requirements of a job", () => {
  test("have the contract's defaults", () => {
    expect(anyJob).toEqual({
      cpu: 1,
      memoryGib: 4,
      clouds: [],
      regions: [],
      architectures: [],
      provisioning: "onDemand",
    })
  })

  test.each([
    [{ vram: "24Gi" }, { vramGib: 24 }],
    [{ model: "A100" }, { model: "A100", count: 1 }],
    [
      { model: "A100", count: 4 },
      { model: "A100", count: 4 },
    ],
    [
      { model: "A100", vram: "80Gi" },
      { model: "A100", vramGib: 80 },
    ],
    [
      { model: "A100", count: 2, vram: "80Gi" },
      { model: "A100", count: 2, vramGib: 80 },
    ],
  ])("gpu %o means %o", (gpu, expected) => {
    expect(requirementsOf({ image: "x", resources: { gpu } }).gpu).toEqual(expected)
  })
})

describe("fits", () => {
  const a100 = { gpu: { model: "A100", count: 2, vramGib: 40 } }
  test.each<[string, Partial<Requirements>, Partial<Offer>, boolean]>([
    ["cpu is at least", { cpu: 2 }, {}, true],
    ["too little cpu", { cpu: 2.001 }, {}, false],
    ["too little memory", { memoryGib: 8.1 }, {}, false],
    ["another cloud", { clouds: ["gcp"] }, {}, false],
    ["one of the clouds", { clouds: ["gcp", "aws"] }, {}, true],
    ["the region itself", { regions: ["eu-central-1"] }, {}, true],
    ["the macro-region", { regions: ["eu"] }, {}, true],
    ["another macro-region", { regions: ["us"] }, {}, false],
    ["another architecture", { architectures: ["arm64"] }, {}, false],
    ["spot is not on demand", {}, { provisioning: "spot" }, false],
    ["on demand is not spot", { provisioning: "spot" }, {}, false],
    ["spotFirst takes both", { provisioning: "spotFirst" }, {}, true],
    ["the price at the limit", { maxHourlyPriceUsd: 0.1 }, {}, true],
    ["the price over it", { maxHourlyPriceUsd: 0.09 }, {}, false],
    ["no gpu at all", { gpu: { vramGib: 1 } }, {}, false],
    ["total vram over all cards", { gpu: { vramGib: 80 } }, a100, true],
    ["total vram too small", { gpu: { vramGib: 81 } }, a100, false],
    ["model and count", { gpu: { model: "nvidia-a100", count: 2 } }, a100, true],
    ["too few cards", { gpu: { model: "A100", count: 3 } }, a100, false],
    ["another model", { gpu: { model: "A10", count: 1 } }, a100, false],
    ["model and vram", { gpu: { model: "A100", vramGib: 80 } }, a100, true],
    [
      "half a card is less than one",
      { gpu: { model: "A10", count: 1 } },
      { gpu: { model: "A10", count: 0.5, vramGib: 24 } },
      false,
    ],
  ])("%s", (_, requirements, changes, fits) => {
    const routing = route({ ...anyJob, ...requirements }, [offer(changes)], context())
    expect(routing.fitting).toBe(fits ? 1 : 0)
    expect(routing.placements).toHaveLength(fits ? 1 : 0)
  })

  test.each([
    ["aws", "us-east-1", "us"],
    ["aws", "eu-west-2", "uk"],
    ["aws", "ap-southeast-2", "au"],
    ["gcp", "europe-west4", "eu"],
    ["gcp", "us-central1", "us"],
    ["azure", "eastus2", "us"],
    ["azure", "australiaeast", "au"],
    ["azure", "westeurope", "eu"],
    ["azure", "southeastasia", "asia"],
    ["local", "local", undefined],
  ])("%s %s lies in %s", (cloud, region, macro) => {
    expect(macroRegionOf(cloud, region)).toBe(macro)
    expect(isInRegions(cloud, region, [region])).toBe(true)
  })
})

describe("ranking", () => {
  test("cheapest in all, so a minimum that is billed counts", () => {
    const cheapHour = offer({ instanceType: "long", hourlyPriceUsd: 0.05, minimumBilledSeconds: 3600 })
    const routing = route(anyJob, [cheapHour, offer()], context({ expectedSeconds: 60 }))
    expect(routing.placements.map((p) => p.offer.instanceType)).toEqual(["m7a.large", "long"])
  })

  test("ties go to the smaller machine, then to the name", () => {
    const offers = [offer({ instanceType: "c" }), offer({ instanceType: "b" }), offer({ instanceType: "a", cpu: 4 })]
    const routing = route(anyJob, offers, context())
    expect(routing.placements.map((p) => p.offer.instanceType)).toEqual(["b", "c", "a"])
  })

  test("spotFirst takes spot while there is any", () => {
    const offers = [offer({ hourlyPriceUsd: 0.01 }), offer({ provisioning: "spot", hourlyPriceUsd: 0.02 })]
    const routing = route({ ...anyJob, provisioning: "spotFirst" }, offers, context())
    expect(routing.placements.map((p) => p.offer.provisioning)).toEqual(["spot", "onDemand"])
  })
})

describe("what stands in the way", () => {
  test("nothing fits: how many each requirement excludes, and the nearest miss", () => {
    const offers = [offer(), offer({ instanceType: "big", cpu: 64, memoryGib: 256, hourlyPriceUsd: 3 })]
    const requirements = { ...anyJob, cpu: 64, regions: ["us"] }
    const routing = route(requirements, offers, context())
    expect(Object.fromEntries(routing.excluded)).toEqual({ region: 2, cpu: 1 })
    expect(routing.nearestMiss?.offer.instanceType).toBe("big")
    expect(explainExclusions(routing, requirements)).toBe(
      "none of 2 offers fits: region us excludes 2, cpu ≥ 64 excludes 1; " +
        "nearest: aws big in eu-central-1 (on demand, 64 vCPU, 256 GiB, $3/h), but for region",
    )
  })

  test("nobody to pay", () => {
    const routing = route(anyJob, [offer(), offer({ cloud: "gcp" })], context({ payers: [] }))
    expect(routing).toMatchObject({ fitting: 2, placements: [], unconnected: ["aws", "gcp"] })
  })

  test("a resting offer is passed over until it wakes, for the connection that it rests for", () => {
    const until = new Date(NOW.getTime() + 60_000)
    const rest = { cloud: "aws", offer: offerKey(offer()), until }
    expect(route(anyJob, [offer()], context({ resting: [rest] }))).toMatchObject({
      placements: [],
      resting: { offers: 1, until },
    })
    expect(route(anyJob, [offer()], context({ resting: [rest], now: until })).placements).toHaveLength(1)
    const payers = [
      { cloud: "aws", connection: "main" },
      { cloud: "aws", connection: "other" },
    ]
    const routing = route(anyJob, [offer()], context({ payers, resting: [{ ...rest, connection: "main" }] }))
    expect(routing.placements.map((p) => p.payer.connection)).toEqual(["other"])
  })

  test("caps leave the cheaper ones", () => {
    const offers = [offer(), offer({ instanceType: "big", cpu: 4, hourlyPriceUsd: 0.2 })]
    const routing = route({ ...anyJob, cpu: 2 }, offers, context({ room: { hourlyUsd: 0.15 } }))
    expect(routing.placements).toHaveLength(1)
    expect(routing.overCaps).toEqual({ offers: 1, cheapestHourlyUsd: 0.2 })
    expect(route(anyJob, offers, context({ room: { monthlyUsd: 0.05 } })).overCaps.offers).toBe(2)
  })
})

const anyOffer = fc.record({
  cloud: fc.constantFrom("aws", "gcp"),
  region: fc.constantFrom("us-east-1", "europe-west4"),
  instanceType: fc.constantFrom("a", "b", "c", "d"),
  architecture: fc.constantFrom("amd64" as const, "arm64" as const),
  provisioning: fc.constantFrom("onDemand" as const, "spot" as const),
  cpu: fc.constantFrom(1, 2, 4),
  memoryGib: fc.constantFrom(2, 4, 8),
  hourlyPriceUsd: fc.constantFrom(0.01, 0.02, 0.04),
  minimumBilledSeconds: fc.constantFrom(0, 60, 3600),
})

describe("properties", () => {
  test("the order of the catalogue changes nothing, and what is chosen fits and is the cheapest", () => {
    fc.assert(
      fc.property(
        fc
          .uniqueArray(anyOffer, { selector: offerKey, maxLength: 12 })
          .chain((offers) => fc.tuple(fc.constant(offers), fc.shuffledSubarray(offers, { minLength: offers.length }))),
        fc.constantFrom("onDemand" as const, "spot" as const),
        ([offers, shuffled], provisioning) => {
          const requirements = { ...anyJob, cpu: 2, provisioning }
          const there = context({ expectedSeconds: 600 })
          const routing = route(requirements, offers, there)
          expect(route(requirements, shuffled, there)).toEqual(routing)
          const [best] = routing.placements
          for (const placement of routing.placements) {
            expect(placement.offer.cpu).toBeGreaterThanOrEqual(2)
            expect(placement.totalUsd).toBeGreaterThanOrEqual(best?.totalUsd ?? 0)
          }
          expect(explainChoice(routing)).not.toBe("")
        },
      ),
    )
  })
})
