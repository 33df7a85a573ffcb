import { Gauge, type Registry } from "prom-client"

/** Source of the age of prices in seconds: of a cloud's price list or its spot market. */
export interface MeasuredPrices {
  ages: () => readonly { cloud: string; prices: string; seconds: number }[]
  /** Returns true in the leader. Only the leader reports, so that there is one value. */
  isLeading: () => boolean
}

/** Adds the metric of the age of the prices that routing uses. */
export function measurePrices(registry: Registry, { ages, isLeading }: MeasuredPrices): void {
  new Gauge({
    name: "berth_catalogue_prices_age_seconds",
    help: "Time since a connected cloud's prices were last read, or the age of its prices in the shipped list.",
    labelNames: ["cloud", "prices"],
    registers: [registry],
    collect() {
      this.reset()
      if (!isLeading()) return
      for (const { cloud, prices, seconds } of ages()) this.set({ cloud, prices }, seconds)
    },
  })
}
