import Type, { type Static } from "typebox"
import { Int, StringEnum } from "./schema.ts"

/** Levels that may have caps, nearest to a job first. */
export const CAP_LEVELS = ["project", "organization", "installation"] as const
export type CapLevel = (typeof CAP_LEVELS)[number]

/** Actions once a month's cap is spent. */
export const ON_EXCEEDED = ["wait", "cancel"] as const

/** Amounts that a VM takes from a month's cap while it runs. */
export const RESERVATIONS = ["expected", "strict"] as const

function Usd(description: string) {
  return Type.Optional(Type.Number({ minimum: 0, description }))
}

/** Declares the caps of a level. The words are the same at all levels. */
export function SpendCaps(of: string) {
  return Type.Object(
    {
      maxVms: Type.Optional(Int({ description: "Maximum number of VMs at a time." })),
      maxGpus: Type.Optional(Int({ description: "Maximum number of GPUs of all VMs at a time." })),
      maxIdleVms: Type.Optional(
        Int({ description: "Maximum number of VMs that wait for another job at a time. 0: none ever waits." }),
      ),
      maxHourlyUsd: Usd("Maximum price of all VMs with disk and address, USD per hour."),
      maxMonthlyUsd: Usd("Maximum spending in a calendar month (UTC), USD."),
      onExceeded: Type.Optional(
        StringEnum(ON_EXCEEDED, {
          description:
            "Action when maxMonthlyUsd is spent. Jobs without a VM wait for the next month. `wait`: running jobs go on. `cancel`: Berth also cancels running jobs. Default: wait.",
        }),
      ),
      reserve: Type.Optional(
        StringEnum(RESERVATIONS, {
          description:
            "Amount that a VM takes from maxMonthlyUsd while it runs. `expected`: its price for the job's timeout, or for an hour without one. `strict`: the most that it can cost until its deadline, so the cap is never exceeded. Default: expected.",
        }),
      ),
    },
    { description: `Maximum spending of the ${of}. A job that would exceed it waits. Default: no caps.` },
  )
}

export const SpendCapsSchema = SpendCaps("project")
export type SpendCaps = Static<typeof SpendCapsSchema>

/** Parts of a month's cap, in percent, at which Berth emits an event. */
export const THRESHOLDS = [50, 80, 100] as const

/** Declares the spending that the cap controller has written. */
export function SpendingStatus() {
  return Type.Object(
    {
      month: Type.String({ maxLength: 7, description: "Calendar month (UTC), such as 2026-11." }),
      spentUsd: Type.Number({ minimum: 0, description: "Cost of the month's VMs so far, USD." }),
      reservedUsd: Type.Number({ minimum: 0, description: "Further cost that live VMs may have, USD." }),
      maxMonthlyUsd: Type.Number({ minimum: 0, description: "Cap of the month, USD." }),
      reachedPercent: Int({
        description: "Highest threshold that the month's spending has reached: 0, 50, 80 or 100.",
      }),
    },
    { description: "Spending under maxMonthlyUsd. It is at most some minutes old." },
  )
}
export type SpendingStatus = Static<ReturnType<typeof SpendingStatus>>

/** Condition of a Project and an Organization with maxMonthlyUsd: True until the cap is spent. */
export const WITHIN_CAPS = "WithinCaps"
