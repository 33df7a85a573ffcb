import type { CredentialFields } from "../core/apis/credentials.ts"

/** A bucket, or a folder in it, for a Launch's volume. */
export interface BucketScope {
  bucket: string
  /** Without slashes at its ends. Empty for the whole bucket. */
  prefix: string
  /** Name of the Launch, for the provider's own records. */
  launch: string
  /** Maximum lifetime of the VM, seconds: for access that can't be renewed. */
  lifetimeSeconds: number
  region?: string
  /** True for access that can't write, if the provider supports it. */
  readOnly?: boolean | undefined
}

/** Access to a bucket, in the form that a VM's agent needs. */
export interface ScopedBucket {
  /** The bucket and the folder in it. */
  path: string
  /** Options of rclone's backend, including `type`. */
  remote: Record<string, string>
  /** The key of a backend of type s3. It is separate because it can be renewed. */
  keys?: { accessKeyId: string; secretAccessKey: string; sessionToken?: string }
  /** RFC 3339; absent if the access does not expire. */
  expiration?: string
}

/**
 * Opens a bucket for a VM. If the provider supports it, the access has only this scope and expires. Throws the errors
 * of errors.ts.
 */
export type BucketOpener = (
  credentials: CredentialFields,
  scope: BucketScope,
  signal: AbortSignal,
) => Promise<ScopedBucket>
