import { setImmediate } from "node:timers/promises"
import type { Fault } from "../apis/validate.ts"
import { Catalogue } from "../router/catalogue.ts"
import type { OfferTable } from "../router/table.ts"
import { applyInSteps } from "./apply.ts"
import type { Offers } from "./offers.ts"
import { type Overlay, parseOverlay } from "./overlay.ts"
import { refreshInSteps } from "./refresh.ts"
import type { RegionPrices } from "./refreshed.ts"

/** The ConfigMap in the system namespace that own offers, discounts and exclusions are read from. */
export const CATALOGUE_CONFIG_MAP = "berth-catalogue"

/**
 * The present catalogue: a price list, the prices that clouds have told since, and over both what whoever runs Berth has
 * changed. A new one is built beside the old one, between other work, and takes its place when it is whole: routing never
 * waits.
 */
export class LiveCatalogue implements Offers {
  readonly #list: OfferTable
  #current: Catalogue
  #refreshed: OfferTable
  #overlay: Overlay = parseOverlay().overlay
  /** The last of all changes, each of which is made upon the one before. */
  #last: Promise<unknown> = Promise.resolve()

  constructor(list: OfferTable) {
    this.#list = list
    this.#refreshed = list
    this.#current = new Catalogue(list)
  }

  current(): Catalogue {
    return this.#current
  }

  /** The price list that all began with. */
  get list(): OfferTable {
    return this.#list
  }

  /**
   * Takes a ConfigMap's data; undefined when there is none (any more). Resolves when routing goes by it, with what is
   * wrong with the data: the rules without faults hold.
   */
  change(data: Readonly<Record<string, string>> | undefined): Promise<Fault[]> {
    return this.#inTurn(async () => {
      const { overlay, faults } = parseOverlay(data)
      this.#overlay = overlay
      return [...faults, ...(await this.#rebuild())]
    })
  }

  /**
   * Takes the prices that clouds have told since the price list was made. Resolves when routing goes by them, with what of
   * them was refused.
   */
  refresh(prices: readonly RegionPrices[]): Promise<Fault[]> {
    return this.#inTurn(async () => {
      const { table, faults } = await unhurried(refreshInSteps(this.#list, prices))
      this.#refreshed = table
      await this.#rebuild()
      return faults
    })
  }

  /** Returns which of the rules have no effect. */
  async #rebuild(): Promise<Fault[]> {
    const { table, faults } = await unhurried(applyInSteps(this.#refreshed, this.#overlay))
    this.#current = new Catalogue(table)
    return faults
  }

  #inTurn<T>(change: () => Promise<T>): Promise<T> {
    const made = this.#last.then(change)
    this.#last = made.catch(() => undefined)
    return made
  }
}

/** Runs step by step, with room for other work between them. */
async function unhurried<T>(steps: Generator<undefined, T>): Promise<T> {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
    await setImmediate()
  }
}
