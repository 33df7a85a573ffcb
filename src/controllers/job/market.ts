import { secondsBetween } from "../../apis/clock.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import type { SpendCaps } from "../../apis/project.ts"
import type { Catalogue } from "../../router/catalogue.ts"
import type { BucketPlace } from "../../router/egress.ts"
import type { Payer, Rest } from "../../router/rest.ts"
import { pausedUntil } from "./breaker.ts"
import { restingOffers } from "./resting.ts"
import type { JobSettings } from "./settings.ts"
import { effectiveCaps, type Spending, spendingOf } from "./spend.ts"

/** All that a placement is decided by, besides the job. */
export interface Market {
  offers: Catalogue
  payers: readonly Payer[]
  resting: readonly Rest[]
  caps: SpendCaps
  spending: Spending
  /** Where the job's buckets are, as far as that is known. */
  buckets?: readonly BucketPlace[]
  /** Until when nothing is launched at all. */
  pausedUntil?: Date
  /** Seconds until the launch rate allows another one; 0: now. */
  rateWaitSeconds: number
}

/** What a market is reckoned from. */
export interface MarketFacts {
  offers: Catalogue
  payers: readonly Payer[]
  /** All Launches there are, and those of the job's project among them. */
  launches: readonly StoredLaunch[]
  projectLaunches: readonly StoredLaunch[]
  projectCaps: SpendCaps | undefined
  /** What jobs of the project spent this month whose Launches' records are deleted, US dollars. */
  recordedUsd: number
}

/** Reckons the market of one project at one moment. Pure. */
export function appraise(facts: MarketFacts, now: Date, settings: JobSettings): Market {
  const spending = spendingOf(facts.projectLaunches, now, settings.expectedSeconds)
  const paused = pausedUntil(facts.launches, now, settings)
  return {
    offers: facts.offers,
    payers: facts.payers,
    resting: restingOffers(facts.launches, now, settings),
    caps: effectiveCaps(facts.projectCaps, settings.caps),
    spending: { ...spending, monthlyUsd: spending.monthlyUsd + facts.recordedUsd },
    ...(paused !== undefined && { pausedUntil: paused }),
    rateWaitSeconds: rateWait(facts.launches, now, settings.launchesPerMinute),
  }
}

/** Seconds until fewer than `perMinute` Launches were made in the last minute. */
function rateWait(launches: readonly StoredLaunch[], now: Date, perMinute: number): number {
  const ages = launches
    .map((launch) => secondsBetween(launch.metadata.creationTimestamp, now))
    .filter((age) => age < 60)
    .sort((a, b) => a - b)
  const oldest = ages[perMinute - 1]
  return oldest === undefined ? 0 : Math.max(1, 60 - oldest)
}
