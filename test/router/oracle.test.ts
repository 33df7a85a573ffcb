import { beforeAll, describe, expect, test } from "vitest"
import type { Offer } from "../../src/core/apis/offer.ts"
import type { VmSettings } from "../../src/core/apis/vm-settings.ts"
import { buildOffers } from "../../src/market/catalogue/file.ts"
import { partPrices } from "../../src/market/catalogue/parts.ts"
import { readPriceList } from "../../src/market/catalogue/shipped.ts"
import { Catalogue } from "../../src/market/router/catalogue.ts"
import type { Requirements } from "../../src/market/router/requirements.ts"
import { rankPlacements } from "../../src/market/router/route.ts"
import { isNightly } from "../nightly.ts"
import { randomFrom } from "../random.ts"
import { Oracle, type Question } from "./oracle.ts"
import { priceOfParts } from "./oracle-parts.ts"

/** Number of questions. The brute force takes some 5 ms for each. */
const QUESTIONS = isNightly ? 20_000 : 500
const SEED = 20_261_121

/** Prices an hour are rounded to a millionth of a dollar, and so are the costs of three parts. */
const ROUNDED = 2e-6

/** Settings of connections besides one without any. */
const SETTINGS: Readonly<Record<string, readonly VmSettings[]>> = {
  aws: [{ disk: { type: "gp2", size: "30Gi" } }, { publicAddress: false, disk: { size: "2Ti" } }],
  gcp: [{ disk: { type: "pd-ssd", size: "20Gi" } }],
  azure: [{ disk: { type: "Premium_LRS" } }, { disk: { type: "Standard_LRS", size: "100Gi" } }],
}

/** Names that people write, and their meaning in the catalogue. */
const MODELS: [written: string, models: string[], oneCardGib?: number][] = [
  ["T4", ["T4"]],
  ["nvidia-tesla-t4", ["T4"]],
  ["T4G", ["T4G"]],
  ["L4", ["L4"]],
  ["L40S", ["L40S"]],
  ["A10", ["A10"]],
  ["a10g", ["A10G"]],
  ["A100", ["A100", "A100-80GB"]],
  ["a100-80gb", ["A100-80GB"]],
  ["NVIDIA A100 40GB", ["A100"]],
  ["H100", ["H100"]],
  ["H100-80GB", ["H100"], 80],
  ["H100 NVL", ["H100"], 94],
  ["H200", ["H200"]],
  ["B200", ["B200"]],
  ["GB200", ["GB200"]],
  ["V100", ["V100", "V100-32GB"]],
  ["V100-32GB", ["V100-32GB"]],
  ["V100-16GB", ["V100"]],
  ["P100", ["P100"]],
  ["p4", ["P4"]],
  ["RTX-PRO-6000", ["RTX-PRO-6000"]],
  ["rtx pro 6000", ["RTX-PRO-6000"]],
]

describe("a brute force over the whole catalogue", () => {
  let catalogue: Catalogue
  let offers: Offer[]
  let groups: Map<string, Set<string>>
  beforeAll(() => {
    const list = readPriceList()
    catalogue = new Catalogue(buildOffers(list), partPrices())
    offers = [...catalogue.offers()]
    groups = new Map()
    for (const { cloud, name, groups: its, restricted } of list.regions) {
      const names = restricted ? [name] : [name, ...its]
      for (const group of names) groups.set(group, (groups.get(group) ?? new Set()).add(`${cloud}/${name}`))
    }
  })

  test(`finds the same price as the router for ${QUESTIONS} questions`, { timeout: 3_600_000 }, () => {
    const oracle = new Oracle(offers, priceOfParts(SETTINGS))
    const random = randomFrom(SEED)
    const names = [...groups.keys()]
    const launchAccounts = ["aws", "gcp", "azure", "nebius"].flatMap((cloud) => [
      { cloud },
      ...(SETTINGS[cloud] ?? []).map((settings, index) => ({ cloud, connection: `${cloud}-${index}`, settings })),
    ])
    const now = new Date("2026-11-01T00:00:00Z")
    const found = { placed: 0, none: 0 }
    for (let n = 0; n < QUESTIONS; n++) {
      const { requirements, question } = ask(random, names, groups)
      const expected = oracle.cheapest(question)
      const required = { requiredGib: () => question.diskGib, expectedSeconds: question.seconds }
      const context = { launchAccounts, cooldowns: [], room: {}, now, count: 1, ...required }
      const actual = rankPlacements(requirements, catalogue, context)[0]?.totalUsd
      found[expected === undefined ? "none" : "placed"]++
      const isSame =
        expected === undefined
          ? actual === undefined
          : Math.abs((actual ?? -1) - expected) <= ROUNDED * (1 + question.seconds / 3600)
      if (!isSame) expect({ requirements, total: actual }).toEqual({ requirements, total: expected })
    }
    // Questions without an answer prove little: most must have a placement, and some must not.
    expect(found.placed).toBeGreaterThan(QUESTIONS / 2)
    expect(found.none).toBeGreaterThan(QUESTIONS / 100)
  })
})

