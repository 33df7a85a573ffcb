type Json = Record<string, unknown>

/** Which nulls are dropped: those of fields that the schema names, or those in maps with free keys too. */
export type NullPlaces = "fields" | "fieldsAndMaps"

/**
 * The value without the nulls that mean "omitted", where the schema allows no null. `fieldsAndMaps` is what the API
 * server does with an object that it gets, `fields` what REST's contract says of a body. Unknown fields and nulls
 * in lists stay, to be refused. The value itself is not changed.
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
