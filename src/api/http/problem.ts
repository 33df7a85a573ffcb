import { STATUS_CODES } from "node:http"
import type { ErrorRequestHandler, Request, Response } from "express"
import { type FieldError, MOST_ERRORS, quote, shownText } from "../../core/apis/field-error.ts"
import { CacheBehind } from "../../core/identity/catch-up.ts"
import { ABILITIES_POLICY } from "../../core/identity/installation.ts"
import { IssuerUnavailable } from "../../core/identity/oidc.ts"
import { NotBoundYet } from "../../core/identity/principal.ts"
import {
  isConflict,
  isForbidden,
  isServerError,
  isStorageFull,
  isTooManyRequests,
  isUnauthorized,
  isUnavailable,
  type KubeError,
  policyDenial,
} from "../../core/kube/errors.ts"
import { jsonText } from "./json-text.ts"

/** RFC 9457 problem details, as in the response. */
export interface ProblemDocument {
  type: string
  title: string
  status: number
  detail: string
  /** Id of the request, as in the X-Request-Id header and the log. */
  instance: string
  /** All errors, each with the JSON pointer (RFC 6901) of the field in the body, or "" without a field. */
  errors: FieldError[]
}

/** Delay until a retry, while no operator leads or an older one does. */
const UPGRADE_SECONDS = 5

const MEDIA_TYPE = "application/problem+json"
/** Base of problem types. They are names, not documents to fetch. The host is the CRDs' group, the same everywhere. */
const TYPE_BASE = "https://berth.dev/problems/"

interface ProblemInit {
  /** Stable word for programs, the last part of the document's `type`. */
  type: string
  status: number
  detail: string
  errors?: readonly FieldError[]
  headers?: Record<string, string>
  cause?: unknown
}

/** Error response. Any code of a request may throw it. */
export class Problem extends Error {
  override readonly name = "Problem"
  readonly type: string
  readonly status: number
  readonly errors: readonly FieldError[]
  readonly headers: Record<string, string>

  constructor(init: ProblemInit) {
    super(init.detail, init.cause === undefined ? undefined : { cause: init.cause })
    this.type = init.type
    this.status = init.status
    this.errors = init.errors ?? []
    this.headers = init.headers ?? {}
  }

  toDocument(instance: string): ProblemDocument {
    const title = STATUS_CODES[this.status] ?? "Error"
    const { status, message: detail } = this
    return { type: TYPE_BASE + this.type, title, status, detail, instance, errors: [...this.errors] }
  }
}

/** Returns the problem 400 with the first MOST_ERRORS errors. */
export function invalidRequest(errors: readonly FieldError[], what = "The request"): Problem {
  const count = errors.length === 1 ? "one error" : `${errors.length} errors`
  const detail =
    errors.length < MOST_ERRORS
      ? `${what} has ${count}: see errors.`
      : `${what} has at least ${MOST_ERRORS} errors: the first are in errors.`
  return new Problem({ type: "invalid-request", status: 400, detail, errors: errors.slice(0, MOST_ERRORS) })
}

/** Returns the problem 400 about the request as a whole. */
export function badRequest(detail: string): Problem {
  return new Problem({ type: "invalid-request", status: 400, detail })
}

/** Returns the problem 401. The detail must not reveal which objects exist. */
export function unauthorized(detail: string): Problem {
  const headers = { "WWW-Authenticate": 'ApiKey realm="berth", header="X-Service-Api-Key", Bearer realm="berth"' }
  return new Problem({ type: "unauthorized", status: 401, detail, headers })
}

export function forbidden(detail: string): Problem {
  return new Problem({ type: "forbidden", status: 403, detail })
}

export function notFound(detail: string): Problem {
  return new Problem({ type: "not-found", status: 404, detail })
}

export function methodNotAllowed(method: string, allowed: string): Problem {
  const detail = `${method} is not allowed here; allowed: ${allowed}.`
  return new Problem({ type: "method-not-allowed", status: 405, detail, headers: { Allow: allowed } })
}

/** Returns the problem 409 for a name that another object of the project has. */
export function nameConflict(detail: string, name: string): Problem {
  const errors = [{ pointer: "/name", detail: `name ${quote(name)} is in use` }]
  return new Problem({ type: "name-taken", status: 409, detail, errors })
}

/** Returns the problem 412 for an object that is not at the version in If-Match. */
export function preconditionFailed(detail: string): Problem {
  return new Problem({ type: "precondition-failed", status: 412, detail })
}

/** Returns the problem 409: the object, or what contains it, is being deleted. */
export function beingDeleted(detail: string): Problem {
  return new Problem({ type: "being-deleted", status: 409, detail })
}

/** Returns the problem of a project's limit. 429: there is no room now. 403: objects must be deleted first. */
export function projectLimit(status: 403 | 429, detail: string): Problem {
  const headers: Record<string, string> = status === 429 ? { "Retry-After": "60" } : {}
  return new Problem({ type: "project-limit", status, detail, headers })
}

