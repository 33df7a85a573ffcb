import type { Dirent } from "node:fs"
import { mkdir, open, readdir, rm, stat, truncate, writeFile } from "node:fs/promises"
import { join } from "node:path"
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
import { decodeMarks, encodeMarks, MARK_BYTES, marksOf } from "./times.ts"

export interface FileLogStoreOptions {
  /** Bytes kept of one Job. Bytes in the middle are left out, and a line in the log says so. Default 64 MiB. */
  capBytes?: number
  /** Called for each log that was deleted because the disk is full. */
  onRemovedForSpace?: (job: JobRef) => void
}

/** Share of all logs that is deleted at once when the disk is full. */
const FREED_SHARE = 0.01

/** Bytes of marks that are read at once. */
const MARKS_BLOCK_BYTES = MARK_BYTES * 4096

/** Number of files that hold the end of a Job's log at its cap. The oldest one is removed as a whole. */
const END_FILES = 8

/**
 * Store of logs as plain files, for one façade replica. `<folder>/<namespace>/<job uid>/<launch>.log` has the beginning,
 * and the files `<launch>.<start>.log` have the end. Beside each is a file `.times` with its marks. Followers are woken by the appends of this process. When the disk is full, the oldest logs of the
 * namespace with the most bytes are deleted. So one project can't stop the logs of the others.
 */
export class FileLogStore implements LogStore {
  readonly #folder: string
  readonly #capBytes: number
  readonly #onRemovedForSpace: (job: JobRef) => void
  readonly #writes = new Serial()
  readonly #followers = new Followers()

  constructor(folder: string, options: FileLogStoreOptions = {}) {
    this.#folder = folder
    this.#capBytes = options.capBytes ?? DEFAULT_LOG_CAP_BYTES
    this.#onRemovedForSpace = options.onRemovedForSpace ?? (() => undefined)
  }

