import type { AssumeRoleCommandOutput, Credentials, STS } from "@aws-sdk/client-sts"
import { audienceOf, type CredentialFields } from "../../core/apis/credentials.ts"
import { defined } from "../../core/apis/defined.ts"
import { proxiedAgents } from "../../core/apis/proxy.ts"
import { CredentialsError } from "../../core/outbound/errors.ts"
import { ByCredentials } from "../by-credentials.ts"
import { type IdentityTokens, identityToken } from "../identity-tokens.ts"
import { toCloudError } from "./errors.ts"

/** Lifetime of an assumed role. Every role allows an hour (https://docs.aws.amazon.com/STS/latest/APIReference). */
const ROLE_SECONDS = 3600

/** A key is replaced this long before it expires, seconds. The SDK itself replaces it five minutes before. */
const RENEWAL_SECONDS = 600

const CACHED_ROLES = 256

const ANSWER_SECONDS = 30

/** Access key. Temporary keys have a session token and an expiration. */
export interface AccessKey {
  accessKeyId: string
  secretAccessKey: string
  sessionToken?: string
  expiration?: Date
}

/** Returns true if the credentials assume a role. */
export function hasRole(credentials: CredentialFields): boolean {
  return credentials["role_arn"] !== undefined
}

/** Returns the connection's own access key. */
export function toAccessKey(credentials: CredentialFields): AccessKey {
  const { access_key_id: accessKeyId = "", secret_access_key: secretAccessKey = "" } = credentials
  return { accessKeyId, secretAccessKey }
}

export interface RolesOptions {
  /** Absent: only roles that a connection's own key assumes. */
  tokens?: IdentityTokens
  /** Endpoint of an emulator, instead of AWS' own. */
  endpoint?: string
}

export interface ScopedKeyRequest {
  /** Region of STS. */
  region: string
  /** Name of the Launch, which CloudTrail then shows. */
  launch: string
  /** Lifetime of the key: 15 minutes to 36 hours. A role's key has an hour. */
  seconds: number
  policy: object
  /** Endpoint of an emulator, instead of AWS' own. */
  endpoint?: string | undefined
}

/** Keys of the roles that connections assume: with an identity token, or with a key and an external id. */
export class AssumedRoles {
  readonly #options: RolesOptions
  readonly #keys = new ByCredentials<{ key?: Promise<AccessKey> }>(CACHED_ROLES)

  constructor(options: RolesOptions = {}) {
    this.#options = options
  }

  /** Returns a key with all rights of the role, from a cache. @throws CloudError */
  async keyOf(credentials: CredentialFields, region: string): Promise<AccessKey> {
    const cached = this.#keys.get(credentials, () => ({}))
    const before = cached.key
    const known = await before?.catch(() => undefined)
    if (known?.expiration !== undefined && known.expiration.getTime() - Date.now() > RENEWAL_SECONDS * 1000)
      return known
    const { identity_subject = "berth" } = credentials
    // A concurrent call may have replaced the key meanwhile.
    if (cached.key === before) cached.key = this.assume(credentials, { region, session: identity_subject })
    return await (cached.key as Promise<AccessKey>)
  }

