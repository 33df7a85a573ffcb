import { timestamp } from "./clock.ts"
import { LIMITS } from "./limits.ts"
import type { Condition } from "./schema.ts"

/** What a controller says of an object; the times and generations are added by `setCondition`. */
export interface ConditionUpdate {
  type: string
  status: Condition["status"]
  reason: string
  /** For people; cut to the longest that the API server takes. */
  message: string
}

/** The condition of a type, if the object has one. */
export function findCondition(conditions: readonly Condition[] | undefined, type: string): Condition | undefined {
  return conditions?.find((condition) => condition.type === type)
}

/**
 * The conditions with one of them set. Order is kept, a new one comes last. `lastTransitionTime` moves only
 * when the status changes; `observedGeneration` always, because `kubectl wait` ignores conditions of older ones.
 */
export function setCondition(
  conditions: readonly Condition[] | undefined,
  update: ConditionUpdate,
  generation: number,
  now: Date,
): Condition[] {
  const existing = conditions ?? []
  const before = findCondition(existing, update.type)
  const after: Condition = {
    type: update.type,
    status: update.status,
    observedGeneration: generation,
    lastTransitionTime: before?.status === update.status ? before.lastTransitionTime : timestamp(now),
    reason: update.reason,
    message: cutTo(update.message, LIMITS.message),
  }
  if (before === undefined) return [...existing, after]
  return existing.map((condition) => (condition.type === update.type ? after : condition))
}

/** A text of at most `length` characters (code points, as the API server counts), with … where something was cut. */
export function cutTo(text: string, length: number): string {
  if (text.length <= length) return text
  const characters = [...text]
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join("")}…`
}
