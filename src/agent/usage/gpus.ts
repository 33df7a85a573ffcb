import { backoffSeconds } from "../../core/apis/backoff.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { Runtime } from "../runtimes/runtime.ts"
import { waitUnlessAborted } from "../timers.ts"
import { GpuReader } from "./nvidia-smi.ts"
import type { GpuUse } from "./sample.ts"

/** Number of failures after which the GPUs stay unknown. */
const MOST_FAILURES = 5

/** Time after which an end of the helper counts as the first one again, seconds. */
const LONG_LIFE_SECONDS = 3600

const RESTART_SECONDS = { baseSeconds: 5, capSeconds: 60 }

export interface GpuWatchOptions {
  runtime: Pick<Runtime, "watchGpus">
  /** Number of the run's GPUs. */
  gpus: number
  clock: Clock
  logger: Logger
}

/** Watches the GPUs of a VM. A failure makes their use unknown, and is never an error of the run. */
export class GpuWatch {
  readonly #options: GpuWatchOptions
  readonly #reader: GpuReader

  constructor(options: GpuWatchOptions) {
    this.#options = options
    this.#reader = new GpuReader(options.gpus)
  }

  /** Watches until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, logger } = this.#options
    for (let failures = 1; failures <= MOST_FAILURES; failures++) {
      const start = clock.monotonic()
      if (!(await this.#watch(signal)) || signal.aborted) return
      if (clock.monotonic() - start > LONG_LIFE_SECONDS) failures = 1
      await waitUnlessAborted(clock, backoffSeconds(failures, RESTART_SECONDS), signal)
      if (signal.aborted) return
    }
    logger.warn({ failures: MOST_FAILURES }, "the helper for GPUs ends again and again; their use stays unknown")
  }

  /** Returns false if this machine can't watch GPUs. */
  async #watch(signal: AbortSignal): Promise<boolean> {
    const { runtime, logger } = this.#options
    try {
      const output = await runtime.watchGpus(signal)
      if (output === undefined) {
        logger.warn({}, "no helper for GPUs: the agent runs in no container of this engine; their use stays unknown")
        return false
      }
      for await (const piece of output) this.#reader.add(piece)
      if (!signal.aborted) logger.warn({}, "the helper for GPUs has ended; starting it again")
    } catch (error) {
      if (!signal.aborted) logger.warn({ err: error }, "the helper for GPUs failed; starting it again")
    }
    this.#reader.restart()
    return true
  }

  /** Returns the use since the last call; undefined if it is unknown. */
  take(seconds: number): GpuUse | undefined {
    return this.#reader.take(seconds)
  }
}
