import {
  DeleteObjectCommand,
  GetObjectCommand,
  NoSuchKey,
  PutObjectCommand,
  paginateListObjectsV2,
  S3Client,
} from "@aws-sdk/client-s3"
import { defined } from "../../core/apis/defined.ts"
import { inParallel } from "../../core/apis/in-parallel.ts"
import { proxiedAgents } from "../../core/apis/proxy.ts"
import { assertIndex, Followers, type LaunchLog, logPath, type Range, readLogs, Serial } from "./sections.ts"
import {
  type Appended,
  BLOCK_BYTES,
  DEFAULT_LOG_CAP_BYTES,
  HEAD_SHARE,
  type JobRef,
  type LogRef,
  type LogStore,
  type ReadOptions,
  type TimeMark,
} from "./store.ts"
import { decodeMarks, encodeMarks, marksOf } from "./times.ts"

/** Default delay until a follower sees bytes that another replica has stored. */
const POLL_MS = 2000

/** Number of small objects at the end of a log that are merged into one. */
const SMALL_OBJECTS = 64

/** Bytes in small objects from which they are merged, however few they are. */
const MERGE_BYTES = 4 * 1024 * 1024

/** Size from which an object is never rewritten. */
const LARGE_BYTES = 1024 * 1024

/** Maximum number of concurrent requests for one job. */
const PARALLEL = 8

/** Number of times that a Launch's log may be rewritten during a read before it counts as removed. */
const READ_TRIES = 5

export interface S3LogStoreOptions {
  client: S3Client
  bucket: string
  /** Prefix of all keys, with a slash at its end, or empty. */
  prefix?: string
  /** Bytes kept of one Job. Bytes in the middle are left out, and a line in the log says so. Default 64 MiB. */
  capBytes?: number
  /** Delay until a follower sees bytes that another replica has stored. Default 2 s. */
  pollMs?: number
  /** Called if small objects could not be merged. They stay, and the merge is retried. */
  onCompactionError?: (error: unknown, job: JobRef) => void
}

export interface S3ClientOptions {
  endpoint?: string
  region?: string
  /** Maximum time of one try of a request until its answer begins, seconds. Default 20. */
  requestSeconds?: number
}

/** Maximum time to connect, and without any data of a begun answer, milliseconds. The SDK's defaults are none. */
const CONNECT_MS = 5000
const SILENCE_MS = 60_000

/**
 * Returns a client for S3 or a compatible store. The credentials are the process's own, found as the SDK always does. A
 * store that accepts requests and answers none fails them. Without limits, one would hold up all later ones of its job.
 */
export function s3Client({ endpoint, region, requestSeconds = 20 }: S3ClientOptions): S3Client {
  return new S3Client({
    requestHandler: {
      ...proxiedAgents(),
      connectionTimeout: CONNECT_MS,
      requestTimeout: requestSeconds * 1000,
      throwOnRequestTimeout: true,
      socketTimeout: SILENCE_MS,
    },
    ...defined({ region }),
    // Other stores support neither buckets as host names nor AWS' newer checksums.
    ...(endpoint !== undefined && { endpoint, forcePathStyle: true }),
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
  })
}

/** An object with a range of a Launch's log, or in place of such a range. */
interface Piece extends Range {
  key: string
  /** Bytes of marks after the range's own bytes. */
  markBytes: number
}

/** A key below a Job's folder, with the size of its object in bytes. */
interface StoredKey {
  key: string
  size: number
  match: RegExpExecArray
}

interface PiecesOfLaunch {
  folder: string
  launch: number
  pieces: Piece[]
}

interface StoredLog {
  launch: number
  pieces: Piece[]
  /** Empty objects for the ranges whose pieces were removed at the cap. */
  leftOut: Piece[]
  /** End of the bytes without a gap, with those that were left out. */
  size: number
}

/**
 * Store of logs in S3, or any store with its API, for any number of façade replicas. S3 can't append, so each piece is
 * an object, `<namespace>/<job uid>/<launch>/<start>-<end>`, and small ones are merged later. Its marks follow its bytes in
 * the same object, so that times cost no request. Two replicas may store
 * the same piece, or overlapping ones: the bytes at one offset are always the same. At the cap, pieces in the middle are
 * removed, and an empty object `<start>-<end>-left-out` takes their place. Followers are woken by this process's own
 * appends, and otherwise poll every few seconds.
 */
export class S3LogStore implements LogStore {
  readonly #options: S3LogStoreOptions
  readonly #prefix: string
  readonly #capBytes: number
  readonly #writes = new Serial()
  readonly #followers = new Followers()
  /** Last known logs of the Jobs that this process stores. Other replicas may have stored more. */
  readonly #known = new Map<string, StoredLog[]>()

