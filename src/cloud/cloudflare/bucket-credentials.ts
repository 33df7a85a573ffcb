import type { CredentialFields } from "../../apis/credentials.ts"

/**
 * What rclone opens a bucket of R2 with: the connection's own key pair. R2 gives short-lived keys only to who has a token
 * of Cloudflare's API, which a connection doesn't hold; make the key pair for the buckets that jobs need
 * (https://developers.cloudflare.com/r2/api/tokens/). `path` is the bucket and the folder in it. Pure.
 */
export function r2BucketAccess(credentials: CredentialFields, path: string) {
  const {
    account_id: account = "",
    access_key_id: accessKeyId = "",
    secret_access_key: secretAccessKey = "",
  } = credentials
  const endpoint = `https://${account}.r2.cloudflarestorage.com`
  return {
    path,
    remote: { type: "s3", provider: "Cloudflare", endpoint, region: "auto", no_check_bucket: "true" },
    keys: { accessKeyId, secretAccessKey },
  }
}
