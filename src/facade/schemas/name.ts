import Type from "typebox"
import { ALLOWED } from "../../apis/schema.ts"

/** What a key or a connection may be called (contract, "Limits"). */
export const NameSchema = Type.String({
  minLength: 3,
  maxLength: 50,
  pattern: "^[a-zA-Z0-9][a-zA-Z0-9_-]*$",
  description: "Unique in the project.",
  [ALLOWED]: "of letters, digits, _ and -, and start with a letter or digit",
})
