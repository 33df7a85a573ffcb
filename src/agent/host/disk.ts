import { rmSync } from "node:fs"
import { join } from "node:path"
import type { JoinClaims } from "../../core/protocol/machines.ts"
import type { AgentKeys } from "../../core/protocol/messages.ts"
import type { BootConfig } from "../../core/protocol/protocol.ts"
import { readIfThere, replaceFile } from "../disk.ts"
import type { Lease } from "./lease.ts"

/** Machine that a host is, and the keys by which Berth knows it. */
export interface Identity extends Omit<JoinClaims, "expires"> {
  keys: AgentKeys
  /** Bearer token of the host's messages. Absent until the gateway has answered its join. */
  machineToken?: string
}

/** Launch whose run the host has. */
export interface Order {
  config: BootConfig
  /** RFC 3339 time at which the host got it, by the host's own clock. */
  since: string
  /** True if the run is over, and only the clean-up is left. */
  hasEnded?: true
}

/** State of a host. */
export interface HostState {
  /** Number of the last message. */
  sequence: number
  lease?: Lease
  order?: Order
  /** Last Launch of which nothing is left here. */
  freed?: string
}

const IDENTITY_FILE = "host.json"
const STATE_FILE = "host-state.json"

/**
 * Added to the last number that is on the disk when an agent starts. A full disk may have refused the numbers after it, and
 * the gateway ignores those that it has seen.
 */
const SEQUENCE_STEP = 1_000_000

/** Identity and state of a host, in its agent's folder. Only the agent's user can read the files. */
export class HostDisk {
  readonly #dataDir: string
  readonly #onWriteError: (error: unknown) => void
  #identity: Identity | undefined
  #state: HostState

  /** @param onWriteError called if a change that may be lost can't be written */
  constructor(dataDir: string, onWriteError: (error: unknown) => void) {
    this.#dataDir = dataDir
    this.#onWriteError = onWriteError
    this.#identity = this.#read<Identity>(IDENTITY_FILE)
    const { sequence = 0, ...kept } = this.#read<HostState>(STATE_FILE) ?? {}
    this.#state = { ...kept, sequence: sequence + SEQUENCE_STEP }
    this.update({})
  }

  get identity(): Readonly<Identity> | undefined {
    return this.#identity
  }

  get state(): Readonly<HostState> {
    return this.#state
  }

  /** Folder of the run. */
  get runDir(): string {
    return join(this.#dataDir, "run")
  }

  /** Becomes another machine, or the same one with its token. @throws Error if the disk refuses it */
  identify(identity: Identity): void {
    replaceFile(join(this.#dataDir, IDENTITY_FILE), JSON.stringify(identity))
    this.#identity = identity
  }

  /** Changes the state. If the disk refuses it, it holds in memory. */
  update(change: Partial<HostState>): void {
    const state = { ...this.#state, ...change }
    this.#state = state
    try {
      this.#write(state)
    } catch (error) {
      this.#onWriteError(error)
    }
  }

  /** Changes the state on the disk. @throws Error if the disk refuses it; then nothing has changed */
  commit(change: { order: Order | undefined; freed?: string }): void {
    const { order, ...rest } = { ...this.#state, ...change }
    const state = { ...rest, ...(order !== undefined && { order }) }
    this.#write(state)
    this.#state = state
  }

  /** Removes all files, and with them the keys. */
  forget(): void {
    for (const name of [IDENTITY_FILE, STATE_FILE]) rmSync(join(this.#dataDir, name), { force: true })
    this.#identity = undefined
    this.#state = { sequence: 0 }
  }

  #write(state: HostState): void {
    replaceFile(join(this.#dataDir, STATE_FILE), JSON.stringify(state))
  }

  #read<Content>(name: string): Content | undefined {
    const text = readIfThere(join(this.#dataDir, name))
    return text === undefined ? undefined : (JSON.parse(text) as Content)
  }
}
