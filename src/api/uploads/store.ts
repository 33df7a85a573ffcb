import { createHash } from "node:crypto"

/** An archive of a project, by the SHA-256 of its bytes in lower-case hexadecimal. */
export interface UploadRef {
  namespace: string
  sha256: string
}

/** An archive that is stored completely. */
export interface StoredUpload extends UploadRef {
  bytes: number
  /** Time of the last upload or `touch`. */
  usedAt: Date
}

/** Content of an upload, and its size as the sender announced it. */
export interface UploadContent {
  bytes: number
  pieces: AsyncIterable<Uint8Array>
}

/** The content is not that of the upload's name. */
export class UploadMismatchError extends Error {
  override readonly name = "UploadMismatchError"
}

/**
 * Store of the working directories of jobs, as archives named by their hash. An archive is visible only when all of it
 * is stored and its hash is right. So two uploads of one hash at the same time do no harm.
 */
export interface UploadStore {
  /** Stores an archive. Rejects with UploadMismatchError, or with the error of the content, and then stores nothing. */
  write(ref: UploadRef, content: UploadContent): Promise<void>
  /** Returns undefined if there is no such archive. */
  find(ref: UploadRef): Promise<StoredUpload | undefined>
  /** Yields the bytes from `start` on. Rejects if there is no such archive. */
  read(ref: UploadRef, start: number): AsyncIterable<Uint8Array>
  /** Notes that an archive is used now. Returns false if there is none. */
  touch(ref: UploadRef): Promise<boolean>
  /** Removes an archive that was not used since a time. Returns false if it was, or if there is none. */
  removeUnused(ref: UploadRef, since: Date): Promise<boolean>
  /** Yields the archives of a namespace; without one, all. */
  list(namespace?: string): AsyncIterable<StoredUpload>
  /** Removes what uploads before this time left behind when their process ended. */
  removeUnfinished(before: Date): Promise<void>
}

/** Folder of uploads in a store of logs. */
export const UPLOADS_FOLDER = "uploads"

const NAME = /^([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)\.([0-9a-f]{64})\.tar\.gz$/

/** Returns the name of an archive in its folder. @throws TypeError if namespace or hash is none */
export function nameOfUpload({ namespace, sha256 }: UploadRef): string {
  const name = `${prefixOfUploads(namespace)}${sha256}.tar.gz`
  if (!NAME.test(name)) throw new TypeError(`no upload can have the namespace ${namespace} and the hash ${sha256}`)
  return name
}

/** Returns the start of the names of a namespace's archives. */
export function prefixOfUploads(namespace: string): string {
  return `${namespace}.`
}

/** Returns undefined for a name that is not an archive's. */
export function uploadOfName(name: string): UploadRef | undefined {
  const [, namespace, sha256] = NAME.exec(name) ?? []
  return namespace === undefined || sha256 === undefined ? undefined : { namespace, sha256 }
}

/**
 * Yields the content unchanged. The last piece comes only after the check of size and hash, so that a store which
 * expects all bytes never gets a wrong archive. @throws UploadMismatchError
 */
export async function* verified(
  ref: UploadRef,
  { bytes, pieces }: UploadContent,
): AsyncGenerator<Uint8Array, void, void> {
  const hash = createHash("sha256")
  let length = 0
  let last: Uint8Array | undefined
  for await (const piece of pieces) {
    length += piece.byteLength
    if (length > bytes) throw new UploadMismatchError(`the body has more than the ${bytes} bytes of its Content-Length`)
    hash.update(piece)
    if (last !== undefined) yield last
    last = piece
  }
  if (length < bytes)
    throw new UploadMismatchError(`the body has ${length} of the ${bytes} bytes of its Content-Length`)
  const found = hash.digest("hex")
  if (found !== ref.sha256) throw new UploadMismatchError(`the SHA-256 of the body is ${found}, not ${ref.sha256}`)
  if (last !== undefined) yield last
}
