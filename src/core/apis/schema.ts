import Type, { type Static, type TObjectOptions, type TSchema } from "typebox"
import { LIMITS } from "./field-limits.ts"
import { DNS_SUBDOMAIN_PATTERN, LONGEST_METADATA_NAME } from "./names.ts"

/**
 * Building blocks of the kinds' schemas, beyond plain TypeBox. A Kubernetes structural schema has no union, const,
 * pattern property or tuple. So each function writes what the API server accepts, with the exact TypeScript type.
 */

/** CEL rule of the API server (`x-kubernetes-validations`). A rule with `oldSelf` is a transition rule. */
export interface CelRule {
  rule: string
  message: string
  /** Expression for the message, if it depends on the object. `message` replaces it if the expression fails. */
  messageExpression?: string
  fieldPath?: string
  /** `oldSelf` is an optional, so that a transition rule holds for a new object too. */
  optionalOldSelf?: true
}

/** Description of what a pattern or a rule on keys allows. Messages show it in place of a regular expression. */
export const ALLOWED = "x-berth-allowed"

/** Description of what `not` forbids, as the end of "must not …". */
export const FORBIDDEN = "x-berth-forbidden"

/** Name of the schema in the OpenAPI document. A schema without it is written where it is used. */
export const COMPONENT = "x-berth-component"

/** Mark of a value that may be secret. No message shows it. */
export const SENSITIVE = "x-berth-sensitive"

/**
 * Mark of a text whose pattern becomes a CEL rule. The API server's message then says what is allowed; for a pattern it
 * shows the regular expression and the value.
 */
export const PATTERN_AS_RULE = "x-berth-pattern-as-rule"

/** Maximum size of all texts and keys in a list or map, bytes of UTF-8. It bounds the size of the object. */
export const TOTAL_BYTES = "x-berth-total-bytes"

/** Name of a text field that differs as a path in all objects of a map. A slash at the end makes no difference. */
export const DISTINCT_PATHS = "x-berth-distinct-paths"

/** Names of two map fields of an object that have no key in common. */
export const DISJOINT_KEYS = "x-berth-disjoint-keys"

/** Name of a rule in `NAMED_RULES` that the value must follow, or several. */
export const NAMED_RULE = "x-berth-rule"

/** Declares one of a fixed list of strings. */
export function StringEnum<const T extends readonly string[]>(values: T, options: Record<string, unknown> = {}) {
  return Type.Unsafe<T[number]>({ type: "string", enum: [...values], ...options })
}

/** Rule for the keys of a map: lengths in characters, and a description for messages. */
export interface KeyRule {
  minLength?: number
  maxLength: number
  pattern?: string
  allowed: string
}

export interface MapOptions {
  keys: KeyRule
  minProperties?: number
  maxProperties: number
  description: string
  [keyword: `x-${string}`]: unknown
}

/** Declares a map with free keys that match a rule, at most `maxProperties` of them. */
export function MapSchema<T extends TSchema>(value: T, options: MapOptions) {
  const { keys, ...others } = options
  const { allowed, ...bounds } = keys
  return MapOf(value, { propertyNames: { type: "string", ...bounds, [ALLOWED]: allowed }, ...others })
}

/**
 * Declares a map with any keys. `Type.Record` would check only the values whose key is one line, as its pattern is
 * `^.*$`.
 */
export function MapOf<T extends TSchema>(value: T, options: Omit<TObjectOptions, "additionalProperties"> = {}) {
  return Type.Unsafe<Record<string, Static<T>>>({ type: "object", additionalProperties: value, ...options })
}

/**
 * Strict RFC 3339, in addition to the calendar check of the format. The API server's own check of `date-time` accepts
 * any character before fractions, and any offset.
 */
const TIME_PATTERN =
  "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"

/** Declares a time in Kubernetes' format (RFC 3339). */
export function Time(description: string) {
  return Type.String({
    format: "date-time",
    maxLength: 64,
    pattern: TIME_PATTERN,
    description,
    [ALLOWED]: "a date and time such as 2026-01-31T12:00:00Z",
  })
}

/** Declares a time in any form of RFC 3339, which allows `t` and `z` too. Kubernetes allows capitals only. */
export function AnyTime(description: string) {
  return Type.String({ ...Time(description), pattern: TIME_PATTERN.replace("T", "[Tt]").replace("(Z|", "([Zz]|") })
}

/**
 * Declares a whole number from `minimum` to `maximum`. The default maximum is the greatest safe integer of JavaScript.
 */
export function Int(options: { minimum?: number; maximum?: number; default?: number; description?: string } = {}) {
  return Type.Integer({ format: "int64", minimum: 0, maximum: Number.MAX_SAFE_INTEGER, ...options })
}

export function Text(maxLength: number, description: string, options: Record<string, unknown> = {}) {
  return Type.String({ maxLength, description, ...options })
}

/** vCPUs greater than 0, as a Kubernetes quantity: `2`, `"2"`, `"0.5"`, `"500m"`. */
export const CPU_PATTERN =
  "^([1-9][0-9]{0,6}m|[1-9][0-9]{0,3}(\\.[0-9]{1,3})?|0\\.(00[1-9]|0[1-9][0-9]?|[1-9][0-9]{0,2}))$"

