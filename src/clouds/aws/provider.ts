import { systemClock } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import type { IdentityTokens } from "../identity-tokens.ts"
import type { Provider } from "../provider.ts"
import { awsAccounts } from "./account.ts"
import { type AwsOptions, openAws } from "./aws.ts"
import { awsBuckets } from "./bucket-credentials.ts"
import { ecrRegistries } from "./ecr.ts"
import { awsPrices } from "./prices.ts"
import { AssumedRoles } from "./temporary-keys.ts"

export interface AwsSettings {
  networks?: AwsOptions["networks"]
  tokens?: IdentityTokens
}

export function awsProvider({ networks, tokens }: AwsSettings): Provider {
  const roles = new AssumedRoles(defined({ tokens }))
  return {
    account: awsAccounts({ roles, ...defined({ networks }) }),
    region: openAws({ clock: systemClock, roles, ...defined({ networks }) }),
    buckets: awsBuckets({ roles }),
    registries: ecrRegistries({ roles }),
    prices: awsPrices(systemClock, roles),
  }
}
