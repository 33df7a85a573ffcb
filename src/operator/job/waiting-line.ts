import { isDeepStrictEqual } from "node:util"
import type { StoredJob } from "../../core/apis/job.ts"
import { isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import type { StoredOrganization } from "../../core/apis/organization.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import { namespacesUnder } from "../../core/identity/projects.ts"
import type { Change } from "../../core/kube/store.ts"
import type { Source } from "../../core/runtime/controller.ts"
import type { CappedLevel } from "../../market/placement/caps.ts"
import type { LaunchLedger } from "../../market/placement/ledger.ts"
import {
  type Amounts,
  compareWaiters,
  isDue,
  isInLine,
  type LineTerms,
  lineUp,
  toWaiter,
  turns,
  type Waiter,
} from "../../market/placement/line.ts"
import { cappedLevels, lineRoom, type Market, marketInLine } from "../../market/placement/market.ts"
import type { JobSettings } from "../../market/placement/settings.ts"
import type { Tenancy } from "../created-jobs.ts"
import type { JobControllerDependencies } from "./dependencies.ts"

type Dependencies = Pick<JobControllerDependencies, "jobs" | "launches" | "caps" | "tenancy" | "statements" | "clock">

/**
 * Jobs that wait for a cap or a concurrency group, in one line for each project. Nothing of it is stored: after a start
 * the line is built from the jobs' statuses, and what they need is known again after their first decision.
 */
export class WaitingLine {
  readonly #dependencies: Dependencies
  readonly #ledger: LaunchLedger
  readonly #settings: JobSettings
  /** In their order, by namespace. */
  #lines: Map<string, Waiter[]> | undefined
  #wake: (key: string) => void = () => undefined

  constructor(dependencies: Dependencies, ledger: LaunchLedger, settings: JobSettings) {
    this.#dependencies = dependencies
    this.#ledger = ledger
    this.#settings = settings
  }

  /** Source of the jobs whose turn it is after a VM has ended, or after caps of a project or an organization have changed. */
  get source(): Source {
    const { launches, tenancy } = this.#dependencies
    return {
      subscribe: (add) => {
        this.#wake = add
        const ends = [
          launches.onChange((change) => {
            if (isFreed(change)) this.#wakeAfter(change.old ?? change.current)
          }),
          tenancy?.projects.onChange((change) => this.#wakeUnder(change, tenancy)),
          tenancy?.organizations.onChange((change) => this.#wakeUnder(change, tenancy)),
        ]
        return () => {
          for (const end of ends) end?.()
          this.#wake = () => undefined
        }
      },
      whenSynced: (signal) => launches.whenSynced(signal),
    }
  }

  /** Returns a job's market with its place in the line, and without the room that jobs ahead of it take. */
  market(job: StoredJob, market: Market): Market {
    const { namespace = "" } = job.metadata
    const ahead = () => {
      const waiter = toWaiter(job)
      const line = this.#line(namespace)
      const own = line.slice(0, positionIn(line, waiter)).filter(({ uid }) => uid !== waiter.uid)
      return { own, others: this.#others(namespace, market.levels, waiter) }
    }
    return marketInLine(job, market, { ledger: this.#ledger, terms: this.#terms(), ahead })
  }

  /**
   * Notes the decision on a job, and wakes the jobs whose turn it is if room is no longer taken or kept for it.
   * @param needs what it waits for; undefined: it doesn't wait in the line
   */
  note(job: StoredJob, needs: Amounts | undefined): void {
    const { namespace = "" } = job.metadata
    const line = this.#line(namespace)
    const at = line.findIndex(({ uid }) => uid === job.metadata.uid)
    const known = line[at]
    if (known === undefined && needs === undefined) return
    if (known !== undefined) line.splice(at, 1)
    const waiter = needs && toWaiter(job, needs)
    if (waiter !== undefined) {
      line.splice(positionIn(line, waiter), 0, waiter)
      this.#lines?.set(namespace, line)
    }
    if (known !== undefined && (waiter === undefined || hasChanged(known, waiter))) this.#wakeNext(namespace)
  }

  /** Forgets a job that no longer exists. */
  forget(key: string): void {
    const namespace = key.slice(0, key.indexOf("/"))
    const line = this.#line(namespace)
    const at = line.findIndex((waiter) => waiter.key === key)
    if (at === -1) return
    line.splice(at, 1)
    this.#wakeNext(namespace)
  }

  #line(namespace: string): Waiter[] {
    this.#lines ??= this.#fromStatuses()
    return this.#lines.get(namespace) ?? []
  }

  #fromStatuses(): Map<string, Waiter[]> {
    const waiting = this.#dependencies.jobs.store.list().filter(isInLine)
    const lines = Map.groupBy(waiting, ({ metadata }) => metadata.namespace ?? "")
    return new Map([...lines].map(([namespace, jobs]) => [namespace, lineUp(jobs)]))
  }

  #terms(): LineTerms {
    return { now: this.#dependencies.clock.now(), passSeconds: this.#settings.passSeconds }
  }

  /** Returns the first jobs of other projects under the same caps for which room is kept, if they have waited longer. */
  #others(namespace: string, levels: readonly CappedLevel[], own: Waiter | undefined): Waiter[] {
    const shared = levels.filter(({ level }) => level !== "project")
    if (shared.length === 0) return []
    const terms = this.#terms()
    const isAhead = (waiter: Waiter) =>
      isDue(waiter, terms) && (own === undefined || !isDue(own, terms) || waiter.waitsSince < own.waitsSince)
    return [...(this.#lines ?? [])].flatMap(([other, line]) => {
      if (other === namespace || !shared.some(({ owns }) => owns(other, undefined))) return []
      const head = line.slice(0, MOST_WOKEN)
      const first = head.some(isAhead) ? this.#waitForShared(other, head).find(isAhead) : undefined
      // Groups are those of a project.
      return first === undefined ? [] : [{ ...first, group: undefined }]
    })
  }

  /** Returns the jobs of a line that would start if their project's own caps and groups were all. */
  #waitForShared(namespace: string, line: readonly Waiter[]): Waiter[] {
    const caps = () => (this.#dependencies.caps?.(namespace) ?? []).filter(({ level }) => level === "project")
    const levels = cappedLevels(namespace, { ...this.#dependencies, caps }, this.#ledger, this.#settings)
    return turns(line, lineRoom(levels, namespace, this.#ledger), this.#terms())
  }

  /** Wakes jobs of all projects under the caps of a VM that has ended. */
  #wakeAfter(launch: StoredLaunch | undefined): void {
    if (launch === undefined) return
    const { namespace } = launch.spec.job
    for (const [other, line] of this.#lines ?? []) {
      if (line.length === 0) continue
      const levels = this.#dependencies.caps?.(other) ?? []
      const isShared = levels.some(({ owns }) => owns(namespace, launch.spec.organization))
      if (other === namespace || isShared) this.#wakeNext(other)
    }
  }

  /** Wakes jobs of a project, or of an organization's projects, whose caps have changed. */
  #wakeUnder(change: Change<StoredProject | StoredOrganization>, { projects }: Tenancy): void {
    const { old, current } = change
    if (old === undefined || current === undefined || isDeepStrictEqual(old.spec.caps, current.spec.caps)) return
    // Before the first decision there is no line, and each job is looked at anyway.
    if (this.#lines === undefined) return
    for (const namespace of namespacesUnder(current, projects.store)) this.#wakeNext(namespace)
  }

  /** Wakes the jobs of a namespace whose turn it is. */
  #wakeNext(namespace: string): void {
    const line = this.#line(namespace)
    if (line.length === 0) return
    const levels = cappedLevels(namespace, this.#dependencies, this.#ledger, this.#settings)
    const others = this.#others(namespace, levels, line[0])
    const next = turns(line, lineRoom(levels, namespace, this.#ledger), this.#terms(), others)
    for (const { key } of next.slice(0, MOST_WOKEN)) this.#wake(key)
  }
}

/** Largest number of jobs of a line that are woken at once. Each of them wakes the next ones. */
const MOST_WOKEN = 32

/** Returns the index before the first job that is behind this one. The job itself, if it is there, is before it. */
function positionIn(line: readonly Waiter[], waiter: Waiter): number {
  let [low, high] = [0, line.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compareWaiters(line[middle] as Waiter, waiter) <= 0) low = middle + 1
    else high = middle
  }
  return low
}

/** Returns true if jobs behind may start after the change of a waiting job. */
function hasChanged(before: Waiter, after: Waiter): boolean {
  return !isDeepStrictEqual([before.priority, before.needs], [after.priority, after.needs])
}

/** Returns true if a VM has ended, or the record of one that had not. */
function isFreed({ old, current }: Change<StoredLaunch>): boolean {
  return old !== undefined && !isOver(old) && (current === undefined || isOver(current))
}
