import { CPU_PATTERN, SIZE_PATTERN } from "./schema.ts"

/**
 * Kubernetes quantities as Berth takes them (a subset of its grammar: no exponents, no sign, sizes
 * always with a suffix). Whole-number arithmetic throughout: `0.1` cores are 100 millicores, exactly.
 */

const CPU = new RegExp(CPU_PATTERN, "u")
const SIZE = new RegExp(SIZE_PATTERN, "u")

/** Bytes in one unit of each suffix; `k` is small and has no capital, as Kubernetes has it. */
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

/** The most vCPUs that a quantity can carry (CPU_PATTERN). */
export const MOST_CORES = 9999

/** A decimal with at most three fraction digits, times a thousand: `1.5` → 1500n. */
function thousandths(decimal: string): bigint {
  const [whole = "", fraction = ""] = decimal.split(".")
  return BigInt(whole) * 1000n + BigInt(fraction.padEnd(3, "0"))
}

function isSuffix(text: string): text is Suffix {
  return Object.hasOwn(BYTES, text)
}

/**
 * vCPUs of a cpu quantity: `2`, `"2"`, `"0.5"` or `"500m"`.
 * @throws RangeError when it is none (the API server and the REST API refuse such objects before)
 */
export function parseCpu(quantity: number | string): number {
  const text = String(quantity)
  if (!CPU.test(text)) {
    throw new RangeError(`${JSON.stringify(quantity)} is no cpu quantity: write 2, "0.5" or "500m"`)
  }
  const millicores = text.endsWith("m") ? BigInt(text.slice(0, -1)) : thousandths(text)
  return Number(millicores) / 1000
}

/**
 * The canonical quantity of a number of vCPUs: 2 → `"2"`, 0.5 → `"500m"`, rounded to a millicore.
 * @throws RangeError below one millicore and above MOST_CORES
 */
export function formatCpu(cores: number): string {
  const millicores = Math.round(cores * 1000)
  if (!(millicores >= 1 && cores <= MOST_CORES)) {
    throw new RangeError(`${cores} vCPUs can't be asked for: at least 0.001, at most ${MOST_CORES}`)
  }
  return millicores % 1000 === 0 ? String(millicores / 1000) : `${millicores}m`
}

/**
 * Bytes of a size such as `4Gi` or `1.5T`, rounded up to a whole byte. Exact up to 2^53 (8 PiB).
 * @throws RangeError when it is no size with a suffix (the API server and the REST API refuse such objects before)
 */
export function parseSize(quantity: string): number {
  const suffix = quantity.replace(/^[0-9.]+/, "")
  if (!SIZE.test(quantity) || !isSuffix(suffix)) {
    throw new RangeError(`${JSON.stringify(quantity)} is no size: write a number and a unit, such as 4Gi or 512Mi`)
  }
  const scaled = thousandths(quantity.slice(0, -suffix.length)) * BYTES[suffix]
  return Number((scaled + 999n) / 1000n)
}

/** GiB of a size such as `4Gi` or `80G`, the unit that offers count memory in. @throws RangeError as parseSize does */
export function gibOf(quantity: string): number {
  return parseSize(quantity) / GIB
}
