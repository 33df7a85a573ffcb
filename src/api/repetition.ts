import { isDeepStrictEqual } from "node:util"
import Type, { type TSchema } from "typebox"
import { type FieldError, quote } from "../core/apis/field-error.ts"
import { invalidRequest } from "./http/problem.ts"

/** Schema of a record's field that a PATCH may repeat, so that a client can send back the record that it got. */
export function Repeated(schema: TSchema = Type.String()) {
  const { type, enum: words } = schema as { type?: unknown; enum?: unknown }
  const json = {
    type,
    ...(words !== undefined && { enum: words }),
    description: "Read-only: send the same value, or leave it out.",
  }
  return Type.Optional(Type.Unsafe<unknown>(json))
}

/** Schema of a record's field that changes by itself. A PATCH may have any value of it, and the value is ignored. */
export function Ignored() {
  return Type.Optional(Type.Unsafe<unknown>({ type: ["string", "null"], description: "Ignored." }))
}

/** Returns an error for each of these fields that the body would change. */
export function repetitionErrors(noun: string, body: object, present: Readonly<Record<string, unknown>>): FieldError[] {
  const given = body as Readonly<Record<string, unknown>>
  return Object.entries(present).flatMap(([field, value]) => {
    if (given[field] === undefined || isDeepStrictEqual(given[field], value)) return []
    const shown = typeof value === "string" ? quote(value) : JSON.stringify(value)
    const detail = `${field} cannot be changed: it is ${shown}; leave it out, or delete the ${noun} and create another`
    return [{ pointer: `/${field}`, detail }]
  })
}

/** @throws Problem 400 if the body would change one of these fields */
export function requireRepetition(noun: string, body: object, present: Readonly<Record<string, unknown>>): void {
  const errors = repetitionErrors(noun, body, present)
  if (errors.length > 0) throw invalidRequest(errors, "The change")
}
