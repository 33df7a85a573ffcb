import { pause } from "../../core/apis/backoff.ts"
import type { Clock } from "../../core/apis/clock.ts"
import { isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { UsagePoint } from "../../core/apis/usage.ts"
import type { JobRef } from "../logs/store.ts"
import { type LaunchPoint, numbersOf, POINT_FIELDS, pointOfNumbers, withPoints } from "./series.ts"
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

/** Points of a Launch that this process has heard of. */
interface Tail {
  launch: number
  /** Numbers of the points that are not stored: 72 bytes a point, and so 22 MB for 10,000 VMs with 30 points each. */
  points: Float64Array
  /** Beginning of the last point that is stored, milliseconds since 1970; -1 for none. */
  stored: number
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
   * Takes all points of a Launch that its agent does not know as stored. Returns the beginning of the last one that is
   * stored. Never rejects: a failed write is logged, and tried again with a later report.
   * @param upTo beginning of the last point that was reported, kept or not
   */
  async take(
    launch: StoredLaunch,
    { points, upTo }: { points: readonly UsagePoint[]; upTo: number },
    isLast: boolean,
  ): Promise<number | undefined> {
    this.#forget()
    const { name } = launch.metadata
    const tail = this.#tailOf(launch)
    tail.points = packed(points.filter(({ time }) => time > tail.stored))
    tail.heardAt = this.#options.clock.monotonic()
    const { namespace, uid } = launch.spec.job
    const write = () => this.#write(tail, { job: { namespace, uid }, points, upTo })
    if (isLast) {
      await this.#inTime(write())
      if (tail.stored >= upTo) this.#tails.delete(name)
    } else if (this.#isDue(tail, points)) void write()
    return tail.stored < 0 ? undefined : tail.stored
  }

  /** Returns all that is known of a job, in order. @param current name of its Launch @throws the store's errors */
  async read(job: JobRef, current: string | undefined): Promise<LaunchPoint[]> {
    const tail = this.#tails.get(current ?? "")
    const stored = await this.#options.store.read(job)
    return tail === undefined ? stored : withPoints(stored, tail.launch, unpacked(tail.points))
  }

  #tailOf({ metadata: { name }, spec }: StoredLaunch): Tail {
    const known = this.#tails.get(name)
    if (known !== undefined) return known
    const tail = { launch: spec.number, points: new Float64Array(), stored: -1, heardAt: 0, isWriting: false }
    this.#tails.set(name, tail)
    return tail
  }

  #isDue({ points: kept, isWriting }: Tail, points: readonly UsagePoint[]): boolean {
    const { clock } = this.#options
    const [first, last] = [points[0], points.at(-1)]
    if (isWriting || kept.length === 0 || first === undefined || last === undefined) return false
    const spanned = (last.time - first.time) / 1000 + last.seconds
    return spanned >= SPAN_SECONDS && this.#writing < WRITES && clock.monotonic() >= this.#retryAt
  }

  async #write(
    tail: Tail,
    { job, points, upTo }: { job: JobRef; points: readonly UsagePoint[]; upTo: number },
  ): Promise<void> {
    const { store, clock, logger } = this.#options
    this.#writing++
    tail.isWriting = true
    try {
      await store.add(job, tail.launch, points)
      tail.stored = Math.max(tail.stored, upTo)
      tail.points = packed(unpacked(tail.points).filter(({ time }) => time > tail.stored))
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

function packed(points: readonly UsagePoint[]): Float64Array {
  return Float64Array.from(points.flatMap(numbersOf))
}

function unpacked(numbers: Float64Array): UsagePoint[] {
  const points: UsagePoint[] = []
  for (let at = 0; at < numbers.length; at += POINT_FIELDS) {
    const point = pointOfNumbers(numbers.subarray(at, at + POINT_FIELDS))
    if (point !== undefined) points.push(point)
  }
  return points
}
