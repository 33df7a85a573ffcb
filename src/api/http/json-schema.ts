import type { Static, TObject, TSchema } from "typebox"
import { COMPONENT } from "../../core/apis/schema.ts"

/** Builds the schemas of the OpenAPI document from the schemas that validate requests. */

/** Part of the OpenAPI document. */
export type Json = Record<string, unknown>

/** Keywords that the document adds to a schema, by JSON pointer into the schema. An undefined keyword is removed. */
export type Additions = Readonly<Record<string, Json>>

/**
 * Returns the keywords of a text that only code can check. The format is Berth's own, and OpenAPI tools may ignore it.
 * It implies that the text is not empty.
 */
export function inFormat(format: string): Json {
  return { format, minLength: undefined }
}

/** Schema of the document, and the type of its values. A schema without a name is written where it is used. */
export interface DocumentSchema<Value = unknown> {
  name?: string
  json: Json
  example?: unknown
  /** Schemas that it refers to by name. */
  parts?: readonly DocumentSchema[]
  /** Never set. Carries the type. */
  value?: Value
}

/** Returns a reference to a named schema of the document, or the schema itself if it has no name. */
export function referenceTo({ name, json }: DocumentSchema): Json {
  return name === undefined ? json : { $ref: `#/components/schemas/${name}` }
}

/** Returns a schema with references in place of its parts that are components, and these parts. */
export function withReferences(schema: Json): { json: Json; parts: DocumentSchema[] } {
  const parts: DocumentSchema[] = []
  const visit = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(visit)
    if (typeof value !== "object" || value === null) return value
    const entries = Object.entries(value).map(([key, item]) => [key, visit(item)])
    const { [COMPONENT]: name, ...json } = Object.fromEntries(entries) as Json
    if (typeof name !== "string") return json
    const part = { name, json: withoutNull(json) }
    parts.push(part)
    return isNullable(json) ? { anyOf: [referenceTo(part), { type: "null" }] } : referenceTo(part)
  }
  return { json: visit(schema) as Json, parts }
}

function isNullable({ type, anyOf = [] }: { type?: unknown; anyOf?: Json[] }): boolean {
  return [type].flat().includes("null") || anyOf.some((choice) => choice["type"] === "null")
}

/** Returns the schema without the value null. */
function withoutNull(schema: Json): Json {
  if (!isNullable(schema)) return schema
  const { type, anyOf } = schema as { type?: string | string[]; anyOf?: Json[] }
  const types = [type].flat().filter((one) => one !== "null")
  return {
    ...schema,
    ...(type !== undefined && { type: types.length === 1 ? types[0] : types }),
    ...(anyOf !== undefined && { anyOf: anyOf.filter((choice) => choice["type"] !== "null") }),
  }
}

/** Returns the named schema of a response. */
export function namedSchema<Schema extends TSchema>(
  name: string,
  schema: Schema,
  example?: unknown,
): DocumentSchema<Static<Schema>> {
  return { name, json: publicSchema(schema), example }
}

/** Page of a list: a property with the items, the total, and the offset and limit of the page. */
export type PageOf<Items extends string, Item> = { [Property in Items]: Item[] } & {
  total: number
  offset: number
  limit: number
}

/** Returns the schema of a page. */
export function pageSchema<const Items extends string, Item>(
  name: string,
  items: Items,
  item: DocumentSchema<Item>,
): DocumentSchema<PageOf<Items, Item>> {
  const json = {
    type: "object",
    required: [items, "total", "offset", "limit"],
    properties: {
      [items]: { type: "array", items: referenceTo(item) },
      total: { type: "integer" },
      offset: { type: "integer" },
      limit: { type: "integer" },
    },
  }
  return { name, json, parts: [item] }
}

