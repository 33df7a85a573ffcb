import type { AuthorizationData } from "@aws-sdk/client-ecr"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { defined } from "../../core/apis/defined.ts"
import { CredentialsError } from "../../core/outbound/errors.ts"
import type { PullScope, RegistryLogin, RegistryOpener } from "../registry-access.ts"
import { toCloudError } from "./errors.ts"
import { sdkConfig } from "./sdk.ts"
import { AssumedRoles, partitionOf, scopedKey } from "./temporary-keys.ts"

/**
 * A registry belongs to an account and a region
 * (https://docs.aws.amazon.com/AmazonECR/latest/userguide/Registries.html).
 */
const REGISTRY =
  /^(?<account>[0-9]{12})\.dkr[.-]ecr(-fips)?\.(?<region>[a-z0-9-]+)\.(amazonaws\.com(\.cn)?|on\.(aws|amazonwebservices\.com\.cn))$/

/** Lifetime of the key that requests the password, used for nothing else. It is AWS' minimum. */
const KEY_SECONDS = 900

export interface EcrOptions {
  /** Endpoint of an emulator for STS and ECR, instead of AWS' own. */
  endpoint?: string
  roles?: AssumedRoles
}

/**
 * Signs in to private ECR registries. The password is valid for 12 hours, and pulls from one repository only. An ECR
 * password has the rights of the key that requested it.
 */
export function ecrRegistries(options: EcrOptions = {}): RegistryOpener {
  return {
    serves: (registry) => REGISTRY.test(registry),
    login: (credentials, scope, signal) => login(credentials, scope, { ...options, signal }),
  }
}

async function login(
  credentials: CredentialFields,
  scope: PullScope,
  { signal, endpoint, roles = new AssumedRoles() }: EcrOptions & { signal: AbortSignal },
): Promise<RegistryLogin> {
  const { region } = placeOf(scope.registry)
  const request = { region, launch: scope.launch, seconds: KEY_SECONDS, policy: pullPolicy(scope), endpoint }
  const { expiration: _, ...key } = await scopedKey(credentials, request, { roles, signal })
  const config = { ...sdkConfig(credentials, { region, roles }), credentials: key }
  const { default: sdk } = await import("@aws-sdk/client-ecr")
  const client = new sdk.ECR({ ...config, ...defined({ endpoint }) })
  try {
    const answer = await client.getAuthorizationToken({}, { abortSignal: signal })
    return loginIn(answer.authorizationData?.[0])
  } catch (error) {
    if (error instanceof CredentialsError) throw error
    throw toCloudError(error, { action: "GetAuthorizationToken", region, changes: false })
  } finally {
    client.destroy()
  }
}

/** The token is `user:password` in base64. */
function loginIn({ authorizationToken, expiresAt }: AuthorizationData = {}): RegistryLogin {
  const [, username, password] =
    /^([^:]+):(.+)$/s.exec(Buffer.from(authorizationToken ?? "", "base64").toString()) ?? []
  if (username === undefined || password === undefined) {
    throw new CredentialsError("NoCredentials", "ECR returned no password")
  }
  return { username, password, ...(expiresAt !== undefined && { expiration: expiresAt.toISOString() }) }
}

/**
 * Returns the session policy of the key that requests the password, with the minimal rights to pull one image. Pure.
 */
export function pullPolicy({ registry, repository }: Pick<PullScope, "registry" | "repository">): object {
  const { account, region } = placeOf(registry)
  return {
    Version: "2012-10-17",
    Statement: [
      { Effect: "Allow", Action: "ecr:GetAuthorizationToken", Resource: "*" },
      {
        Effect: "Allow",
        Action: ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
        Resource: `arn:${partitionOf(region)}:ecr:${region}:${account}:repository/${repository}`,
      },
    ],
  }
}

function placeOf(registry: string): { account: string; region: string } {
  const { account = "", region = "" } = REGISTRY.exec(registry)?.groups ?? {}
  return { account, region }
}
