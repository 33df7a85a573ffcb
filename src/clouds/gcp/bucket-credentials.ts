import type { OAuth2Client } from "google-auth-library"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { CredentialsError } from "../../core/outbound/errors.ts"
import type { BucketOpener, BucketScope, ScopedBucket } from "../bucket-access.ts"
import { type GoogleOptions, googleAs, googleError } from "./google.ts"

/** A boundary only reduces rights, and Google requires the full scope to start from. */
const SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]

const STS = "https://sts.googleapis.com/v1/token"

/** Reads, writes, lists and deletes objects; has no rights on the bucket itself. */
const ROLE = "inRole:roles/storage.objectUser"

/** Reads and lists objects. */
const READING_ROLE = "inRole:roles/storage.objectViewer"

/**
 * Issues tokens for one bucket and folder only, which expire after an hour. Each is an access token of the service
 * account, exchanged for one with a Credential Access Boundary
 * (https://cloud.google.com/iam/docs/downscoping-short-lived-credentials).
 */
export function gcsBuckets(options: GoogleOptions = {}): BucketOpener {
  return async (credentials, scope, signal) => {
    try {
      return await access(credentials, scope, { ...options, signal })
    } catch (error) {
      throw googleError(error, signal)
    }
  }
}

async function access(
  credentials: CredentialFields,
  scope: BucketScope,
  { signal, ...options }: GoogleOptions & { signal: AbortSignal },
): Promise<ScopedBucket> {
  const google = await googleAs(credentials, { ...options, scopes: SCOPES }, signal)
  const { token = "", expiry } = await downscope(google, accessBoundary(scope))
  const expiration = new Date(expiry).toISOString()
  const { bucket, prefix } = scope
  return { path: prefix === "" ? bucket : `${bucket}/${prefix}`, remote: remoteOf(token, expiration), expiration }
}

/**
 * Returns options of rclone's backend (https://rclone.org/googlecloudstorage/), which reads the token again after it
 * has expired. rclone must not create a bucket that it can't see. It must not set rights of single objects either,
 * which most buckets don't support.
 */
function remoteOf(access_token: string, expiry: string): Record<string, string> {
  const token = JSON.stringify({ access_token, token_type: "Bearer", expiry })
  return { type: "google cloud storage", token, bucket_policy_only: "true", no_check_bucket: "true" }
}

/** The library's own client for this would use its own fetch, which checks no hosts. */
async function downscope(google: OAuth2Client, boundary: object): Promise<{ token?: string; expiry: number }> {
  const { token: subject } = await google.getAccessToken()
  const { expiry_date: subjectEnds } = google.credentials
  const form = new URLSearchParams({
    grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
    requested_token_type: "urn:ietf:params:oauth:token-type:access_token",
    subject_token_type: "urn:ietf:params:oauth:token-type:access_token",
    subject_token: subject ?? "",
    options: JSON.stringify(boundary),
  })
  const { data } = await google.transporter.request<{ access_token?: string; expires_in?: number }>({
    url: STS,
    method: "POST",
    data: form,
  })
  const { access_token: token, expires_in: seconds } = data
  const expiry = seconds === undefined ? subjectEnds : Date.now() + seconds * 1000
  if (token !== undefined && typeof expiry === "number") return { token, expiry }
  throw new CredentialsError("NoCredentials", "Google returned no token")
}

/** Returns the boundary with the minimal rights of a volume. Pure. */
export function accessBoundary({
  bucket,
  prefix,
  readOnly,
}: Pick<BucketScope, "bucket" | "prefix" | "readOnly">): object {
  const objects = `projects/_/buckets/${bucket}/objects/${prefix}/`
  const expression =
    `resource.name.startsWith(${celString(objects)}) || ` +
    `api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith(${celString(`${prefix}/`)})`
  const rule = {
    availableResource: `//storage.googleapis.com/projects/_/buckets/${bucket}`,
    availablePermissions: [readOnly ? READING_ROLE : ROLE],
    ...(prefix !== "" && { availabilityCondition: { expression } }),
  }
  return { accessBoundary: { accessBoundaryRules: [rule] } }
}

/** Quotes a string for the Common Expression Language, so that no content can end it. */
function celString(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&").replace(/[\r\n]/g, "")}'`
}
