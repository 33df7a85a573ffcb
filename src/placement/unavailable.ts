import { isOver, type REFUSALS, type StoredLaunch } from "../apis/launch.ts"
import { offerKey } from "../apis/offer.ts"
import type { Payer, Rest } from "../router/rest.ts"
import { familyOf } from "../router/rest.ts"
import { bootDeadline, outcomeOf } from "./outcome.ts"

type RefusalClass = (typeof REFUSALS)[number]

/** How long what refused is left alone, seconds. */
export interface RestSettings {
  restSeconds: number
  restCapSeconds: number
}

/** What a refusal can be about. */
type Subject = "capacity" | "request" | "quota" | "credentials" | "region" | "type"

/** What rests after a refusal, and what tells refusals of the same thing. */
interface Refusal {
  about: Subject
  key: string
  rest: Omit<Rest, "until">
  /** Where it was. */
  region: string
  /** Milliseconds. */
  time: number
}

/** By key, and by the vCPUs of the machine: when a VM registered last that would have been refused. Milliseconds. */
type Registrations = ReadonlyMap<string, ReadonlyMap<number, number>>

/**
 * What rests now, derived from nothing but the Launches: every process comes to the same answer, also after a restart.
 * Capacity, boot failures and preemptions rest an offer for everybody; quota a family in a region, from the refused
 * size on, for that account; a region that it may not use, or that gives no answer, all of the region for it; bad requests an
 * offer for it; credentials all that it pays. Each refusal in a row doubles the rest; a VM that registered ends the row.
 */
export function restingOffers(launches: readonly StoredLaunch[], now: Date, settings: RestSettings): Rest[] {
  const rows = new Map<string, Refusal[]>()
  for (const refusal of launches.flatMap(refusalsOf)) {
    // A time to come was written by a wrong clock: nothing ends by it. So each rest ends by now and its maximum.
    if (refusal.time > now.getTime()) continue
    const row = rows.get(refusal.key)
    if (row === undefined) rows.set(refusal.key, [refusal])
    else row.push(refusal)
  }
  const subjects = new Set([...rows.values()].flatMap((row) => row.map(({ about }) => about)))
  const registered = lastRegistrations(launches, [...subjects])
  return [...rows.values()].flatMap((row) => restOf(row, registered, settings)).filter((rest) => rest.until > now)
}

