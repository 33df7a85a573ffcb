import type { Clock } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { Usage, UsagePoint } from "../../core/apis/usage.ts"
import type { Disk } from "../disk.ts"
import type { Container, Runtime } from "../runtimes/runtime.ts"
import { waitUnlessAborted } from "../timers.ts"
import { GpuWatch } from "./gpus.ts"
import { IdleGuard } from "./idle-guard.ts"
import { type Sample, sampleBetween, type TimedReading } from "./sample.ts"
import { UsageWindow } from "./window.ts"

/** Delay between two measurements, seconds. */
const SAMPLE_SECONDS = 5

export interface MeterOptions {
  disk: Disk
  clock: Clock
  logger: Logger
  /** Delay between two measurements, seconds. Default 5. */
  sampleSeconds?: number | undefined
  /** Called when the container has been idle for the whole of its limit. */
  onIdle: () => void
}

/** Measures what a run uses, over all its attempts. A measurement that fails is never an error of the run. */
export class Meter {
  readonly #options: MeterOptions
  readonly #window: UsageWindow
  readonly #end = new AbortController()
  #gpus: GpuWatch | undefined
  readonly #running = new Set<Promise<void>>()

  constructor(options: MeterOptions) {
    this.#options = options
    this.#window = new UsageWindow(options.disk.state.usage)
  }

  /** Points that are complete and that the gateway has not stored, oldest first. */
  get points(): readonly UsagePoint[] {
    return this.#window.state.points
  }

  /** Forgets the points that the gateway has stored, up to the one that begins at this time. */
  stored(time: number): void {
    this.#window.stored(time)
    this.#save()
  }

  /** Returns the use over the whole run, and completes its last point. Undefined if nothing was measured. */
  finish(): Usage | undefined {
    this.#window.close()
    this.#save()
    return this.#window.usage()
  }

  /** Measures an attempt from now on, until the returned function is called. */
  start(container: Container, runtime: Runtime): () => void {
    const { clock, disk, logger } = this.#options
    const { gpus = 0 } = disk.state.limits ?? {}
    if (gpus > 0 && this.#gpus === undefined) {
      this.#gpus = new GpuWatch({ runtime, gpus, clock, logger })
      this.#run(this.#gpus.run(this.#end.signal))
    }
    const end = new AbortController()
    this.#run(this.#measure(container, AbortSignal.any([end.signal, this.#end.signal])))
    return () => end.abort()
  }

  /** Ends all measuring. Resolves when nothing of it is left. */
  async close(): Promise<void> {
    this.#end.abort()
    await Promise.all(this.#running)
  }

  #run(work: Promise<void>): void {
    const done = work
      .catch((error: unknown) => this.#options.logger.error({ err: error }, "measuring has ended by an error"))
      .finally(() => this.#running.delete(done))
    this.#running.add(done)
  }

  async #measure(container: Container, signal: AbortSignal): Promise<void> {
    const { clock, disk, sampleSeconds = SAMPLE_SECONDS, onIdle } = this.#options
    const { idleLimit, gpus = 0 } = disk.state.limits ?? {}
    const guard = idleLimit === undefined ? undefined : new IdleGuard(idleLimit, gpus, clock.monotonic())
    let due = clock.monotonic()
    for (let last = await this.#read(container, signal); ; ) {
      // Some engines need a second to answer, which is no reason for fewer samples.
      due = Math.max(due + sampleSeconds, clock.monotonic())
      await waitUnlessAborted(clock, due - clock.monotonic(), signal)
      const reading = signal.aborted ? undefined : await this.#read(container, signal)
      // A container that has ended can't be measured, and that is no failure.
      if (signal.aborted) return
      const sample = this.#sample(last, reading)
      last = reading ?? last
      if (sample !== undefined) this.#add(sample)
      if (guard?.isIdle(sample, clock.monotonic()) === true) return onIdle()
    }
  }

  async #read(container: Container, signal: AbortSignal): Promise<TimedReading | undefined> {
    const { clock, logger } = this.#options
    try {
      const reading = await container.read(signal)
      return reading === undefined ? undefined : { ...reading, at: clock.monotonic() }
    } catch (error) {
      if (!signal.aborted) logger.warn({ err: error }, "failed to measure the container; its use is unknown for now")
      return undefined
    }
  }

  #sample(earlier: TimedReading | undefined, later: TimedReading | undefined): Sample | undefined {
    if (earlier === undefined || later === undefined) return undefined
    const sample = sampleBetween(earlier, later)
    if (sample === undefined) return undefined
    const gpu = this.#gpus?.take(sample.seconds)
    return gpu === undefined ? sample : { ...sample, gpu }
  }

  #add(sample: Sample): void {
    const { clock } = this.#options
    const isComplete = this.#window.add(sample, { time: clock.now().getTime(), monotonic: clock.monotonic() })
    if (isComplete) this.#save()
  }

  #save(): void {
    this.#options.disk.update({ usage: this.#window.state })
  }
}
