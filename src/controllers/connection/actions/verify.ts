import { cutTo } from "../../../apis/conditions.ts"
import type { ConnectionType } from "../../../apis/connection.ts"
import type { CredentialFields } from "../../../apis/credentials.ts"
import type { ExternalAccount, VerifiedIdentity } from "../../../cloud/account.ts"
import { CloudError, CredentialsError, InvalidRequestError } from "../../../cloud/errors.ts"
import { scrubbedError } from "../../../sealing/scrub.ts"
import type { ConnectionControllerOptions } from "../dependencies.ts"
import type { Outcome } from "../observation.ts"

/** Room for what a condition's message says around it. */
const LONGEST_MESSAGE = 1024

export interface Verification {
  type: ConnectionType
  fields: CredentialFields
  /** How long it may take. */
  seconds: number
  /** Aborted when the outcome is of no use any more; its reason is thrown. */
  signal: AbortSignal
}

/** Asks the provider whose credentials these are. What it answers is told without any piece of them. */
export async function verify(
  { type, fields, seconds, signal }: Verification,
  { openAccount, clock, logger }: Pick<ConnectionControllerOptions, "openAccount" | "clock" | "logger">,
): Promise<Outcome> {
  const late = new AbortController()
  const cancel = clock.setTimer(seconds, () => late.abort(new Error(`no answer within ${seconds} seconds`)))
  try {
    const account = openAccount(type, fields)
    if (account === undefined) return { is: "unsupported" }
    const { account: id, launch } = await ask(account, AbortSignal.any([signal, late.signal]))
    return { is: "verified", account: id, ...(launch !== undefined && { launch }) }
  } catch (error) {
    signal.throwIfAborted()
    const err = scrubbedError(error, fields)
    logger.debug({ err, type }, "credentials were not verified")
    return outcomeOf(err)
  } finally {
    cancel()
  }
}

/** Ends with the signal, also where a provider's SDK doesn't. */
async function ask(account: ExternalAccount, signal: AbortSignal): Promise<VerifiedIdentity> {
  const { promise, reject } = Promise.withResolvers<never>()
  const end = (): void => reject(signal.reason as Error)
  signal.throwIfAborted()
  signal.addEventListener("abort", end, { once: true })
  try {
    return await Promise.race([account.verify(signal), promise])
  } finally {
    signal.removeEventListener("abort", end)
  }
}

function outcomeOf(error: unknown): Outcome {
  const { message } = error instanceof Error ? error : new Error(String(error))
  const told = cutTo(error instanceof CloudError ? `${error.code}: ${message}` : message, LONGEST_MESSAGE)
  const isRefusal = error instanceof CredentialsError || error instanceof InvalidRequestError
  return { is: isRefusal ? "refused" : "unreachable", message: told }
}