  constructor(options: S3LogStoreOptions) {
    this.#options = options
    this.#prefix = options.prefix ?? ""
    this.#capBytes = options.capBytes ?? DEFAULT_LOG_CAP_BYTES
  }

  append(log: LogRef, offset: number, data: Uint8Array, marks: readonly TimeMark[] = []): Promise<Appended> {
    assertIndex("launch", log.launch, 1)
    assertIndex("offset", offset, 0)
    const folder = this.#folderOf(log.job)
    return this.#writes.run(log.job, async () => {
      const appended = await this.#append(folder, log.launch, { offset, data, marks })
      this.#followers.wake(log.job)
      if (isMergeDue(this.#smallPieces(folder, log.launch))) this.#compactLater(log)
      return appended
    })
  }

  async *read(job: JobRef, options: ReadOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    const folder = this.#folderOf(job)
    const source = {
      logs: async () => (await this.#stored(folder)).map((log) => this.#readable(folder, log)),
      nextAppend: (until: AbortSignal) => this.#followers.next(job, until, this.#options.pollMs ?? POLL_MS),
    }
    yield* readLogs(source, options)
  }

  remove(job: JobRef): Promise<void> {
    const folder = this.#folderOf(job)
    return this.#writes.run(job, async () => {
      this.#known.delete(folder)
      await this.#delete((await this.#keys(folder)).map(({ key }) => key))
    })
  }

  async *list(): AsyncGenerator<JobRef, void, void> {
    for await (const namespace of this.#folders(this.#prefix)) {
      for await (const uid of this.#folders(`${this.#prefix}${namespace}/`)) yield { namespace, uid }
    }
  }

  async #append(
    folder: string,
    launch: number,
    piece: { offset: number; data: Uint8Array; marks: readonly TimeMark[] },
  ): Promise<Appended> {
    let logs = this.#known.get(folder) ?? (await this.#stored(folder))
    const find = () => logs.find((log) => log.launch === launch)
    // Another replica may have stored the bytes before.
    if (piece.offset > (find()?.size ?? 0)) logs = await this.#stored(folder)
    this.#known.set(folder, logs)
    const length = find()?.size ?? 0
    if (piece.offset > length) return { length }
    const fresh = piece.data.subarray(length - piece.offset)
    if (fresh.byteLength === 0) return { length }
    const marks = encodeMarks(marksOf(piece.marks, length, length + fresh.byteLength))
    const added = pieceOf(folder, launch, { start: length, end: length + fresh.byteLength }, marks.byteLength)
    await this.#put(added, Buffer.concat([fresh, marks]))
    logs = withObject(logs, launch, { piece: added })
    this.#known.set(folder, logs)
    await this.#leaveOut(folder, logs)
    return { length: added.end }
  }

  /**
   * Removes the oldest pieces after the log's beginning until the log is no larger than the cap. Removes also what an earlier
   * call has left, because a deletion failed or its process was killed.
   */
  async #leaveOut(folder: string, logs: readonly StoredLog[]): Promise<void> {
    const removed = piecesBeyond(logs, this.#capBytes)
    // Read again, whatever fails.
    if (removed.length > 0) this.#known.delete(folder)
    for (const [launch, pieces] of Map.groupBy(removed, (piece) => piece.launch)) {
      const former = logs.find((log) => log.launch === launch)?.leftOut ?? []
      const ends = [...former, ...pieces].map(({ end }) => end)
      const starts = [...former, ...pieces].map(({ start }) => start)
      const { key } = pieceOf(folder, launch, { start: Math.min(...starts), end: Math.max(...ends) })
      const mark = `${key}${LEFT_OUT}`
      // The mark comes first: without it a gap would look like the end of the log.
      await this.#put({ key: mark }, Buffer.alloc(0))
      const obsolete = [...pieces, ...former].map((piece) => piece.key).filter((each) => each !== mark)
      await this.#delete(obsolete)
    }
  }

  #compactLater(log: LogRef): void {
    const folder = this.#folderOf(log.job)
    this.#writes
      .run(log.job, () => this.#compact(folder, log.launch))
      .catch((error: unknown) => this.#options.onCompactionError?.(error, log.job))
  }

  /** Merges the small objects at a log's end: stores the new one first, then deletes the old ones. */
  async #compact(folder: string, launch: number): Promise<void> {
    const small = this.#smallPieces(folder, launch)
    const end = this.#known.get(folder)?.find((log) => log.launch === launch)?.size ?? 0
    const [first] = small
    // Read again in any case.
    this.#known.delete(folder)
    if (first === undefined || !isMergeDue(small)) return
    const bytes: Buffer[] = []
    const log = { folder, launch, pieces: small }
    for await (const piece of this.#bytes(log, first.start, end)) bytes.push(piece)
    const content = Buffer.concat(bytes)
    // Fewer bytes: the log is being removed.
    if (content.byteLength < end - first.start) return
    const marks = encodeMarks(await this.#marks(log, first.start, end))
    const merged = pieceOf(folder, launch, { start: first.start, end }, marks.byteLength)
    await this.#put(merged, Buffer.concat([content, marks]))
    await this.#delete(small.map(({ key }) => key).filter((key) => key !== merged.key))
  }

  #smallPieces(folder: string, launch: number): Piece[] {
    const log = this.#known.get(folder)?.find((each) => each.launch === launch)
    const gapEnd = Math.max(0, ...(log?.leftOut ?? []).map(({ end }) => end))
    const pieces = (log?.pieces ?? []).filter(({ start }) => start >= gapEnd)
    const large = pieces.findLastIndex(({ start, end }) => end - start >= LARGE_BYTES)
    return pieces.slice(large + 1)
  }

  /** Returns the stored logs of a Job, oldest Launch first. */
  async #stored(folder: string): Promise<StoredLog[]> {
    let logs: StoredLog[] = []
    for (const { key, size, match } of await this.#keys(folder)) {
      const launch = Number(match[1])
      const [start, end] = [Number(match[2]), Number(match[3])]
      const piece = { key, start, end, markBytes: Math.max(0, size - (end - start)) }
      logs = withObject(logs, launch, match[4] === undefined ? { piece } : { leftOut: piece })
    }
    return logs.sort((a, b) => a.launch - b.launch)
  }

  async #keys(folder: string): Promise<StoredKey[]> {
    const { client, bucket: Bucket } = this.#options
    const keys: StoredKey[] = []
    for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket, Prefix: folder })) {
      for (const { Key: key = "", Size: size = 0 } of Contents) {
        const match = KEY.exec(key.slice(folder.length))
        if (match !== null) keys.push({ key, size, match })
      }
    }
    return keys
  }

  async *#folders(prefix: string): AsyncGenerator<string> {
    const { client, bucket: Bucket } = this.#options
    const pages = paginateListObjectsV2({ client }, { Bucket, Prefix: prefix, Delimiter: "/" })
    for await (const { CommonPrefixes = [] } of pages) {
      for (const { Prefix = "" } of CommonPrefixes) yield Prefix.slice(prefix.length, -1)
    }
  }

  #readable(folder: string, { launch, size, pieces }: StoredLog): LaunchLog {
    const kept = mergeRanges(pieces.filter(({ end }) => end <= size))
    const log = { folder, launch, pieces }
    const read = (start: number, end: number) => this.#bytes(log, start, end)
    const marks = (start: number, end: number) => this.#marks(log, start, end)
    return { launch, length: size, kept, read, marks }
  }

  /** Returns the marks of a range from the ends of its objects. */
  async #marks(log: PiecesOfLaunch, start: number, end: number): Promise<TimeMark[]> {
    let pieces = log.pieces
    for (let tries = 0; tries < READ_TRIES; tries++) {
      const within = pieces.filter((piece) => piece.start < end && piece.end > start && piece.markBytes > 0)
      const found = await inParallel(within, PARALLEL, (piece) => {
        const size = piece.end - piece.start
        return this.#get(piece.key, size, size + piece.markBytes)
      })
      const marks = found.filter((bytes) => bytes !== undefined)
      if (marks.length === within.length) return marksOf(decodeMarks(Buffer.concat(marks)), start, end)
      // An object was merged into a larger one in the meantime, or removed.
      pieces = await this.#piecesNow(log)
    }
    return []
  }

  async #piecesNow({ folder, launch }: PiecesOfLaunch): Promise<Piece[]> {
    return (await this.#stored(folder)).find((log) => log.launch === launch)?.pieces ?? []
  }

  async *#bytes(log: PiecesOfLaunch, from: number, end: number): AsyncGenerator<Buffer, void, void> {
    let pieces = log.pieces
    for (let at = from, tries = 0; at < end; ) {
      const piece = pieces.findLast(({ start, end: pieceEnd }) => start <= at && at < pieceEnd)
      const stop = piece === undefined ? at : Math.min(end, piece.end, at + LARGE_BYTES)
      const bytes = piece && (await this.#get(piece.key, at - piece.start, stop - piece.start))
      if (bytes === undefined) {
        // The object was merged into a larger one in the meantime, or removed.
        if (++tries === READ_TRIES) return
        pieces = await this.#piecesNow(log)
        continue
      }
      for (let offset = 0; offset < bytes.byteLength; offset += BLOCK_BYTES) {
        yield bytes.subarray(offset, offset + BLOCK_BYTES)
      }
      at += bytes.byteLength
      tries = 0
    }
  }

  /** Returns the bytes from `start` up to `end` of an object; undefined if there is none. */
  async #get(Key: string, start: number, end: number): Promise<Buffer | undefined> {
    const { client, bucket: Bucket } = this.#options
    try {
      const { Body } = await client.send(new GetObjectCommand({ Bucket, Key, Range: `bytes=${start}-${end - 1}` }))
      return Buffer.from((await Body?.transformToByteArray()) ?? [])
    } catch (error) {
      if (error instanceof NoSuchKey) return undefined
      throw error
    }
  }

  async #put({ key: Key }: { key: string }, Body: Uint8Array): Promise<void> {
    const { client, bucket: Bucket } = this.#options
    await client.send(new PutObjectCommand({ Bucket, Key, Body, ContentType: "application/octet-stream" }))
  }

  async #delete(keys: readonly string[]): Promise<void> {
    const { client, bucket: Bucket } = this.#options
    await inParallel(keys, PARALLEL, (Key) => client.send(new DeleteObjectCommand({ Bucket, Key })))
  }

  #folderOf(job: JobRef): string {
    const { namespace, uid } = logPath(job)
    return `${this.#prefix}${namespace}/${uid}/`
  }
}

