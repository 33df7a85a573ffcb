import { isTrouble, NEEDS_USER } from "../core/apis/trouble.ts"

/** Condition of an object, as a record of the REST API has it. */
export interface ConditionRecord {
  type: string
  status: "True" | "False" | "Unknown"
  reason: string
  /** Absent if it may name parts of an account that the caller must not see. */
  message?: string
}

/**
 * Returns the sentences of the conditions that are not as they should be, each once and in the API's own words.
 * @param said sentences that the reader has already
 */
export function troublesOf(
  conditions: readonly ConditionRecord[] | undefined,
  said: readonly (string | null | undefined)[] = [],
): string[] {
  const troubles = (conditions ?? []).filter(isTrouble)
  const sentences = troubles.map(({ message, reason }) => message ?? reason)
  return [...new Set(sentences)].filter((sentence) => sentence !== "" && !said.includes(sentence))
}

/** Returns true if a job or an array waits until its user changes something, such as one of a circle. */
export function needsUser({ status, reason }: { status: string; reason: string | null }): boolean {
  return status === "queued" && reason !== null && NEEDS_USER.includes(reason)
}
