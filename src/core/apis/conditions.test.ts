import { describe, expect, test } from "vitest"
import { cutTo, findCondition, setCondition } from "./conditions.ts"
import { LIMITS } from "./field-limits.ts"

const first = new Date("2026-01-02T03:04:05.678Z")
const later = new Date("2026-01-02T04:00:00Z")

describe("setCondition", () => {
  const placed = { type: "Placed", status: "False", reason: "Queued", message: "waits" } as const
  const ready = { type: "Ready", status: "Unknown", reason: "Queued", message: "" } as const
  const conditions = setCondition(setCondition(undefined, placed, 1, first), ready, 1, first)

  test("adds a new condition at the end", () => {
    expect(conditions.map((condition) => condition.type)).toEqual(["Placed", "Ready"])
    expect(conditions[0]).toEqual({ ...placed, observedGeneration: 1, lastTransitionTime: "2026-01-02T03:04:05Z" })
  })

  test("keeps the transition time while the status stays, whatever else changes", () => {
    const next = setCondition(conditions, { ...placed, reason: "NoCapacity", message: "full" }, 2, later)
    expect(findCondition(next, "Placed")).toEqual({
      type: "Placed",
      status: "False",
      reason: "NoCapacity",
      message: "full",
      observedGeneration: 2,
      lastTransitionTime: "2026-01-02T03:04:05Z",
    })
  })

  test("moves the transition time with the status, and keeps the order and the others", () => {
    const next = setCondition(conditions, { ...placed, status: "True" }, 1, later)
    expect(next[0]?.lastTransitionTime).toBe("2026-01-02T04:00:00Z")
    expect(next[1]).toBe(conditions[1])
    expect(next).toHaveLength(2)
  })

  test("changes nothing of what it was given", () => {
    const frozen = Object.freeze(conditions.map((condition) => Object.freeze({ ...condition })))
    expect(() => setCondition(frozen, { ...placed, status: "True" }, 1, later)).not.toThrow()
  })

  test("cuts a message that the API server would refuse", () => {
    const next = setCondition([], { ...placed, message: "x".repeat(LIMITS.message + 1) }, 1, first)
    expect(next[0]?.message).toHaveLength(LIMITS.message)
  })
})

test("cutTo counts characters, not UTF-16 units", () => {
  expect(cutTo("🚢🚢🚢", 3)).toBe("🚢🚢🚢")
  expect(cutTo("🚢🚢🚢", 2)).toBe("🚢…")
  expect(cutTo("abc", 2)).toBe("a…")
})
