import { setImmediate } from "node:timers/promises"
import type { FieldError } from "../../core/apis/validate.ts"
import { Catalogue } from "../router/catalogue.ts"
import type { OfferTable } from "../router/table.ts"
import { applyInSteps } from "./apply.ts"
import { refreshInSteps } from "./merge-prices.ts"
import type { Offers } from "./offers.ts"
import { type Overlay, parseOverlay } from "./overlay.ts"
import { idlePartRules, partPrices } from "./parts.ts"
import type { RegionPrices } from "./stored-prices.ts"

/** ConfigMap in the system namespace with own offers, discounts, exclusions, and prices of disks and addresses. */
export const CATALOGUE_CONFIG_MAP = "berth-catalogue"

/**
 * The present catalogue: a price list, refreshed prices, and the overlay of the installation on both. A new one is
 * built in the background. It replaces the old one when it is complete, so routing never waits.
 */
export class LiveCatalogue implements Offers {
  readonly #list: OfferTable
  #current: Catalogue
  #refreshed: OfferTable
  #overlay: Overlay = parseOverlay().overlay
  /** The last change. Each one builds on the result of the one before. */
  #last: Promise<unknown> = Promise.resolve()

  constructor(list: OfferTable) {
    this.#list = list
    this.#refreshed = list
    this.#current = new Catalogue(list, partPrices())
  }

  current(): Catalogue {
    return this.#current
  }

  /** The price list without refreshed prices and rules. */
  get list(): OfferTable {
    return this.#list
  }

  /**
   * Takes a ConfigMap's data; undefined if there is none. Resolves when routing uses it, with the errors of the data.
   * The rules without errors are applied.
   */
  change(data: Readonly<Record<string, string>> | undefined): Promise<FieldError[]> {
    return this.#inTurn(async () => {
      const { overlay, errors } = parseOverlay(data)
      this.#overlay = overlay
      return [...errors, ...(await this.#rebuild())]
    })
  }

  /**
   * Takes prices that are newer than the price list. Resolves when routing uses them, with the errors of rejected
   * prices.
   */
  refresh(prices: readonly RegionPrices[]): Promise<FieldError[]> {
    return this.#inTurn(async () => {
      const { table, errors } = await runInSteps(refreshInSteps(this.#list, prices))
      this.#refreshed = table
      await this.#rebuild()
      return errors
    })
  }

  /** Rebuilds the catalogue. Returns the errors of rules without effect. */
  async #rebuild(): Promise<FieldError[]> {
    const { table, errors } = await runInSteps(applyInSteps(this.#refreshed, this.#overlay))
    this.#current = new Catalogue(table, partPrices(this.#overlay))
    const idle = idlePartRules(this.#overlay, table.regions).map(({ key, index }) => ({
      pointer: `/${key}/${index}`,
      detail: `${key}[${index}] matches no region: check its names`,
    }))
    return [...errors, ...idle]
  }

  #inTurn<T>(change: () => Promise<T>): Promise<T> {
    const made = this.#last.then(change)
    this.#last = made.catch(() => undefined)
    return made
  }
}

/** Runs step by step, so that other work can run in between. */
async function runInSteps<T>(steps: Generator<undefined, T>): Promise<T> {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
    await setImmediate()
  }
}
