import { systemClock } from "./apis/clock.ts"
import { awsAccounts } from "./cloud/aws/account.ts"
import { type AwsOptions, openAws } from "./cloud/aws/aws.ts"
import { awsBuckets } from "./cloud/aws/bucket-credentials.ts"
import { ecrRegistries } from "./cloud/aws/ecr.ts"
import { awsPrices } from "./cloud/aws/prices.ts"
import { azureAccounts } from "./cloud/azure/account.ts"
import { openAzure } from "./cloud/azure/azure.ts"
import { azureBuckets } from "./cloud/azure/bucket-credentials.ts"
import { azureRegistries } from "./cloud/azure/container-registry.ts"
import { azurePrices } from "./cloud/azure/prices.ts"
import { cloudflareAccounts } from "./cloud/cloudflare/account.ts"
import { r2Buckets } from "./cloud/cloudflare/bucket-credentials.ts"
import type { Providers } from "./cloud/clouds.ts"
import { gcpAccounts } from "./cloud/gcp/account.ts"
import { artifactRegistries } from "./cloud/gcp/artifact-registry.ts"
import { gcsBuckets } from "./cloud/gcp/bucket-credentials.ts"
import { type GcpOptions, openGcp } from "./cloud/gcp/gcp.ts"
import { gcpPrices } from "./cloud/gcp/prices.ts"
import { dockerHubAccounts, dockerHubRegistry } from "./registries/dockerhub.ts"
import { githubAccounts, githubRegistry } from "./registries/github.ts"

/** What an installation has to say about its providers. */
export interface ProviderSettings {
  awsNetworks?: AwsOptions["networks"]
  gcpNetworks?: GcpOptions["networks"]
}

/** All that Berth can do with each type of connection; operator and façade are given the same. */
export function providersOf({ awsNetworks, gcpNetworks }: ProviderSettings = {}): Providers {
  const aws: AwsOptions = { clock: systemClock, ...(awsNetworks !== undefined && { networks: awsNetworks }) }
  return {
    aws: {
      account: awsAccounts(),
      region: openAws(aws),
      buckets: awsBuckets(),
      registries: ecrRegistries(),
      prices: awsPrices(systemClock),
    },
    gcp: {
      account: gcpAccounts(),
      region: openGcp(gcpNetworks === undefined ? {} : { networks: gcpNetworks }),
      buckets: gcsBuckets(),
      registries: artifactRegistries(),
      prices: gcpPrices(),
    },
    azure: {
      account: azureAccounts(),
      region: openAzure(),
      buckets: azureBuckets(),
      registries: azureRegistries(),
      prices: azurePrices({ clock: systemClock }),
    },
    cloudflare: { account: cloudflareAccounts(), buckets: r2Buckets() },
    dockerhub: { account: dockerHubAccounts(), registries: dockerHubRegistry },
    github: { account: githubAccounts(), registries: githubRegistry },
  }
}
