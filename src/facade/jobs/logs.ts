import { once } from "node:events"
import type { Response } from "express"
import { type Clock, secondsBetween } from "../../apis/clock.ts"
import { isTerminal, type StoredJob } from "../../apis/job.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import type { Logger } from "../../apis/logger.ts"
import { unavailable } from "../../http/problem.ts"
import type { Admitted } from "../../http/route.ts"
import { findOrCatchUp } from "../../identity/catch-up.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { Store } from "../../kube/store.ts"
import type { JobRef, LogStore, ReadOptions } from "../../logs/store.ts"
import { type Cache, JOBS } from "../caches.ts"

/** Answers with the log of a job, as plain text. */
export async function streamLog(
  { req, res, isStillAdmitted }: Pick<Admitted<unknown>, "req" | "res" | "isStillAdmitted">,
  job: StoredJob,
  { follow, tail }: { follow: boolean; tail: number | undefined },
  logStreams: LogStreams,
): Promise<void> {
  // A proxy that collects an answer before it passes it on would make a follow a surprise.
  res.set({ "Cache-Control": "no-store", "X-Accel-Buffering": "no" }).type("text/plain; charset=utf-8")
  if (req.method === "HEAD") {
    res.end()
    return
  }
  const gone = new AbortController()
  res.once("close", () => gone.abort())
  if (follow) res.flushHeaders()
  // A job may be silent for long; a client may not leave what is there unread for long.
  const idleMs = req.socket.timeout ?? 0
  if (follow) req.setTimeout(0)
  for await (const piece of logStreams.open(job, { tail, follow, signal: gone.signal, mayGoOn: isStillAdmitted })) {
    if (gone.signal.aborted) return
    if (res.write(piece)) continue
    req.setTimeout(idleMs)
    await drained(res, gone.signal)
    if (follow) req.setTimeout(0)
  }
  res.end()
}

/** Resolves when the client has read on, or is gone. */
async function drained(res: Response, gone: AbortSignal): Promise<void> {
  await once(res, "drain", { signal: gone }).catch((error: unknown) => {
    if (!gone.aborted) throw error
  })
}

/**
 * A VM that was stopped may still send its last words until it is gone; a follower waits at most this long for them.
 */
const LAST_WORDS_SECONDS = 30

/** How often a follower's credentials are looked at again. */
const RECHECK_SECONDS = 1

export interface LogStreamsOptions {
  logStore: LogStore
  store: Store<StoredJob>
  /** With the index `jobUid`. */
  launches: Store<StoredLaunch>
  clock: Clock
  /** Aborted when the process ends: followers are let go, and may come again. */
  shutdown: AbortSignal
}

export interface LogRequest {
  tail?: number | undefined
  follow: boolean
  /** Aborted when the client is gone. */
  signal: AbortSignal
  /** Whether the caller may still read; asked again and again while following. */
  mayGoOn: () => Promise<boolean>
}

/** Reads the logs of jobs, with their jobs' life in view. */
export class LogStreams {
  readonly #options: LogStreamsOptions

  constructor(options: LogStreamsOptions) {
    this.#options = options
  }

