import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js"
import type { TSchema } from "typebox"
import { type FieldError, MOST_ERRORS, toFieldError } from "./field-error.ts"
import type { KindDefinition } from "./kind.ts"
import { API_VERSION } from "./meta.ts"
import { brokenRule } from "./named-rules.ts"
import { withoutNulls } from "./nulls.ts"
import {
  ALLOWED,
  COMPONENT,
  DISJOINT_KEYS,
  DISTINCT_PATHS,
  FORBIDDEN,
  NAMED_RULE,
  PATTERN_AS_RULE,
  SENSITIVE,
  TOTAL_BYTES,
} from "./schema.ts"
import { cutToSize } from "./size.ts"
import { bytesIn, commonKey, samePaths } from "./totals.ts"

export type { FieldError } from "./field-error.ts"

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
    {
      keyword: TOTAL_BYTES,
      type: ["array", "object"],
      schemaType: "number",
      validate: (most: number, value: unknown) => bytesIn(value) <= most,
    },
    {
      keyword: DISTINCT_PATHS,
      type: "object",
      schemaType: "string",
      validate: (field: string, value: unknown) => samePaths(value, field) === undefined,
    },
    {
      keyword: DISJOINT_KEYS,
      type: "object",
      schemaType: "array",
      validate: (fields: string[], value: unknown) => commonKey(value, fields) === undefined,
    },
    {
      keyword: NAMED_RULE,
      schemaType: ["string", "array"],
      validate: (names: unknown, value: unknown) => brokenRule(names, value) === undefined,
    },
  ],
})

ajv.addVocabulary([
  ALLOWED,
  COMPONENT,
  FORBIDDEN,
  PATTERN_AS_RULE,
  SENSITIVE,
  "x-kubernetes-int-or-string",
  "x-kubernetes-list-type",
  "x-kubernetes-map-type",
  "x-kubernetes-validations",
])

const compiled = new WeakMap<object, ValidateFunction>()
const objectSchemas = new WeakMap<KindDefinition, TSchema>()

/**
 * Returns the errors of a value, at most MOST_ERRORS. Lists and maps that are too long are not looked into. Objects
 * are closed at every level: an unknown field is an error.
 * Write unions as `type: ["string", "object"]`, not as anyOf, whose errors are hard to understand.
 */
export function findErrors(schema: TSchema, value: unknown): FieldError[] {
  const validate = compiled.get(schema) ?? compile(schema)
  const { errors, rest } = cutToSize(schema, value)
  if (validate(rest)) return errors
  const others = reportable(validate.errors ?? []).slice(0, MOST_ERRORS - errors.length)
  return [...errors, ...others.map(toFieldError)]
}

/**
 * Returns the errors that the API server would find in an object of a kind, as far as a schema describes them. Only the
 * API server checks CEL rules without a JSON Schema keyword: names, immutability, a Connection's single source.
 */
export function errorsOfObject(kind: KindDefinition, object: unknown): FieldError[] {
  const schema = objectSchemas.get(kind) ?? objectSchemaOf(kind)
  objectSchemas.set(kind, schema)
  return findErrors(schema, withoutNulls(schema, object, "fieldsAndMaps"))
}

function compile(schema: TSchema): ValidateFunction {
  const validate = ajv.compile(closeObjects(JSON.parse(JSON.stringify(schema))) as Json)
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
function closeObjects(schema: unknown): unknown {
  if (typeof schema !== "object" || schema === null) return schema
  const result: Json = {}
  for (const [keyword, value] of Object.entries(schema)) {
    if (SUBSCHEMA.includes(keyword)) result[keyword] = closeObjects(value)
    else if (SUBSCHEMA_LISTS.includes(keyword)) result[keyword] = (value as unknown[]).map(closeObjects)
    else if (SUBSCHEMA_MAPS.includes(keyword)) result[keyword] = mapValues(value as Json, closeObjects)
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
  const parts = /^([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})/.exec(text)
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

/** Keywords of a scalar in the order in which they matter: one that fails makes those after it meaningless. */
const SCALAR_KEYWORDS = ["type", "minLength", "maxLength", "enum", "const", "format", "pattern"]

/** Returns the errors without those that follow from others: of each scalar the first, and no details of a bad key. */
function reportable(errors: ErrorObject[]): ErrorObject[] {
  const rankOf = ({ keyword }: ErrorObject) => {
    const rank = SCALAR_KEYWORDS.indexOf(keyword)
    return rank === -1 ? SCALAR_KEYWORDS.length : rank
  }
  const isFirst = (error: ErrorObject, at: number) =>
    errors.every((other, index) => {
      if (other === error || other.instancePath !== error.instancePath || other.propertyName !== undefined) return true
      const [rank, otherRank] = [rankOf(error), rankOf(other)]
      return rank < otherRank || (rank === otherRank && at < index)
    })
  const wrongTypes = new Set(errors.filter(({ keyword }) => keyword === "type").map(({ instancePath }) => instancePath))
  // An object has an error for each unknown or missing field.
  const isOfContent = ({ data, instancePath }: ErrorObject) =>
    typeof data === "object" && data !== null && !wrongTypes.has(instancePath)
  // One text that is too long makes the sum too large as well.
  const isSumOfOthers = ({ keyword, instancePath }: ErrorObject) =>
    keyword === TOTAL_BYTES && errors.some((other) => other.instancePath.startsWith(`${instancePath}/`))
  return errors.filter(
    (error, at) =>
      error.propertyName === undefined && !isSumOfOthers(error) && (isOfContent(error) || isFirst(error, at)),
  )
}
