import type { Schemas } from "./client.ts"

export type ConnectionCheck = Schemas["ConnectionCheck"]

const TITLES: Record<ConnectionCheck["result"], string> = {
  passed: "Passed",
  incomplete: "Incomplete",
  refused: "Refused",
  unreachable: "Unreachable",
  unusable: "Not checked",
  unfinished: "Not finished",
}

/** Returns the result of a check in sentences. The uses of the account have their own. */
export function checkTexts({ result, message, missing_permissions: missing }: ConnectionCheck): string[] {
  return [
    `${TITLES[result]}: ${message}.`,
    ...(missing.length === 0 ? [] : [`Missing permissions: ${missing.join(", ")}.`]),
  ]
}
