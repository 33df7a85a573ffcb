import { describe, expect, test } from "vitest"
import type { Offer } from "../../core/apis/offer.ts"
import { Catalogue } from "../router/catalogue.ts"
import { priceDatesOf } from "../router/price-dates.ts"
import { toRequirements } from "../router/requirements.ts"
import { route } from "../router/route.ts"
import { createTable } from "../router/table.ts"
import { buildOffers, decode, encode, type PriceList } from "./file.ts"
import { LiveCatalogue } from "./live.ts"
import { readPriceList } from "./shipped.ts"
import { decodePrices, encodePrices, type RegionPrices } from "./stored-prices.ts"
import { findSuspects } from "./suspects.ts"
import { whyUnlaunchable } from "./unlaunchable.ts"

const REGIONS = [
  { cloud: "aws", name: "eu-west-1", groups: ["eu", "eea"] },
  { cloud: "aws", name: "us-east-1", groups: ["us"] },
  { cloud: "aws", name: "us-west-2", groups: ["us"] },
]
const MACHINES = [
  { cloud: "aws", instanceType: "m7i.large", architecture: "amd64" as const, cpu: 2, memoryGib: 8 },
  { cloud: "aws", instanceType: "c7g.xlarge", architecture: "arm64" as const, cpu: 4, memoryGib: 8 },
]

const SOURCES = [
  { cloud: "aws", what: "all", name: "one", date: "2026-01-01", licence: "MIT", covers: [{}] },
  { cloud: "aws", what: "sizes", name: "two", date: "2026-02-20", licence: "MIT" },
  {
    ...{ cloud: "aws", what: "some", name: "three", date: "2026-01-15", licence: "MIT" },
    covers: [{ provisioning: "onDemand" as const, regions: "^us-", instanceTypes: "^c7g" }],
  },
]

function priceList(onDemand: number[], spot: number[]): Omit<PriceList, "suspects"> {
  return {
    sources: SOURCES,
    minimumBilledSeconds: { aws: 60 },
    machines: MACHINES,
    regions: REGIONS,
    machine: Uint32Array.from(onDemand, (_, row) => Math.floor(row / REGIONS.length)),
    region: Uint32Array.from(onDemand, (_, row) => row % REGIONS.length),
    onDemand: Uint32Array.from(onDemand),
    spot: Uint32Array.from(spot),
  }
}

function quoted(
  region: string,
  provisioning: RegionPrices["provisioning"],
  prices: Record<string, number>,
  time = "2026-03-01T12:00:00Z",
): RegionPrices {
  return { cloud: "aws", region, provisioning, time, prices: new Map(Object.entries(prices)) }
}

const LIST = priceList(
  [110_000, 100_000, 100_000, 150_000, 140_000, 0],
  [50_000, 40_000, 4_294_967_295, 0, 70_000, 60_000],
)

function offer(changes: Partial<Offer> = {}): Offer {
  return {
    cloud: "aws",
    region: "eu-west-1",
    instanceType: "m7i.large",
    architecture: "amd64",
    provisioning: "onDemand",
    cpu: 2,
    memoryGib: 8,
    hourlyPriceUsd: 0.1,
    minimumBilledSeconds: 60,
    ...changes,
  }
}

describe("the file of a price list", () => {
  test("decodes to what was encoded, byte by byte", () => {
    const list = { ...LIST, suspects: [] }
    expect(decode(encode(list))).toEqual(list)
    expect(encode(decode(encode(list)))).toEqual(encode(list))
  })

  test("is rejected if it is truncated or has another format", () => {
    const bytes = encode({ ...LIST, suspects: [] })
    expect(() => decode(bytes.subarray(0, bytes.length - 1))).toThrow("truncated")
    expect(() => decode(new Uint8Array())).toThrow("empty")
    const other = Buffer.from(bytes)
    other.write('"format":3', other.indexOf('"format":2'))
    expect(() => decode(other)).toThrow("format 3")
  })

  test("offers each machine on demand and as spot where it has that price", () => {
    const offers = [...new Catalogue(buildOffers({ ...LIST, suspects: [] })).offers()]
    expect(offers).toHaveLength(10)
    const spot = { region: "us-east-1", provisioning: "spot", hourlyPriceUsd: 0.04, priceDate: "2026-01-01" } as const
    expect(offers).toContainEqual(offer(spot))
    expect(offers.filter((o) => o.region === "us-west-2" && o.instanceType === "c7g.xlarge")).toHaveLength(1)
  })
})

