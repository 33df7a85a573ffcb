import {
  DeleteObjectCommand,
  GetObjectCommand,
  NoSuchKey,
  PutObjectCommand,
  paginateListObjectsV2,
  S3Client,
} from "@aws-sdk/client-s3"
import {
  assertIndex,
  BLOCK_BYTES,
  Followers,
  type LaunchLog,
  pathOf,
  readLogs,
  Serial,
  truncationLine,
} from "./sections.ts"
import {
  type Appended,
  DEFAULT_LOG_CAP_BYTES,
  type JobRef,
  type LogRef,
  type LogStore,
  type ReadOptions,
} from "./store.ts"

/** How soon a follower sees what another replica has stored, unless told otherwise. */
const POLL_MS = 2000

/** So many small objects at the end of a log are made one. */
const SMALL_OBJECTS = 64

/** An object of this many bytes is never rewritten. */
const LARGE_BYTES = 1024 * 1024

/** Requests at once for one job. */
const PARALLEL = 8

/** What a Launch's log may have been rewritten while it is read, before it counts as removed. */
const READ_TRIES = 5

export interface S3LogStoreOptions {
  client: S3Client
  bucket: string
  /** Before all keys; with a slash at its end, or empty. */
  prefix?: string
  /** Bytes kept of one Job; what comes after is dropped and a line says so. Default 64 MiB. */
  capBytes?: number
  /** How soon a follower sees what another replica has stored. Default 2 s. */
  pollMs?: number
  /** Small objects could not be made one: they stay, and it is tried again. */
  onCompactionError?: (error: unknown, job: JobRef) => void
}

/** A client for S3 or a store like it. Credentials are the process's own, found as the SDK does everywhere. */
export function s3Client({ endpoint, region }: { endpoint?: string; region?: string }): S3Client {
  return new S3Client({
    ...(region !== undefined && { region }),
    // Other stores know neither names of buckets as hosts nor AWS' newer checksums.
    ...(endpoint !== undefined && { endpoint, forcePathStyle: true }),
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
  })
}

/** An object: the bytes from `start` up to `end` of a Launch's log. */
interface Piece {
  key: string
  start: number
  end: number
}

interface StoredLog {
  launch: number
  pieces: Piece[]
  /** Up to where there is no gap. */
  size: number
  truncated: boolean
}

/**
 * Logs in S3, or any store with its API, for any number of façade replicas. S3 can't append, so each piece is an object,
 * `<namespace>/<job uid>/<launch>/<start>-<end>`, and small ones are made one later. Two replicas that store the same
 * piece, or overlapping ones, do no harm: a byte of a log is the same whoever brings it. Followers are woken by this
 * process's own appends and else look every few seconds.
 */
export class S3LogStore implements LogStore {
  readonly #options: S3LogStoreOptions
  readonly #prefix: string
  readonly #capBytes: number
  readonly #writes = new Serial()
  readonly #followers = new Followers()
  /** What this process last knew of the Jobs that it stores for; others may have stored more. */
  readonly #known = new Map<string, StoredLog[]>()

  constructor(options: S3LogStoreOptions) {
    this.#options = options
    this.#prefix = options.prefix ?? ""
    this.#capBytes = options.capBytes ?? DEFAULT_LOG_CAP_BYTES
  }

