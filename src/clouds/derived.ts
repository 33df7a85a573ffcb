import { createHash } from "node:crypto"

/** Values that derive from names, so that a repeated launch finds them again. */

/** Returns a UUID that derives from texts: version 8, which allows free content (RFC 9562). */
export function derivedUuid(parts: readonly string[]): string {
  const hex = createHash("sha256").update(JSON.stringify(parts)).digest("hex")
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

/** Returns an index below `count`, or 0 for none. It derives from the name, and different names spread evenly. */
export function derivedIndex(name: string, count: number): number {
  return createHash("sha256").update(name).digest().readUInt32BE() % Math.max(1, count)
}
