import {
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs"
import { join } from "node:path"
import type { Run } from "../core/apis/job.ts"
import type { Finish } from "../core/apis/launch.ts"
import { type AgentKeys, generateAgentKeys } from "../core/protocol/messages.ts"
import { processIdentity } from "./processes.ts"
import type { UsageState } from "./usage/window.ts"

/** State that survives a restart of the agent and a reboot of the VM. It contains no secret of a user. */
export interface AgentState {
  /** RFC 3339 time when the first agent of this disk started. The VM's lifetime counts from it. */
  bootTime: string
  /** Number of the last report. */
  sequence: number
  /** True if the Launch is bound to this disk's keys. */
  registered: boolean
  /** Runtime of this disk's containers. */
  runtime?: "docker" | "process"
  /** Limits from the order, for a container that a later agent finds. */
  limits?: { maxRetries: number; gpus?: number } & Pick<
    Run,
    "retryRules" | "timeoutSeconds" | "terminationGraceSeconds" | "idleLimit"
  >
  /** Current attempt, 0 before the first. */
  attempt: number
  /** `intended` is written before the container is created: it may or may not exist. */
  stage: "intended" | "started" | "ended"
  /** Start of the attempt's output in the spool, bytes. */
  outputStart: number
  /** RFC 3339 time when the container first started. */
  startTime?: string
  lastExitCode?: number
  /** Use of the run until its last complete minute. */
  usage?: UsageState
  /** RFC 3339 time of the cloud's preemption notice. */
  preemptionNotice?: string
  finish?: Finish
  /** Finish that is used once all written files are in the buckets. */
  unflushed?: Finish
  /** True if the gateway has stored the finish. */
  finishStored: boolean
}

/** Folder of the agent. Only the agent's user can read its files. */
export class Disk {
  readonly keys: AgentKeys
  readonly #path: string
  readonly #onWriteError: (error: unknown) => void
  #state: AgentState

  private constructor(
    path: string,
    kept: { keys: AgentKeys; state: AgentState },
    onWriteError: (error: unknown) => void,
  ) {
    this.#path = path
    this.keys = kept.keys
    this.#state = kept.state
    this.#onWriteError = onWriteError
  }

  /**
   * Opens the folder. An empty one gets new keys, and `now` as its boot time. `onWriteError` is called if the state
   * can't be written later, for example because the container has filled the disk.
   */
  static async open(dataDir: string, now: string, onWriteError: (error: unknown) => void): Promise<Disk> {
    const keysPath = join(dataDir, "keys.json")
    const statePath = join(dataDir, "state.json")
    const kept = readIfThere(keysPath)
    const keys = kept === undefined ? await generateAgentKeys() : (JSON.parse(kept) as AgentKeys)
    if (kept === undefined) replaceFile(keysPath, JSON.stringify(keys))
    const state = readIfThere(statePath)
    const disk = new Disk(statePath, { keys, state: parseState(state) ?? fresh(now) }, onWriteError)
    if (state === undefined) disk.update({})
    return disk
  }

  get state(): Readonly<AgentState> {
    return this.#state
  }

  /** Changes the state and writes it to the disk. If the disk accepts no writes, the run continues. */
  update(change: Partial<AgentState>): void {
    this.#state = { ...this.#state, ...change }
    try {
      replaceFile(this.#path, JSON.stringify(this.#state))
    } catch (error) {
      this.#onWriteError(error)
    }
  }
}

function parseState(text: string | undefined): AgentState | undefined {
  return text === undefined ? undefined : (JSON.parse(text) as AgentState)
}

function fresh(now: string): AgentState {
  return {
    bootTime: now,
    sequence: 0,
    registered: false,
    attempt: 0,
    stage: "ended",
    outputStart: 0,
    finishStored: false,
  }
}

/** Creates the agent's folder, accessible to its owner only. */
export function makeDataDir(dataDir: string): void {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
}

/** Replaces a file atomically, readable by its owner only. After a crash it has either the old or the new text. */
export function replaceFile(path: string, text: string): void {
  const temporary = `${path}.tmp`
  const file = openSync(temporary, "w", 0o600)
  try {
    writeSync(file, text)
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
  renameSync(temporary, path)
}

/** Returns the file's text; undefined if the file does not exist. */
export function readIfThere(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8")
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
}

/** Another agent uses this data folder. */
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
 * Makes this process the only agent of the folder, until the lock is disposed of or the process ends. The process that
 * creates the file of the next generation holds the lock. The newest file is never removed, only marked as released. So
 * two agents that both see a dead holder can't both take its place.
 * @throws AgentBusyError if another agent holds the lock
 */
export function acquireLock(dataDir: string): Disposable {
  const identity = processIdentity(process.pid)
  if (identity === undefined) throw new Error(`can't read the start time of this process (${process.pid})`)
  const self: Holder = { pid: process.pid, identity }
  for (;;) {
    const newest = newestGeneration(dataDir)
    assertFree(dataDir, newest)
    const path = lockPath(dataDir, newest + 1)
    if (!createLock(dataDir, path, self)) continue
    if (newestGeneration(dataDir) === newest + 1) {
      for (const old of generations(dataDir)) if (old <= newest) rmSync(lockPath(dataDir, old), { force: true })
      return { [Symbol.dispose]: () => release(path, self) }
    }
    // Other processes took and released this place after the folder was read.
    rmSync(path, { force: true })
  }
}

/** Marks the lock as released. A full disk rejects that, and then the end of this process releases the lock. */
function release(path: string, holder: Holder): void {
  try {
    replaceFile(path, JSON.stringify({ ...holder, released: true }))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error
  }
}

function assertFree(dataDir: string, generation: number): void {
  const holder = readHolder(lockPath(dataDir, generation))
  if (holder === undefined || !isHeld(holder)) return
  throw new AgentBusyError(`process ${holder.pid} is the agent of ${dataDir} already; end it first`)
}

/** Creates the lock file with its text in one step. Returns false if another process was faster. */
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
