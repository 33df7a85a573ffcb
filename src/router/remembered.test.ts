import { describe, expect, it } from "vitest"
import { remembering } from "./remembered.ts"

describe("remembered results", () => {
  it("are computed once for each catalogue and key", () => {
    const remember = remembering<{ of: string }>()
    const [one, other] = [{}, {}]
    const first = remember(one, ["a", 1], () => ({ of: "first" }))
    expect(remember(one, ["a", 1], () => ({ of: "again" }))).toBe(first)
    expect(remember(one, ["a", 2], () => ({ of: "other key" })).of).toBe("other key")
    expect(remember(other, ["a", 1], () => ({ of: "other catalogue" })).of).toBe("other catalogue")
  })

  it("are forgotten beyond the latest 100", () => {
    const remember = remembering<{ key: number }>()
    const catalogue = {}
    for (let key = 0; key <= 100; key++) remember(catalogue, [key], () => ({ key }))
    expect(remember(catalogue, [100], () => ({ key: -1 })).key).toBe(100)
    expect(remember(catalogue, [0], () => ({ key: -1 })).key).toBe(-1)
  })
})
