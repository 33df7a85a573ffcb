import { escapePointer } from "../../core/apis/field-error.ts"
import type { FieldError } from "../../core/apis/validate.ts"
import { invalidRequest } from "./problem.ts"

/** Escapes of JSON and YAML for one half of a surrogate pair. Other texts come from UTF-8, which has no such halves. */
const ESCAPED_SURROGATE = /\\(?:u|U0000)[dD][89a-fA-F]/

const MOST_ERRORS = 20

/**
 * Rejects texts with half of a surrogate pair, such as "\\ud83d". They aren't Unicode, and Kubernetes would store
 * another character in their place.
 * @param text the body, to save the search in most bodies
 * @throws Problem 400 with the place of each
 */
export function requireUnicode(text: string, value: unknown): void {
  if (!ESCAPED_SURROGATE.test(text)) return
  const errors = [...errorsIn(value, "")]
  if (errors.length > 0) throw invalidRequest(errors.slice(0, MOST_ERRORS), "The body")
}

function* errorsIn(value: unknown, pointer: string): Generator<FieldError> {
  if (typeof value === "string" && !value.isWellFormed()) {
    yield {
      pointer,
      detail: `${pointer || "the body"} has half of a surrogate pair (\\ud800 to \\udfff): send both halves`,
    }
  }
  if (typeof value !== "object" || value === null) return
  for (const [key, item] of Object.entries(value)) {
    const inside = `${pointer}/${escapePointer(key.toWellFormed())}`
    if (!key.isWellFormed()) yield { pointer: inside, detail: `the key ${inside} has half of a surrogate pair` }
    yield* errorsIn(item, inside)
  }
}
