import Type from "typebox"

/** Schema of a value that is null until it is known. */
export function nullable<T extends string | number | boolean>(
  type: "string" | "number" | "integer" | "boolean",
  description: string,
) {
  return Type.Unsafe<T | null>({ type: [type, "null"], description })
}
