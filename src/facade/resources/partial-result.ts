import { fromMetadataName } from "../../apis/names.ts"
import type { DiscoveryFailure } from "./discoverer.ts"

/** Tells which connections' parts of an answer are missing or not whole. */
export const PARTIAL_RESULT = "Berth-Partial-Result"

/** Readers of HTTP give up at 8 to 16 KiB of headers. */
const MOST_CHARACTERS = 4096
const MOST_MESSAGE = 200

/**
 * The header's value: a list of strings, the connections' names, with the parameters `reason` and `message` (RFC 9651). When
 * there are too many the messages go first, then the names: the log has all of them.
 */
export function partialResult(failures: readonly DiscoveryFailure[]): string {
  const whole = failures.map((failure) => `${named(failure)};message=${quoted(failure.message.slice(0, MOST_MESSAGE))}`)
  const value = whole.join(", ")
  return value.length <= MOST_CHARACTERS ? value : asManyAs(failures.map(named))
}

function named({ connection, reason }: DiscoveryFailure): string {
  return `${quoted(fromMetadataName(connection.metadata.name))};reason=${quoted(reason.slice(0, MOST_MESSAGE))}`
}

/** A string of RFC 9651: printable ASCII, with two signs escaped. */
function quoted(text: string): string {
  return `"${text.replace(/[^ -~]+/g, "?").replace(/["\\]/g, "\\$&")}"`
}

function asManyAs(members: readonly string[]): string {
  let value = members[0] ?? ""
  for (const member of members.slice(1)) {
    if (value.length + member.length > MOST_CHARACTERS) break
    value += `, ${member}`
  }
  return value
}
