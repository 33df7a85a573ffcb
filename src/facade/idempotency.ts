import type { Request } from "express"
import { badRequest } from "./problem.ts"

/**
 * The request's Idempotency-Key: any text that a header can hold; it is kept on the object, so it has a bound.
 * @throws Problem 400
 */
export function idempotencyKeyOf(req: Request): string | undefined {
  const header = req.get("Idempotency-Key")
  if (header === undefined || /^[\x20-\x7e]{1,255}$/.test(header)) return header
  throw badRequest("Idempotency-Key must have 1 to 255 printable ASCII characters.")
}
