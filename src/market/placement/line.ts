import type { CapLevel } from "../../core/apis/caps.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import { creationKey } from "../../core/apis/creation-times.ts"
import { type ConcurrencyGroup, JobCondition, JobReason, type StoredJob } from "../../core/apis/job.ts"
import { keyOf } from "../../core/apis/meta.ts"

/** Amounts that a VM takes from a pool. */
export interface Amounts {
  vms: number
  gpus: number
  /** Machine, disk and address, USD per hour. */
  hourlyUsd: number
  /** Expected cost, USD. */
  expectedUsd: number
  /** Most that the VM can cost until its deadline, USD. */
  mostUsd: number
}

const AMOUNTS = ["vms", "gpus", "hourlyUsd", "expectedUsd", "mostUsd"] as const satisfies (keyof Amounts)[]

/** Room for new VMs under the caps of one level. */
export interface Pool {
  level: CapLevel
  /** Returns true for a job that takes from it. */
  concerns(waiter: Waiter): boolean
  /** An absent amount is not limited. */
  left: Readonly<Partial<Amounts>>
}

/** Room for new VMs of a project's jobs. */
export interface LineRoom {
  pools: readonly Pool[]
  /** Returns the number of a concurrency group's jobs that have a VM. */
  liveIn(group: string): number
}

/** Job that waits for room in pools. */
export interface Waiter {
  /** `namespace/name` of the Job. */
  key: string
  uid: string
  /** From −100 to 100. The highest starts first. */
  priority: number
  /** Key that orders objects by their creation (`creationKey`). Of equal priorities the oldest starts first. */
  createdAt: string
  /** Time since which it waits for a place, milliseconds since 1970. */
  waitsSince: number
  group: ConcurrencyGroup | undefined
  /** Needs of its cheapest VM. Undefined: not known yet, so it may need all that is left. */
  needs: Amounts | undefined
}

/** Terms on which jobs pass each other. */
export interface LineTerms {
  now: Date
  /** Time for which jobs behind may pass one that doesn't fit, seconds. Then what becomes free is kept for it. */
  passSeconds: number
}

/** Place of a job in the line. */
export interface LinePlace {
  /** From 1. */
  position: number
  /** First job ahead that it can't pass. Absent: it can pass all of them. */
  behind?: Waiter
  /** Room that the jobs ahead take, or that is kept for them. */
  taken: ReadonlyMap<CapLevel, Readonly<Amounts>>
  /** Slots that the jobs ahead take of their concurrency groups, by the group's name. */
  inGroups: ReadonlyMap<string, number>
}

/** Order of a project's line: by priority, then by age. No two jobs are equal. */
export function compareWaiters(a: Waiter, b: Waiter): number {
  return b.priority - a.priority || (a.createdAt < b.createdAt ? -1 : Number(a.createdAt !== b.createdAt))
}

/** Returns true if the jobs behind may no longer pass a job, because it has waited for the whole time. */
export function isDue({ waitsSince }: Waiter, { now, passSeconds }: LineTerms): boolean {
  return now.getTime() - waitsSince >= passSeconds * 1000
}

/**
 * Returns a job's place behind those ahead of it. Each of them that fits starts first. One that doesn't fit is passed until
 * it is due: then what it needs is kept for it. Pure.
 * @param ahead jobs of its project, in the order of the line
 * @param others jobs of other projects for which room is kept. They don't count for the position.
 */
export function placeBehind(
  ahead: Iterable<Waiter>,
  room: LineRoom,
  terms: LineTerms,
  others: readonly Waiter[] = [],
): LinePlace {
  const left = new Remaining(room, others)
  let position = 1
  let behind = others[0]
  for (const waiter of ahead) {
    position++
    const isExhausted = left.isExhausted
    if (!isExhausted && !left.fits(waiter) && !isDue(waiter, terms)) continue
    behind ??= waiter
    if (!isExhausted) left.take(waiter)
  }
  return { position, ...(behind && { behind }), taken: left.taken, inGroups: left.inGroups }
}

/** Returns the jobs whose turn it is: they fit, and no job ahead of them keeps what they need. Pure. */
export function turns(
  line: Iterable<Waiter>,
  room: LineRoom,
  terms: LineTerms,
  others: readonly Waiter[] = [],
): Waiter[] {
  const left = new Remaining(room, others)
  const found: Waiter[] = []
  for (const waiter of line) {
    if (left.isExhausted) break
    const fits = left.fits(waiter)
    if (fits) found.push(waiter)
    if (fits || isDue(waiter, terms)) left.take(waiter)
  }
  return found
}

