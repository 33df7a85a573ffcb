import { isOver, type REFUSALS, type StoredLaunch } from "../../apis/launch.ts"
import { offerKey } from "../../apis/offer.ts"
import { familyOf } from "../../router/family.ts"
import type { Rest } from "../../router/rest.ts"
import { bootDeadline, outcomeOf } from "./history.ts"

type RefusalClass = (typeof REFUSALS)[number]

/** How long what refused is left alone, seconds. */
export interface RestSettings {
  restSeconds: number
  restCapSeconds: number
}

/** What rests after a refusal, and what tells refusals of the same thing. */
interface Refusal {
  key: string
  rest: Omit<Rest, "until">
  /** Milliseconds. */
  time: number
}

/** By key, and by the vCPUs of the machine: when a VM registered last that would have been refused. Milliseconds. */
type Registrations = ReadonlyMap<string, ReadonlyMap<number, number>>

/**
 * What rests now, derived from nothing but the Launches: every process comes to the same answer, also after a restart.
 * Capacity, boot failures and preemptions rest an offer for everybody; quota a family in a region, from the refused
 * size on, for that account; a region that it may not use all of the region for it; bad requests an offer for it;
 * credentials all that it pays. Each refusal in a row doubles
 * the rest; a VM that registered ends the row.
 */
export function restingOffers(launches: readonly StoredLaunch[], now: Date, settings: RestSettings): Rest[] {
  const rows = new Map<string, Refusal[]>()
  for (const refusal of launches.map(refusalOf)) {
    if (refusal === undefined) continue
    const row = rows.get(refusal.key)
    if (row === undefined) rows.set(refusal.key, [refusal])
    else row.push(refusal)
  }
  const registered: Registrations = rows.size === 0 ? new Map() : lastRegistrations(launches)
  return [...rows.values()].flatMap((row) => restOf(row, registered, settings)).filter((rest) => rest.until > now)
}

function restOf(row: readonly Refusal[], registered: Registrations, settings: RestSettings): Rest[] {
  const [first] = row
  if (first === undefined) return []
  const sizes = row.flatMap(({ rest }) => rest.minCpu ?? [])
  const minCpu = sizes.length === 0 ? undefined : Math.min(...sizes)
  const since = lastTime(registered.get(first.key), minCpu ?? 0)
  const times = row.map(({ time }) => time).filter((time) => time > since)
  if (times.length === 0) return []
  const sorted = times.sort((a, b) => a - b)
  let seconds = 0
  let last = Number.NEGATIVE_INFINITY
  for (const time of sorted) {
    // Refusals that lie further apart than the longest rest are no row.
    const inRow = time - last <= 2 * settings.restCapSeconds * 1000
    seconds = Math.min(settings.restCapSeconds, inRow && seconds > 0 ? seconds * 2 : settings.restSeconds)
    last = time
  }
  return [{ ...first.rest, ...(minCpu !== undefined && { minCpu }), until: new Date(last + seconds * 1000) }]
}

function lastTime(bySize: ReadonlyMap<number, number> = new Map(), minCpu: number): number {
  const times = [...bySize].filter(([cpu]) => cpu >= minCpu).map(([, time]) => time)
  return Math.max(Number.NEGATIVE_INFINITY, ...times)
}

function lastRegistrations(launches: readonly StoredLaunch[]): Registrations {
  const last = new Map<string, Map<number, number>>()
  for (const launch of launches) {
    const registrationTime = launch.status?.agent?.registrationTime
    if (registrationTime === undefined) continue
    const time = Date.parse(registrationTime)
    const { cpu } = launch.spec.offer
    for (const key of Object.values(keysOf(launch))) {
      const bySize = last.get(key) ?? new Map<number, number>()
      bySize.set(cpu, Math.max(bySize.get(cpu) ?? 0, time))
      last.set(key, bySize)
    }
  }
  return last
}

/** What of a Launch may rest, by why. */
function keysOf({ spec: { offer, ...spec } }: StoredLaunch) {
  const { cloud, region, instanceType, provisioning } = offer
  const payer = [spec.account ?? "", spec.connection ?? ""]
  const family = familyOf(cloud, instanceType)
  return {
    capacity: JSON.stringify([offerKey(offer)]),
    request: JSON.stringify([offerKey(offer), payer]),
    quota: JSON.stringify([cloud, region, family, provisioning, payer]),
    credentials: JSON.stringify([cloud, payer]),
    region: JSON.stringify([cloud, region, payer]),
  }
}

function refusalOf(launch: StoredLaunch): Refusal | undefined {
  const outcome = outcomeOf(launch)
  const keys = keysOf(launch)
  const { cloud } = launch.spec.offer
  const offer = offerKey(launch.spec.offer)
  const capacity = (time: string) => ({ key: keys.capacity, rest: { cloud, offer }, time: Date.parse(time) })
  switch (outcome.kind) {
    case "refused":
      return outcome.refusal.class === "Capacity"
        ? capacity(outcome.refusal.time)
        : payersRefusal(launch, outcome.refusal.class, Date.parse(outcome.refusal.time))
    case "bootFailed":
      return neverRegistered(launch) ? capacity(outcome.time) : undefined
    case "lost":
      return outcome.reason === "Preempted" ? capacity(outcome.time) : undefined
    default:
      return undefined
  }
}

/** A refusal that is about who pays. Accounts are the same in all projects, names of connections are not. */
function payersRefusal(launch: StoredLaunch, kind: Exclude<RefusalClass, "Capacity">, time: number): Refusal {
  const keys = keysOf(launch)
  const { offer, account, connection } = launch.spec
  const { cloud, region, instanceType, provisioning, cpu } = offer
  const payer = account !== undefined ? { account } : connection !== undefined ? { connection } : {}
  if (kind === "Credentials") return { key: keys.credentials, rest: { cloud, ...payer }, time }
  if (kind === "Region") return { key: keys.region, rest: { cloud, region, ...payer }, time }
  if (kind === "InvalidRequest") return { key: keys.request, rest: { cloud, offer: offerKey(offer), ...payer }, time }
  const family = familyOf(cloud, instanceType)
  return { key: keys.quota, rest: { cloud, region, family, provisioning, minCpu: cpu, ...payer }, time }
}

/**
 * Whether a VM is gone that never registered although it had the whole boot deadline, or that was lost before. A
 * cancelled job ends its Launch, too: such a one has shown nothing. Nor has one whose image failed to start.
 */
export function neverRegistered(launch: StoredLaunch): boolean {
  if (!isOver(launch) || launch.status?.agent !== undefined || launch.status?.vm === undefined) return false
  const { kind } = outcomeOf(launch)
  if (kind === "lost") return true
  if (kind !== "bootFailed") return false
  return new Date(launch.status.vm.terminationTime ?? launch.metadata.creationTimestamp) >= bootDeadline(launch)
}
