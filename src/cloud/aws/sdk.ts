import type { CredentialFields } from "../../apis/credentials.ts"

/** What every client of AWS' SDK is made with. */
export interface SdkConfig {
  region: string
  credentials: { accessKeyId: string; secretAccessKey: string }
  /** Attempts of one call, the first included. */
  maxAttempts: number
}

/**
 * Explicit credentials, always: without them the SDK would find the operator's own. The endpoint is the SDK's, which
 * AWS_ENDPOINT_URL changes for a whole process (https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html).
 */
export function sdkConfig(credentials: CredentialFields, region: string, maxAttempts = 3): SdkConfig {
  const { access_key_id: accessKeyId = "", secret_access_key: secretAccessKey = "" } = credentials
  return { region, credentials: { accessKeyId, secretAccessKey }, maxAttempts }
}
