import type { Dirent } from "node:fs"
import { type FileHandle, mkdir, open, readdir, readFile, rm, stat, writeFile } from "node:fs/promises"
import { join } from "node:path"
import type { Appended, JobRef, LogRef, LogStore, ReadOptions } from "./store.ts"

/** Bytes that are kept of one Job, over all its Launches, unless told otherwise. */
export const DEFAULT_LOG_CAP_BYTES = 64 * 1024 * 1024

/** Bytes read at once, and so the largest piece that a reader gets. */
const BLOCK_BYTES = 64 * 1024

const NEWLINE = 0x0a

export interface FileLogStoreOptions {
  /** Bytes kept of one Job; what comes after is dropped and a line says so. Default 64 MiB. */
  capBytes?: number
}

/** The log of one Launch as it is read: its file between lines of our own. It only ever grows at its end. */
interface Section {
  header: Buffer
  path: string
  size: number
  footer: Buffer
}

/** A place in a Job's log: `offset` bytes into one of its sections. */
interface Position {
  section: number
  offset: number
}

/**
 * Logs as plain files, `<folder>/<namespace>/<job uid>/<launch>.log`, for one façade replica: followers are woken by
 * the appends of this very process. A file `<launch>.truncated` stands beside a log that has reached its cap and
 * holds the line that says so.
 */
export class FileLogStore implements LogStore {
  readonly #folder: string
  readonly #capBytes: number
  /** The last append or removal of each Job, which the next one waits for. */
  readonly #writes = new Map<string, Promise<unknown>>()
  readonly #followers = new Map<string, Set<() => void>>()

  constructor(folder: string, options: FileLogStoreOptions = {}) {
    this.#folder = folder
    this.#capBytes = options.capBytes ?? DEFAULT_LOG_CAP_BYTES
  }

  append(log: LogRef, offset: number, data: Uint8Array): Promise<Appended> {
    assertIndex("launch", log.launch, 1)
    assertIndex("offset", offset, 0)
    const folder = this.#folderOf(log.job)
    return this.#serially(folder, () => this.#append(folder, log.launch, { offset, data }))
  }

  async *read(job: JobRef, options: ReadOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    if (options.tail !== undefined) assertIndex("tail", options.tail, 0)
    const folder = this.#folderOf(job)
    const until = options.follow ?? AbortSignal.abort()
    let position: Position | undefined
    for (;;) {
      // Taken before the files are looked at, so that no append falls in between.
      using wake = this.#nextAppend(folder, until)
      const last = until.aborted
      const sections = await sectionsOf(folder)
      position ??= options.tail === undefined ? { section: 0, offset: 0 } : await tailOf(sections, options.tail)
      for (; position.section < sections.length; position = { section: position.section + 1, offset: 0 }) {
        const section = sections[position.section] as Section
        const end = lengthOf(section)
        yield* bytesOf(section, position.offset, end)
        position = { section: position.section, offset: Math.max(position.offset, end) }
        if (position.section === sections.length - 1) break
      }
      if (last) return
      await wake.promise
    }
  }

  remove(job: JobRef): Promise<void> {
    const folder = this.#folderOf(job)
    return this.#serially(folder, () => rm(folder, { recursive: true, force: true }))
  }

