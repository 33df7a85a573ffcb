import type { Json } from "../../src/clouds/nebius/api.ts"
import { type CreateRequest, instanceTypeOf, sizeGibOf } from "./nebius-creation.ts"
import { badRequest } from "./nebius-description.ts"

/** Prices, USD per hour. */
export interface HourlyPrices {
  /** By instance type, such as `cpu-d3_4vcpu-16gb`. */
  machines: Record<string, { onDemand: number; preemptible?: number }>
  /** One GiB, by type of disk, such as `NETWORK_SSD`. */
  disksPerGib: Record<string, number>
}

interface Sku {
  skuId: string
  quantity: number
  hourlyUsd: number
}

/** Hours of the units of time in answers. */
const UNITS = { hour: 1, month: 730 } as const

/** Returns the answer of `EstimateBatch`: each resource, and their sum, by hour and by month. */
export function estimate(asked: Json, requests: readonly CreateRequest[], prices: HourlyPrices): Json {
  const { currency = "usd" } = asked
  if (currency !== "usd") throw badRequest([{ field: "currency", message: `no prices in ${String(currency)}` }])
  const units = unitsOf(asked["filterAggregationUnit"] as Filter | undefined)
  const each = requests.map((request) => ({ metadata: request.metadata as Json, skus: skusOf(request, prices) }))
  const all = each.flatMap(({ skus }) => skus)
  return {
    resourceCosts: each.flatMap(({ metadata, skus }) =>
      units.map((unit) => ({ metadata, aggregationUnit: shownUnit(unit), general: { total: breakdown(skus, unit) } })),
    ),
    totalCosts: units.map((unit) => ({
      aggregationUnit: shownUnit(unit),
      general: { total: breakdown(all, unit) },
    })),
    currency,
  }
}

interface Filter {
  filterAggregationUnitValues?: string[]
}

function unitsOf({ filterAggregationUnitValues: wanted = [] }: Filter = {}): (keyof typeof UNITS)[] {
  const all = Object.keys(UNITS) as (keyof typeof UNITS)[]
  return wanted.length === 0
    ? all
    : all.filter((unit) => wanted.includes(`FILTER_AGGREGATION_UNIT_${unit.toUpperCase()}`))
}

const shownUnit = (unit: string): Json => ({ unit, unitType: "UNIT_TYPE_TIME_BASED" })

/** Returns the parts of a VM's price. One without a price makes the whole batch fail, which no document says. */
function skusOf({ spec }: CreateRequest, { machines, disksPerGib }: HourlyPrices): Sku[] {
  if (spec === undefined) return []
  const type = instanceTypeOf(spec)
  const machine = spec.preemptible === undefined ? machines[type]?.onDemand : machines[type]?.preemptible
  const skus: Sku[] = [{ skuId: type, quantity: 1, hourlyUsd: machine ?? Number.NaN }]
  const disk = spec.bootDisk.managedDisk?.spec
  if (disk !== undefined) {
    const quantity = sizeGibOf(disk)
    skus.push({ skuId: disk.type, quantity, hourlyUsd: quantity * (disksPerGib[disk.type] ?? Number.NaN) })
  }
  const unknown = skus.filter(({ hourlyUsd }) => Number.isNaN(hourlyUsd))
  if (unknown.length === 0) return skus
  throw badRequest(unknown.map(({ skuId }) => ({ field: "resource_specs", message: `${skuId} has no price` })))
}

function breakdown(skus: readonly Sku[], unit: keyof typeof UNITS): Json {
  const cost = (hourlyUsd: number): Json => {
    const exact = (hourlyUsd * UNITS[unit]).toFixed(9)
    return { cost: exact, costRounded: roundedUp(Number(exact)) }
  }
  const skuCosts = skus.map(({ skuId, quantity, hourlyUsd }) => {
    const amount = { quantity: String(quantity * UNITS[unit]), quantityRounded: roundedUp(quantity * UNITS[unit]) }
    return { skuId, ...amount, ...cost(hourlyUsd) }
  })
  return { skuCosts, ...cost(skus.reduce((sum, { hourlyUsd }) => sum + hourlyUsd, 0)) }
}

/** "Rounded up to 2 decimal places" (calculator.proto). */
const roundedUp = (value: number): string => (Math.ceil(Number((value * 100).toFixed(6))) / 100).toFixed(2)
