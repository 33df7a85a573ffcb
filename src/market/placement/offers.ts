import { defined } from "../../core/apis/defined.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import type { Architecture, Offer } from "../../core/apis/offer.ts"
import type { HourlyPrices } from "../../core/apis/price.ts"
import type { Offers } from "../catalogue/offers.ts"
import { explainShortfall } from "../router/explain.ts"
import { toRequirements } from "../router/requirements.ts"
import { scan } from "../router/scan.ts"
import { surveyShortfall } from "../router/shortfall.ts"
import { requiredDiskGib } from "./inputs.ts"
import { type OwnOffer, whyNotNow, withOwnOffers } from "./machines.ts"
import { anyAccountOf } from "./place.ts"
import { JOB_DEFAULTS } from "./settings.ts"

/** Offer that matches a job's requirements. */
export interface MatchingOffer {
  offer: Offer
  /** Prices of a VM there. */
  prices: HourlyPrices
  /** Reason why no job gets this own machine now, for people. Absent: it is free, or a cloud's. */
  whyNotNow?: string
}

/** Offers that match a job's requirements, from any account. */
export interface MatchingOffers {
  /** A page of them, best first. */
  offers: MatchingOffer[]
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
  /** Number of better offers to leave out. */
  offset: number
  /** Largest number of offers to return. */
  limit: number
  now: Date
}

const ANY = Number.POSITIVE_INFINITY

/**
 * Finds the cheapest offers that a job could get from any account. Pure.
 * @param own machines of the project, which are offers too
 */
export function matchingOffers(
  { spec, architecture, offset, limit, now }: OfferSearch,
  clouds: ReturnType<Offers["current"]>,
  own: readonly OwnOffer[] = [],
): MatchingOffers {
  const catalogue = withOwnOffers(clouds, own)
  const requirements = toRequirements(spec, architecture === undefined ? [] : [architecture])
  const { expectedSeconds } = JOB_DEFAULTS
  const launchAccounts = anyAccountOf(catalogue)
  const context = { launchAccounts, cooldowns: [], room: {}, expectedSeconds, now }
  const { best, fitting } = scan(requirements, catalogue, {
    ...context,
    clouds: new Set(launchAccounts.map(({ cloud }) => cloud)),
    ...{ maxGpus: ANY, maxHourlyUsd: ANY, maxTotalUsd: ANY, maxMostUsd: ANY },
    count: Math.min(offset + limit, catalogue.size),
    isAvailable: () => true,
  })
  return {
    offers: best.slice(offset).map(({ row, prices }) => {
      const offer = catalogue.offerAt(row)
      const machine = own.find(
        ({ offer: { cloud, instanceType } }) => cloud === offer.cloud && instanceType === offer.instanceType,
      )
      const why = machine && whyNotNow(machine, requiredDiskGib(spec, undefined, offer.cloud))
      return { offer, prices, ...defined({ whyNotNow: why }) }
    }),
    matching: fitting,
    ...(fitting === 0 && {
      message: explainShortfall(surveyShortfall(requirements, catalogue, context), requirements),
    }),
  }
}
