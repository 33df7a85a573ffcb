import { describe, expect, test } from "vitest"
import type { DiskPrice } from "../../clouds/definition.ts"
import { DEFINITIONS, VM_CLOUDS } from "../../clouds/definitions.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { costOf, sumOfParts } from "../../core/apis/price.ts"
import { createCatalogue } from "../router/catalogue.ts"
import { LiveCatalogue } from "./live.ts"
import { parseOverlay } from "./overlay.ts"
import { partPrices } from "./parts.ts"
import { readPriceList } from "./shipped.ts"

const MACHINE = { architecture: "amd64", cpu: 2, memoryGib: 8, minimumBilledSeconds: 60 } as const
const PUBLIC = { publicAddress: true }

function offer(cloud: string, region: string, instanceType: string, changes: Partial<Offer> = {}): Offer {
  return { ...MACHINE, provisioning: "onDemand", cloud, region, instanceType, hourlyPriceUsd: 0.1, ...changes }
}

const H100 = { gpu: { model: "H100", count: 8, vramGib: 80 } }
const RTX = { gpu: { model: "RTX-PRO-6000", count: 8, vramGib: 96 } }

const pricesOf = (of: Offer, vm = {}, overlay = {}) =>
  createCatalogue([of], undefined, partPrices(overlay)).pricesOf(of, { ...PUBLIC, ...vm })

describe("the cost of one VM", () => {
  // The price lists of EC2, EBS and VPC: an m5.large in us-east-1, 50 GB of gp3 at $0.08 a month, $0.005 an hour.
  test("is that of its published parts on aws", () => {
    const prices = pricesOf(offer("aws", "us-east-1", "m5.large", { hourlyPriceUsd: 0.096 }))
    expect(prices).toEqual({ machineUsd: 0.096, diskUsd: 0.005479, addressUsd: 0.005 })
    expect(sumOfParts(prices)).toBeCloseTo(0.096 + (50 * 0.08) / 730 + 0.005, 6)
  })

  // Cloud Billing Catalog: an n2-standard-4 in us-central1, 50 GiB of pd-balanced at $0.10 a month, $0.005 an hour.
  test("is that of its published parts on gcp", () => {
    const prices = pricesOf(offer("gcp", "us-central1", "n2-standard-4", { hourlyPriceUsd: 0.194236 }))
    expect(sumOfParts(prices)).toBeCloseTo(0.194236 + (50 * 0.1) / 730 + 0.005, 6)
  })

  // Retail price API: a D4s_v3 in East US, the disk E6 (64 GiB) at $4.80 a month, a Standard IPv4 at $0.005 an hour.
  test("is that of its published parts on azure", () => {
    const prices = pricesOf(offer("azure", "eastus", "Standard_D4s_v3", { hourlyPriceUsd: 0.192 }))
    expect(sumOfParts(prices)).toBeCloseTo(0.192 + 4.8 / 730 + 0.005, 6)
  })

  test("is that of the machine alone on local", () => {
    expect(pricesOf(offer("local", "local", "local-2"))).toEqual({ machineUsd: 0.1, diskUsd: 0, addressUsd: 0 })
  })
})

