import type { TSchema } from "typebox"
import type { CelRule } from "./schema.ts"

/**
 * From the JSON Schema of a kind to what the API server takes: a structural schema knows no union, const,
 * pattern property, tuple or exclusive bound, and refuses or silently ignores the rest. So every keyword
 * is either copied, written as a CEL rule, dropped on purpose, or an error that names its place.
 */

/** A structural schema (apiextensions.k8s.io/v1 JSONSchemaProps) as plain JSON. */
export interface StructuralSchema {
  type?: string
  description?: string
  properties?: Record<string, StructuralSchema>
  required?: string[]
  items?: StructuralSchema
  additionalProperties?: StructuralSchema
  "x-kubernetes-validations"?: CelRule[]
  [keyword: string]: unknown
}

type Json = Record<string, unknown>

/** Keywords for validators and documents of our own, unknown to the API server. */
const DROPPED_PREFIX = "x-berth-"

const COPIED = new Set([
  "type",
  "description",
  "default",
  "enum",
  "format",
  "x-kubernetes-int-or-string",
  "x-kubernetes-list-map-keys",
  "x-kubernetes-list-type",
  "x-kubernetes-map-type",
])

const NUMERIC = ["minimum", "maximum", "multipleOf"]
const TEXTUAL = ["minLength", "maxLength", "pattern"]

/** Keywords that are copied too, by what they constrain; elsewhere they would have no effect. */
const COPIED_BY_TYPE: Record<string, readonly string[]> = {
  array: ["minItems", "maxItems"],
  boolean: [],
  integer: NUMERIC,
  number: NUMERIC,
  object: ["required", "minProperties", "maxProperties"],
  string: TEXTUAL,
}

/** Formats that the API server and the validators (`validate.ts`) check alike. */
const FORMATS = new Set(["date-time", "int32", "int64"])

/** The one union that a structural schema may have. */
const INT_OR_STRING = JSON.stringify([{ type: "integer" }, { type: "string" }])

/**
 * The structural schema of a TypeBox schema.
 * @throws Error naming the path of a keyword that the API server would refuse or ignore
 */
export function structuralSchema(schema: TSchema, path = "schema"): StructuralSchema {
  // A copy through JSON leaves TypeBox's own symbols and hidden fields behind.
  return convert(JSON.parse(JSON.stringify(schema)), path)
}

function convert(schema: unknown, path: string): StructuralSchema {
  if (!isObject(schema)) throw new Error(`${path}: must be a schema, not ${JSON.stringify(schema)}`)
  const copied = copiedByType(schema, path)
  const result: StructuralSchema = {}
  const rules: CelRule[] = []
  for (const [keyword, value] of Object.entries(schema)) {
    if (keyword.startsWith(DROPPED_PREFIX) || keyword === "anyOf") continue
    if (COPIED.has(keyword) || copied.includes(keyword)) result[keyword] = value
    else if (!convertNested(keyword, value, result, path)) rules.push(...rulesOf(keyword, value, path))
  }
  if ("anyOf" in schema) result["anyOf"] = schema["anyOf"]
  checkFormat(schema, path)
  if (rules.length > 0) result["x-kubernetes-validations"] = rules
  return result
}

/** The keywords that the schema's type allows beside the common ones; checks that it has one type. */
function copiedByType(schema: Json, path: string): readonly string[] {
  if (schema["x-kubernetes-int-or-string"] === true) {
    if ("type" in schema || JSON.stringify(schema["anyOf"]) !== INT_OR_STRING) {
      throw new Error(`${path}: an int-or-string has no type, and anyOf ${INT_OR_STRING}`)
    }
    return [...NUMERIC, ...TEXTUAL]
  }
  if ("anyOf" in schema) throw new Error(`${path}.anyOf: a structural schema has no unions but int-or-string`)
  const { type } = schema
  const copied = typeof type === "string" ? COPIED_BY_TYPE[type] : undefined
  if (copied === undefined) throw new Error(`${path}.type: must be one type, not ${JSON.stringify(type)}`)
  return copied
}

/** Converts keywords that hold schemas. Returns false for other keywords. */
function convertNested(keyword: string, value: unknown, result: StructuralSchema, path: string): boolean {
  if (keyword === "properties" && isObject(value)) {
    result.properties = Object.fromEntries(
      Object.entries(value).map(([name, property]) => [name, convert(property, `${path}.${name}`)]),
    )
    return true
  }
  if (keyword === "items") {
    if (Array.isArray(value)) throw new Error(`${path}.items: a structural schema has no tuples`)
    result.items = convert(value, `${path}[]`)
    return true
  }
  if (keyword !== "additionalProperties") return false
  // Kubernetes refuses `false` beside properties, and prunes or refuses unknown fields anyway.
  if (value !== false) result.additionalProperties = convert(value, `${path}{}`)
  return true
}

/** CEL rules for keywords that JSON Schema has and a structural schema lacks. */
function rulesOf(keyword: string, value: unknown, path: string): CelRule[] {
  if (keyword === "x-kubernetes-validations") return value as CelRule[]
  if (keyword === "propertyNames" && isObject(value)) return [keyRule(value, `${path}.propertyNames`)]
  if (keyword === "dependentRequired" && isObject(value)) {
    return Object.entries(value).flatMap(([field, needed]) =>
      (needed as string[]).map((other) => ({
        rule: `!has(self.${field}) || has(self.${other})`,
        message: `${field} requires ${other}`,
      })),
    )
  }
  throw new Error(`${path}.${keyword}: the API server knows no such keyword here`)
}

function keyRule(names: Json, path: string): CelRule {
  const { minLength, maxLength, pattern, "x-berth-allowed": allowed, ...others } = names
  const unknown = Object.keys(others).filter((keyword) => keyword !== "type")
  if (unknown.length > 0) throw new Error(`${path}.${unknown[0]}: only minLength, maxLength and pattern are for keys`)
  // The sizes come first: they cost nothing, and keep the pattern from running over a huge key.
  const checks = [
    minLength === undefined ? [] : `key.size() >= ${minLength}`,
    maxLength === undefined ? [] : `key.size() <= ${maxLength}`,
    pattern === undefined ? [] : `key.matches(${JSON.stringify(pattern)})`,
  ].flat()
  return { rule: `self.all(key, ${checks.join(" && ")})`, message: `keys must be ${allowed}` }
}

function checkFormat(schema: Json, path: string): void {
  const { format } = schema
  if (format === undefined || FORMATS.has(String(format))) return
  throw new Error(`${path}.format: must be one of ${[...FORMATS].join(", ")}, not ${JSON.stringify(format)}`)
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value)
}
