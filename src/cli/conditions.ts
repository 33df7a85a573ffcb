import { type ConditionRecord, troublesOf } from "../client/conditions.ts"
import { shown } from "./terminal.ts"

/** Returns a line for each condition that is not as it should be. `said`: sentences that the command has printed. */
export function troubleLines(
  conditions: readonly ConditionRecord[] | undefined,
  said: readonly (string | null)[] = [],
): string[] {
  return troublesOf(conditions, said).map((sentence) => `  ! ${shown(sentence)}`)
}