describe("the date of a price", () => {
  test("is that of the last source that covers it", () => {
    const offers = [...new Catalogue(buildOffers({ ...LIST, suspects: [] })).offers()]
    const later = offers.filter(({ priceDate }) => priceDate === "2026-01-15")
    expect(later.map(({ region, instanceType, provisioning }) => [region, instanceType, provisioning])).toEqual([
      ["us-east-1", "c7g.xlarge", "onDemand"],
    ])
    expect(new Set(offers.map(({ priceDate }) => priceDate))).toEqual(new Set(["2026-01-01", "2026-01-15"]))
  })

  test("must have a source", () => {
    const sources = [{ ...SOURCES[0], covers: [{ provisioning: "spot" as const }] }] as PriceList["sources"]
    expect(() => buildOffers({ ...LIST, sources, suspects: [] })).toThrow(
      "no source of the price list covers the onDemand price of aws m7i.large in eu-west-1",
    )
  })

  test("comes in the shipped list from one of its cloud's sources, and each source of prices has some", () => {
    const list = readPriceList()
    const offers = [...new Catalogue(buildOffers(list)).offers()]
    const dates = (cloud: string, has: (offer: Offer) => boolean = () => true) =>
      [
        ...new Set(offers.filter((one) => one.cloud === cloud && has(one)).map(({ priceDate = "" }) => priceDate)),
      ].sort()
    for (const cloud of ["aws", "gcp", "azure", "nebius"]) {
      const sources = list.sources.filter((one) => one.cloud === cloud && one.covers !== undefined)
      expect(dates(cloud), cloud).toEqual([...new Set(sources.map(({ date }) => date))].sort())
    }
    const spot = ({ provisioning }: Offer) => provisioning === "spot"
    expect(dates("aws", spot)).toEqual(["2025-04-24"])
    expect(dates("azure", spot)).toEqual(["2026-05-20"])
    expect(dates("gcp", ({ instanceType }) => !instanceType.includes("_"))).toEqual(["2026-07-30"])
    expect(dates("aws", ({ region }) => region.startsWith("us-gov-"))).toEqual(["2026-08-24"])
    expect(dates("aws", (one) => !spot(one) && one.region === "us-east-1")).toEqual(["2026-07-20"])
  })

  test("is in the shipped list as old as most of its prices, by cloud and provisioning", () => {
    expect(priceDatesOf(buildOffers(readPriceList()))).toEqual([
      { cloud: "aws", provisioning: "onDemand", date: "2025-04-24", oldest: "2025-04-24" },
      { cloud: "aws", provisioning: "spot", date: "2025-04-24", oldest: "2025-04-24" },
      { cloud: "azure", provisioning: "onDemand", date: "2026-05-20", oldest: "2026-05-20" },
      { cloud: "azure", provisioning: "spot", date: "2026-05-20", oldest: "2026-05-20" },
      { cloud: "gcp", provisioning: "onDemand", date: "2026-07-30", oldest: "2026-05-20" },
      { cloud: "gcp", provisioning: "spot", date: "2026-07-30", oldest: "2026-05-20" },
      { cloud: "nebius", provisioning: "onDemand", date: "2026-05-18", oldest: "2026-05-18" },
      { cloud: "nebius", provisioning: "spot", date: "2026-10-01", oldest: "2026-10-01" },
    ])
  })
})

describe("implausible prices", () => {
  test("are listed as suspects and not offered", () => {
    const list = priceList(
      [110_000, 9_000, 100_000, 150_000, 140_000, 160_000],
      [50_000, 8_000, 100_001, 0, 6_999, 71_000],
    )
    const suspects = findSuspects({ ...list, spot: list.spot.with(3, 70_000) })
    expect(
      suspects.map(({ instanceType, region, provisioning }) => `${instanceType} ${region} ${provisioning}`),
    ).toEqual(["m7i.large us-east-1 onDemand", "m7i.large us-west-2 spot", "c7g.xlarge us-east-1 spot"])
    const sold = [...new Catalogue(buildOffers({ ...list, suspects: findSuspects(list) })).offers()]
    expect(sold.some((o) => o.hourlyPriceUsd === 0.009 || o.hourlyPriceUsd === 0.100001)).toBe(false)
  })

  test("do not include a spot price equal to the on-demand price", () => {
    expect(findSuspects(priceList([100_000], [100_000]))).toEqual([])
  })
})

