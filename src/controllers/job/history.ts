import type { Clock } from "../../apis/clock.ts"
import { isTerminal, type StoredJob } from "../../apis/job.ts"
import type { Logger } from "../../apis/logger.ts"
import type { KubeClient } from "../../kube/client.ts"
import { isConflict, isNotFound } from "../../kube/errors.ts"
import type { Store } from "../../kube/store.ts"
import { MIB, type Quota } from "../../limits/project-limits.ts"
import type { Fence } from "../fence.ts"
import { inRounds } from "../rounds.ts"
import { JOBS } from "./options.ts"

/** Limit that an ended job was deleted for. */
export type PruneCause = "projectMib" | "installationMib"

export interface HistoryPrunerOptions {
  client: Pick<KubeClient, "delete">
  jobs: Store<StoredJob>
  quota: Quota
  fence: Fence
  clock: Clock
  logger: Logger
  /** Called for each deleted job. */
  onPruned?: (cause: PruneCause) => void
  /** Default 5. */
  intervalSeconds?: number
}

/** Deletes of one round. A next round follows after seconds. */
const MAX_PER_ROUND = 500
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
      () => this.round(),
      { clock, logger, intervalSeconds, failure: "ended jobs could not be deleted" },
      signal,
    )
  }

  /** Runs one round. Returns the number of deleted jobs. */
  async round(): Promise<number> {
    const { jobs, quota, logger } = this.#options
    if (!isOverLimit(quota)) return 0
    const left = jobsToPrune(jobs.list(), quota).slice(0, MAX_PER_ROUND)
    const count = left.length
    const worker = async (): Promise<void> => {
      for (let next = left.shift(); next !== undefined; next = left.shift()) await this.#delete(next.job, next.cause)
    }
    await Promise.all(Array.from({ length: CONCURRENCY }, worker))
    if (count > 0)
      logger.info({ jobs: count }, "deleted the oldest ended jobs, because a limit of stored bytes is reached")
    return count
  }

  async #delete({ metadata }: StoredJob, cause: PruneCause): Promise<void> {
    const { client, fence, onPruned } = this.#options
    fence()
    try {
      await client.delete(JOBS, metadata, { preconditions: { uid: metadata.uid } })
      onPruned?.(cause)
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error
    }
  }
}

/** Share of a limit that pruning leaves, so that it does not run after each new job. */
const TARGET = 0.9

function isOverLimit({ usage, limits }: Quota): boolean {
  if (usage.all().bytes >= limits.installationMib * MIB) return true
  return usage.bytesByNamespace().some(([, { bytes }]) => bytes >= limits.projectMib * MIB)
}

/** Returns the ended jobs to delete, oldest first in each project. The largest projects give room for the installation. */
export function jobsToPrune(
  jobs: readonly StoredJob[],
  { usage, limits }: Quota,
): { job: StoredJob; cause: PruneCause }[] {
  const sizes = new Map(usage.bytesByNamespace().map(([namespace, { bytes }]) => [namespace, bytes]))
  const kept = new Map<string, { most: number; cause: PruneCause }>()
  for (const [namespace, bytes] of sizes) {
    if (bytes >= limits.projectMib * MIB)
      kept.set(namespace, { most: limits.projectMib * MIB * TARGET, cause: "projectMib" })
  }
  const after = new Map(
    [...sizes].map(([namespace, bytes]) => [namespace, Math.min(bytes, kept.get(namespace)?.most ?? bytes)]),
  )
  if (sum(after.values()) >= limits.installationMib * MIB) {
    const most = fairShare([...after.values()], limits.installationMib * MIB * TARGET)
    for (const [namespace, bytes] of after) if (bytes > most) kept.set(namespace, { most, cause: "installationMib" })
  }
  return [...kept].flatMap(([namespace, { most, cause }]) => {
    const ended = jobs.filter(({ metadata, status }) => {
      const isHere = metadata.namespace === namespace && metadata.deletionTimestamp === undefined
      return isHere && isTerminal(status?.phase)
    })
    let surplus = (sizes.get(namespace) ?? 0) - most
    const chosen: { job: StoredJob; cause: PruneCause }[] = []
    for (const job of ended.toSorted((a, b) => (endOf(a) < endOf(b) ? -1 : 1))) {
      if (surplus <= 0) break
      surplus -= usage.bytesOf("jobs", job)
      chosen.push({ job, cause })
    }
    return chosen
  })
}

function endOf({ metadata, status }: StoredJob): string {
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
