import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import type { Payer, Rest } from "../../router/rest.ts"
import { outcomeOf } from "./history.ts"
import { neverRegistered } from "./resting.ts"

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
