import { STATUS_CODES } from "node:http"
import type { ErrorRequestHandler, Request } from "express"
import type { Fault } from "../apis/validate.ts"
import { CacheBehind } from "../identity/catch-up.ts"
import { IssuerUnavailable } from "../identity/oidc.ts"
import { NotBoundYet } from "../identity/principal.ts"
import {
  isConflict,
  isForbidden,
  isTooManyRequests,
  isUnauthorized,
  isUnavailable,
  type KubeError,
} from "../kube/errors.ts"
import { jsonText } from "./json-text.ts"

/** RFC 9457 problem details, as sent. */
export interface ProblemDocument {
  type: string
  title: string
  status: number
  detail: string
  /** The request's id, as in the X-Request-Id header and the log. */
  instance: string
  /** Everything that is wrong, with the JSON pointer (RFC 6901) of the field in the body; "" where there is none. */
  errors: Fault[]
}

const MEDIA_TYPE = "application/problem+json"
/** Problem types are named, not documents to fetch; the CRDs' group is the installation-independent name there is. */
const TYPE_BASE = "https://berth.dev/problems/"

interface ProblemInit {
  /** Stable word for programs, the last part of the document's `type`. */
  type: string
  status: number
  detail: string
  errors?: readonly Fault[]
  headers?: Record<string, string>
  cause?: unknown
}

/** An answer that is no success. Throw it anywhere in a request. */
export class Problem extends Error {
  override readonly name = "Problem"
  readonly type: string
  readonly status: number
  readonly errors: readonly Fault[]
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

/** 400 with every fault found. */
export function invalidRequest(errors: readonly Fault[], what = "The request"): Problem {
  const count = errors.length === 1 ? "one fault" : `${errors.length} faults`
  return new Problem({ type: "invalid-request", status: 400, detail: `${what} has ${count}: see errors.`, errors })
}

/** 400 about the request as a whole. */
export function badRequest(detail: string): Problem {
  return new Problem({ type: "invalid-request", status: 400, detail })
}

/** 401; says nothing of what exists. */
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

/** 409: another object of the project has the name. */
export function nameConflict(detail: string, name: string): Problem {
  const errors = [{ pointer: "/name", detail: `name ${JSON.stringify(name)} is in use` }]
  return new Problem({ type: "name-taken", status: 409, detail, errors })
}

/** 412: the object is not at the version that If-Match names. */
export function preconditionFailed(detail: string): Problem {
  return new Problem({ type: "precondition-failed", status: 412, detail })
}

/** 503: nothing is wrong with the request, it may be sent again as it is. */
export function unavailable(detail: string, retryAfterSeconds = 1, cause?: unknown): Problem {
  const headers = { "Retry-After": String(Math.max(1, Math.ceil(retryAfterSeconds))) }
  return new Problem({ type: "unavailable", status: 503, detail, headers, cause })
}

/** Whatever was thrown, as what the caller is told; a mistake of ours becomes a 500 that says nothing of its inside. */
export function problemOf(error: unknown): Problem {
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
  if (error instanceof NotBoundYet) return unavailable("Your permissions here are being set up: try again.", 1, error)
  if (isUnavailable(error) || isTooManyRequests(error) || isUnauthorized(error)) {
    const detail = error.outcomeUnknown
      ? "The Kubernetes API did not answer: the change may or may not have happened. Check before you repeat it."
      : "The Kubernetes API is unreachable: try again."
    return unavailable(detail, error.retryAfterSeconds, error)
  }
  if (isForbidden(error)) return forbidden(`The Kubernetes API rejected this request: ${messageOf(error)}`)
  if (isConflict(error)) return unavailable("The object is changed by many requests at once: try again.", 1, error)
  return undefined
}

/** The API server's own words, without the method and path that KubeError puts before them. */
export function messageOf(error: KubeError): string {
  return error.message.replace(/^[A-Z]+ \S+: /, "")
}

/** Errors of express and its body parser, which carry a status and whether their message is for the caller. */
function problemOfHttp(error: unknown): Problem | undefined {
  if (!(error instanceof Error) || !("status" in error) || typeof error.status !== "number") return undefined
  const { status } = error
  if (status < 400 || status > 499) return undefined
  if (status === 413) {
    const limit = "limit" in error ? `${error.limit} bytes` : "the limit"
    return new Problem({ type: "too-large", status, detail: `The body is larger than ${limit}.`, cause: error })
  }
  const type = status === 415 ? "unsupported-media-type" : "invalid-request"
  return new Problem({ type, status, detail: `${error.message}.`, cause: error })
}

/** How long a client that is still sending may go on after it was answered, so that it reads the answer. */
const LINGER_MS = 1000

/** Answers with the problem document, and logs what is our fault. */
export const problemHandler: ErrorRequestHandler = (error: unknown, req, res, _next) => {
  const problem = problemOf(error)
  if (problem.status >= 500) {
    const level = problem.status === 503 ? "warn" : "error"
    req.log[level]({ err: problem.cause ?? error }, problem.message)
  }
  if (res.headersSent) {
    // The status is out already: a cut connection is the only way left to say that this is not all.
    res.destroy()
    return
  }
  if (!req.complete) discardRest(req)
  res
    .status(problem.status)
    .set({ "Cache-Control": "no-store", ...problem.headers })
    .type(MEDIA_TYPE)
    .send(jsonText(problem.toDocument(String(req.id))))
}

/** Throws away what a client still sends; one that does not come to an end is cut off. */
function discardRest(req: Request): void {
  const timer = setTimeout(() => req.socket.destroy(), LINGER_MS).unref()
  req.once("end", () => clearTimeout(timer)).resume()
}
