import type { Offer } from "../../core/apis/offer.ts"
import { type Catalogue, createCatalogue } from "../router/catalogue.ts"

/**
 * Source of the present catalogue: every machine that any cloud sells. Each call may return another one, because prices
 * are refreshed. A catalogue itself never changes.
 */
export interface Offers {
  current(): Catalogue
}

/** Returns a catalogue that never changes, such as the local cloud's. */
export function fixedOffers(offers: readonly Offer[]): Offers {
  const catalogue = createCatalogue(offers)
  return { current: () => catalogue }
}