function restOf(row: readonly Refusal[], registered: Registrations, settings: RestSettings): Rest[] {
  const [first] = row
  if (first === undefined) return []
  if (first.about === "type") return restOfType(row, registered, settings)
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

/**
 * An organization that denies machine types says so in the words in which it denies regions. So a type that two regions have
 * denied rests everywhere, unless it has been had anywhere: and shortly, as it may yet be the regions, and the type is wanted
 * in the one that is allowed.
 */
function restOfType(row: readonly Refusal[], registered: Registrations, { restSeconds }: RestSettings): Rest[] {
  const [first] = row
  if (first === undefined || registered.has(first.key)) return []
  if (new Set(row.map(({ region }) => region)).size < 2) return []
  const last = Math.max(...row.map(({ time }) => time))
  return [{ ...first.rest, until: new Date(last + restSeconds * 1000) }]
}

function lastTime(bySize: ReadonlyMap<number, number> = new Map(), minCpu: number): number {
  const times = [...bySize].filter(([cpu]) => cpu >= minCpu).map(([, time]) => time)
  return Math.max(Number.NEGATIVE_INFINITY, ...times)
}

/** Only of what is asked for: there are many Launches, and mostly none was refused. */
function lastRegistrations(launches: readonly StoredLaunch[], subjects: readonly Subject[]): Registrations {
  const last = new Map<string, Map<number, number>>()
  for (const launch of subjects.length === 0 ? [] : launches) {
    const registrationTime = launch.status?.agent?.registrationTime
    if (registrationTime === undefined) continue
    const time = Date.parse(registrationTime)
    const { cpu } = launch.spec.offer
    for (const key of subjects.map((about) => KEYS[about](launch))) {
      const bySize = last.get(key) ?? new Map<number, number>()
      bySize.set(cpu, Math.max(bySize.get(cpu) ?? 0, time))
      last.set(key, bySize)
    }
  }
  return last
}

/** What tells that Launches are about the same thing. */
const KEYS: Record<Subject, (launch: StoredLaunch) => string> = {
  capacity: ({ spec: { offer } }) => JSON.stringify([offerKey(offer)]),
  request: ({ spec }) => JSON.stringify([offerKey(spec.offer), payerOf(spec)]),
  quota: ({ spec }) => {
    const { cloud, region, instanceType, provisioning } = spec.offer
    return JSON.stringify([cloud, region, familyOf(cloud, instanceType), provisioning, payerOf(spec)])
  },
  credentials: ({ spec }) => JSON.stringify([spec.offer.cloud, payerOf(spec)]),
  region: ({ spec }) => JSON.stringify([spec.offer.cloud, spec.offer.region, payerOf(spec)]),
  type: ({ spec }) => JSON.stringify([spec.offer.cloud, "", spec.offer.instanceType, payerOf(spec)]),
}

function payerOf({ account = "", connection = "" }: StoredLaunch["spec"]): string[] {
  return [account, connection]
}

function refusalsOf(launch: StoredLaunch): Refusal[] {
  const outcome = outcomeOf(launch)
  const { offer } = launch.spec
  const capacity = (time: string): Refusal[] => {
    const rest = { cloud: offer.cloud, offer: offerKey(offer) }
    return [{ about: "capacity", key: KEYS.capacity(launch), rest, region: offer.region, time: Date.parse(time) }]
  }
  switch (outcome.kind) {
    case "refused":
      return outcome.refusal.class === "Capacity"
        ? capacity(outcome.refusal.time)
        : payersRefusals(launch, outcome.refusal.class, Date.parse(outcome.refusal.time))
    case "bootFailed":
      return neverRegistered(launch) ? capacity(outcome.time) : []
    case "lost":
      return outcome.reason === "Preempted" ? capacity(outcome.time) : []
    default:
      return []
  }
}

/** A refusal that is about who pays. Accounts are the same in all projects, names of connections are not. */
function payersRefusals(launch: StoredLaunch, kind: Exclude<RefusalClass, "Capacity">, time: number): Refusal[] {
  const { offer, account, connection } = launch.spec
  const { cloud, region, instanceType, provisioning, cpu } = offer
  const payer = account !== undefined ? { account } : connection !== undefined ? { connection } : {}
  const refusal = (about: Subject, what: Omit<Rest, "until" | "cloud">): Refusal => {
    return { about, key: KEYS[about](launch), rest: { cloud, ...what, ...payer }, region, time }
  }
  switch (kind) {
    case "Credentials":
      return [refusal("credentials", {})]
    case "Unavailable":
      return [refusal("region", { region })]
    case "Region":
      return [refusal("region", { region }), refusal("type", { instanceType })]
    case "InvalidRequest":
      return [refusal("request", { offer: offerKey(offer) })]
    case "Quota": {
      const family = familyOf(cloud, instanceType)
      return [refusal("quota", { region, family, provisioning, minCpu: cpu })]
    }
  }
}

/**
 * Whether a VM is gone that never registered although it had the whole boot deadline, that said itself that it can run no
 * container, or that was lost before. A cancelled job ends its Launch, too: such a one has shown nothing. Nor has one whose
 * image failed to start.
 */
export function neverRegistered(launch: StoredLaunch): boolean {
  if (!isOver(launch) || launch.status?.agent !== undefined || launch.status?.vm === undefined) return false
  const { kind } = outcomeOf(launch)
  if (kind === "lost") return true
  if (kind !== "bootFailed") return false
  if (launch.status.bootFailure !== undefined) return true
  const deadline = bootDeadline(launch)
  const end = launch.status.vm.terminationTime ?? launch.metadata.creationTimestamp
  return deadline !== undefined && new Date(end) >= deadline
}

/** When launching is paused. */
export interface BreakerSettings {
  breakerBoots: number
  breakerPauseSeconds: number
}

/**
 * The payers of a project that no VM is launched for now, because the last boots in a row never registered (a broken
 * gateway, image or network would otherwise be paid for again and again). A row of one account's boots pauses that account:
 * its own network may be what is broken. Everybody pauses when the row is of several projects' and several accounts' boots.
 * After the pause one VM is let through: while it boots, the others wait on, and its failure is the next in the row.
 * Pure, from the Launches alone.
 */
export function pausedPayers(
  payers: readonly Payer[],
  namespace: string,
  launches: readonly StoredLaunch[],
  { now, settings }: { now: Date; settings: BreakerSettings },
): Rest[] {
  const dead = launches.filter(neverRegistered)
  // The rest is seldom worth its time: this is asked for each placement, and there may be thousands of Launches.
  if (dead.length < settings.breakerBoots) return []
  const everybody = pausedUntil(launches, dead, { now, settings, isRow: isOfSeveral })
  return payers.flatMap((payer) => {
    const key = accountKey({ ...payer, namespace })
    const isOf = (launch: StoredLaunch) => accountKeyOf(launch) === key
    const until = latest(pausedUntil(launches, dead.filter(isOf), { now, settings, isOf }), everybody)
    return until === undefined ? [] : [{ ...payer, until }]
  })
}

function latest(a: Date | undefined, b: Date | undefined): Date | undefined {
  return a !== undefined && b !== undefined ? new Date(Math.max(a.getTime(), b.getTime())) : (a ?? b)
}

/** Accounts are the same in all projects, names of connections are not. */
function accountKey({ cloud, account, connection, namespace }: Payer & { namespace: string }): string {
  return JSON.stringify(account === undefined ? [cloud, namespace, connection ?? ""] : [cloud, account])
}

function accountKeyOf({ spec: { offer, account, connection, job } }: StoredLaunch): string {
  const payer = {
    cloud: offer.cloud,
    ...(account !== undefined && { account }),
    ...(connection !== undefined && { connection }),
  }
  return accountKey({ ...payer, namespace: job.namespace })
}

/** Whether nobody alone is to blame: with one account in several projects it is the account, with one project the project. */
function isOfSeveral(row: readonly StoredLaunch[]): boolean {
  const projects = new Set(row.map(({ spec }) => spec.job.namespace))
  return projects.size > 1 && new Set(row.map(accountKeyOf)).size > 1
}

interface RowOptions {
  now: Date
  settings: BreakerSettings
  /** Whose launches; default: everybody's. */
  isOf?: (launch: StoredLaunch) => boolean
  /** Whether boots in a row are one that counts. */
  isRow?: (row: readonly StoredLaunch[]) => boolean
}

/** @param dead those of them that never registered */
function pausedUntil(
  launches: readonly StoredLaunch[],
  dead: readonly StoredLaunch[],
  { now, settings, isOf = () => true, isRow = () => true }: RowOptions,
): Date | undefined {
  if (dead.length < settings.breakerBoots) return undefined
  const own = launches.filter(isOf)
  const registered = own.flatMap(({ status }) => status?.agent?.registrationTime ?? [])
  const lastGood = registered.reduce((last, time) => Math.max(last, Date.parse(time)), 0)
  // A time to come was written by a wrong clock.
  const row = dead.filter((launch) => failedAt(launch) > lastGood && failedAt(launch) <= now.getTime())
  if (row.length < settings.breakerBoots || !isRow(row)) return undefined
  const lastFailure = Math.max(...row.map(failedAt))
  const pause = settings.breakerPauseSeconds * 1000
  const end = new Date(lastFailure + pause)
  if (end > now) return end
  const probing = own.some(
    (launch) =>
      !isOver(launch) &&
      launch.status?.agent === undefined &&
      outcomeOf(launch).kind === "live" &&
      Date.parse(launch.metadata.creationTimestamp) >= lastFailure,
  )
  return probing ? new Date(now.getTime() + PROBE_CHECK_MS) : undefined
}

/** How long those wait who find a probe under way, before they look again. */
const PROBE_CHECK_MS = 15_000

function failedAt(launch: StoredLaunch): number {
  const outcome = outcomeOf(launch)
  const told = outcome.kind === "lost" || outcome.kind === "bootFailed" ? outcome.time : undefined
  return Date.parse(launch.status?.vm?.terminationTime ?? told ?? launch.metadata.creationTimestamp)
}
