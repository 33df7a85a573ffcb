import { pause } from "../../core/apis/backoff.ts"
import type { Clock } from "../../core/apis/clock.ts"
import { isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { USAGE_POINTS, type UsagePoint } from "../../core/apis/usage.ts"
import type { ReportResponse } from "../../core/protocol/protocol.ts"
import type { JobRef } from "../logs/store.ts"
import { PointBuffer } from "./point-buffer.ts"
import { type LaunchPoint, withPoints } from "./series.ts"
import type { UsageStore } from "./store.ts"

/** Time that a tail spans when it is stored, seconds. */
const SPAN_SECONDS = 1800

/** Age from which the tail of a silent VM is forgotten, seconds: it reports to another replica, or has ended. */
const KEPT_SECONDS = 3600

/** Delay between two looks for tails to forget, seconds. */
const FORGET_SECONDS = 60

/** Writes at the same time. A tail for which there is no room is stored with one of its next reports. */
const WRITES = 8

/** Delay after a failed write before the next one, seconds. Finishes are always written. */
const RETRY_SECONDS = 300

/** Longest time that the answer to a finish waits for the store, seconds. */
const FINISH_SECONDS = 5

export interface UsageTailsOptions {
  store: Pick<UsageStore, "add" | "read">
  launches: { get(name: string): StoredLaunch | undefined }
  clock: Clock
  logger: Logger
}

/** Usage as a report has it. Times are in milliseconds since 1970. */
export interface ReportedPoints {
  /** Points in order, each once. */
  points: readonly UsagePoint[]
  /** Beginning of the last point, also of one that was dropped; -1 for none. */
  upTo: number
  /** Beginning of the last point that the agent did not send again; absent: it has sent all that it knows as not stored. */
  after?: number
}

/**
 * Points of a Launch that this process has heard of. Each of its points that begins until `held` is stored or here. Times
 * are in milliseconds since 1970; -1 for none.
 */
interface Tail {
  launch: number
  /** Points that are not stored: 23 MB for 10,000 VMs. */
  points: PointBuffer
  /** Beginning of the last point that is stored. */
  stored: number
  held: number
  /** Monotonic seconds. */
  heardAt: number
  isWriting: boolean
}

/**
 * Usage of running jobs in this replica's memory, and of all jobs before that in the store. A tail is stored
 * when it spans half an hour, and with the finish. The agent keeps its points until they are stored.
 */
export class UsageTails {
  readonly #options: UsageTailsOptions
  readonly #tails = new Map<string, Tail>()
  #writing = 0
  #retryAt = 0
  #forgetAt = 0
  #fails = false

  constructor(options: UsageTailsOptions) {
    this.#options = options
  }

  /** Number of Launches whose points are in memory. */
  get size(): number {
    return this.#tails.size
  }

  /**
   * Takes the points of a report. Returns the answer to it: the last point that is stored, and the last one that is held
   * with all before it. Never rejects: a failed write is logged, and tried again with a later report.
   */
  async take(
    launch: StoredLaunch,
    reported: ReportedPoints,
    isLast: boolean,
  ): Promise<Pick<ReportResponse, "usageStored" | "usageHeld">> {
    this.#forget()
    const { name } = launch.metadata
    const tail = this.#tailOf(launch)
    const isHeld = hold(tail, reported)
    tail.heardAt = this.#options.clock.monotonic()
    const { namespace, uid } = launch.spec.job
    if (isLast) {
      if (tail.points.size > 0) await this.#inTime(this.#write(tail, { namespace, uid }))
      if (tail.points.size === 0) this.#tails.delete(name)
    } else if (this.#isDue(tail)) void this.#write(tail, { namespace, uid })
    return {
      ...(tail.stored >= 0 && { usageStored: tail.stored }),
      ...(isHeld && tail.held >= 0 && { usageHeld: tail.held }),
    }
  }

  /** Returns all that is known of a job, in order. @param current name of its Launch @throws the store's errors */
  async read(job: JobRef, current: string | undefined): Promise<LaunchPoint[]> {
    const tail = this.#tails.get(current ?? "")
    const stored = await this.#options.store.read(job)
    return tail === undefined ? stored : withPoints(stored, tail.launch, tail.points.list())
  }

  #tailOf({ metadata: { name }, spec }: StoredLaunch): Tail {
    const known = this.#tails.get(name)
    if (known !== undefined) return known
    const tail: Tail = {
      launch: spec.number,
      points: new PointBuffer(),
      stored: -1,
      held: -1,
      heardAt: 0,
      isWriting: false,
    }
    this.#tails.set(name, tail)
    return tail
  }

  #isDue({ points, isWriting }: Tail): boolean {
    const { clock } = this.#options
    const hasSpan = points.spanSeconds >= SPAN_SECONDS
    return !isWriting && hasSpan && this.#writing < WRITES && clock.monotonic() >= this.#retryAt
  }

  async #write(tail: Tail, job: JobRef): Promise<void> {
    const { store, clock, logger } = this.#options
    this.#writing++
    tail.isWriting = true
    const { held } = tail
    try {
      await store.add(job, tail.launch, tail.points.list())
      tail.stored = Math.max(tail.stored, held)
      tail.points.removeUntil(tail.stored)
      this.#fails = false
    } catch (err) {
      this.#retryAt = clock.monotonic() + RETRY_SECONDS
      if (!this.#fails) logger.warn({ err, job }, "usage could not be stored; it stays with the agents until a retry")
      this.#fails = true
    } finally {
      this.#writing--
      tail.isWriting = false
    }
  }

  /** Waits for a write, but not for long: a VM that has finished costs money until it has its answer. */
  async #inTime(write: Promise<void>): Promise<void> {
    const waiting = new AbortController()
    const late = pause(this.#options.clock, FINISH_SECONDS, waiting.signal).catch(() => undefined)
    await Promise.race([write, late])
    waiting.abort()
  }

  #forget(): void {
    const { clock, launches } = this.#options
    const now = clock.monotonic()
    if (now < this.#forgetAt) return
    this.#forgetAt = now + FORGET_SECONDS
    for (const [name, { heardAt }] of this.#tails) {
      const launch = launches.get(name)
      if (launch === undefined || isOver(launch) || now - heardAt > KEPT_SECONDS) this.#tails.delete(name)
    }
  }
}

/** Adds reported points to those that are held. Returns false, and adds none, if some in between are missing here. */
function hold(tail: Tail, { points, upTo, after }: ReportedPoints): boolean {
  if (after !== undefined && after > tail.held) return false
  const [size, last] = after === undefined ? [0, tail.stored] : [tail.points.size, tail.held]
  const fresh = points.filter(({ time }) => time > last)
  // No agent has more. If points have come by several ways, it sends those that count.
  if (size + fresh.length > USAGE_POINTS) return false
  if (after === undefined) tail.points.removeUntil(Number.POSITIVE_INFINITY)
  tail.points.add(fresh)
  tail.held = Math.max(last, upTo)
  return true
}
