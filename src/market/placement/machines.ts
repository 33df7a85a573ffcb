import type { StoredLaunch } from "../../core/apis/launch.ts"
import { OWN_CLOUD, type StoredMachine } from "../../core/apis/machine.ts"
import { keyOf } from "../../core/apis/meta.ts"
import { fromMetadataName } from "../../core/apis/names.ts"
import { type Offer, offerKey } from "../../core/apis/offer.ts"
import { machineOf, offerOf, servesNamespace, type Unavailable, whyUnavailable } from "../../core/machines/machine.ts"
import type { Catalogue } from "../router/catalogue.ts"
import type { Cooldown, LaunchAccount } from "../router/cooldown.ts"
import { ALL_NAMESPACES } from "./ledger.ts"

/** A project's machine, as routing sees it: an offer that one job can have at a time. */
export interface OwnOffer {
  offer: Offer
  /** Free space of its disk, GiB. Berth can't order another disk for it. */
  diskGib: number
  /** Reason why it gets no job now, for people. Absent: it is free. */
  why?: string
}

/**
 * Returns the keys of the machines that Launches are about to get. Without them, each of the jobs that a free machine wakes
 * would ask for it, and all but one in vain. Pure.
 */
export function claimedMachines(launches: readonly StoredLaunch[]): ReadonlySet<string> {
  const asking = launches.filter(
    ({ spec, status }) => spec.offer.cloud === OWN_CLOUD && (status?.phase ?? "requested") === "requested",
  )
  return new Set(asking.map(({ spec }) => keyOf({ metadata: machineOf(spec.offer.instanceType, spec.job.namespace) })))
}

/**
 * Returns the machines that a project's jobs may run on, with those that are not free now. Pure.
 * @param claimed keys of machines that are free, but not for long
 */
export function ownOffers(
  machines: readonly StoredMachine[],
  namespace: string,
  claimed: ReadonlySet<string> = new Set(),
): OwnOffer[] {
  return machines.flatMap((machine) => {
    const offer = offerOf(machine, namespace)
    const facts = machine.status?.host?.facts
    if (offer === undefined || facts === undefined || !servesNamespace(machine, namespace)) return []
    const why = whyUnavailable(machine) ?? (claimed.has(keyOf(machine)) ? "busy" : undefined)
    if (why === "deleted") return []
    return [{ offer, diskGib: facts.diskGib, ...(why !== undefined && { why: unavailableText(machine, why) }) }]
  })
}

/**
 * Returns the machines that a project's jobs may run on, of those of all projects.
 * @param unmarked returns the Launches of a namespace, or of `ALL_NAMESPACES`, whose cost is not counted yet
 */
export function ownMachines(
  namespace: string,
  machines: readonly StoredMachine[],
  unmarked: (namespace: string) => readonly StoredLaunch[],
): OwnOffer[] {
  const all = machines.filter((machine) => servesNamespace(machine, namespace))
  if (all.length === 0) return []
  const isShared = all.some(({ spec }) => spec.shared === true)
  return ownOffers(all, namespace, claimedMachines(unmarked(isShared ? ALL_NAMESPACES : namespace)))
}

/** Returns the account by which a project uses its machines; none without machines. */
export function ownAccount(machines: readonly StoredMachine[], namespace: string): LaunchAccount[] {
  const isAny = machines.some((machine) => machine.status?.host !== undefined && servesNamespace(machine, namespace))
  return isAny ? [{ cloud: OWN_CLOUD, account: namespace }] : []
}

/** Returns why a machine gets no job now, for people. */
export function unavailableText(machine: StoredMachine, why: Unavailable): string {
  const { metadata, status } = machine
  const name = `machine ${fromMetadataName(metadata.name)}`
  const texts: Record<Unavailable, string> = {
    notJoined: `${name} has not joined yet`,
    silent: `${name} has sent nothing since ${status?.host?.lastHeartbeatTime}`,
    unfit: `${name} can run no job: ${status?.host?.unfit}`,
    unschedulable: `${name} is drained`,
    deleted: `${name} is being removed`,
    noProject: `${name} belongs to no project`,
    cleaning: `${name} cleans up after a job that it had when its lease ended`,
    busy: `${name} has another job`,
    overLimit: `${name} is beyond the project's limit of machines`,
  }
  return texts[why]
}

/** Returns why a job gets no such machine now, for people; undefined if it can have one. Pure. @param requiredGib disk of the job */
export function whyNotNow({ offer, diskGib, why }: OwnOffer, requiredGib: number | undefined): string | undefined {
  if (why !== undefined || requiredGib === undefined || diskGib >= requiredGib) return why
  return `machine ${offer.instanceType} has ${diskGib} GiB of free disk, the job needs ${requiredGib}`
}

/** Returns the cooldowns of machines that are not free, or whose disk is too small for the job. Pure. */
export function ownCooldowns(own: readonly OwnOffer[], requiredGib: number | undefined, until: Date): Cooldown[] {
  return own.flatMap((machine) => {
    const { offer } = machine
    const group = whyNotNow(machine, requiredGib)
    return group === undefined ? [] : [{ cloud: OWN_CLOUD, offer: offerKey(offer), until, cause: { group } }]
  })
}

/** Catalogues with own machines, by the catalogue without them. Projects have few machines, which seldom change. */
const extended = new WeakMap<Catalogue, Map<string, Catalogue>>()

/** Number of projects whose catalogues are remembered. */
const MOST_EXTENDED = 256

/** Returns the catalogue with the offers of a project's machines. */
export function withOwnOffers(catalogue: Catalogue, own: readonly OwnOffer[]): Catalogue {
  if (own.length === 0) return catalogue
  const offers = own.map(({ offer }) => offer)
  const known = extended.get(catalogue) ?? new Map<string, Catalogue>()
  extended.set(catalogue, known)
  const key = JSON.stringify(offers)
  const found = known.get(key) ?? catalogue.with(offers)
  if (known.size >= MOST_EXTENDED) known.clear()
  known.set(key, found)
  return found
}
