import type { Offer } from "../apis/offer.ts"
import { type Catalogue, catalogueOf } from "../router/catalogue.ts"

/**
 * Where the present catalogue is found: every machine that any cloud sells. It may be another one at the next call
 * (prices are refreshed); a catalogue itself never changes.
 */
export interface Offers {
  current(): Catalogue
}

/** A catalogue that stays as it is, such as the local cloud's. */
export function fixedOffers(offers: readonly Offer[]): Offers {
  const catalogue = catalogueOf(offers)
  return { current: () => catalogue }
}
