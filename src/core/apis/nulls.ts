type Json = Record<string, unknown>

/** Places where nulls are dropped: fields of the schema only, or also maps with free keys. */
export type NullPlaces = "fields" | "fieldsAndMaps"

/**
 * Returns the value without nulls where the schema does not allow them. `fieldsAndMaps` does what the API server does
 * with an object; `fields` does what REST's contract says about a body. Unknown fields and nulls in lists stay, so that
 * validation rejects them. The value itself does not change.
 */
export function withoutNulls(schema: object, value: unknown, places: NullPlaces): unknown {
  const { items } = schema as { items?: unknown }
  if (Array.isArray(value)) return isSchema(items) ? value.map((item) => withoutNulls(items, item, places)) : value
  if (typeof value !== "object" || value === null) return value
  const kept = Object.entries(value).flatMap(([name, field]): [string, unknown][] => {
    const { fieldSchema, isNamed } = schemaOfField(schema, name)
    if (!isSchema(fieldSchema)) return [[name, field]]
    const isDroppable = isNamed || places === "fieldsAndMaps"
    if (field === null && isDroppable && !allowsNull(fieldSchema)) return []
    return [[name, withoutNulls(fieldSchema, field, places)]]
  })
  return Object.fromEntries(kept)
}

function schemaOfField(schema: object, name: string): { fieldSchema: unknown; isNamed: boolean } {
  const { properties, additionalProperties } = schema as { properties?: Json; additionalProperties?: unknown }
  const isNamed = properties !== undefined && Object.hasOwn(properties, name)
  return { fieldSchema: isNamed ? properties[name] : additionalProperties, isNamed }
}

function isSchema(schema: unknown): schema is Json {
  return typeof schema === "object" && schema !== null
}

function allowsNull(schema: Json): boolean {
  if (schema["x-kubernetes-int-or-string"] === true) return false
  const types = [schema["type"]].flat()
  return types.includes("null") || types.includes(undefined)
}
