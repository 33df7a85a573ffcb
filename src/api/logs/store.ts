/** Default of the bytes kept of one Job, over all its Launches. */
export const DEFAULT_LOG_CAP_BYTES = 64 * 1024 * 1024

/** Share of the cap for the beginning of a log. The rest is for its end. */
export const HEAD_SHARE = 0.5

/** Size of one read, and so of the largest piece that a reader gets, bytes. */
export const BLOCK_BYTES = 64 * 1024

/** A Job as the key of its logs. The uid gives a new Job of the same name an empty log. */
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

/** Time of output: the agent has read the bytes of a Launch's log from `offset` on at this time, up to the next mark. */
export interface TimeMark {
  /** Bytes. */
  offset: number
  /** Milliseconds since 1970, at most 2^48. */
  time: number
}

/** State of the log after an append. */
export interface Appended {
  /** Size of this Launch's log in bytes, with bytes that were left out. The next piece begins there. */
  length: number
}

export interface ReadOptions {
  /** Number of last lines to read, counted at the start of the read. With `follow`, all later lines follow. */
  tail?: number
  /**
   * Delivers new bytes as they are stored, until this signal is aborted. Then the stored bytes are delivered and the
   * read ends. Without it the read ends at the present end.
   */
  follow?: AbortSignal
  /**
   * Puts the time of its first byte before each line: RFC 3339 in UTC with milliseconds, and a space. A line of Berth's
   * has the time before it. Without any known time it is `-`.
   */
  timestamps?: boolean
}

/**
 * Store of the output of jobs, as bytes from the containers. The logs of a Job's Launches are read as one, in order,
 * with a line of Berth's between two. Of a log that is longer than the cap, the beginning and the end are kept. A line in
 * between says how many bytes are left out.
 */
export interface LogStore {
  /**
   * Stores a piece that begins at `offset` of the Launch's log. Bytes that are stored already are skipped, so a piece
   * may come twice. A piece beyond the end changes nothing, and the result has the offset to continue from.
   * @param marks times of the piece, by their offset. Each is kept as long as its bytes.
   */
  append(log: LogRef, offset: number, data: Uint8Array, marks?: readonly TimeMark[]): Promise<Appended>
  /** Yields the Job's log; nothing if there is none. Pieces are at most 64 KiB. */
  read(job: JobRef, options?: ReadOptions): AsyncGenerator<Uint8Array, void, void>
  /** Removes the logs of the Job; no error if there are none. */
  remove(job: JobRef): Promise<void>
  /** Yields every Job that has logs. */
  list(): AsyncGenerator<JobRef, void, void>
}
