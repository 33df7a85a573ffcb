import type { CostTerms } from "./cost.ts"
import type { Payer, Rest } from "./rest.ts"

/** Budget that the project has left, US dollars. An absent field sets no limit. */
export interface Room {
  hourlyUsd?: number
  monthlyUsd?: number
}

/** Facts that a placement depends on besides the job and the offers. */
export interface RouteContext<P extends Payer = Payer> extends CostTerms {
  payers: readonly P[]
  resting: readonly Rest[]
  room: Room
  now: Date
  /** Number of placements to return; default 5. */
  count?: number
}
