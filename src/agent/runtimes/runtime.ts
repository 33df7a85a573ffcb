import type { FinishReason } from "../../apis/launch.ts"
import type { Buckets, RunOrder } from "../protocol.ts"

/** How an attempt ended. */
export interface Ended {
  /** As a shell shows it: 128 + n when a signal ended it, 127 and 126 when it could not be started. */
  exitCode: number
  /** What there is to say beyond the exit code. */
  message?: string
}

/** One attempt: a container, or what stands for it. */
export interface Container {
  /** RFC 3339. */
  readonly startTime: string
  /** The output from byte `from` on; ends when the container has ended and everything was delivered. */
  output(from: number): AsyncIterable<Uint8Array>
  /** Resolves when it has ended, whoever ended it. */
  wait(): Promise<Ended>
  /** Resolves with false, and no error, when it has ended already. */
  signal(name: "SIGTERM" | "SIGKILL"): Promise<boolean>
  /** Removes what is left of it. */
  remove(): Promise<void>
}

export interface PrepareOptions {
  signal: AbortSignal
  /** Gets the order anew, for what the image is pulled with may have ended. */
  reorder: () => Promise<RunOrder>
}

/** Where attempts run. One instance serves one Launch. */
export interface Runtime {
  readonly name: "docker" | "process"
  /** Makes everything ready that a start needs. Rejects with RunError, or with what `reorder` does. */
  prepare(order: RunOrder, options: PrepareOptions): Promise<void>
  /** Mounts the run's buckets, for all attempts. Rejects with RunError. */
  mount(order: RunOrder, signal: AbortSignal): Promise<void>
  /** The mounted buckets are opened with this from now on. */
  renew(buckets: Buckets): Promise<void>
  /**
   * Resolves when all that was written is in the buckets, those of an earlier agent included. Rejects with RunError
   * when a bucket refuses it, or when the signal is aborted before.
   */
  flush(signal: AbortSignal): Promise<void>
  /** Starts an attempt that `find` does not know. Rejects with RunError. */
  start(order: RunOrder, attempt: number): Promise<Container>
  /** The attempt's container, running or ended, when an earlier agent has started it. */
  find(attempt: number): Promise<Container | undefined>
  /** Ends and removes whatever is left of this Launch, at once. */
  clear(): Promise<void>
}

/** The run ends here, and another attempt would not help. */
export class RunError extends Error {
  override readonly name = "RunError"
  readonly reason: FinishReason

  constructor(reason: FinishReason, message: string, cause?: unknown) {
    super(message, { cause })
    this.reason = reason
  }
}
