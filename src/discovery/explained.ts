import type { CredentialFields } from "../apis/credentials.ts"
import { CloudError } from "../cloud/errors.ts"
import { scrubbed } from "../sealing/scrub.ts"

/**
 * Returns the message of an error, for people, without any of the credentials.
 * @param logInternal gets the message of an internal error, for the log
 */
export function explained(
  error: unknown,
  credentials: CredentialFields,
  logInternal: (message: string) => void,
): string {
  const message = scrubbed(error instanceof Error ? error.message : String(error), credentials)
  if (error instanceof CloudError) return message
  logInternal(message)
  return "internal error in Berth; its log has details"
}
