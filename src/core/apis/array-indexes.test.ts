import { describe, expect, test } from "vitest"
import { countIndexes, hasIndex, INDEXES_PATTERN, indexesError, indexesIn, indexText } from "./array-indexes.ts"

describe("sets of indexes", () => {
  test.each([
    [[], ""],
    [[0], "0"],
    [[44, 0, 1, 2], "0-2,44"],
    [[3, 5, 7, 8], "3,5,7-8"],
  ])("writes %j as %j and reads it again", (indexes, text) => {
    expect(indexText(new Set(indexes))).toBe(text)
    expect([...indexesIn(text, 100)]).toEqual([...indexes].sort((a, b) => a - b))
    expect(countIndexes(text)).toBe(indexes.length)
    expect(text).toMatch(new RegExp(INDEXES_PATTERN))
  })

  test("reads only the indexes of the array", () => {
    expect([...indexesIn("2-9999", 4)]).toEqual([2, 3])
    expect(indexesIn(undefined, 4).size).toBe(0)
  })

  test("finds an index in its range", () => {
    expect([0, 2, 3, 44].map((index) => hasIndex("0-2,44", index))).toEqual([true, true, false, true])
    expect(hasIndex(undefined, 0)).toBe(false)
  })

  test.each([
    ["", "must be indexes and ranges such as 0-41,44"],
    ["1,,2", "must be indexes and ranges such as 0-41,44"],
    ["-1", "must be indexes and ranges such as 0-41,44"],
    ["4-2", "has the range 4-2, whose last index is less than its first"],
    ["0-10", "has the index 10; the indexes of the array are 0 to 9"],
  ])("explains the error of %j", (text, error) => {
    expect(indexesError(text, 10)).toBe(error)
  })

  test("has no error for indexes of the array", () => {
    expect(indexesError("0-3,9", 10)).toBeUndefined()
  })

  test("keeps every second of 10,000 indexes in few bytes", () => {
    const text = indexText(Array.from({ length: 5000 }, (_, index) => 2 * index))
    expect(text.length).toBeLessThan(25_000)
    expect(indexesIn(text, 10_000).size).toBe(5000)
  })
})
