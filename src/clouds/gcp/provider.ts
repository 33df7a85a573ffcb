import { defined } from "../../core/apis/defined.ts"
import type { IdentityTokens } from "../identity-tokens.ts"
import type { Provider } from "../provider.ts"
import { gcpAccounts } from "./account.ts"
import { artifactRegistries } from "./artifact-registry.ts"
import { gcsBuckets } from "./bucket-credentials.ts"
import { type GcpOptions, openGcp } from "./gcp.ts"
import { gcpPrices } from "./prices.ts"

export interface GcpProviderSettings {
  networks?: GcpOptions["networks"]
  tokens?: IdentityTokens
}

export function gcpProvider({ networks, tokens }: GcpProviderSettings): Provider {
  const signIn = defined({ tokens })
  return {
    account: gcpAccounts({ ...signIn, ...defined({ networks }) }),
    region: openGcp({ ...signIn, ...defined({ networks }) }),
    buckets: gcsBuckets(signIn),
    registries: artifactRegistries(signIn),
    prices: gcpPrices(signIn),
  }
}
