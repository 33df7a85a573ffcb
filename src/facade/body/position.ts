/** More places than this help nobody, and each costs a look at the whole text. */
export const MOST_FAULTS = 50

/** Where a character stands, as editors count: `line 3, column 8`, both from 1. */
export function positionOf(text: string, offset: number): string {
  const before = text.slice(0, offset)
  const line = before.split("\n").length
  return `line ${line}, column ${offset - before.lastIndexOf("\n")}`
}
