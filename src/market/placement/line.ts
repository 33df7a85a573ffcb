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
  /** Most that its VMs' ends can leave. A job that needs more doesn't start before the caps change, or a month begins. */
  whole: Readonly<Partial<Amounts>>
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
  /** First job ahead that takes room, or for which room is kept. Absent: it can pass all of them. */
  behind?: Waiter
  /** Room that the jobs ahead take, or that is kept for them. */
  taken: ReadonlyMap<CapLevel, Readonly<Amounts>>
  /** Slots of the concurrency groups, by the group's name. */
  inGroups: ReadonlyMap<string, TakenSlots>
}

/** Slots of a concurrency group that jobs ahead take, or that are kept for them. */
export interface TakenSlots {
  slots: number
  /** Smallest limit of these jobs. With more VMs in the group they would have to wait. */
  limit: number
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
 * it is due: then what it needs is kept for it. Nothing is kept for a job that needs more than a whole cap, and only a slot
 * for one whose group is full. Pure.
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
    if (left.isExhausted) behind ??= waiter
    else if (left.serve(waiter, isDue(waiter, terms)).hasRoom) behind ??= waiter
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
    if (left.serve(waiter, isDue(waiter, terms)).starts) found.push(waiter)
  }
  return found
}

/** Share of a job in the line. `hasRoom`: it takes room, or room is kept for it. */
interface Served {
  starts: boolean
  hasRoom: boolean
}

const PASSED: Served = { starts: false, hasRoom: false }

/** Room that remains while jobs take from it, one after the other. */
class Remaining {
  readonly #pools: { pool: Pool; left: Partial<Amounts>; limited: readonly (keyof Amounts)[] }[]
  readonly #liveIn: LineRoom["liveIn"]
  readonly taken = new Map<CapLevel, Amounts>()
  readonly inGroups = new Map<string, TakenSlots>()
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
    for (const waiter of kept) if (this.#canFit(waiter)) this.#takeRoom(waiter)
  }

  #hasNothing(): boolean {
    return this.#pools.some(({ left }) => AMOUNTS.some((name) => name !== "gpus" && (left[name] ?? 1) <= 0))
  }

  /** Gives a job what it needs if it fits, or keeps that for it if it is due. */
  serve(waiter: Waiter, isDue: boolean): Served {
    if (!this.#hasSlot(waiter)) {
      // Jobs of its group have to end first, so kept room would be idle until then.
      if (isDue && this.#canFit(waiter)) this.#takeSlot(waiter)
      return PASSED
    }
    const starts = this.#fits(waiter, "left")
    if (!starts && !(isDue && this.#canFit(waiter))) return PASSED
    this.#takeSlot(waiter)
    this.#takeRoom(waiter)
    return { starts, hasRoom: true }
  }

  #hasSlot({ group }: Waiter): boolean {
    if (group === undefined) return true
    const { slots = 0, limit = group.limit } = this.inGroups.get(group.name) ?? {}
    return this.#liveIn(group.name) + slots < Math.min(limit, group.limit)
  }

  #takeSlot({ group }: Waiter): void {
    if (group === undefined) return
    const { slots = 0, limit = group.limit } = this.inGroups.get(group.name) ?? {}
    this.inGroups.set(group.name, { slots: slots + 1, limit: Math.min(limit, group.limit) })
  }

  /** Returns false for a job that has to wait, whatever VMs end. */
  #canFit(waiter: Waiter): boolean {
    return this.#fits(waiter, "whole")
  }

  #fits(waiter: Waiter, room: "left" | "whole"): boolean {
    const needs = waiter.needs ?? LEAST
    return this.#pools.every(({ pool, left, limited }) => {
      const amounts = room === "left" ? left : pool.whole
      return !pool.concerns(waiter) || limited.every((name) => needs[name] <= (amounts[name] ?? Infinity))
    })
  }

  #takeRoom(waiter: Waiter): void {
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
