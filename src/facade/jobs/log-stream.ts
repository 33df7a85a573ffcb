import { type Clock, secondsBetween } from "../../apis/clock.ts"
import { isTerminal, type StoredJob } from "../../apis/job.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import { unavailable } from "../../http/problem.ts"
import type { Store } from "../../kube/store.ts"
import type { JobRef, LogStore, ReadOptions } from "../../logs/store.ts"

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
      throw unavailable("The log store can't give this for the moment.", 10, error)
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
