import { timestamp } from "./clock.ts"
import { LIMITS } from "./field-limits.ts"
import type { Condition } from "./schema.ts"

/** Reason and message of a condition. */
export interface ConditionCause {
  reason: string
  /** For people. `setCondition` cuts it to the longest that the API server takes. */
  message: string
}

/** Condition as a controller sets it. `setCondition` adds its times and its generation. */
export interface ConditionUpdate extends ConditionCause {
  type: string
  status: Condition["status"]
  /** True for a condition that an object has only once it was True. `setConditions` leaves it out before that. */
  isOnceTrue?: boolean
}

/** Returns a condition that is either True or False. */
export function condition(type: string, isTrue: boolean, { reason, message }: ConditionCause): ConditionUpdate {
  return { type, status: isTrue ? "True" : "False", reason, message }
}

/** Returns a condition that the object only has once it was true. */
export function conditionOnceTrue(type: string, isTrue: boolean, cause: ConditionCause): ConditionUpdate {
  return { ...condition(type, isTrue, cause), isOnceTrue: true }
}

/** Returns the condition of a type, if the object has one. */
export function findCondition(conditions: readonly Condition[] | undefined, type: string): Condition | undefined {
  return conditions?.find((condition) => condition.type === type)
}

/** Returns the condition of a type after a change of its reason; undefined if the reason is the same, or there is none. */
export function changedCondition(
  before: readonly Condition[] | undefined,
  after: readonly Condition[] | undefined,
  type: string,
): Condition | undefined {
  const current = findCondition(after, type)
  return current?.reason === findCondition(before, type)?.reason ? undefined : current
}

/** Returns the conditions with some of them set, as `setCondition` sets each. One that was never True stays out. */
export function setConditions(
  conditions: readonly Condition[] | undefined,
  updates: readonly ConditionUpdate[],
  generation: number,
  now: Date,
): Condition[] {
  const isSet = ({ type, status, isOnceTrue }: ConditionUpdate) =>
    isOnceTrue !== true || status === "True" || findCondition(conditions, type) !== undefined
  return updates
    .filter(isSet)
    .reduce<Condition[]>((all, update) => setCondition(all, update, generation, now), [...(conditions ?? [])])
}

/**
 * Returns the conditions with one of them set. The order stays, and a new one comes last. `lastTransitionTime` changes
 * only with the status. `observedGeneration` always changes: `kubectl wait` ignores conditions of older generations.
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

/** Cuts a text to `length` characters, the last of them …. Counts code points, like the API server. */
export function cutTo(text: string, length: number): string {
  if (text.length <= length) return text
  const characters = [...text]
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join("")}…`
}
