/** `Status` object of the API server, its answer to every failed request. Source: metav1.Status. */
export interface Status {
  kind?: "Status"
  status?: string
  message?: string
  reason?: string
  code?: number
  details?: StatusDetails
}

export interface StatusDetails {
  name?: string
  group?: string
  kind?: string
  uid?: string
  causes?: { reason?: string; message?: string; field?: string }[]
  retryAfterSeconds?: number
}

/** Reasons of errors that the API server did not send: there was no answer, or an unreadable one. */
export const CLIENT_REASONS = {
  /** Connection refused, reset, closed, name not found, TLS failure. */
  network: "NetworkError",
  /** Our own timeout ended the request. */
  timeout: "ClientTimeout",
  /** The answer violates the API's contract, for example truncated JSON. */
  invalidResponse: "InvalidResponse",
} as const

export interface KubeErrorInit {
  /** HTTP status; 0 if no answer was received. */
  code: number
  /** Kubernetes' machine-readable reason (`NotFound`, `Conflict` …) or one of CLIENT_REASONS. */
  reason: string
  message: string
  details?: StatusDetails | undefined
  retryAfterSeconds?: number | undefined
  outcomeUnknown?: boolean | undefined
  cause?: unknown
}

/**
 * A request failed. The message has the method and path, and never headers, query or bodies, so that logs contain no
 * credential. The API server's own message is passed on.
 */
export class KubeError extends Error {
  override readonly name = "KubeError"
  readonly code: number
  readonly reason: string
  readonly details: StatusDetails | undefined
  /** Delay that the server asked for, seconds. */
  readonly retryAfterSeconds: number | undefined
  /** True if it is unknown whether a write took effect: it was sent and no answer came. */
  readonly outcomeUnknown: boolean

  constructor(init: KubeErrorInit) {
    super(init.message, init.cause === undefined ? undefined : { cause: init.cause })
    this.code = init.code
    this.reason = init.reason
    this.details = init.details
    this.retryAfterSeconds = init.retryAfterSeconds
    this.outcomeUnknown = init.outcomeUnknown ?? false
  }
}

/** HTTP answer with an error status, as received. */
export interface FailedAnswer {
  method: string
  path: string
  code: number
  /** The body if it is JSON, parsed; else undefined. */
  body: unknown
  /** The Retry-After header. */
  retryAfter: string | undefined
}

/** Converts an unsuccessful answer to a KubeError. A proxy's HTML page becomes one without details. */
export function errorFromAnswer(answer: FailedAnswer): KubeError {
  const status = asStatus(answer.body)
  const text = status?.message ?? `HTTP ${answer.code} without a Kubernetes Status`
  return new KubeError({
    code: answer.code,
    reason: status?.reason || (REASON_BY_CODE[answer.code] ?? "Unknown"),
    message: `${answer.method} ${answer.path}: ${withoutEmptyField(text)}`,
    details: status?.details,
    retryAfterSeconds: status?.details?.retryAfterSeconds ?? retryAfterSeconds(answer.retryAfter),
  })
}

/** Removes the field of an error that has none, such as a policy's: `Job "a" is invalid: : ValidatingAdmissionPolicy …`. */
function withoutEmptyField(text: string): string {
  return text.replaceAll(": : ", ": ")
}

/** Converts the `Status` of a watch's ERROR event to a KubeError. */
export function errorFromStatus(path: string, body: unknown): KubeError {
  const status = asStatus(body)
  return new KubeError({
    code: status?.code ?? 0,
    reason: status?.reason || "Unknown",
    message: `WATCH ${path}: ${status?.message ?? "an ERROR event without a Status"}`,
    details: status?.details,
    retryAfterSeconds: status?.details?.retryAfterSeconds,
  })
}

/** Reasons that metav1 gives these codes, for answers without one. */
const REASON_BY_CODE: Record<number, string> = {
  400: "BadRequest",
  401: "Unauthorized",
  403: "Forbidden",
  404: "NotFound",
  409: "Conflict",
  410: "Gone",
  422: "Invalid",
  429: "TooManyRequests",
  500: "InternalError",
  503: "ServiceUnavailable",
  504: "Timeout",
}

function asStatus(body: unknown): Status | undefined {
  if (typeof body !== "object" || body === null) return undefined
  return (body as Status).kind === "Status" ? (body as Status) : undefined
}

