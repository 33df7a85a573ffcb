import { seriesOf } from "../../clouds/machines/machines.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { OWN_CLOUD } from "../../core/apis/machine.ts"
import { offerKey } from "../../core/apis/offer.ts"
import { type Cooldown, isWhole, type Scope } from "../router/cooldown.ts"
import type { Viewer } from "./holders.ts"
import type { LaunchHistory } from "./ledger.ts"
import { type Counts, type Part, type Report, toReport } from "./reports.ts"
import { VmsByScope } from "./vms-by-scope.ts"

/**
 * The one model of cooldowns. docs/cooldowns.md has its table. Each failed launch reports one or more scopes: at once, or
 * together with further reports. A scope is in cooldown for a fixed time, which each further report in a row doubles. A
 * later VM within the scope ends it. All of it follows from the Launches alone, so every process has the same cooldowns,
 * also after a restart.
 */

/** Cooldown times, seconds. */
export interface CooldownSettings {
  cooldownSeconds: number
  maxCooldownSeconds: number
}

/** Age of the oldest reports that count. Every scope has its longest cooldown long before. Milliseconds. */
const HORIZON_MS = 24 * 3_600_000

/** Part of a report. */
interface Mention {
  part: Part
  report: Report
}

/** Scope that is or was in cooldown, with the reports in a row that caused it. */
interface Found {
  scope: Scope
  extent: Part["extent"]
  reports: readonly Report[]
  last: Report
  /** Milliseconds. */
  until: number
}

/** Returns the current cooldowns of a project. Pure. */
export function findCooldowns(
  launches: LaunchHistory,
  viewer: Viewer,
  now: Date,
  settings: CooldownSettings,
): Cooldown[] {
  const reports = launches
    .failed()
    // What an own machine can do now is known from its status, not from what it did before.
    .filter(({ spec }) => spec.offer.cloud !== OWN_CLOUD)
    .flatMap((launch) => toReport(launch, viewer) ?? [])
    // A wrong clock wrote a time in the future. Ignoring it bounds each cooldown by now and its maximum.
    .filter(({ time }) => time <= now.getTime() && time > now.getTime() - HORIZON_MS)
    .sort((a, b) => a.time - b.time)
  if (reports.length === 0) return []
  const vms = new VmsByScope(launches.all(), viewer.namespace, now)
  const found = byScope(reports).flatMap((mentions) => cooldownOf(mentions, vms, settings) ?? [])
  const active = alternating(found, settings).filter(({ until }) => until > now.getTime())
  const counts = launchesByGroup(active)
  return active.map(({ scope, until, last }) => {
    const { group, detail, remedy } = last
    const cause = { group: countText(group, counts.get(group)?.size ?? 0), ...defined({ detail, remedy }) }
    return { ...scope, until: new Date(until), cause }
  })
}

/** Returns the parts of reports, in order, by what they are about. */
function byScope(reports: readonly Report[]): Mention[][] {
  const mentions = reports.flatMap((report) => report.parts.map((part) => ({ report, part })))
  const groups = Map.groupBy(mentions, ({ report, part }) => {
    // The smallest size counts for all sizes.
    const { minCpu, ...scope } = part.scope
    return JSON.stringify([scope, minCpu === undefined, part.extent, report.endedBy])
  })
  return [...groups.values()]
}

/**
 * Returns the cooldown of one scope, also if it has ended. Undefined: too few reports mention it.
 * @param mentions sorted by time
 */
