import { bootFailureOf, isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import type { Cooldown, LaunchAccount } from "../router/cooldown.ts"
import { accountKey, accountKeyOf } from "./account-key.ts"
import type { LaunchHistory } from "./ledger.ts"
import { bootDeadline, launchOutcome } from "./outcome.ts"

/** Conditions under which launching pauses. */
export interface BreakerSettings {
  breakerBoots: number
  breakerPauseSeconds: number
  /** An account with a VM that registered within this time is not paused for other accounts' VMs. */
  maxCooldownSeconds: number
}

/** Owners of an installation's projects. */
export interface Tenants {
  /** Returns the organization of a namespace's project. */
  organizationOf(namespace: string): string | undefined
  /** Returns the person who created that organization, or the organization if that is unknown. One person may have many. */
  personOf(namespace: string): string | undefined
  /** Number of these persons. */
  persons(): number
}

export interface BreakerTerms {
  now: Date
  settings: BreakerSettings
  /** Absent: the installation counts as one person's. */
  tenants?: Tenants | undefined
}

/**
 * Returns true if a VM ended without registering after its full boot deadline, or reported that it cannot run
 * containers, or was lost before. A Launch of a cancelled job proves nothing. Nor does one whose image failed to start.
 */
export function neverRegistered(launch: StoredLaunch): boolean {
  if (!isOver(launch) || launch.status?.agent !== undefined || launch.status?.vm === undefined) return false
  const { kind } = launchOutcome(launch)
  if (kind === "lost") return true
  if (kind !== "bootFailed") return false
  if (bootFailureOf(launch.status) !== undefined) return true
  const deadline = bootDeadline(launch)
  const end = launch.status.vm.terminationTime ?? launch.metadata.creationTimestamp
  return deadline !== undefined && new Date(end) >= deadline
}

/**
 * Returns the accounts whose launches are paused because their last VMs in a row never registered. A broken gateway,
 * image or network would otherwise cost money again and again.
 * If one account's VMs form the row, only that account pauses: its own network may be broken. All accounts pause if the
 * row spans several persons' organizations and several accounts, except accounts with a good boot lately. In an
 * installation of one person's, several projects are enough, if no VM registered lately.
 * After the pause one VM is tried while the others wait. Its failure extends the row. Pure, from the Launches alone.
 */
export function pausedAccounts(
  launchAccounts: readonly LaunchAccount[],
  namespace: string,
  history: LaunchHistory,
  terms: BreakerTerms,
): Cooldown[] {
  const { now, settings } = terms
  const dead = history.failed().filter(neverRegistered)
  // The rest is expensive and rarely needed. It would run for each placement over thousands of Launches.
  if (dead.length < settings.breakerBoots) return []
  const launches = history.all()
  const everybody = pausedUntil(launches, dead, { now, settings, isRow: (row) => isOfSeveral(row, launches, terms) })
  return launchAccounts.flatMap((launchAccount) => {
    const key = accountKey({ ...launchAccount, namespace })
    const isOf = (launch: StoredLaunch) => accountKeyOf(launch) === key
    const isExempt = everybody === undefined || hadGoodBoot(launches.filter(isOf), terms)
    const own = pausedUntil(launches, dead.filter(isOf), { now, settings, isOf })
    const until = latest(own, isExempt ? undefined : everybody)
    const { credentials: _, ...scope } = launchAccount
    return until === undefined ? [] : [{ ...scope, until, cause: PAUSED }]
  })
}

const PAUSED = { group: "launching is paused, because the last VMs never registered" }

function latest(a: Date | undefined, b: Date | undefined): Date | undefined {
  return a !== undefined && b !== undefined ? new Date(Math.max(a.getTime(), b.getTime())) : (a ?? b)
}

/**
 * Returns true if no single tenant can be the cause of the failures: they span at least two accounts and organizations of
 * two persons. One person may have several organizations, projects and accounts.
 */
function isOfSeveral(row: readonly StoredLaunch[], launches: readonly StoredLaunch[], terms: BreakerTerms): boolean {
  if (new Set(row.map(accountKeyOf)).size < 2) return false
  const namespaces = new Set(row.map(({ spec }) => spec.job.namespace))
  const { tenants } = terms
  if (tenants === undefined || tenants.persons() < 2) return namespaces.size > 1 && !hadGoodBoot(launches, terms)
  const persons = [...namespaces].flatMap((namespace) => tenants.personOf(namespace) ?? [])
  return new Set(persons).size > 1
}

function hadGoodBoot(launches: readonly StoredLaunch[], { now, settings }: BreakerTerms): boolean {
  const since = now.getTime() - settings.maxCooldownSeconds * 1000
  return launches.some((launch) => registeredAt(launch, now) > since)
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
  const lastGood = own.reduce((last, launch) => Math.max(last, registeredAt(launch, now)), 0)
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
      launchOutcome(launch).kind === "live" &&
      Date.parse(launch.metadata.creationTimestamp) >= lastFailure,
  )
  return probing ? new Date(now.getTime() + PROBE_CHECK_MS) : undefined
}

/** Delay before a job checks again for the result of a test VM, milliseconds. */
const PROBE_CHECK_MS = 15_000

function failedAt(launch: StoredLaunch): number {
  const outcome = launchOutcome(launch)
  const told = outcome.kind === "lost" || outcome.kind === "bootFailed" ? outcome.time : undefined
  return Date.parse(launch.status?.vm?.terminationTime ?? told ?? launch.metadata.creationTimestamp)
}

/**
 * Returns the time at which a VM registered, milliseconds; 0 without one. Of a time in the future, which a wrong clock
 * wrote, only the creation of the Launch is certain: else no account would pause until that time.
 */
function registeredAt({ metadata, status }: StoredLaunch, now: Date): number {
  const { registrationTime } = status?.agent ?? {}
  if (registrationTime === undefined) return 0
  const time = Date.parse(registrationTime)
  return time <= now.getTime() ? time : Date.parse(metadata.creationTimestamp)
}
