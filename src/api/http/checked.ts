import type { TSchema } from "typebox"
import { withoutNulls } from "../../core/apis/nulls.ts"
import { type FieldError, findErrors } from "../../core/apis/validate.ts"
import type { Additions } from "./json-schema.ts"

/** Body that is valid, or its errors. */
export type Checked<Body> = { body: Body } | Refused<Body>

/** All errors of a body that is rejected. */
export interface Refused<Body> {
  errors: FieldError[]
  /** Body whose only errors come from the time or the catalogue: an earlier request may have succeeded with it. */
  once?: Body
}

/** Body whose fields may be of any type. Every rule checks the types that it needs. */
export type Unchecked = Readonly<Record<string, unknown>>

/** Rule that the schema of a body can't express: keywords for the document, and functions that find errors. */
export interface Rule<Context = unknown> {
  keywords?: Additions
  errors?: (body: Unchecked, context: Context) => FieldError[]
  /** Finds errors that depend on the time or the catalogue: the same body may have been valid before. */
  errorsNow?: (body: Unchecked, context: Context) => FieldError[]
}

export interface Checks<Context> {
  schema: TSchema
  rules: readonly Rule<Context>[]
  context: Context
  /** Improves the message of an error that the schema found. */
  explain?: (error: FieldError, body: unknown) => FieldError
}

/** Checks a parsed body by its schema and by its rules. Null fields count as omitted. */
export function checked<Body, Context = unknown>(
  value: unknown,
  { schema, rules, context, explain }: Checks<Context>,
): Checked<Body> {
  const body = withoutNulls(schema, value, "fields")
  const found = findErrors(schema, body)
  const errors = explain === undefined ? found : found.map((error) => explain(error, body))
  if (typeof body !== "object" || body === null) return { errors }
  const fields = body as Unchecked
  // A value that the schema rejects has its error already.
  const isNew = ({ pointer }: FieldError) => !found.some((error) => isAt(pointer, error.pointer))
  errors.push(...rules.flatMap((rule) => rule.errors?.(fields, context) ?? []).filter(isNew))
  const now = rules.flatMap((rule) => rule.errorsNow?.(fields, context) ?? []).filter(isNew)
  return refusedBy(body as Body, errors, now) ?? { body: body as Body }
}

/** Returns true if a pointer is to a place or to a part of it. */
function isAt(pointer: string, place: string): boolean {
  return place !== "" && (pointer === place || pointer.startsWith(`${place}/`))
}

/**
 * Returns the refusal of a body, or undefined if it has no error.
 * @param errors errors that don't depend on the time
 * @param now errors that depend on the time or the catalogue
 */
function refusedBy<Body>(
  body: Body,
  errors: readonly FieldError[],
  now: readonly FieldError[],
): Refused<Body> | undefined {
  if (errors.length + now.length === 0) return undefined
  return { errors: [...errors, ...now], ...(errors.length === 0 && { once: body }) }
}
