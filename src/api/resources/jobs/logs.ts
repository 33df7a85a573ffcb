import { once } from "node:events"
import type { Response } from "express"
import { type Clock, secondsBetween } from "../../../core/apis/clock.ts"
import { isTerminal, type StoredJob } from "../../../core/apis/job.ts"
import type { StoredLaunch } from "../../../core/apis/launch.ts"
import type { Logger } from "../../../core/apis/logger.ts"
import { keyOf } from "../../../core/apis/meta.ts"
import { originalUidOf } from "../../../core/apis/origin.ts"
import { findOrCatchUp } from "../../../core/identity/catch-up.ts"
import type { KubeClient } from "../../../core/kube/client.ts"
import type { Reflector } from "../../../core/kube/reflector.ts"
import type { Store } from "../../../core/kube/store.ts"
import { JOBS } from "../../../core/resources.ts"
import { type Cache, jobsWithLog } from "../../caches.ts"
import { unavailable } from "../../http/problem.ts"
import type { AuthenticatedRequest } from "../../http/route.ts"
import type { JobRef, LogStore, ReadOptions } from "../../logs/store.ts"
import { timeOrAbort, untilRefused } from "../../long-responses.ts"
import type { UsageStore } from "../../usage/store.ts"

/** Sends the log of a job as plain text. */
export async function streamLog(
  {
    req,
    res,
    closed,
    isStillAuthenticated,
  }: Pick<AuthenticatedRequest<unknown>, "req" | "res" | "closed" | "isStillAuthenticated">,
  job: StoredJob,
  { follow, tail, timestamps }: { follow: boolean; tail: number | undefined; timestamps: boolean },
  logStreams: LogStreams,
): Promise<void> {
  // X-Accel-Buffering: a proxy that buffers the response would delay the lines of a followed log.
  res.set({ "Cache-Control": "no-store", "X-Accel-Buffering": "no" }).type("text/plain; charset=utf-8")
  if (req.method === "HEAD") {
    res.end()
    return
  }
  if (follow) res.flushHeaders()
  // A followed job may be silent for long: the idle timeout only runs while the client reads too slowly.
  const idleMs = req.socket.timeout ?? 0
  if (follow) req.setTimeout(0)
  for await (const piece of logStreams.open(job, {
    tail,
    follow,
    timestamps,
    signal: closed,
    mayGoOn: isStillAuthenticated,
  })) {
    if (closed.aborted) return
    if (res.write(piece)) continue
    req.setTimeout(idleMs)
    await untilDrained(res, closed)
    if (follow) req.setTimeout(0)
  }
  res.end()
}

/** Waits until the client has read the sent data or has disconnected. */
async function untilDrained(res: Response, closed: AbortSignal): Promise<void> {
  await once(res, "drain", { signal: closed }).catch((error: unknown) => {
    if (!closed.aborted) throw error
  })
}

/** Longest time that a follower waits for the last lines of a VM that was stopped but not yet deleted. */
const FINAL_LINES_SECONDS = 30

export interface LogStreamsOptions {
  logStore: LogStore
  store: Store<StoredJob>
  /** Cache with the index `jobUid`. */
  launches: Store<StoredLaunch>
  clock: Clock
  /** Signal that aborts at shutdown, which ends the streams of followers. They may reconnect. */
  shutdown: AbortSignal
}

export interface LogRequest {
  tail?: number | undefined
  follow: boolean
  /** Puts the time before each line. */
  timestamps: boolean
  /** Signal that aborts when the client disconnects. */
  signal: AbortSignal
  /** Returns true while the caller may read. A follow calls it every second. */
  mayGoOn: () => Promise<boolean>
}

/** Reads the logs of jobs, and ends a follow after its job has ended. */
export class LogStreams {
  readonly #options: LogStreamsOptions

  constructor(options: LogStreamsOptions) {
    this.#options = options
  }