function cooldownOf(mentions: readonly Mention[], vms: VmsByScope, settings: CooldownSettings): Found | undefined {
  const { cooldownSeconds, maxCooldownSeconds } = settings
  const [first] = mentions
  // Most scopes have too few, and a search among the VMs takes longer.
  if (first === undefined || indexOfEnough(mentions) === -1) return undefined
  const { extent } = first.part
  const isGuess = extent === "guess"
  const since = vms.last(scopeOf(mentions), first.report.endedBy, isGuess ? undefined : first.report.time)
  // A VM at any time refutes a guess.
  if (isGuess && since !== Number.NEGATIVE_INFINITY) return undefined
  const inRow = lastInRow(mentions, since, 2 * maxCooldownSeconds * 1000)
  const enough = indexOfEnough(inRow)
  const last = inRow.at(-1)?.report
  if (enough === -1 || last === undefined) return undefined
  // A guess stays short: another region may allow it.
  const doublings = isGuess ? 0 : Math.min(inRow.length - 1 - enough, 30)
  const seconds = Math.min(maxCooldownSeconds, cooldownSeconds * 2 ** doublings)
  const reports = inRow.map(({ report }) => report)
  return { scope: scopeOf(inRow), extent, reports, last, until: last.time + seconds * 1000 }
}

/** Returns the scope of mentions that differ at most in size: from the smallest size on. */
function scopeOf(mentions: readonly Mention[]): Scope {
  const { minCpu, ...scope } = mentions[0]?.part.scope ?? { cloud: "" }
  if (minCpu === undefined) return scope
  return { ...scope, minCpu: Math.min(...mentions.map(({ report }) => report.launch.spec.offer.cpu)) }
}

/** Returns the last mentions after a time that are not further apart than `gap`. Milliseconds. */
function lastInRow(mentions: readonly Mention[], since: number, gap: number): readonly Mention[] {
  const later = mentions.filter(({ report }) => report.time > since)
  const start = later.findLastIndex(({ report }, at) => {
    const previous = later[at - 1]
    return previous === undefined || report.time - previous.report.time > gap
  })
  return later.slice(Math.max(start, 0))
}

/** Returns the index of the first mention that has enough others before it; -1: none has. */
function indexOfEnough(mentions: readonly Mention[]): number {
  const seen = {
    offers: new Set<string>(),
    types: new Set<string>(),
    families: new Set<string>(),
    regions: new Set<string>(),
    onDemand: new Set<string>(),
  }
  return mentions.findIndex(({ report, part }) => {
    const { offer } = report.launch.spec
    const { cloud, instanceType, region, provisioning } = offer
    seen.offers.add(offerKey(offer))
    seen.types.add(instanceType)
    seen.families.add(seriesOf(cloud, instanceType))
    seen.regions.add(region)
    if (provisioning === "onDemand") seen.onDemand.add(offerKey(offer))
    return Object.entries(part.after).every(([name, count]) => seen[name as keyof Counts].size >= count)
  })
}

/**
 * Lets narrow cooldowns outlast the one of their whole connection. So the next trial after it is another offer or region
 * than before.
 */
function alternating(found: readonly Found[], { maxCooldownSeconds }: CooldownSettings): Found[] {
  const wide = new Set(found.filter(({ extent }) => extent === "connection").flatMap(({ reports }) => reports))
  return found.map((each) => {
    if (each.extent !== "own" || !wide.has(each.last)) return each
    return { ...each, until: each.last.time + maxCooldownSeconds * 1000 }
  })
}

function launchesByGroup(found: readonly Found[]): Map<string, Set<StoredLaunch>> {
  const byGroup = new Map<string, Set<StoredLaunch>>()
  for (const { group, launch } of found.flatMap(({ reports }) => reports)) {
    const launches = byGroup.get(group)
    if (launches === undefined) byGroup.set(group, new Set([launch]))
    else launches.add(launch)
  }
  return byGroup
}

function countText(group: string, count: number): string {
  return group
    .replace("{launch}", count === 1 ? "1 launch" : `${count} launches`)
    .replace("{VM}", count === 1 ? "1 VM" : `${count} VMs`)
}

/** Returns the cooldown of a connection that its owner should know: the widest, then the last to end. Pure. */
export function widestCooldown(cooldowns: readonly Cooldown[]): Cooldown | undefined {
  const own = cooldowns.filter(({ offer, connection, account }) => {
    return offer === undefined && (connection !== undefined || account !== undefined)
  })
  return own.toSorted((a, b) => breadth(b) - breadth(a) || b.until.getTime() - a.until.getTime())[0]
}

function breadth(scope: Scope): number {
  if (isWhole(scope)) return 3
  return scope.region === undefined ? 2 : 1
}
