import { describe, expect, it } from "vitest"
import { createCatalogue } from "./catalogue.ts"
import { memo } from "./memo.ts"

describe("a memo", () => {
  it("computes a result once for each catalogue and key", () => {
    const remember = memo<{ of: string }>()
    const [one, other] = [createCatalogue([]), createCatalogue([])] as const
    const first = remember(one, ["a", 1], () => ({ of: "first" }))
    expect(remember(one, ["a", 1], () => ({ of: "again" }))).toBe(first)
    expect(remember(one, ["a", 2], () => ({ of: "other key" })).of).toBe("other key")
    expect(remember(other, ["a", 1], () => ({ of: "other catalogue" })).of).toBe("other catalogue")
  })

  it("keeps the latest 100 results", () => {
    const remember = memo<{ key: number }>()
    const catalogue = createCatalogue([])
    for (let key = 0; key <= 100; key++) remember(catalogue, [key], () => ({ key }))
    expect(remember(catalogue, [100], () => ({ key: -1 })).key).toBe(100)
    expect(remember(catalogue, [0], () => ({ key: -1 })).key).toBe(-1)
  })
})
