import { errors } from "jose"
import type { Static, TSchema } from "typebox"
import {
  type AnyMessageKind,
  check,
  checkEncryptionKey,
  unverifiedMessage,
  verifyMessage,
} from "../../core/protocol/messages.ts"
import { badRequest } from "../http/problem.ts"
import { refusal } from "./refusal.ts"

/** Opens a message that gives the keys of its sender. It is signed with the key that it contains. @throws Problem 400, 401 */
export async function openRegistration<T extends TSchema>(
  kind: AnyMessageKind,
  jws: string,
  schema: T,
): Promise<Static<T>> {
  const claimed = await asClientError(() => check(schema, unverifiedMessage(jws), "The message"))
  const { signingKey, encryptionKey } = claimed as { signingKey: string; encryptionKey: string }
  await asClientError(() => checkEncryptionKey(encryptionKey))
  return await openSigned(kind, { jws, key: signingKey }, schema)
}

/** Opens a message that must be signed with this key. @throws Problem 400, 401 */
export async function openSigned<T extends TSchema>(
  kind: AnyMessageKind,
  { jws, key }: { jws: string; key: string },
  schema: T,
): Promise<Static<T>> {
  const opened = await asClientError(() => verifyMessage(kind, jws, key))
  return await asClientError(() => check(schema, opened, "The message"))
}

/** Converts errors in a message to 400 and 401. */
export async function asClientError<Result>(open: () => Result | Promise<Result>): Promise<Result> {
  try {
    return await open()
  } catch (error) {
    if (error instanceof errors.JWSSignatureVerificationFailed) {
      throw refusal("agent-not-authentic", "The message is not signed with the key that is bound here.")
    }
    if (error instanceof errors.JOSEError || error instanceof TypeError) throw badRequest(error.message)
    throw error
  }
}