describe("the price of a disk", () => {
  test.each<[string, Offer, object, number]>([
    [
      "of a machine with a GPU is that of its larger disk",
      offer("aws", "us-east-1", "g6.xlarge", { gpu: { model: "L4", count: 1, vramGib: 24 } }),
      {},
      100 * 0.08,
    ],
    ["has the type of the connection", offer("aws", "us-east-1", "m5.large"), { disk: { type: "gp2" } }, 50 * 0.1],
    [
      "has the size that the job requires",
      offer("aws", "us-east-1", "m5.large"),
      { disk: { requiredGib: 200 } },
      200 * 0.08,
    ],
    ["in Paris is that of Paris", offer("aws", "eu-west-3", "m5.large"), {}, 50 * 0.0928],
    [
      "on Azure is that of the next larger size",
      offer("azure", "eastus", "Standard_D4s_v3"),
      { disk: { sizeGib: 130 } },
      19.2,
    ],
    [
      "on Azure has the type that the machine takes",
      offer("azure", "eastus", "Standard_D4_v3"),
      { disk: { type: "Premium_LRS" } },
      4.8,
    ],
    [
      "of Hyperdisk is that of its capacity, as operations and throughput are included",
      offer("gcp", "us-central1", "n4-standard-2"),
      { disk: { type: "pd-ssd", sizeGib: 1000 } },
      1000 * 0.08,
    ],
    [
      "of Hyperdisk elsewhere is 20 % below a balanced disk",
      offer("gcp", "europe-west4", "n4-standard-2"),
      {},
      50 * 0.088,
    ],
    [
      "of an expensive machine on AWS has 375 MiB/s at $0.04",
      offer("aws", "us-east-1", "p5.48xlarge", H100),
      {},
      8 + 15,
    ],
    [
      "of an expensive machine on Google Cloud has 360 MiB/s at $0.04",
      offer("gcp", "us-central1", "g4-standard-384", RTX),
      {},
      200 * 0.08 + 14.4,
    ],
    [
      "of an expensive machine on Azure is a P15",
      offer("azure", "eastus", "Standard_ND96isr_H100_v5", H100),
      {},
      38.02,
    ],
  ])("follows the published parts: a disk %s", (_, of, vm, monthlyUsd) => {
    expect(pricesOf(of, vm).diskUsd).toBeCloseTo(monthlyUsd / 730, 6)
  })
})

describe("a disk without a published price", () => {
  const groupsOf = () => ["eu"]
  const priceOf = (of: Offer, isStrict: boolean) =>
    createCatalogue([of], groupsOf, partPrices()).pricesOf(of, { ...PUBLIC, isStrict }).diskUsd * 730

  test.each<[string, Offer, number, number]>([
    ["AWS", offer("aws", "eu-central-2", "m5.large"), 50 * 0.0952, 50 * 0.152],
    ["Google Cloud", offer("gcp", "europe-west99", "n2-standard-2"), 50 * 0.154, 50 * 0.16],
    ["Google Cloud's Hyperdisk", offer("gcp", "europe-west4", "n4-standard-2"), 50 * 0.088, 50 * 0.11],
    ["Azure", offer("azure", "westeurope", "Standard_D4s_v3"), 4.8, 4.8 * (17.92 / 9.6)],
  ])("costs what near regions cost, and most under a strict limit: %s", (_, of, near, most) => {
    expect([priceOf(of, false), priceOf(of, true)]).toEqual([expect.closeTo(near, 2), expect.closeTo(most, 2)])
  })

  test("costs the same under a strict limit where it is published", () => {
    for (const each of [offer("aws", "eu-west-3", "m5.large"), offer("azure", "eastus", "Standard_D4s_v3")]) {
      expect(priceOf(each, true)).toBe(priceOf(each, false))
    }
  })

  const types = VM_CLOUDS.flatMap((cloud) =>
    Object.entries(DEFINITIONS[cloud].vms.diskPrices).map(([type, price]): [string, string, DiskPrice] => [
      cloud,
      type,
      price,
    ]),
  )
  test.each(types)("has the highest price of its macro-region: %s %s", (cloud, _, { byPrice, elsewhere = {} }) => {
    const highest: Record<string, number> = {}
    for (const { cloud: of, name, groups } of readPriceList().regions) {
      const listed = byPrice.find(([, names]) => of === cloud && names.split(" ").includes(name))
      const group = groups[0] ?? ""
      if (listed !== undefined) highest[group] = Math.max(highest[group] ?? 0, listed[0])
    }
    expect(elsewhere).toEqual(highest)
  })
})

