import type { TSchema } from "typebox"

type Json = Record<string, unknown>

interface Shape {
  properties?: Record<string, Shape>
  additionalProperties?: Shape
  items?: Shape
}

/**
 * In a submission null means omitted: takes away the null fields that the schema knows. Nulls inside maps and arrays,
 * and in unknown fields, stay, and are faults to the validator.
 */
export function withoutNulls(schema: TSchema, value: unknown): unknown {
  return prune(schema as Shape, value)
}

function prune(shape: Shape, value: unknown): unknown {
  if (Array.isArray(value))
    return shape.items === undefined ? value : value.map((item) => prune(shape.items ?? {}, item))
  if (typeof value !== "object" || value === null) return value
  const { properties, additionalProperties } = shape
  const entries = Object.entries(value as Json).filter(([key, item]) => item !== null || !has(properties, key))
  // fromEntries defines properties: a key "__proto__" stays a key like any other.
  return Object.fromEntries(
    entries.map(([key, item]) => [
      key,
      prune((has(properties, key) ? properties?.[key] : additionalProperties) ?? {}, item),
    ]),
  )
}

function has(properties: Record<string, Shape> | undefined, key: string): boolean {
  return properties !== undefined && Object.hasOwn(properties, key)
}
