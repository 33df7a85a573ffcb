import type { TSchema } from "typebox"
import { namedRules } from "./named-rules.ts"
import {
  ALLOWED,
  type CelRule,
  celName,
  DISJOINT_KEYS,
  DISTINCT_PATHS,
  NAMED_RULE,
  PATTERN_AS_RULE,
  TOTAL_BYTES,
} from "./schema.ts"

/**
 * Converts the JSON Schema of a kind to a structural schema of the API server. A structural schema has no union, const,
 * pattern property, tuple or exclusive bound; the API server rejects or ignores them. So every keyword is either
 * copied, written as a CEL rule, dropped on purpose, or an error with its place.
 */

/** Structural schema (apiextensions.k8s.io/v1 JSONSchemaProps) as plain JSON. */
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

/** Prefix of Berth's own keywords. They are not part of the result, except those of OWN_RULES, as CEL rules. */
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

/** Keywords that are copied for one type only. They have no effect on another type. */
const COPIED_BY_TYPE: Record<string, readonly string[]> = {
  array: ["minItems", "maxItems"],
  boolean: [],
  integer: NUMERIC,
  number: NUMERIC,
  object: ["required", "minProperties", "maxProperties"],
  string: TEXTUAL,
}

/** Formats that the API server and the validators (`validate.ts`) check in the same way. */
const FORMATS = new Set(["date-time", "int32", "int64"])

/** Only union that a schema may have. The API server implies it, and would add three lines to each error's message. */
const INT_OR_STRING = JSON.stringify([{ type: "integer" }, { type: "string" }])

/**
 * Returns the structural schema of a TypeBox schema.
 * @throws Error with the path of a keyword that the API server would reject or ignore
 */
export function structuralSchema(schema: TSchema, path = "schema"): StructuralSchema {
  // The copy through JSON drops TypeBox's symbols and hidden fields.
  return convert(JSON.parse(JSON.stringify(schema)), path)
}

function convert(schema: unknown, path: string): StructuralSchema {
  if (!isObject(schema)) throw new Error(`${path}: must be a schema, not ${JSON.stringify(schema)}`)
  const copied = copiedByType(schema, path)
  const result: StructuralSchema = {}
  const rules: CelRule[] = []
  for (const [keyword, value] of Object.entries(schema)) {
    rules.push(...(OWN_RULES[keyword]?.(schema, path) ?? []))
    if (isDropped(keyword, schema)) continue
    if (COPIED.has(keyword) || copied.includes(keyword)) result[keyword] = value
    else if (!convertNested(keyword, value, result, path)) rules.push(...rulesOf(keyword, value, path))
  }
  checkFormat(schema, path)
  if (rules.length > 0) result["x-kubernetes-validations"] = rules
  return result
}

function isIntOrString(schema: Json): boolean {
  return schema["x-kubernetes-int-or-string"] === true
}

/** True if the keyword is not part of the result, or is added elsewhere. */
function isDropped(keyword: string, schema: Json): boolean {
  // The pattern of an int-or-string is for numbers, too.
  const byRule = isIntOrString(schema) ? ["pattern", ...NUMERIC] : ["pattern"]
  if (byRule.includes(keyword)) return schema[PATTERN_AS_RULE] === true
  return keyword.startsWith(DROPPED_PREFIX) || keyword === "anyOf"
}

/** Returns the keywords that the schema's type allows beside the common ones. Checks that there is one type. */
function copiedByType(schema: Json, path: string): readonly string[] {
  if (isIntOrString(schema)) {
    if ("type" in schema || JSON.stringify(schema["anyOf"]) !== INT_OR_STRING) {
      throw new Error(`${path}: an int-or-string has no type, and anyOf ${INT_OR_STRING}`)
    }
    return [...NUMERIC, ...TEXTUAL]
  }
  if ("anyOf" in schema) throw new Error(`${path}.anyOf: a structural schema has no union except int-or-string`)
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
  // Kubernetes rejects `false` beside properties, and prunes or rejects unknown fields in any case.
  if (value !== false) result.additionalProperties = convert(value, `${path}{}`)
  return true
}