  /**
   * Returns the log in pieces. A follow ends when the log of an ended job is complete, the caller loses access, or a
   * signal aborts. @throws Problem 503 when the log store fails
   */
  async *open(job: StoredJob, request: LogRequest): AsyncGenerator<Uint8Array, void, void> {
    const { tail, follow, timestamps, signal, mayGoOn } = request
    const ref = refOf(job)
    const lines = { timestamps, ...(tail !== undefined && { tail }) }
    if (!follow) return yield* this.#read(ref, lines)
    const ended = new AbortController()
    const end = (): void => ended.abort()
    const gone = AbortSignal.any([signal, this.#options.shutdown])
    gone.addEventListener("abort", end, { once: true })
    if (gone.aborted) end()
    // Each watch can end the read, and the end of the read ends both watches.
    const watching = [this.#untilComplete(job, ended.signal), untilRefused(mayGoOn, this.#options.clock, ended.signal)]
    for (const watch of watching) watch.then(end, end)
    try {
      yield* this.#read(ref, { ...lines, follow: ended.signal })
    } finally {
      gone.removeEventListener("abort", end)
      end()
    }
  }

  async *#read(job: JobRef, options: ReadOptions): AsyncGenerator<Uint8Array, void, void> {
    try {
      yield* this.#options.logStore.read(job, options)
    } catch (error) {
      throw unavailable("The log store is unavailable: try again.", 10, error)
    }
  }

  /** Waits until the job has ended and its log is complete, or until the job is deleted. */
  async #untilComplete({ metadata }: StoredJob, signal: AbortSignal): Promise<void> {
    const { store, launches } = this.#options
    const current = (): StoredJob | undefined => store.getByUid(metadata.uid)
    // Until the cache has reached this version, a missing job does not mean a deleted one.
    await store.waitFor(metadata.resourceVersion, signal)
    const job = { key: keyOf({ metadata }) }
    await store.waitUntil(() => hasEnded(current()), signal, job)
    const itsLaunches = { index: "jobUid", value: metadata.uid }
    await Promise.race([
      store.waitUntil(() => hasNoVm(current()), signal, job),
      launches.waitUntil(() => this.#hasAgentFinished(current()), signal, itsLaunches),
      this.#finalLinesTime(current(), signal),
    ])
  }

  /** An agent reports the end after it has sent the whole log. After a cancel or a timeout it may still send lines. */
  #hasAgentFinished(job: StoredJob | undefined): boolean {
    const launches = this.#options.launches.byIndex("jobUid", job?.metadata.uid ?? "")
    const current = launches.find(({ metadata }) => metadata.name === job?.status?.launches?.current)
    return current?.status?.agent?.finish !== undefined
  }

  #finalLinesTime(job: StoredJob | undefined, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options
    const endedAt = job?.status?.completionTime ?? clock.now()
    return timeOrAbort(FINAL_LINES_SECONDS - secondsBetween(endedAt, clock.now()), clock, signal)
  }
}

function hasEnded(job: StoredJob | undefined): boolean {
  return job === undefined || isTerminal(job.status?.phase)
}

/** True if no VM can write the log any more. */
function hasNoVm(job: StoredJob | undefined): boolean {
  const { vm } = job?.status ?? {}
  return vm === undefined || vm.state === "nonassigned" || vm.state === "terminated"
}

export interface LogRetentionOptions {
  client: Pick<KubeClient, "list">
  jobs: Cache<StoredJob>
  logStore: Pick<LogStore, "list" | "remove">
  /** Store of what jobs used, which is deleted with their logs. */
  usageStore: Pick<UsageStore, "list" | "remove">
  logger: Logger
}

/** Removes the log of each deleted job, and at the start those of jobs deleted meanwhile. Returns how to end it. */
export function pruneLogs(
  retention: LogRetentionOptions & { jobs: Pick<Reflector<StoredJob>, "whenSynced"> },
  ending: AbortSignal,
): () => void {
  const { jobs, logger } = retention
  void jobs
    .whenSynced(ending)
    .then(() => removeOrphanedLogs(retention))
    .catch((err: unknown) => ending.aborted || logger.warn({ err }, "logs of deleted jobs could not be listed"))
  return removeLogsOfDeletedJobs(retention)
}

/** Removes the log of each Job when the Job and its copies are deleted. Returns a function that stops this. */
export function removeLogsOfDeletedJobs(retention: LogRetentionOptions): () => void {
  const { jobs } = retention
  return jobs.onChange(({ old, current }) => {
    // A new Job with the same name has another uid, so the old Job's log is removed too.
    if (old === undefined || old.metadata.uid === current?.metadata.uid) return
    const ref = refOf(old)
    if (jobsWithLog(jobs.store, ref.namespace, ref.uid).length === 0) remove(ref, retention)
  })
}

/** Removes the logs of Jobs that were deleted while no façade ran. Call it after the cache has synced. */
export async function removeOrphanedLogs(retention: LogRetentionOptions): Promise<void> {
  const { client, jobs, logStore, usageStore } = retention
  const cached = { client, resource: JOBS, store: jobs.store }
  for (const stored of [logStore, usageStore]) {
    for await (const ref of stored.list()) {
      const job = await findOrCatchUp(cached, ref.namespace, () => jobsWithLog(jobs.store, ref.namespace, ref.uid)[0])
      if (job === undefined) remove(ref, retention)
    }
  }
}

/** Starts to remove a log with its job's usage. A failure is logged, and the next start of a façade removes them. */
function remove(ref: JobRef, { logStore, usageStore, logger }: LogRetentionOptions): void {
  Promise.all([logStore.remove(ref), usageStore.remove(ref)]).catch((err: unknown) =>
    logger.error({ err, job: ref }, "cannot remove the log of a deleted job; retry at the next start"),
  )
}

/** Returns the key of what is stored for a job: that of the Job from which it was copied, if it was. */
export function refOf(job: StoredJob): JobRef {
  return { namespace: job.metadata.namespace ?? "", uid: originalUidOf(job) }
}