  async *list(): AsyncGenerator<JobRef, void, void> {
    for (const namespace of await foldersIn(this.#folder)) {
      for (const uid of await foldersIn(join(this.#folder, namespace))) yield { namespace, uid }
    }
  }

  async #append(folder: string, launch: number, piece: { offset: number; data: Uint8Array }): Promise<Appended> {
    const files = await filesIn(folder)
    const length = files.find((file) => file.launch === launch)?.size ?? 0
    if (files.some((file) => file.truncated)) return { length, full: true }
    if (piece.offset > length) return { length, full: false }
    const fresh = piece.data.subarray(length - piece.offset)
    if (fresh.byteLength === 0) return { length, full: false }
    const room = this.#capBytes - files.reduce((sum, file) => sum + file.size, 0)
    const kept = fresh.subarray(0, Math.max(0, room))
    const full = kept.byteLength < fresh.byteLength
    await mkdir(folder, { recursive: true, mode: 0o700 })
    await writeFile(logPath(folder, launch), kept, { flag: "a", mode: 0o600 })
    if (full) await writeFile(truncatedPath(folder, launch), this.#truncationLine(), { mode: 0o600 })
    for (const wake of this.#followers.get(folder) ?? []) wake()
    return { length: length + kept.byteLength, full }
  }

  #truncationLine(): string {
    return `--- log truncated: only the first ${this.#capBytes} bytes of a job's log are kept ---\n`
  }

  #folderOf(job: JobRef): string {
    return join(this.#folder, safeName("namespace", job.namespace), safeName("uid", job.uid))
  }

  /** Runs one write of a Job after the other. */
  async #serially<Result>(folder: string, write: () => Promise<Result>): Promise<Result> {
    const before = this.#writes.get(folder)
    const run = (async () => {
      // A failed write has told its own caller.
      await before?.catch(() => undefined)
      return await write()
    })()
    this.#writes.set(folder, run)
    try {
      return await run
    } finally {
      if (this.#writes.get(folder) === run) this.#writes.delete(folder)
    }
  }

  /** Resolves at the Job's next append, or when `until` is aborted. */
  #nextAppend(folder: string, until: AbortSignal): Disposable & { promise: Promise<void> } {
    const { promise, resolve } = Promise.withResolvers<void>()
    const wake = (): void => resolve()
    const followers = this.#followers.get(folder) ?? new Set()
    this.#followers.set(folder, followers.add(wake))
    if (until.aborted) wake()
    until.addEventListener("abort", wake, { once: true })
    return {
      promise,
      [Symbol.dispose]: () => {
        until.removeEventListener("abort", wake)
        followers.delete(wake)
        if (followers.size === 0 && this.#followers.get(folder) === followers) this.#followers.delete(folder)
      },
    }
  }
}

const FILE_NAME = /^([1-9][0-9]{0,8})\.(log|truncated)$/

function logPath(folder: string, launch: number): string {
  return join(folder, `${launch}.log`)
}

function truncatedPath(folder: string, launch: number): string {
  return join(folder, `${launch}.truncated`)
}

interface LogFile {
  launch: number
  size: number
  truncated: boolean
}

/** The Job's log files, oldest Launch first. */
async function filesIn(folder: string): Promise<LogFile[]> {
  const names = (await entriesOf(folder)).map((entry) => FILE_NAME.exec(entry.name)).filter((match) => match !== null)
  const truncated = new Set(names.filter((match) => match[2] === "truncated").map((match) => Number(match[1])))
  const launches = names.filter((match) => match[2] === "log").map((match) => Number(match[1]))
  launches.sort((a, b) => a - b)
  return await Promise.all(
    launches.map(async (launch) => ({
      launch,
      size: await sizeOf(logPath(folder, launch)),
      truncated: truncated.has(launch),
    })),
  )
}

async function sectionsOf(folder: string): Promise<Section[]> {
  const files = await filesIn(folder)
  return await Promise.all(
    files.map(async (file, index) => {
      const path = logPath(folder, file.launch)
      const header = Buffer.from(index === 0 ? "" : `--- launch ${file.launch} ---\n`)
      const closed = file.truncated || index < files.length - 1
      // A line of ours begins a new line; an unfinished one stays as it is only at the very end.
      const newline = closed && !(await endsLine(path, file.size)) ? "\n" : ""
      const truncation = file.truncated ? await readFile(truncatedPath(folder, file.launch)) : Buffer.alloc(0)
      return { header, path, size: file.size, footer: Buffer.concat([Buffer.from(newline), truncation]) }
    }),
  )
}

function lengthOf(section: Section): number {
  return section.header.byteLength + section.size + section.footer.byteLength
}

/** The bytes from `start` to `end` of a section, in pieces of at most BLOCK_BYTES. */
async function* bytesOf(section: Section, start: number, end: number): AsyncGenerator<Buffer, void, void> {
  const fileStart = section.header.byteLength
  const fileEnd = fileStart + section.size
  if (start < fileStart) yield section.header.subarray(start, end)
  if (start < fileEnd && end > fileStart) {
    yield* fileBytes(section.path, Math.max(0, start - fileStart), Math.min(end, fileEnd) - fileStart)
  }
  if (end > fileEnd && start < end) {
    const footer = section.footer.subarray(Math.max(0, start - fileEnd), end - fileEnd)
    if (footer.byteLength > 0) yield footer
  }
}

async function* fileBytes(path: string, start: number, end: number): AsyncGenerator<Buffer, void, void> {
  await using file = await open(path)
  for (let offset = start; offset < end; ) {
    const piece = await readAt(file, offset, Math.min(BLOCK_BYTES, end - offset))
    // Shorter than it was a moment ago: the log is being removed.
    if (piece.byteLength === 0) return
    offset += piece.byteLength
    yield piece
  }
}

async function readAt(file: FileHandle, offset: number, length: number): Promise<Buffer> {
  const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(length), 0, length, offset)
  return buffer.subarray(0, bytesRead)
}

/** Where the last `lines` lines begin, found by reading backwards from the end. */
async function tailOf(sections: Section[], lines: number): Promise<Position> {
  const last = sections.at(-1)
  if (last === undefined) return { section: 0, offset: 0 }
  if (lines === 0) return { section: sections.length - 1, offset: lengthOf(last) }
  let wanted = lines
  let atEnd = true
  for await (const { section, start, block } of blocksBackwards(sections)) {
    // The newline that ends the last line begins no further one.
    let at = atEnd && block.at(-1) === NEWLINE ? block.byteLength - 1 : block.byteLength
    atEnd = false
    for (at = newlineBefore(block, at); at >= 0; at = newlineBefore(block, at)) {
      if (--wanted === 0) return { section, offset: start + at + 1 }
    }
  }
  return { section: 0, offset: 0 }
}

async function* blocksBackwards(
  sections: Section[],
): AsyncGenerator<{ section: number; start: number; block: Buffer }> {
  for (const [index, section] of [...sections.entries()].reverse()) {
    for (let end = lengthOf(section); end > 0; end = Math.max(0, end - BLOCK_BYTES)) {
      const start = Math.max(0, end - BLOCK_BYTES)
      const pieces: Buffer[] = []
      for await (const piece of bytesOf(section, start, end)) pieces.push(piece)
      yield { section: index, start, block: Buffer.concat(pieces) }
    }
  }
}

function newlineBefore(block: Buffer, at: number): number {
  return at === 0 ? -1 : block.lastIndexOf(NEWLINE, at - 1)
}

async function endsLine(path: string, size: number): Promise<boolean> {
  if (size === 0) return true
  await using file = await open(path)
  return (await readAt(file, size - 1, 1))[0] === NEWLINE
}

async function sizeOf(path: string): Promise<number> {
  return (await stat(path)).size
}

async function foldersIn(folder: string): Promise<string[]> {
  return (await entriesOf(folder)).filter((entry) => entry.isDirectory()).map((entry) => entry.name)
}

/** What is in a folder; nothing when there is no such folder. */
async function entriesOf(folder: string): Promise<Dirent[]> {
  try {
    return await readdir(folder, { withFileTypes: true })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return []
    throw error
  }
}

/** Kubernetes' own names are safe as file names; anything else would lead out of the folder. */
function safeName(what: string, name: string): string {
  if (/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/.test(name)) return name
  throw new TypeError(`log ${what} ${JSON.stringify(name)} is not a Kubernetes name (a-z, 0-9, - and . only)`)
}

function assertIndex(what: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return
  throw new RangeError(`log ${what} is ${value}; give a whole number of at least ${least}`)
}
