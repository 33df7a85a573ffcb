import type { ErrorObject } from "ajv"
import { brokenRule } from "./named-rules.ts"
import { ALLOWED, DISJOINT_KEYS, DISTINCT_PATHS, FORBIDDEN, NAMED_RULE, SENSITIVE, TOTAL_BYTES } from "./schema.ts"
import { bytesIn, commonKey, samePaths } from "./totals.ts"

/** Error of one field of a value that a user sent. */
export interface FieldError {
  /** RFC 6901 pointer to the place, "" for the whole. */
  pointer: string
  /** Sentence without a full stop: the field, the value (unless it may be secret), and what is allowed. */
  detail: string
}

type Json = Record<string, unknown>

/** Largest number of errors in an answer. More don't help the user. */
export const MOST_ERRORS = 20

/** Largest number of characters of a user's text in a message. */
const LONGEST_SHOWN = 80

/** Returns a user's text for a message: its first `most` characters, then … */
export function shownText(text: string, most = LONGEST_SHOWN): string {
  if (text.length <= most) return text
  const isInPair = /[\uD800-\uDBFF]/.test(text.charAt(most - 1))
  return `${text.slice(0, isInPair ? most - 1 : most)}…`
}

/** Returns a user's text in quotes for a message, at most 80 characters of it. */
export function quote(text: string): string {
  return JSON.stringify(shownText(text))
}

/** Lists of known fields longer than this are not shown. */
const MOST_FIELDS_SHOWN = 24

/** Shortest name that suggests a longer one. */
const SHORTEST_PART = 4

/** Returns the sentence for one error of ajv. Ajv must run with `verbose`. */
export function toFieldError(error: ErrorObject): FieldError {
  const { instancePath: place, keyword } = error
  const params = error.params as Json
  const child = params["missingProperty"] ?? params["additionalProperty"] ?? params["propertyName"]
  const inside = typeof child === "string" ? `/${escapePointer(child)}` : insideOf(error)
  const pointer = shortPointer(`${place}${inside}`)
  const sentence = SENTENCES[keyword]
  const detail = sentence?.(error, toFieldPath(place)) ?? `${toFieldPath(place)} ${error.message ?? "is not valid"}`
  return { pointer, detail }
}

/** Returns the pointer from the error's value to the part that a keyword of Berth is about. */
function insideOf({ keyword, data, schema }: ErrorObject): string {
  if (keyword === DISJOINT_KEYS) {
    const fields = schema as string[]
    return `/${fields[1]}/${escapePointer(commonKey(data, fields) ?? "")}`
  }
  if (keyword === NAMED_RULE) {
    const { field } = brokenRule(schema, data) ?? {}
    return field === undefined ? "" : `/${field}`
  }
  if (keyword !== DISTINCT_PATHS) return ""
  return `/${escapePointer(samePaths(data, String(schema))?.[1] ?? "")}/${schema}`
}

/** Returns a property's name, escaped for an RFC 6901 pointer. */
export function escapePointer(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1")
}

/** Returns the error of a list or map that has too many items. @param allowed such as `at most 8 items, not 9` */
export function tooManyError(place: string, allowed: string): FieldError {
  return { pointer: shortPointer(place), detail: `${toFieldPath(place)} must have ${allowed}` }
}

/** Returns the pointer, or the pointer to the parent of the first name that is too long to repeat. */
function shortPointer(pointer: string): string {
  const parts = pointer.split("/")
  const long = parts.findIndex((part) => part.length > LONGEST_SHOWN)
  return long === -1 ? pointer : parts.slice(0, long).join("/")
}

/** Returns a pointer as a path: `/volumes/data/mountPath` → `volumes.data.mountPath`; `/args/0` → `args[0]`; "" → `the value`. */
export function toFieldPath(pointer: string, parent = ""): string {
  const parts = pointer.split("/").slice(1)
  const names = parts.map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"))
  return names.reduce(joinField, parent) || "the value"
}

function joinField(parent: string, name: string): string {
  if (/^[0-9]+$/.test(name) && parent !== "") return `${parent}[${name}]`
  if (name.length > LONGEST_SHOWN || !/^[A-Za-z_][-A-Za-z0-9_]*$/.test(name)) return `${parent}[${quote(name)}]`
  return parent === "" ? name : `${parent}.${name}`
}

function childOf(error: ErrorObject, name: string): string {
  return toFieldPath(`${error.instancePath}/${escapePointer(name)}`)
}

type Sentence = (error: ErrorObject, field: string) => string