/** Returns the schema of a list without a total: one property with the items, and the other ones that are given. */
export function listSchema<const Items extends string, Item, Others extends TObject = TObject<Record<never, TSchema>>>(
  name: string,
  items: Items,
  item: DocumentSchema<Item>,
  { example, others }: { example?: unknown; others?: Others } = {},
): DocumentSchema<{ [Property in Items]: Item[] } & Static<Others>> {
  const more = others === undefined ? {} : (publicSchema(others) as { required?: string[]; properties?: Json })
  const properties = { [items]: { type: "array", items: referenceTo(item) }, ...more.properties }
  const json = { type: "object", required: [items, ...(more.required ?? [])], additionalProperties: false, properties }
  return { name, json, example, parts: [item] }
}

/**
 * Returns the schema of a request's body. Every optional field may be null, which means omitted.
 * @throws Error if the schema has nothing at a pointer of `additions`
 */
export function bodySchema(schema: TSchema, additions: readonly Additions[] = []): Json {
  return withNulls(additions.reduce(amend, publicSchema(schema))) as Json
}

function withNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withNulls)
  if (typeof value !== "object" || value === null) return value
  const result = Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withNulls(item)])) as Json
  const { properties, required = [] } = result as { properties?: Json; required?: string[] }
  if (typeof properties === "object")
    for (const [name, field] of Object.entries(properties))
      if (!required.includes(name)) properties[name] = orNull(field as Json)
  return result
}

function orNull(schema: Json): Json {
  const { anyOf } = schema as { anyOf?: Json[] }
  if (anyOf !== undefined && schema["type"] === undefined) return { ...schema, anyOf: [...anyOf, { type: "null" }] }
  const types = [schema["type"]].flat()
  if (schema["type"] === undefined || types.includes("null")) return schema
  const values = schema["enum"] as unknown[] | undefined
  return { ...schema, type: [...types, "null"], ...(values !== undefined && { enum: [...values, null] }) }
}

/** Returns a copy of the schema with keywords set at the pointers. */
function amend(schema: Json, additions: Additions): Json {
  const copy = structuredClone(schema)
  for (const [pointer, keywords] of Object.entries(additions)) {
    const place = pointer
      .split("/")
      .slice(1)
      .reduce<unknown>((inside, key) => (inside as Json | undefined)?.[key], copy)
    if (typeof place !== "object" || place === null) throw new Error(`the schema has nothing at ${pointer}`)
    Object.assign(place, keywords)
  }
  return copy
}

/**
 * Returns the schema without keywords that only the API server or Berth's messages use. Objects get
 * `additionalProperties: false`, because the validator rejects unknown fields.
 */
export function publicSchema(schema: TSchema): Json {
  return withoutInternals(JSON.parse(JSON.stringify(schema))) as Json
}

function withoutInternals(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutInternals)
  if (typeof value !== "object" || value === null) return value
  const entries = Object.entries(value)
    .filter(([key]) => key === COMPONENT || !(key.startsWith("x-berth-") || key.startsWith("x-kubernetes-")))
    .map(([key, item]) => [key, withoutInternals(item)] as const)
  const result: Json = Object.fromEntries(entries)
  if (result["type"] !== undefined && typeof result["properties"] === "object") result["additionalProperties"] ??= false
  return apart(result)
}

/** Keywords that constrain values of one type only. */
const KEYWORDS_OF: Readonly<Record<string, readonly string[]>> = {
  string: ["minLength", "maxLength", "pattern", "format", "enum"],
  array: ["items", "minItems", "maxItems"],
  object: ["properties", "required", "additionalProperties", "minProperties", "maxProperties", "dependentRequired"],
}

/** Converts a schema of several types to a choice with one schema per type, which code generators understand. */
function apart(schema: Json): Json {
  const types = [schema["type"]].flat().filter((type) => typeof type === "string")
  if (!types.includes("string") || !types.some((type) => type === "array" || type === "object")) return schema
  const { type: _, ...all } = schema
  const entries = Object.entries(all)
  const anyOf = types.map((type) => ({
    type,
    ...Object.fromEntries(entries.filter(([keyword]) => KEYWORDS_OF[type]?.includes(keyword))),
  }))
  const specific = Object.values(KEYWORDS_OF).flat()
  return { ...Object.fromEntries(entries.filter(([keyword]) => !specific.includes(keyword))), anyOf }
}