describe("a public address", () => {
  const spot = { provisioning: "spot" } as const
  test.each<[string, Offer, number]>([
    ["AWS", offer("aws", "us-east-1", "m5.large", spot), 0.005],
    ["Azure", offer("azure", "eastus", "Standard_D4s_v3", spot), 0.005],
    ["Google Cloud", offer("gcp", "us-central1", "n2-standard-4"), 0.005],
    ["Google Cloud, of a spot VM", offer("gcp", "us-central1", "n2-standard-4", spot), 0.0025],
  ])("costs %s", (_, of, usd) => {
    expect(pricesOf(of).addressUsd).toBe(usd)
  })

  test("has an own price for one provisioning", () => {
    const { overlay } = parseOverlay({ addresses: "- {cloud: gcp, provisioning: spot, hourlyPriceUsd: 0.001}\n" })
    const [onDemand, cheaper] = [{}, spot].map((bought) => offer("gcp", "us-central1", "n2-standard-4", bought))
    expect([onDemand, cheaper].map((of) => pricesOf(of as Offer, {}, overlay).addressUsd)).toEqual([0.005, 0.001])
  })
})

test("a VM without a public address pays none", () => {
  expect(pricesOf(offer("gcp", "us-central1", "n2-standard-4"), { publicAddress: false }).addressUsd).toBe(0)
})

describe("an installation's own prices", () => {
  const rules = (data: Record<string, string>) => parseOverlay(data).overlay
  const aws = offer("aws", "us-east-1", "m5.large")

  test("come before the list's, and the last one that matches holds", () => {
    const disks = "- {cloud: aws, gibMonthUsd: 0.073}\n- {cloud: aws, region: us-*, type: gp3, gibMonthUsd: 0.0365}\n"
    const own = rules({ disks, addresses: "- {cloud: aws, hourlyPriceUsd: 0.001}\n" })
    expect(pricesOf(aws, {}, own)).toEqual({ machineUsd: 0.1, diskUsd: 0.0025, addressUsd: 0.001 })
    expect(pricesOf(aws, { disk: { type: "gp2" } }, own).diskUsd).toBe(0.005)
    const gcp = offer("gcp", "us-central1", "n2-standard-4")
    expect(pricesOf(gcp, {}, own)).toEqual(pricesOf(gcp))
  })

  test("count on Azure the size that is billed", () => {
    const own = rules({ disks: "- {cloud: azure, gibMonthUsd: 0.73}\n" })
    expect(pricesOf(offer("azure", "westeurope", "Standard_D4s_v3"), { disk: { sizeGib: 100 } }, own).diskUsd).toBe(
      0.128,
    )
  })

  test("take effect with a change of the ConfigMap, which reports a rule without effect", async () => {
    const live = new LiveCatalogue(createCatalogue([aws]).table)
    const errors = await live.change({ disks: "- {gibMonthUsd: 0.73}\n- {cloud: aws, region: mars, gibMonthUsd: 1}\n" })
    expect(live.current().pricesOf(aws, PUBLIC).diskUsd).toBe(0.05)
    expect(errors).toEqual([{ pointer: "/disks/1", detail: "disks[1] matches no region: check its names" }])
  })
})

describe("the cost of a VM", () => {
  const prices = { machineUsd: 0.36, diskUsd: 0.036, addressUsd: 0.0036 }

  test("counts each part by the second, and at least the shortest billed time", () => {
    expect(costOf(prices, { seconds: 100.2, minimumBilledSeconds: 60 })).toEqual({
      machineUsd: 0.0101,
      diskUsd: 0.00101,
      addressUsd: 0.000101,
    })
    expect(sumOfParts(costOf(prices, { seconds: 1, minimumBilledSeconds: 60 }))).toBe(0.00666)
  })

  test("still has disk and address if the machine is free", () => {
    const cost = costOf(prices, { seconds: 100, minimumBilledSeconds: 60, isMachineFree: true })
    expect(cost).toEqual({ machineUsd: 0, diskUsd: 0.001, addressUsd: 0.0001 })
  })
})
