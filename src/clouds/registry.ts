import { defined } from "../core/apis/defined.ts"
import { type AwsSettings, awsProvider } from "./aws/provider.ts"
import { azureProvider } from "./azure/provider.ts"
import { cloudflareAccounts } from "./cloudflare/account.ts"
import { r2Buckets } from "./cloudflare/bucket-credentials.ts"
import { dockerHubAccounts, dockerHubRegistry } from "./dockerhub/account.ts"
import { type GcpProviderSettings, gcpProvider } from "./gcp/provider.ts"
import { githubAccounts, githubRegistry } from "./github/account.ts"
import type { IdentityTokens } from "./identity-tokens.ts"
import type { Providers } from "./provider.ts"

/** Settings of an installation for its providers. */
export interface ProviderSettings {
  awsNetworks?: AwsSettings["networks"]
  gcpNetworks?: GcpProviderSettings["networks"]
  /** Issuer of identity tokens. Absent: every connection needs a secret. */
  tokens?: IdentityTokens
}

/** Returns the features of each type of connection. The operator and the façade get the same. */
export function providersOf({ awsNetworks, gcpNetworks, tokens }: ProviderSettings = {}): Providers {
  const signIn = defined({ tokens })
  return {
    aws: awsProvider({ ...signIn, ...defined({ networks: awsNetworks }) }),
    gcp: gcpProvider({ ...signIn, ...defined({ networks: gcpNetworks }) }),
    azure: azureProvider(signIn),
    cloudflare: { account: cloudflareAccounts(), buckets: r2Buckets() },
    dockerhub: { account: dockerHubAccounts(), registries: dockerHubRegistry },
    github: { account: githubAccounts(), registries: githubRegistry },
  }
}
