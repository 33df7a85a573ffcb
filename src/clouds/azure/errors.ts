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

/**
 * Meanings of Azure Resource Manager's errors
 * (https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors,
 * https://learn.microsoft.com/troubleshoot/azure/virtual-machines/windows/allocation-failure).
 */

/** Effect of a call. It decides whether a broken call leaves the outcome unknown. */
export type Effect = "read" | "change"

const CAPACITY =
  /^(SkuNotAvailable|AllocationFailed|ZonalAllocationFailed|Overconstrained(Zonal)?AllocationRequest|AllocationTimeout|InsufficientCapacity|SpotAllocationFailed|SpotPriceGreaterThanProvidedMaxPrice|AvailabilityZoneNotSupported)$/
/**
 * The subscription may not use the size in this region, or not as spot: the usual answer to new, student and trial
 * subscriptions. Other subscriptions may. Azure uses the code for lack of capacity too, with other words
 * (https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-sku-not-available,
 * https://learn.microsoft.com/azure/virtual-machines/error-codes-spot).
 */
const RESTRICTED = { code: "SkuNotAvailable", message: /requested (VM )?size .*for subscription/is }
const QUOTA =
  /^(QuotaExceeded|ResourceQuotaExceeded|SpotQuotaExceeded|.*LimitReached|ReadWriteQuotaExceeded|RoleAssignmentLimitExceeded)$/
/**
 * Azure's code both for used-up quotas and for requests that are never allowed. Only the message distinguishes them.
 */
const AMBIGUOUS = "OperationNotAllowed"
/** The role lacks an action, which the message names. */
const UNAUTHORIZED = /^(Linked)?AuthorizationFailed$/
const ROLE_ADVICE = "Add the action to the service principal's role: docs/azure.md has all of them."
const CREDENTIALS =
  /^(InvalidAuthenticationToken.*|ExpiredAuthenticationToken|AuthenticationFailed|SubscriptionNotFound|InvalidSubscriptionId|MissingSubscriptionRegistration|ReadOnlyDisabledSubscription|SubscriptionNotRegistered)$/
/**
 * Forbidden (403) by a policy, whatever the credentials. The message names the policy. One on addresses, such as
 * "Network interfaces should not have public IPs", or on tags allows no VM. Another may allow another machine
 * (https://learn.microsoft.com/azure/governance/policy/samples/built-in-policies).
 */
const POLICY = "RequestDisallowedByPolicy"
const ACCOUNT_POLICY = /public ?ip|\btags?\b|83a86a26-fd1f-447c-b59d-e51f44264114/i
/** The resource group was deleted. The next call creates it again. */
export const GROUP_GONE = "ResourceGroupNotFound"
/** A network, subnet or security group of the request was deleted. The next call looks for them again. */
export const NETWORK_GONE = /^(InvalidResourceReference|ResourceNotFound|SubnetNotFound|NotFound)$/
const TRANSIENT =
  /^(TooManyRequests|ResourceGroupNotFound|RetryableError.*|AnotherOperationInProgress|ResourceGroupBeingDeleted|Conflict|OperationPreempted|CanceledAndSupersededDueToAnotherOperation|ReferencedResourceNotProvisioned|InUseSubnetCannotBeDeleted)$/

const REGION =
  /^(LocationNotAvailableForResource(Group|Type)|InvalidLocation|LocationRestricted|LocationNotSupported.*|RegionRestricted.*|RequestDisallowedByAzure)$/

/** No connection was made, so the request had no effect. */
const NOT_CONNECTED = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/

interface SdkError extends Error {
  code?: unknown
  statusCode?: number | string
  status?: number | string
  details?: { error?: { code?: string; message?: string } }
  cause?: unknown
}

/** Azure's own code and message of an error, from any of its sources. */
interface Said {
  code: string
  message: string
  status?: number
}

