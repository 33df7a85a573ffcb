import { secondsBetween, timestamp } from "../../core/apis/clock.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import {
  type PendingDelivery,
  type RecentDelivery,
  type StoredWebhook,
  WEBHOOK_LISTS,
  type WebhookEvent,
  type WebhookStatus,
} from "../../core/apis/webhook.ts"
import { type RetrySettings, retryAfter } from "../../core/webhooks/retry.ts"

/** Times of a webhook's backlog, seconds. */
export interface BacklogSettings {
  /**
   * Longest time for which an end that is not delivered keeps its job unsettled. Then it stays in `pending`, or counts
   * as missed if there are too many.
   */
  holdSeconds: number
  /** The same for an end that was never sent, because its project has reached its limit of messages a minute. */
  limitedHoldSeconds: number
  /**
   * Distance of the cursor from now. An end is written a moment after its time, and the clocks of two operators may
   * differ.
   */
  marginSeconds: number
  retry: RetrySettings
}

/** Event that a webhook gets. */
export interface Delivery {
  /** Id of the message. */
  id: string
  type: WebhookEvent
  subject: string
  /** RFC 3339. */
  time: string
  /** Id of the job that ended. Absent: another event, which no status keeps. */
  jobUid?: string
  /** Number of failed attempts. */
  attempts: number
  firstAttemptTime?: string
  nextAttemptTime?: string
  error?: string
  /** True if the job is no longer in the cache. */
  hasLeft?: boolean
}

/** Outcome of an attempt. No message contains a part of the secrets. */
export interface AttemptOutcome {
  /** `gone`: the receiver answered 410. */
  is: "delivered" | "failed" | "gone"
  statusCode?: number
  durationMs?: number
  error?: string
}

/**
 * Returns the time from which ends of jobs count as not sent. A cursor in the future is of an operator with a fast clock, so it
 * says nothing: all unsettled ends since the webhook's creation count, and the receiver may get some again, under the same id.
 * A cursor within the margin may be so too, of a clock that is a little fast.
 */
export function backlogStart(
  { metadata: { creationTimestamp }, status }: Pick<StoredWebhook, "metadata" | "status">,
  now: Date,
  { marginSeconds }: Pick<BacklogSettings, "marginSeconds">,
): string {
  const cursor = status?.cursor
  if (cursor === undefined || Date.parse(cursor) > now.getTime()) return creationTimestamp
  const latest = timestamp(new Date(now.getTime() - marginSeconds * 1000))
  return isBefore(latest, creationTimestamp) ? creationTimestamp : earlier(cursor, latest)
}

/** Reason for which Berth sends nothing until the spec changes. */
export type StopReason = "Paused" | "ReceiverGone" | "RetriesExhausted"

const STOP_ERRORS: Record<StopReason, string> = {
  Paused: "the webhook was paused",
  ReceiverGone: "the receiver answered 410 Gone",
  RetriesExhausted: "no delivery succeeded in time",
}

const LONGEST_ERROR = 256

/** Other events than ends of jobs, of one webhook: how many wait at most, and how many ids are known, to send each once. */
const OTHER_EVENTS = { waiting: 100, known: 1000 }

/**
 * Deliveries of one webhook that are not over, and the facts of its status. An end of a job leaves the backlog when it is
 * delivered, or when it counts as missed. Pure: it knows no clock and no network.
 */
export class Backlog {
  readonly #settings: BacklogSettings
  /** Ends before this time are over, except those in `pending`. */
  readonly #start: string
  /** Time at which this backlog began. */
  readonly #openedAt: Date
  #cursor: string
  readonly #deliveries = new Map<string, Delivery>()
  /** Message ids by the job's uid, of all ends that are or were in the backlog. The cache has their jobs. */
  readonly #ofJobs = new Map<string, string>()
  /** Ids of events that aren't ends of jobs, oldest first. */
  readonly #others = new Set<string>()
  /** Ids of `pending` in the status that the API server has. */
  #persisted: ReadonlySet<string>
  /** Ids of the ends in `pending` whose hold has expired. */
  readonly #released = new Set<string>()
  /** Number of missed ends by the uid of their job, as it was with that end, until a status says so. */
  readonly #unwritten = new Map<string, number>()
  /** Time of the latest end that is delivered or missed. The cursor need not pass it. */
  #latest: string | undefined
  #recent: RecentDelivery[]
  #deliveredCount: number
  #missedCount: number
  #lastSuccessTime: string | undefined
  #failingSince: string | undefined
  #stopped: StopReason | undefined
  #lastError: string | undefined
  /** True while its messages wait for the project's limit of messages a minute. */
  isLimited = false

