import type { CredentialFields } from "../../core/apis/credentials.ts"
import { CredentialsError } from "../../core/outbound/errors.ts"
import { readError } from "../../core/outbound/read-errors.ts"
import type { PullScope, RegistryLogin, RegistryOpener } from "../registry-access.ts"
import { type AzureAccountOptions, azureError, signedIn } from "./signed-in.ts"

const REGISTRY = /^[a-z0-9-]+\.azurecr\.io$/

/** Audience of the tokens that registries exchange. */
const AUDIENCE = "https://management.azure.com/.default"

/**
 * User name for a registry's own tokens
 * (https://learn.microsoft.com/azure/container-registry/container-registry-authentication).
 */
const TOKEN_USER = "00000000-0000-0000-0000-000000000000"

/** Signs in to Azure's registries by a token of the registry itself, which expires after three hours. */
export function azureRegistries(options: AzureAccountOptions = {}): RegistryOpener {
  return {
    serves: (registry) => REGISTRY.test(registry),
    login: async (credentials, scope, signal) => {
      try {
        return await login(credentials, scope, { ...options, signal })
      } catch (error) {
        throw azureError(error, signal)
      }
    },
  }
}

async function login(
  credentials: CredentialFields,
  { registry }: PullScope,
  { signal, ...options }: AzureAccountOptions & { signal: AbortSignal },
): Promise<RegistryLogin> {
  const { credential, fetch } = await signedIn(credentials, options, signal)
  const { token = "" } = (await credential.getToken(AUDIENCE)) ?? {}
  const form = {
    grant_type: "access_token",
    service: registry,
    tenant: credentials["tenant_id"] ?? "",
    access_token: token,
  }
  const answer = await fetch(`https://${registry}/oauth2/exchange`, { method: "POST", body: new URLSearchParams(form) })
  if (!answer.ok) {
    await answer.body?.cancel()
    throw readError({ status: answer.status, message: `${registry} rejected the service principal's token` })
  }
  const { refresh_token: password } = (await answer.json()) as { refresh_token?: string }
  if (password === undefined) throw new CredentialsError("NoCredentials", `${registry} returned no token`)
  return { username: TOKEN_USER, password }
}
