import type { TSchema } from "typebox"
import { withoutNulls } from "../apis/nulls.ts"
import { type Fault, faultsOf } from "../apis/validate.ts"
import type { Additions } from "./json-schema.ts"

/** A body that is valid, or one that is refused. */
export type Checked<Body> = { body: Body } | Refused<Body>

/** A body that is refused, and all its faults. */
export interface Refused<Body> {
  faults: Fault[]
  /** The body, where only the time or the catalogue is against it: an earlier request may have made something of it. */
  once?: Body
}

/** A body whose fields may be of any type: every rule checks the types that it needs. */
export type Unchecked = Readonly<Record<string, unknown>>

/** A rule that the schema of a body can't express: how the document writes it, and which faults it finds. */
export interface Rule<Context = unknown> {
  keywords?: Additions
  faults?: (body: Unchecked, context: Context) => Fault[]
  /** Faults that depend on the time or the catalogue: the same body may have been valid before. */
  faultsNow?: (body: Unchecked, context: Context) => Fault[]
}

export interface Checks<Context> {
  schema: TSchema
  rules: readonly Rule<Context>[]
  context: Context
  /** Makes a fault of the schema clearer. */
  explain?: (fault: Fault, body: unknown) => Fault
}

/** Checks a parsed body by its schema and by its rules. A null field is a field left out. */
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
 * The refusal of a body; undefined when it has no fault.
 * @param faults faults that it has whenever it is sent
 * @param now faults that it has by the time or the catalogue
 */
function refusedBy<Body>(body: Body, faults: readonly Fault[], now: readonly Fault[]): Refused<Body> | undefined {
  if (faults.length + now.length === 0) return undefined
  return { faults: [...faults, ...now], ...(faults.length === 0 && { once: body }) }
}
