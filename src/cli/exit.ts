import type { JobRecord } from "../client/client.ts"
import { ApiError, NoApi, Unreachable } from "../client/errors.ts"
import type { FieldError } from "../core/apis/field-error.ts"

/** Exit codes of the command. docs/cli.md describes them. */
export const EXIT = {
  failed: 1,
  usage: 2,
  nothingFits: 3,
  wouldWait: 4,
  conflict: 5,
  forbidden: 6,
  notFound: 7,
  /** EX_TEMPFAIL of sysexits.h. */
  tryAgain: 75,
  timeout: 124,
  /** No container ended: Docker's code for its own faults. */
  berth: 125,
  /** SIGHUP, SIGINT and SIGTERM. */
  hungUp: 129,
  interrupted: 130,
  terminated: 143,
  /** The reader of the output has closed it, as with SIGPIPE. */
  brokenPipe: 141,
} as const

/** Failure with an exit code, and a message for a person. */
export class Failure extends Error {
  override readonly name = "Failure"
  readonly code: number

  constructor(code: number, message: string) {
    super(message)
    this.code = code
  }
}

export function usageError(message: string): Failure {
  return new Failure(EXIT.usage, message)
}

/**
 * Returns the failure that the user sees for an error. @param inFile returns an error of a field in the words of the file
 * that the body is from
 */
export function toFailure(error: unknown, inFile?: (error: FieldError) => FieldError): Failure {
  if (error instanceof Failure) return error
  if (error instanceof ApiError) return failureOfApi(error, inFile)
  if (error instanceof Unreachable)
    return new Failure(EXIT.tryAgain, `${error.message}. \`berth check\` finds the cause.`)
  if (error instanceof NoApi)
    return new Failure(EXIT.usage, `${error.message}. Use Berth's own address, without a path such as /console.`)
  // An answer of another shape than the API's lacks what a command reads from it.
  if (error instanceof TypeError)
    return new Failure(
      EXIT.failed,
      `The API's answer has another form than this version of berth reads (${error.message}). \`berth check\` shows the version of the API.`,
    )
  return new Failure(EXIT.failed, error instanceof Error ? error.message : String(error))
}

function failureOfApi(error: ApiError, inFile?: (error: FieldError) => FieldError): Failure {
  const fields = error.errors.map((one) => `\n  ${(inFile?.(one) ?? one).detail}`)
  const wait = error.retryAfterSeconds === undefined ? "" : ` Try again in ${Math.ceil(error.retryAfterSeconds)} s.`
  const request = error.status >= 500 && error.requestId !== undefined ? ` Request ${error.requestId}.` : ""
  // The errors follow.
  const message = fields.length === 0 ? error.message : error.message.replace(/: see errors\.$/, ":")
  // The API's own advice comes first: a workflow can't sign in, and lacks a key that trusts its token.
  const isAdvised = /\bberth [a-z]/.test(message)
  const hint = error.status === 401 && !isAdvised ? " Sign in again with `berth login`." : ""
  return new Failure(exitOfStatus(error.status), `${message}${hint}${wait}${request}${fields.join("")}`)
}

/** Returns the exit code of a response's status. */
export function exitOfStatus(status: number): number {
  if (status === 400 || status === 413 || status === 415 || status === 422) return EXIT.usage
  if (status === 401 || status === 403) return EXIT.forbidden
  if (status === 404) return EXIT.notFound
  if (status === 409 || status === 412) return EXIT.conflict
  return status === 429 || status >= 502 ? EXIT.tryAgain : EXIT.failed
}

/** Reasons of jobs that Berth ended at a limit of theirs. */
const LIMIT_REASONS = ["DeadlineExceeded", "QueueDeadlineExceeded", "BudgetExceeded"]

/** Returns the exit code for the end of a job: its container's own, or the reason why there is none. */
export function exitOfJob({ status, reason, exit_code }: Pick<JobRecord, "status" | "reason" | "exit_code">): number {
  if (status === "succeeded") return exit_code ?? 0
  if (status === "failed" && LIMIT_REASONS.includes(reason ?? "")) return EXIT.timeout
  return status === "failed" && reason === "ContainerFailed" ? (exit_code ?? EXIT.berth) : EXIT.berth
}
