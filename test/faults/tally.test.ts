import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { describe, expect, test } from "vitest"
import { tablesPage } from "../../scripts/reliability.ts"
import type { Point } from "./crash-gate.ts"
import type { InjectedFault } from "./crash-run.ts"
import { faultsOf } from "./crash-sample.ts"
import { shareOf, type TallyFile, withEarlier } from "./tally.ts"

test("docs/reliability/tables.md has the recorded results; to update it, run scripts/reliability.ts", async () => {
  const page = await readFile(join(import.meta.dirname, "../../docs/reliability/tables.md"), "utf8")
  expect(await tablesPage()).toBe(page)
})

const faults = Array.from({ length: 200 }, (_, nth): InjectedFault => {
  return { point: { call: "patch Job", nth, effect: "write" } as Point, fault: nth % 2 === 0 ? "before" : "lost" }
})

test("the slices of a seed have each fault once, and another seed has others", () => {
  const slices = [1, 2, 3, 4, 5].map((number) => faultsOf({ number, of: 5 }, faults, "a"))
  expect(new Set(slices.flat())).toEqual(new Set(faults))
  expect(slices.flat()).toHaveLength(200)
  for (const slice of slices) expect(slice.length).toBeGreaterThan(20)
  expect(faultsOf({ number: 1, of: 5 }, faults, "b")).not.toEqual(slices[0])
})

describe("the results of slices", () => {
  const none = { duplicates: 0, leaks: 0, lost: 0, stuck: 0, killed: 0 }
  const fileOf = (slice: string, tried: number, seed = 1): TallyFile => {
    return {
      title: "t",
      seed,
      points: 100,
      slices: { [slice]: tried },
      rows: [{ faults: "dies", tried, ...none, lost: 1 }],
    }
  }

  test("add up, and show the share that was tried", () => {
    const both = withEarlier(fileOf("2/4", 20), fileOf("1/4", 25))
    expect(both.rows).toEqual([{ faults: "dies", tried: 45, ...none, lost: 2 }])
    expect(both.slices).toEqual({ "1/4": 25, "2/4": 20 })
    expect(shareOf(both)).toBe(45)
    expect(shareOf({ title: "t", seed: 1, rows: [] })).toBe(100)
  })

  test("count once if a slice is repeated, and replace those of another seed or division", () => {
    expect(withEarlier(fileOf("1/4", 20), fileOf("1/4", 25))).toEqual(fileOf("1/4", 25))
    expect(withEarlier(fileOf("1/4", 20, 2), fileOf("1/4", 25))).toEqual(fileOf("1/4", 20, 2))
    expect(withEarlier(fileOf("1/8", 20), fileOf("1/4", 25))).toEqual(fileOf("1/8", 20))
  })
})
