import {
  AccountError,
  CapacityError,
  CloudError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  RegionError,
  TransientError,
} from "../../core/outbound/errors.ts"
import { decode, type Json, messageType } from "./api.ts"

/** Effect of a call. It decides whether a broken call leaves the outcome unknown. */
export type Effect = "read" | "change"

/** Failure of a call or an operation: a status of gRPC, and Nebius' own details. */
export interface Failure {
  /** https://grpc.io/docs/guides/status-codes/ */
  code: number
  message: string
  /** `nebius.common.v1.ServiceError`; absent if the failure has none. */
  detail?: Json
}

const SERVICE_ERROR = "nebius.common.v1.ServiceError"
const DETAILS_HEADER = "grpc-status-details-bin"

const [NOT_FOUND, ALREADY_EXISTS] = [5, 6]

type ErrorClass = new (code: string, message: string, options?: ErrorOptions) => CloudError

/** Meanings of Nebius' own errors, by the field of `ServiceError` (nebius/common/v1/error.proto). */
const BY_DETAIL: Readonly<Record<string, ErrorClass>> = {
  notEnoughResources: CapacityError,
  quotaFailure: QuotaError,
  permissionDenied: CredentialsError,
  badRequest: InvalidRequestError,
  outOfRange: InvalidRequestError,
  tooManyRequests: TransientError,
  operationConflict: TransientError,
  operationAborted: TransientError,
  resourceConflict: TransientError,
  badResourceState: AccountError,
  // Of the project or the subnet that a launch names.
  resourceNotFound: RegionError,
}

/** Meanings of the statuses of gRPC that prove that a call had no effect. */
const BY_STATUS: Readonly<Record<number, readonly [name: string, meaning: ErrorClass]>> = {
  3: ["InvalidArgument", InvalidRequestError],
  [NOT_FOUND]: ["NotFound", RegionError],
  7: ["PermissionDenied", CredentialsError],
  8: ["ResourceExhausted", TransientError],
  9: ["FailedPrecondition", AccountError],
  10: ["Aborted", TransientError],
  11: ["OutOfRange", InvalidRequestError],
  12: ["Unimplemented", InvalidRequestError],
  16: ["Unauthenticated", CredentialsError],
}

/** All other statuses: the call may have had its effect. */
const UNCLEAR: Readonly<Record<number, string>> = {
  1: "Cancelled",
  2: "Unknown",
  4: "DeadlineExceeded",
  13: "Internal",
  14: "Unavailable",
  15: "DataLoss",
}

/** Returns a failed call as one that only the identical call can settle, or by its meaning. */
export function toCloudError(error: unknown, effect: Effect): CloudError {
  return error instanceof CloudError ? error : classify(failureOf(error), effect, error)
}

/** Returns the meaning of a failure. */
export function classify({ code, message, detail }: Failure, effect: Effect, cause?: unknown): CloudError {
  const kind = Object.keys(BY_DETAIL).find((field) => detail?.[field] !== undefined)
  const meaning = kind === undefined ? undefined : BY_DETAIL[kind]
  if (meaning !== undefined) {
    const name = String(detail?.["code"] || `${kind?.charAt(0).toUpperCase()}${kind?.slice(1)}`)
    return new meaning(name, explained(message, detail?.[kind as string] as Json), { cause })
  }
  const [name, status] = BY_STATUS[code] ?? [UNCLEAR[code] ?? "NoAnswer", undefined]
  const Meaning = status ?? (effect === "change" ? OutcomeUnknownError : TransientError)
  return new Meaning(name, message || name, { cause })
}

/** Returns true for the answer that there is no such resource. */
export function isNotFound(error: unknown): boolean {
  return error instanceof CloudError && (error.cause as Partial<Failure> | undefined)?.code === NOT_FOUND
}

/** Returns true for the answer that the name is taken. */
export function isAlreadyThere(error: unknown): boolean {
  return error instanceof CloudError && (error.cause as Partial<Failure> | undefined)?.code === ALREADY_EXISTS
}

interface Violation {
  quota?: string
  resourceType?: string
  field?: string
  message?: string
  limit?: string
  requested?: string
}

/** Returns the message with what Nebius names: fields, quotas with their limits, lacking resources. */
function explained(message: string, detail: Json): string {
  const violations = (detail["violations"] ?? []) as Violation[]
  const named = violations.map(({ quota, resourceType, field, limit, requested, message: why }) =>
    [quota ?? resourceType ?? field, limit && `limit ${limit}`, requested && `requested ${requested}`, why]
      .filter(Boolean)
      .join(", "),
  )
  return [message, ...named].filter(Boolean).join("; ")
}

/** Returns a failure as gRPC's library throws it, or one without an answer. */
function failureOf(error: unknown): Failure {
  const { code, details, message, metadata } = error as {
    code?: unknown
    details?: string
    message?: string
    metadata?: { get(name: string): unknown[] }
  }
  const said = details || message || String(error)
  if (typeof code !== "number") return { code: -1, message: said }
  const [bytes] = metadata?.get(DETAILS_HEADER) ?? []
  return bytes instanceof Uint8Array
    ? statusFailure(decode(messageType("google.rpc.Status"), bytes), said)
    : { code, message: said }
}

/** Returns the failure in a `google.rpc.Status`, such as the one of an operation. */
export function statusFailure(status: Json, said = ""): Failure {
  const { code = 0, message = said, details = [] } = status as { code?: number; message?: string; details?: Json[] }
  const detail = details.find((each) => String(each["@type"]).endsWith(`/${SERVICE_ERROR}`))
  return { code, message, ...(detail !== undefined && { detail }) }
}
