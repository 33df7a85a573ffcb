import type { CredentialFields } from "../core/apis/credentials.ts"
import { CloudError } from "../core/outbound/errors.ts"
import { scrub } from "../core/sealing/scrub.ts"

/**
 * Returns the message of an error, for people, without any of the credentials.
 * @param logInternal gets the message of an internal error, for the log
 */
export function errorMessage(
  error: unknown,
  credentials: CredentialFields,
  logInternal: (message: string) => void,
): string {
  const message = scrub(error instanceof Error ? error.message : String(error), credentials)
  if (error instanceof CloudError) return message
  logInternal(message)
  return "internal error in Berth; its log has details"
}
