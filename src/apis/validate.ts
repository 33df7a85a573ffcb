import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js"
import type { TSchema } from "typebox"
import type { Fault } from "./fault.ts"
import { faultOf } from "./fault.ts"
import type { KindDefinition } from "./kind.ts"
import { API_VERSION } from "./meta.ts"
import { withoutNulls } from "./nulls.ts"
import { ALLOWED, FORBIDDEN, SENSITIVE } from "./schema.ts"

export type { Fault } from "./fault.ts"

/** Maximum number of faults of one value in an answer. */
const MOST_FAULTS = 50

type Json = Record<string, unknown>

const ajv = new Ajv2020({
  allErrors: true,
  verbose: true,
  allowUnionTypes: true,
  strict: true,
  strictRequired: true,
  formats: {
    "date-time": isDateTime,
    int32: { type: "number", validate: (value) => Number.isInteger(value) && Math.abs(value) <= 2 ** 31 },
    int64: { type: "number", validate: Number.isInteger },
  },
  keywords: [
    {
      keyword: "x-kubernetes-list-map-keys",
      type: "array",
      schemaType: "array",
      validate: (keys: string[], items: unknown[]) => areDistinct(items, keys),
    },
  ],
})

ajv.addVocabulary([
  ALLOWED,
  FORBIDDEN,
  SENSITIVE,
  "x-kubernetes-int-or-string",
  "x-kubernetes-list-type",
  "x-kubernetes-map-type",
  "x-kubernetes-validations",
])

const compiled = new WeakMap<object, ValidateFunction>()
const objectSchemas = new WeakMap<KindDefinition, TSchema>()

/**
 * Returns every fault of a value. Objects are closed at every level: an unknown field is a fault.
 * Write unions as `type: ["string", "object"]`, not as anyOf, whose faults are hard to understand.
 */
export function faultsOf(schema: TSchema, value: unknown): Fault[] {
  const validate = compiled.get(schema) ?? compile(schema)
  if (validate(value)) return []
  return tellable(validate.errors ?? [])
    .slice(0, MOST_FAULTS)
    .map(faultOf)
}

/**
 * Returns the faults that the API server would find in an object of a kind, as far as a schema describes them. Only the
 * API server checks CEL rules without a JSON Schema keyword: names, immutability, a Connection's single source.
 */
export function faultsOfObject(kind: KindDefinition, object: unknown): Fault[] {
  const schema = objectSchemas.get(kind) ?? objectSchemaOf(kind)
  objectSchemas.set(kind, schema)
  return faultsOf(schema, withoutNulls(schema, object, "fieldsAndMaps"))
}

function compile(schema: TSchema): ValidateFunction {
  const validate = ajv.compile(closed(JSON.parse(JSON.stringify(schema))) as Json)
  compiled.set(schema, validate)
  return validate
}

function objectSchemaOf(kind: KindDefinition): TSchema {
  return {
    type: "object",
    required: ["apiVersion", "kind", "metadata", "spec"],
    properties: {
      apiVersion: { type: "string", enum: [API_VERSION] },
      kind: { type: "string", enum: [kind.kind] },
      // The API server checks it.
      metadata: { type: "object", additionalProperties: true },
      spec: kind.spec,
      status: kind.status,
    },
  } as TSchema
}

/** Keywords that hold one schema, a list of schemas, or a map of schemas. */
const SUBSCHEMA = ["items", "additionalProperties", "propertyNames", "not"]
const SUBSCHEMA_LISTS = ["anyOf", "oneOf", "allOf", "prefixItems"]
const SUBSCHEMA_MAPS = ["properties", "patternProperties", "$defs"]

/** Returns the schema with closed objects. Kubernetes' own keywords become JSON Schema. */
function closed(schema: unknown): unknown {
  if (typeof schema !== "object" || schema === null) return schema
  const result: Json = {}
  for (const [keyword, value] of Object.entries(schema)) {
    if (SUBSCHEMA.includes(keyword)) result[keyword] = closed(value)
    else if (SUBSCHEMA_LISTS.includes(keyword)) result[keyword] = (value as unknown[]).map(closed)
    else if (SUBSCHEMA_MAPS.includes(keyword)) result[keyword] = mapValues(value as Json, closed)
    else result[keyword] = value
  }
  if ("properties" in result) result["additionalProperties"] ??= false
  if (result["x-kubernetes-int-or-string"] === true) {
    delete result["anyOf"]
    result["type"] = ["integer", "string"]
  }
  return result
}

function mapValues(object: Json, change: (value: unknown) => unknown): Json {
  return Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]))
}

/** Returns true for a date of the calendar and a time of the day. Like the API server, it accepts no leap seconds. */
function isDateTime(text: string): boolean {
  const parts = /^([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})/.exec(text)
  if (parts === null) return false
  const [year, month, day, hour, minute, second] = parts.slice(1).map(Number)
  if (year === undefined || month === undefined || day === undefined) return false
  // setUTCFullYear, because Date.UTC takes the years 0 to 99 for 1900 to 1999.
  const date = new Date(0)
  date.setUTCFullYear(year, month - 1, day)
  const isCalendarDay = date.getUTCMonth() === month - 1 && date.getUTCDate() === day
  return isCalendarDay && Number(hour) <= 23 && Number(minute) <= 59 && Number(second) <= 59
}

function areDistinct(items: unknown[], keys: string[]): boolean {
  const identities = items.map((item) => JSON.stringify(keys.map((key) => (item as Json | null)?.[key])))
  return new Set(identities).size === items.length
}

/**
 * Returns the errors without those that follow from others: bounds of a value of the wrong type, and details of a bad
 * key.
 */
function tellable(errors: ErrorObject[]): ErrorObject[] {
  const wrongTypes = new Set(errors.filter((error) => error.keyword === "type").map((error) => error.instancePath))
  return errors.filter(
    (error) => error.propertyName === undefined && (error.keyword === "type" || !wrongTypes.has(error.instancePath)),
  )
}
