import { isDeepStrictEqual } from "node:util"
import { seriesOf } from "../../clouds/machines/machines.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import type { REFUSALS, StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import { offerKey } from "../../core/apis/offer.ts"
import { frozenSettings } from "../../core/apis/vm-settings.ts"
import { blocks, type Cooldown, isWhole, type LaunchAccount, type Scope } from "../router/cooldown.ts"
import { neverRegistered } from "./breaker.ts"
import type { LaunchHistory } from "./ledger.ts"
import { preemptedBy } from "./losses.ts"
import { outcomeOf } from "./outcome.ts"
import { accountScope, isAboutSizes, likeText, quotaScope, remedyOf, requestScope, saidOf } from "./refusals.ts"

/**
 * The one model of cooldowns. docs/cooldowns.md has its table. A rejected launch makes a claim: which offers rest, for
 * which accounts. Claims with one key form a row; its length decides how long they rest. Rejections with one code and
 * like text widen the claim. A later VM within the claim ends it. All of it follows from the Launches alone, so every
 * process has the same cooldowns, also after a restart.
 */

type RefusalClass = (typeof REFUSALS)[number]

/** Cooldown times, seconds. */
export interface CooldownSettings {
  cooldownSeconds: number
  maxCooldownSeconds: number
}

/** Project for which cooldowns are calculated: names of connections are its own. */
export interface Viewer {
  namespace: string
  launchAccounts: readonly LaunchAccount[]
}

/** Different offers of one family that an account was refused in a row, after which its type or family rests. */
export const FAMILY_OFFERS = 3
/** Different families that an account was refused in one region in a row, after which the region rests. */
export const REGION_FAMILIES = 3
/** Regions in which one quota was used up, after which it rests in all regions. */
export const QUOTA_REGIONS = 3
/**
 * Different offers that a connection was refused in a row, after which all of it rests. A policy may allow one region of
 * thirty: fewer would not find it. Two causes, or spot and on-demand, stay below 40 launches.
 */
export const CONNECTION_OFFERS = 20
/** The same for words about sizes: a new subscription may use few of a hundred families. */
export const SIZE_OFFERS = 35

/** Age of the oldest rejections that count. Every row has its longest cooldown long before. Milliseconds. */
const HORIZON_MS = 24 * 3_600_000

/** Evidence that ends a row: a VM that the cloud created, or only one that registered. */
type Proof = "created" | "registered"

/** Statement of one rejected launch about offers and accounts. */
interface Claim {
  launch: StoredLaunch
  /** Milliseconds. */
  time: number
  /** Claims with one key concern the same thing. */
  key: string
  scope: Scope
  proof: Proof
  /** Class of the rejection; absent for VMs that were preempted or never registered. */
  kind?: RefusalClass
  /** Cause for people; `{launch}` or `{VM}` stands for the number. */
  group: string
}

/** Claims in a row, and the cooldown that follows from them. */
interface Row {
  claims: readonly Claim[]
  scope: Scope
  until: number
}

/** Returns the current cooldowns of a project. Pure. */
export function cooldownsOf(
  launches: LaunchHistory,
  viewer: Viewer,
  now: Date,
  settings: CooldownSettings,
): Cooldown[] {
  const claims = launches
    .failed()
    .flatMap((launch) => claimsOf(launch, viewer))
    // A wrong clock wrote a time in the future. Ignoring it bounds each cooldown by now and its maximum.
    .filter(({ time }) => time <= now.getTime() && time > now.getTime() - HORIZON_MS)
    .sort((a, b) => a.time - b.time)
  if (claims.length === 0) return []
  const model = new Model(claims, launches.all(), { viewer, now }, settings)
  return withCauses(model.rows().filter(({ until }) => until > now.getTime()))
}

/** Calculates rows from the claims of one project. */
class Model {
  readonly #claims: readonly Claim[]
  readonly #proofs: Proofs
  readonly #settings: CooldownSettings

  /** @param claims sorted by time */
  constructor(
    claims: readonly Claim[],
    launches: readonly StoredLaunch[],
    { viewer, now }: { viewer: Viewer; now: Date },
    settings: CooldownSettings,
  ) {
    this.#claims = claims
    this.#proofs = new Proofs(launches, viewer, now)
    this.#settings = settings
  }

