import type { Clock } from "../../core/apis/clock.ts"
import { inParallel } from "../../core/apis/in-parallel.ts"
import { isTerminal, type StoredJob } from "../../core/apis/job.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { isConflict, isNotFound } from "../../core/kube/errors.ts"
import type { Store } from "../../core/kube/store.ts"
import { MIB, type Quota } from "../../core/quota/project-limits.ts"
import { JOBS } from "../../core/resources.ts"
import type { Fence } from "../fence.ts"
import { inRounds } from "../rounds.ts"
import { isSettledJob, type SettledJob, type SettledJobs } from "../settled-jobs.ts"

/** Limit that an ended job was deleted for. */
export type PruneCause = "projectMib" | "installationMib"

export interface HistoryPrunerOptions {
  client: Pick<KubeClient, "delete">
  /** Cache of the unsettled jobs. */
  jobs: Store<StoredJob>
  settled: Pick<SettledJobs, "sweep" | "delete">
  quota: Quota
  fence: Fence
  clock: Clock
  logger: Logger
  /** Called for each deleted job. */
  onPruned?: (cause: PruneCause) => void
  /** Default 5. */
  intervalSeconds?: number
}

const CONCURRENCY = 8

/** Deletes the oldest ended jobs while a project, or the installation, stores more than its limit. */
export class HistoryPruner {
  readonly #options: HistoryPrunerOptions

  constructor(options: HistoryPrunerOptions) {
    this.#options = options
  }

  /** Runs rounds until the signal is aborted. */
  run(signal: AbortSignal): Promise<void> {
    const { clock, logger, intervalSeconds = 5 } = this.#options
    return inRounds(
      () => this.round(signal),
      { clock, logger, intervalSeconds, failure: "ended jobs could not be deleted" },
      signal,
    )
  }

  /** Runs one round. Returns the number of deleted jobs. */
  async round(signal: AbortSignal): Promise<number> {
    const { jobs, settled, quota, logger } = this.#options
    const shares = sharesOf(quota)
    const hasEnded = (namespace: string) => quota.usage.of(namespace).endedBytes > 0
    if (![...shares.keys()].some(hasEnded)) return 0
    const ended: EndedJob[] = jobs.list().map((job) => ({ ...job, bytes: quota.usage.bytesOf("jobs", job) }))
    // The sweep corrects the use of the limits, too: users may have deleted jobs since the last one.
    await settled.sweep((job) => {
      if (shares.has(job.metadata.namespace ?? "")) ended.push(job)
    })
    const chosen = jobsToPrune(ended, quota)
    await inParallel(chosen, CONCURRENCY, async (each) => signal.aborted || this.#delete(each))
    if (chosen.length > 0)
      logger.info({ jobs: chosen.length }, "deleted the oldest ended jobs, because a limit of stored bytes is reached")
    return chosen.length
  }

  async #delete({ job, cause }: Pruned): Promise<void> {
    const { client, settled, fence, onPruned } = this.#options
    if (isSettledJob(job)) {
      if (await settled.delete(job)) onPruned?.(cause)
      return
    }
    fence()
    try {
      await client.delete(JOBS, job.metadata, { preconditions: { uid: job.metadata.uid } })
      onPruned?.(cause)
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error
    }
  }
}

/** A job that is not settled, or one that is. */
type EndedJob = (Pick<StoredJob, "metadata" | "status"> & { bytes: number }) | SettledJob

/** A job to delete. */
interface Pruned {
  job: EndedJob
  cause: PruneCause
}

/** Share of a limit that pruning leaves, so that it does not run after each new job. */
const TARGET = 0.9

/** Returns the bytes that each project may keep which must give room. The largest give room for the installation. */
function sharesOf({ usage, limits }: Quota): Map<string, { most: number; cause: PruneCause }> {
  const sizes = new Map(usage.bytesByNamespace().map(([namespace, { bytes }]) => [namespace, bytes]))
  const shares = new Map<string, { most: number; cause: PruneCause }>()
  for (const [namespace, bytes] of sizes) {
    if (bytes >= limits.projectMib * MIB)
      shares.set(namespace, { most: limits.projectMib * MIB * TARGET, cause: "projectMib" })
  }
  const after = new Map(
    [...sizes].map(([namespace, bytes]) => [namespace, Math.min(bytes, shares.get(namespace)?.most ?? bytes)]),
  )
  if (sum(after.values()) >= limits.installationMib * MIB) {
    const most = fairShare([...after.values()], limits.installationMib * MIB * TARGET)
    for (const [namespace, bytes] of after) if (bytes > most) shares.set(namespace, { most, cause: "installationMib" })
  }
  return shares
}

/** Returns the ended jobs to delete, oldest first in each project. Pure. */
export function jobsToPrune(jobs: readonly EndedJob[], quota: Quota): Pruned[] {
  const sizes = new Map(quota.usage.bytesByNamespace())
  return [...sharesOf(quota)].flatMap(([namespace, { most, cause }]) => {
    const ended = jobs.filter(({ metadata, status }) => {
      const isHere = metadata.namespace === namespace && metadata.deletionTimestamp === undefined
      return isHere && isTerminal(status?.phase)
    })
    let surplus = (sizes.get(namespace)?.bytes ?? 0) - most
    const chosen: Pruned[] = []
    for (const job of ended.toSorted((a, b) => (endOf(a) < endOf(b) ? -1 : 1))) {
      if (surplus <= 0) break
      surplus -= job.bytes
      chosen.push({ job, cause })
    }
    return chosen
  })
}

function endOf({ metadata, status }: EndedJob): string {
  return `${status?.completionTime ?? metadata.creationTimestamp} ${metadata.uid}`
}

/** Returns the number to which each size must be cut so that all together are at most `total`. */
function fairShare(sizes: readonly number[], total: number): number {
  let [low, high] = [0, Math.max(...sizes)]
  for (let i = 0; i < 40; i++) {
    const middle = (low + high) / 2
    if (sum(sizes.map((size) => Math.min(size, middle))) > total) high = middle
    else low = middle
  }
  return low
}

function sum(numbers: Iterable<number>): number {
  let total = 0
  for (const number of numbers) total += number
  return total
}
