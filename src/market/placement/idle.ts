import { freeSecondsOf } from "../../clouds/machines/machines.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import { pricesOf, type StoredLaunch } from "../../core/apis/launch.ts"
import { OWN_CLOUD } from "../../core/apis/machine.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { fromMetadataName } from "../../core/apis/names.ts"
import { type Offer, offerKey } from "../../core/apis/offer.ts"
import { costOf, sumOfParts } from "../../core/apis/price.ts"
import { type Reuse, VM_OVERHEAD_SECONDS } from "../../core/apis/reuse.ts"
import { type Availability, availabilityOf, idlenessOf, vmNameOf } from "../../core/reuse/reuse.ts"
import type { LaunchAccount } from "../router/cooldown.ts"
import { usd } from "../router/explain.ts"
import type { Requirements } from "../router/requirements.ts"
import { type RankedPlacement, type RouteContext, rank } from "../router/route.ts"
import { mayIdle, roomUnder, vmCapReached, withoutVm } from "./caps.ts"
import type { Market } from "./market.ts"
import type { JobSettings } from "./settings.ts"

/** Placement on an idle VM. */
export interface Takeover extends RankedPlacement<LaunchAccount> {
  /** Launch that holds the VM. */
  holder: StoredLaunch
  /** False: the VM still removes what its job has left, which takes a few seconds. */
  isClean: boolean
}

/**
 * Returns true if the VM of a job may wait for another job. A limit that holds in any case holds by the VM's own timer, which
 * must be longer for a VM that has several jobs. A cloud that charges nothing for a spot VM that it preempts early would do
 * so after earlier jobs have paid for it. An own machine is free for every job at once.
 */
export function mayBeKept(offer: Offer, { budget, levels }: Pick<Market, "budget" | "levels">): boolean {
  return offer.cloud !== OWN_CLOUD && budget === undefined && mayIdle(levels) && freeSecondsOf(offer) === 0
}

/** Number of idle VMs that a job is compared with. */
const MOST_COMPARED = 64

/** Job that may take over an idle VM, with what follows from it. */
export interface TakeoverTerms {
  spec: JobSpec
  reuse: Reuse
  requirements: Requirements
  context: RouteContext<LaunchAccount>
  /** Longest time of its run with its end, seconds. */
  lifetimeSeconds: number
  now: Date
  settings: JobSettings
  /** Cheapest new VM. Absent: there is none now. */
  best: RankedPlacement<LaunchAccount> | undefined
}

/**
 * Returns the best idle VM for a job, if it costs no more than a new one. It has no boot and no minimum, and it takes no
 * room under caps that its holder does not free. Pure.
 */
export function findTakeover({ kept = [], offers, levels }: Market, terms: TakeoverTerms): Takeover | undefined {
  const holders = kept.filter((holder) => availabilityFor(holder, terms) !== "never").slice(0, MOST_COMPARED)
  if (holders.length === 0) return undefined
  const byOffer = Map.groupBy(holders, ({ spec }) => offerKey(spec.offer))
  const unique = [...byOffer.values()].flatMap(([first]) => (first === undefined ? [] : [first.spec.offer]))
  const free = { ...terms.context, cooldowns: [], room: {}, count: MOST_COMPARED }
  const { placements } = rank(terms.requirements, offers.only(unique), free)
  for (const placement of placements) {
    const holder = byOffer.get(offerKey(placement.offer))?.find((one) => isOf(one, placement.launchAccount))
    if (holder === undefined) continue
    const takeover = takeoverOf(holder, placement, terms)
    if (fitsUnder(takeover, levels, terms) && isWorthIt(takeover, terms.best)) return takeover
  }
  return undefined
}

function availabilityFor(holder: StoredLaunch, { reuse, lifetimeSeconds, now }: TakeoverTerms): Availability["is"] {
  const { spec } = holder
  const run = { ...spec.run, reuse }
  const taker = { metadata: holder.metadata, spec: { ...spec, root: vmNameOf(holder), lifetimeSeconds, run } }
  return availabilityOf(taker, holder, now).is
}

function isOf({ spec }: StoredLaunch, { cloud, connection, account }: LaunchAccount): boolean {
  return spec.offer.cloud === cloud && spec.connection === connection && spec.account === account
}

/** Returns the placement at the holder's own prices, which stay those of the VM. */
function takeoverOf(
  holder: StoredLaunch,
  placement: RankedPlacement<LaunchAccount>,
  { context }: TakeoverTerms,
): Takeover {
  const prices = pricesOf(holder)
  const cost = costOf(prices, { seconds: context.expectedSeconds, minimumBilledSeconds: 0 })
  const totalUsd = roundUsd(sumOfParts(cost) + placement.trafficUsd)
  const isClean = idlenessOf(holder).is === "idle"
  return { ...placement, offer: holder.spec.offer, prices, cost, totalUsd, holder, isClean }
}

function fitsUnder(takeover: Takeover, levels: Market["levels"], { now, settings }: TakeoverTerms): boolean {
  const freed = withoutVm(levels, takeover.holder, now, settings.expectedSeconds)
  if (vmCapReached(freed) !== undefined) return false
  const { gpus = Infinity, hourlyUsd = Infinity, monthlyUsd = Infinity } = roomUnder(freed)
  const { offer, prices, totalUsd } = takeover
  return (offer.gpu?.count ?? 0) <= gpus && sumOfParts(prices) <= hourlyUsd && totalUsd <= monthlyUsd
}

/** Compares an idle VM with a new one, whose boot and end are billed too. */
function isWorthIt({ totalUsd }: Takeover, best: RankedPlacement<LaunchAccount> | undefined): boolean {
  if (best === undefined) return true
  return totalUsd <= best.totalUsd + (sumOfParts(best.prices) * VM_OVERHEAD_SECONDS) / 3600
}

/** Returns why a job takes over an idle VM, for people. */
export function explainTakeover(
  { holder, totalUsd }: Takeover,
  best: RankedPlacement<LaunchAccount> | undefined,
): string {
  const name = fromMetadataName(holder.spec.job.name)
  const next = best === undefined ? "" : `; a new VM costs ${usd(best.totalUsd)} and its boot`
  return `takes the idle VM of ${name}, starts in about 2 s; expected to cost ${usd(totalUsd)}${next}`
}
