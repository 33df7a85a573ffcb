import type { Offer } from "../apis/offer.ts"

/**
 * The catalogue as the router reads it: every machine that any cloud sells. It may change between two calls
 * (prices are refreshed), never within what one call returned.
 */
export interface Offers {
  all(): readonly Offer[]
}

/** A catalogue that stays as it is, such as the local cloud's. */
export function fixedOffers(offers: readonly Offer[]): Offers {
  const copy = Object.freeze([...offers])
  return { all: () => copy }
}
