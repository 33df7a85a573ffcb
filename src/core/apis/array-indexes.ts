/**
 * Sets of the indexes of an array as text, in the notation of Kubernetes' Indexed Jobs: `0-41,44`. They are in ascending
 * order, and consecutive ones are a range.
 */

/** Syntax of a set of indexes. An empty text is the empty set. */
export const INDEXES_PATTERN = "^([0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*)?$"

const SYNTAX = new RegExp(INDEXES_PATTERN)

/** Returns the ranges of a text, first and last index of each. */
function rangesOf(text: string): [first: number, last: number][] {
  if (text === "") return []
  return text.split(",").map((range) => {
    const [first = 0, last = first] = range.split("-").map(Number)
    return [first, last]
  })
}

/** Returns the indexes below `size` of a valid text; empty for an absent one. */
export function indexesIn(text: string | undefined, size: number): Set<number> {
  const indexes = new Set<number>()
  for (const [first, last] of rangesOf(text ?? "")) {
    for (let index = first; index <= Math.min(last, size - 1); index++) indexes.add(index)
  }
  return indexes
}

/** Returns true if a valid text has the index. */
export function hasIndex(text: string | undefined, index: number): boolean {
  return rangesOf(text ?? "").some(([first, last]) => first <= index && index <= last)
}

/** Returns the number of indexes in a text whose ranges do not overlap, as `indexText` writes them. */
export function countIndexes(text: string | undefined): number {
  return rangesOf(text ?? "").reduce((sum, [first, last]) => sum + last - first + 1, 0)
}

/** Returns the text of a set of indexes. */
export function indexText(indexes: Iterable<number>): string {
  const ranges: [first: number, last: number][] = []
  for (const index of [...indexes].sort((a, b) => a - b)) {
    const range = ranges.at(-1)
    if (range !== undefined && range[1] === index - 1) range[1] = index
    else ranges.push([index, index])
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",")
}

/** Returns the error of a text that should be a set of indexes below `size`, as the end of "indexes …". */
export function indexesError(text: string, size: number): string | undefined {
  if (text === "" || !SYNTAX.test(text)) return `must be indexes and ranges such as 0-41,44`
  const bad = rangesOf(text).find(([first, last]) => last < first || last >= size)
  if (bad === undefined) return undefined
  const [first, last] = bad
  if (last < first) return `has the range ${first}-${last}, whose last index is less than its first`
  return `has the index ${last}; the indexes of the array are 0 to ${size - 1}`
}
