import type { AwsOptions } from "./aws/aws.ts"
import { DEFINITIONS } from "./definitions.ts"
import type { GcpOptions } from "./gcp/gcp.ts"
import type { IdentityTokens } from "./identity-tokens.ts"
import type { Provider, Providers } from "./provider.ts"

/** Settings of an installation for its providers. */
export interface ProviderSettings {
  awsNetworks?: AwsOptions["networks"]
  gcpNetworks?: GcpOptions["networks"]
  /** Issuer of identity tokens. Absent: every connection needs a secret. */
  tokens?: IdentityTokens
}

/** Constructs a provider. Each folder's `provider.ts` exports such a function, as `open`. Makes no calls. */
export type OpenProvider = (settings: ProviderSettings) => Provider

/**
 * Returns the features of each type of connection. The operator and the façade get the same. The definitions are the
 * only list. Agents load that list, so it can't import the providers: their SDKs would be in the agent's file.
 */
export async function loadProviders(settings: ProviderSettings = {}): Promise<Providers> {
  const opened = Object.keys(DEFINITIONS).map(async (name): Promise<[string, Provider]> => {
    // esbuild finds all files of this form, and makes each a part of the bundle.
    const { open } = (await import(`./${name}/provider.ts`)) as { open: OpenProvider }
    return [name, open(settings)]
  })
  return Object.fromEntries(await Promise.all(opened))
}
