import { quotaOf, seriesOf } from "../../clouds/machines/machines.ts"
import type { Common, Meaning, RefusalClass } from "../../clouds/rejection.ts"
import { interpretRejection } from "../../clouds/rejections.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import type { LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { type Offer, offerKey } from "../../core/apis/offer.ts"
import type { Scope } from "../router/cooldown.ts"
import { neverRegistered } from "./breaker.ts"
import { accountHolder, connectionHolder, type Viewer } from "./holders.ts"
import { preemptedBy } from "./losses.ts"
import { launchOutcome } from "./outcome.ts"

type Refusal = NonNullable<LaunchStatus["refusal"]>

/** Numbers of different things that the launches of reports in a row asked for. */
export interface Counts {
  offers: number
  types: number
  families: number
  regions: number
  /** Offers on demand. */
  onDemand: number
}

/** Scope that a report is about, alone or with others. */
export interface Part {
  scope: Scope
  /** Least counts in a row, this report included, that put the scope into cooldown; {}: it does so alone. */
  after: Partial<Counts>
  /**
   * `own`: what the report itself is about. `wider`: what several reports of one connection or account are about. `guess`:
   * the same, but they have another likely cause. `connection`: all offers of a connection, or all its spot offers.
   */
  extent: "own" | "wider" | "guess" | "connection"
}

/** Event of a VM that ends cooldowns. */
export type VmEvent = "created" | "registered"

/** Report of a launch without success: what is not launched again for some time, and why. */
export interface Report {
  launch: StoredLaunch
  /** Milliseconds. */
  time: number
  parts: readonly Part[]
  /** A later VM within a scope ends its cooldown by this event. */
  endedBy: VmEvent
  /** Cause for people; `{launch}` or `{VM}` stands for the number. */
  group: string
  /** The cloud's own code and message. */
  detail?: string
  /** Action that ends the cause. */
  remedy?: string
}

/** Different offers of one machine type or family that a connection was refused in a row, after which it is in cooldown. */
export const FAMILY_OFFERS = 3
/** Different families that a connection was refused in one region in a row, after which the region is in cooldown. */
export const REGION_FAMILIES = 3
/** Regions in which one quota was used up in a row, after which it is in cooldown in all regions. */
export const QUOTA_REGIONS = 3
/**
 * Different offers that a connection was refused in a row, after which all of it is in cooldown. A policy may allow one
 * region of thirty: fewer would not find it.
 */
export const CONNECTION_OFFERS = 20
/** Regions in which they must be: fewer may be forbidden as regions. */
const CONNECTION_REGIONS = 3

/** Returns the report of a launch. Undefined: it was no failure, or is not about the viewer's accounts. Pure. */
export function toReport(launch: StoredLaunch, viewer: Viewer): Report | undefined {
  const outcome = launchOutcome(launch)
  switch (outcome.kind) {
    case "refused":
      return refusalReport(launch, outcome.refusal, viewer)
    case "bootFailed":
      return neverRegistered(launch) ? vmReport(launch, outcome.time, "{VM} never registered", viewer) : undefined
    case "lost":
      return preemptionReport(launch, outcome.time, viewer)
    default:
      return undefined
  }
}

function preemptionReport(launch: StoredLaunch, time: string, viewer: Viewer): Report | undefined {
  const { offer, connection, job } = launch.spec
  const witness = preemptedBy(launch)
  if (witness === "cloud") return cloudReport(launch, time, `${offer.cloud} preempted {VM}`)
  // All projects share Berth's own account. So there the word of a project's VM counts for that project alone.
  const isShared = connection === undefined && job.namespace !== viewer.namespace
  if (witness === undefined || offer.provisioning !== "spot" || isShared) return undefined
  return vmReport(launch, time, "{VM} reported a preemption", viewer)
}

/** Returns the report of a cloud about its own capacity. The offer is in cooldown for all projects. */
function cloudReport(launch: StoredLaunch, time: string, group: string): Report {
  return offerReport(launch, time, { cloud: launch.spec.offer.cloud }, group)
}

/** The word of a VM, or its silence: the offer is in cooldown for its own account. */
function vmReport(launch: StoredLaunch, time: string, what: string, viewer: Viewer): Report | undefined {
  const holder = accountHolder(launch, viewer)
  return holder && offerReport(launch, time, holder, `${what} in ${whose(launch, holder)}`)
}

function offerReport(launch: StoredLaunch, time: string, holder: Scope, group: string): Report {
  const scope = { ...holder, offer: offerKey(launch.spec.offer) }
  return { launch, time: Date.parse(time), parts: [{ scope, after: {}, extent: "own" }], endedBy: "registered", group }
}

