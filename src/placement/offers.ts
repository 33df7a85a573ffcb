import type { JobSpec } from "../apis/job.ts"
import type { Architecture } from "../apis/offer.ts"
import type { Offers } from "../catalogue/offers.ts"
import { explainShortfall } from "../router/explain.ts"
import { requirementsOf } from "../router/requirements.ts"
import { type RankedPlacement, route } from "../router/route.ts"
import { anyAccountOf } from "./place.ts"
import { JOB_DEFAULTS } from "./settings.ts"

/** Offers that match a job's requirements, from any account. */
export interface MatchingOffers {
  /** The cheapest ones, best first, with the prices of a VM there. */
  offers: Pick<RankedPlacement, "offer" | "prices">[]
  /** Number of all that match. */
  matching: number
  /** Explanation for people if none matches. */
  message?: string
}

export interface OfferSearch {
  /** Resources, clouds, regions and provisioning that the offers must have. */
  spec: JobSpec
  /** Architecture of the offers; absent: any. */
  architecture?: Architecture | undefined
  /** Largest number of offers to return. */
  count: number
  now: Date
}

/** Finds the cheapest offers that a job could get from any account. Pure. */
export function matchingOffers(
  { spec, architecture, count, now }: OfferSearch,
  catalogue: ReturnType<Offers["current"]>,
): MatchingOffers {
  const requirements = requirementsOf(spec, architecture === undefined ? [] : [architecture])
  const { expectedSeconds } = JOB_DEFAULTS
  const launchAccounts = anyAccountOf(catalogue)
  const context = { launchAccounts, cooldowns: [], room: {}, expectedSeconds, now, count }
  const { placements, fitting, shortfall } = route(requirements, catalogue, context)
  return {
    offers: placements,
    matching: fitting,
    ...(shortfall && { message: explainShortfall(shortfall, requirements) }),
  }
}
