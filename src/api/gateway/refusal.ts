import { REFUSALS, type Refusal } from "../../core/protocol/protocol.ts"
import { Problem, unavailable } from "../http/problem.ts"

/** Maximum number of attempts to write a Launch. Each attempt reads the Launch and decides again. */
export const WRITE_TRIES = 5

/** Returns a final rejection: the agent stops the container and powers off. */
export function refusal(type: Refusal, detail: string): Problem {
  const headers: Record<string, string> = REFUSALS[type] === 401 ? { "WWW-Authenticate": "Bearer" } : {}
  return new Problem({ type, status: REFUSALS[type], detail, headers })
}

/** Returns the rejection of a message after `WRITE_TRIES` conflicts. The VM sends it again. */
export function changesTooFast(): Problem {
  return unavailable("Other writes to the Launch conflict with this one. Send the message again.")
}