  append(log: LogRef, offset: number, data: Uint8Array): Promise<Appended> {
    assertIndex("launch", log.launch, 1)
    assertIndex("offset", offset, 0)
    const folder = this.#folderOf(log.job)
    return this.#writes.run(log.job, async () => {
      const appended = await this.#append(folder, log.launch, { offset, data })
      this.#followers.wake(log.job)
      if (this.#smallPieces(folder, log.launch).length >= SMALL_OBJECTS) this.#compactLater(log)
      return appended
    })
  }

  async *read(job: JobRef, options: ReadOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    const folder = this.#folderOf(job)
    const source = {
      logs: async () => (await this.#stored(folder)).map((log) => this.#readable(folder, log)),
      nextAppend: (until: AbortSignal) => this.#followers.next(job, until, this.#options.pollMs ?? POLL_MS),
      truncationLine: truncationLine(this.#capBytes),
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

  async #append(folder: string, launch: number, piece: { offset: number; data: Uint8Array }): Promise<Appended> {
    let logs = this.#known.get(folder) ?? (await this.#stored(folder))
    const find = () => logs.find((log) => log.launch === launch)
    // Another replica may have stored what comes before.
    if (piece.offset > (find()?.size ?? 0)) logs = await this.#stored(folder)
    this.#known.set(folder, logs)
    const length = find()?.size ?? 0
    if (logs.some((log) => log.truncated)) return { length, full: true }
    if (piece.offset > length) return { length, full: false }
    const fresh = piece.data.subarray(length - piece.offset)
    if (fresh.byteLength === 0) return { length, full: false }
    const room = this.#capBytes - logs.reduce((sum, log) => sum + log.size, 0)
    const kept = fresh.subarray(0, Math.max(0, room))
    const full = kept.byteLength < fresh.byteLength
    if (kept.byteLength > 0 || full) await this.#put(pieceOf(folder, launch, length, length + kept.byteLength), kept)
    if (full) await this.#put({ key: truncatedKey(folder, launch) }, Buffer.alloc(0))
    this.#known.set(
      folder,
      withPiece(logs, launch, { ...pieceOf(folder, launch, length, length + kept.byteLength), full }),
    )
    return { length: length + kept.byteLength, full }
  }

  #compactLater(log: LogRef): void {
    const folder = this.#folderOf(log.job)
    this.#writes
      .run(log.job, () => this.#compact(folder, log.launch))
      .catch((error: unknown) => this.#options.onCompactionError?.(error, log.job))
  }

  /** Makes one object of the small ones at a log's end: first the new one, then the old ones go. */
  async #compact(folder: string, launch: number): Promise<void> {
    const small = this.#smallPieces(folder, launch)
    const end = this.#known.get(folder)?.find((log) => log.launch === launch)?.size ?? 0
    const [first] = small
    // Read anew after whatever comes of this.
    this.#known.delete(folder)
    if (first === undefined || small.length < SMALL_OBJECTS) return
    const bytes: Buffer[] = []
    for await (const piece of this.#bytes({ folder, launch, pieces: small }, first.start, end)) bytes.push(piece)
    const merged = pieceOf(folder, launch, first.start, end)
    const content = Buffer.concat(bytes)
    // Less: the log is being removed.
    if (content.byteLength < end - first.start) return
    await this.#put(merged, content)
    await this.#delete(small.map(({ key }) => key).filter((key) => key !== merged.key))
  }

  #smallPieces(folder: string, launch: number): Piece[] {
    const pieces = this.#known.get(folder)?.find((log) => log.launch === launch)?.pieces ?? []
    const large = pieces.findLastIndex(({ start, end }) => end - start >= LARGE_BYTES)
    return pieces.slice(large + 1)
  }

  /** What is stored of a Job now, oldest Launch first. */
  async #stored(folder: string): Promise<StoredLog[]> {
    let logs: StoredLog[] = []
    for (const { key, match } of await this.#keys(folder)) {
      const launch = Number(match[1])
      const [start, end] = [Number(match[2]), Number(match[3])]
      const full = match[2] === undefined
      logs = withPiece(logs, launch, full ? { full } : { key, start, end, full })
    }
    return logs.sort((a, b) => a.launch - b.launch)
  }

  async #keys(folder: string): Promise<{ key: string; match: RegExpExecArray }[]> {
    const { client, bucket: Bucket } = this.#options
    const keys: { key: string; match: RegExpExecArray }[] = []
    for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket, Prefix: folder })) {
      for (const { Key: key = "" } of Contents) {
        const match = KEY.exec(key.slice(folder.length))
        if (match !== null) keys.push({ key, match })
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

  #readable(folder: string, { launch, size, truncated, pieces }: StoredLog): LaunchLog {
    return { launch, size, truncated, read: (start, end) => this.#bytes({ folder, launch, pieces }, start, end) }
  }

  async *#bytes(
    log: { folder: string; launch: number; pieces: Piece[] },
    from: number,
    end: number,
  ): AsyncGenerator<Buffer, void, void> {
    let pieces = log.pieces
    for (let at = from, tries = 0; at < end; ) {
      const piece = pieces.findLast(({ start, end: pieceEnd }) => start <= at && at < pieceEnd)
      const stop = piece === undefined ? at : Math.min(end, piece.end, at + LARGE_BYTES)
      const bytes = piece && (await this.#get(piece.key, at - piece.start, stop - piece.start))
      if (bytes === undefined) {
        // Made part of a larger one meanwhile, or removed.
        if (++tries === READ_TRIES) return
        pieces = (await this.#stored(log.folder)).find(({ launch }) => launch === log.launch)?.pieces ?? []
        continue
      }
      for (let offset = 0; offset < bytes.byteLength; offset += BLOCK_BYTES) {
        yield bytes.subarray(offset, offset + BLOCK_BYTES)
      }
      at += bytes.byteLength
      tries = 0
    }
  }

  /** The bytes from `start` up to `end` of an object; undefined when there is none. */
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
    await inBatches(keys, (Key) => client.send(new DeleteObjectCommand({ Bucket, Key })))
  }

  #folderOf(job: JobRef): string {
    const { namespace, uid } = pathOf(job)
    return `${this.#prefix}${namespace}/${uid}/`
  }
}

/** Below a Job's folder. Numbers have leading zeros, so that keys are in the order of what they hold. */
const KEY = /^(\d{9})\/(?:(\d{16})-(\d{16})|truncated)$/

function pieceOf(folder: string, launch: number, start: number, end: number): Piece {
  const digits = (value: number) => String(value).padStart(16, "0")
  return { key: `${launchFolder(folder, launch)}${digits(start)}-${digits(end)}`, start, end }
}

function truncatedKey(folder: string, launch: number): string {
  return `${launchFolder(folder, launch)}truncated`
}

function launchFolder(folder: string, launch: number): string {
  return `${folder}${String(launch).padStart(9, "0")}/`
}

/** The logs with a piece more, or the mark that no more is kept. Pieces come in the order of their starts. */
function withPiece(logs: readonly StoredLog[], launch: number, added: Partial<Piece> & { full: boolean }): StoredLog[] {
  const { key, start, end, full } = added
  const before = logs.find((log) => log.launch === launch) ?? { launch, pieces: [], size: 0, truncated: false }
  const isPiece = key !== undefined && start !== undefined && end !== undefined
  const after: StoredLog = {
    launch,
    pieces: isPiece ? [...before.pieces, { key, start, end }] : before.pieces,
    size: isPiece && start <= before.size ? Math.max(before.size, end) : before.size,
    truncated: before.truncated || full,
  }
  return [...logs.filter((log) => log.launch !== launch), after]
}

async function inBatches<Item, Result>(
  items: readonly Item[],
  work: (item: Item, index: number) => Promise<Result>,
): Promise<Result[]> {
  const results: Result[] = []
  for (let at = 0; at < items.length; at += PARALLEL) {
    const batch = items.slice(at, at + PARALLEL)
    results.push(...(await Promise.all(batch.map((item, index) => work(item, at + index)))))
  }
  return results
}
