import { systemClock } from "./apis/clock.ts"
import { defined } from "./apis/defined.ts"
import { awsAccounts } from "./cloud/aws/account.ts"
import { type AwsOptions, openAws } from "./cloud/aws/aws.ts"
import { awsBuckets } from "./cloud/aws/bucket-credentials.ts"
import { ecrRegistries } from "./cloud/aws/ecr.ts"
import { awsPrices } from "./cloud/aws/prices.ts"
import { AssumedRoles } from "./cloud/aws/temporary-keys.ts"
import { azureAccounts } from "./cloud/azure/account.ts"
import { openAzure } from "./cloud/azure/azure.ts"
import { azureBuckets } from "./cloud/azure/bucket-credentials.ts"
import { azureRegistries } from "./cloud/azure/container-registry.ts"
import { azurePrices } from "./cloud/azure/prices.ts"
import { cloudflareAccounts } from "./cloud/cloudflare/account.ts"
import { r2Buckets } from "./cloud/cloudflare/bucket-credentials.ts"
import { gcpAccounts } from "./cloud/gcp/account.ts"
import { artifactRegistries } from "./cloud/gcp/artifact-registry.ts"
import { gcsBuckets } from "./cloud/gcp/bucket-credentials.ts"
import { type GcpOptions, openGcp } from "./cloud/gcp/gcp.ts"
import { gcpPrices } from "./cloud/gcp/prices.ts"
import type { IdentityTokens } from "./cloud/identity-tokens.ts"
import type { Providers } from "./cloud/provider.ts"
import { dockerHubAccounts, dockerHubRegistry } from "./registries/dockerhub.ts"
import { githubAccounts, githubRegistry } from "./registries/github.ts"

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
