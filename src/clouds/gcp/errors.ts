import { defined } from "../../core/apis/defined.ts"
import {
  AccountError,
  CapacityError,
  CloudError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  TransientError,
} from "../../core/outbound/errors.ts"

/**
 * Meanings of Compute Engine's errors. A code arrives either at once, as an HTTP status with `errors[].reason`
 * (https://cloud.google.com/compute/docs/reference/rest/v1/errors). Or it arrives at the end of an operation, as
 * `error.errors[]` (https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-resource-availability).
 */

/** The zone does not sell this machine. Another zone of the region may. */
export class NotInZoneError extends CapacityError {}

/** Effect of a call. It decides whether a broken call leaves the outcome unknown. */
export type Effect = "read" | "change"

/** One error of an operation that has ended. */
export interface OperationError {
  code?: string | null
  message?: string | null
}

/** GCE's own code and message of an error, from either source. */
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

/**
 * Policies of the organization that hold for every VM of the project, or for every one with this image
 * (https://cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints). Other constraints may
 * allow another machine.
 */
const ACCOUNT_POLICY = /constraints\/compute\.(vmExternalIpAccess|requireShieldedVm|trustedImageProjects)\b/
/** A policy on regions. */
const PLACE_POLICY = /constraints\/gcp\.resourceLocations\b/
/** The project lacks the network `default`, or the configured one. */
const NO_NETWORK = /referenced network resource cannot be found|global\/networks\/[^ ]* was not found/i
/** The network has no subnetwork in the region. */
const NO_SUBNETWORK =
  /referenced subnetwork resource cannot be found|subnetworks\/[^ ]* was not found|no default subnetwork was found/i

const OF_ACCOUNT = [ACCOUNT_POLICY, PLACE_POLICY, NO_NETWORK, NO_SUBNETWORK]

/** A machine type, or a GPU type, that the zone does not have. */
const NOT_SOLD =
  /(machine ?type|acceleratorType|accelerator type)s?\b.*(not found|does not exist|is not available|not supported in|cannot be found)/is

/** Returns the code and message of a call's own failure. `error` is the SDK's. */
function messageIn(error: unknown): Said {
  if (!(error instanceof Error)) return { code: "Unknown", message: String(error) }
  const { httpStatusCode: status } = error as { httpStatusCode?: number }
  const reason = reasonIn((error as { [RAW_PAYLOAD]?: unknown })[RAW_PAYLOAD])
  const code = reason ?? (status === undefined ? systemCode(error) : `HTTP${status}`)
  return { code, message: error.message, ...defined({ status }) }
}

/** The SDK keeps the raw answer under this symbol. Its own error has lost Compute Engine's reason. */
const RAW_PAYLOAD: unique symbol = Symbol.for("google-gax.rawHttpResponsePayload") as never

function reasonIn(payload: unknown): string | undefined {
  try {
    const body = (typeof payload === "string" ? JSON.parse(payload) : payload) as {
      error?: { errors?: { reason?: string }[]; details?: { reason?: string }[] }
    }
    return body?.error?.errors?.[0]?.reason ?? body?.error?.details?.find(({ reason }) => reason)?.reason
  } catch {
    // For example a proxy's page: then only the status counts.
    return undefined
  }
}

function systemCode(error: Error): string {
  const { code, cause } = error as { code?: unknown; cause?: unknown }
  if (cause instanceof Error) return systemCode(cause)
  return typeof code === "string" ? code : error.name
}

/** No connection was made, so the request had no effect. */
const NOT_CONNECTED = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/

/** Classifies a failed call. */
export function callError(error: unknown, effect: Effect): CloudError {
  if (error instanceof CloudError) return error
  const { code, message, status } = messageIn(error)
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

/** Classifies the error of an operation that has ended and left nothing. */
export function operationError(errors: readonly OperationError[], status: number): CloudError {
  const [first] = errors
  const code = first?.code ?? `HTTP${status}`
  const message = errors.map((error) => error.message ?? error.code).join("; ") || `the operation failed with ${status}`
  const known = meaning({ code, message })
  if (known !== undefined && !(known instanceof TransientError)) return known
  // An identical request would get this same operation as its answer, so this request is rejected.
  if (known !== undefined || status >= 500 || status === 0 || status === 409 || status === 429) {
    return new CapacityError(code, message)
  }
  return status === 401 || status === 403 ? new CredentialsError(code, message) : new InvalidRequestError(code, message)
}

function meaning({ code, message }: Said, options?: ErrorOptions): CloudError | undefined {
  if (OF_ACCOUNT.some((pattern) => pattern.test(message))) return new AccountError(code, message, options)
  if (STOCKOUT.test(code)) return new CapacityError(code, message, options)
  if (QUOTA.test(code)) return new QuotaError(code, message, options)
  if (RATE.test(code)) return new TransientError(code, message, options)
  if (PERMISSION.test(code)) return new CredentialsError(code, message, options)
  if (NOT_READY.test(code)) return new TransientError(code, message, options)
  if (NOT_SOLD.test(message)) return new NotInZoneError(code, message, options)
  return undefined
}

/** Classifies a failure to get a token. For a wrong, deleted or disabled key Google answers `invalid_grant`. */
export function tokenError(error: unknown): CloudError {
  if (error instanceof CloudError) return error
  const { status, message = String(error), code } = error as { status?: number; message?: string; code?: unknown }
  const name = /invalid_grant|invalid_client|account_disabled/.exec(message)?.[0]
  const refused = name !== undefined || status === 400 || status === 401 || status === 403
  // Without a status and a system error code, the key itself could not be read or used.
  if (refused || (status === undefined && (typeof code !== "string" || code.startsWith("ERR_OSSL")))) {
    const text = "Google rejected the service account's key: create a new one, and check that the account is enabled"
    return new CredentialsError(name ?? "KeyRefused", text, { cause: error })
  }
  return new TransientError(String(code ?? status), `Google's token endpoint did not answer: ${message}`, {
    cause: error,
  })
}

export function isNotFound(error: unknown): boolean {
  return (error as { httpStatusCode?: number }).httpStatusCode === 404
}

export function isAlreadyThere(error: unknown): boolean {
  return messageIn(error).code === "alreadyExists" || (error as { httpStatusCode?: number }).httpStatusCode === 409
}
