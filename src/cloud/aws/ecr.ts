import { type AuthorizationData, ECRClient, GetAuthorizationTokenCommand } from "@aws-sdk/client-ecr"
import type { CredentialFields } from "../../apis/credentials.ts"
import { CredentialsError } from "../errors.ts"
import type { PullScope, RegistryLogin, RegistryOpener } from "../registry-access.ts"
import { cloudErrorOf } from "./errors.ts"
import { federatedKey, partitionOf } from "./federation.ts"
import { sdkConfig } from "./sdk.ts"

/** A registry is an account's, in a region (https://docs.aws.amazon.com/AmazonECR/latest/userguide/Registries.html). */
const REGISTRY =
  /^(?<account>[0-9]{12})\.dkr[.-]ecr(-fips)?\.(?<region>[a-z0-9-]+)\.(amazonaws\.com(\.cn)?|on\.(aws|amazonwebservices\.com\.cn))$/

/** How long the key lasts that asks for the password, and nothing else is done with: AWS' least. */
const KEY_SECONDS = 900

export interface EcrOptions {
  /** Instead of AWS' own, of STS and ECR: an emulator's. */
  endpoint?: string
}

/**
 * Signs in to the private registries of ECR by a password that is good for 12 hours and for pulling from one repository:
 * a password of ECR's may what the key may that asked for it.
 */
export function ecrRegistries({ endpoint }: EcrOptions = {}): RegistryOpener {
  return {
    serves: (registry) => REGISTRY.test(registry),
    login: (credentials, scope, signal) => login(credentials, scope, { signal, ...(endpoint && { endpoint }) }),
  }
}

async function login(
  credentials: CredentialFields,
  scope: PullScope,
  { signal, endpoint }: EcrOptions & { signal: AbortSignal },
): Promise<RegistryLogin> {
  const { region } = placeOf(scope.registry)
  const request = { region, launch: scope.launch, seconds: KEY_SECONDS, policy: pullPolicy(scope), endpoint }
  const { expiration: _, ...key } = await federatedKey(credentials, request, signal)
  const config = { ...sdkConfig(credentials, region), credentials: key }
  const client = new ECRClient({ ...config, ...(endpoint !== undefined && { endpoint }) })
  try {
    const answer = await client.send(new GetAuthorizationTokenCommand(), { abortSignal: signal })
    return loginIn(answer.authorizationData?.[0])
  } catch (error) {
    if (error instanceof CredentialsError) throw error
    throw cloudErrorOf(error, { action: "GetAuthorizationToken", region, changes: false })
  } finally {
    client.destroy()
  }
}

/** The token is `user:password` in base64. */
function loginIn({ authorizationToken, expiresAt }: AuthorizationData = {}): RegistryLogin {
  const [, username, password] =
    /^([^:]+):(.+)$/s.exec(Buffer.from(authorizationToken ?? "", "base64").toString()) ?? []
  if (username === undefined || password === undefined) {
    throw new CredentialsError("NoCredentials", "AWS' ECR answered without a password")
  }
  return { username, password, ...(expiresAt !== undefined && { expiration: expiresAt.toISOString() }) }
}

/** What pulling one image needs and no more: the session policy of the key that asks for the password. Pure. */
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