const SENTENCES: Readonly<Record<string, Sentence>> = {
  additionalProperties: (error) => unknownField(error, String(error.params["additionalProperty"])),
  dependentRequired: (error) =>
    `${childOf(error, String(error.params["property"]))} requires ${childOf(error, String(error.params["missingProperty"]))}`,
  enum: (error, field) => `${field} must be ${choice(error.params["allowedValues"])}${butIs(error)}`,
  const: (error, field) => `${field} must be ${JSON.stringify(error.params["allowedValue"])}${butIs(error)}`,
  format: (error, field) => `${field} must be ${allowedBy(error) ?? error.params["format"]}${butIs(error)}`,
  maximum: (error, field) => `${field} must be at most ${error.params["limit"]}${butIs(error)}`,
  maxItems: (error, field) => `${field} must have at most ${error.params["limit"]} items, not ${sizeOf(error)}`,
  maxLength: (error, field) => `${field} must have at most ${error.params["limit"]} characters, not ${sizeOf(error)}`,
  maxProperties: (error, field) => `${field} must have at most ${error.params["limit"]} entries, not ${sizeOf(error)}`,
  minimum: (error, field) => `${field} must be at least ${error.params["limit"]}${butIs(error)}`,
  minItems: (error, field) => atLeast(error, field, "items"),
  minLength: (error, field) => atLeast(error, field, "characters"),
  minProperties: (error, field) => atLeast(error, field, "entries"),
  not: (error, field) => `${field} must not ${error.parentSchema?.[FORBIDDEN] ?? "have this value"}`,
  pattern: (error, field) =>
    `${field} must be ${allowedBy(error) ?? `what ${error.params["pattern"]} matches`}${butIs(error)}`,
  propertyNames: (error) => {
    const key = childOf(error, String(error.params["propertyName"]))
    const rule = (error.parentSchema?.["propertyNames"] as Json | undefined)?.[ALLOWED]
    return `${key} is not allowed as a key: keys must be ${rule ?? "as the schema requires"}`
  },
  required: (error) => `${childOf(error, String(error.params["missingProperty"]))} is required`,
  type: (error, field) => wrongType(error, field),
  [TOTAL_BYTES]: (error, field) =>
    `${field} must have at most ${error.schema} bytes in total, not ${bytesIn(error.data)}`,
  [DISTINCT_PATHS]: (error, field) => {
    const [first = "", second = ""] = samePaths(error.data, String(error.schema)) ?? []
    const names = [first, second].map((name) => joinField(field, name)).join(" and ")
    return `${names} have the same ${error.schema}: give each one its own`
  },
  [DISJOINT_KEYS]: (error) => {
    const fields = error.schema as string[]
    const key = commonKey(error.data, fields) ?? ""
    const [first, second] = fields.map((name) => childOf(error, `${name}`))
    return `${joinField(first ?? "", key)} and ${joinField(second ?? "", key)} have the same name: keep one of them`
  },
  [NAMED_RULE]: (error, field) => {
    const { field: inner, message = "" } = brokenRule(error.schema, error.data) ?? {}
    return `${inner === undefined ? field : childOf(error, inner)} ${message}${inner === undefined ? butIs(error) : ""}`
  },
  "x-kubernetes-list-map-keys": (error, field) =>
    `${field} must not have two items with the same ${(error.schema as string[]).join(" and ")}`,
}

function allowedBy(error: ErrorObject): string | undefined {
  const allowed: unknown = error.parentSchema?.[ALLOWED]
  return typeof allowed === "string" ? allowed : undefined
}

/** Returns `, not "24GB"`, or "" if the value is long, not a scalar, or may be secret. */
function butIs(error: ErrorObject): string {
  if (error.parentSchema?.[SENSITIVE] === true || typeof error.data === "object") return ""
  const shown = JSON.stringify(error.data)
  return shown.length > LONGEST_SHOWN ? "" : `, not ${shown}`
}

function sizeOf(error: ErrorObject): number {
  const { data } = error
  if (typeof data === "string") return [...data].length
  return Object.keys(data as object).length
}

function atLeast(error: ErrorObject, field: string, things: string): string {
  const limit: unknown = error.params["limit"]
  return limit === 1 ? `${field} must not be empty` : `${field} must have at least ${limit} ${things}`
}

