import { defined } from "../../core/apis/defined.ts"
import type { OpenProvider } from "../registry.ts"
import { gcpAccounts } from "./account.ts"
import { artifactRegistries } from "./artifact-registry.ts"
import { gcsBuckets } from "./bucket-credentials.ts"
import { openGcp } from "./gcp.ts"
import { gcpPrices } from "./prices.ts"

export const open: OpenProvider = ({ gcpNetworks: networks, tokens }) => {
  const signIn = defined({ tokens })
  return {
    account: gcpAccounts({ ...signIn, ...defined({ networks }) }),
    region: openGcp({ ...signIn, ...defined({ networks }) }),
    buckets: gcsBuckets(signIn),
    registries: artifactRegistries(signIn),
    prices: gcpPrices(signIn),
  }
}
