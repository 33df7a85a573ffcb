import type { Readable, Writable } from "node:stream"
import type { FinishCause, FinishReason } from "../../core/apis/launch.ts"
import type { StreamResult, TerminalSize } from "../../core/apis/remote-command.ts"
import type { Buckets, RunOrder } from "../../core/protocol/protocol.ts"
import type { SessionTarget } from "../../core/protocol/sessions.ts"

/** Result of an attempt. */
export interface Ended {
  /** Exit code as in a shell: 128 + n after a signal, 127 and 126 if the command could not be started. */
  exitCode: number
  /** Message in addition to the exit code. After a success it is a warning. */
  message?: string
  /** Cause of a failure that the exit code does not say. */
  cause?: FinishCause
}

/** Use of a container since its start, and now. A part that is unknown is absent, and never 0. */
export interface Reading {
  /** Time of all its processors since its start, seconds. */
  cpuSeconds: number
  /** Number of vCPUs that it may use. */
  cpus: number
  /** Its memory without inactive file cache, MiB. */
  memoryMib: number
  /** Use of the VM's disk, GiB. */
  diskGib?: number
  /** Bytes since its start. */
  receivedBytes?: number
  sentBytes?: number
}

/** A person's way into a container: a command that runs there, or a connection to one of its ports. */
export interface Entry {
  input: Writable
  output: Readable
  /** Separate errors. Absent: they are in the output, or there are none. */
  errors?: Readable
  resize(size: TerminalSize): Promise<void>
  /** Resolves with the result when the command has ended. Call it after the end of the output. */
  result(): Promise<StreamResult>
  /** Ends what is left of it. */
  leave(): Promise<void>
}

/** Ways into a container that runs. */
export interface Entrance {
  /** Runs a command in the container. Rejects with EntryError. */
  exec(options: NonNullable<SessionTarget["exec"]>): Promise<Entry>
  /** Connects to a TCP port of the container. Rejects with EntryError. */
  connect(port: number): Promise<Entry>
}

/** Error whose message says to the person why there is no way in. */
export class EntryError extends Error {
  override readonly name = "EntryError"
}

/** One attempt: a container, or its equivalent. */
export interface Container {
  /** RFC 3339. */
  readonly startTime: string
  /** Environment with which it was started, as `NAME=value`. Absent: that of the order. */
  readonly env?: readonly string[]
  /** Absent: a person can't enter it. */
  readonly entrance?: Entrance
  /** Yields the output from byte `from` on. Ends when the container has ended and all output was delivered. */
  output(from: number): AsyncIterable<Uint8Array>
  /** Resolves when the container has ended, for any reason. */
  wait(): Promise<Ended>
  /** Name of the signal that asks the container to end, such as SIGTERM. */
  readonly stopSignal: string
  /** Sends the stop signal, or SIGKILL. Resolves with false, and no error, if the container has already ended. */
  signal(which: "stop" | "kill"): Promise<boolean>
  /**
   * Measures the container. Resolves with undefined if it can't be measured, or no longer runs. Rejects if the engine does not
   * answer.
   */
  read(signal: AbortSignal): Promise<Reading | undefined>
  /** Removes what is left of the container. */
  remove(): Promise<void>
}

export interface PrepareOptions {
  signal: AbortSignal
  /** Requests the order again, because the credentials for the image may have expired. */
  reorder: () => Promise<RunOrder>
}

/** Environment in which attempts run. One instance serves one Launch. */
export interface Runtime {
  readonly name: "docker" | "process"
  /** Prepares everything that a start needs. Rejects with RunError, or with errors of `reorder`. */
  prepare(order: RunOrder, options: PrepareOptions): Promise<void>
  /** Mounts the run's buckets, for all attempts. Rejects as `prepare`. */
  mount(order: RunOrder, options: PrepareOptions): Promise<void>
  /** Replaces the access to the mounted buckets. */
  renew(buckets: Buckets): Promise<void>
  /**
   * Resolves when all written files are in the buckets, also those of an earlier agent. Rejects with RunError if a
   * bucket rejects a file, or if the signal is aborted before.
   */
  flush(signal: AbortSignal): Promise<void>
  /** Deletes everything in the folders of the volumes for checkpoints. */
  deleteCheckpoints(): Promise<void>
  /** Starts an attempt that `find` does not find. Rejects with RunError. */
  start(order: RunOrder, attempt: number): Promise<Container>
  /** Returns the attempt's container, running or ended, if an earlier agent has started it. */
  find(attempt: number): Promise<Container | undefined>
  /**
   * Returns the way into a copy of an attempt's ended container; undefined if there is no such container. Absent: this
   * runtime has none.
   */
  kept?(attempt: number): Promise<Entrance | undefined>
  /**
   * Starts `NVIDIA_SMI`, and yields what it prints until it ends or the signal is aborted. Resolves with undefined if this
   * runtime can't start it. Rejects if the start fails.
   */
  watchGpus(signal: AbortSignal): Promise<AsyncIterable<string> | undefined>
  /** Stops and removes everything of this Launch at once. */
  clear(): Promise<void>
  /**
   * As `clear`, and removes what jobs have left in other ways, so that another job can have this machine. Images stay.
   * Rejects with an Error that names what could not be removed.
   * @param isHostShared true if the machine also has what is not Berth's, or other jobs', and stays
   */
  wipe(isHostShared: boolean): Promise<void>
}

/** Error that ends the run, because another attempt on this VM would not help. */
export class RunError extends Error {
  override readonly name = "RunError"
  readonly reason: FinishReason
  /** True if another VM may succeed: a service that the run needs was down or busy. */
  readonly isTransient: boolean

  constructor(reason: FinishReason, message: string, cause?: unknown, isTransient = false) {
    super(message, { cause })
    this.reason = reason
    this.isTransient = isTransient
  }
}
