import type { CapabilityName, ConnectionType } from "../core/apis/connection.ts"
import type { CredentialFields } from "../core/apis/credentials.ts"
import type { VmSettings } from "../core/apis/vm-settings.ts"
import type { Identity } from "./cloud.ts"

/** A resource of an account that a job can name. */
export interface DiscoveredResource {
  /** The provider's own full name (an ARN, a resource name, a URL): unique within the provider. */
  id: string
  /** Value for a job's `bucket` or `image`; for a pool, its own short name. */
  name: string
  /** Service that holds the resource, such as s3, gcs or ghcr. */
  platform: string
  /** Kind of resource, such as bucket, repository or account. */
  type: string
  /** Facts that need no further call: region, created (RFC 3339), size (bytes). */
  metadata: Record<string, string | number>
}

/** Finds one kind of resources, page by page. A caller that runs out of time keeps the pages that have arrived. */
export type Discovery = (signal: AbortSignal) => AsyncIterable<DiscoveredResource[]>

/** A bucket that an account can read. */
export interface ReachedBucket {
  /** Absent if the account may read the bucket, but not its properties. */
  region?: string
}

/**
 * The account that a connection opens, without its VMs. A kind of resources that the provider does not have is absent.
 * Every method throws only the errors of `errors.ts`, and ends soon after its signal is aborted.
 */
export interface ExternalAccount {
  /** Verifies the credentials and returns their account. */
  verify(signal: AbortSignal): Promise<Identity>
  /** Checks the uses of the account without creating anything. An error means that no use was checked. */
  readonly capabilities?: (question: CapabilityQuestion, signal: AbortSignal) => Promise<Capabilities>
  readonly storages?: Discovery
  readonly repositories?: Discovery
  readonly virtualMachinePools?: Discovery
  /** Finds a bucket by its name in `storages`. Returns undefined if it does not exist or can't be read. */
  readonly bucket?: (name: string, signal: AbortSignal) => Promise<ReachedBucket | undefined>
}

/** Cause of a capability that the account does not have. */
export type DenialReason =
  | "PermissionsMissing"
  | "NetworkMissing"
  | "ServiceDisabled"
  | "AccountDisabled"
  | "QuotaMissing"

/** Verdict on one use of an account. A check creates nothing. Messages name what is missing and what to do. */
export type Capability =
  | { is: "granted"; message: string }
  /** `missing`: the permissions that are missing, by the provider's names. */
  | { is: "denied"; reason: DenialReason; message: string; missing?: string[] }
  /** The provider answered, but its answer proves neither. */
  | { is: "unknown"; message: string }
  /** The provider did not answer. An earlier verdict remains. */
  | { is: "unanswered"; message: string }

/** Verdicts on the uses that a type of account has. */
export type Capabilities = Partial<Record<CapabilityName, Capability>>

/** Subject of a check of capabilities. */
export interface CapabilityQuestion {
  /** Regions in which the connection created VMs. Empty for a new connection. */
  regions: readonly string[]
  /** The connection's settings of VMs. Its network must exist, and not the cloud's default one. Absent: none. */
  settings?: VmSettings
}

/** Opens one provider's accounts by their credentials, which are used for nothing else. Makes no calls. */
export type AccountOpener = (credentials: CredentialFields) => ExternalAccount

/** Opens an account by plaintext credentials. Returns undefined if this version does not know the type. */
export type OpenAccount = (type: ConnectionType, credentials: CredentialFields) => ExternalAccount | undefined

/** Removes undefined and empty values: providers omit facts that they don't know. */
export function definedMetadata(known: Record<string, string | number | undefined>): DiscoveredResource["metadata"] {
  const entries = Object.entries(known).filter(
    (entry): entry is [string, string | number] => entry[1] !== undefined && entry[1] !== "",
  )
  return Object.fromEntries(entries)
}
