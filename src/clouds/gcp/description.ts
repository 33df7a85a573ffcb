import type { protobuf } from "google-gax"

type Description = protobuf.INamespace

/** Package of Compute Engine's services and messages in the SDK's API description. */
const PACKAGE = ["google", "cloud", "compute", "v1"] as const

/** Fields of a description that name a message. */
const REFERENCES: readonly string[] = ["type", "requestType", "responseType"]

/**
 * Returns the API description with these services and the messages that they use. Parsing the whole, with its other
 * versions of the API, would block the event loop for a second or more.
 */
export function selectServices(whole: Description, services: readonly string[]): Description {
  const entries = PACKAGE.reduce<Description | undefined>((level, name) => level?.nested?.[name], whole)?.nested
  // Another layout than expected: the whole description works too.
  if (entries === undefined || services.some((service) => !(service in entries))) return whole
  const used = new Set<string>(services)
  for (const name of used)
    for (const reference of referencesIn(entries[name])) if (reference in entries) used.add(reference)
  const kept = Object.fromEntries(Object.entries(entries).filter(([name]) => used.has(name)))
  return replaceEntries(whole, PACKAGE, kept)
}

/** Returns the first names of all messages that a description refers to. */
function referencesIn(description: unknown): string[] {
  if (typeof description !== "object" || description === null) return []
  return Object.entries(description).flatMap(([key, value]) => {
    if (typeof value !== "string") return referencesIn(value)
    if (!REFERENCES.includes(key)) return []
    return [value.replace(/^\.?google\.cloud\.compute\.v1\./, "").split(".")[0] ?? ""]
  })
}

/** Replaces the entries at the end of the path. Drops other versions of the API beside it. */
function replaceEntries(
  level: Description,
  path: readonly string[],
  entries: Record<string, protobuf.AnyNestedObject>,
): Description {
  const [name, ...rest] = path
  if (name === undefined) return { ...level, nested: entries }
  const others = Object.entries(level.nested ?? {}).filter(([other]) => rest.length > 0 || !/^v\d/.test(other))
  return {
    ...level,
    nested: { ...Object.fromEntries(others), [name]: replaceEntries(level.nested?.[name] ?? {}, rest, entries) },
  }
}
