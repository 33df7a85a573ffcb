import { systemClock } from "./apis/clock.ts"
import { awsAccounts } from "./cloud/aws/account.ts"
import { type AwsOptions, openAws } from "./cloud/aws/aws.ts"
import { awsBuckets } from "./cloud/aws/bucket-credentials.ts"
import { azureAccounts } from "./cloud/azure/account.ts"
import { openAzure } from "./cloud/azure/azure.ts"
import { cloudflareAccounts } from "./cloud/cloudflare/account.ts"
import { r2Buckets } from "./cloud/cloudflare/bucket-credentials.ts"
import type { Providers } from "./cloud/clouds.ts"
import { gcpAccounts } from "./cloud/gcp/account.ts"
import { openGcp } from "./cloud/gcp/gcp.ts"
import { dockerHubAccounts } from "./registries/dockerhub.ts"
import { githubAccounts } from "./registries/github.ts"

/** What an installation has to say about its providers. */
export interface ProviderSettings {
  awsNetworks?: AwsOptions["networks"]
}

/** All that Berth can do with each type of connection; operator and façade are given the same. */
export function providersOf({ awsNetworks }: ProviderSettings = {}): Providers {
  const aws: AwsOptions = { clock: systemClock, ...(awsNetworks !== undefined && { networks: awsNetworks }) }
  return {
    aws: { account: awsAccounts(), region: openAws(aws), buckets: awsBuckets() },
    gcp: { account: gcpAccounts(), region: openGcp() },
    azure: { account: azureAccounts(), region: openAzure() },
    cloudflare: { account: cloudflareAccounts(), buckets: r2Buckets() },
    dockerhub: { account: dockerHubAccounts() },
    github: { account: githubAccounts() },
  }
}