function refusalReport(launch: StoredLaunch, refusal: Refusal, viewer: Viewer): Report | undefined {
  const { class: kind, code = "", message, machines } = refusal
  const { offer } = launch.spec
  if (kind === "Capacity")
    return cloudReport(launch, refusal.time, `${offer.cloud} rejected {launch} for lack of capacity`)
  const isQuota = kind === "Quota"
  const holder = isQuota ? accountHolder(launch, viewer) : connectionHolder(launch, kind, viewer)
  if (holder === undefined) return undefined
  const meaning = interpretRejection(offer.cloud, refusal)
  const own =
    machines === undefined ? ownParts(holder, offer, meaning) : [ownPart({ ...holder, region: offer.region, machines })]
  const steps = isQuota ? quotaSteps(meaning) : connectionSteps(kind, meaning)
  const verb = kind === "Unavailable" ? "did not answer" : "rejected"
  return {
    launch,
    time: Date.parse(refusal.time),
    parts: [...own, ...steps.flatMap((step) => partsOf(holder, offer, step))],
    endedBy: "created",
    group: `${offer.cloud} ${verb} {launch} of ${whose(launch, holder)}${isQuota ? " for a quota" : ""}`,
    detail: cutTo(message.includes(code) ? message : `${code}: ${message}`, DETAIL_CHARACTERS),
    ...defined({ remedy: meaning.remedy }),
  }
}

/** Maximum characters of a cloud's message within another message. */
const DETAIL_CHARACTERS = 400

/** Part of a report before it is about one offer and holder. */
interface Step {
  scope: readonly Common[]
  after: Partial<Counts>
  extent: Part["extent"]
}

function ownPart(scope: Scope): Part {
  return { scope, after: {}, extent: "own" }
}

function ownParts(holder: Scope, offer: Offer, { scope, except = [] }: Meaning): Part[] {
  if (except.includes(offer.instanceType)) return [ownPart({ ...holder, instanceType: offer.instanceType })]
  if (except.length > 0) return [ownPart({ ...holder, exceptTypes: except })]
  return partsOf(holder, offer, { scope, after: {}, extent: "own" })
}

/** Returns what further rejections of one connection widen to: machine type, family, region, and the whole connection. */
function connectionSteps(kind: RefusalClass, { scope, patience }: Meaning): Step[] {
  if (kind === "Credentials" || kind === "Unavailable") return []
  const isOfMachine = scope.includes("offer") || scope.includes("family")
  const offers = patience ?? CONNECTION_OFFERS
  const connection: Step = {
    scope: ["spot"],
    // A machine type doesn't cause a rejection that is about a region.
    after: { offers, regions: CONNECTION_REGIONS, ...(isOfMachine && { types: 2 }) },
    extent: "connection",
  }
  if (isOfMachine) {
    return [
      { scope: ["instanceType", "spot"], after: { offers: FAMILY_OFFERS }, extent: "wider" },
      { scope: ["family", "spot"], after: { offers: FAMILY_OFFERS, types: 2 }, extent: "wider" },
      { scope: ["region", "spot"], after: { families: patience ?? REGION_FAMILIES }, extent: "wider" },
      connection,
    ]
  }
  if (!scope.includes("region")) return []
  // An organization's denial of a machine type uses the same words as the denial of a region.
  const type: Step = { scope: ["instanceType", "spot"], after: { regions: 2 }, extent: "guess" }
  return kind === "Region" ? [type, connection] : [connection]
}

/** Returns what further rejections for quotas widen to: this quota in all regions, and all quotas with or without GPUs. */
function quotaSteps({ scope }: Meaning): Step[] {
  const everywhere = scope.filter((each) => each !== "region")
  const all: Step = {
    scope: ["provisioning", "gpu", "size"],
    after: { offers: CONNECTION_OFFERS, regions: QUOTA_REGIONS },
    extent: "wider",
  }
  if (everywhere.length === scope.length) return [all]
  return [{ scope: everywhere, after: { regions: QUOTA_REGIONS }, extent: "wider" }, all]
}

function partsOf(holder: Scope, offer: Offer, { scope, after, extent }: Step): Part[] {
  const both: Scope = { ...holder }
  for (const each of scope) if (each !== "spot") Object.assign(both, FIELDS[each](offer))
  if (!scope.includes("spot")) return [{ scope: both, after, extent }]
  const all: Part = { scope: both, after: { ...after, onDemand: 1 }, extent }
  if (offer.provisioning === "onDemand") return [all]
  const spot: Part = { scope: { ...both, provisioning: "spot" }, after, extent }
  return extent === "own" ? [spot] : [spot, all]
}

const FIELDS: Readonly<Record<Exclude<Common, "spot">, (offer: Offer) => Partial<Scope>>> = {
  offer: (offer) => ({ offer: offerKey(offer) }),
  instanceType: ({ instanceType }) => ({ instanceType }),
  family: ({ cloud, instanceType }) => ({ family: seriesOf(cloud, instanceType) }),
  quota: ({ cloud, instanceType }) => ({ quota: quotaOf(cloud, instanceType) }),
  region: ({ region }) => ({ region }),
  provisioning: ({ provisioning }) => ({ provisioning }),
  gpu: ({ gpu }) => ({ gpu: gpu !== undefined }),
  size: ({ cpu }) => ({ minCpu: cpu }),
}

function whose({ spec }: StoredLaunch, { connection, account }: Scope): string {
  if (connection !== undefined) return `connection ${connection}`
  return account === undefined ? spec.offer.cloud : `account ${account}`
}