/** End of the keys of objects in place of removed pieces. */
const LEFT_OUT = "-left-out"

/** Keys below a Job's folder. Numbers have leading zeros, so that keys sort by their content. */
const KEY = /^(\d{9})\/(\d{16})-(\d{16})(-left-out)?$/

function pieceOf(folder: string, launch: number, { start, end }: Range, markBytes = 0): Piece {
  const digits = (value: number) => String(value).padStart(16, "0")
  return { key: `${launchFolder(folder, launch)}${digits(start)}-${digits(end)}`, start, end, markBytes }
}

function launchFolder(folder: string, launch: number): string {
  return `${folder}${String(launch).padStart(9, "0")}/`
}

/** Returns the logs with one more object. Objects come in the order of their starts. */
function withObject(
  logs: readonly StoredLog[],
  launch: number,
  { piece, leftOut }: { piece?: Piece; leftOut?: Piece },
): StoredLog[] {
  const before = logs.find((log) => log.launch === launch) ?? { launch, pieces: [], leftOut: [], size: 0 }
  const added = piece ?? leftOut
  const after: StoredLog = {
    launch,
    pieces: piece === undefined ? before.pieces : [...before.pieces, piece],
    leftOut: leftOut === undefined ? before.leftOut : [...before.leftOut, leftOut],
    size: added !== undefined && added.start <= before.size ? Math.max(before.size, added.end) : before.size,
  }
  return [...logs.filter((log) => log.launch !== launch), after].sort((a, b) => a.launch - b.launch)
}

