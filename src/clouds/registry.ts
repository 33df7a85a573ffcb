import { systemClock } from "../core/apis/clock.ts"
import { defined } from "../core/apis/defined.ts"
import { awsAccounts } from "./aws/account.ts"
import { type AwsOptions, openAws } from "./aws/aws.ts"
import { awsBuckets } from "./aws/bucket-credentials.ts"
import { ecrRegistries } from "./aws/ecr.ts"
import { awsPrices } from "./aws/prices.ts"
import { AssumedRoles } from "./aws/temporary-keys.ts"
import { azureAccounts } from "./azure/account.ts"
import { openAzure } from "./azure/azure.ts"
import { azureBuckets } from "./azure/bucket-credentials.ts"
import { azureRegistries } from "./azure/container-registry.ts"
import { azurePrices } from "./azure/prices.ts"
import { cloudflareAccounts } from "./cloudflare/account.ts"
import { r2Buckets } from "./cloudflare/bucket-credentials.ts"
import { dockerHubAccounts, dockerHubRegistry } from "./dockerhub/account.ts"
import { gcpAccounts } from "./gcp/account.ts"
import { artifactRegistries } from "./gcp/artifact-registry.ts"
import { gcsBuckets } from "./gcp/bucket-credentials.ts"
import { type GcpOptions, openGcp } from "./gcp/gcp.ts"
import { gcpPrices } from "./gcp/prices.ts"
import { githubAccounts, githubRegistry } from "./github/account.ts"
import type { IdentityTokens } from "./identity-tokens.ts"
import type { Providers } from "./provider.ts"

/** Settings of an installation for its providers. */
export interface ProviderSettings {
  awsNetworks?: AwsOptions["networks"]
  gcpNetworks?: GcpOptions["networks"]
  /** Issuer of identity tokens. Absent: every connection needs a secret. */
  tokens?: IdentityTokens
}

/** Returns the features of each type of connection. The operator and the façade get the same. */
export function providersOf({ awsNetworks, gcpNetworks, tokens }: ProviderSettings = {}): Providers {
  const signIn = tokens === undefined ? {} : { tokens }
  const roles = new AssumedRoles(signIn)
  const aws: AwsOptions = { clock: systemClock, roles, ...defined({ networks: awsNetworks }) }
  return {
    aws: {
      account: awsAccounts({ roles, ...defined({ networks: awsNetworks }) }),
      region: openAws(aws),
      buckets: awsBuckets({ roles }),
      registries: ecrRegistries({ roles }),
      prices: awsPrices(systemClock, roles),
    },
    gcp: {
      account: gcpAccounts({ ...signIn, ...defined({ networks: gcpNetworks }) }),
      region: openGcp({ ...signIn, ...defined({ networks: gcpNetworks }) }),
      buckets: gcsBuckets(signIn),
      registries: artifactRegistries(signIn),
      prices: gcpPrices(signIn),
    },
    azure: {
      account: azureAccounts(signIn),
      region: openAzure(signIn),
      buckets: azureBuckets(signIn),
      registries: azureRegistries(signIn),
      prices: azurePrices({ clock: systemClock }),
    },
    cloudflare: { account: cloudflareAccounts(), buckets: r2Buckets() },
    dockerhub: { account: dockerHubAccounts(), registries: dockerHubRegistry },
    github: { account: githubAccounts(), registries: githubRegistry },
  }
}
