import type { Dirent } from "node:fs"
import { mkdir, open, readdir, rm, stat, writeFile } from "node:fs/promises"
import { join } from "node:path"
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

export interface FileLogStoreOptions {
  /** Bytes kept of one Job; what comes after is dropped and a line says so. Default 64 MiB. */
  capBytes?: number
}

/**
 * Logs as plain files, `<folder>/<namespace>/<job uid>/<launch>.log`, for one façade replica: followers are woken by
 * the appends of this very process. A file `<launch>.truncated` stands beside a log that has reached its cap.
 */
export class FileLogStore implements LogStore {
  readonly #folder: string
  readonly #capBytes: number
  readonly #writes = new Serial()
  readonly #followers = new Followers()

  constructor(folder: string, options: FileLogStoreOptions = {}) {
    this.#folder = folder
    this.#capBytes = options.capBytes ?? DEFAULT_LOG_CAP_BYTES
  }

  append(log: LogRef, offset: number, data: Uint8Array): Promise<Appended> {
    assertIndex("launch", log.launch, 1)
    assertIndex("offset", offset, 0)
    const folder = this.#folderOf(log.job)
    return this.#writes.run(log.job, async () => {
      const appended = await this.#append(folder, log.launch, { offset, data })
      this.#followers.wake(log.job)
      return appended
    })
  }

  async *read(job: JobRef, options: ReadOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    const folder = this.#folderOf(job)
    const source = {
      logs: () => logsIn(folder),
      nextAppend: (until: AbortSignal) => this.#followers.next(job, until),
      truncationLine: truncationLine(this.#capBytes),
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

  async #append(folder: string, launch: number, piece: { offset: number; data: Uint8Array }): Promise<Appended> {
    const logs = await logsIn(folder)
    const length = logs.find((log) => log.launch === launch)?.size ?? 0
    if (logs.some((log) => log.truncated)) return { length, full: true }
    if (piece.offset > length) return { length, full: false }
    const fresh = piece.data.subarray(length - piece.offset)
    if (fresh.byteLength === 0) return { length, full: false }
    const room = this.#capBytes - logs.reduce((sum, log) => sum + log.size, 0)
    const kept = fresh.subarray(0, Math.max(0, room))
    const full = kept.byteLength < fresh.byteLength
    await mkdir(folder, { recursive: true, mode: 0o700 })
    await writeFile(logPath(folder, launch), kept, { flag: "a", mode: 0o600 })
    if (full) await writeFile(truncatedPath(folder, launch), truncationLine(this.#capBytes), { mode: 0o600 })
    return { length: length + kept.byteLength, full }
  }

  #folderOf(job: JobRef): string {
    const { namespace, uid } = pathOf(job)
    return join(this.#folder, namespace, uid)
  }
}

const FILE_NAME = /^([1-9][0-9]{0,8})\.(log|truncated)$/

function logPath(folder: string, launch: number): string {
  return join(folder, `${launch}.log`)
}

function truncatedPath(folder: string, launch: number): string {
  return join(folder, `${launch}.truncated`)
}

/** The Job's logs, oldest Launch first. */
async function logsIn(folder: string): Promise<LaunchLog[]> {
  const names = (await entriesOf(folder)).map((entry) => FILE_NAME.exec(entry.name)).filter((match) => match !== null)
  const truncated = new Set(names.filter((match) => match[2] === "truncated").map((match) => Number(match[1])))
  const launches = names.filter((match) => match[2] === "log").map((match) => Number(match[1]))
  launches.sort((a, b) => a - b)
  return await Promise.all(
    launches.map(async (launch) => {
      const path = logPath(folder, launch)
      const { size } = await stat(path)
      const read = (start: number, end: number) => fileBytes(path, start, end)
      return { launch, size, truncated: truncated.has(launch), read }
    }),
  )
}

async function* fileBytes(path: string, start: number, end: number): AsyncGenerator<Buffer, void, void> {
  await using file = await open(path)
  for (let offset = start; offset < end; ) {
    const length = Math.min(BLOCK_BYTES, end - offset)
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(length), 0, length, offset)
    // Shorter than it was a moment ago: the log is being removed.
    if (bytesRead === 0) return
    offset += bytesRead
    yield buffer.subarray(0, bytesRead)
  }
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
