import type { StoredLaunch } from "../../apis/launch.ts"
import type { SpendCaps } from "../../apis/project.ts"
import type { Catalogue } from "../../router/catalogue.ts"
import type { BucketPlace } from "../../router/egress.ts"
import type { Payer, Rest } from "../../router/rest.ts"
import { pausedPayers } from "./breaker.ts"
import type { RefusedPayer } from "./dependencies.ts"
import type { ImageState } from "./image.ts"
import { restingOffers } from "./resting.ts"
import type { JobSettings } from "./settings.ts"
import { effectiveCaps, type Spending, spendingOf } from "./spend.ts"

/** All that a placement is decided by, besides the job. */
export interface Market {
  offers: Catalogue
  payers: readonly Payer[]
  /** Who would pay if the credentials were allowed to start VMs. */
  refusedPayers?: readonly RefusedPayer[]
  resting: readonly Rest[]
  caps: SpendCaps
  /** Nothing, where the caps limit nothing. */
  spending: Spending
  /** Where the job's buckets are, as far as that is known. */
  buckets?: readonly BucketPlace[]
  /** What the job's image runs on, as far as that is known. */
  image?: ImageState
  /** What the agent's image runs on; absent: VMs need none, or nobody asks. */
  agentImage?: ImageState
  /** Payers that nothing is launched for, although they would pay. */
  paused: readonly Rest[]
  /** Seconds until the launch rate allows another one; 0: now. */
  rateWaitSeconds: number
}

/** What a market is reckoned from. */
export interface MarketFacts {
  /** Of the project. */
  namespace: string
  offers: Catalogue
  payers: readonly Payer[]
  refusedPayers?: readonly RefusedPayer[]
  agentImage?: ImageState | undefined
  /** All Launches there are, and those of the job's project among them. */
  launches: readonly StoredLaunch[]
  projectLaunches: readonly StoredLaunch[]
  projectCaps: SpendCaps | undefined
  /** What jobs of the project spent this month whose Launches' records are deleted, US dollars. */
  recordedUsd: number
}

/** Reckons the market of one project at one moment. Pure. */
export function appraise(facts: MarketFacts, now: Date, settings: JobSettings): Market {
  const caps = effectiveCaps(facts.projectCaps, settings.caps)
  const isCapped = Object.values(caps).some((cap) => cap !== undefined)
  // Without a cap nobody asks what is spent, which takes longer to reckon than all else.
  const spending = isCapped ? spendingOf(facts.projectLaunches, now, settings.expectedSeconds) : UNCAPPED
  const { namespace, payers, launches } = facts
  return {
    offers: facts.offers,
    payers,
    ...(facts.refusedPayers && { refusedPayers: facts.refusedPayers }),
    ...(facts.agentImage && { agentImage: facts.agentImage }),
    resting: restingOffers(launches, now, settings),
    paused: pausedPayers(payers, namespace, launches, { now, settings }),
    caps,
    spending: { ...spending, monthlyUsd: spending.monthlyUsd + facts.recordedUsd },
    rateWaitSeconds: rateWait(launches, namespace, now, settings.launchesPerMinute),
  }
}

const UNCAPPED: Spending = { vms: 0, hourlyUsd: 0, monthlyUsd: 0 }

/**
 * Seconds until the installation has made fewer than `perMinute` Launches in the last minute, or the project fewer than its
 * share: an equal part for each project that made any. So nobody's launches, or refusals, keep others from theirs.
 */
function rateWait(launches: readonly StoredLaunch[], namespace: string, now: Date, perMinute: number): number {
  const minuteAgo = now.getTime() - 60_000
  const recent = launches.filter(({ metadata }) => Date.parse(metadata.creationTimestamp) > minuteAgo)
  if (recent.length < perMinute) return 0
  const projects = new Set(recent.map(({ spec }) => spec.job.namespace))
  const own = recent.filter(({ spec }) => spec.job.namespace === namespace)
  const until = (made: readonly StoredLaunch[], fewerThan: number) => {
    const times = made.map(({ metadata }) => Date.parse(metadata.creationTimestamp)).sort((a, b) => b - a)
    const oldest = times[fewerThan - 1]
    return oldest === undefined ? 0 : Math.max(1, (oldest - minuteAgo) / 1000)
  }
  return Math.min(until(recent, perMinute), until(own, Math.max(1, Math.floor(perMinute / projects.size))))
}
