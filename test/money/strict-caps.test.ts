import { describe, expect, test } from "vitest"
import type { SpendCaps } from "../../src/core/apis/caps.ts"
import { isNightly } from "../nightly.ts"
import { World } from "./world.ts"

/** Amounts are rounded to a millionth, some hundred times. */
const ROUNDING_USD = 1e-3

const BEGIN = Date.parse("2026-10-28T00:00:00Z") / 1000

/** Returns a generator of numbers in [0, 1) that depend only on the seed. */
function randomOf(seed: number): () => number {
  let state = seed * 2_654_435_761 + 1
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

function worldOf(seed: number, caps: Partial<Record<"project" | "organization" | "installation", SpendCaps>>): World {
  const world = new World({ caps, random: randomOf(seed), begin: BEGIN })
  for (let step = 0; step < 120; step++) world.step()
  world.finish()
  return world
}

const sum = (bills: ReadonlyMap<string, number>) => [...bills.values()].reduce((total, usd) => total + usd, 0)
const spent = ({ statements }: World, amountOf: (status: World["statements"][number]["status"]) => number) =>
  statements.reduce((total, { status }) => total + amountOf(status), 0)

const SEEDS = Array.from({ length: isNightly ? 300 : 3 }, (_, seed) => seed)

describe("caps and budgets, whatever happens to placements, VMs, prices and the operator", () => {
  test.each(SEEDS)("no strict cap is exceeded by what the clouds bill: seed %i", (seed) => {
    const strict = (maxMonthlyUsd: number) => ({ maxMonthlyUsd, reserve: "strict" as const })
    const world = worldOf(seed, { project: strict(8), organization: strict(12), installation: { maxMonthlyUsd: 500 } })
    expect(world.vms.length).toBeGreaterThan(3)
    for (const namespace of ["team", "lab"]) {
      for (const usd of world.bills((of) => of === namespace).values())
        expect(usd).toBeLessThanOrEqual(8 + ROUNDING_USD)
    }
    for (const usd of world.bills().values()) expect(usd).toBeLessThanOrEqual(12 + ROUNDING_USD)
  })

  test.each(SEEDS)("no job costs more than its maxCostUsd: seed %i", (seed) => {
    const world = worldOf(seed, {})
    const limited = world.jobs.filter(({ spec }) => spec.maxCostUsd !== undefined)
    expect(limited.length).toBeGreaterThan(3)
    for (const { metadata, spec } of limited) {
      const usd = sum(world.bills(undefined, ({ launch }) => launch.startsWith(`${metadata.uid}-`)))
      expect(usd).toBeLessThanOrEqual((spec.maxCostUsd ?? 0) + ROUNDING_USD)
    }
  })

  test.each(SEEDS)("Statements are the clouds' bills, apart from prices of spot machines: seed %i", (seed) => {
    const world = worldOf(seed, {})
    const billed = sum(world.bills())
    expect(billed).toBeGreaterThan(1)
    const onDemand = sum(world.bills(undefined, ({ isSpot }) => !isSpot))
    expect(spent(world, (status) => status?.byProvisioning?.["onDemand"] ?? 0)).toBeCloseTo(onDemand, 3)
    // Each machine at the price of its beginning, as the placement expected it.
    for (const vm of world.vms) vm.machinePrices = vm.machinePrices.slice(0, 1)
    expect(spent(world, (status) => status?.spentUsd ?? 0)).toBeCloseTo(sum(world.bills()), 3)
  })

  test("caps make jobs wait, and the messages say why", () => {
    const world = worldOf(3, { project: { maxMonthlyUsd: 3, reserve: "strict" } })
    expect(
      [...world.waits].some((message) => /cap of \$3 a month leaves \$[\d.]+: \$[\d.]+ is spent/.test(message)),
    ).toBe(true)
  })
})

describe("an expected cap that cancels", () => {
  test.each(SEEDS.slice(0, isNightly ? 4 : 2))("is exceeded only while the operator is down: seed %i", (seed) => {
    const caps = { maxMonthlyUsd: 3, onExceeded: "cancel" as const }
    const world = worldOf(seed, { installation: caps })
    const without = worldOf(seed, {})
    expect(sum(world.bills())).toBeLessThan(sum(without.bills()))
  })
})