function wrongType(error: ErrorObject, field: string): string {
  const types = [error.params["type"]].flat().map(String)
  const found = typeName(error.data)
  // Such as 1e400, which JavaScript reads as infinite.
  if (found === "number" && !Number.isFinite(error.data)) return `${field} is too large: a number has at most 1.8e308`
  const needed = types.map((type) => TYPE_NAMES[type] ?? type).join(" or ")
  if (found === "number" && types.includes("integer"))
    return `${field} must be ${allowedBy(error) ?? needed}${butIs(error)}`
  if (
    found === "array" &&
    error.parentSchema?.["additionalProperties"] !== undefined &&
    "propertyNames" in (error.parentSchema ?? {})
  )
    return `${field} must be ${needed}, not a list: write each entry as NAME: value`
  const isUnquoted = needed === TYPE_NAMES["string"] && (found === "number" || found === "boolean")
  return `${field} must be ${needed}, not ${TYPE_NAMES[found]}${isUnquoted ? ": put it in quotes" : ""}`
}

const TYPE_NAMES: Readonly<Record<string, string>> = {
  array: "a list",
  boolean: "true or false",
  integer: "a whole number",
  null: "null",
  number: "a number",
  object: "an object",
  string: "a string",
}

function typeName(value: unknown): string {
  if (value === null) return "null"
  return Array.isArray(value) ? "array" : typeof value
}

function choice(values: unknown): string {
  const names = (values as unknown[]).map(String)
  const last = names.pop() ?? "nothing"
  return names.length === 0 ? last : `${names.join(", ")} or ${last}`
}

/** Berth's fields for what other tools call otherwise: Kubernetes' Job, Docker Compose, AWS Batch. */
const NAMES_ELSEWHERE: Readonly<Record<string, string>> = {
  "nvidia.com/gpu": "gpu",
  activeDeadlineSeconds: "timeoutSeconds",
  backoffLimit: "maxRetries",
  cmd: "command",
  completions: "size",
  entrypoint: "command",
  environment: "env",
  gpus: "gpu",
  limits: "cpu, memory, gpu and disk in their place",
  requests: "cpu, memory, gpu and disk in their place",
  storage: "disk",
  "ephemeral-storage": "disk",
  suspend: "active",
  vcpus: "cpu",
}

/** Returns Berth's field for a name of another tool, if the object has it. */
function nameHere(name: string, known: readonly string[]): string | undefined {
  const here = Object.hasOwn(NAMES_ELSEWHERE, name) ? NAMES_ELSEWHERE[name] : undefined
  const [field = ""] = here?.split(",") ?? []
  if (known.includes(field)) return here
  // A definition of jobs has resources in an object of their own.
  return known.includes("resources") && RESOURCES.includes(field) ? `resources.${here}` : undefined
}

const RESOURCES = ["cpu", "memory", "gpu", "disk"]

function unknownField(error: ErrorObject, name: string): string {
  const known = Object.keys((error.parentSchema?.["properties"] as Json | undefined) ?? {})
  const said = `${childOf(error, name)} is an unknown field`
  const here = nameHere(name, known)
  if (here !== undefined) return `${said}: Berth has ${here}`
  const near = nearest(name, known)
  if (near !== undefined) return `${said}: did you mean ${near}?`
  return known.length <= MOST_FIELDS_SHOWN ? `${said}; known fields: ${known.join(", ")}` : said
}

/**
 * Returns the known name that is most similar: maxRetries for `max_retries` and `maxretires`, or the only one that the
 * name begins or ends: timeoutSeconds for `timeout`.
 */
export function nearest(name: string, known: readonly string[]): string | undefined {
  const plain = plainName(name)
  const most = Math.min(2, Math.floor(plain.length / 3))
  const ranked = known.map((candidate) => ({ candidate, edits: editDistance(plain, plainName(candidate)) }))
  ranked.sort((a, b) => a.edits - b.edits)
  const [best] = ranked
  if (best !== undefined && best.edits <= most) return best.candidate
  if (plain.length < SHORTEST_PART) return undefined
  const [whole, ...others] = known.filter((candidate) => isEnd(plain, plainName(candidate)))
  return others.length === 0 ? whole : undefined
}

function isEnd(part: string, whole: string): boolean {
  return whole.startsWith(part) || whole.endsWith(part)
}

function plainName(name: string): string {
  return name.toLowerCase().replaceAll(/[-_]/g, "").slice(0, 64)
}

/** Returns Levenshtein's distance: the number of inserted, removed and replaced letters. */
function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, column) => column)
  for (let row = 1; row <= a.length; row++) {
    const current = [row]
    for (let column = 1; column <= b.length; column++) {
      const exchanged = Number(previous[column - 1]) + (a[row - 1] === b[column - 1] ? 0 : 1)
      current.push(Math.min(exchanged, Number(previous[column]) + 1, Number(current[column - 1]) + 1))
    }
    previous = current
  }
  return Number(previous[b.length])
}
