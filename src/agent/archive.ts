import { createReadStream } from "node:fs"
import { posix } from "node:path"
import { pipeline } from "node:stream/promises"
import { createGunzip } from "node:zlib"
import { extract, type Header } from "tar-stream"
import { LIMITS } from "../core/apis/field-limits.ts"

/** Limits of what an archive unpacks to. */
export interface ArchiveLimits {
  /** Bytes of all files. */
  bytes: number
  /** Number of files, folders and links. */
  entries: number
  /** Bytes of all names and targets of links. */
  nameBytes: number
}

const MIB = 1024 * 1024

/** Limits of a working directory. */
export const WORKDIR_LIMITS: ArchiveLimits = {
  bytes: LIMITS.workdirBytes,
  entries: LIMITS.workdirEntries,
  nameBytes: 16 * MIB,
}

/** Longest path, characters. Linux has no longer ones, and a path may create as many folders as it has parts. */
const LONGEST_PATH = 4096

/** Bytes of an archive between two files. More than a long name needs comes from no useful archive. */
const GAP_BYTES = MIB

/** Bytes of an entry without its content: a header, and a part of the long name. */
const HEADER_BYTES = 1536

/** The archive is damaged, or has something that a working directory may not have. */
export class ArchiveError extends Error {
  override readonly name = "ArchiveError"
}

/** Header of an entry, as the parser returns it. */
export type EntryHeader = Pick<Header, "name"> &
  Partial<Pick<Header, "mode" | "size" | "mtime">> & { type: Header["type"] | null; linkname?: string | null }

/** Entry of an archive that is safe to create in a separate folder. */
export interface ArchiveEntry {
  type: "file" | "directory" | "symlink" | "link"
  /** Path in the folder, without `.` and `..` as a part. */
  path: string
  /** Permissions, without setuid and the like. The owner may read and write. */
  mode: number
  mtime: Date | undefined
  size: number
  /** Target of a symlink, as it is written; path of the file of a hard link. */
  target: string | undefined
}

/**
 * Checks the entries of an archive in their order. No name leads out of the folder, and no entry is below a link. A
 * symlink leads to a path in the folder. It has `..` only at its start, where all folders are real ones, so no chain of
 * links leads out either.
 */
export class EntryCheck {
  readonly #limits: ArchiveLimits
  /** Permissions of the files. */
  readonly #files = new Map<string, number>()
  readonly #links = new Set<string>()
  readonly #folders = new Set<string>([""])
  #bytes = 0
  #entries = 0
  #nameBytes = 0

  constructor(limits: ArchiveLimits) {
    this.#limits = limits
  }

  /** Returns the entry, after the folders above it that are new. Returns none for the folder itself. @throws ArchiveError */
  next(header: EntryHeader): ArchiveEntry[] {
    const { name, type, linkname, size = 0, mode = 0o644, mtime } = header
    const path = this.#pathOf(name)
    this.#count(path + (linkname ?? ""), size)
    const base = { path, mtime, size: 0, target: undefined }
    if (type === "directory") {
      const above = this.#newFolders(path).filter((folder) => folder.path !== path)
      return path === "" ? above : [...above, { ...base, type, mode: (mode & 0o777) | 0o700 }]
    }
    const above = this.#newFolders(parentOf(path))
    if (path === "" || this.#files.has(path) || this.#links.has(path) || this.#folders.has(path))
      throw new ArchiveError(`${showName(name)} is in the archive twice`)
    if (type === "symlink") {
      this.#links.add(path)
      return [...above, { ...base, type, mode: 0o777, target: safeTarget(path, linkname ?? "") }]
    }
    if (type === "link") {
      const target = this.#fileOf(name, linkname ?? "")
      // All names of a file have one set of permissions.
      const permissions = this.#files.get(target) ?? 0o600
      this.#files.set(path, permissions)
      return [...above, { ...base, type, mode: permissions, target }]
    }
    if (type !== "file" && type !== "contiguous-file") {
      const what = type ?? "thing of an unknown type"
      throw new ArchiveError(`${showName(name)} is a ${what}; only files, folders and links are allowed`)
    }
    const permissions = (mode & 0o777) | 0o600
    this.#files.set(path, permissions)
    return [...above, { ...base, type: "file", mode: permissions, size }]
  }

  #pathOf(name: string): string {
    if (name.startsWith("/")) throw new ArchiveError(`${showName(name)} is an absolute path`)
    if (name.includes("\0")) throw new ArchiveError(`${showName(name)} has a NUL character`)
    if (name.length > LONGEST_PATH) throw new ArchiveError(`${showName(name)} has more than ${LONGEST_PATH} characters`)
    const parts = partsOf(name)
    if (parts.includes("..")) throw new ArchiveError(`${showName(name)} leads out of the working directory`)
    return parts.join("/")
  }

