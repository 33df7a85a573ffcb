import { isOver, type REFUSALS, type StoredLaunch } from "../apis/launch.ts"
import { offerKey } from "../apis/offer.ts"
import type { Payer, Rest } from "../router/rest.ts"
import { familyOf } from "../router/rest.ts"
import { bootDeadline, outcomeOf } from "./outcome.ts"

type RefusalClass = (typeof REFUSALS)[number]

/** Cooldown times, seconds. */
export interface RestSettings {
  restSeconds: number
  restCapSeconds: number
}

/** Subject of a rejection. */
type Subject = "capacity" | "request" | "quota" | "credentials" | "region" | "type"

/** Rejection: its subject, and the key that identifies it. */
interface Refusal {
  about: Subject
  key: string
  rest: Omit<Rest, "until">
  /** Region of the rejection. */
  region: string
  /** Milliseconds. */
  time: number
}

/** Time of the last registration of a VM that the rejection would have excluded, by key and vCPUs. Milliseconds. */
type Registrations = ReadonlyMap<string, ReadonlyMap<number, number>>

/**
 * Returns the current cooldowns. They are derived from Launches only, so every process gets the same result, also after
 * a restart.
 * Capacity, boot failures and preemptions exclude an offer for every payer. The others exclude for one account: quota a
 * family in a region, from the rejected size up; a forbidden or unreachable region all of it; a bad request one offer;
 * credentials every offer.
 * Each rejection in a row doubles the cooldown. A VM that registers ends the row.
 */
export function restingOffers(launches: readonly StoredLaunch[], now: Date, settings: RestSettings): Rest[] {
  const rows = new Map<string, Refusal[]>()
  for (const refusal of launches.flatMap(refusalsOf)) {
    // A wrong clock wrote a time in the future. Ignoring it bounds each cooldown by now and its maximum.
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
    // Rejections that are further apart than the longest cooldown are no row.
    const inRow = time - last <= 2 * settings.restCapSeconds * 1000
    seconds = Math.min(settings.restCapSeconds, inRow && seconds > 0 ? seconds * 2 : settings.restSeconds)
    last = time
  }
  return [{ ...first.rest, ...(minCpu !== undefined && { minCpu }), until: new Date(last + seconds * 1000) }]
}

/**
 * An organization's denial of a machine type uses the same words as the denial of a region. So a type that two regions
 * denied is in cooldown everywhere, unless a region ever provided it. The cooldown is short, as the regions may be the
 * cause and another region may allow the type.
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

/** Only for rejected subjects: there are many Launches, and most were not rejected. */
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

/** Key of each subject. Launches with the same key concern the same thing. */
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

/** Returns a rejection that concerns the payer. Accounts are the same in all projects; names of connections are not. */
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
 * Returns true if a VM ended without registering after its full boot deadline, or reported that it cannot run
 * containers, or was lost before. A Launch of a cancelled job proves nothing. Nor does one whose image failed to start.
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

/** Conditions under which launching pauses. */
export interface BreakerSettings {
  breakerBoots: number
  breakerPauseSeconds: number
}

/**
 * Returns the payers whose launches are paused because their last VMs in a row never registered. A broken gateway,
 * image or network would otherwise cost money again and again.
 * If one account's VMs form the row, only that account pauses: its own network may be broken. All accounts pause if the
 * row spans several projects and several accounts.
 * After the pause one VM is tried while the others wait. Its failure extends the row. Pure, from the Launches alone.
 */
export function pausedPayers(
  payers: readonly Payer[],
  namespace: string,
  launches: readonly StoredLaunch[],
  { now, settings }: { now: Date; settings: BreakerSettings },
): Rest[] {
  const dead = launches.filter(neverRegistered)
  // The rest is expensive and rarely needed. It would run for each placement over thousands of Launches.
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

/** Returns true if the failures span at least two projects and two accounts, so neither alone is the cause. */
function isOfSeveral(row: readonly StoredLaunch[]): boolean {
  const projects = new Set(row.map(({ spec }) => spec.job.namespace))
  return projects.size > 1 && new Set(row.map(accountKeyOf)).size > 1
}

interface RowOptions {
  now: Date
  settings: BreakerSettings
  /** Filter of Launches; default: all. */
  isOf?: (launch: StoredLaunch) => boolean
  /** Filter of rows; default: all. */
  isRow?: (row: readonly StoredLaunch[]) => boolean
}

/** @param dead Launches that never registered */
function pausedUntil(
  launches: readonly StoredLaunch[],
  dead: readonly StoredLaunch[],
  { now, settings, isOf = () => true, isRow = () => true }: RowOptions,
): Date | undefined {
  if (dead.length < settings.breakerBoots) return undefined
  const own = launches.filter(isOf)
  const registered = own.flatMap(({ status }) => status?.agent?.registrationTime ?? [])
  const lastGood = registered.reduce((last, time) => Math.max(last, Date.parse(time)), 0)
  // A wrong clock wrote a time in the future.
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

/** Delay before a job checks again for the result of a test VM, milliseconds. */
const PROBE_CHECK_MS = 15_000

function failedAt(launch: StoredLaunch): number {
  const outcome = outcomeOf(launch)
  const told = outcome.kind === "lost" || outcome.kind === "bootFailed" ? outcome.time : undefined
  return Date.parse(launch.status?.vm?.terminationTime ?? told ?? launch.metadata.creationTimestamp)
}