/** Returns the problem 503: the request is valid and may be retried unchanged. */
export function unavailable(detail: string, retryAfterSeconds = 1, cause?: unknown): Problem {
  const headers = { "Retry-After": String(Math.max(1, Math.ceil(retryAfterSeconds))) }
  return new Problem({ type: "unavailable", status: 503, detail, headers, cause })
}

/** Converts any thrown value to the problem that the caller gets. An unexpected error becomes a 500 without details. */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error
  if (error instanceof IssuerUnavailable)
    return unavailable("The issuer of your token is unreachable: try again.", 5, error)
  return (
    problemOfKube(error) ??
    problemOfHttp(error) ??
    new Problem({
      type: "internal-error",
      status: 500,
      detail: "Internal error. The server's log has it under the request's id.",
      cause: error,
    })
  )
}

function problemOfKube(error: unknown): Problem | undefined {
  if (error instanceof CacheBehind)
    return unavailable("The server's cache is behind the Kubernetes API: try again.", 1, error)
  if (error instanceof NotBoundYet && error.stalled !== undefined) {
    const detail = `The project cannot be set up: ${shownText(error.stalled, 300)}. Ask an administrator of the cluster.`
    return unavailable(detail, 60, error)
  }
  if (error instanceof NotBoundYet) return unavailable("Your permissions here are being set up: try again.", 1, error)
  if (isUnavailable(error) || isTooManyRequests(error) || isUnauthorized(error)) {
    const detail = error.outcomeUnknown
      ? "The Kubernetes API did not answer: the change may or may not have happened. Check before you repeat it."
      : "The Kubernetes API is unreachable: try again."
    return unavailable(detail, error.retryAfterSeconds, error)
  }
  if (isStorageFull(error)) {
    const detail = "The cluster's storage (etcd) is full, so nothing was changed. Running jobs continue."
    return unavailable(`${detail} An operator of the cluster must free space: docs/operate.md.`, 60, error)
  }
  if (isServerError(error)) {
    const detail = "The Kubernetes API failed. A change may or may not have happened: check before you repeat it."
    return unavailable(detail, error.retryAfterSeconds, error)
  }
  const denial = policyDenial(error)
  if (denial?.policy === ABILITIES_POLICY) return unavailable(denial.message, UPGRADE_SECONDS, error)
  if (isForbidden(error)) return forbidden(`The Kubernetes API rejected this request: ${kubeErrorMessage(error)}`)
  if (isConflict(error)) return unavailable("The object is changed by many requests at once: try again.", 1, error)
  return undefined
}

/** Returns the API server's message, without the method and path that KubeError prepends. */
export function kubeErrorMessage(error: KubeError): string {
  return error.message.replace(/^[A-Z]+ \S+: /, "")
}

/** Converts an error of express, which has a status and a message. */
function problemOfHttp(error: unknown): Problem | undefined {
  if (!(error instanceof Error) || !("status" in error) || typeof error.status !== "number") return undefined
  const { status } = error
  if (status < 400 || status > 499) return undefined
  if (status === 413) {
    const limit = "limit" in error ? `${error.limit} bytes` : "the limit"
    return new Problem({ type: "too-large", status, detail: `The body is larger than ${limit}.`, cause: error })
  }
  const detail = `${error.message}.`
  if (status === 415) return new Problem({ type: "unsupported-media-type", status, detail, cause: error })
  return new Problem({ type: "invalid-request", status: 400, detail, cause: error })
}

/** Longest time that a client may go on sending after the response, so that it reads the response. */
const LINGER_MS = 1000

/** Sends the problem document, and logs errors of the server. */
export const problemHandler: ErrorRequestHandler = (error: unknown, req, res, _next) => {
  const problem = toProblem(error)
  if (problem.status >= 500) {
    const level = problem.status === 503 ? "warn" : "error"
    req.log[level]({ err: problem.cause ?? error }, problem.message)
  }
  if (res.headersSent) {
    // The status is already sent. Only a closed connection can show that the response is incomplete.
    res.destroy()
    return
  }
  if (!req.complete) discardRest(req)
  res.locals["problem"] = problem.type
  res
    .status(problem.status)
    .set({ "Cache-Control": "no-store", ...problem.headers })
    .type(MEDIA_TYPE)
    .send(jsonText(problem.toDocument(String(req.id))))
}

/** Returns the type of the problem that was sent as the response; undefined if it isn't a problem. */
export function problemTypeIn({ locals }: Pick<Response, "locals">): string | undefined {
  return locals["problem"]
}

/** Discards the rest of the body, and closes the connection after LINGER_MS if the body has not ended. */
function discardRest(req: Request): void {
  const timer = setTimeout(() => req.socket.destroy(), LINGER_MS).unref()
  req.once("end", () => clearTimeout(timer)).resume()
}
