import type { Static, TSchema } from "typebox"
import Value from "typebox/value"

/** How many faults one error names; a wholly wrong message has hundreds. */
const FAULTS_NAMED = 5

/**
 * The value, when it is what the schema says. Throws TypeError otherwise, with the JSON pointers of the fields
 * that are wrong and what they must be; never with their values, which may be secrets.
 */
export function check<T extends TSchema>(schema: T, value: unknown, what: string): Static<T> {
  if (Value.Check(schema, value)) return value
  const faults = Value.Errors(schema, value).map(
    ({ instancePath, message }) => `${instancePath === "" ? "it" : instancePath} ${message}`,
  )
  throw new TypeError(`${what} is invalid: ${faults.slice(0, FAULTS_NAMED).join("; ")}`)
}