describe("machines that can't be launched", () => {
  test.each([
    ["aws", "p3.2xlarge", "us-east-1", "onDemand", /withdrawn/],
    ["aws", "p3dn.24xlarge", "us-east-1", "onDemand", undefined],
    ["aws", "i3.metal", "us-east-1", "spot", /bare metal/],
    ["aws", "i3.large", "us-east-1", "spot", undefined],
    ["aws", "c7i.metal-48xl", "us-east-1", "onDemand", /20 minutes/],
    ["gcp", "a3-highgpu-1g", "us-central1", "onDemand", /Spot/],
    ["gcp", "a3-highgpu-1g", "us-central1", "spot", undefined],
    ["gcp", "a3-highgpu-8g", "us-central1", "onDemand", undefined],
    ["azure", "Standard_NC6s_v3", "eastus", "spot", /retired/],
    ["azure", "Standard_NC24rs_v3", "eastus", "onDemand", /retired/],
    ["azure", "Standard_NV16as_v4", "eastus", "onDemand", /retired/],
    ["azure", "Standard_NV18ads_A10_v5", "eastus", "onDemand", /GRID/],
  ] as const)("are recognized: %s %s in %s, %s", (cloud, instanceType, region, provisioning, reason) => {
    const why = whyUnlaunchable({ cloud, instanceType }, region, provisioning)
    if (reason === undefined) expect(why).toBeUndefined()
    else expect(why).toMatch(reason)
  })

  test("are not in the shipped list", () => {
    const { machines, machine, region, regions, onDemand, spot } = readPriceList()
    const sold = [onDemand, spot].flatMap((prices, way) =>
      Array.from(prices.keys()).filter((row) => {
        const place = regions[region[row] ?? -1]?.name ?? ""
        const type = machines[machine[row] ?? -1]
        return prices[row] !== 0 && type && whyUnlaunchable(type, place, way === 1 ? "spot" : "onDemand") !== undefined
      }),
    )
    expect(sold).toEqual([])
    expect(machine.length).toBeGreaterThan(80_000)
  })
})

const job = toRequirements({ image: "busybox" })
const CONTEXT = { launchAccounts: [{ cloud: "aws" }], cooldowns: [], room: {}, expectedSeconds: 3600, now: new Date(0) }

const table = buildOffers({ ...LIST, suspects: [] })

