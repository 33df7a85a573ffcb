import type { CredentialFields } from "../apis/credentials.ts"
import { CloudError } from "../cloud/errors.ts"
import { scrubbed } from "../sealing/scrub.ts"

/**
 * Why who was asked gave no answer, for people, without any of the credentials.
 * @param tell gets the message of what is no answer of theirs but a fault of ours, for the log
 */
export function explained(error: unknown, credentials: CredentialFields, tell: (message: string) => void): string {
  const message = scrubbed(error instanceof Error ? error.message : String(error), credentials)
  if (error instanceof CloudError) return message
  tell(message)
  return "it could not be asked, by a fault of ours"
}