  /**
   * @param now present time
   * @param start time from which it gets events, and gets none of before; default: it continues from its status
   */
  constructor(webhook: StoredWebhook, settings: BacklogSettings, now: Date, start?: string) {
    const { status } = webhook
    this.#settings = settings
    this.#openedAt = now
    this.#start = start ?? backlogStart(webhook, now, settings)
    this.#cursor = this.#start
    const pending = start === undefined ? (status?.pending ?? []) : []
    for (const delivery of pending) this.#add({ ...delivery })
    this.#persisted = new Set(pending.map(({ id }) => id))
    this.#recent = [...(status?.deliveries ?? [])]
    this.#deliveredCount = status?.deliveredCount ?? 0
    this.#missedCount = status?.missedCount ?? 0
    this.#lastSuccessTime = status?.lastSuccessTime
    this.#failingSince = status?.failingSince
  }

  /** Reason for which the webhook gets nothing; undefined while it is active. */
  get stopped(): StopReason | undefined {
    return this.#stopped
  }

  /** Failure of the latest attempt; undefined if it succeeded, or if there was none. */
  get lastError(): string | undefined {
    return this.#lastError
  }

  get(id: string): Delivery | undefined {
    return this.#deliveries.get(id)
  }

  /** Number of messages that are not over. */
  get size(): number {
    return this.#deliveries.size
  }