describe("an overlay", () => {
  async function changed(data: Record<string, string>) {
    const live = new LiveCatalogue(table)
    const errors = await live.change(data)
    return { live, errors: errors.map(({ pointer, detail }) => `${pointer}: ${detail}`) }
  }
  const best = (live: LiveCatalogue, changes = {}) => {
    const [placement] = route({ ...job, ...changes }, live.current(), CONTEXT).placements
    return placement && [placement.offer.instanceType, placement.offer.region, placement.offer.hourlyPriceUsd]
  }

  test("leaves the list unchanged if it has no rules", async () => {
    const { live, errors } = await changed({})
    expect(errors).toEqual([])
    expect(best(live)).toEqual(["m7i.large", "us-east-1", 0.1])
  })

  test("multiplies discounts, by group of regions, family and provisioning", async () => {
    const discounts = "- {region: eu, factor: 0.8}\n- {family: c7*, factor: 0.5}\n- {provisioning: spot, factor: 2}\n"
    const { live, errors } = await changed({ discounts })
    expect(errors).toEqual([])
    expect(best(live)).toEqual(["c7g.xlarge", "eu-west-1", 0.06])
    expect(best(live, { regions: ["us"] })).toEqual(["c7g.xlarge", "us-east-1", 0.07])
    expect(best(live, { provisioning: "spot", regions: ["us-east-1"] })).toEqual(["c7g.xlarge", "us-east-1", 0.07])
  })

  test("removes excluded offers", async () => {
    const { live, errors } = await changed({
      exclusions: "- {region: us-*}\n- {instanceType: c7g.xlarge, cloud: aws}\n",
    })
    expect(errors).toEqual([])
    expect(best(live)).toEqual(["m7i.large", "eu-west-1", 0.11])
    expect(best(live, { regions: ["us"] })).toBeUndefined()
  })

  test("adds own offers: a reserved machine at its undiscounted price, and a machine type of the installation", async () => {
    const offers = [
      "- {cloud: aws, region: us-west-2, instanceType: m7i.large, hourlyPriceUsd: 0.02}",
      "- {cloud: aws, region: attic, zone: attic-1, instanceType: old.box, architecture: amd64, cpu: 96, memoryGib: 512, hourlyPriceUsd: 0}",
    ].join("\n")
    const { live, errors } = await changed({ offers, discounts: "- {factor: 0.5}" })
    expect(errors).toEqual([])
    expect(best(live, { cpu: 2, regions: ["us-west-2"] })).toEqual(["m7i.large", "us-west-2", 0.02])
    expect(best(live, { cpu: 96 })).toEqual(["old.box", "attic", 0])
    const there = [...live.current().offers()].filter((o) => o.region === "us-west-2" && o.provisioning === "onDemand")
    expect(there.map(({ hourlyPriceUsd }) => hourlyPriceUsd)).toEqual([0.02])
  })

  test("reports invalid rules and applies the valid ones", async () => {
    const { live, errors } = await changed({
      exclusions: "- {region: us-east-1}\n- {}\n- {colour: red}\n- {family: m9}\n",
      discounts: "factor: 2",
      offers: "- {cloud: aws, region: eu-west-1, instanceType: mine, hourlyPriceUsd: 0.01}\n- {cloud: aws",
      prices: "",
    })
    expect(errors).toEqual([
      "/prices: unknown key prices: the known keys are offers, discounts, exclusions, disks, addresses",
      expect.stringMatching(/^\/offers: offers is not valid YAML \(line \d+, column \d+\): /),
      '/discounts: discounts must be a list in YAML: begin each item with "- "',
      "/exclusions/1: exclusions[1]: the value must not be empty",
      expect.stringContaining("/exclusions/2/colour: exclusions[2]: colour is an unknown field"),
      "/exclusions/3: exclusions[3] matches no offer: check its names",
    ])
    expect(best(live)).toEqual(["m7i.large", "us-west-2", 0.1])
    const unknown = await changed({
      offers: "- {cloud: aws, region: eu-west-1, instanceType: mine, hourlyPriceUsd: 0.01}",
    })
    expect(unknown.errors).toEqual([
      "/offers/0: offers[0]: aws mine is not in the price list: architecture, cpu and memoryGib are needed",
    ])
  })

  test("uses the last change, and its removal restores the list", async () => {
    const live = new LiveCatalogue(table)
    const first = live.change({ exclusions: "- {cloud: aws}" })
    const last = live.change({ exclusions: "- {region: us-east-1}" })
    expect(best(live)).toEqual(["m7i.large", "us-east-1", 0.1])
    await Promise.all([first, last])
    expect(best(live)).toEqual(["m7i.large", "us-west-2", 0.1])
    await live.change(undefined)
    expect(best(live)).toEqual(["m7i.large", "us-east-1", 0.1])
  })

  test("applies to refreshed prices, in either order of arrival", async () => {
    const newer = quoted("us-west-2", "onDemand", { "m7i.large": 0.05 })
    const data = { discounts: "- {region: us-west-2, factor: 0.5}", exclusions: "- {region: us-east-1}" }
    const rulesFirst = new LiveCatalogue(table)
    const pricesFirst = new LiveCatalogue(table)
    await Promise.all([rulesFirst.change(data), rulesFirst.refresh([newer])])
    await Promise.all([pricesFirst.refresh([newer]), pricesFirst.change(data)])
    for (const live of [rulesFirst, pricesFirst]) expect(best(live)).toEqual(["m7i.large", "us-west-2", 0.025])
    await rulesFirst.refresh([])
    expect(best(rulesFirst)).toEqual(["m7i.large", "us-west-2", 0.05])
  })

  test("has the offers of a table of single offers", () => {
    const offers = [...new Catalogue(table).offers()]
    expect([...new Catalogue(createTable(offers)).offers()]).toEqual(offers)
  })
})

