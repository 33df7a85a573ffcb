/** Facts about lists and maps that Berth's own schema keywords bound (schema.ts). Values of any type may be inside. */

/** Returns the size of all texts in a value, and of the keys of its maps, bytes of UTF-8. Names of fields don't count. */
export function bytesIn(value: unknown, isMap = true): number {
  if (typeof value === "string") return Buffer.byteLength(value)
  if (Array.isArray(value)) return sum(value.map((item) => bytesIn(item, false)))
  if (typeof value !== "object" || value === null) return 0
  return sum(Object.entries(value).map(([key, item]) => (isMap ? Buffer.byteLength(key) : 0) + bytesIn(item, false)))
}

function sum(sizes: readonly number[]): number {
  return sizes.reduce((total, size) => total + size, 0)
}

/** Returns the names of two entries of a map that have the same path in a field, undefined if there are none. */
export function samePaths(map: unknown, field: string): [string, string] | undefined {
  const names = new Map<string, string>()
  for (const [name, entry] of Object.entries(map as object)) {
    const path: unknown = typeof entry === "object" && entry !== null ? (entry as Record<string, unknown>)[field] : null
    if (typeof path !== "string") continue
    const plain = path.replace(/\/$/, "")
    const earlier = names.get(plain)
    if (earlier !== undefined) return [earlier, name]
    names.set(plain, name)
  }
  return undefined
}

/** Returns a key that both map fields of an object have, undefined if there is none. */
export function commonKey(object: unknown, fields: readonly string[]): string | undefined {
  const [first, second] = fields.map((field) => (object as Record<string, unknown>)[field])
  if (typeof first !== "object" || typeof second !== "object" || first === null || second === null) return undefined
  return Object.keys(second).find((key) => Object.hasOwn(first, key))
}
