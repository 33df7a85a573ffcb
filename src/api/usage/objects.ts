import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"

/** Small objects by their name, beside the logs. */
export interface Objects {
  /** Returns undefined if there is no such object. */
  get(name: string): Promise<Uint8Array | undefined>
  /** Stores an object, or replaces it as a whole. */
  put(name: string, bytes: Uint8Array): Promise<void>
  /** Removes an object; no error if there is none. */
  remove(name: string): Promise<void>
  names(): AsyncIterable<string>
}

/** End of the name of a file that is being written. */
const UNFINISHED = ".part"

/** Objects as files of one folder, for one façade replica. A rename makes a complete file visible. */
export class FileObjects implements Objects {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
  }

  get(name: string): Promise<Uint8Array | undefined> {
    return ifThere(readFile(join(this.#folder, name)))
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    const path = join(this.#folder, name)
    const draft = `${path}${UNFINISHED}`
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    try {
      await writeFile(draft, bytes, { mode: 0o600 })
      await rename(draft, path)
    } catch (error) {
      // A full disk leaves a part of it.
      await rm(draft, { force: true })
      throw error
    }
  }

  async remove(name: string): Promise<void> {
    await rm(join(this.#folder, name), { force: true })
  }

  async *names(): AsyncGenerator<string, void, void> {
    const names = (await ifThere(readdir(this.#folder))) ?? []
    yield* names.filter((name) => !name.endsWith(UNFINISHED))
  }
}

async function ifThere<Result>(asked: Promise<Result>): Promise<Result | undefined> {
  try {
    return await asked
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
}
