import fc from "fast-check"
import type { TSchema } from "typebox"

/** Part of JSON Schema that Berth's kinds use and values are drawn from. */
interface Drawn {
  type?: string
  enum?: unknown[]
  pattern?: string
  format?: string
  minimum?: number
  maximum?: number
  minLength?: number
  maxLength?: number
  maxItems?: number
  maxProperties?: number
  items?: Drawn
  properties?: Record<string, Drawn>
  required?: string[]
  additionalProperties?: Drawn | boolean
  propertyNames?: Drawn
}

/** Maximum length of strings and lists: long enough to find defects. */
const LONGEST = 24
const MOST = 3

/** Returns values that match the schema. They may violate rules across several fields. */
export function valuesOf(schema: TSchema): fc.Arbitrary<unknown> {
  return drawn(schema as Drawn)
}

function drawn(schema: Drawn): fc.Arbitrary<unknown> {
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum)
  switch (schema.type) {
    case "boolean":
      return fc.boolean()
    case "integer":
      return fc.integer({ min: schema.minimum ?? 0, max: Math.min(schema.maximum ?? 1_000_000, 2 ** 31 - 1) })
    case "number":
      return fc.double({ min: schema.minimum ?? 0, max: schema.maximum ?? 1000, noNaN: true })
    case "array":
      return fc.array(drawn(schema.items ?? {}), { maxLength: Math.min(schema.maxItems ?? MOST, MOST) })
    case "object":
      return objects(schema)
    default:
      return strings(schema)
  }
}

function objects({ properties, required = [], additionalProperties, propertyNames, maxProperties }: Drawn) {
  if (properties !== undefined) {
    const fields = Object.fromEntries(Object.entries(properties).map(([name, field]) => [name, drawn(field)]))
    return fc.record(fields, { requiredKeys: required })
  }
  const value = typeof additionalProperties === "object" ? drawn(additionalProperties) : fc.string()
  const maxKeys = Math.min(maxProperties ?? MOST, MOST)
  return fc.dictionary(strings(propertyNames ?? {}), value, { maxKeys })
}

/** Times in the past and in the far future. */
const TIMES = fc.constantFrom("2020-01-31T12:00:00Z", "2099-12-31T23:59:59Z", "2030-02-28T00:00:00.5+01:00")

function strings({ pattern, format, minLength = 0, maxLength = LONGEST }: Drawn): fc.Arbitrary<string> {
  if (format === "date-time") return TIMES
  const longest = Math.min(maxLength, Math.max(LONGEST, minLength))
  if (pattern === undefined) return fc.string({ minLength, maxLength: longest })
  return fc
    .stringMatching(new RegExp(pattern), { size: "small" })
    .filter((text) => text.length >= minLength && text.length <= maxLength)
}
