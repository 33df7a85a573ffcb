import { mkdirSync } from "node:fs"
import { join } from "node:path"
import type { Finish } from "../apis/launch.ts"
import { readIfThere, replaceFile } from "./files.ts"
import { type AgentKeys, generateAgentKeys } from "./messages.ts"

/** What the agent must remember over its own end and the VM's reboot. Nothing in it is a user's secret. */
export interface AgentState {
  /** RFC 3339: when the first agent of this disk started; the VM's lifetime counts from it. */
  bootTime: string
  /** Number of the last report that was made. */
  sequence: number
  /** The Launch is bound to this disk's keys. */
  registered: boolean
  /** The runtime that this disk's containers are in. */
  runtime?: "docker" | "process"
  /** Of the order: what a container that is found again must be held to. */
  limits?: { maxRetries: number; timeoutSeconds?: number }
  /** The present attempt, 0 before the first. */
  attempt: number
  /** `intended` is written before the container is made: it may or may not exist. */
  stage: "intended" | "started" | "ended"
  /** Where the attempt's output begins in the spool, bytes. */
  outputStart: number
  /** RFC 3339: when the container first started. */
  startTime?: string
  lastExitCode?: number
  /** RFC 3339: when the cloud gave notice that it takes the VM back. */
  preemptionNotice?: string
  finish?: Finish
  /** What the finish will be when all that was written is in the buckets. */
  unflushed?: Finish
  /** The gateway has stored the finish. */
  finishStored: boolean
}

/** The agent's folder. Its files are readable by the agent's user only. */
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
   * Opens the folder, made anew with keys of its own when it is empty. `now` is the boot time of a new one.
   * `onWriteError` is called when the state can't be written later on, as when the container has filled the disk.
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

  /** Changes the state; it is on the disk when this returns, unless the disk takes no more: then the run goes on. */
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

/** Makes the agent's folder, for its owner only. */
export function makeDataDir(dataDir: string): void {
  mkdirSync(dataDir, { recursive: true, mode: 0o700 })
}