  list(): Delivery[] {
    return [...this.#deliveries.values()]
  }

  /** Adds an event. Returns false if it is over, in the backlog, or one too many that isn't the end of a job. */
  offer(event: Pick<Delivery, "id" | "type" | "subject" | "time" | "jobUid">): boolean {
    const { id, jobUid, time } = event
    if (this.#stopped !== undefined || this.#deliveries.has(id)) return false
    if (jobUid === undefined) return this.#offerOther({ ...event, attempts: 0 })
    if (this.#ofJobs.has(jobUid) || isBefore(time, this.#start)) return false
    this.#add({ ...event, attempts: 0 })
    return true
  }

  #offerOther(delivery: Delivery): boolean {
    if (this.#others.has(delivery.id)) return false
    this.#others.add(delivery.id)
    const [oldest = ""] = this.#others
    if (this.#others.size > OTHER_EVENTS.known) this.#others.delete(oldest)
    this.#add(delivery)
    if (this.list().filter(({ jobUid }) => jobUid === undefined).length <= OTHER_EVENTS.waiting) return true
    const error = `${OTHER_EVENTS.waiting} events other than ends of jobs wait already`
    this.#miss(delivery, { is: "failed", error }, new Date(delivery.time))
    return false
  }

  /** Returns true while a job's end is neither delivered nor given up. */
  holds(jobUid: string): boolean {
    if (this.#unwritten.has(jobUid)) return true
    const id = this.#ofJobs.get(jobUid)
    if (id === undefined || !this.#deliveries.has(id)) return false
    return !this.#released.has(id)
  }

  /** Forgets a job that left the cache. Its end stays if it is not delivered. */
  forgetJob(jobUid: string): void {
    const delivery = this.#deliveries.get(this.#ofJobs.get(jobUid) ?? "")
    if (delivery === undefined) this.#ofJobs.delete(jobUid)
    else delivery.hasLeft = true
  }

  /**
   * Records an attempt. Returns the delay before the next one, seconds; undefined if there is none.
   * @param random number in [0, 1), for the jitter
   */
  attempted(id: string, outcome: AttemptOutcome, now: Date, random: number): number | undefined {
    const delivery = this.#deliveries.get(id)
    if (delivery === undefined) return undefined
    const time = timestamp(now)
    delivery.attempts += 1
    delivery.firstAttemptTime ??= time
    if (outcome.is === "delivered") {
      this.#remove(delivery)
      this.#deliveredCount += 1
      this.#lastSuccessTime = time
      this.#failingSince = undefined
      this.#lastError = undefined
      this.#record(delivery, "delivered", outcome, now)
      return undefined
    }
    delivery.error = cutTo(outcome.error ?? "the delivery failed", LONGEST_ERROR)
    this.#lastError = delivery.error
    this.#failingSince ??= time
    if (outcome.is === "gone") {
      this.stop("ReceiverGone", now)
      return undefined
    }
    const failed = { attempts: delivery.attempts, firstAttemptTime: delivery.firstAttemptTime }
    const after = retryAfter(failed, now, { settings: this.#settings.retry, random })
    if (after === undefined) {
      // Other messages may have been accepted in these days: then the message is the cause, not the receiver.
      if (isBefore(delivery.firstAttemptTime, this.#failingSince)) this.#miss(delivery, outcome, now)
      else this.stop("RetriesExhausted", now)
      return undefined
    }
    delivery.nextAttemptTime = timestamp(new Date(now.getTime() + after * 1000))
    return after
  }

  /** Gives a delivery up, because its object no longer exists. */
  abandon(id: string, error: string, now: Date): void {
    const delivery = this.#deliveries.get(id)
    if (delivery !== undefined) this.#miss(delivery, { is: "failed", error }, now)
  }

  /** Takes no more events, and counts all ends of the backlog as missed. */
  stop(reason: StopReason, now: Date): void {
    this.#stopped = reason
    const error = STOP_ERRORS[reason]
    for (const delivery of this.#deliveries.values()) this.#miss(delivery, { is: "failed", error }, now)
  }

  /** Counts ends as missed if their hold has expired and `pending` is full. */
  expire(now: Date): void {
    const overdue = this.#ends()
      .slice(WEBHOOK_LISTS.pending)
      .filter((delivery) => this.#heldFor(delivery, now) >= this.#holdOf(delivery))
    for (const delivery of overdue) {
      const { error = `not delivered within ${this.#holdOf(delivery)} s` } = delivery
      this.#miss(delivery, { is: "failed", error }, now)
    }
  }

  /**
   * Returns the time until the next decision that time alone changes, seconds: a hold is over, or the cursor passes an
   * end. Undefined without one.
   */
  changesIn(now: Date): number | undefined {
    const { marginSeconds } = this.#settings
    const held = this.#ends().find(({ id }) => !this.#released.has(id))
    const times = [
      ...(held === undefined ? [] : [this.#holdOf(held) - this.#heldFor(held, now)]),
      ...(this.#latest === undefined || isBefore(this.#latest, this.#cursor)
        ? []
        : [marginSeconds + 2 - secondsBetween(this.#latest, now)]),
    ]
    return times.length === 0 ? undefined : Math.max(0, Math.min(...times))
  }

  /** Returns the fields of the status. */
  status(now: Date): Omit<WebhookStatus, "observedGeneration" | "conditions"> {
    const ends = this.#ends()
    const pending = ends.slice(0, WEBHOOK_LISTS.pending).map(pendingOf)
    const overflow = ends[WEBHOOK_LISTS.pending]?.time
    const least = timestamp(new Date(now.getTime() - this.#settings.marginSeconds * 1000))
    const last = this.#latest === undefined ? this.#start : timestamp(new Date(Date.parse(this.#latest) + 1000))
    this.#cursor = [least, last, ...(overflow === undefined ? [] : [overflow])].reduce(earlier)
    if (isBefore(this.#cursor, this.#start)) this.#cursor = this.#start
    return {
      cursor: this.#cursor,
      pending,
      pendingCount: ends.length,
      deliveries: [...this.#recent],
      deliveredCount: this.#deliveredCount,
      missedCount: this.#missedCount,
      ...(this.#lastSuccessTime !== undefined && { lastSuccessTime: this.#lastSuccessTime }),
      ...(this.#failingSince !== undefined && { failingSince: this.#failingSince }),
    }
  }

  /** Notes a status that the API server has now. Returns the uids of the jobs that are no longer held for it. */
  persisted({ pending = [], missedCount = 0 }: Pick<WebhookStatus, "pending" | "missedCount">): string[] {
    this.#persisted = new Set(pending.map(({ id }) => id))
    const written = [...this.#unwritten].flatMap(([uid, count]) => (count <= missedCount ? [uid] : []))
    for (const uid of written) this.#unwritten.delete(uid)
    return written
  }

  /** Releases ends in `pending` of the written status whose hold has expired. Returns their jobs' uids. */
  release(now: Date): string[] {
    // Each delivery requeues the webhook, so this reads `pending` only. The backlog may have thousands of ends.
    const over = [...this.#persisted]
      .flatMap((id) => this.#deliveries.get(id) ?? [])
      .filter((delivery) => !this.#released.has(delivery.id) && this.#heldFor(delivery, now) >= this.#holdOf(delivery))
    for (const { id } of over) this.#released.add(id)
    return over.flatMap(({ jobUid }) => jobUid ?? [])
  }

  /** Returns the uids of the jobs that are held. */
  heldJobs(): string[] {
    return [...new Set([...this.#ofJobs.keys(), ...this.#unwritten.keys()])].filter((uid) => this.holds(uid))
  }

  /** Returns the longest time for which an end keeps its job unsettled, seconds. */
  #holdOf({ attempts }: Delivery): number {
    const { holdSeconds, limitedHoldSeconds } = this.#settings
    return this.isLimited && attempts === 0 ? limitedHoldSeconds : holdSeconds
  }

  /**
   * Returns for how long an end was held, seconds. A slow clock may have written its time, and the receiver must have the
   * whole hold: so it counts from the start of this process, or from later.
   */
  #heldFor({ time }: Delivery, now: Date): number {
    return Math.min(secondsBetween(time, now), secondsBetween(this.#openedAt, now))
  }

  #add(delivery: Delivery): void {
    this.#deliveries.set(delivery.id, delivery)
    if (delivery.jobUid !== undefined) this.#ofJobs.set(delivery.jobUid, delivery.id)
  }

  #remove({ id, jobUid, time, hasLeft }: Delivery): void {
    this.#deliveries.delete(id)
    this.#released.delete(id)
    if (jobUid === undefined) return
    if (hasLeft === true) this.#ofJobs.delete(jobUid)
    if (this.#latest === undefined || isBefore(this.#latest, time)) this.#latest = time
  }

  #miss(delivery: Delivery, outcome: AttemptOutcome, now: Date): void {
    this.#remove(delivery)
    if (delivery.jobUid !== undefined) {
      this.#missedCount += 1
      this.#unwritten.set(delivery.jobUid, this.#missedCount)
    }
    this.#record(delivery, "missed", outcome, now)
  }

  #record(delivery: Delivery, result: RecentDelivery["result"], outcome: AttemptOutcome, now: Date): void {
    const { id, type, subject, time, attempts } = delivery
    const { statusCode, durationMs, error } = outcome
    this.#recent.unshift({
      ...{ id, type, subject, time, attempts, result, endTime: timestamp(now) },
      ...defined({ statusCode, durationMs }),
      ...(result === "missed" && error !== undefined && { error: cutTo(error, LONGEST_ERROR) }),
    })
    this.#recent.splice(WEBHOOK_LISTS.deliveries)
  }

  /** Ends of jobs that are not delivered, oldest first. */
  #ends(): Delivery[] {
    return this.list()
      .filter(({ jobUid }) => jobUid !== undefined)
      .map((delivery) => ({ delivery, at: Date.parse(delivery.time) }))
      .toSorted((a, b) => a.at - b.at || (a.delivery.id < b.delivery.id ? -1 : 1))
      .map(({ delivery }) => delivery)
  }
}

function pendingOf({ jobUid = "", ...delivery }: Delivery): PendingDelivery {
  const { id, type, subject, time, attempts, firstAttemptTime, nextAttemptTime, error } = delivery
  return {
    ...{ id, type, subject, time, attempts, jobUid },
    ...defined({ firstAttemptTime, nextAttemptTime, error }),
  }
}

function earlier(time: string, other: string): string {
  return isBefore(other, time) ? other : time
}

function isBefore(time: string, other: string): boolean {
  return Date.parse(time) < Date.parse(other)
}
