import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import { offerKey } from "../../apis/offer.ts"
import type { Rest } from "../../router/route.ts"
import { bootDeadline, outcomeOf } from "./history.ts"

/** How long what refused is left alone, seconds. */
export interface RestSettings {
  restSeconds: number
  restCapSeconds: number
}

interface Refusal {
  rest: Omit<Rest, "until">
  time: number
}

/**
 * What rests now, derived from nothing but the Launches: every process comes to the same answer, also after a restart.
 * Capacity, boot failures and preemptions rest an offer for everybody; quota and bad requests for that connection;
 * credentials rest the whole connection. Each refusal in a row doubles the rest; a VM that registered ends the row.
 */
export function restingOffers(launches: readonly StoredLaunch[], now: Date, settings: RestSettings): Rest[] {
  const rows = new Map<string, Refusal[]>()
  for (const refusal of launches.map(refusalOf)) {
    if (refusal === undefined) continue
    const key = JSON.stringify([refusal.rest.cloud, refusal.rest.offer, refusal.rest.connection])
    const row = rows.get(key)
    if (row === undefined) rows.set(key, [refusal])
    else row.push(refusal)
  }
  const registered = rows.size === 0 ? new Map<string, number>() : lastRegistrations(launches)
  return [...rows.values()].flatMap((row) => restOf(row, registered, settings)).filter((rest) => rest.until > now)
}

function restOf(row: readonly Refusal[], registered: ReadonlyMap<string, number>, settings: RestSettings): Rest[] {
  const [first] = row
  if (first === undefined) return []
  const since = registered.get(first.rest.offer ?? "") ?? Number.NEGATIVE_INFINITY
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
  return [{ ...first.rest, until: new Date(last + seconds * 1000) }]
}

/** When a VM of each offer registered last, milliseconds. */
function lastRegistrations(launches: readonly StoredLaunch[]): Map<string, number> {
  const last = new Map<string, number>()
  for (const launch of launches) {
    const time = launch.status?.agent?.registrationTime
    if (time === undefined) continue
    const key = offerKey(launch.spec.offer)
    last.set(key, Math.max(last.get(key) ?? 0, Date.parse(time)))
  }
  return last
}

function refusalOf(launch: StoredLaunch): Refusal | undefined {
  const outcome = outcomeOf(launch)
  const { cloud } = launch.spec.offer
  const offer = offerKey(launch.spec.offer)
  const connection = launch.spec.connection === undefined ? {} : { connection: launch.spec.connection }
  switch (outcome.kind) {
    case "refused": {
      const time = Date.parse(outcome.refusal.time)
      if (outcome.refusal.class === "Capacity") return { rest: { cloud, offer }, time }
      if (outcome.refusal.class === "Credentials") return { rest: { cloud, ...connection }, time }
      return { rest: { cloud, offer, ...connection }, time }
    }
    case "bootFailed":
      return neverRegistered(launch) ? { rest: { cloud, offer }, time: Date.parse(outcome.time) } : undefined
    case "lost":
      return outcome.reason === "Preempted" ? { rest: { cloud, offer }, time: Date.parse(outcome.time) } : undefined
    default:
      return undefined
  }
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
