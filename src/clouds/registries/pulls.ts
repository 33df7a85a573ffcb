import type { CredentialFields } from "../../core/apis/credentials.ts"
import type { PullScope, RegistryOpener } from "../registry-access.ts"
import { type CallOptions, readDigest, signIn } from "./registry.ts"

/** Credentials for an engine's login to a registry. Empty if the registry requires none. */
export interface PullAccess {
  username?: string
  password?: string
  /** Token instead of user and password. */
  token?: string
  /** End of its validity (RFC 3339). */
  expiration?: string
}

/**
 * Returns the login with which an engine can pull an image by the account of these credentials. Undefined if the
 * account has no access, or the image does not exist. The login is as short-lived and narrow as the provider and the
 * registry allow. @throws CloudError
 */
export async function pullAccess(
  opener: RegistryOpener,
  { credentials, scope }: { credentials: CredentialFields; scope: PullScope },
  options: CallOptions,
): Promise<PullAccess | undefined> {
  const login = await opener.login(credentials, scope, options.signal)
  const proof = await signIn(scope, login, options)
  const found = await readDigest(scope, proof, options)
  if (found === undefined || "missing" in found) return undefined
  const { by, ...access } = proof
  return access
}
