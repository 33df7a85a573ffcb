import { CloudError, CredentialsError, InvalidRequestError, TransientError } from "./errors.ts"

/** Facts about a failed call that only reads. */
export interface ReadFailure {
  /** HTTP status; absent if no answer arrived. */
  status?: number | undefined
  /** The provider's own error code, if it has one. */
  code?: string | undefined
  message: string
  cause?: unknown
}

/**
 * Classifies a failed reading call. Such a call has no effect, so a missing answer, a 5xx and "too many requests" are
 * all transient.
 */
export function readError({ status, code, message, cause }: ReadFailure): CloudError {
  const known = code ?? (status === undefined ? "NoAnswer" : `HTTP${status}`)
  const options = { cause }
  if (status === undefined || status >= 500 || status === 408 || status === 429)
    return new TransientError(known, message, options)
  if (status === 401 || status === 403) return new CredentialsError(known, message, options)
  return new InvalidRequestError(known, message, options)
}

/** Returns the error for a call that was cancelled by its signal. */
export function abortedRead(cause?: unknown): CloudError {
  return new TransientError("Aborted", "the call was cancelled before an answer arrived", { cause })
}

/**
 * Returns a thrown value as a CloudError: itself, `abortedRead` if the signal is aborted, else the result of `explain`.
 */
export function toReadError(error: unknown, signal: AbortSignal, explain: (error: unknown) => ReadFailure): CloudError {
  if (error instanceof CloudError) return error
  return signal.aborted ? abortedRead(error) : readError({ cause: error, ...explain(error) })
}
