import { CPU_PATTERN, SIZE_PATTERN } from "./schema.ts"

/**
 * Kubernetes quantities, a subset of its grammar: no exponents, no sign, and sizes always with a suffix.
 * All arithmetic is in whole numbers: `0.1` cores are exactly 100 millicores.
 */

const CPU = new RegExp(CPU_PATTERN, "u")
const SIZE = new RegExp(SIZE_PATTERN, "u")

/** Bytes in one unit of each suffix. `k` is lower case, as in Kubernetes. */
const BYTES = {
  k: 1000n,
  M: 1000n ** 2n,
  G: 1000n ** 3n,
  T: 1000n ** 4n,
  Ki: 1024n,
  Mi: 1024n ** 2n,
  Gi: 1024n ** 3n,
  Ti: 1024n ** 4n,
} as const
type Suffix = keyof typeof BYTES

const GIB = 1024 ** 3

/** Maximum vCPUs of a quantity (CPU_PATTERN). */
export const MOST_CORES = 9999

/** Returns a decimal with at most three fraction digits, times a thousand: `1.5` → 1500n. */
function thousandths(decimal: string): bigint {
  const [whole = "", fraction = ""] = decimal.split(".")
  return BigInt(whole) * 1000n + BigInt(fraction.padEnd(3, "0"))
}

function isSuffix(text: string): text is Suffix {
  return Object.hasOwn(BYTES, text)
}

/**
 * Returns the vCPUs of a cpu quantity: `2`, `"2"`, `"0.5"` or `"500m"`.
 * @throws RangeError if it isn't a cpu quantity; the API server and the REST API reject such objects
 */
export function parseCpu(quantity: number | string): number {
  const text = String(quantity)
  if (!CPU.test(text)) {
    throw new RangeError(`${JSON.stringify(quantity)} is not a cpu quantity: write 2, "0.5" or "500m"`)
  }
  const millicores = text.endsWith("m") ? BigInt(text.slice(0, -1)) : thousandths(text)
  return Number(millicores) / 1000
}

/**
 * Returns the canonical quantity of a number of vCPUs: 2 → `"2"`, 0.5 → `"500m"`, rounded to a millicore.
 * @throws RangeError below one millicore and above MOST_CORES
 */
export function formatCpu(cores: number): string {
  const millicores = Math.round(cores * 1000)
  if (!(millicores >= 1 && cores <= MOST_CORES)) {
    throw new RangeError(`${cores} vCPUs are not allowed: use 0.001 to ${MOST_CORES}`)
  }
  return millicores % 1000 === 0 ? String(millicores / 1000) : `${millicores}m`
}

/**
 * Returns the bytes of a size such as `4Gi` or `1.5T`, rounded up to a whole byte. Exact up to 2^53 (8 PiB).
 * @throws RangeError if it isn't a size with a suffix; the API server and the REST API reject such objects
 */
export function parseSize(quantity: string): number {
  const suffix = quantity.replace(/^[0-9.]+/, "")
  if (!SIZE.test(quantity) || !isSuffix(suffix)) {
    throw new RangeError(`${JSON.stringify(quantity)} is not a size: write a number and a unit, such as 4Gi or 512Mi`)
  }
  const scaled = thousandths(quantity.slice(0, -suffix.length)) * BYTES[suffix]
  return Number((scaled + 999n) / 1000n)
}

/** Returns the GiB of a size such as `4Gi` or `80G`, the unit of memory in offers. @throws RangeError like parseSize */
export function parseGib(quantity: string): number {
  return parseSize(quantity) / GIB
}