describe("refreshed prices", () => {
  /** Returns each offer of a machine, as `region way: price of day`. */
  const offersFor = (live: LiveCatalogue, instanceType: string) =>
    [...live.current().offers()]
      .filter((o) => o.instanceType === instanceType)
      .map((o) => `${o.region} ${o.provisioning}: ${o.hourlyPriceUsd} of ${o.priceDate}`)
      .sort()
  async function refreshed(...prices: RegionPrices[]) {
    const live = new LiveCatalogue(buildOffers({ ...LIST, suspects: findSuspects(LIST) }))
    return { live, errors: (await live.refresh(prices)).map(({ detail }) => detail) }
  }

  test("replace the list's prices and days, and add missing prices", async () => {
    const { live, errors } = await refreshed(
      quoted("us-west-2", "onDemand", { "m7i.large": 0.09, "c7g.xlarge": 0.13, "m99.large": 1 }),
      quoted("eu-west-1", "spot", { "c7g.xlarge": 0.065 }),
      quoted("mars-1", "onDemand", { "m7i.large": 0.1 }),
    )
    expect(errors).toEqual([])
    expect(offersFor(live, "m7i.large")).toEqual([
      "eu-west-1 onDemand: 0.11 of 2026-01-01",
      "eu-west-1 spot: 0.05 of 2026-01-01",
      "us-east-1 onDemand: 0.1 of 2026-01-01",
      "us-east-1 spot: 0.04 of 2026-01-01",
      "us-west-2 onDemand: 0.09 of 2026-03-01",
    ])
    expect(offersFor(live, "c7g.xlarge")).toEqual([
      "eu-west-1 onDemand: 0.15 of 2026-01-01",
      "eu-west-1 spot: 0.065 of 2026-03-01",
      "us-east-1 onDemand: 0.14 of 2026-01-15",
      "us-east-1 spot: 0.07 of 2026-01-01",
      "us-west-2 onDemand: 0.13 of 2026-03-01",
      "us-west-2 spot: 0.06 of 2026-01-01",
    ])
    expect(live.current().offerAt(0).minimumBilledSeconds).toBe(60)
  })

  test("have no effect if they are older than the list's", async () => {
    const { live } = await refreshed(quoted("us-east-1", "onDemand", { "m7i.large": 0.09 }, "2025-12-31T23:59:59Z"))
    expect(offersFor(live, "m7i.large")).toContain("us-east-1 onDemand: 0.1 of 2026-01-01")
  })

  test("are rejected if implausible, with one error per cause, and the list's prices stay", async () => {
    const { live, errors } = await refreshed(
      quoted("us-east-1", "onDemand", { "m7i.large": 0.00999, "c7g.xlarge": 1.46 }),
      quoted("us-west-2", "onDemand", { "m7i.large": 0.000_01, "c7g.xlarge": 0 }),
    )
    expect(errors).toEqual([
      "2 prices refused (aws onDemand), less than a tenth of what is usual for the machine: m7i.large in us-east-1 at $0.00999, for example",
      "1 price refused (aws onDemand), more than ten times what is usual for the machine: c7g.xlarge in us-east-1 at $1.46",
      "1 price refused (aws onDemand), no price above 0: c7g.xlarge in us-west-2 at $0",
    ])
    expect(offersFor(live, "m7i.large")).toEqual(
      offersFor(new LiveCatalogue(table), "m7i.large").filter((o) => !o.includes("4294")),
    )
  })

  test("are skipped for spot above on demand, whichever of the two is newer", async () => {
    const { live, errors } = await refreshed(
      quoted("eu-west-1", "spot", { "m7i.large": 0.12 }),
      quoted("us-east-1", "onDemand", { "m7i.large": 0.039 }),
    )
    expect(errors).toEqual([expect.stringMatching(/^2 prices refused \(aws spot\), spot costs more than on demand: /)])
    expect(offersFor(live, "m7i.large")).toEqual([
      "eu-west-1 onDemand: 0.11 of 2026-01-01",
      "us-east-1 onDemand: 0.039 of 2026-03-01",
      "us-west-2 onDemand: 0.1 of 2026-01-01",
    ])
  })

  test("do not add offers that can't be launched", async () => {
    const machines = [{ ...MACHINES[0], instanceType: "p3.2xlarge" }, MACHINES[1]] as typeof MACHINES
    const list = { ...LIST, machines, onDemand: LIST.onDemand.with(1, 0), spot: LIST.spot.with(2, 0), suspects: [] }
    const live = new LiveCatalogue(buildOffers(list))
    const withoutIt = offersFor(live, "p3.2xlarge")
    await live.refresh([quoted("us-east-1", "onDemand", { "p3.2xlarge": 0.09 })])
    expect(withoutIt).toHaveLength(4)
    expect(offersFor(live, "p3.2xlarge")).toEqual(withoutIt)
  })

  test("are encoded and decoded, and other data is rejected", async () => {
    const prices = [
      quoted("us-east-1", "spot", { "m7i.large": 0.0412, "c7g.xlarge": 0.07 }),
      quoted("eu-west-1", "onDemand", { "m7i.large": 0.1 }),
    ]
    expect(await decodePrices(await encodePrices("aws", prices))).toEqual(prices)
    await expect(decodePrices(Buffer.from("prices"))).rejects.toThrow(RangeError)
    const otherFormat = await encodePrices("a".repeat(33), prices)
    await expect(decodePrices(otherFormat)).rejects.toThrow(/\/cloud/)
  })
})
