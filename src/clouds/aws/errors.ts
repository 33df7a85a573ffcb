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

/** The call to AWS that failed. */
export interface AwsCall {
  /** Such as RunInstances. */
  action: string
  region: string
  /** True if the call changes anything: then an unclear answer leaves the outcome unknown. */
  changes: boolean
}

type Meaning = "capacity" | "quota" | "credentials" | "account" | "region" | "invalid" | "transient" | "unknown"

/** The text with which AWS rejects a type that the account's Free plan lacks. Its code says less. */
const FREE_PLAN = /not eligible for Free Tier/i

/**
 * Meanings of AWS' error codes that Berth's calls can meet
 * (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, and the common errors of SSM, STS and
 * the price list). Other codes are classified by their form and HTTP status.
 */
const MEANINGS: Readonly<Record<Exclude<Meaning, "unknown">, readonly string[]>> = {
  capacity: [
    "InsufficientInstanceCapacity",
    "InsufficientCapacity",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "InsufficientVolumeCapacity",
    "InsufficientAddressCapacity",
    "InsufficientFreeAddressesInSubnet",
    "UnfulfillableCapacity",
    "SpotMaxPriceTooLow",
    // The zone does not have this machine type. Another offer may work.
    "Unsupported",
    "VolumeTypeNotAvailableInZone",
  ],
  quota: [
    "VcpuLimitExceeded",
    "InstanceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "VolumeLimitExceeded",
    "MaxIOPSLimitExceeded",
    "NetworkInterfaceLimitExceeded",
    "PrivateIpAddressLimitExceeded",
    "SecurityGroupLimitExceeded",
    "SecurityGroupsPerInstanceLimitExceeded",
    "ResourceLimitExceeded",
    "ResourceCountExceeded",
  ],
  credentials: [
    "AuthFailure",
    "Blocked",
    "AccountDisabled",
    "InvalidClientTokenId",
    "InvalidAccessKeyId",
    "MissingAuthenticationToken",
    "IncompleteSignature",
    "SignatureDoesNotMatch",
    "InvalidSignatureException",
    "UnrecognizedClientException",
    "ExpiredToken",
    "ExpiredTokenException",
  ],
  // Only spot VMs need this role, so no spot VM was ever created.
  account: ["AuthFailure.ServiceLinkedRoleCreationNotPermitted"],
  // Organizations deny regions with the same codes as a policy that lacks a right. AWS validates new accounts by region.
  region: [
    "OptInRequired",
    "PendingVerification",
    "UnauthorizedOperation",
    "AccessDenied",
    "AccessDeniedException",
    "NotAuthorized",
  ],
  invalid: ["TagPolicyViolation", "FilterLimitExceeded", "BandwidthLimitExceeded", "IdempotentInstanceTerminated"],
  transient: [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
    "SlowDown",
    // The local clock is wrong. The SDK corrects it by the answer.
    "RequestExpired",
    "RequestTimeTooSkewed",
    "ConcurrentTagAccess",
  ],
}

const MEANING_OF = new Map(
  Object.entries(MEANINGS).flatMap(([meaning, codes]) => codes.map((code) => [code, meaning as Meaning] as const)),
)

/** Network errors after which no request was sent: an unknown host name, a failed connection. */
const NEVER_SENT = [
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "CERT_HAS_EXPIRED",
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]

/** Codes for a key that AWS does not accept at all. A region that is not enabled gives them too. */
const KEY_REFUSED = ["AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException"]

/** Returns true if AWS does not know the key, possibly only in this region. */
export function isKeyRefused(error: unknown): boolean {
  return error instanceof CredentialsError && !(error instanceof RegionError) && KEY_REFUSED.includes(error.code)
}

/** Returns true if AWS asks for fewer calls. */
export function isThrottled(error: CloudError): boolean {
  return error instanceof TransientError && /^Thrott|LimitExceeded$|^TooManyRequests|^SlowDown/.test(error.code)
}

/** Classifies an error of AWS' SDK, or of the network under it, for the caller. */
export function toCloudError(error: unknown, call: AwsCall): CloudError {
  if (error instanceof CloudError) return error
  const { code, status, text } = factsOf(error)
  const message = `${call.action} in ${call.region}: ${code}${text === "" ? "" : `: ${text}`}`
  const meaning = FREE_PLAN.test(text) ? "account" : classOf(code, status, call)
  return new CLASSES[meaning](code, message, { cause: error })
}

const CLASSES = {
  capacity: CapacityError,
  quota: QuotaError,
  credentials: CredentialsError,
  account: AccountError,
  region: RegionError,
  invalid: InvalidRequestError,
  transient: TransientError,
  unknown: OutcomeUnknownError,
} as const

interface ErrorFacts {
  code: string
  /** HTTP status; undefined if no answer arrived. */
  status: number | undefined
  text: string
}

function factsOf(error: unknown): ErrorFacts {
  const raw = (typeof error === "object" && error !== null ? error : {}) as {
    name?: string
    code?: string
    message?: string
    $fault?: string
    $metadata?: { httpStatusCode?: number }
    $response?: { statusCode?: number }
  }
  const status = raw.$metadata?.httpStatusCode ?? raw.$response?.statusCode
  // Only errors that AWS sent have `$fault`. The parser's error for any other answer quotes that answer.
  const isAnswer = raw.$fault !== undefined
  const code = (isAnswer ? raw.name : (raw.code ?? raw.name)) ?? "Unknown"
  return { code, status, text: isAnswer || status === undefined ? withoutCiphertext(raw.message ?? "") : "" }
}

/** Removes the long encrypted part that AWS appends to denials. Only an administrator of the account can decode it. */
function withoutCiphertext(message: string): string {
  return message.replace(/\s*Encoded authorization failure message:.*$/s, "").slice(0, 600)
}

function classOf(code: string, status: number | undefined, { changes }: AwsCall): Meaning {
  const known = MEANING_OF.get(code) ?? MEANING_OF.get(code.split(".")[0] ?? "")
  if (known !== undefined) return known
  if (NEVER_SENT.includes(code) || status === 429) return "transient"
  const isRefusal = status !== undefined && status >= 400 && status < 500 && status !== 408
  if (isRefusal) return /(LimitExceeded|CountExceeded)$/.test(code) ? "quota" : "invalid"
  return changes ? "unknown" : "transient"
}
