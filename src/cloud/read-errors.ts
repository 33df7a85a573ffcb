import { CloudError, CredentialsError, InvalidRequestError, TransientError } from "./errors.ts"

/** What is known of a failed call that only reads. */
export interface ReadFailure {
  /** HTTP status; absent when no answer came. */
  status?: number | undefined
  /** The provider's own word for it, where it has one. */
  code?: string | undefined
  message: string
  cause?: unknown
}

/**
 * A failed reading call by what it means. Nothing can have happened by it, so an answer that did not come, a 5xx and
 * "too many requests" are all transient.
 */
export function readError({ status, code, message, cause }: ReadFailure): CloudError {
  const known = code ?? (status === undefined ? "NoAnswer" : `HTTP${status}`)
  const options = { cause }
  if (status === undefined || status >= 500 || status === 408 || status === 429)
    return new TransientError(known, message, options)
  if (status === 401 || status === 403) return new CredentialsError(known, message, options)
  return new InvalidRequestError(known, message, options)
}

/** The call was given up, because its signal was aborted. */
export function abortedRead(cause?: unknown): CloudError {
  return new TransientError("Aborted", "it was given up before it was answered", { cause })
}

/** What was thrown, as a CloudError: itself, `aborted` when the signal is, else what `explain` makes of it. */
export function readErrorOf(error: unknown, signal: AbortSignal, explain: (error: unknown) => ReadFailure): CloudError {
  if (error instanceof CloudError) return error
  return signal.aborted ? abortedRead(error) : readError({ cause: error, ...explain(error) })
}