/** Bytes greater than 0 with a unit suffix, as a Kubernetes quantity: `4Gi`, `512Mi`, `1.5Ti`, `80G`. */
export const SIZE_PATTERN =
  "^([1-9][0-9]{0,11}(\\.[0-9]{1,3})?|0\\.(00[1-9]|0[1-9][0-9]?|[1-9][0-9]{0,2}))(Ki|Mi|Gi|Ti|k|M|G|T)$"

/**
 * Declares vCPUs as a Kubernetes quantity: a whole number or a string. Kubernetes has no other numbers here, and no
 * message of its own says so: the description does, and the bounds are in one rule.
 */
export function CpuQuantity(description: string) {
  return Type.Unsafe<number | string>({
    "x-kubernetes-int-or-string": true,
    anyOf: [{ type: "integer" }, { type: "string" }],
    minimum: 1,
    maximum: 9999,
    maxLength: 16,
    pattern: CPU_PATTERN,
    description: `${description} A fraction is a string, such as "0.5" or "500m".`,
    [ALLOWED]: 'a number of vCPUs such as 2, "0.5" or "500m"',
    [PATTERN_AS_RULE]: true,
  })
}

/** Declares a size in bytes as a Kubernetes quantity, always with a suffix. */
export function SizeQuantity(description: string) {
  return Type.String({
    pattern: SIZE_PATTERN,
    maxLength: 24,
    description,
    [ALLOWED]: "a size with a unit (Ki, Mi, Gi, Ti, k, M, G or T) such as 4Gi",
    [PATTERN_AS_RULE]: true,
  })
}

/** Declares a name that Kubernetes allows for a Secret. */
export function SecretName() {
  return Type.String({
    minLength: 1,
    maxLength: LONGEST_METADATA_NAME,
    pattern: DNS_SUBDOMAIN_PATTERN,
    description: "Name of the Secret.",
    [ALLOWED]:
      "the name of a Secret: a-z, 0-9, - and ., with a letter or digit at both ends and on both sides of each .",
  })
}

/** Declares a key that Kubernetes allows in a Secret's data. */
export function SecretDataKey() {
  return Type.String({
    minLength: 1,
    maxLength: 253,
    pattern: "^[-._a-zA-Z0-9]+$",
    description: "Key in the Secret's data.",
    [ALLOWED]: "a key of a Secret: letters, digits, -, _ and .",
  })
}

/** Declares `status.observedGeneration`, as Kubernetes defines it. */
export const ObservedGeneration = Type.Optional(
  Int({ description: "metadata.generation for which the status was last written." }),
)

/** Kubernetes' metav1.Condition. */
export const ConditionSchema = Type.Object({
  type: Type.String({ maxLength: 316, description: "Type of the condition." }),
  status: StringEnum(["True", "False", "Unknown"], { description: "True, False or Unknown." }),
  observedGeneration: Type.Optional(Int({ description: "metadata.generation for which the condition was set." })),
  lastTransitionTime: Time("Time of the last change of the status."),
  reason: Type.String({
    maxLength: 1024,
    pattern: "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    description: "Reason for the status, one CamelCase word.",
    [ALLOWED]: "one word of letters, digits, _, : and ,, with a letter first",
  }),
  message: Type.String({ maxLength: LIMITS.message, description: "Explanation for people." }),
})

/** One condition of an object's status. */
export type Condition = Static<typeof ConditionSchema>

/** Conditions of an object, one of each type. */
export const ConditionList = Type.Array(ConditionSchema, {
  description: "Conditions of the object, one of each type.",
  maxItems: LIMITS.conditions,
  "x-kubernetes-list-type": "map",
  "x-kubernetes-list-map-keys": ["type"],
})

/**
 * Returns the rule that makes fields of an object immutable. It is on the object and compares `has()` too. A rule on the
 * field itself could be bypassed: remove the field, then add it again. The API server evaluates every rule at each write
 * of a status too, so this is one rule, which ends at once if nothing has changed. Its message names the changed fields.
 */
export function immutable(fields: readonly string[]): CelRule {
  const isSame = (field: string) => {
    const now = `self.${celName(field)}`
    const before = `oldSelf.${celName(field)}`
    return `has(${now}) == has(${before}) && (!has(${now}) || ${now} == ${before})`
  }
  const named = fields.map((field) => `(${isSame(field)} ? '' : '${field} is immutable; ')`)
  const advice = "delete the object and create it again with the other value"
  return {
    rule: `self == oldSelf || (${fields.map(isSame).join(" && ")})`,
    message: `these fields are immutable: ${fields.join(", ")}; ${advice}`,
    messageExpression: `${named.join(" + ")} + '${advice}'`,
  }
}

/**
 * Returns a field's name in a rule: reserved words of CEL are put between underscores
 * (https://kubernetes.io/docs/reference/using-api/cel/#escaping).
 */
export function celName(field: string): string {
  return CEL_WORDS.includes(field) ? `__${field}__` : field
}

const CEL_WORDS =
  "true false null in as break const continue else for function if import let loop package namespace return"
    .concat(" var void while")
    .split(" ")
