import { retryAfterSeconds } from "./retry.ts"
import type { components } from "./schema.d.ts"

type ProblemDocument = components["schemas"]["Problem"]

/** Response of the API that isn't a success. */
export class ApiError extends Error {
  override readonly name = "ApiError"
  readonly status: number
  /** Last part of the problem's type, such as `name-taken`; empty if the response isn't a problem document. */
  readonly type: string
  readonly errors: ProblemDocument["errors"]
  /** Id of the request in the API's log. */
  readonly requestId: string | undefined
  readonly retryAfterSeconds: number | undefined

  constructor(response: Response, problem: Partial<ProblemDocument>) {
    super(problem.detail ?? `${response.url} answered ${response.status} ${response.statusText}`.trim())
    this.status = response.status
    this.type = problem.type?.split("/").at(-1) ?? ""
    this.errors = problem.errors ?? []
    this.requestId = problem.instance
    this.retryAfterSeconds = retryAfterSeconds(response.headers.get("retry-after"), new Date())
  }
}

/** Page in place of a response of the API: the URL is that of the console, or of another program. */
export class NoApi extends Error {
  override readonly name = "NoApi"
}

/** Failure to get any response. */
export class Unreachable extends Error {
  override readonly name = "Unreachable"
}

/** Returns the error of a response. Reads its body. A body that isn't a problem document counts as empty. */
export async function toApiError(response: Response): Promise<ApiError> {
  const isProblem = response.headers.get("content-type")?.startsWith("application/problem+json") ?? false
  const text = await response.text().catch(() => "")
  return new ApiError(response, isProblem ? problemIn(text) : {})
}

function problemIn(text: string): Partial<ProblemDocument> {
  try {
    return JSON.parse(text) as ProblemDocument
  } catch {
    return {}
  }
}

/** Returns the cause in one line, such as `connect ECONNREFUSED 127.0.0.1:8080`. fetch hides it two levels deep. */
export function describeCause(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  if (error instanceof AggregateError && error.errors.length > 0) return describeCause(error.errors[0])
  if (error.cause !== undefined) return describeCause(error.cause)
  const code = "code" in error && typeof error.code === "string" ? error.code : undefined
  if (code !== undefined && NO_TLS.includes(code))
    return "it does not answer by TLS; write http:// in the URL if it has none"
  const [line = ""] = error.message.split("\n")
  return line || code || error.name
}

/** Codes with which OpenSSL reports that the other side speaks something else, such as plain HTTP. */
const NO_TLS: readonly string[] = ["ERR_SSL_WRONG_VERSION_NUMBER", "ERR_SSL_PACKET_LENGTH_TOO_LONG"]
