/** Bytes that are kept of one Job, over all its Launches, unless told otherwise. */
export const DEFAULT_LOG_CAP_BYTES = 64 * 1024 * 1024

/** A Job, as logs are kept by: the uid, so that a new Job of the same name begins with an empty log. */
export interface JobRef {
  namespace: string
  uid: string
}

/** The log of one of a Job's Launches. */
export interface LogRef {
  job: JobRef
  /** Number of the Launch, from 1. */
  launch: number
}

/** What is stored after an append. */
export interface Appended {
  /** Bytes of this Launch's log; the next piece begins there. */
  length: number
  /** True: the Job's log has reached its cap, no more of it is kept. */
  full: boolean
}

export interface ReadOptions {
  /** Only the last so many lines (what was there before the read began; a follow goes on from there). */
  tail?: number
  /**
   * Follows: new bytes are delivered as they are stored, until this signal is aborted; then what is stored is
   * delivered and the read ends. Without it the read ends at the present end.
   */
  follow?: AbortSignal
}

/**
 * Where the output of jobs is kept: bytes as the containers wrote them. The logs of a Job's Launches are read as
 * one, in order, with a line of our own between two.
 */
export interface LogStore {
  /**
   * Stores a piece that begins at `offset` of the Launch's log. Bytes that are stored already are skipped, so a
   * piece may come twice; a piece beyond the end changes nothing, and the answer tells where to go on.
   */
  append(log: LogRef, offset: number, data: Uint8Array): Promise<Appended>
  /** The Job's log; empty when there is none. Pieces are at most 64 KiB. */
  read(job: JobRef, options?: ReadOptions): AsyncGenerator<Uint8Array, void, void>
  /** Removes all that is kept of the Job; no error when there is nothing. */
  remove(job: JobRef): Promise<void>
  /** Every Job that something is kept of. */
  list(): AsyncGenerator<JobRef, void, void>
}