  rows(): Row[] {
    const refusals = this.#claims.filter(isWidened)
    const alike = groups(refusals, likeKey)
    const wide = alike.flatMap((like) => this.#connection(like))
    // A narrower claim outlasts the connection's cooldown, so that the next trial is another offer or region.
    const widened = new Set(wide.flatMap(({ claims }) => claims))
    const base = groups(this.#claims, ({ key }) => key).flatMap((same) => this.#base(same, widened))
    return [
      ...base,
      ...alike.flatMap((like) => [...this.#families(like), ...this.#regions(like)]),
      ...groups(refusals.filter(isOfClass("Region")), typeKey).flatMap((same) => this.#type(same)),
      ...groups(this.#claims.filter(isOfClass("Quota")), quotaKey).flatMap((same) => this.#quota(same)),
      ...wide,
    ]
  }

  #base(same: readonly Claim[], widened: ReadonlySet<Claim>): Row[] {
    const streak = this.#streak(same)
    const last = streak.at(-1)
    if (last === undefined) return []
    const row = this.#row(streak, merged(streak), 0)
    if (!widened.has(last)) return [row]
    return [{ ...row, until: last.time + this.#settings.maxCooldownSeconds * 1000 }]
  }

  /** The type or family, if offers of it are refused in several places. */
  #families(like: readonly Claim[]): Row[] {
    return groups(like.filter(isOfClass("InvalidRequest")), ({ launch }) => family(launch)).flatMap((same) => {
      const [first] = same
      if (first === undefined) return []
      const { cloud, instanceType } = first.launch.spec.offer
      const types = new Set(same.map(({ launch }) => launch.spec.offer.instanceType))
      const what = types.size === 1 ? { instanceType } : { family: seriesOf(cloud, instanceType) }
      return this.#wider(same, { ...holderIn(first.scope), ...what }, (seen) => seen.offers >= FAMILY_OFFERS)
    })
  }

  /** The region, if different families are refused in it. */
  #regions(like: readonly Claim[]): Row[] {
    return groups(like.filter(isOfClass("InvalidRequest")), ({ launch }) => launch.spec.offer.region).flatMap(
      (same) => {
        const [first] = same
        if (first === undefined) return []
        const scope = { ...holderIn(first.scope), region: first.launch.spec.offer.region }
        // Words about sizes are none about the region, until it has rejected many of them.
        const least = isAboutSizes(saidOf(first.launch)) ? SIZE_OFFERS : REGION_FAMILIES
        return this.#wider(same, scope, (seen) => seen.families >= least)
      },
    )
  }

  /** The connection, if many different offers are refused in several regions. */
  #connection(like: readonly Claim[]): Row[] {
    const [first] = like
    if (first === undefined) return []
    // A machine type doesn't cause a rejection that is about a region.
    const leastTypes = first.kind === "InvalidRequest" ? 2 : 1
    const leastOffers = isAboutSizes(saidOf(first.launch)) ? SIZE_OFFERS : CONNECTION_OFFERS
    const isWide = ({ offers, regions, types }: Seen) => offers >= leastOffers && regions > 2 && types >= leastTypes
    return this.#wider(like, holderIn(first.scope), isWide)
  }

  /** A used-up quota in all regions, and all quotas of machines with or without GPUs. */
  #quota(same: readonly Claim[]): Row[] {
    const [first] = same
    if (first === undefined) return []
    const { provisioning, gpu } = first.launch.spec.offer
    const isMany = ({ offers, regions }: Seen) => offers >= CONNECTION_OFFERS && regions >= QUOTA_REGIONS
    const minCpu = leastCpu(same)
    const all = { ...holderIn(first.scope), provisioning, gpu: gpu !== undefined, minCpu }
    const everywhere = groups(same, ({ scope }) => quotaName(scope)).flatMap((named) => {
      const [{ scope } = first] = named
      if (scope.region === undefined) return []
      const { region: _, ...wide } = merged(named)
      return this.#wider(named, wide, (seen) => seen.regions >= QUOTA_REGIONS)
    })
    return [...everywhere, ...this.#wider(same, all, isMany)]
  }

  /**
   * An organization's denial of a machine type uses the same words as the denial of a region. So a type that two regions
   * denied is in cooldown everywhere, unless a region ever provided it. The cooldown is short, as the regions may be the
   * cause and another region may allow the type.
   */
  #type(same: readonly Claim[]): Row[] {
    const last = same.at(-1)
    if (last === undefined || new Set(same.map(({ launch }) => launch.spec.offer.region)).size < 2) return []
    const scope: Scope = {
      ...holderIn(last.scope),
      instanceType: last.launch.spec.offer.instanceType,
      ...(same.every(isOfSpot) && { provisioning: "spot" }),
    }
    if (this.#proofs.last(scope, "created") !== Number.NEGATIVE_INFINITY) return []
    return [{ claims: same, scope, until: last.time + this.#settings.cooldownSeconds * 1000 }]
  }

  /**
   * Returns the rows of a wider scope, if enough different offers are in it. Accounts and policies may forbid only spot.
   * So rejections of spot VMs alone are about spot.
   */
  #wider(claims: readonly Claim[], scope: Scope, isEnough: (seen: Seen) => boolean): Row[] {
    if (scope.provisioning !== undefined) return this.#rowOf(claims, scope, isEnough)
    const spot: Scope = { ...scope, provisioning: "spot" }
    const isOfAll = (row: Row) => !row.claims.every(isOfSpot)
    return [
      ...this.#rowOf(claims, scope, isEnough).filter(isOfAll),
      ...this.#rowOf(claims.filter(isOfSpot), spot, isEnough),
    ]
  }

  #rowOf(claims: readonly Claim[], scope: Scope, isEnough: (seen: Seen) => boolean): Row[] {
    const streak = this.#streak(claims, scope)
    const reached = indexWhere(streak, isEnough)
    return reached === -1 ? [] : [this.#row(streak, scope, reached)]
  }

  /** Each claim after the one at `from` doubles the time. */
  #row(streak: readonly Claim[], scope: Scope, from: number): Row {
    const { cooldownSeconds, maxCooldownSeconds } = this.#settings
    const doubled = cooldownSeconds * 2 ** Math.min(streak.length - 1 - from, 30)
    const seconds = Math.min(maxCooldownSeconds, doubled)
    return { claims: streak, scope, until: (streak.at(-1)?.time ?? 0) + seconds * 1000 }
  }

  /**
   * Returns the last claims in a row: since the last VM that disproves them, and not further apart than twice the longest
   * cooldown.
   */
  #streak(claims: readonly Claim[], scope: Scope = merged(claims)): readonly Claim[] {
    const proof = claims.some((claim) => claim.proof === "registered") ? "registered" : "created"
    const since = this.#proofs.last(scope, proof, claims[0]?.time)
    const gap = 2 * this.#settings.maxCooldownSeconds * 1000
    let from = claims.length
    for (let at = claims.length - 1; at >= 0; at--) {
      const { time } = claims[at] as Claim
      const next = claims[at + 1]
      if (time <= since || (next !== undefined && next.time - time > gap)) break
      from = at
    }
    return claims.slice(from)
  }
}

/** Numbers of different things in the first claims of a row. */
interface Seen {
  offers: number
  types: number
  families: number
  regions: number
}

/** Returns the index of the first claim at which the claims up to it are enough; -1: never. */
function indexWhere(claims: readonly Claim[], isEnough: (seen: Seen) => boolean): number {
  const sets = {
    offers: new Set<string>(),
    types: new Set<string>(),
    families: new Set<string>(),
    regions: new Set<string>(),
  }
  return claims.findIndex(({ launch }) => {
    const { offer } = launch.spec
    sets.offers.add(offerKey(offer))
    sets.types.add(offer.instanceType)
    sets.families.add(family(launch))
    sets.regions.add(offer.region)
    const { offers, types, families, regions } = sets
    return isEnough({ offers: offers.size, types: types.size, families: families.size, regions: regions.size })
  })
}

function family({ spec: { offer } }: StoredLaunch): string {
  return seriesOf(offer.cloud, offer.instanceType)
}

function groups<T>(items: readonly T[], keyOf: (item: T) => string): T[][] {
  return [...Map.groupBy(items, keyOf).values()]
}

/** Returns true for a claim that like claims widen: it is of an account's own, and not of all its offers. */
function isWidened({ kind, scope }: Claim): boolean {
  if (kind === "Account") return scope.region !== undefined
  return kind === "InvalidRequest" || kind === "Region"
}

function isOfSpot({ launch }: Claim): boolean {
  return launch.spec.offer.provisioning === "spot"
}

function isOfClass(kind: RefusalClass): (claim: Claim) => boolean {
  return (claim) => claim.kind === kind
}

function holderIn({ cloud, connection, account }: Scope): Scope {
  return { cloud, ...defined({ connection, account }) }
}

/** Returns the scope of claims with one key: from the smallest size that was refused. */
function merged(claims: readonly Claim[]): Scope {
  const { minCpu, ...scope } = claims[0]?.scope ?? { cloud: "" }
  return minCpu === undefined ? scope : { ...scope, minCpu: leastCpu(claims) }
}

function leastCpu(claims: readonly Claim[]): number {
  return Math.min(...claims.map(({ launch }) => launch.spec.offer.cpu))
}

/** Rejections with one key have one cause: the connection, the class, the code and the words are the same. */
function likeKey({ launch, kind, scope }: Claim): string {
  const said = saidOf(launch)
  return JSON.stringify([holderIn(scope), kind, said.code, likeText(said)])
}

function typeKey({ launch, scope }: Claim): string {
  return JSON.stringify([holderIn(scope), launch.spec.offer.instanceType])
}

function quotaKey({ launch, scope }: Claim): string {
  const { provisioning, gpu } = launch.spec.offer
  return JSON.stringify([holderIn(scope), provisioning, gpu !== undefined])
}

function quotaName({ region: _, minCpu, ...scope }: Scope): string {
  return JSON.stringify([scope, minCpu === undefined])
}

/** Times of the VMs that a project or an account got. */
class Proofs {
  readonly #launches: readonly StoredLaunch[]
  readonly #namespace: string
  readonly #now: Date
  /** VMs by offer, machine type, region and cloud. */
  #byKey: ReadonlyMap<string, readonly Got[]> | undefined
  /** The same, the last first, by proof and key. */
  readonly #sorted = new Map<string, readonly Got[]>()

  constructor(launches: readonly StoredLaunch[], { namespace }: Viewer, now: Date) {
    this.#launches = launches
    this.#now = now
    this.#namespace = namespace
  }

  /**
   * Returns the time of the last VM that a cooldown of this scope would have prevented, in milliseconds. VMs before
   * `from` do not count.
   */
  last(scope: Scope, proof: Proof, from = Number.NEGATIVE_INFINITY): number {
    // There are thousands of VMs, and most are older than the claims.
    for (const got of this.#of(keyFor(scope), proof)) {
      if (got[proof] < from) break
      if (this.#isAbout(scope, got.launch)) return got[proof]
    }
    return Number.NEGATIVE_INFINITY
  }

  #of(key: string, proof: Proof): readonly Got[] {
    const known = this.#sorted.get(`${proof} ${key}`)
    if (known !== undefined) return known
    this.#byKey ??= gotByKey(this.#launches, this.#now)
    const sorted = (this.#byKey.get(key) ?? [])
      .filter((got) => got[proof] !== Number.NEGATIVE_INFINITY)
      .sort((a, b) => b[proof] - a[proof])
    this.#sorted.set(`${proof} ${key}`, sorted)
    return sorted
  }

  #isAbout(scope: Scope, { spec }: StoredLaunch): boolean {
    // Another project's connection of this name is another one.
    if (scope.connection !== undefined && spec.job.namespace !== this.#namespace) return false
    return blocks(scope, spec.offer, accountOf(spec))
  }
}

/** Returns the key of the shortest list with all VMs in a scope. */
function keyFor({ cloud, region, instanceType, offer }: Scope): string {
  if (offer !== undefined) return offer
  if (instanceType !== undefined) return `${cloud} type ${instanceType}`
  return region === undefined ? cloud : `${cloud} region ${region}`
}

interface Got {
  launch: StoredLaunch
  created: number
  registered: number
}

function gotByKey(launches: readonly StoredLaunch[], now: Date): Map<string, Got[]> {
  const byKey = new Map<string, Got[]>()
  const add = (key: string, got: Got) => {
    const list = byKey.get(key)
    if (list === undefined) byKey.set(key, [got])
    else list.push(got)
  }
  for (const launch of launches) {
    const { metadata, status } = launch
    const { vm, agent, refusal } = status ?? {}
    if (refusal !== undefined || (vm === undefined && agent === undefined)) continue
    // Of a time in the future, which a wrong clock wrote, only the creation of the Launch is certain.
    const knownAt = (time: string) => Date.parse(Date.parse(time) <= now.getTime() ? time : metadata.creationTimestamp)
    const registered = agent === undefined ? Number.NEGATIVE_INFINITY : knownAt(agent.registrationTime)
    const created = vm?.createTime === undefined ? Number.NEGATIVE_INFINITY : knownAt(vm.createTime)
    const got = { launch, registered, created: Math.max(created, registered) }
    const { offer } = launch.spec
    const { cloud, region, instanceType } = offer
    for (const key of [keyFor({ cloud }), keyFor({ cloud, region }), keyFor({ cloud, instanceType }), offerKey(offer)])
      add(key, got)
  }
  return byKey
}

function accountOf({ offer, connection, account }: StoredLaunch["spec"]): LaunchAccount {
  return {
    cloud: offer.cloud,
    ...defined({ connection, account }),
  }
}

function claimsOf(launch: StoredLaunch, viewer: Viewer): Claim[] {
  const outcome = outcomeOf(launch)
  switch (outcome.kind) {
    case "refused": {
      const { class: kind, time } = outcome.refusal
      return kind === "Capacity"
        ? [cloudsWord(launch, time, `${launch.spec.offer.cloud} rejected {launch} for lack of capacity`)]
        : rejection(launch, kind, Date.parse(time), viewer)
    }
    case "bootFailed":
      return neverRegistered(launch) ? agentsWord(launch, outcome.time, "{VM} never registered", viewer) : []
    case "lost": {
      const witness = preemptedBy(launch)
      if (witness === "cloud") return [cloudsWord(launch, outcome.time, `${launch.spec.offer.cloud} preempted {VM}`)]
      // All projects share Berth's own account. So there the word of a project's VM counts for that project alone.
      const isShared = launch.spec.connection === undefined && launch.spec.job.namespace !== viewer.namespace
      if (witness === undefined || launch.spec.offer.provisioning !== "spot" || isShared) return []
      return agentsWord(launch, outcome.time, "{VM} reported a preemption", viewer)
    }
    default:
      return []
  }
}

/** A cloud's own word on its capacity: the offer rests for everybody. */
function cloudsWord(launch: StoredLaunch, time: string, group: string): Claim {
  const { offer } = launch.spec
  const scope = { cloud: offer.cloud, offer: offerKey(offer) }
  return { launch, time: Date.parse(time), key: JSON.stringify(scope), scope, proof: "registered", group }
}

/** The word of a VM, or its silence: the offer rests for its own account. */
function agentsWord(launch: StoredLaunch, time: string, what: string, viewer: Viewer): Claim[] {
  const holder = accountHolder(launch, viewer)
  if (holder === undefined) return []
  const scope = { ...holder, offer: offerKey(launch.spec.offer) }
  const group = `${what} in ${whose(launch, holder)}`
  return [{ launch, time: Date.parse(time), key: JSON.stringify(scope), scope, proof: "registered", group }]
}

/** A rejection by an account, its credentials or its quota. */
function rejection(
  launch: StoredLaunch,
  kind: Exclude<RefusalClass, "Capacity">,
  time: number,
  viewer: Viewer,
): Claim[] {
  const isQuota = kind === "Quota"
  const holder = isQuota ? accountHolder(launch, viewer) : connectionHolder(launch, kind, viewer)
  if (holder === undefined) return []
  const scope = { ...holder, ...offersOf(launch, kind) }
  // The smallest size counts for all sizes.
  const { minCpu, ...rest } = scope
  const key = JSON.stringify([rest, minCpu === undefined])
  const { cloud } = launch.spec.offer
  const verb = kind === "Unavailable" ? "did not answer" : "rejected"
  const group = `${cloud} ${verb} {launch} of ${whose(launch, holder)}${isQuota ? " for a quota" : ""}`
  return [{ launch, time, key, scope, proof: "created", kind, group }]
}

/** Returns the offers that a rejection is about at once, before it is widened. */
function offersOf(launch: StoredLaunch, kind: Exclude<RefusalClass, "Capacity">): Omit<Scope, "cloud"> {
  const { offer } = launch.spec
  switch (kind) {
    case "Credentials":
      return {}
    case "Account":
      return accountScope(saidOf(launch))
    case "Region":
      // The policy may forbid only spot.
      return { region: offer.region, ...(offer.provisioning === "spot" && { provisioning: "spot" }) }
    case "Unavailable":
      return { region: offer.region }
    case "InvalidRequest":
      return requestScope(saidOf(launch))
    case "Quota":
      return quotaScope(saidOf(launch))
  }
}

/**
 * Returns the holder of credentials, policies and settings: the connection. Undefined for another project's connection,
 * and for credentials or settings of VMs that were replaced since.
 */
function connectionHolder(
  launch: StoredLaunch,
  kind: RefusalClass,
  { namespace, launchAccounts }: Viewer,
): Scope | undefined {
  const { offer, connection, account, job } = launch.spec
  if (connection === undefined) return { cloud: offer.cloud, ...defined({ account }) }
  if (job.namespace !== namespace) return undefined
  const used = launch.metadata.annotations?.[ANNOTATIONS.credentials]
  const current = launchAccounts.find((each) => each.cloud === offer.cloud && each.connection === connection)
  const isReplaced = used !== undefined && current?.credentials !== undefined && current.credentials !== used
  if (isReplaced || (OF_SETTINGS.includes(kind) && current !== undefined && haveSettingsChanged(launch, current)))
    return undefined
  return { cloud: offer.cloud, connection }
}

/** Classes of rejections that the connection's network or disk may have caused. */
const OF_SETTINGS: readonly RefusalClass[] = ["Account", "Region", "InvalidRequest"]

/** Returns true if a VM in the region would get other settings of its connection now. */
function haveSettingsChanged({ spec: { offer, network, disk } }: StoredLaunch, { settings }: LaunchAccount): boolean {
  const { requiredGib: _, ...own } = disk ?? {}
  const now = frozenSettings(settings ?? {}, offer)
  return now === undefined || !isDeepStrictEqual([network, own], [now.network, now.disk ?? {}])
}

/** Returns the holder of quotas and VMs: the account, or the connection if its account is not known. */
function accountHolder({ spec }: StoredLaunch, { namespace }: Viewer): Scope | undefined {
  const { offer, connection, account, job } = spec
  if (account !== undefined) return { cloud: offer.cloud, account }
  if (connection === undefined) return { cloud: offer.cloud }
  return job.namespace === namespace ? { cloud: offer.cloud, connection } : undefined
}

function whose({ spec }: StoredLaunch, { connection, account }: Scope): string {
  if (connection !== undefined) return `connection ${connection}`
  return account === undefined ? spec.offer.cloud : `account ${account}`
}

/** Maximum characters of a cloud's message within another message. */
const DETAIL_CHARACTERS = 400

/** Returns the cooldowns of rows, with the number of launches that each cause had. */
function withCauses(rows: readonly Row[]): Cooldown[] {
  const launches = new Map<string, Set<StoredLaunch>>()
  for (const { group, launch } of rows.flatMap(({ claims }) => claims)) {
    const counted = launches.get(group)
    if (counted === undefined) launches.set(group, new Set([launch]))
    else counted.add(launch)
  }
  return rows.map(({ scope, until, claims }) => {
    const last = claims.at(-1) as Claim
    const { kind, launch, group } = last
    const remedy = kind === undefined ? undefined : remedyOf(kind, saidOf(launch))
    const detail = kind === undefined || kind === "Capacity" ? "" : detailOf(launch)
    const cause = {
      group: counted(group, launches.get(group)?.size ?? 0),
      ...(detail !== "" && { detail }),
      ...defined({ remedy }),
    }
    return { ...scope, until: new Date(until), cause }
  })
}

function counted(group: string, count: number): string {
  return group
    .replace("{launch}", count === 1 ? "1 launch" : `${count} launches`)
    .replace("{VM}", count === 1 ? "1 VM" : `${count} VMs`)
}

function detailOf(launch: StoredLaunch): string {
  const { code, message } = saidOf(launch)
  return cutTo(message.includes(code) ? message : `${code}: ${message}`, DETAIL_CHARACTERS)
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
