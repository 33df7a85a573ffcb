import Type from "typebox"
import { UUID } from "../core/apis/names.ts"
import { ALLOWED, FORBIDDEN } from "../core/apis/schema.ts"

/** Keywords of a name that must not look like an id. An object with such a name would hide the object with the id. */
export function noUuid(noun: string) {
  return {
    not: { type: "string", pattern: UUID.source },
    [FORBIDDEN]: `look like a UUID: the API would confuse it with a ${noun}'s id`,
  }
}

/** Schema of the name of a key or a connection (contract, "Limits"). @param noun the contract's word for the object */
export function nameSchema(noun: string) {
  return Type.String({
    minLength: 3,
    maxLength: 50,
    pattern: "^[a-zA-Z0-9][a-zA-Z0-9_-]*$",
    description: "Unique in the project.",
    [ALLOWED]: "letters, digits, _ and -, with a letter or digit first",
    ...noUuid(noun),
  })
}