/** Room that remains while jobs take from it, one after the other. */
class Remaining {
  readonly #pools: { pool: Pool; left: Partial<Amounts>; limited: readonly (keyof Amounts)[] }[]
  readonly #liveIn: LineRoom["liveIn"]
  readonly taken = new Map<CapLevel, Amounts>()
  readonly inGroups = new Map<string, number>()
  /** True if no job of the project fits, whatever it needs. */
  isExhausted: boolean

  /** @param kept jobs for which room is kept */
  constructor({ pools, liveIn }: LineRoom, kept: readonly Waiter[]) {
    this.#pools = pools.map((pool) => {
      const left = { ...pool.left }
      return { pool, left, limited: AMOUNTS.filter((name) => left[name] !== undefined) }
    })
    this.#liveIn = liveIn
    this.isExhausted = this.#hasNothing()
    for (const waiter of kept) this.take(waiter)
  }

  #hasNothing(): boolean {
    return this.#pools.some(({ left }) => AMOUNTS.some((name) => name !== "gpus" && (left[name] ?? 1) <= 0))
  }

  fits(waiter: Waiter): boolean {
    const { group } = waiter
    if (group !== undefined && this.#liveIn(group.name) + (this.inGroups.get(group.name) ?? 0) >= group.limit)
      return false
    return this.#pools.every(
      ({ pool, left, limited }) =>
        !pool.concerns(waiter) ||
        limited.every((name) => (waiter.needs ?? LEAST)[name] <= (left[name] ?? Number.POSITIVE_INFINITY)),
    )
  }

  take(waiter: Waiter): void {
    const { group } = waiter
    if (group !== undefined) this.inGroups.set(group.name, (this.inGroups.get(group.name) ?? 0) + 1)
    for (const { pool, left } of this.#pools) {
      if (!pool.concerns(waiter)) continue
      const before = this.taken.get(pool.level) ?? NONE
      const taken = { ...before }
      for (const name of AMOUNTS) {
        const needed = waiter.needs?.[name] ?? left[name] ?? 0
        taken[name] = before[name] + needed
        const former = left[name]
        if (former !== undefined) left[name] = Math.max(0, former - needed)
      }
      this.taken.set(pool.level, taken)
    }
    this.isExhausted = this.#hasNothing()
  }
}

const NONE: Readonly<Amounts> = { vms: 0, gpus: 0, hourlyUsd: 0, expectedUsd: 0, mostUsd: 0 }

/** Needs of every VM, at least. */
const LEAST: Readonly<Amounts> = { ...NONE, vms: 1 }

/** Returns a job's place in the line for people, as the end of a sentence; empty if no job waits. */
export function lineText(place: LinePlace | undefined): string {
  if (place === undefined) return ""
  const { position, behind } = place
  const name = behind?.key.slice(behind.key.indexOf("/") + 1)
  const priority = behind === undefined || behind.priority === 0 ? "" : ` (priority ${behind.priority})`
  return `; ${ordinal(position)} in line${name === undefined ? "" : `, behind ${name}${priority}`}`
}

const SUFFIXES: Readonly<Record<string, string>> = { one: "st", two: "nd", few: "rd", other: "th" }
const ORDINALS = new Intl.PluralRules("en", { type: "ordinal" })

function ordinal(number: number): string {
  return `${number}${SUFFIXES[ORDINALS.select(number)]}`
}

/** Reasons for which a job stands in its project's line. */
const LINE_REASONS: readonly (string | undefined)[] = [JobReason.CapReached, JobReason.GroupFull]

/** Returns true if a job's status says that it waits in its project's line. */
export function isInLine({ status, spec }: Pick<StoredJob, "status" | "spec">): boolean {
  return status?.phase === "queued" && LINE_REASONS.includes(status.reason) && spec.cancelled !== true
}

/** Returns the jobs of a project that wait, in the order of their line. What they need is not known. */
export function lineUp(jobs: readonly StoredJob[]): Waiter[] {
  return jobs.map((job) => toWaiter(job)).sort(compareWaiters)
}

/** Returns a job as one that waits. @param needs what its cheapest VM takes; undefined: not known yet */
export function toWaiter(job: StoredJob, needs?: Amounts): Waiter {
  const { metadata, spec, status } = job
  const placed = findCondition(status?.conditions, JobCondition.Placed)
  // A job that was preempted waits since then.
  const since = placed?.status === "False" ? placed.lastTransitionTime : metadata.creationTimestamp
  return {
    key: keyOf({ metadata }),
    uid: metadata.uid,
    priority: spec.priority ?? 0,
    createdAt: creationKey(job),
    waitsSince: Date.parse(since),
    group: spec.concurrencyGroup,
    needs,
  }
}