/** Returns CEL rules for keywords that JSON Schema has and a structural schema lacks. */
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
  throw new Error(`${path}.${keyword}: the API server does not support this keyword here`)
}

/** CEL rules for Berth's own keywords, by keyword. */
const OWN_RULES: Readonly<Record<string, (schema: Json, path: string) => CelRule[]>> = {
  [PATTERN_AS_RULE]: (schema) => [
    {
      rule: `${isIntOrString(schema) ? "string(self)" : "self"}.matches(${JSON.stringify(schema["pattern"])})`,
      message: `must be ${schema[ALLOWED]}`,
    },
  ],
  [TOTAL_BYTES]: (schema, path) => [
    {
      rule: `${bytesIn(schema, "self", path)} <= ${schema[TOTAL_BYTES]}`,
      message: `must have at most ${schema[TOTAL_BYTES]} bytes in total`,
    },
  ],
  [DISTINCT_PATHS]: (schema) => {
    const [one, other] = ["one", "other"].map((name) => `self[${name}].${schema[DISTINCT_PATHS]}`)
    return [
      {
        rule: `self.all(one, self.all(other, one == other || (${one} != ${other} && ${one} != ${other} + '/')))`,
        message: `must have a different ${schema[DISTINCT_PATHS]} for each entry`,
      },
    ]
  },
  [NAMED_RULE]: (schema) =>
    namedRules(schema[NAMED_RULE]).map(({ rule, field, message }) => ({
      rule,
      message: field === undefined ? message : `${field} ${message}`,
      ...(field && { fieldPath: `.${field}` }),
    })),
  [DISJOINT_KEYS]: (schema) => {
    const [first, second] = (schema[DISJOINT_KEYS] as string[]).map(celName)
    const unchanged = [first, second].map(
      (field) =>
        `has(self.${field}) == has(oldSelf.value().${field}) && (!has(self.${field}) || self.${field} == oldSelf.value().${field})`,
    )
    // The rule is on the object of both maps, so Kubernetes would check it after a change of any other field, too.
    const isOld = `oldSelf.hasValue() && ${unchanged.join(" && ")}`
    return [
      {
        rule: `!has(self.${first}) || !has(self.${second}) || self.${second}.all(key, !(key in self.${first})) || (${isOld})`,
        message: `${first} and ${second} must not have the same key: keep one of them`,
        fieldPath: `.${second}`,
        optionalOldSelf: true,
      },
    ]
  },
}

/** Returns the CEL expression for the size of all texts and keys in a value. @throws Error for other types */
function bytesIn(schema: Json, value: string, path: string): string {
  const { type, items, additionalProperties, properties = {}, required = [] } = schema
  if (type === "string") return `bytes(${value}).size()`
  if (type === "array" && isObject(items)) return `${value}.map(item, ${bytesIn(items, "item", path)}).sum()`
  if (type === "object" && isObject(additionalProperties)) {
    return `${value}.map(key, bytes(key).size() + ${bytesIn(additionalProperties, `${value}[key]`, path)}).sum()`
  }
  if (type !== "object") throw new Error(`${path}.${TOTAL_BYTES}: counts only texts, not ${JSON.stringify(type)}`)
  return Object.entries(properties as Record<string, Json>)
    .filter(([, property]) => property["type"] !== "boolean")
    .map(([name, property]) => {
      const field = `${value}.${celName(name)}`
      const size = bytesIn(property, field, path)
      return (required as string[]).includes(name) ? size : `(has(${field}) ? ${size} : 0)`
    })
    .join(" + ")
}

function keyRule(names: Json, path: string): CelRule {
  const { minLength, maxLength, pattern, "x-berth-allowed": allowed, ...others } = names
  const unknown = Object.keys(others).filter((keyword) => keyword !== "type")
  if (unknown.length > 0) throw new Error(`${path}.${unknown[0]}: keys support only minLength, maxLength and pattern`)
  // The length checks come first: they are cheap, and the pattern then never runs on a huge key.
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
