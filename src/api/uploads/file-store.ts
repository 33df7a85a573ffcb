import { randomUUID } from "node:crypto"
import { createReadStream } from "node:fs"
import { mkdir, open, readdir, rename, rm, stat, utimes } from "node:fs/promises"
import { join } from "node:path"
import { pipeline } from "node:stream/promises"
import {
  nameOfUpload,
  prefixOfUploads,
  type StoredUpload,
  type UploadContent,
  type UploadRef,
  type UploadStore,
  uploadOfName,
  verified,
} from "./store.ts"

/** End of the name of a file that is being written. */
const UNFINISHED = ".part"

/** Store of uploads as plain files in one folder, for one façade replica. A rename makes a complete file visible. */
export class FileUploadStore implements UploadStore {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
  }

  async write(ref: UploadRef, content: UploadContent): Promise<void> {
    const path = this.#pathOf(ref)
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    const draft = `${path}.${randomUUID()}${UNFINISHED}`
    // Opened first: a stream that opens it would create it after the removal, if the upload breaks early.
    const file = await open(draft, "wx", 0o600)
    try {
      await pipeline(verified(ref, content), file.createWriteStream({ flush: true }))
      await rename(draft, path)
    } finally {
      await rm(draft, { force: true })
    }
  }

  async find(ref: UploadRef): Promise<StoredUpload | undefined> {
    const found = await ifThere(stat(this.#pathOf(ref)))
    return found && { ...ref, bytes: found.size, usedAt: found.mtime }
  }

  read(ref: UploadRef, start: number): AsyncIterable<Uint8Array> {
    return createReadStream(this.#pathOf(ref), { start })
  }

  async touch(ref: UploadRef): Promise<boolean> {
    const now = new Date()
    return (await ifThere(utimes(this.#pathOf(ref), now, now).then(() => true))) ?? false
  }

  /** A use at the same time either comes before the first rename and keeps the archive, or finds none. */
  async removeUnused(ref: UploadRef, since: Date): Promise<boolean> {
    const path = this.#pathOf(ref)
    const aside = `${path}.${randomUUID()}${UNFINISHED}`
    if ((await ifThere(rename(path, aside).then(() => true))) === undefined) return false
    const isUsed = (await stat(aside)).mtime >= since
    if (isUsed) await rename(aside, path)
    else await rm(aside)
    return !isUsed
  }

  async *list(namespace?: string): AsyncGenerator<StoredUpload, void, void> {
    const prefix = namespace === undefined ? "" : prefixOfUploads(namespace)
    for (const name of await this.#names()) {
      const ref = name.startsWith(prefix) ? uploadOfName(name) : undefined
      const found = ref && (await this.find(ref))
      if (found !== undefined) yield found
    }
  }

  async removeUnfinished(before: Date): Promise<void> {
    for (const name of await this.#names()) {
      if (!name.endsWith(UNFINISHED)) continue
      const path = join(this.#folder, name)
      const found = await ifThere(stat(path))
      if (found !== undefined && found.mtime < before) await rm(path, { force: true })
    }
  }

  async #names(): Promise<string[]> {
    return (await ifThere(readdir(this.#folder))) ?? []
  }

  #pathOf(ref: UploadRef): string {
    return join(this.#folder, nameOfUpload(ref))
  }
}

/** Returns undefined if the file does not exist. */
async function ifThere<Result>(result: Promise<Result>): Promise<Result | undefined> {
  try {
    return await result
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
}
