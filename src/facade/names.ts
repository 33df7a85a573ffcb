import Type from "typebox"
import { UUID } from "../apis/names.ts"
import { ALLOWED, FORBIDDEN } from "../apis/schema.ts"

/** Keywords of a name that must not look like an id: an object of that name would hide the one with that id. */
export function noUuid(noun: string) {
  return {
    not: { type: "string", pattern: UUID.source },
    [FORBIDDEN]: `look like a UUID: the API would confuse it with a ${noun}'s id`,
  }
}

/** The name of a key or a connection (contract, "Limits"). @param noun the contract's word for the object */
export function NameOf(noun: string) {
  return Type.String({
    minLength: 3,
    maxLength: 50,
    pattern: "^[a-zA-Z0-9][a-zA-Z0-9_-]*$",
    description: "Unique in the project.",
    [ALLOWED]: "of letters, digits, _ and -, and start with a letter or digit",
    ...noUuid(noun),
  })
}
