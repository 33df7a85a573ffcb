import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { type Offer, offerKey } from "../../core/apis/offer.ts"
import { Catalogue, createCatalogue } from "./catalogue.ts"
import { explainLostWork, explainRanking, explainShortfall } from "./explain.ts"
import { lostHours } from "./lost-work.ts"
import { type Requirements, toRequirements } from "./requirements.ts"
import { type RouteContext, route } from "./route.ts"

const NOW = new Date("2026-05-01T12:00:00Z")

const GROUPS: Record<string, string[]> = {
  "eu-central-1": ["eu", "eea"],
  "eu-west-2": ["eu", "uk"],
  "europe-west4": ["eu", "eea"],
  "us-east-1": ["us"],
}
const catalogue = (offers: readonly Offer[]) => createCatalogue(offers, (_, region) => GROUPS[region] ?? [])

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
    launchAccounts: [{ cloud: "aws", connection: "main" }],
    cooldowns: [],
    room: {},
    expectedSeconds: 3600,
    now: NOW,
    ...changes,
  }
}

const anyJob = toRequirements({ image: "busybox" })

describe("requirements of a job", () => {
  test("have the contract's defaults", () => {
    expect(anyJob).toEqual({
      cpu: 1,
      memoryGib: 4,
      memoryOf: "machine",
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
    expect(toRequirements({ image: "x", resources: { gpu } }).gpu).toEqual(expected)
  })
})

describe("the fit of an offer", () => {
  const a100 = { gpu: { model: "A100", count: 2, vramGib: 40 } }
  test.each<[string, Partial<Requirements>, Partial<Offer>, boolean]>([
    ["cpu is at least", { cpu: 2 }, {}, true],
    ["too little cpu", { cpu: 2.001 }, {}, false],
    ["too little memory", { memoryGib: 8.1 }, {}, false],
    ["all memory that the system leaves", { memoryGib: 7.5, memoryOf: "container" }, {}, true],
    ["memory that the system needs", { memoryGib: 7.6, memoryOf: "container" }, {}, false],
    ["an eighth for the system of a small machine", { memoryGib: 1.75, memoryOf: "container" }, { memoryGib: 2 }, true],
    ["more than that", { memoryGib: 1.76, memoryOf: "container" }, { memoryGib: 2 }, false],
    ["a machine's memory, for a job that names none", {}, { memoryGib: 4 }, true],
    ["another cloud", { clouds: ["gcp"] }, {}, false],
    ["one of the clouds", { clouds: ["gcp", "aws"] }, {}, true],
    ["the region itself", { regions: ["eu-central-1"] }, {}, true],
    ["the macro-region", { regions: ["eu"] }, {}, true],
    ["a narrower group", { regions: ["eea"] }, {}, true],
    ["another narrower group", { regions: ["uk"] }, {}, false],
    ["another macro-region", { regions: ["us"] }, {}, false],
    ["groups that lie in one another, and the region", { regions: ["uk", "eu", "eu-central-1"] }, {}, true],
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
    ["an unknown model", { gpu: { model: "H900", count: 1 } }, a100, false],
    ["model and vram", { gpu: { model: "A100", vramGib: 80 } }, a100, true],
    ["the larger card", { gpu: { model: "A100-80GB", count: 1 } }, a100, false],
    [
      "half a card is less than one",
      { gpu: { model: "A10", count: 1 } },
      { gpu: { model: "A10", count: 0.5, vramGib: 24 } },
      false,
    ],
    ["half a card's memory", { gpu: { vramGib: 12 } }, { gpu: { model: "A10", count: 0.5, vramGib: 24 } }, true],
    ["more than that", { gpu: { vramGib: 13 } }, { gpu: { model: "A10", count: 0.5, vramGib: 24 } }, false],
    ["cards of others", { gpu: { vramGib: 16 } }, { gpu: { model: "AMD:MI25", count: 1, vramGib: 16 } }, false],
    [
      "a machine with cards, for a job that wants none",
      {},
      { gpu: { model: "AMD:MI25", count: 1, vramGib: 16 } },
      true,
    ],
  ])("is decided for %s", (_, requirements, changes, fits) => {
    const routing = route({ ...anyJob, ...requirements }, catalogue([offer(changes)]), context())
    expect(routing.placements).toHaveLength(fits ? 1 : 0)
    expect(routing.shortfall?.fitting).toBe(fits ? undefined : 0)
  })

  test("leaves a restricted region to jobs that name it", () => {
    const table = {
      machines: [{ cloud: "aws", instanceType: "m7a.large", architecture: "amd64" as const, cpu: 2, memoryGib: 8 }],
      regions: [{ cloud: "aws", name: "us-gov-west-1", groups: ["us"], restricted: true }],
      places: [{ region: 0 }],
      machine: Uint32Array.of(0),
      place: Uint32Array.of(0),
      spot: Uint8Array.of(0),
      hourlyPriceUsd: Float64Array.of(0.1),
      minimumBilledSeconds: Uint32Array.of(60),
      priceDates: [""],
      priceDate: Uint16Array.of(0),
    }
    const found = (regions: string[]) =>
      route({ ...anyJob, regions }, new Catalogue(table), context()).placements.map((p) => p.offer.region)
    expect(found(["us-gov-west-1"])).toEqual(["us-gov-west-1"])
    expect(found(["us"])).toEqual([])
    expect(found([])).toEqual([])
  })
})

describe("the ranking", () => {
  const types = (offers: Offer[], requirements: Partial<Requirements> = {}, changes: Partial<RouteContext> = {}) =>
    route({ ...anyJob, ...requirements }, catalogue(offers), context(changes)).placements.map(
      (p) => p.offer.instanceType,
    )

  test("puts first what is cheapest in all, so a minimum that is billed counts", () => {
    const cheapHour = offer({ instanceType: "long", hourlyPriceUsd: 0.05, minimumBilledSeconds: 3600 })
    expect(types([cheapHour, offer()], {}, { expectedSeconds: 60 })).toEqual(["m7a.large", "long"])
    expect(types([cheapHour, offer()], {}, { expectedSeconds: 3600 })).toEqual(["long", "m7a.large"])
  })

  test("breaks ties by the smaller machine, then by the name", () => {
    const offers = [offer({ instanceType: "c" }), offer({ instanceType: "b" }), offer({ instanceType: "a", cpu: 4 })]
    expect(types(offers)).toEqual(["b", "c", "a"])
  })

  test("takes spot under spotFirst while there is any", () => {
    const spot = offer({ instanceType: "spot", provisioning: "spot", hourlyPriceUsd: 0.2 })
    expect(types([offer(), spot], { provisioning: "spotFirst" })).toEqual(["spot", "m7a.large"])
    expect(types([offer(), spot], { provisioning: "spotFirst" }, { count: 1 })).toEqual(["spot"])
  })

  test("has as many placements as are asked for", () => {
    const offers = [..."edcba"].map((instanceType) => offer({ instanceType }))
    expect(types(offers, {}, { count: 2 })).toEqual(["a", "b"])
    const launchAccounts = ["one", "two", "six"].map((connection) => ({ cloud: "aws", connection }))
    const { placements } = route(anyJob, catalogue(offers), context({ launchAccounts, count: 4 }))
    expect(
      placements.map(({ offer: { instanceType }, launchAccount }) => [instanceType, launchAccount.connection]),
    ).toEqual([
      ["a", "one"],
      ["a", "six"],
      ["a", "two"],
      ["b", "one"],
    ])
  })

  test("counts the cost of reading a bucket from afar: near it a dearer machine is cheaper", () => {
    const far = offer({ instanceType: "far", region: "us-east-1", hourlyPriceUsd: 0.05 })
    const near = offer({ instanceType: "near", region: "eu-west-2", hourlyPriceUsd: 0.2 })
    const there = offer({ instanceType: "there", hourlyPriceUsd: 0.3 })
    const buckets = (gib: number) => ({ buckets: [{ cloud: "aws", region: "eu-central-1", gib }] })
    expect(types([far, near, there], {}, buckets(1))).toEqual(["far", "near", "there"])
    expect(types([far, near, there], {}, buckets(10))).toEqual(["far", "there", "near"])
    expect(types([far, near, there], { regions: ["eu"] }, buckets(10))).toEqual(["there", "near"])
    const [best] = route(anyJob, catalogue([near]), context(buckets(10))).placements
    expect(best?.totalUsd).toBe(0.4)
  })
})

describe("the scan", () => {
  test("names a missing account", () => {
    const routing = route(anyJob, catalogue([offer(), offer({ cloud: "gcp" })]), context({ launchAccounts: [] }))
    expect(routing).toMatchObject({ placements: [], shortfall: { fitting: 2, unconnected: ["aws", "gcp"] } })
  })

  test("skips an offer in cooldown until the cooldown ends, for its connection only", () => {
    const until = new Date(NOW.getTime() + 60_000)
    const cooldown = { cloud: "aws", offer: offerKey(offer()), until }
    const one = catalogue([offer()])
    expect(route(anyJob, one, context({ cooldowns: [cooldown] }))).toMatchObject({
      placements: [],
      shortfall: { cooldowns: { offers: 1, until } },
    })
    expect(route(anyJob, one, context({ cooldowns: [cooldown], now: until })).placements).toHaveLength(1)
    const launchAccounts = [
      { cloud: "aws", connection: "main" },
      { cloud: "aws", connection: "other" },
    ]
    const routing = route(anyJob, one, context({ launchAccounts, cooldowns: [{ ...cooldown, connection: "main" }] }))
    expect(routing.placements.map((p) => p.launchAccount.connection)).toEqual(["other"])
  })

  const until = new Date(NOW.getTime() + 60_000)
  test.each([
    ["the cloud", { cloud: "aws" }, []],
    ["another cloud", { cloud: "gcp" }, ["m7a.large", "m7a.xlarge", "c7g.large"]],
    ["the connection", { cloud: "aws", connection: "main" }, []],
    ["another account", { cloud: "aws", account: "2" }, ["m7a.large", "m7a.xlarge", "c7g.large"]],
    ["a family", { cloud: "aws", family: "m7a" }, ["c7g.large"]],
    [
      "a family elsewhere",
      { cloud: "aws", region: "us-east-1", family: "m7a" },
      ["m7a.large", "m7a.xlarge", "c7g.large"],
    ],
    ["a family's larger sizes", { cloud: "aws", family: "m7a", minCpu: 4 }, ["m7a.large", "c7g.large"]],
    ["spot", { cloud: "aws", provisioning: "spot" as const }, ["m7a.large", "m7a.xlarge", "c7g.large"]],
    ["a zone", { cloud: "aws", zone: "eu-central-1a" }, ["m7a.large", "m7a.xlarge"]],
  ])("skips %s in cooldown", (_, cooldown, awake) => {
    const offers = [
      offer(),
      offer({ instanceType: "m7a.xlarge", cpu: 4, hourlyPriceUsd: 0.2 }),
      offer({ instanceType: "c7g.large", zone: "eu-central-1a", hourlyPriceUsd: 0.3 }),
    ]
    const there = context({
      launchAccounts: [{ cloud: "aws", connection: "main", account: "1" }],
      cooldowns: [{ ...cooldown, until }],
    })
    const routing = route(anyJob, catalogue(offers), there)
    expect(routing.placements.map((p) => p.offer.instanceType)).toEqual(awake)
    expect(routing.shortfall?.cooldowns).toEqual(awake.length === 0 ? { offers: 3, until } : undefined)
  })

  test("counts as fitting what is in cooldown, over a cap or beyond the count, on the accounts' clouds", () => {
    const offers = [
      offer(),
      offer({ instanceType: "m7a.xlarge", cpu: 4, hourlyPriceUsd: 0.2 }),
      offer({ instanceType: "m7a.2xlarge", cpu: 8, hourlyPriceUsd: 0.4 }),
      offer({ instanceType: "m7a.medium", cpu: 1, memoryGib: 2 }),
      offer({ cloud: "gcp" }),
      offer({ provisioning: "spot" }),
    ]
    const cooldowns = [{ cloud: "aws", offer: offerKey(offer()), until }]
    const there = context({ cooldowns, room: { hourlyUsd: 0.3 }, count: 1 })
    const counted = (changes: Partial<Requirements>, launchAccounts = there.launchAccounts) =>
      route({ ...anyJob, ...changes }, catalogue(offers), { ...there, launchAccounts }).fitting
    expect(counted({})).toBe(3)
    expect(counted({ provisioning: "spotFirst" })).toBe(4)
    expect(counted({ maxHourlyPriceUsd: 0.3 })).toBe(2)
    expect(counted({}, [])).toBe(0)
  })

  test("takes the cheaper ones that caps leave", () => {
    const offers = catalogue([offer(), offer({ instanceType: "big", cpu: 4, hourlyPriceUsd: 0.2 })])
    const big = { ...anyJob, cpu: 4 }
    expect(route({ ...anyJob, cpu: 2 }, offers, context({ room: { hourlyUsd: 0.15 } })).placements).toHaveLength(1)
    expect(route(big, offers, context({ room: { hourlyUsd: 0.15 } })).shortfall?.overCaps).toEqual({
      offers: 1,
      least: { gpus: 0, hourlyUsd: 0.2, expectedUsd: 0.2, mostUsd: 0 },
      fewestGpus: 0,
      cheapestHourlyUsd: 0.2,
      cheapestUsd: 0.2,
      cheapestMostUsd: 0,
    })
    expect(route(anyJob, offers, context({ room: { monthlyUsd: 0.05 } })).shortfall?.overCaps.offers).toBe(2)
  })
})

describe("accounts with regions of their own", () => {
  const offers = catalogue([offer(), offer({ region: "us-east-1", hourlyPriceUsd: 0.2 })])
  const main = { cloud: "aws", connection: "main", regions: ["us-east-1"] }

  test("get offers of these regions only, and leave the others to the other accounts", () => {
    const regionsOf = (...launchAccounts: RouteContext["launchAccounts"]) =>
      route(anyJob, offers, context({ launchAccounts })).placements.map(
        ({ offer: { region }, launchAccount }) => `${launchAccount.connection} ${region}`,
      )
    expect(regionsOf(main)).toEqual(["main us-east-1"])
    const other = { cloud: "aws", connection: "other" }
    expect(regionsOf(main, other)).toEqual(["other eu-central-1", "main us-east-1", "other us-east-1"])
  })

  test("count as no account for the offers of other regions", () => {
    const inEurope = toRequirements({ image: "busybox", region: ["eu"] })
    const { shortfall } = route(inEurope, offers, context({ launchAccounts: [main] }))
    expect(shortfall).toMatchObject({ fitting: 1, unconnected: ["aws"], cooldowns: { offers: 0 } })
  })
})

describe("a disk that a job requires", () => {
  const offers = catalogue([
    offer(),
    offer({ cloud: "gcp", region: "europe-west4", hourlyPriceUsd: 0.3 }),
    offer({ cloud: "azure", region: "westeurope" }),
    offer({ cloud: "local", region: "local" }),
  ])
  const accounts = ["aws", "azure", "gcp", "local"].map((cloud) => ({ cloud }))
  const cloudsFor = (disk: string) => {
    const requirements = toRequirements({ image: "busybox", resources: { disk } })
    return route(requirements, offers, context({ launchAccounts: accounts })).placements.map(
      (found) => found.offer.cloud,
    )
  }

  test("excludes the clouds whose largest disk is smaller", () => {
    expect(cloudsFor("4095Gi").sort()).toEqual(["aws", "azure", "gcp", "local"])
    expect(cloudsFor("4Ti").sort()).toEqual(["aws", "gcp", "local"])
    expect(cloudsFor("17Ti").sort()).toEqual(["gcp", "local"])
  })

  test("is explained when no offer has it", () => {
    const requirements = toRequirements({ image: "busybox", cloud: ["azure"], resources: { disk: "5Ti" } })
    const { shortfall } = route(requirements, offers, context({ launchAccounts: accounts }))
    if (shortfall === undefined) throw new Error("placed")
    expect(explainShortfall(shortfall, requirements)).toMatch(
      /^no offer has .* ≥ 5120 GiB of disk .*there are at most 4095 GiB of disk, in 1 offer from .* disk ≥ 5120 GiB excludes 1/,
    )
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

describe("the choice of an offer", () => {
  test("is the same for any order of the catalogue, and what is chosen fits and is the cheapest", () => {
    fc.assert(
      fc.property(
        fc
          .uniqueArray(anyOffer, { selector: offerKey, maxLength: 12 })
          .chain((offers) => fc.tuple(fc.constant(offers), fc.shuffledSubarray(offers, { minLength: offers.length }))),
        fc.constantFrom("onDemand" as const, "spot" as const),
        ([offers, shuffled], provisioning) => {
          const requirements = { ...anyJob, cpu: 2, provisioning }
          const there = context({ expectedSeconds: 600, count: 20 })
          const routing = route(requirements, catalogue(offers), there)
          expect(route(requirements, catalogue(shuffled), there)).toEqual(routing)
          const fitting = offers.filter(
            (o) => o.cloud === "aws" && o.cpu >= 2 && o.memoryGib >= 4 && o.provisioning === provisioning,
          )
          expect(routing.placements).toHaveLength(fitting.length)
          const totals = routing.placements.map(({ totalUsd }) => totalUsd)
          expect(totals).toEqual([...totals].sort((a, b) => a - b))
        },
      ),
    )
  })
})

describe("the order of spot offers", () => {
  const spot = (changes: Partial<Offer>) => offer({ provisioning: "spot", ...changes })
  const offers = catalogue([
    spot({ region: "eu-west-2", hourlyPriceUsd: 0.02 }),
    spot({ hourlyPriceUsd: 0.021 }),
    offer(),
  ])
  const lostWork = (perHour: number) => ({
    hours: lostHours({ expectedSeconds: 7200, hasCheckpoints: false }),
    rateOf: ({ region }: Offer) => ({ perHour: region === "eu-west-2" ? perHour : 0.005, hours: 9, preemptions: 1 }),
  })
  const ranked = (perHour: number, provisioning: "spot" | "spotFirst" = "spot") =>
    route({ ...anyJob, provisioning }, offers, context({ lostWork: lostWork(perHour) })).placements

  test("is by price if all are preempted as often", () => {
    expect(ranked(0.005).map(({ offer: { region } }) => region)).toEqual(["eu-west-2", "eu-central-1"])
  })

  test("counts the work that preemptions undo, and not in the estimated cost", () => {
    const [first, second] = ranked(0.1)
    expect(first).toMatchObject({ offer: { region: "eu-central-1" }, totalUsd: 0.021 })
    // 0.02 × (1 + 0.1 an hour × 1.05 hours)
    expect(second).toMatchObject({ totalUsd: 0.02, lostWorkUsd: 0.0021 })
  })

  test("leaves on-demand offers as they are", () => {
    expect(ranked(0.1, "spotFirst").at(-1)).not.toHaveProperty("lostWorkUsd")
  })

  test("is explained with the rate, its evidence and the lost work", () => {
    const [first, second] = ranked(0.1)
    if (first === undefined || second === undefined) throw new Error("there are two offers")
    expect(explainLostWork(second, lostWork(0.1))).toBe(
      ", and $0.0021 more for work lost to preemptions: 0.10 an hour (1 in 9 h of this machine here) of 63 min each",
    )
    expect(explainRanking({ placements: [first, second] })[1]).toContain("$0.02 in total ($0.0221 with lost work)")
  })

  test("weighs short runs and checkpoints", () => {
    expect(lostHours({ expectedSeconds: 7200, hasCheckpoints: false })).toBeCloseTo(1.05)
    expect(lostHours({ expectedSeconds: 7200, hasCheckpoints: true })).toBeCloseTo(0.05 + 1 / 12)
    expect(lostHours({ expectedSeconds: 60, hasCheckpoints: true })).toBeCloseTo(0.05 + 1 / 120)
  })
})
