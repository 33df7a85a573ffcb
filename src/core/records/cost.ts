import Type, { type Static } from "typebox"
import { secondsBetween } from "../apis/clock.ts"
import type { JobStatus } from "../apis/job.ts"
import { roundUsd } from "../apis/money.ts"
import { addParts, type CostParts, costOf, type HourlyPrices, NO_COST, sumOfParts } from "../apis/price.ts"

const usd = (description: string) => Type.Number({ description: `${description}, USD.` })
const usdPerHour = (description: string) => Type.Number({ description: `${description}, USD per hour.` })

const breakdownFields = {
  machine_usd_per_hour: usdPerHour("Price of the machine"),
  disk_usd_per_hour: usdPerHour("Price of the disk"),
  address_usd_per_hour: usdPerHour("Price of the public IPv4 address"),
  total_usd_per_hour: usdPerHour("Price of the VM"),
  machine_usd: usd("Cost of the machines"),
  disk_usd: usd("Cost of the disks"),
  address_usd: usd("Cost of the public IPv4 addresses"),
  total_usd: usd("Cost in total"),
}

const BreakdownSchema = Type.Object(breakdownFields)
type Breakdown = Static<typeof BreakdownSchema>

const JobBreakdownSchema = Type.Object({
  ...breakdownFields,
  spot_usd: usd("Cost of the spot VMs"),
  on_demand_usd: usd("Cost of the on-demand VMs"),
  idle_usd: usd("Part of the cost in which ended VMs waited for another job"),
})

/** Cost of a job by part, by purchase option, and of its wait for other jobs. */
export const CostBreakdownSchema = Type.Unsafe<Static<typeof JobBreakdownSchema> | null>({
  type: ["object", "null"],
  description: "Prices of the last VM, and cost so far of all VMs, by part and by purchase option. Null: unknown.",
  required: JobBreakdownSchema.required,
  properties: JobBreakdownSchema.properties,
})

/** Expected cost of a placement by part. */
export const PlannedCostSchema = Type.Object(
  { ...breakdownFields, traffic_usd: usd("Rough cost of reading the job's buckets once") },
  { description: "Prices of the VM, and expected cost, by part." },
)

/** Returns the prices and costs of a VM's parts as a record has them. */
export function toBreakdown(hourly: HourlyPrices, cost: CostParts): Breakdown {
  return {
    machine_usd_per_hour: hourly.machineUsd,
    disk_usd_per_hour: hourly.diskUsd,
    address_usd_per_hour: hourly.addressUsd,
    total_usd_per_hour: sumOfParts(hourly),
    machine_usd: cost.machineUsd,
    disk_usd: cost.diskUsd,
    address_usd: cost.addressUsd,
    total_usd: sumOfParts(cost),
  }
}

/**
 * Returns the costs in a job's record. A running VM counts until its last heartbeat, so the record stays the same until
 * the next one, like its entity tag. Pure.
 */
export function costFields(status: JobStatus | undefined, lastHeartbeatTime: string | undefined) {
  const { estimatedUsd, actualUsd, hourly } = status?.cost ?? {}
  const accrued = accruedOf(status?.cost, lastHeartbeatTime)
  return {
    estimated_cost: estimatedUsd ?? null,
    actual_cost: actualUsd ?? null,
    accrued_cost: actualUsd ?? (hourly === undefined ? null : sumOfParts(accrued)),
    cost_breakdown:
      hourly === undefined
        ? null
        : {
            ...toBreakdown(hourly, accrued),
            ...byProvisioning(status, accrued),
            idle_usd: status?.cost?.idleUsd ?? 0,
          },
  }
}

/** Returns a job's cost by purchase option. */
function byProvisioning(status: JobStatus | undefined, accrued: CostParts) {
  const { spent = NO_COST, spotUsd } = status?.cost ?? {}
  const totalUsd = sumOfParts(accrued)
  const runningUsd = roundUsd(totalUsd - sumOfParts(spent))
  const isSpot = status?.placement?.offer.provisioning === "spot"
  const spot = roundUsd((spotUsd ?? 0) + (isSpot ? runningUsd : 0))
  return { spot_usd: spot, on_demand_usd: roundUsd(totalUsd - spot) }
}

function accruedOf(cost: JobStatus["cost"], lastHeartbeatTime: string | undefined): CostParts {
  const { hourly, since, spent = NO_COST, minimumBilledSeconds = 0 } = cost ?? {}
  if (hourly === undefined || since === undefined) return spent
  const seconds = lastHeartbeatTime === undefined ? 0 : secondsBetween(since, lastHeartbeatTime)
  return addParts([spent, costOf(hourly, { seconds, minimumBilledSeconds })])
}
