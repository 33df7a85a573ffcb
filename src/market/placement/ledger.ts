import type { Clock } from "../../core/apis/clock.ts"
import type { Launch, StoredLaunch } from "../../core/apis/launch.ts"
import { keyOf } from "../../core/apis/meta.ts"
import { launchOutcome, type Outcome } from "./outcome.ts"
import { PreemptionHistory } from "./preemptions.ts"
import { isMarked } from "./statements.ts"

/**
 * Launches of all projects, by the questions of a placement. There are thousands, so a placement reads all of them only
 * after failures.
 */
export interface LaunchHistory {
  all(): readonly StoredLaunch[]
  /** Returns the Launches that were rejected, or whose VM failed or was lost. Only they cause cooldowns and pauses. */
  failed(): readonly StoredLaunch[]
  createdAfter(time: Date, now: Date): readonly StoredLaunch[]
  /** Returns at least the number of the Launches that `createdAfter` returns, without reading them. */
  mostCreatedAfter(time: Date, now: Date): number
}

/** Returns a list of Launches as a history. */
export function launchHistory(launches: readonly StoredLaunch[]): LaunchHistory {
  return {
    all: () => launches,
    failed: () => launches.filter(hasFailed),
    createdAfter: (time) => launches.filter(isCreatedAfter(time)),
    mostCreatedAfter: () => launches.length,
  }
}

/** Value of the index `unmarked` that finds the Launches of all namespaces, as in Kubernetes. */
export const ALL_NAMESPACES = ""

/** Indexes of Launches that `LaunchLedger` reads. Each finds a small part of them. */
export const ledgerIndexes: Record<"unmarked" | "failed" | "createdIn", (launch: StoredLaunch) => readonly string[]> = {
  unmarked: (launch) => (isMarked(launch) ? [] : [launch.spec.job.namespace, ALL_NAMESPACES]),
  failed: (launch) => (hasFailed(launch) ? [ALL_NAMESPACES] : []),
  createdIn: ({ metadata }) => [minuteOf(metadata.creationTimestamp)],
}

const FAILURES: readonly Outcome["kind"][] = ["refused", "bootFailed", "lost"]

function hasFailed(launch: StoredLaunch): boolean {
  return FAILURES.includes(launchOutcome(launch).kind)
}

const MINUTE_MS = 60_000

/** Milliseconds by which the API server's clock may be ahead of this process. */
const MOST_SKEW_MS = 5 * MINUTE_MS

/** Returns the minute of an RFC 3339 time in UTC, such as `2026-11-29T23:59`. */
function minuteOf(timestamp: string): string {
  return timestamp.slice(0, 16)
}

function minutesAfter(time: Date, now: Date): string[] {
  const first = Math.floor(time.getTime() / MINUTE_MS)
  const last = Math.floor((now.getTime() + MOST_SKEW_MS) / MINUTE_MS)
  const minutes = Array.from({ length: last - first + 1 }, (_, index) => new Date((first + index) * MINUTE_MS))
  return minutes.map((minute) => minuteOf(minute.toISOString()))
}

function isCreatedAfter(time: Date): (launch: StoredLaunch) => boolean {
  return ({ metadata }) => Date.parse(metadata.creationTimestamp) > time.getTime()
}

/** Read access to a cache of objects. `Store` in kube/ implements it. */
export interface CachedObjects<T> {
  list(): T[]
  getByKey(key: string): T | undefined
  byIndex(index: string, value: string): T[]
  countByIndex(index: string, value: string): number
}

/** Seconds for which a Launch counts that was written but never appears in the cache. Its write may have failed. */
const PATIENCE_SECONDS = 60

/**
 * Cache of all Launches, plus Launches that this process is creating. Caps and the launch rate must count both. Otherwise
 * several jobs placed at once would each take the last free place.
 */
export class LaunchLedger implements LaunchHistory {
  readonly #store: CachedObjects<StoredLaunch>
  readonly #clock: Clock
  readonly #pending: Map<string, { launch: StoredLaunch; since: number }>
  /** Uid of the job whose own Launches count only if the cache has them. */
  readonly #reader: string | undefined
  /** Preemptions that this process has seen. */
  readonly preemptions: PreemptionHistory

  /** @param seen ledger that the job `by` sees */
  constructor(store: CachedObjects<StoredLaunch>, clock: Clock, seen?: { ledger: LaunchLedger; by: string }) {
    this.#store = store
    this.#clock = clock
    this.#pending = seen === undefined ? new Map() : seen.ledger.#pending
    this.#reader = seen?.by
    this.preemptions = seen?.ledger.preemptions ?? new PreemptionHistory()
  }

  /**
   * Returns this ledger as a job sees it that decides again. A Launch of its own whose creation had no answer takes no place
   * from it: if it exists, the job asks for the same one, by its name.
   */
  seenBy(uid: string): LaunchLedger {
    return new LaunchLedger(this.#store, this.#clock, { ledger: this, by: uid })
  }

  /** Counts a Launch from now on. Call it before the first await after the decision to create it. */
  assume(launch: Launch): void {
    // The API server sets these fields. Only readers of this ledger see the placeholder.
    const metadata = {
      ...launch.metadata,
      uid: "",
      resourceVersion: "",
      generation: 1,
      creationTimestamp: this.#clock.now().toISOString(),
    }
    this.#pending.set(keyOf(launch), { launch: { ...launch, metadata }, since: this.#clock.monotonic() })
  }

  /** Stops counting a Launch that was not created. */
  forget(launch: Launch): void {
    this.#pending.delete(keyOf(launch))
  }

  all(): StoredLaunch[] {
    return [...this.#store.list(), ...this.#unseen()]
  }

  failed(): StoredLaunch[] {
    return this.#store.byIndex("failed", ALL_NAMESPACES)
  }

  createdAfter(time: Date, now: Date): StoredLaunch[] {
    const created = minutesAfter(time, now).flatMap((minute) => this.#store.byIndex("createdIn", minute))
    return [...created, ...this.#unseen()].filter(isCreatedAfter(time))
  }

  mostCreatedAfter(time: Date, now: Date): number {
    const counts = minutesAfter(time, now).map((minute) => this.#store.countByIndex("createdIn", minute))
    return counts.reduce((total, count) => total + count, this.#pending.size)
  }

  /** Returns the Launches of a namespace, or of `ALL_NAMESPACES`, that do not say that their cost is counted. */
  unmarked(namespace: string): StoredLaunch[] {
    const unseen = this.#unseen().filter(({ spec }) => namespace === ALL_NAMESPACES || spec.job.namespace === namespace)
    return [...this.#store.byIndex("unmarked", namespace), ...unseen]
  }

  #unseen(): StoredLaunch[] {
    const patience = this.#clock.monotonic() - PATIENCE_SECONDS
    for (const [key, { since }] of this.#pending) {
      if (since < patience || this.#store.getByKey(key) !== undefined) this.#pending.delete(key)
    }
    const unseen = [...this.#pending.values()].map(({ launch }) => launch)
    return unseen.filter(({ spec }) => spec.job.uid !== this.#reader)
  }
}
