import type { TSchema } from "typebox"
import { withoutNulls } from "../apis/nulls.ts"
import { type FieldError, faultsOf } from "../apis/validate.ts"
import type { Additions } from "./json-schema.ts"

/** Body that is valid, or its faults. */
export type Checked<Body> = { body: Body } | Refused<Body>

/** All faults of a body that is rejected. */
export interface Refused<Body> {
  faults: FieldError[]
  /** Body whose only faults come from the time or the catalogue: an earlier request may have succeeded with it. */
  once?: Body
}

/** Body whose fields may be of any type. Every rule checks the types that it needs. */
export type Unchecked = Readonly<Record<string, unknown>>

/** Rule that the schema of a body can't express: keywords for the document, and functions that find faults. */
export interface Rule<Context = unknown> {
  keywords?: Additions
  faults?: (body: Unchecked, context: Context) => FieldError[]
  /** Finds faults that depend on the time or the catalogue: the same body may have been valid before. */
  faultsNow?: (body: Unchecked, context: Context) => FieldError[]
}

export interface Checks<Context> {
  schema: TSchema
  rules: readonly Rule<Context>[]
  context: Context
  /** Improves the message of a fault that the schema found. */
  explain?: (fault: FieldError, body: unknown) => FieldError
}

/** Checks a parsed body by its schema and by its rules. Null fields count as omitted. */
export function checked<Body, Context = unknown>(
  value: unknown,
  { schema, rules, context, explain }: Checks<Context>,
): Checked<Body> {
  const body = withoutNulls(schema, value, "fields")
  const found = faultsOf(schema, body)
  const faults = explain === undefined ? found : found.map((fault) => explain(fault, body))
  if (typeof body !== "object" || body === null) return { faults }
  const fields = body as Unchecked
  faults.push(...rules.flatMap((rule) => rule.faults?.(fields, context) ?? []))
  const now = rules.flatMap((rule) => rule.faultsNow?.(fields, context) ?? [])
  return refusedBy(body as Body, faults, now) ?? { body: body as Body }
}

/**
 * Returns the refusal of a body, or undefined if it has no fault.
 * @param faults faults that don't depend on the time
 * @param now faults that depend on the time or the catalogue
 */
function refusedBy<Body>(
  body: Body,
  faults: readonly FieldError[],
  now: readonly FieldError[],
): Refused<Body> | undefined {
  if (faults.length + now.length === 0) return undefined
  return { faults: [...faults, ...now], ...(faults.length === 0 && { once: body }) }
}
