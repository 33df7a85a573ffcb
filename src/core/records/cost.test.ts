import { expect, test } from "vitest"
import { time } from "../../../test/harness/builders.ts"
import type { JobStatus } from "../apis/job.ts"
import type { Offer } from "../apis/offer.ts"
import { costFields } from "./cost.ts"

const hourly = { machineUsd: 0.36, diskUsd: 0.036, addressUsd: 0.0036 }
const spent = { machineUsd: 1, diskUsd: 0.1, addressUsd: 0.01 }
const fields = (cost: NonNullable<JobStatus["cost"]>, heartbeat?: string) => costFields({ cost }, heartbeat)

test("a job without a VM has no cost", () => {
  const none = { estimated_cost: null, actual_cost: null, accrued_cost: null, cost_breakdown: null }
  expect(costFields(undefined, undefined)).toEqual(none)
  expect(costFields({}, undefined)).toEqual(none)
})

test("a running VM counts until its last heartbeat, with the VMs before it", () => {
  const cost = { estimatedUsd: 0.4, hourly, minimumBilledSeconds: 60, since: time(0), spent }
  expect(fields(cost, time(1000))).toMatchObject({ estimated_cost: 0.4, actual_cost: null, accrued_cost: 1.221 })
  expect(fields(cost, time(1000)).cost_breakdown).toEqual({
    machine_usd_per_hour: 0.36,
    disk_usd_per_hour: 0.036,
    address_usd_per_hour: 0.0036,
    total_usd_per_hour: 0.3996,
    machine_usd: 1.1,
    disk_usd: 0.11,
    address_usd: 0.011,
    total_usd: 1.221,
    spot_usd: 0,
    on_demand_usd: 1.221,
    idle_usd: 0,
  })
})

test("a job that fell back to on-demand shows the cost of both purchase options", () => {
  const offer = { provisioning: "onDemand" } as Offer
  const cost = { hourly, minimumBilledSeconds: 60, since: time(0), spent, spotUsd: 1.11 }
  const status: JobStatus = { cost, placement: { offer, reason: "" }, launches: { count: 4, preempted: 3 } }
  expect(costFields(status, time(1000)).cost_breakdown).toMatchObject({ spot_usd: 1.11, on_demand_usd: 0.111 })
  const ended: JobStatus = { ...status, cost: { hourly, spent, spotUsd: 1, actualUsd: 1.11 } }
  expect(costFields(ended, undefined).cost_breakdown).toMatchObject({ spot_usd: 1, on_demand_usd: 0.11 })
})

test("a running spot VM counts as spot, with what its job spent on such VMs", () => {
  const offer = { provisioning: "spot" } as Offer
  const cost = { hourly, minimumBilledSeconds: 60, since: time(0), spent, spotUsd: 1.11 }
  const status: JobStatus = { cost, placement: { offer, reason: "" } }
  expect(costFields(status, time(1000)).cost_breakdown).toMatchObject({ spot_usd: 1.221, on_demand_usd: 0 })
})

test("a VM that boots counts the shortest billed time", () => {
  expect(fields({ hourly, minimumBilledSeconds: 60, since: time(0) }).accrued_cost).toBe(0.00666)
})

test("a job that waits for its next VM costs what the former ones did", () => {
  expect(fields({ hourly, spent }, time(5000)).accrued_cost).toBe(1.11)
})

test("an ended job's accrued cost is its actual cost", () => {
  expect(fields({ hourly, spent, actualUsd: 1.11 })).toMatchObject({
    actual_cost: 1.11,
    accrued_cost: 1.11,
    cost_breakdown: { total_usd: 1.11 },
  })
})

test("the time in which a job's VM waited for another one is a part of its cost", () => {
  const idle = fields({ hourly, spent, actualUsd: 1.11, idleUsd: 0.4 })
  expect(idle).toMatchObject({ actual_cost: 1.11, cost_breakdown: { total_usd: 1.11, idle_usd: 0.4 } })
})
