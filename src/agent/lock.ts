import { linkSync, readdirSync, rmSync } from "node:fs"
import { join } from "node:path"
import { readIfThere, replaceFile } from "./files.ts"
import { processIdentity } from "./processes.ts"

/** Another agent works with this data folder. */
export class AgentBusyError extends Error {
  override readonly name = "AgentBusyError"
}

interface Holder {
  pid: number
  identity: string
  released?: boolean
}

const LOCK_NAME = /^lock\.([1-9][0-9]*)$/

/**
 * Makes this process the only agent of the folder, until it is disposed of or the process is gone. Whoever makes the
 * file of the next generation holds the lock; the newest file is never removed, only marked as released, so that
 * two agents that both see a dead holder can't both take its place. Throws AgentBusyError.
 */
export function acquireLock(dataDir: string): Disposable {
  const identity = processIdentity(process.pid)
  if (identity === undefined) throw new Error(`can't tell when this process (${process.pid}) started`)
  const self: Holder = { pid: process.pid, identity }
  for (;;) {
    const newest = newestGeneration(dataDir)
    assertFree(dataDir, newest)
    const path = lockPath(dataDir, newest + 1)
    if (!createLock(dataDir, path, self)) continue
    if (newestGeneration(dataDir) === newest + 1) {
      for (const old of generations(dataDir)) if (old <= newest) rmSync(lockPath(dataDir, old), { force: true })
      return { [Symbol.dispose]: () => replaceFile(path, JSON.stringify({ ...self, released: true })) }
    }
    // Others came and went since the folder was read: this place had been taken and cleared away.
    rmSync(path, { force: true })
  }
}

function assertFree(dataDir: string, generation: number): void {
  const holder = readHolder(lockPath(dataDir, generation))
  if (holder === undefined || !isHeld(holder)) return
  throw new AgentBusyError(`process ${holder.pid} is the agent of ${dataDir} already; end it first`)
}

/** Makes the lock with its text in it, at once; false when somebody was faster. */
function createLock(dataDir: string, path: string, holder: Holder): boolean {
  const draft = join(dataDir, `draft.${process.pid}`)
  replaceFile(draft, JSON.stringify(holder))
  try {
    linkSync(draft, path)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false
    throw error
  } finally {
    rmSync(draft, { force: true })
  }
}

function isHeld(holder: Holder): boolean {
  return holder.released !== true && processIdentity(holder.pid) === holder.identity
}

function readHolder(path: string): Holder | undefined {
  const text = readIfThere(path)
  return text === undefined ? undefined : (JSON.parse(text) as Holder)
}

function generations(dataDir: string): number[] {
  return readdirSync(dataDir).flatMap((name) => {
    const match = LOCK_NAME.exec(name)
    return match === null ? [] : [Number(match[1])]
  })
}

function newestGeneration(dataDir: string): number {
  return Math.max(0, ...generations(dataDir))
}

function lockPath(dataDir: string, generation: number): string {
  return join(dataDir, `lock.${generation}`)
}
