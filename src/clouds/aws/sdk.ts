import type { EC2 } from "@aws-sdk/client-ec2"
import type { SSM } from "@aws-sdk/client-ssm"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { proxiedAgents } from "../../core/apis/proxy.ts"
import { type AccessKey, type AssumedRoles, hasRole, toAccessKey } from "./temporary-keys.ts"

/** Configuration of every client of AWS' SDK. */
export interface SdkConfig {
  region: string
  /** A function is called before each request. Its key is used until shortly before the key expires. */
  credentials: AccessKey | (() => Promise<AccessKey>)
  /** Attempts of one call, including the first. */
  maxAttempts: number
  /** Endpoint of an emulator, instead of AWS' own. */
  endpoint?: string
  /** Agents that use the process' proxy. Absent: the SDK's own. */
  requestHandler?: NonNullable<ReturnType<typeof proxiedAgents>>
}

/** Returns the part of a configuration with which the SDK uses the process' proxy. Each client destroys its agents. */
export function proxyConfig(): Pick<SdkConfig, "requestHandler"> {
  const requestHandler = proxiedAgents()
  return requestHandler === undefined ? {} : { requestHandler }
}

/**
 * Always sets explicit credentials: without them the SDK would find the operator's own. The SDK chooses the endpoint,
 * and AWS_ENDPOINT_URL changes it for a whole process
 * (https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html).
 */
export function sdkConfig(
  credentials: CredentialFields,
  { region, roles, maxAttempts = 3 }: { region: string; roles: AssumedRoles; maxAttempts?: number },
): SdkConfig {
  const common = { region, maxAttempts, ...proxyConfig() }
  if (hasRole(credentials)) return { ...common, credentials: () => roles.keyOf(credentials, region) }
  return { ...common, credentials: toAccessKey(credentials) }
}

/**
 * Returns a client of EC2. Loads the package first: 40 MiB and a third of a second, which only an installation with a
 * connection to AWS needs.
 */
export async function ec2Client(config: SdkConfig): Promise<EC2> {
  const { default: sdk } = await import("@aws-sdk/client-ec2")
  return new sdk.EC2(config)
}

/** Returns a client of SSM, which is loaded at the first call. */
export async function ssmClient(config: SdkConfig): Promise<SSM> {
  const { default: sdk } = await import("@aws-sdk/client-ssm")
  return new sdk.SSM(config)
}
