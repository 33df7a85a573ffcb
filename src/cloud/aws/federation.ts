import { GetFederationTokenCommand, STSClient } from "@aws-sdk/client-sts"
import type { CredentialFields } from "../../apis/credentials.ts"
import { CredentialsError } from "../errors.ts"
import { cloudErrorOf } from "./errors.ts"
import { sdkConfig } from "./sdk.ts"

export interface FederationRequest {
  /** Where STS is asked. */
  region: string
  /** Name of the Launch, which CloudTrail then shows. */
  launch: string
  /** How long the key lasts: 15 minutes to 36 hours. */
  seconds: number
  /** The session policy. */
  policy: object
  /** Instead of AWS' own: an emulator's. */
  endpoint?: string | undefined
}

/** An access key that ends by itself. */
export interface FederatedKey {
  accessKeyId: string
  secretAccessKey: string
  sessionToken: string
  /** RFC 3339. */
  expiration?: string
}

/**
 * A key for what the policy allows and nothing else: GetFederationToken with a session policy, which can take away from
 * what the access key may do and never adds to it. @throws CloudError
 */
export async function federatedKey(
  credentials: CredentialFields,
  { region, launch, seconds, policy, endpoint }: FederationRequest,
  signal: AbortSignal,
): Promise<FederatedKey> {
  const client = new STSClient({ ...sdkConfig(credentials, region), ...(endpoint !== undefined && { endpoint }) })
  try {
    const request = { Name: tokenName(launch), DurationSeconds: seconds, Policy: JSON.stringify(policy) }
    const answer = await client.send(new GetFederationTokenCommand(request), { abortSignal: signal })
    const { AccessKeyId, SecretAccessKey, SessionToken, Expiration } = answer.Credentials ?? {}
    if (AccessKeyId === undefined || SecretAccessKey === undefined || SessionToken === undefined) {
      throw new CredentialsError("NoCredentials", "AWS' STS answered without a key")
    }
    return {
      accessKeyId: AccessKeyId,
      secretAccessKey: SecretAccessKey,
      sessionToken: SessionToken,
      ...(Expiration !== undefined && { expiration: Expiration.toISOString() }),
    }
  } catch (error) {
    if (error instanceof CredentialsError) throw error
    throw cloudErrorOf(error, { action: "GetFederationToken", region, changes: false })
  } finally {
    client.destroy()
  }
}

/** Names of federated users have 2 to 32 characters. */
function tokenName(launch: string): string {
  return `berth-${launch.replace(/[^\w+=,.@-]/g, "-")}`.slice(0, 32)
}

/** What ARNs of a region begin with, after `arn:`. */
export function partitionOf(region: string): string {
  if (region.startsWith("cn-")) return "aws-cn"
  return region.startsWith("us-gov-") ? "aws-us-gov" : "aws"
}
