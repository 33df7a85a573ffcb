import type { CredentialFields } from "../../core/apis/credentials.ts"
import type { BucketOpener } from "../bucket-access.ts"

/**
 * Opens buckets of R2 by the connection's own key pair. R2 issues short-lived keys only to owners of a Cloudflare API
 * token, which a connection does not hold. So create the key pair for only the buckets that jobs need
 * (https://developers.cloudflare.com/r2/api/tokens/).
 */
export function r2Buckets(): BucketOpener {
  return async (credentials, { bucket, prefix }) => ({
    path: prefix === "" ? bucket : `${bucket}/${prefix}`,
    remote: remoteOf(credentials),
    keys: { accessKeyId: credentials["access_key_id"] ?? "", secretAccessKey: credentials["secret_access_key"] ?? "" },
  })
}

function remoteOf({ account_id: account = "" }: CredentialFields): Record<string, string> {
  const endpoint = `https://${account}.r2.cloudflarestorage.com`
  return { type: "s3", provider: "Cloudflare", endpoint, region: "auto", no_check_bucket: "true" }
}