  #count(names: string, bytes: number): void {
    const { bytes: mostBytes, entries, nameBytes } = this.#limits
    this.#entries += 1
    this.#bytes += bytes
    this.#nameBytes += Buffer.byteLength(names)
    if (this.#entries > entries) throw new ArchiveError(`it has more than ${entries} files`)
    if (this.#bytes > mostBytes) throw new ArchiveError(`its files have more than ${mostBytes / MIB} MiB`)
    if (this.#nameBytes > nameBytes) throw new ArchiveError(`its names have more than ${nameBytes / MIB} MiB`)
  }

  /** Adds a folder and those above it. Returns the new ones, the highest first. */
  #newFolders(path: string): ArchiveEntry[] {
    const added: ArchiveEntry[] = []
    for (let at = path; !this.#folders.has(at); at = parentOf(at)) {
      if (this.#files.has(at) || this.#links.has(at))
        throw new ArchiveError(`${showName(at)} is a folder, and a file or link too`)
      this.#folders.add(at)
      this.#count(at, 0)
      added.unshift({ type: "directory", path: at, mode: 0o755, mtime: undefined, size: 0, target: undefined })
    }
    return added
  }

  #fileOf(name: string, linkname: string): string {
    const target = this.#pathOf(linkname)
    if (this.#files.has(target)) return target
    throw new ArchiveError(
      `${showName(name)} is a hard link to ${showName(linkname)}, which is not a file before it in the archive`,
    )
  }
}

/** @throws ArchiveError if a symlink leads out of the folder */
function safeTarget(path: string, target: string): string {
  const parts = partsOf(target)
  const up = parts.lastIndexOf("..") + 1
  const depth = path.split("/").length - 1
  const isSafe =
    target !== "" &&
    !target.startsWith("/") &&
    !target.includes("\0") &&
    up <= depth &&
    parts.slice(0, up).every((part) => part === "..")
  if (isSafe) return target
  throw new ArchiveError(`${showName(path)} is a link to ${showName(target)}, which leads out of the working directory`)
}

function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "" && part !== ".")
}

function parentOf(path: string): string {
  const parent = posix.dirname(path)
  return parent === "." ? "" : parent
}

/** Returns a name as a message shows it. */
function showName(name: string): string {
  return JSON.stringify(name.length > 200 ? `${name.slice(0, 200)}…` : name)
}

/** Entry with its content, which must be read before the next entry. */
export interface OpenEntry {
  entry: ArchiveEntry
  content: AsyncIterable<Uint8Array>
}

/**
 * Yields the entries of an archive (tar.gz), each checked before its content is read. Memory and time are bounded,
 * whatever the archive has. @throws ArchiveError
 */
export async function* readEntries(path: string, limits = WORKDIR_LIMITS): AsyncGenerator<OpenEntry, void, void> {
  const check = new EntryCheck(limits)
  const most = limits.bytes + limits.entries * HEADER_BYTES
  let fed = 0
  let allowed = 0
  // The parser keeps a long name in memory. So the bytes that it gets without a file are bounded.
  async function* bounded(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, void> {
    for await (const piece of source) {
      fed += piece.byteLength
      if (fed > most) throw new ArchiveError(`it unpacks to more than ${limits.bytes / MIB} MiB`)
      if (fed > allowed + GAP_BYTES) throw new ArchiveError(`it has more than ${GAP_BYTES} bytes outside of files`)
      yield piece
    }
  }
  const parser = extract()
  const feeding = pipeline(createReadStream(path), createGunzip(), bounded, parser)
  // The loop below gets the error too, except after its own end.
  feeding.catch(() => undefined)
  try {
    for await (const stream of parser) {
      allowed = fed + (stream.header.size ?? 0)
      const content = readContent(stream as AsyncIterable<Uint8Array>)
      for (const entry of check.next(stream.header)) yield { entry, content }
      stream.resume()
    }
    await feeding
  } catch (error) {
    parser.destroy()
    throw archiveError(error)
  }
}

/** Yields the content of an entry. An archive that ends within it ends both this and the list of entries. */
async function* readContent(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* stream
  } catch (error) {
    throw archiveError(error)
  }
}

/** Returns the error of a damaged archive. An error of the disk stays as it is. */
function archiveError(error: unknown): unknown {
  if (error instanceof ArchiveError || (error as NodeJS.ErrnoException).syscall !== undefined) return error
  return new ArchiveError(`it is not a tar.gz: ${error instanceof Error ? error.message : String(error)}`, {
    cause: error,
  })
}
