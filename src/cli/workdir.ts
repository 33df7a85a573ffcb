import { isUtf8 } from "node:buffer"
import { createHash } from "node:crypto"
import { createReadStream, type Dirent, readFileSync } from "node:fs"
import { lstat, readdir, readlink, realpath } from "node:fs/promises"
import { join, posix, relative, resolve, sep } from "node:path"
import type { Writable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { createGzip } from "node:zlib"
import ignore, { type Ignore } from "ignore"
import { type Pack, pack } from "tar-stream"
import { type BerthClient, readBody } from "../client/client.ts"
import { ApiError } from "../client/errors.ts"
import { LIMITS } from "../core/apis/field-limits.ts"
import { EXIT, Failure, usageError } from "./exit.ts"

const MIB = 1024 * 1024

/** Files whose patterns leave other files out, in the syntax of Git. The later one has precedence. */
const IGNORE_FILES = [".gitignore", ".berthignore"]

/** Time of all files in an archive, so that equal files give equal bytes. Zip files can't be older than 1980. */
const FILE_TIME = new Date("2000-01-01T00:00:00Z")

/** Archive of a folder. */
export interface PackedFolder {
  sha256: string
  archive: Uint8Array<ArrayBuffer>
  /** Number of files, links and folders. */
  entries: number
}

/** Path of `--workdir`: a folder here, and one in the container. */
export interface WorkdirFlag {
  folder: string
  path: string | undefined
}

/** Returns the folders of `--workdir DIR[:/PATH]`. */
export function workdirFlag(text: string): WorkdirFlag {
  const [, folder = "", path] = /^(.+?)(?::(\/[^:]*))?$/.exec(text) ?? []
  if (folder === "") throw usageError(`--workdir ${text} is not a folder: write DIR or DIR:/PATH.`)
  return { folder, path }
}

/** Limits of an archive. */
export interface PackOptions {
  /** Most compressed bytes. */
  bytes: number
  /** Folders that no archive has, whatever the ignore files say: those with the credentials of this command. */
  without: readonly string[]
}

/** Patterns of the ignore files of one folder. */
interface Rules {
  /** Folder, relative to the root, with a slash at its end; empty for the root. */
  folder: string
  patterns: Ignore
}

interface FoundEntry {
  /** Path relative to the root, with `/` between its parts. */
  path: string
  type: "file" | "directory" | "symlink"
}

/**
 * Packs a folder: all files that no ignore file leaves out, without `.git`. Equal files give equal bytes.
 * @throws Failure if it is too large, or a link leads out of it
 */
export async function packFolder(folder: string, options: PackOptions): Promise<PackedFolder> {
  const root = resolve(folder)
  const found = await entriesIn({ root, without: await pathsIn(root, options.without) }, "", [])
  try {
    return await packEntries(root, found, options)
  } catch (error) {
    if (!(error instanceof TooLarge)) throw error
    throw usageError(
      `--workdir ${folder} ${error.message}. The largest in it: ${await largestIn(root, found)}. ` +
        "Leave them out with a .berthignore, which has the patterns of a .gitignore, or use a volume for data.",
    )
  }
}

/** Returns the paths of folders relative to a root. Those that do not exist have none. */
async function pathsIn(root: string, folders: readonly string[]): Promise<Set<string>> {
  const real = (path: string) => realpath(path).catch(() => undefined)
  const [from, ...found] = await Promise.all([root, ...folders].map(real))
  if (from === undefined) return new Set()
  const paths = found.flatMap((path) => (path === undefined ? [] : [relative(from, path)]))
  return new Set(paths.map((path) => path.split(sep).join("/")))
}

async function packEntries(
  root: string,
  found: readonly FoundEntry[],
  most: Pick<PackOptions, "bytes">,
): Promise<PackedFolder> {
  if (found.length > LIMITS.workdirEntries)
    throw new TooLarge(`has ${found.length} files`, String(LIMITS.workdirEntries))
  const archive = pack()
  fill(archive, root, found).catch((error: Error) => archive.destroy(error))
  const hash = createHash("sha256")
  const pieces: Buffer[] = []
  let length = 0
  const collect = async (source: AsyncIterable<Buffer>): Promise<void> => {
    for await (const piece of source) {
      length += piece.byteLength
      if (length > most.bytes) throw new TooLarge("is larger, compressed", `${most.bytes / MIB} MiB`)
      hash.update(piece)
      pieces.push(piece)
    }
  }
  // It gets the error of the files too, from the destroyed archive.
  await pipeline(archive as unknown as NodeJS.ReadableStream, createGzip(), collect)
  return { sha256: hash.digest("hex"), archive: new Uint8Array(Buffer.concat(pieces)), entries: found.length }
}

class TooLarge extends Error {
  constructor(what: string, limit: string) {
    super(`${what}; the limit is ${limit}`)
  }
}

/** Parts of a folder that its error names. */
const NAMED_PARTS = 3

/** Returns the largest files and folders directly in a folder, with their sizes. */
async function largestIn(root: string, found: readonly FoundEntry[]): Promise<string> {
  const parts = new Map<string, { bytes: number; files: number }>()
  for (const { path, type } of found) {
    if (type === "directory") continue
    const slash = path.indexOf("/")
    const name = slash < 0 ? path : path.slice(0, slash + 1)
    const { bytes = 0, files = 0 } = parts.get(name) ?? {}
    // A file may be deleted meanwhile.
    const size = (await lstat(join(root, path)).catch(() => undefined))?.size ?? 0
    parts.set(name, { bytes: bytes + size, files: files + 1 })
  }
  const isByFiles = found.length > LIMITS.workdirEntries
  const largest = [...parts].toSorted(([, a], [, b]) => (isByFiles ? b.files - a.files : b.bytes - a.bytes))
  return largest
    .slice(0, NAMED_PARTS)
    .map(([name, { bytes, files }]) => {
      const count = name.endsWith("/") ? `, ${files} ${files === 1 ? "file" : "files"}` : ""
      return `${name} (${(bytes / MIB).toFixed(1)} MiB${count})`
    })
    .join(", ")
}

/** Folder to pack, and the relative paths that are never packed. */
interface Packing {
  root: string
  without: ReadonlySet<string>
}

/** Returns what is to be packed, in one order on all machines. */
async function entriesIn(packing: Packing, folder: string, above: readonly Rules[]): Promise<FoundEntry[]> {
  const { root, without } = packing
  const rules = [...above, ...rulesIn(root, folder)]
  const children = await childrenOf(join(root, folder))
  const packed = children.filter(({ name }) => name !== ".git" && !without.has(`${folder}${name}`))
  const entries: FoundEntry[] = []
  for (const child of packed) {
    const path = `${folder}${child.name}`
    if (isIgnored(child.isDirectory() ? `${path}/` : path, rules)) continue
    if (!child.isUtf8) throw notUtf8(path, "name")
    if (child.isSymbolicLink()) entries.push({ path, type: "symlink" })
    else if (child.isFile()) entries.push({ path, type: "file" })
    else if (child.isDirectory())
      entries.push({ path, type: "directory" }, ...(await entriesIn(packing, `${path}/`, rules)))
  }
  return entries
}

type Child = Dirent & { isUtf8: boolean }

/** Returns the entries of a folder by their names. A name is bytes on Linux; other bytes than UTF-8 become U+FFFD. */
async function childrenOf(folder: string): Promise<Child[]> {
  try {
    const [children, names] = await Promise.all([
      readdir(folder, { withFileTypes: true }),
      readdir(folder, { encoding: "buffer" }),
    ])
    const exact = new Set(names.filter(isUtf8).map((name) => name.toString()))
    return children
      .map((child) => Object.assign(child, { isUtf8: exact.has(child.name) }))
      .sort((a, b) => (a.name < b.name ? -1 : 1))
  } catch (error) {
    throw usageError(`--workdir: ${folder} can't be read: ${(error as Error).message}`)
  }
}

/** Archives have names in UTF-8. Berth would read and write another file than this one. */
function notUtf8(path: string, what: string): Failure {
  return usageError(
    `--workdir: the ${what} of ${path} is not UTF-8, and \uFFFD is in place of its other bytes. ` +
      "Rename the file, or leave it out with a .berthignore.",
  )
}

/** Returns the rules of a folder's ignore files; none if it has no such files. */
function rulesIn(root: string, folder: string): Rules[] {
  const texts = IGNORE_FILES.flatMap((name) => {
    try {
      return [readFileSync(join(root, folder, name), "utf8")]
    } catch {
      return []
    }
  })
  if (texts.length === 0) return []
  return [{ folder, patterns: texts.reduce((patterns, text) => patterns.add(text), ignore({ ignorecase: false })) }]
}

/** Returns true if the rules leave a path out. Those of a deeper folder have precedence, as in Git. */
function isIgnored(path: string, rules: readonly Rules[]): boolean {
  for (const { folder, patterns } of rules.toReversed()) {
    const { ignored, unignored } = patterns.test(path.slice(folder.length))
    if (ignored || unignored) return ignored
  }
  return false
}

async function fill(archive: Pack, root: string, found: readonly FoundEntry[]): Promise<void> {
  let bytes = 0
  for (const { path, type } of found) {
    const local = join(root, path)
    const { mode, size } = await lstat(local)
    // Other permissions, owners and times differ between checkouts of the same files.
    const header = { name: path, type, mtime: FILE_TIME, uid: 0, gid: 0 }
    if (type === "symlink") await put(archive, { ...header, linkname: targetOf(path, root, await linkOf(path, local)) })
    else if (type === "directory") await put(archive, { ...header, mode: 0o755 })
    else {
      bytes += size
      if (bytes > LIMITS.workdirBytes) throw new TooLarge("is larger", `${LIMITS.workdirBytes / MIB} MiB`)
      const content = size === 0 ? [] : createReadStream(local, { end: size - 1 })
      await put(archive, { ...header, size, mode: (mode & 0o100) === 0 ? 0o644 : 0o755 }, content)
    }
  }
  archive.finalize()
}

/** Returns the target of a link. @throws Failure if it is not UTF-8 */
async function linkOf(path: string, local: string): Promise<string> {
  const target = await readlink(local, { encoding: "buffer" })
  if (!isUtf8(target)) throw notUtf8(path, "target")
  return target.toString()
}

async function put(
  archive: Pack,
  header: Parameters<Pack["entry"]>[0],
  content?: AsyncIterable<Uint8Array> | Uint8Array[],
): Promise<void> {
  const { promise, resolve: done, reject } = Promise.withResolvers<void>()
  const sink = archive.entry(header, (error) => (error ? reject(error) : done()))
  if (content === undefined) return await promise
  try {
    await Promise.all([pipeline(content, sink as unknown as Writable), promise])
  } catch (error) {
    throw new Failure(
      EXIT.failed,
      `--workdir: ${header.name} can't be read, or has changed: ${(error as Error).message}`,
    )
  }
}

/** Returns the target of a link, relative to the link. @throws Failure if it leads out of the folder */
function targetOf(path: string, root: string, target: string): string {
  const folder = posix.dirname(`/${path}`)
  const absolute = target.startsWith(`${root}/`) ? target.slice(root.length) : posix.join(folder, target)
  const leadsOut =
    (target.startsWith("/") && !target.startsWith(`${root}/`)) ||
    posix.normalize(posix.join(posix.dirname(path), target)).split("/")[0] === ".."
  if (!leadsOut || target.startsWith(`${root}/`)) return posix.relative(folder, absolute) || "."
  throw usageError(
    `--workdir: ${path} is a link to ${target}, outside of the folder. Leave it out with a .berthignore.`,
  )
}

/** Largest archive that the API takes, bytes. */
export async function uploadLimit(client: BerthClient): Promise<number> {
  const { limits } = await readBody(client.api.GET("/whoami"))
  return limits.upload_mib * MIB
}

/** Uploads an archive, unless the project has it. Returns true if it was sent. */
export async function upload(client: BerthClient, { sha256, archive }: PackedFolder): Promise<boolean> {
  try {
    await readBody(client.api.GET("/uploads/{sha256}", { params: { path: { sha256 } } }))
    return false
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error
  }
  const headers = { "Content-Type": "application/gzip" }
  await client.send(new Request(`${client.baseUrl}/uploads/${sha256}`, { method: "PUT", headers, body: archive }))
  return true
}
