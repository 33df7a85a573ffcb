import type { CredentialFields } from "../apis/credentials.ts"

/** A bucket, or a folder in it, that a Launch's volume needs. */
export interface BucketScope {
  bucket: string
  /** Without slashes at its ends; empty: all of the bucket. */
  prefix: string
  /** Name of the Launch, for the provider's own records. */
  launch: string
  /** How long the VM lives at most: for access that can't be renewed. */
  lifetimeSeconds: number
  region?: string
}

/** Access to a bucket, as a VM's agent needs it. */
export interface ScopedBucket {
  /** The bucket and the folder in it. */
  path: string
  /** Options of rclone's backend, `type` among them. */
  remote: Record<string, string>
  /** The key of a backend of type s3: apart, since it can be renewed. */
  keys?: { accessKeyId: string; secretAccessKey: string; sessionToken?: string }
  /** RFC 3339; absent where the access doesn't end by itself. */
  expiration?: string
}

/** Opens a bucket for a VM: for this scope only and for a while, where the provider can. Throws the errors of errors.ts. */
export type BucketOpener = (
  credentials: CredentialFields,
  scope: BucketScope,
  signal: AbortSignal,
) => Promise<ScopedBucket>
