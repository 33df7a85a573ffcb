import {
  CapacityError,
  CloudError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  RegionError,
  TransientError,
} from "../errors.ts"

/** What was asked of AWS when it answered with an error. */
export interface AwsCall {
  /** Such as RunInstances. */
  action: string
  region: string
  /** Whether it changes anything: then an unclear answer leaves the outcome open. */
  changes: boolean
}

type Meaning = "capacity" | "quota" | "credentials" | "region" | "invalid" | "transient" | "unknown"

/**
 * What AWS' error codes mean, of those that our calls can meet
 * (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html, and the common errors of SSM, STS and
 * the price list). A code that isn't here is judged by its form and its HTTP status.
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
    // The zone doesn't have this machine type: another offer may.
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
    "PendingVerification",
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
  // Organizations deny regions that they don't use by the same words as a policy that lacks a right.
  region: ["OptInRequired", "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "NotAuthorized"],
  invalid: ["TagPolicyViolation", "FilterLimitExceeded", "BandwidthLimitExceeded", "IdempotentInstanceTerminated"],
  transient: [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "TooManyRequestsException",
    "SlowDown",
    // Our clock is wrong, which the SDK corrects by what the answer says.
    "RequestExpired",
    "RequestTimeTooSkewed",
    "ConcurrentTagAccess",
  ],
}

const MEANING_OF = new Map(
  Object.entries(MEANINGS).flatMap(([meaning, codes]) => codes.map((code) => [code, meaning as Meaning] as const)),
)

/** Faults of the network after which nothing can have been sent: a name that is not found, a connection not made. */
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

/** Codes that AWS answers with when it doesn't take a key at all, in a region that is not enabled as well. */
const KEY_REFUSED = ["AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException"]

/** Whether AWS doesn't know the key, which may only be so in this region. */
export function isKeyRefused(error: unknown): boolean {
  return error instanceof CredentialsError && !(error instanceof RegionError) && KEY_REFUSED.includes(error.code)
}

/** Whether AWS asks for fewer calls. */
export function isThrottled(error: CloudError): boolean {
  return error instanceof TransientError && /^Thrott|LimitExceeded$|^TooManyRequests|^SlowDown/.test(error.code)
}

/** What an error of AWS' SDK, or of the network under it, means to whoever made the call. */
export function cloudErrorOf(error: unknown, call: AwsCall): CloudError {
  if (error instanceof CloudError) return error
  const { code, status, text } = factsOf(error)
  const message = `${call.action} in ${call.region}: ${code}${text === "" ? "" : `: ${text}`}`
  return new CLASSES[classOf(code, status, call)](code, message, { cause: error })
}

const CLASSES = {
  capacity: CapacityError,
  quota: QuotaError,
  credentials: CredentialsError,
  region: RegionError,
  invalid: InvalidRequestError,
  transient: TransientError,
  unknown: OutcomeUnknownError,
} as const

interface ErrorFacts {
  code: string
  /** HTTP status; undefined: no answer came. */
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
  // Only errors that AWS sent have a fault; what the parser says of any other answer quotes it.
  const isAnswer = raw.$fault !== undefined
  const code = (isAnswer ? raw.name : (raw.code ?? raw.name)) ?? "Unknown"
  return { code, status, text: isAnswer || status === undefined ? withoutCiphertext(raw.message ?? "") : "" }
}

/** AWS appends to refusals a long encrypted explanation that only an administrator of the account can open. */
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