/**
 * Returns the oldest pieces after the log's beginning, without which the log is no larger than the cap. Before these come the
 * pieces that are left out already.
 */
function piecesBeyond(logs: readonly StoredLog[], capBytes: number): (Piece & { launch: number })[] {
  const isLeftOut = ({ leftOut }: StoredLog, { start, end }: Range): boolean =>
    leftOut.some((range) => range.start <= start && end <= range.end)
  const piecesOf = (isRemoved: boolean) =>
    logs.flatMap((log) =>
      log.pieces
        .filter((piece) => isLeftOut(log, piece) === isRemoved)
        .map((piece) => ({ ...piece, launch: log.launch })),
    )
  const pieces = piecesOf(false)
  const sizeOf = ({ start, end }: Range): number => end - start
  let excess = pieces.reduce((sum, piece) => sum + sizeOf(piece), 0) - capBytes
  const removed = piecesOf(true)
  let head = 0
  // The last piece stays, whatever its size.
  for (const piece of pieces.slice(0, -1)) {
    head += sizeOf(piece)
    if (excess <= 0) break
    if (head <= capBytes * HEAD_SHARE) continue
    removed.push(piece)
    excess -= sizeOf(piece)
  }
  return removed
}

function isMergeDue(pieces: readonly Piece[]): boolean {
  return pieces.length >= SMALL_OBJECTS || pieces.reduce((sum, { start, end }) => sum + end - start, 0) >= MERGE_BYTES
}

/** Returns the ranges that the pieces cover together, in order. */
function mergeRanges(pieces: readonly Piece[]): Range[] {
  const ranges: Range[] = []
  for (const { start, end } of pieces.toSorted((a, b) => a.start - b.start)) {
    const last = ranges.at(-1)
    if (last !== undefined && start <= last.end) last.end = Math.max(last.end, end)
    else ranges.push({ start, end })
  }
  return ranges
}