  append(log: LogRef, offset: number, data: Uint8Array, marks: readonly TimeMark[] = []): Promise<Appended> {
    assertIndex("launch", log.launch, 1)
    assertIndex("offset", offset, 0)
    const folder = this.#folderOf(log.job)
    return this.#writes.run(log.job, async () => {
      const appended = await this.#withSpace(log.job, () => this.#append(folder, log.launch, { offset, data, marks }))
      this.#followers.wake(log.job)
      return appended
    })
  }

  async *read(job: JobRef, options: ReadOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    const folder = this.#folderOf(job)
    const source = {
      logs: () => logsIn(folder),
      nextAppend: (until: AbortSignal) => this.#followers.next(job, until),
    }
    yield* readLogs(source, options)
  }

  remove(job: JobRef): Promise<void> {
    const folder = this.#folderOf(job)
    return this.#writes.run(job, () => rm(folder, { recursive: true, force: true }))
  }

  async *list(): AsyncGenerator<JobRef, void, void> {
    for (const namespace of await foldersIn(this.#folder)) {
      for (const uid of await foldersIn(join(this.#folder, namespace))) yield { namespace, uid }
    }
  }

  /** Appends. On a full disk it deletes old logs and tries once more. */
  async #withSpace(job: JobRef, append: () => Promise<Appended>): Promise<Appended> {
    try {
      return await append()
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC" || !(await this.#makeSpace(job))) throw error
      return await append()
    }
  }

  /** Deletes the oldest logs of the namespace with the most bytes, without the job's own. Returns false if it has none. */
  async #makeSpace(job: JobRef): Promise<boolean> {
    const all: StoredSize[] = []
    for await (const each of this.list()) all.push(await sizeOfLog(each, this.#folderOf(each)))
    const removed = oldestOfLargest(all, job)
    for (const each of removed) {
      // Not after the pending writes of that job: those may wait for the same space.
      await rm(this.#folderOf(each), { recursive: true, force: true })
      this.#onRemovedForSpace(each)
    }
    return removed.length > 0
  }

  async #append(folder: string, launch: number, piece: Piece): Promise<Appended> {
    const files = await filesIn(folder)
    const length = lengthOf(files, launch)
    if (piece.offset > length) return { length }
    const fresh = piece.data.subarray(length - piece.offset)
    if (fresh.byteLength === 0) return { length }
    await mkdir(folder, { recursive: true, mode: 0o700 })
    const room = files.some(isEnd) ? 0 : this.#capBytes * HEAD_SHARE - bytesIn(files)
    const head = fresh.subarray(0, Math.max(0, Math.floor(room)))
    if (head.byteLength > 0) await appendTo(headPath(folder, launch), { ...piece, offset: length, data: head })
    const rest = fresh.subarray(head.byteLength)
    if (rest.byteLength > 0)
      await this.#appendToEnd(folder, launch, { ...piece, offset: length + head.byteLength, data: rest })
    return { length: length + fresh.byteLength }
  }

  /** Appends to the files of the log's end. Then it removes the oldest ones of these beyond the cap. */
  async #appendToEnd(folder: string, launch: number, piece: Piece): Promise<void> {
    const endBytes = this.#capBytes * (1 - HEAD_SHARE)
    const fileBytes = Math.max(1, Math.floor(endBytes / END_FILES))
    const files = await filesIn(folder)
    const last = files.findLast((file) => isEnd(file) && file.launch === launch)
    let start = last !== undefined && last.end === piece.offset ? last.start : piece.offset
    for (let at = piece.offset, { data } = piece; data.byteLength > 0; ) {
      if (at - start >= fileBytes) start = at
      const part = data.subarray(0, fileBytes - (at - start))
      await appendTo(endPath(folder, launch, start), { ...piece, offset: at, data: part })
      data = data.subarray(part.byteLength)
      at += part.byteLength
    }
    await removeOldest(folder, endBytes)
  }

  #folderOf(job: JobRef): string {
    const { namespace, uid } = logPath(job)
    return join(this.#folder, namespace, uid)
  }
}

/** A piece of a Launch's log, and marks of which some are of this piece. */
interface Piece {
  offset: number
  data: Uint8Array
  marks: readonly TimeMark[]
}

/** Appends a piece to a file, and before that its marks to the file of times: no bytes get an earlier time than theirs. */
async function appendTo(path: string, { offset, data, marks }: Piece): Promise<void> {
  const added = encodeMarks(marksOf(marks, offset, offset + data.byteLength))
  if (added.byteLength > 0) await appendTimes(timesPath(path), added)
  await writeFile(path, data, { flag: "a", mode: 0o600 })
}

async function appendTimes(path: string, added: Buffer): Promise<void> {
  const size = (await sizeOf(path)) ?? 0
  // A write that was cut off must not shift the marks after it.
  if (size % MARK_BYTES > 0) await truncate(path, size - (size % MARK_BYTES))
  await writeFile(path, added, { flag: "a", mode: 0o600 })
}

/** Returns the path of the marks of a file. */
function timesPath(path: string): string {
  return path.replace(/\.log$/, ".times")
}

const FILE_NAME = /^([1-9][0-9]{0,8})(?:\.([0-9]{1,16}))?\.log$/

/** A file with a range of a Launch's log. */
interface LogFile extends Range {
  launch: number
  path: string
  /** True for a file of the log's end. */
  isEnd: boolean
}

function headPath(folder: string, launch: number): string {
  return join(folder, `${launch}.log`)
}

function endPath(folder: string, launch: number, start: number): string {
  return join(folder, `${launch}.${start}.log`)
}

function isEnd(file: LogFile): boolean {
  return file.isEnd
}

function bytesIn(files: readonly LogFile[]): number {
  return files.reduce((sum, { start, end }) => sum + end - start, 0)
}

function lengthOf(files: readonly LogFile[], launch: number): number {
  return Math.max(0, ...files.filter((file) => file.launch === launch).map(({ end }) => end))
}

/** Size of a Job's log, and the time of its last write in milliseconds. */
interface StoredSize {
  job: JobRef
  bytes: number
  writtenAt: number
}

async function sizeOfLog(job: JobRef, folder: string): Promise<StoredSize> {
  const stats = await Promise.all(
    (await entriesOf(folder)).map((entry) => stat(join(folder, entry.name)).catch(() => undefined)),
  )
  const found = stats.filter((each) => each !== undefined)
  const bytes = found.reduce((sum, { size }) => sum + size, 0)
  return { job, bytes, writtenAt: Math.max(0, ...found.map(({ mtimeMs }) => mtimeMs)) }
}

/** Returns the logs to delete for space: the oldest of the namespace with the most bytes, without the job's own. */
function oldestOfLargest(all: readonly StoredSize[], writer: JobRef): JobRef[] {
  const total = (logs: readonly StoredSize[]): number => logs.reduce((sum, { bytes }) => sum + bytes, 0)
  const namespaces = [...Map.groupBy(all, ({ job }) => job.namespace).values()]
  const [largest = []] = namespaces.sort((a, b) => total(b) - total(a))
  const removed: StoredSize[] = []
  for (const log of largest.toSorted((a, b) => a.writtenAt - b.writtenAt)) {
    if (removed.length > 0 && total(removed) >= total(all) * FREED_SHARE) break
    if (log.job.uid !== writer.uid) removed.push(log)
  }
  return removed.map(({ job }) => job)
}

/** Removes the oldest files of a log's end until the others have at most `bytes`. */
async function removeOldest(folder: string, bytes: number): Promise<void> {
  const files = (await filesIn(folder)).filter((file) => file.isEnd && file.end > file.start)
  for (let [oldest] = files; oldest !== undefined && files.length > 1 && bytesIn(files) > bytes; [oldest] = files) {
    const { launch, end, path } = oldest
    files.shift()
    // An empty file keeps the length of a log of which nothing else is left.
    if (!files.some((file) => file.launch === launch))
      await writeFile(endPath(folder, launch, end), "", { mode: 0o600 })
    for (const each of [path, timesPath(path)]) await rm(each, { force: true })
  }
}

/** Returns the files of a Job's log in order. */
async function filesIn(folder: string): Promise<LogFile[]> {
  const names = (await entriesOf(folder)).map((entry) => FILE_NAME.exec(entry.name)).filter((match) => match !== null)
  const found = await Promise.all(
    names.map(async ([name, launch, from]): Promise<LogFile[]> => {
      const path = join(folder, name)
      const size = await sizeOf(path)
      const start = Number(from ?? 0)
      if (size === undefined) return []
      return [{ launch: Number(launch), path, start, end: start + size, isEnd: from !== undefined }]
    }),
  )
  return found.flat().sort((a, b) => a.launch - b.launch || a.start - b.start || a.end - b.end)
}

/** Returns the Job's logs, oldest Launch first. */
async function logsIn(folder: string): Promise<LaunchLog[]> {
  const files = await filesIn(folder)
  return [...Map.groupBy(files, ({ launch }) => launch)].map(([launch, ofLaunch]) => ({
    launch,
    kept: ofLaunch.filter(({ start, end }) => end > start),
    length: lengthOf(files, launch),
    read: (start, end) => rangeBytes(ofLaunch, start, end),
    marks: (start, end) => rangeMarks(ofLaunch, start, end),
  }))
}

/** Returns the marks of a range within one file, read backwards from the file's end to the first one before the range. */
async function rangeMarks(files: readonly LogFile[], start: number, end: number): Promise<TimeMark[]> {
  const path = files.find((each) => each.start <= start && start < each.end)?.path
  const size = path === undefined ? undefined : await sizeOf(timesPath(path))
  if (path === undefined || size === undefined) return []
  const blocks: Buffer[] = []
  for (let to = size - (size % MARK_BYTES); to > 0; to -= MARKS_BLOCK_BYTES) {
    const block: Buffer[] = []
    for await (const bytes of fileBytesIfKept(timesPath(path), Math.max(0, to - MARKS_BLOCK_BYTES), to))
      block.push(bytes)
    blocks.unshift(Buffer.concat(block))
    if ((decodeMarks(blocks[0] as Buffer)[0]?.offset ?? 0) <= start) break
  }
  return marksOf(decodeMarks(Buffer.concat(blocks)), start, end)
}

async function* rangeBytes(files: readonly LogFile[], start: number, end: number): AsyncGenerator<Buffer, void, void> {
  const file = files.find((each) => each.start <= start && start < each.end)
  if (file !== undefined) yield* fileBytesIfKept(file.path, start - file.start, end - file.start)
}

async function* fileBytesIfKept(path: string, start: number, end: number): AsyncGenerator<Buffer, void, void> {
  try {
    yield* fileBytes(path, start, end)
  } catch (error) {
    // The file was removed after it was listed.
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error
  }
}

/** Returns undefined if the file was removed. */
async function sizeOf(path: string): Promise<number | undefined> {
  try {
    return (await stat(path)).size
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
}

async function* fileBytes(path: string, start: number, end: number): AsyncGenerator<Buffer, void, void> {
  await using file = await open(path)
  for (let offset = start; offset < end; ) {
    const length = Math.min(BLOCK_BYTES, end - offset)
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(length), 0, length, offset)
    // Shorter than its size before: the log is being removed.
    if (bytesRead === 0) return
    offset += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
}

async function foldersIn(folder: string): Promise<string[]> {
  return (await entriesOf(folder)).filter((entry) => entry.isDirectory()).map((entry) => entry.name)
}

/** Returns the entries of a folder; none if there is no such folder. */
async function entriesOf(folder: string): Promise<Dirent[]> {
  try {
    return await readdir(folder, { withFileTypes: true })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return []
    throw error
  }
}
