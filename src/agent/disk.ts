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
import { defined } from "../core/apis/defined.ts"
import type { Run } from "../core/apis/job.ts"
import type { Finish } from "../core/apis/launch.ts"
import { type AgentKeys, generateAgentKeys } from "../core/protocol/messages.ts"
import type { BootConfig } from "../core/protocol/protocol.ts"
import { processIdentity } from "./processes.ts"
import type { UsageState } from "./usage/window.ts"

/**
 * State of a Launch that survives a restart of the agent and a reboot of the VM. It contains no secret of a user.
 */
export interface AgentState {
  /** Name of the Launch. Another one never gets this state. */
  launch: string
  /** RFC 3339 time from which the Launch has the VM. Its lifetime counts from it. */
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
    "retryRules" | "timeoutSeconds" | "terminationGraceSeconds" | "idleLimit" | "debug"
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
  /** True once a person was in the container (sessions). */
  entered?: boolean
  /** Present if the VM waits for another job after this one. */
  reuse?: { idleSeconds: number; isHostShared: boolean }
  /** RFC 3339 time from which it waits. Nothing of the job is left on the VM then. */
  idleTime?: string
}

const KEYS_FILE = "keys.json"
const STATE_FILE = "state.json"
const BOOT_FILE = "boot.json"

/** The agent's own files. All others in its folder belong to a job. */
export const OWN_FILES: readonly string[] = [KEYS_FILE, STATE_FILE, BOOT_FILE, "user-data.json"]

/** Launch that has the VM. */
export interface Boot {
  /** Launch that created the VM, as in the VM's user data. */
  root: string
  /** RFC 3339 time of the takeover. Absent for the root. */
  since?: string
  config: BootConfig
}

/** Returns the Launch that has the VM with this user data: the last one that `writeBoot` has written, or the first one. */
export function readBoot(dataDir: string, userData: BootConfig): Boot {
  const text = readIfThere(join(dataDir, BOOT_FILE))
  const written = text === undefined ? undefined : (JSON.parse(text) as Boot)
  // A file of another VM, for example in an image of its disk.
  if (written?.root !== userData.launch) return { root: userData.launch, config: userData }
  return written
}

/** Gives the VM to another Launch. From now on no agent of this disk continues the earlier one. */
export function writeBoot(dataDir: string, boot: Boot): void {
  replaceFile(join(dataDir, BOOT_FILE), JSON.stringify(boot))
}

/** Keys and state of a Launch, in the agent's folder. Only the agent's user can read the files. */
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
   * Opens the folder. Without files of this Launch it gets new keys, and `since` as its boot time. Those of an earlier
   * Launch are replaced: no moment is without keys, which say that an agent has run here. `onWriteError` is called if the
   * state can't be written later, for example because the container has filled the disk.
   */
  static async open(
    dataDir: string,
    { launch, since }: { launch: string; since: string },
    onWriteError: (error: unknown) => void,
  ): Promise<Disk> {
    const keysPath = join(dataDir, KEYS_FILE)
    const statePath = join(dataDir, STATE_FILE)
    const kept = readOf<AgentKeys & { launch: string }>(keysPath, launch)
    const { signing, encryption } = kept ?? (await generateAgentKeys())
    const keys = { signing, encryption }
    if (kept === undefined) replaceFile(keysPath, JSON.stringify({ launch, ...keys }))
    const state = readOf<AgentState>(statePath, launch)
    const disk = new Disk(statePath, { keys, state: state ?? fresh(launch, since) }, onWriteError)
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

  /** Forgets everything of the run but how it ended, because the VM waits for another job from `idleTime` on. @throws */
  forgetRun(idleTime: string): void {
    const { launch, bootTime, runtime, finish, reuse } = this.#state
    this.#state = {
      ...fresh(launch, bootTime),
      ...defined({ runtime, reuse }),
      ...(finish !== undefined && { finish: { reason: finish.reason, time: finish.time } }),
      registered: true,
      finishStored: true,
      idleTime,
    }
    replaceFile(this.#path, JSON.stringify(this.#state))
  }
}

/** Returns the content of a file, unless it is another Launch's. */
function readOf<Content extends { launch: string }>(path: string, launch: string): Content | undefined {
  const text = readIfThere(path)
  const content = text === undefined ? undefined : (JSON.parse(text) as Content)
  return content?.launch === launch ? content : undefined
}

function fresh(launch: string, since: string): AgentState {
  return {
    launch,
    bootTime: since,
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

/** Name of a lock's file. */
export const LOCK_NAME = /^lock\.([1-9][0-9]*)$/

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
