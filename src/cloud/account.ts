import type { ConnectionType } from "../apis/connection.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import type { Identity } from "./provider.ts"

/** Something that an account holds and a job can name. */
export interface DiscoveredResource {
  /** The provider's own full name of it (an ARN, a resource name, a URL): unique within the provider. */
  id: string
  /** What a job's `bucket` or `image` would say; of a pool its own short name. */
  name: string
  /** Where it is kept, such as s3, gcs or ghcr. */
  platform: string
  /** What it is, such as bucket, repository or account. */
  type: string
  /** What is cheap to know of it: region, created (RFC 3339), size (bytes). */
  metadata: Record<string, string | number>
}

/** Finds one sort of resources, page by page, so that who runs out of time keeps what has come. */
export type Discovery = (signal: AbortSignal) => AsyncIterable<DiscoveredResource[]>

/** A bucket that an account reaches. */
export interface ReachedBucket {
  /** Absent where the account may read the bucket, but not ask about it. */
  region?: string
}

/**
 * What can be asked of the account that a connection opens, besides VMs. A sort of resources that the provider does not
 * have is absent. Every method throws only the errors of `errors.ts`, and ends soon after its signal is aborted.
 */
export interface ExternalAccount {
  /** Proves the credentials and says whose they are. */
  verify(signal: AbortSignal): Promise<VerifiedIdentity>
  readonly storages?: Discovery
  readonly repositories?: Discovery
  readonly virtualMachinePools?: Discovery
  /** Whether a bucket (under the name that `storages` gives it) can be read; undefined: there is none, or no access. */
  readonly bucket?: (name: string, signal: AbortSignal) => Promise<ReachedBucket | undefined>
}

/** Verdict of a provider on starting VMs with credentials, given without starting one. */
export type LaunchPermission =
  | { is: "granted" }
  /** @property message names what is missing and what to do */
  | { is: "denied"; message: string }
  | { is: "unknown"; message: string }

/** Whose credentials were verified. */
export interface VerifiedIdentity extends Identity {
  /** Absent where the provider can't be asked, or gave no answer. */
  launch?: LaunchPermission
}

/** Opens one provider's accounts by their credentials, which are used for nothing else; calls no host. */
export type AccountOpener = (credentials: CredentialFields) => ExternalAccount

/** Opens an account by credentials in clear; undefined where this version knows nothing of the type. */
export type OpenAccount = (type: ConnectionType, credentials: CredentialFields) => ExternalAccount | undefined

/** Without the keys whose value is undefined, as providers leave out what they don't know. */
export function metadataOf(known: Record<string, string | number | undefined>): DiscoveredResource["metadata"] {
  const entries = Object.entries(known).filter(
    (entry): entry is [string, string | number] => entry[1] !== undefined && entry[1] !== "",
  )
  return Object.fromEntries(entries)
}
