import type { CredentialFields } from "../apis/credentials.ts"
import type { Offer } from "../apis/offer.ts"

/** What of a machine type its price may be made up of. */
export type PricedMachine = Pick<Offer, "instanceType" | "cpu" | "memoryGib" | "gpu">

/** Whose prices are wanted. */
export interface PriceQuestion {
  /** Of an account of the cloud; its prices are those of everybody. */
  credentials: CredentialFields
  regions: readonly string[]
  /** All machine types that are of interest. */
  machines: readonly PricedMachine[]
  /** Ends all calls. */
  signal: AbortSignal
  /** Told of each call. */
  onCall: () => void
}

/** What the machines of one region cost, bought one way: by machine type, US dollars an hour. */
export interface QuotedPrices {
  region: string
  provisioning: Offer["provisioning"]
  prices: ReadonlyMap<string, number>
}

/**
 * Asks a cloud what its machines cost now, for Linux and without licences. Gives whole regions as they come, also when it
 * fails in the end. @throws only the errors of `errors.ts`
 */
export type PriceReader = (question: PriceQuestion) => AsyncIterable<QuotedPrices>

/** Where a cloud's prices are told. */
export interface PriceReaders {
  /** Prices that change a few times a year. */
  list: PriceReader
  /** Of spot machines, where these cost something else from hour to hour; absent: they are in the list. */
  market?: PriceReader
}
