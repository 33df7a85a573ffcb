import { setImmediate } from "node:timers/promises"
import type { Fault } from "../apis/validate.ts"
import { buildCatalogue, buildInSteps, type Catalogue } from "../router/catalogue.ts"
import type { OfferTable } from "../router/table.ts"
import { applyInSteps } from "./apply.ts"
import type { Offers } from "./offers.ts"
import { parseOverlay } from "./overlay.ts"

/** The ConfigMap in the system namespace that own offers, discounts and exclusions are read from. */
export const CATALOGUE_CONFIG_MAP = "berth-catalogue"

/**
 * The present catalogue: a price list, with what whoever runs Berth has changed about it. A new one is built beside
 * the old one, between other work, and takes its place when it is whole: routing never waits.
 */
export class LiveCatalogue implements Offers {
  readonly #list: OfferTable
  #current: Catalogue
  #version = 0

  constructor(list: OfferTable) {
    this.#list = list
    this.#current = buildCatalogue(list)
  }

  current(): Catalogue {
    return this.#current
  }

  /**
   * Takes a ConfigMap's data; undefined when there is none (any more). Resolves when routing goes by it, or when a
   * later call has overtaken it, with what is wrong with the data: the rules without faults hold.
   */
  async change(data: Readonly<Record<string, string>> | undefined): Promise<Fault[]> {
    const version = ++this.#version
    const { overlay, faults } = parseOverlay(data)
    const applied = await this.#run(version, applyInSteps(this.#list, overlay))
    if (applied === undefined) return faults
    const catalogue = await this.#run(version, buildInSteps(applied.table))
    if (catalogue !== undefined) this.#current = catalogue
    return [...faults, ...applied.faults]
  }

  /** Runs step by step; undefined when a later change makes it needless. */
  async #run<T>(version: number, steps: Generator<undefined, T>): Promise<T | undefined> {
    for (;;) {
      const { done, value } = steps.next()
      if (done) return value
      await setImmediate()
      if (version !== this.#version) return undefined
    }
  }
}
