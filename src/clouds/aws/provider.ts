import { systemClock } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import type { OpenProvider } from "../registry.ts"
import { awsAccounts } from "./account.ts"
import { openAws } from "./aws.ts"
import { awsBuckets } from "./bucket-credentials.ts"
import { ecrRegistries } from "./ecr.ts"
import { awsPrices } from "./prices.ts"
import { AssumedRoles } from "./temporary-keys.ts"

export const open: OpenProvider = ({ awsNetworks: networks, tokens }) => {
  const roles = new AssumedRoles(defined({ tokens }))
  return {
    account: awsAccounts({ roles, ...defined({ networks }) }),
    region: openAws({ clock: systemClock, roles, ...defined({ networks }) }),
    buckets: awsBuckets({ roles }),
    registries: ecrRegistries({ roles }),
    prices: awsPrices(systemClock, roles),
  }
}
