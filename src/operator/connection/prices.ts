import { type ConditionUpdate, findCondition } from "../../core/apis/conditions.ts"
import { ConnectionCondition, ConnectionReason, type StoredConnection } from "../../core/apis/connection.ts"

/** State of prices of a cloud that are read together. */
export interface PriceState {
  /** Prices that these are, such as `on-demand`. */
  what: string
  /** Day (YYYY-MM-DD) of the prices that Berth uses. */
  date: string
  /** True if these are the prices that this version of Berth ships: the cloud has never answered. */
  isShipped: boolean
  /** True if the cloud has answered lately. */
  isCurrent: boolean
  /** Last failure to read them. `message`: absent if it is about a connection of another project. */
  failure?: { isForbidden: boolean; message?: string }
}

/** Knowledge about the clouds' prices. */
export interface PriceStates {
  /** Returns the states for a connection; empty if Berth reads no prices of its cloud. */
  statesFor: (connection: StoredConnection) => readonly PriceState[]
  /** Calls back after each change of a state of a cloud, or of all. Returns a function that ends it. */
  onChange: (listener: (cloud?: string) => void) => () => void
}

/**
 * Returns the condition `Prices` of a connection: whether jobs are placed by current prices of its cloud. Other connections
 * count, because prices are the same for every account. Empty: it stays as it is. Pure.
 */
export function pricesCondition(
  { spec, status = {} }: StoredConnection,
  states: readonly PriceState[] = [],
): ConditionUpdate[] {
  if (states.length === 0) return []
  const stale = states.filter(({ isCurrent }) => !isCurrent)
  const update = (is: ConditionUpdate["status"], reason: ConnectionReason, message: string) => [
    { type: ConnectionCondition.Prices, status: is, reason, message },
  ]
  if (stale.length === 0) {
    return update("True", ConnectionReason.Read, `Berth reads the prices of ${spec.type}: ${datesOf(states)}`)
  }
  const { prices } = status.capabilities ?? {}
  const denial = prices?.status === "False" ? prices.message : undefined
  const failures = stale.flatMap(({ failure }) => failure ?? [])
  const instead = `Berth uses ${stale.map(usedOf).join(" and ")}`
  if (denial !== undefined || failures.some(({ isForbidden }) => isForbidden)) {
    const words = denial ?? failures.find(({ isForbidden }) => isForbidden)?.message
    const why = words ?? "another connection of this cloud has no right to read them"
    return update("False", ConnectionReason.Forbidden, `${why}; ${instead}`)
  }
  if (failures.length > 0) {
    const why = failures.find(({ message }) => message !== undefined)?.message ?? "the cloud did not answer"
    return update(
      "False",
      ConnectionReason.Unreachable,
      `${spec.type} can't be asked for its prices: ${why}; ${instead}`,
    )
  }
  // After a start nothing was tried yet: what was known before stays.
  if (findCondition(status.conditions, ConnectionCondition.Prices) !== undefined) return []
  return update(
    "Unknown",
    ConnectionReason.NotRead,
    `Berth has not read the prices of ${spec.type} yet, which takes a verified connection; ${instead}`,
  )
}

function datesOf(states: readonly PriceState[]): string {
  return states.map(({ what, date }) => `${what} of ${date}`).join(", ")
}

function usedOf({ what, date, isShipped }: PriceState): string {
  return isShipped ? `the shipped ${what} prices of ${date}` : `the ${what} prices of ${date}`
}