/** Returns Retry-After in seconds. Kubernetes sends whole seconds, proxies may send a date (RFC 9110, 10.2.3). */
function retryAfterSeconds(header: string | undefined): number | undefined {
  if (header === undefined) return undefined
  if (/^\d+$/.test(header)) return Number(header)
  const date = Date.parse(header)
  return Number.isNaN(date) ? undefined : Math.max(0, (date - Date.now()) / 1000)
}

function hasReason(error: unknown, ...reasons: string[]): error is KubeError {
  return error instanceof KubeError && reasons.includes(error.reason)
}

/** Returns true if the object or the resource itself does not exist. */
export function isNotFound(error: unknown): error is KubeError {
  return hasReason(error, "NotFound")
}

/** Returns the object of a read, or undefined if it does not exist. @throws KubeError for other failures */
export async function ifFound<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read
  } catch (error) {
    if (isNotFound(error)) return undefined
    throw error
  }
}

/** Returns true if the object has changed since it was read, or a precondition failed: read again, decide again. */
export function isConflict(error: unknown): error is KubeError {
  return hasReason(error, "Conflict")
}

/** Returns true if an object of this name exists. */
export function isAlreadyExists(error: unknown): error is KubeError {
  return hasReason(error, "AlreadyExists")
}

/** Returns true if the resourceVersion or continue token is too old to resume from: list again. */
export function isGone(error: unknown): error is KubeError {
  return hasReason(error, "Gone", "Expired") || (error instanceof KubeError && error.code === 410)
}

/** Returns true if the server sheds load (429): wait `retryAfterSeconds`. */
export function isTooManyRequests(error: unknown): error is KubeError {
  return hasReason(error, "TooManyRequests") || (error instanceof KubeError && error.code === 429)
}

/** Rejection by an admission policy. */
export interface PolicyDenial {
  policy: string
  /** The policy's own message. */
  message: string
}

/** Returns the policy that rejected the request, and its message; undefined for other errors. */
export function policyDenial(error: unknown): PolicyDenial | undefined {
  if (!(error instanceof KubeError)) return undefined
  const pattern = /ValidatingAdmissionPolicy '([^']+)'(?: with binding '[^']+')? denied request: (.*)$/s
  const [, policy, message] = pattern.exec(error.message) ?? []
  return policy === undefined || message === undefined ? undefined : { policy, message }
}

/**
 * Returns true if the API server can't evaluate a policy now: just started, it has not read the policy's parameter yet. It
 * answers 422 to every request that the policy may concern. Source: addConfigError of its dispatcher.
 */
function isPolicyUnready(error: unknown): boolean {
  return policyDenial(error)?.message.startsWith("failed to configure ") ?? false
}

/** Returns true if the API server is unavailable (network, timeout, 502, 503, 504): retry later. */
export function isUnavailable(error: unknown): error is KubeError {
  if (!(error instanceof KubeError)) return false
  if ([502, 503, 504].includes(error.code) || isPolicyUnready(error)) return true
  return hasReason(error, ...Object.values(CLIENT_REASONS))
}

/** Returns true if the API server failed, for example because etcd is down. A write may or may not have happened. */
export function isServerError(error: unknown): error is KubeError {
  return error instanceof KubeError && error.code >= 500
}

/** Returns true if etcd has reached its quota. It rejects every write, also of other programs, until it has room again. */
export function isStorageFull(error: unknown): error is KubeError {
  return isServerError(error) && error.message.includes("database space exceeded")
}

/** Returns true if the caller may not do this. */
export function isForbidden(error: unknown): error is KubeError {
  return hasReason(error, "Forbidden")
}

/** Returns true if the credentials are missing, wrong or expired. */
export function isUnauthorized(error: unknown): error is KubeError {
  return hasReason(error, "Unauthorized")
}

/** Returns true if the object's schema or a rule rejects it. `details.causes` has the fields. */
export function isInvalid(error: unknown): error is KubeError {
  return hasReason(error, "Invalid", "BadRequest") && !isPolicyUnready(error)
}

/**
 * Returns true if the server's data is older than the requested resourceVersion. Then the server was restored from a
 * backup, or another API server lags. Source: apiserver storage.NewTooLargeResourceVersionError.
 */
export function isTooLargeResourceVersion(error: unknown): error is KubeError {
  if (!(error instanceof KubeError)) return false
  return error.details?.causes?.some((cause) => cause.reason === "ResourceVersionTooLarge") ?? false
}
