import { systemClock } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import type { OpenProvider } from "../registry.ts"
import { azureAccounts } from "./account.ts"
import { openAzure } from "./azure.ts"
import { azureBuckets } from "./bucket-credentials.ts"
import { azureRegistries } from "./container-registry.ts"
import { azurePrices } from "./prices.ts"

export const open: OpenProvider = ({ tokens }) => {
  const signIn = defined({ tokens })
  return {
    account: azureAccounts(signIn),
    region: openAzure(signIn),
    buckets: azureBuckets(signIn),
    registries: azureRegistries(signIn),
    prices: azurePrices({ clock: systemClock }),
  }
}
