import { emptyTable, type Machine, type OfferTable, type Region } from "../src/market/router/table.ts"
import { randomFrom } from "../test/random.ts"

const CLOUDS = ["aws", "gcp", "azure"] as const
const SIZES = [0.5, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192]
/** GiB a vCPU. */
const SHAPES = [1, 2, 4, 6.5, 8, 16, 28]
const CARDS = [
  ["T4", 16, 0.35],
  ["L4", 24, 0.5],
  ["A10G", 24, 0.7],
  ["L40S", 48, 1.3],
  ["A100", 40, 2.6],
  ["A100-80GB", 80, 3.7],
  ["H100", 80, 8],
  ["H200", 141, 9],
] as const
const MACRO_REGIONS = ["us", "eu", "asia", "ca", "sa", "me", "af", "oceania"]
const REGIONS_OF_A_CLOUD = 60

/** Returns offers like those of clouds: families in sizes, with some more expensive regions, on demand and as spot. */
export function syntheticTable(offers: number): OfferTable {
  const random = randomFrom(offers)
  const pick = <T>(items: readonly T[]) => items[Math.floor(random() * items.length)] as T
  const regions = CLOUDS.flatMap((cloud) =>
    Array.from({ length: REGIONS_OF_A_CLOUD }, (_, n): Region & { level: number } => {
      const macro = MACRO_REGIONS[n % MACRO_REGIONS.length] as string
      return { cloud, name: `${cloud}-${macro}-${n}`, groups: [macro], level: 0.9 + random() * 0.8 }
    }),
  )
  const machines = Array.from({ length: Math.ceil(offers / REGIONS_OF_A_CLOUD / 2) }, (_, n) =>
    machine(n, pick(CLOUDS), { random, pick }),
  )
  const places = regions.map((_, region) => ({ region }))
  const table = emptyTable(offers, { machines: machines.map(({ sold }) => sold), regions, places })
  for (let row = 0; row < offers; row++) {
    const number = Math.floor(row / (REGIONS_OF_A_CLOUD * 2))
    const { sold, usd } = machines[number] as (typeof machines)[number]
    const place = CLOUDS.indexOf(sold.cloud as "aws") * REGIONS_OF_A_CLOUD + (row % REGIONS_OF_A_CLOUD)
    // All regions on demand, then all as spot: adjacent, as in the shipped list.
    const spot = Math.floor(row / REGIONS_OF_A_CLOUD) % 2
    const part = spot === 1 ? 0.2 + random() * 0.5 : 1
    table.machine[row] = number
    table.place[row] = place
    table.spot[row] = spot
    table.hourlyPriceUsd[row] = Math.round(usd * part * (regions[place]?.level ?? 1) * 1e6) / 1e6
    table.minimumBilledSeconds[row] = 60
  }
  return table
}

interface Chance {
  random: () => number
  pick: <T>(items: readonly T[]) => T
}

function machine(number: number, cloud: string, { random, pick }: Chance): { sold: Machine; usd: number } {
  const cpu = pick(SIZES)
  const memoryGib = cpu * pick(SHAPES)
  const architecture = random() < 0.15 ? ("arm64" as const) : ("amd64" as const)
  const card = random() < 0.05 ? pick(CARDS) : undefined
  const count = pick([0.5, 1, 1, 2, 4, 8])
  const usd = (cpu * 0.03 + memoryGib * 0.004 + (card === undefined ? 0 : card[2] * count)) * (0.8 + random() * 0.6)
  const gpu = card === undefined ? {} : { gpu: { model: card[0], count, vramGib: card[1] } }
  return { sold: { cloud, instanceType: `x${number}.${cpu}`, architecture, cpu, memoryGib, ...gpu }, usd }
}
