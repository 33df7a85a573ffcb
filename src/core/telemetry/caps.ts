import { Gauge, type Registry } from "prom-client"
import { CAP_LEVELS, type CapLevel } from "../apis/caps.ts"

/** Spending in the present month. */
export interface MonthAmounts {
  /** Cost so far of all projects, USD. */
  spentUsd: number
  /** Further expected cost of live VMs, USD. */
  reservedUsd: number
  /** Largest part of a month's cap that any object of a level has spent. A level without caps is absent. */
  spentRatios: ReadonlyMap<CapLevel, number>
}

export interface MeasuredCaps {
  /** Returns the amounts of the latest round; undefined while another process leads. */
  amounts: () => MonthAmounts | undefined
  /** Cap of the installation, USD a month. */
  maxMonthlyUsd: number | undefined
}

/** Adds the metrics of a month's spending. No label has names that users choose. */
export function measureCaps(registry: Registry, { amounts, maxMonthlyUsd }: MeasuredCaps): void {
  new Gauge({
    name: "berth_month_spend_usd",
    help: "Cost of all projects in this calendar month (UTC), US dollars. spent: so far. reserved: further expected cost of live VMs.",
    labelNames: ["part"],
    registers: [registry],
    collect() {
      this.reset()
      const month = amounts()
      if (month === undefined) return
      this.set({ part: "spent" }, month.spentUsd)
      this.set({ part: "reserved" }, month.reservedUsd)
    },
  })
  new Gauge({
    name: "berth_month_cap_usd",
    help: "maxMonthlyUsd of the installation, US dollars. Absent without one.",
    registers: [registry],
    collect() {
      this.reset()
      if (maxMonthlyUsd !== undefined && amounts() !== undefined) this.set(maxMonthlyUsd)
    },
  })
  new Gauge({
    name: "berth_cap_spent_ratio",
    help: "Largest part of maxMonthlyUsd that any project, any organization, or the installation has spent.",
    labelNames: ["level"],
    registers: [registry],
    collect() {
      this.reset()
      for (const level of CAP_LEVELS) {
        const ratio = amounts()?.spentRatios.get(level)
        if (ratio !== undefined) this.set({ level }, ratio)
      }
    },
  })
}