  /**
   * The log; a follow ends when the job has ended and nothing more can come, or somebody's signal says so.
   * @throws Problem 503 when the store can't give it
   */
  async *open(job: StoredJob, { tail, follow, signal, mayGoOn }: LogRequest): AsyncGenerator<Uint8Array, void, void> {
    const ref: JobRef = { namespace: job.metadata.namespace ?? "", uid: job.metadata.uid }
    const lines = tail === undefined ? {} : { tail }
    if (!follow) return yield* this.#read(ref, lines)
    const ended = new AbortController()
    const end = (): void => ended.abort()
    const gone = AbortSignal.any([signal, this.#options.shutdown])
    gone.addEventListener("abort", end, { once: true })
    if (gone.aborted) end()
    // Each ends the read when it has reason to; both end with it.
    const watching = [this.#untilComplete(job, ended.signal), this.#untilRefused(mayGoOn, ended.signal)]
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

  /** Resolves when the job has ended and its log is complete, or when it was deleted. */
  async #untilComplete({ metadata }: StoredJob, signal: AbortSignal): Promise<void> {
    const { store, launches } = this.#options
    const current = (): StoredJob | undefined => store.getByUid(metadata.uid)
    // The cache may not have the job yet; only after that its absence says that it was deleted.
    await store.waitUntil(() => store.reached(metadata.resourceVersion), signal)
    await store.waitUntil(() => hasEnded(current()), signal)
    await Promise.race([
      store.waitUntil(() => hasNoVm(current()), signal),
      launches.waitUntil(() => this.#hasAgentFinished(current()), signal),
      this.#lastWordsTime(current(), signal),
    ])
  }

  /** An agent that tells the end has sent its log before. Who else ends a job, its timeout too, leaves the agent more to say. */
  #hasAgentFinished(job: StoredJob | undefined): boolean {
    const launches = this.#options.launches.byIndex("jobUid", job?.metadata.uid ?? "")
    const current = launches.find(({ metadata }) => metadata.name === job?.status?.launches?.current)
    return current?.status?.agent?.finish !== undefined
  }

  #lastWordsTime(job: StoredJob | undefined, signal: AbortSignal): Promise<void> {
    const { clock } = this.#options
    const endedAt = job?.status?.completionTime ?? clock.now()
    return this.#pause(LAST_WORDS_SECONDS - secondsBetween(endedAt, clock.now()), signal)
  }

  /** Resolves when the caller's credentials are not good any more. */
  async #untilRefused(mayGoOn: () => Promise<boolean>, signal: AbortSignal): Promise<void> {
    do await this.#pause(RECHECK_SECONDS, signal)
    while (!signal.aborted && (await mayGoOn()))
  }

  /** Resolves after a time, or when the signal is aborted. */
  async #pause(seconds: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const cancel = this.#options.clock.setTimer(seconds, resolve)
    const stop = (): void => resolve()
    signal.addEventListener("abort", stop, { once: true })
    await promise
    cancel()
    signal.removeEventListener("abort", stop)
  }
}

function hasEnded(job: StoredJob | undefined): boolean {
  return job === undefined || isTerminal(job.status?.phase)
}

/** Without one nobody writes any more. */
function hasNoVm(job: StoredJob | undefined): boolean {
  const { vm } = job?.status ?? {}
  return vm === undefined || vm.state === "nonassigned" || vm.state === "terminated"
}

export interface LogRetentionOptions {
  client: Pick<KubeClient, "list">
  jobs: Cache<StoredJob>
  logStore: LogStore
  logger: Logger
}

/** Removes the logs of Jobs that are deleted, as they go. Returns how to end it. */
export function removeLogsOfDeletedJobs({ jobs, logStore, logger }: LogRetentionOptions): () => void {
  return jobs.onChange(({ old, current }) => {
    // A Job made anew under the same name has another uid, and the old one's log goes.
    if (old === undefined || old.metadata.uid === current?.metadata.uid) return
    remove(refOf(old), { logStore, logger })
  })
}

/** Removes the logs of Jobs that were deleted while no façade ran. Call it when the cache has synced. */
export async function removeOrphanedLogs({ client, jobs, logStore, logger }: LogRetentionOptions): Promise<void> {
  const cached = { client, resource: JOBS, store: jobs.store }
  for await (const ref of logStore.list()) {
    const job = await findOrCatchUp(cached, ref.namespace, () => jobs.store.getByUid(ref.uid))
    if (job === undefined) remove(ref, { logStore, logger })
  }
}

/** Not awaited: a failure is logged, and the next start of a façade finds what is left. */
function remove(ref: JobRef, { logStore, logger }: Pick<LogRetentionOptions, "logStore" | "logger">): void {
  logStore.remove(ref).catch((err: unknown) => logger.error({ err, job: ref }, "the log of a deleted job stays"))
}

function refOf({ metadata }: StoredJob): JobRef {
  return { namespace: metadata.namespace ?? "", uid: metadata.uid }
}
