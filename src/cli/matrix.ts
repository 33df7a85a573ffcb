import { usageError } from "./exit.ts"

/** Number of jobs of an array, or the values of its variables. */
export type ArrayShape = { size: number } | { matrix: Record<string, string[]> }

/** Largest number of values that a range may have: the API rejects more jobs. */
const LONGEST_RANGE = 10_000

/**
 * Returns the shape in the text of `--array`: a number such as `100`, or variables such as `lr=0.1,0.01 seed=1..50`.
 * @throws Failure that says how to write it
 */
export function arrayShapeOf(text: string): ArrayShape {
  const words = text.split(/\s+/).filter((word) => word !== "")
  const [only = ""] = words
  if (words.length === 1 && /^[1-9]\d*$/.test(only)) return { size: Number(only) }
  const matrix = new Map<string, string[]>()
  for (const word of words) {
    const at = word.indexOf("=")
    const name = word.slice(0, Math.max(0, at))
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      throw usageError(`--array ${text}: ${word} is no variable. Write a number, or NAME=VALUES such as lr=0.1,0.01.`)
    }
    if (matrix.has(name)) throw usageError(`--array ${text}: ${name} is there twice.`)
    matrix.set(
      name,
      word
        .slice(at + 1)
        .split(",")
        .flatMap((value) => valuesOf(value)),
    )
  }
  if (matrix.size === 0) throw usageError("--array is empty. Write a number, or NAME=VALUES such as lr=0.1,0.01.")
  return { matrix: Object.fromEntries(matrix) }
}

/**
 * Returns the values of one item: `1..50` is a range of whole numbers, `01..50` one of two digits each, as in a shell.
 * Anything else without `..` is itself.
 */
function valuesOf(item: string): string[] {
  if (!item.includes("..")) return [item]
  const [, first, last] = /^(-?\d+)\.\.(-?\d+)$/.exec(item) ?? []
  if (first === undefined || last === undefined)
    throw usageError(`--array: ${item} is no range of whole numbers such as 1..50. Write the values, with commas.`)
  const length = Number(last) - Number(first) + 1
  if (length < 1) throw usageError(`--array: the range ${item} is empty. Write the lower number first.`)
  if (length > LONGEST_RANGE) throw usageError(`--array: the range ${item} has more than ${LONGEST_RANGE} values.`)
  const isPadded = [first, last].some((end) => /^-?0\d/.test(end))
  const width = isPadded ? Math.max(first.length, last.length) : 0
  return Array.from({ length }, (_, index) => padded(Number(first) + index, width))
}

/** Returns the number with zeros in front, in at least `width` characters. */
function padded(number: number, width: number): string {
  const sign = number < 0 ? "-" : ""
  return sign + String(Math.abs(number)).padStart(width - sign.length, "0")
}
