import { createHash } from "node:crypto"
import { createReadStream, createWriteStream } from "node:fs"
import { chmod, link, mkdir, rename, rm, stat, symlink } from "node:fs/promises"
import { join } from "node:path"
import { Readable, type Writable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { type Pack, pack } from "tar-stream"
import type { Clock } from "../core/apis/clock.ts"
import type { Workdir } from "../core/apis/job.ts"
import type { Logger } from "../core/apis/logger.ts"
import { ArchiveError, type OpenEntry, readEntries } from "./archive.ts"
import { whyDiskFull } from "./disk-space.ts"
import type { GatewayClient } from "./gateway-client.ts"
import { GatewayError, RefusedError, retrySeconds } from "./gateway-connection.ts"
import { RunError } from "./runtimes/runtime.ts"
import { waitUnlessAborted } from "./timers.ts"

const RETRY_SECONDS = { baseSeconds: 1, capSeconds: 30 }

/** Status of the gateway for a start after the archive's end. */
const BAD_REQUEST = 400

/** Returns the path of the run's archive on the VM's disk. */
export function archivePath(dataDir: string): string {
  return join(dataDir, "workdir.tar.gz")
}

export interface FetchOptions {
  client: Pick<GatewayClient, "workdir">
  dataDir: string
  clock: Clock
  logger: Logger
  signal: AbortSignal
}

/**
 * Fetches the archive to the VM's disk, unless an earlier agent has. It continues an archive that broke off, and retries
 * until the signal is aborted. Rejects with RunError for a wrong hash or a full disk, and with RefusedError.
 */
export async function fetchWorkdir({ sha256 }: Workdir, options: FetchOptions): Promise<void> {
  const { clock, dataDir, logger, signal } = options
  if ((await hashFile(archivePath(dataDir))) === sha256) return
  for (let tries = 0; !signal.aborted; tries++) {
    try {
      return await fetchOnce(sha256, options)
    } catch (error) {
      if (error instanceof RunError || error instanceof RefusedError) throw error
      await requireSpace(dataDir, error)
      logger.warn({ err: error }, "failed to fetch the workdir; retrying")
      await waitUnlessAborted(clock, retrySeconds(error, tries, RETRY_SECONDS), signal)
    }
  }
}

/** Receives the rest of the archive, and checks all of it. */
async function fetchOnce(sha256: string, options: FetchOptions): Promise<void> {
  const path = archivePath(options.dataDir)
  const part = `${path}.part`
  try {
    await receive(part, options)
  } catch (error) {
    // What is on the disk is longer than the archive.
    if (error instanceof GatewayError && error.status === BAD_REQUEST) await rm(part, { force: true })
    throw error
  }
  const found = await hashFile(part)
  if (found === sha256) return await rename(part, path)
  await rm(part, { force: true })
  throw new RunError("WorkdirFailed", `the workdir has the SHA-256 ${found}, not ${sha256}`)
}

/** Throws RunError if the disk is full, which a retry does not change. */
async function requireSpace(dataDir: string, error: unknown): Promise<void> {
  const why = await whyDiskFull(dataDir, error instanceof Error ? error.message : String(error))
  if (why !== undefined) throw new RunError("WorkdirFailed", `the workdir can't be stored: ${why}`, error)
}

async function receive(part: string, { client, signal }: FetchOptions): Promise<void> {
  const start = (await ifThere(stat(part)))?.size ?? 0
  await pipeline(await client.workdir(start), createWriteStream(part, { flags: "a", mode: 0o600 }), { signal })
}

/** Returns the SHA-256 of a file; undefined if it does not exist. */
async function hashFile(path: string): Promise<string | undefined> {
  const hash = createHash("sha256")
  try {
    await pipeline(createReadStream(path), hash)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
  return hash.digest("hex")
}

async function ifThere<Result>(result: Promise<Result>): Promise<Result | undefined> {
  try {
    return await result
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
}

/** User and group that own the files. */
export interface FileOwner {
  uid: number
  gid: number
}

/** Tar of checked entries, below another folder. */
export interface Repacked {
  tar: Readable
  /** Resolves when all entries are in the tar. Rejects with RunError if one is not allowed. */
  filled: Promise<void>
}

/**
 * Packs the archive of the disk again, for a container's root. Each entry is checked before its first byte is in the
 * tar, and its owner and permissions are replaced.
 */
export function repack(dataDir: string, folder: string, owner: FileOwner): Repacked {
  const tar = pack()
  const filled = asRunError(async () => {
    const root = folder.split("/").filter(Boolean).join("/")
    await put(tar, { name: root, type: "directory", mode: 0o755, ...owner })
    for await (const { entry, content } of readEntries(archivePath(dataDir))) {
      const { type, path, mode, mtime, size, target } = entry
      const linkname = type === "link" ? `${root}/${target}` : target
      const header = { name: `${root}/${path}`, type, mode, size, ...owner, ...(mtime && { mtime }) }
      await put(tar, { ...header, ...(linkname !== undefined && { linkname }) }, type === "file" ? content : undefined)
    }
    tar.finalize()
  })
  filled.catch((error: Error) => tar.destroy(error))
  return { tar: Readable.from(tar), filled }
}

async function put(
  tar: Pack,
  header: Parameters<Pack["entry"]>[0],
  content?: AsyncIterable<Uint8Array>,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const sink = tar.entry(header, (error) => (error ? reject(error) : resolve()))
  if (content !== undefined) await pipeline(content, sink as unknown as Writable)
  await promise
}

/** Unpacks the archive of the disk into a folder, which is emptied before. Rejects with RunError. */
export async function unpack(dataDir: string, folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true })
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await asRunError(async () => {
    for await (const opened of readEntries(archivePath(dataDir))) await create(folder, opened)
  })
}

/** Creates an entry. The folder above it is there. */
async function create(folder: string, { entry, content }: OpenEntry): Promise<void> {
  const { type, mode, target = "" } = entry
  const path = join(folder, entry.path)
  if (type === "symlink") return await symlink(target, path)
  if (type === "directory") await mkdir(path, { recursive: true })
  else if (type === "link") await link(join(folder, target), path)
  else await pipeline(content, createWriteStream(path, { flags: "wx" }))
  await chmod(path, mode)
}

/** Converts the errors of an archive. */
async function asRunError(act: () => Promise<void>): Promise<void> {
  try {
    await act()
  } catch (error) {
    if (!(error instanceof ArchiveError)) throw error
    throw new RunError("WorkdirFailed", `the workdir is rejected: ${error.message}`, error)
  }
}
