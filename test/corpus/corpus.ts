import type { KindDefinition } from "../../src/core/apis/kind.ts"

/** Parts of a spec or status, by their special property. */
export type Cases = Readonly<Record<string, Readonly<Record<string, unknown>>>>

/** Valid and invalid objects of one kind. */
export interface Corpus {
  kind: KindDefinition
  /** The smallest valid spec. Each case overrides some of its fields (`undefined` removes a field). */
  base: Readonly<Record<string, unknown>>
  good: Cases
  bad: Cases
  /** Specs that match the JSON Schema and that the API server rejects by a CEL rule. */
  refusedByRule?: Cases
  /** Cases of `metadata`, likewise. */
  refusedMetadata?: Cases
  goodMetadata?: Cases
  status?: { base: Readonly<Record<string, unknown>>; good: Cases; bad: Cases }
}

/** Returns an object with keys that a literal can't have twice or at all, as JSON allows them. */
export function parsed(json: string): Record<string, unknown> {
  return JSON.parse(json) as Record<string, unknown>
}

/** Returns a map of `count` entries. */
export function entries(count: number, value: unknown, key = "k"): Record<string, unknown> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`${key}${i}`, value]))
}

/** Returns a list of `count` items. */
export function items(count: number, value: unknown): unknown[] {
  return Array.from({ length: count }, () => value)
}
