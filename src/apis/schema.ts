import Type, { type Static, type TSchema } from "typebox"
import { LIMITS } from "./limits.ts"
import { DNS_SUBDOMAIN_PATTERN, LONGEST_METADATA_NAME } from "./names.ts"

/**
 * The shapes that kinds are made of, beyond plain TypeBox: a Kubernetes structural schema knows no
 * union, const, pattern property or tuple, so each helper writes what the API server accepts and
 * carries the exact TypeScript type.
 */

/** A CEL rule of the API server (`x-kubernetes-validations`); `oldSelf` in it makes it a transition rule. */
export interface CelRule {
  rule: string
  message: string
  fieldPath?: string
}

/** Says in words what a pattern or a rule on keys allows; for messages, as regular expressions are no help to people. */
export const ALLOWED = "x-berth-allowed"

/** Says in words what `not` forbids, as the end of "must not …". */
export const FORBIDDEN = "x-berth-forbidden"

/** Marks a value that may be secret: no message ever shows it. */
export const SENSITIVE = "x-berth-sensitive"

/** One of a fixed list of strings. */
export function StringEnum<const T extends readonly string[]>(values: T, options: Record<string, unknown> = {}) {
  return Type.Unsafe<T[number]>({ type: "string", enum: [...values], ...options })
}

/** What the keys of a map must be: lengths in characters, and the same in words for messages. */
export interface KeyRule {
  minLength?: number
  maxLength: number
  pattern?: string
  allowed: string
}

export interface MapOptions {
  keys: KeyRule
  maxProperties: number
  description: string
}

/** A map with free keys, within their rule, at most `maxProperties` of them. */
export function MapOf<T extends TSchema>(value: T, options: MapOptions) {
  const { keys, ...others } = options
  const { allowed, ...bounds } = keys
  return Type.Unsafe<Record<string, Static<T>>>({
    type: "object",
    additionalProperties: value,
    propertyNames: { type: "string", ...bounds, [ALLOWED]: allowed },
    ...others,
  })
}

/**
 * RFC 3339 to the letter, beside the calendar's rules that the format checks: the API server's own check of
 * `date-time` lets pass any character before fractions, and any offset.
 */
const TIME_PATTERN =
  "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"

/** A time as Kubernetes writes it (RFC 3339). */
export function Time(description: string) {
  return Type.String({
    format: "date-time",
    maxLength: 64,
    pattern: TIME_PATTERN,
    description,
    [ALLOWED]: "a date and time such as 2026-01-31T12:00:00Z",
  })
}

/** A whole number between `minimum` and `maximum`, at most what JavaScript counts exactly. */
export function Int(options: { minimum?: number; maximum?: number; default?: number; description?: string } = {}) {
  return Type.Integer({ format: "int64", minimum: 0, maximum: Number.MAX_SAFE_INTEGER, ...options })
}

/** A bounded text field. */
export function Text(maxLength: number, description: string, options: Record<string, unknown> = {}) {
  return Type.String({ maxLength, description, ...options })
}

/** vCPUs greater than 0, as a Kubernetes quantity: `2`, `"2"`, `"0.5"`, `"500m"`. */
export const CPU_PATTERN =
  "^([1-9][0-9]{0,6}m|[1-9][0-9]{0,3}(\\.[0-9]{1,3})?|0\\.(00[1-9]|0[1-9][0-9]?|[1-9][0-9]{0,2}))$"

/** Bytes greater than 0 with a unit suffix, as a Kubernetes quantity: `4Gi`, `512Mi`, `1.5Ti`, `80G`. */
export const SIZE_PATTERN =
  "^([1-9][0-9]{0,11}(\\.[0-9]{1,3})?|0\\.(00[1-9]|0[1-9][0-9]?|[1-9][0-9]{0,2}))(Ki|Mi|Gi|Ti|k|M|G|T)$"

/** vCPUs as Kubernetes writes quantities: a whole number or a string. */
export function CpuQuantity(description: string) {
  return Type.Unsafe<number | string>({
    "x-kubernetes-int-or-string": true,
    anyOf: [{ type: "integer" }, { type: "string" }],
    minimum: 1,
    maximum: 9999,
    maxLength: 16,
    pattern: CPU_PATTERN,
    description,
    [ALLOWED]: 'a number of vCPUs such as 2, "0.5" or "500m"',
  })
}

/** A size in bytes as Kubernetes writes quantities; always with a suffix. */
export function SizeQuantity(description: string) {
  return Type.String({
    pattern: SIZE_PATTERN,
    maxLength: 24,
    description,
    [ALLOWED]: "a size with a unit (Ki, Mi, Gi, Ti, k, M, G or T) such as 4Gi",
  })
}

/** Name of a Secret, as Kubernetes allows it. */
export function SecretName() {
  return Type.String({
    minLength: 1,
    maxLength: LONGEST_METADATA_NAME,
    pattern: DNS_SUBDOMAIN_PATTERN,
    description: "Name of the Secret.",
    [ALLOWED]: "the name of a Secret: a-z, 0-9, - and ., with a letter or digit at both ends and beside each .",
  })
}

/** Key in a Secret's data, as Kubernetes allows it. */
export function SecretDataKey() {
  return Type.String({
    minLength: 1,
    maxLength: 253,
    pattern: "^[-._a-zA-Z0-9]+$",
    description: "Key in the Secret's data.",
    [ALLOWED]: "a key of a Secret: letters, digits, -, _ and .",
  })
}

/** Kubernetes' metav1.Condition. */
export const ConditionSchema = Type.Object({
  type: Type.String({ maxLength: 316 }),
  status: StringEnum(["True", "False", "Unknown"]),
  observedGeneration: Type.Optional(Int()),
  lastTransitionTime: Time("When the status last changed."),
  reason: Type.String({ maxLength: 1024, pattern: "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$" }),
  message: Type.String({ maxLength: LIMITS.message }),
})

/** One condition of an object's status. */
export type Condition = Static<typeof ConditionSchema>

/** An object's conditions, one of each type. */
export const ConditionList = Type.Array(ConditionSchema, {
  maxItems: LIMITS.conditions,
  "x-kubernetes-list-type": "map",
  "x-kubernetes-list-map-keys": ["type"],
})

/**
 * Rules that freeze optional and required fields of an object for good. They stand on the object and compare
 * `has()` too, because a rule on the field itself is bypassed by removing the field and adding it again.
 */
export function immutable(fields: readonly string[]): CelRule[] {
  return fields.map((field) => {
    const now = `self.${celName(field)}`
    const before = `oldSelf.${celName(field)}`
    return {
      rule: `has(${now}) == has(${before}) && (!has(${now}) || ${now} == ${before})`,
      message: `${field} is immutable: delete the object and create it anew with the other value`,
      fieldPath: `.${field}`,
    }
  })
}

/**
 * A field's name as rules write it: CEL's own words are put between underscores
 * (https://kubernetes.io/docs/reference/using-api/cel/#escaping).
 */
function celName(field: string): string {
  return CEL_WORDS.includes(field) ? `__${field}__` : field
}

const CEL_WORDS =
  "true false null in as break const continue else for function if import let loop package namespace return"
    .concat(" var void while")
    .split(" ")
