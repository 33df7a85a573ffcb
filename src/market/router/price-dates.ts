import type { OfferTable } from "./table.ts"

/** Ages of a cloud's prices with one provisioning. */
export interface PriceDates {
  cloud: string
  provisioning: "onDemand" | "spot"
  /** Day (YYYY-MM-DD) from which at least nine tenths of the prices are, or later: their age, for people and alerts. */
  date: string
  /** Day of the oldest price. A few may stay old forever: clouds no longer answer for each machine of the list. */
  oldest: string
}

/** Part of the prices that may be older than `date`. */
const OLDER_PART = 0.1

const KNOWN = new WeakMap<OfferTable, readonly PriceDates[]>()

/**
 * Returns the ages of the prices by cloud and provisioning. Own offers have no date. Restricted regions need accounts of
 * their own, and no refresh reads their prices: they are left out. Pure.
 */
export function priceDatesOf(table: OfferTable): readonly PriceDates[] {
  const known = KNOWN.get(table)
  if (known !== undefined) return known
  const counts = new Map<string, Map<string, number>>()
  const { machine, place, spot, priceDate, priceDates } = table
  const clouds = table.machines.map(({ cloud }) => cloud)
  const isRestricted = table.places.map(({ region }) => table.regions[region]?.restricted === true)
  for (let row = 0; row < machine.length; row++) {
    const date = priceDates[priceDate[row] as number] ?? ""
    if (date === "" || isRestricted[place[row] as number]) continue
    const key = `${clouds[machine[row] as number]} ${spot[row] === 1 ? "spot" : "onDemand"}`
    const ofKey = counts.get(key) ?? new Map<string, number>()
    ofKey.set(date, (ofKey.get(date) ?? 0) + 1)
    counts.set(key, ofKey)
  }
  const dates = [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, byDate]) => datesOf(key, byDate))
  KNOWN.set(table, dates)
  return dates
}

function datesOf(key: string, byDate: ReadonlyMap<string, number>): PriceDates {
  const [cloud = "", provisioning] = key.split(" ") as [string, PriceDates["provisioning"]]
  const sorted = [...byDate].sort(([a], [b]) => (a < b ? -1 : 1))
  const total = sorted.reduce((sum, [, count]) => sum + count, 0)
  let older = 0
  const found = sorted.find(([, count]) => {
    older += count
    return older > total * OLDER_PART
  })
  const [oldest = ""] = sorted[0] ?? []
  return { cloud, provisioning, date: found?.[0] ?? oldest, oldest }
}
