import type { CredentialFields } from "../core/apis/credentials.ts"
import type { Offer } from "../core/apis/offer.ts"

/** The fields of a machine type that its price can depend on. */
export type PricedMachine = Pick<Offer, "instanceType" | "cpu" | "memoryGib" | "gpu">

/** Query for the prices of machine types in regions. */
export interface PriceQuestion {
  /** Of any account of the cloud: list prices are the same for all accounts. */
  credentials: CredentialFields
  regions: readonly string[]
  /** All machine types of interest. */
  machines: readonly PricedMachine[]
  /** Aborts all calls. */
  signal: AbortSignal
  /** Called once for each call. */
  onCall: () => void
}

/** Prices of one region's machines with one provisioning: US dollars an hour, by machine type. */
export interface QuotedPrices {
  region: string
  provisioning: Offer["provisioning"]
  prices: ReadonlyMap<string, number>
}

/**
 * Queries a cloud's current prices, for Linux and without licences. Yields whole regions as they arrive, also when it
 * fails in the end. @throws only the errors of `errors.ts`
 */
export type PriceReader = (question: PriceQuestion) => AsyncIterable<QuotedPrices>

/** Sources of a cloud's prices. */
export interface PriceReaders {
  /** Prices that change a few times a year. */
  list: PriceReader
  /** Prices of spot machines, if they change from hour to hour. Absent if they are in the list. */
  market?: PriceReader
}
