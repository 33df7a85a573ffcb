import {
  CapacityError,
  CloudError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  TransientError,
} from "../errors.ts"

/**
 * What Compute Engine's errors mean. Its codes come in two ways: at once, as an HTTP status with `errors[].reason`
 * (https://cloud.google.com/compute/docs/reference/rest/v1/errors), and at the end of an operation, as `error.errors[]`
 * (https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability).
 */

/** The zone does not sell this machine: another one of the region may. */
export class NotInZoneError extends CapacityError {}

/** What a call does, which tells what a broken one may have done. */
export type Effect = "read" | "change"

/** One error of an operation that has ended. */
export interface OperationError {
  code?: string | null
  message?: string | null
}

/** GCE's own words for an error, however it came. */
interface Said {
  code: string
  message: string
  status?: number
}

const STOCKOUT =
  /^(ZONE_|REGION_)?RESOURCE_POOL_EXHAUSTED(_WITH_DETAILS)?$|^STOCKOUT$|^resourcesNotAvailable$|^INSUFFICIENT_(CAPACITY|RESOURCES)$/i
const QUOTA = /^(GLOBAL_|REGIONAL_)?QUOTA_?EXCEEDED$|^LIMIT_?EXCEEDED$/i
const RATE = /^(user)?rateLimitExceeded$|^RATE_LIMIT_EXCEEDED$|^RESOURCE_OPERATION_RATE_EXCEEDED$/i
const PERMISSION = /^PERMISSIONS?_(ERROR|DENIED)$|^forbidden$|^accessNotConfigured$|^authError$/i
const NOT_READY = /^resourceNotReady$|^RESOURCE_NOT_READY$|^resourceInUseByAnotherResource$/i

/** A machine type, or a kind of GPUs, that the zone doesn't have. */
const NOT_SOLD =
  /(machine ?type|acceleratorType|accelerator type)s?\b.*(not found|does not exist|is not available|not supported in|cannot be found)/is

/** What of a call's own failure was said. `error` is the SDK's. */
function said(error: unknown): Said {
  if (!(error instanceof Error)) return { code: "Unknown", message: String(error) }
  const { httpStatusCode: status } = error as { httpStatusCode?: number }
  const reason = reasonIn((error as { [RAW_PAYLOAD]?: unknown })[RAW_PAYLOAD])
  const code = reason ?? (status === undefined ? systemCode(error) : `HTTP${status}`)
  return { code, message: error.message, ...(status !== undefined && { status }) }
}

/** Where the SDK keeps the answer as it came: its own error has lost Compute Engine's reason. */
const RAW_PAYLOAD: unique symbol = Symbol.for("google-gax.rawHttpResponsePayload") as never

function reasonIn(payload: unknown): string | undefined {
  try {
    const body = (typeof payload === "string" ? JSON.parse(payload) : payload) as {
      error?: { errors?: { reason?: string }[]; details?: { reason?: string }[] }
    }
    return body?.error?.errors?.[0]?.reason ?? body?.error?.details?.find(({ reason }) => reason)?.reason
  } catch {
    // A proxy's page, say: then the status has to do.
    return undefined
  }
}

function systemCode(error: Error): string {
  const { code, cause } = error as { code?: unknown; cause?: unknown }
  if (cause instanceof Error) return systemCode(cause)
  return typeof code === "string" ? code : error.name
}

/** Nobody was reached: no request can have had an effect. */
const NOT_CONNECTED = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/

/** What the failure of a call means. */
export function callError(error: unknown, effect: Effect): CloudError {
  if (error instanceof CloudError) return error
  const { code, message, status } = said(error)
  const options = { cause: error }
  if (status === undefined) {
    const happened = effect === "change" && !NOT_CONNECTED.test(code)
    if (happened) return new OutcomeUnknownError(code, `Compute Engine did not answer: ${message}`, options)
    return new TransientError(code, `Compute Engine could not be reached: ${message}`, options)
  }
  const known = meaning({ code, message }, options)
  if (known !== undefined) return known
  if (status === 401 || status === 403) return new CredentialsError(code, message, options)
  if (status === 429) return new TransientError(code, message, options)
  if (status >= 500) {
    return effect === "change"
      ? new OutcomeUnknownError(code, message, options)
      : new TransientError(code, message, options)
  }
  return status === 409 ? new TransientError(code, message, options) : new InvalidRequestError(code, message, options)
}

/** What the error of an operation means, which has ended and left nothing. */
export function operationError(errors: readonly OperationError[], status: number): CloudError {
  const [first] = errors
  const code = first?.code ?? `HTTP${status}`
  const message = errors.map((error) => error.message ?? error.code).join("; ") || `the operation failed with ${status}`
  const known = meaning({ code, message })
  if (known !== undefined && !(known instanceof TransientError)) return known
  // Its identical repetition would be answered with this very operation: as far as this request goes, it is refused.
  if (known !== undefined || status >= 500 || status === 0 || status === 409 || status === 429) {
    return new CapacityError(code, message)
  }
  return status === 401 || status === 403 ? new CredentialsError(code, message) : new InvalidRequestError(code, message)
}

function meaning({ code, message }: Said, options?: ErrorOptions): CloudError | undefined {
  if (STOCKOUT.test(code)) return new CapacityError(code, message, options)
  if (QUOTA.test(code)) return new QuotaError(code, message, options)
  if (RATE.test(code)) return new TransientError(code, message, options)
  if (PERMISSION.test(code)) return new CredentialsError(code, message, options)
  if (NOT_READY.test(code)) return new TransientError(code, message, options)
  if (NOT_SOLD.test(message)) return new NotInZoneError(code, message, options)
  return undefined
}

/** The failure to get a token. Google's answer to a key that is wrong, deleted or disabled is `invalid_grant`. */
export function tokenError(error: unknown): CloudError {
  const { status, message = String(error), code } = error as { status?: number; message?: string; code?: unknown }
  const name = /invalid_grant|invalid_client|account_disabled/.exec(message)?.[0]
  const refused = name !== undefined || status === 400 || status === 401 || status === 403
  // Without a status and a system's code the key itself could not be read or used.
  if (refused || (status === undefined && (typeof code !== "string" || code.startsWith("ERR_OSSL")))) {
    const text = "Google refused the service account's key: make a new one, and see that the account is enabled"
    return new CredentialsError(name ?? "KeyRefused", text, { cause: error })
  }
  return new TransientError(String(code ?? status), `Google's token endpoint could not be asked: ${message}`, {
    cause: error,
  })
}

/** Whether there is no such thing. */
export function isNotFound(error: unknown): boolean {
  return (error as { httpStatusCode?: number }).httpStatusCode === 404
}

/** Whether there is one of that name already. */
export function isAlreadyThere(error: unknown): boolean {
  return said(error).code === "alreadyExists" || (error as { httpStatusCode?: number }).httpStatusCode === 409
}
