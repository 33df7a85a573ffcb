import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { offerOf } from "./builders.ts"
import type { Market } from "./programs.ts"
import type { SimProvider } from "./sim-provider.ts"

/** Region of the one offer of `simMarket`. */
export const REGION = "eu-north-1"

/** Returns a market with one offer, for connections of type aws, which open simulated accounts. */
export function simMarket({ provider }: SimProvider): Market {
  return { offers: fixedOffers([offerOf({ cloud: "aws", region: REGION })]), providers: { aws: provider } }
}