  /** Assumes the role. @param policy reduces its rights further @throws CloudError */
  async assume(
    credentials: CredentialFields,
    { region, session, policy, endpoint = this.#options.endpoint }: AssumptionRequest,
    signal = AbortSignal.timeout(ANSWER_SECONDS * 1000),
  ): Promise<AccessKey> {
    const { role_arn: RoleArn, external_id: ExternalId } = credentials
    const request = {
      RoleArn,
      RoleSessionName: sessionName(session, 64),
      DurationSeconds: ROLE_SECONDS,
      ...(policy !== undefined && { Policy: JSON.stringify(policy) }),
    }
    if (credentials["access_key_id"] !== undefined) {
      const known = { ...request, ...defined({ ExternalId }) }
      const call: StsCall["call"] = (sts, options) => sts.assumeRole(known, options)
      return await sendToSts(credentials, { action: "AssumeRole", region, endpoint, call }, signal)
    }
    const WebIdentityToken = await identityToken(this.#options.tokens, "aws", credentials)
    const call: StsCall["call"] = (sts, options) =>
      sts.assumeRoleWithWebIdentity({ ...request, WebIdentityToken }, options)
    return await sendToSts(credentials, { action: "AssumeRoleWithWebIdentity", region, endpoint, call }, signal)
  }
}

interface AssumptionRequest {
  region: string
  /** Name that CloudTrail shows. */
  session: string
  policy?: object
  endpoint?: string | undefined
}

/**
 * Returns a key that has only the rights of the policy. A role is assumed with the policy. A user's key gets it by
 * GetFederationToken. Both can only reduce rights. @throws CloudError
 */
export async function scopedKey(
  credentials: CredentialFields,
  { region, launch, seconds, policy, endpoint }: ScopedKeyRequest,
  { roles, signal }: { roles: AssumedRoles; signal: AbortSignal },
): Promise<AccessKey> {
  if (hasRole(credentials)) return roles.assume(credentials, { region, session: launch, policy, endpoint }, signal)
  const request = { Name: sessionName(`berth-${launch}`, 32), DurationSeconds: seconds, Policy: JSON.stringify(policy) }
  const call: StsCall["call"] = (sts, options) => sts.getFederationToken(request, options)
  return await sendToSts(credentials, { action: "GetFederationToken", region, endpoint, call }, signal)
}

interface StsCall {
  action: string
  region: string
  endpoint?: string | undefined
  call: (sts: STS, options: { abortSignal: AbortSignal }) => Promise<Pick<AssumeRoleCommandOutput, "Credentials">>
}

async function sendToSts(
  credentials: CredentialFields,
  { action, region, endpoint, call }: StsCall,
  signal: AbortSignal,
): Promise<AccessKey> {
  const { default: sdk } = await import("@aws-sdk/client-sts")
  const config = { region, credentials: toAccessKey(credentials), ...defined({ endpoint }) }
  const requestHandler = proxiedAgents()
  const client = new sdk.STS({ ...config, ...(requestHandler && { requestHandler }), maxAttempts: 3 })
  try {
    const { Credentials: key } = await call(client, { abortSignal: signal })
    return accessKeyOf(key)
  } catch (error) {
    if (error instanceof CredentialsError) throw error
    throw explainDenial(toCloudError(error, { action, region, changes: false }), credentials)
  } finally {
    client.destroy()
  }
}

/** Names what the role's trust policy must allow, because AWS says only that access is denied. */
function explainDenial(error: Error & { code?: string }, credentials: CredentialFields): Error {
  const { role_arn: role, identity_subject: subject, external_id: externalId } = credentials
  if (role === undefined || !DENIALS.includes(error.code ?? "")) return error
  const trusted =
    credentials["access_key_id"] === undefined
      ? `the subject ${subject} and the audience ${audienceOf("aws", credentials)}`
      : `this key's user with the external id ${externalId}`
  const message = `AWS refused ${role}: its trust policy must allow ${trusted} (docs/aws.md). ${error.message}`
  return new CredentialsError(error.code ?? "AccessDenied", message, { cause: error })
}

const DENIALS = ["AccessDenied", "InvalidIdentityToken", "IDPRejectedClaim", "InvalidIdentityTokenException"]

function accessKeyOf({ AccessKeyId, SecretAccessKey, SessionToken, Expiration }: Partial<Credentials> = {}): AccessKey {
  if (AccessKeyId === undefined || SecretAccessKey === undefined || SessionToken === undefined) {
    throw new CredentialsError("NoCredentials", "STS returned no key")
  }
  return {
    accessKeyId: AccessKeyId,
    secretAccessKey: SecretAccessKey,
    sessionToken: SessionToken,
    ...defined({ expiration: Expiration }),
  }
}

/** Names of sessions and federated users have 2 to 32 or 64 characters. */
function sessionName(text: string, most: number): string {
  return text.replace(/[^\w+=,.@-]/g, "-").slice(0, most)
}

/** Returns the partition of a region: the part of its ARNs after `arn:`. */
export function partitionOf(region: string): string {
  if (region.startsWith("cn-")) return "aws-cn"
  return region.startsWith("us-gov-") ? "aws-us-gov" : "aws"
}
