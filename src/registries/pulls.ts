import type { CredentialFields } from "../apis/credentials.ts"
import type { PullScope, RegistryOpener } from "../cloud/registry-access.ts"
import { type CallOptions, digestOf, signIn } from "./registry.ts"

/** What an engine signs in to a registry with; nothing of it where the registry asks for nothing. */
export interface PullAccess {
  username?: string
  password?: string
  /** In place of user and password. */
  token?: string
  /** RFC 3339: when it ends. */
  expiration?: string
}

/**
 * What an engine can pull an image with by the account that these credentials open; undefined where the account may not
 * pull it, or there is none. As short-lived and narrow as the provider and the registry have it. @throws CloudError
 */
export async function pullAccess(
  opener: RegistryOpener,
  { credentials, scope }: { credentials: CredentialFields; scope: PullScope },
  options: CallOptions,
): Promise<PullAccess | undefined> {
  const login = await opener.login(credentials, scope, options.signal)
  const proof = await signIn(scope, login, options)
  if ((await digestOf(scope, proof, options)) === undefined) return undefined
  const { by, ...access } = proof
  return access
}
