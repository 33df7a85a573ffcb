import { mkdir, readFile, writeFile } from "node:fs/promises"
import { dirname } from "node:path"
import { DatabaseSync } from "node:sqlite"

const SQLITE_BUSY = 5
const SQLITE_NOT_A_DATABASE = 26

/** A lock that this process holds. */
export interface Lock {
  /** May be called again. */
  release(): void
}

/** Another process, or this one, holds the lock. */
export class LockHeldError extends Error {
  /** The pid of its holder, if known. */
  readonly holder: string

  constructor(path: string, holder: string) {
    super(`${path} is held by process ${holder}`)
    this.name = "LockHeldError"
    this.holder = holder
  }
}

/**
 * Takes the lock named by the file `path`, which is created if missing and stays. It is SQLite's lock of an empty
 * database, and so the kernel's. The kernel releases it with its process, even after SIGKILL. (Node.js has no file lock
 * of its own. A file with a pid can't be taken over from a dead owner without a race.)
 *
 * Throws LockHeldError if this process or another holds it.
 */
export async function takeLock(path: string): Promise<Lock> {
  await mkdir(dirname(path), { recursive: true })
  const holderPath = `${path}.pid`
  const database = new DatabaseSync(path)
  try {
    database.exec("BEGIN EXCLUSIVE")
  } catch (error) {
    database.close()
    const { errcode } = error as { errcode?: number }
    if (errcode === SQLITE_NOT_A_DATABASE) {
      throw new Error(`${path} is not a lock of Berth's: remove that file, or choose another data directory`, {
        cause: error,
      })
    }
    if (errcode !== SQLITE_BUSY) throw error
    throw new LockHeldError(path, await readFile(holderPath, "utf8").catch(() => "(unknown)"))
  }
  await writeFile(holderPath, String(process.pid))
  return {
    release: () => {
      if (database.isOpen) database.close()
    },
  }
}