function ask(random: () => number, names: readonly string[], groups: ReadonlyMap<string, ReadonlySet<string>>) {
  const below = (limit: number) => Math.floor(random() * limit)
  const pick = <T>(items: readonly T[]) => items[below(items.length)] as T
  const chance = (part: number) => random() < part
  const some = <T>(items: readonly T[], most: number) => Array.from({ length: 1 + below(most) }, () => pick(items))
  const cpu = chance(0.5)
    ? pick([0.25, 0.5, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128])
    : Math.round(random() ** 3 * 2e5) / 1e3
  const memoryGib = chance(0.5) ? 2 ** below(11) : random() ** 4 * 4000
  const clouds = chance(0.3) ? some(["aws", "gcp", "azure", "nebius"], 2) : []
  const macros = ["us", "eu", "asia", "ca", "sa", "me", "af", "oceania", "uk", "ch", "eea", "au"]
  const regions = chance(0.5) ? (chance(0.6) ? some(macros, 3) : some(names, 4)) : []
  const architectures = pick([[], [], ["amd64" as const], ["arm64" as const], ["amd64" as const, "arm64" as const]])
  const provisioning = pick(["onDemand", "onDemand", "spot", "spotFirst"] as const)
  const common = { cpu, memoryGib, clouds, architectures, provisioning }
  const cap = chance(0.15) ? { maxHourlyPriceUsd: Math.round(random() ** 4 * 5e7) / 1e6 } : {}
  const gpu = chance(0.4) ? askGpu(pick, chance, below) : undefined
  const requirements: Requirements = { ...common, ...cap, regions, ...(gpu && { gpu: gpu.required }) }
  const places =
    regions.length === 0 ? {} : { places: new Set(regions.flatMap((name) => [...(groups.get(name) ?? [])])) }
  const seconds = pick([10, 60, 600, 3600, 3600, 86_400])
  const diskGib = chance(0.5) ? 0 : pick([20, 60, 130, 500, 3000])
  const question: Question = { ...common, ...cap, ...places, seconds, diskGib, ...(gpu && { gpu: gpu.asked }) }
  return { requirements, question }
}

function askGpu(
  pick: <T>(items: readonly T[]) => T,
  chance: (part: number) => boolean,
  below: (limit: number) => number,
) {
  const [model, models, oneCardGib] = pick(MODELS)
  const vramGib = pick([1, 2, 8, 16, 24, 40, 80, 96, 160, 320, 640, 1000])
  const count = 1 + below(8)
  const card = { models, ...(oneCardGib !== undefined && { oneCardGib }) }
  if (chance(0.3)) return { required: { vramGib }, asked: { vramGib } }
  if (chance(0.5)) return { required: { model, count }, asked: { ...card, count } }
  if (chance(0.5)) return { required: { model, vramGib }, asked: { ...card, vramGib } }
  return { required: { model, count, vramGib }, asked: { ...card, count, vramGib } }
}
