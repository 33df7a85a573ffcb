import type { KindDefinition } from "../../src/apis/kind.ts"

/** Parts of a spec or status, by what is special about them. */
export type Cases = Readonly<Record<string, Readonly<Record<string, unknown>>>>

/** Good and bad objects of one kind. */
export interface Corpus {
  kind: KindDefinition
  /** The least that a spec needs; each case is laid over it (`undefined` takes a field away). */
  base: Readonly<Record<string, unknown>>
  good: Cases
  bad: Cases
  /** Specs that JSON Schema lets pass and the API server refuses by a CEL rule. */
  refusedByRule?: Cases
  /** The same of `metadata`. */
  refusedMetadata?: Cases
  goodMetadata?: Cases
  status?: { base: Readonly<Record<string, unknown>>; good: Cases; bad: Cases }
}

/** An object with keys that a literal can't have twice or at all, as JSON brings them. */
export function parsed(json: string): Record<string, unknown> {
  return JSON.parse(json) as Record<string, unknown>
}

/** A map of `count` entries. */
export function entries(count: number, value: unknown, key = "k"): Record<string, unknown> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`${key}${i}`, value]))
}

/** A list of `count` items. */
export function items(count: number, value: unknown): unknown[] {
  return Array.from({ length: count }, () => value)
}
