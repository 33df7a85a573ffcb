import { Gauge, type Registry } from "prom-client"

/** How old prices are, seconds: of a cloud, in its price list or of its spot market. */
export interface MeasuredPrices {
  ages: () => readonly { cloud: string; prices: string; seconds: number }[]
  /** Only the leader tells, so that there is one answer. */
  isLeading: () => boolean
}

/** Tells how old the prices are that routing goes by. */
export function measurePrices(registry: Registry, { ages, isLeading }: MeasuredPrices): void {
  new Gauge({
    name: "berth_catalogue_prices_age_seconds",
    help: "How long ago a cloud last told its prices, or how old the shipped price list is.",
    labelNames: ["cloud", "prices"],
    registers: [registry],
    collect() {
      this.reset()
      if (!isLeading()) return
      for (const { cloud, prices, seconds } of ages()) this.set({ cloud, prices }, seconds)
    },
  })
}