/** Classifies a failed call. */
export function callError(error: unknown, effect: Effect): CloudError {
  for (let inner = error; inner instanceof Error; inner = inner.cause) if (inner instanceof CloudError) return inner
  const { code, message, status } = messageIn(error)
  const options = { cause: error }
  const known = status === undefined ? undefined : meaning({ code, message }, options)
  if (known !== undefined) return known
  if (status === 401 || status === 403) return new CredentialsError(code, message, options)
  if (status === 429 || status === 409) return new TransientError(code, message, options)
  if (status !== undefined && status < 500 && status !== 408) return new InvalidRequestError(code, message, options)
  const text = status === undefined ? `Azure did not answer: ${message}` : message
  if (effect === "change" && !NOT_CONNECTED.test(code)) return new OutcomeUnknownError(code, text, options)
  return new TransientError(code, text, options)
}

/**
 * Classifies the failure to provision a VM, by the code and message of its instance view. Nothing runs on the VM, but
 * it exists and must be deleted.
 */
export function provisioningError(code: string, message: string): CloudError {
  const known = meaning({ code, message })
  // The VM is deleted, so this request is over. Whatever the cause, another machine may work.
  return known === undefined || known instanceof TransientError ? new CapacityError(code, message) : known
}

function meaning({ code, message }: Said, options?: ErrorOptions): CloudError | undefined {
  if (code === RESTRICTED.code && RESTRICTED.message.test(message))
    return new InvalidRequestError(code, message, options)
  if (CAPACITY.test(code)) return new CapacityError(code, message, options)
  if (QUOTA.test(code)) return new QuotaError(code, message, options)
  if (code === AMBIGUOUS) {
    const isQuota = /quota|cores? limit|exceed/i.test(message)
    return isQuota ? new QuotaError(code, message, options) : new InvalidRequestError(code, message, options)
  }
  if (REGION.test(code)) return new RegionError(code, message, options)
  if (code === POLICY && ACCOUNT_POLICY.test(message)) return new AccountError(code, message, options)
  if (code === POLICY) return new InvalidRequestError(code, message, options)
  if (UNAUTHORIZED.test(code)) return new CredentialsError(code, `${message} ${ROLE_ADVICE}`, options)
  if (CREDENTIALS.test(code)) return new CredentialsError(code, message, options)
  if (TRANSIENT.test(code)) return new TransientError(code, message, options)
  return undefined
}

function messageIn(error: unknown): Said {
  if (!(error instanceof Error)) return { code: "Unknown", message: String(error) }
  const { message, details, code, statusCode, status: otherStatus } = error as SdkError
  const status = Number(statusCode ?? otherStatus)
  const body = details?.error
  if (Number.isNaN(status)) return { code: systemCode(error), message }
  const text = (body?.message ?? message).split(/\r?\n/)[0] ?? message
  return { code: body?.code ?? (typeof code === "string" ? code : `HTTP${status}`), message: text, status }
}

function systemCode(error: Error): string {
  const { code, cause } = error as SdkError
  if (cause instanceof Error) return systemCode(cause)
  return typeof code === "string" ? code : error.name
}

/** An error of the sign-in library. Its cause holds Microsoft's answer. */
interface SignInError extends Error {
  cause?: { errorCode?: string; errorMessage?: string; status?: number }
}

/**
 * Classifies a failure to get a token. For a wrong or expired secret Microsoft answers with its own code, and status
 * 400 or 401.
 */
export function tokenError(error: unknown): CloudError {
  const { message, cause } = error as SignInError
  const { errorCode, errorMessage = "", status = 0 } = typeof cause === "object" ? cause : {}
  const options = { cause: error }
  if (errorCode !== undefined && status >= 400 && status < 500 && status !== 429) {
    // The rest of the description is trace ids, in lines of their own.
    const said = /AADSTS[0-9]+:[^\r\n]*/.exec(errorMessage)?.[0] ?? errorCode
    const code = /^AADSTS[0-9]+/.exec(said)?.[0] ?? errorCode
    return new CredentialsError(code, `Microsoft rejected the service principal: ${said}`, options)
  }
  const text = `Microsoft's sign-in did not answer: ${message.split(/\r?\n/)[0]}`
  return new TransientError(errorCode ?? "SignInFailed", text, options)
}

/** Returns the HTTP status of a failed call; undefined if no answer arrived. */
export function errorStatus(error: unknown): number | undefined {
  return messageIn(error).status
}
