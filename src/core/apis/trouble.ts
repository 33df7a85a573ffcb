/** Types of conditions whose True is the trouble. All others are good while they are True. */
const GOOD_IF_FALSE: readonly string[] = [
  "CoolingDown",
  "Expired",
  "Failed",
  "OnDemandFallback",
  "Reconciling",
  "Stalled",
  "Unisolated",
]

/** Reasons for which a queued job or array waits until its user changes something. It is Stalled then. */
export const NEEDS_USER: readonly string[] = ["DependencyCycle", "Held"]

/** Returns true for a condition that is not as it should be. */
export function isTrouble({ type, status }: { type: string; status: "True" | "False" | "Unknown" }): boolean {
  return status !== (GOOD_IF_FALSE.includes(type) ? "False" : "True")
}
