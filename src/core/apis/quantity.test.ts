import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { formatCpu, MOST_CORES, parseCpu, parseGib, parseSize } from "./quantity.ts"

describe("cpu quantities", () => {
  test.each([
    [2, 2],
    ["2", 2],
    ["500m", 0.5],
    ["0.5", 0.5],
    ["0.1", 0.1],
    ["0.001", 0.001],
    ["1500m", 1.5],
    ["9999", 9999],
  ])("%j is %j vCPUs", (quantity, cores) => {
    expect(parseCpu(quantity)).toBe(cores)
  })

  test.each([0, -1, 0.0001, Number.NaN, "0", "0m", "", "2Gi", "1e3", " 2", "2\n", "٢"])("%j is refused", (quantity) => {
    expect(() => parseCpu(quantity)).toThrow(RangeError)
  })

  test.each([
    [2, "2"],
    [0.5, "500m"],
    [1.5, "1500m"],
    [0.1 + 0.2, "300m"],
    [0.001, "1m"],
  ])("%d vCPUs are written %j", (cores, quantity) => {
    expect(formatCpu(cores)).toBe(quantity)
  })

  test.each([0, -1, 0.0004, 10_000, Number.NaN, Number.POSITIVE_INFINITY])("%d vCPUs can't be written", (cores) => {
    expect(() => formatCpu(cores)).toThrow(RangeError)
  })

  test("every number of millicores survives being written and read", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: MOST_CORES * 1000 }), (millicores) => {
        const cores = millicores / 1000
        expect(parseCpu(formatCpu(cores))).toBe(cores)
        expect(parseCpu(`${millicores}m`)).toBe(cores)
        expect(parseCpu(cores)).toBe(cores)
      }),
    )
  })
})

describe("sizes", () => {
  test.each([
    ["4Gi", 4 * 1024 ** 3],
    ["512Mi", 512 * 1024 ** 2],
    ["1.5Ti", 1.5 * 1024 ** 4],
    ["80G", 80e9],
    ["1k", 1000],
    ["0.001k", 1],
    ["0.001Ki", 2],
    ["0.1M", 100_000],
  ])("%s is %d bytes", (quantity, bytes) => {
    expect(parseSize(quantity)).toBe(bytes)
  })

  test.each(["24GB", "4gi", "4", "0Gi", "-1Gi", "1e3", "", "Gi", "4 Gi", "1.2345Gi", "4GiB", "1K"])(
    "%j is refused",
    (quantity) => {
      expect(() => parseSize(quantity)).toThrow(RangeError)
    },
  )

  test("a size in GiB is what it says", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 999_999 }), (thousandths) => {
        const gib = thousandths / 1000
        expect(parseGib(`${gib}Gi`)).toBeCloseTo(gib, 8)
        expect(parseGib(`${gib}Ti`)).toBeCloseTo(gib * 1024, 8)
      }),
    )
    expect(parseGib("4Gi")).toBe(4)
    expect(parseGib("80G")).toBeCloseTo(74.506, 3)
  })
})
