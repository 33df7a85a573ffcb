import { mkdir } from "node:fs/promises"
import { hostname } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import { type Clock, timestamp } from "../../apis/clock.ts"
import { CloudError, CredentialsError, InvalidRequestError, OutcomeUnknownError, TransientError } from "../errors.ts"
import type { Cloud, CloudAccount, Clouds, Identity, LaunchSpec, Scope, Vm, VmRef } from "../provider.ts"
import { specDigest } from "../spec-digest.ts"
import { removeContainers } from "./containers.ts"
import { nextStep, shownState, type VmFacts } from "./decide.ts"
import { createFolder, listFolders, VmFolder, type VmRecord } from "./folder.ts"
import { killLeftovers } from "./leftovers.ts"
import { type Agent, powerOn } from "./power.ts"
import { isAlive, type ProcessTable, readProcessTable, signal } from "./processes.ts"

export interface LocalCloudOptions extends Agent {
  /** Where the VMs' folders are kept. One per host and user; any number of processes may share it. */
  dataDir: string
  region: string
  clock: Clock
  /** Socket of the Docker engine that agents use, where there is one. */
  dockerSocket?: string
  /** Told when a VM can't be ended for now; it stays `terminating` and is tried again. */
  onError: (error: CloudError) => void
}

/** What a Launch may be called: it names a folder. */
const NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/

/** Seconds between two looks at a VM that is ending. */
const WATCH_SECONDS = 0.5

/** Steps taken in a row for one VM, and milliseconds between them while its processes die. */
const MOST_STEPS = 100
const STEP_MS = 20

/** What one look at a VM shows. */
interface Observed {
  folder: VmFolder
  record: VmRecord
  facts: VmFacts
}

/**
 * The cloud for development: a "VM" is an agent process on this host, in a session of its own, that lives on when this
 * process dies. Everything it knows is on disk (`VmFolder`) and in the process table. A VM boots once; when its agent
 * ends, however it ends, the VM is powered off: whatever still runs of it is ended, and only then it is `terminated`.
 * Terminated VMs are forgotten after a day, and their names are free again then.
 */
export class LocalCloud implements Cloud {
  readonly consistencySeconds = 0
  readonly region: string
  readonly #options: LocalCloudOptions
  /** VMs whose agent this process has sent SIGTERM. */
  readonly #stopped = new Set<string>()
  /** Cancels the timers of VMs that are ending. */
  readonly #watches = new Map<string, () => void>()
  /** Looks under way at VMs that are ending. */
  readonly #looks = new Set<Promise<void>>()

  constructor(options: LocalCloudOptions) {
    this.region = options.region
    this.#options = options
  }

  async launch(spec: LaunchSpec, fence?: () => void): Promise<Vm> {
    this.#refuseInvalid(spec)
    // Everything after it is settled by the folder, whoever else is at it.
    fence?.()
    try {
      await mkdir(this.#options.dataDir, { recursive: true, mode: 0o700 })
      const folder = this.#folder(spec.name)
      if ((await folder.record()) === undefined) await createFolder(this.#options.dataDir, spec, this.#now())
      const observed = await this.#observe(folder)
      if (observed === undefined) throw new TransientError("Vanished", `${folder.path} was removed meanwhile`)
      if (observed.record.specDigest !== specDigest(spec)) {
        const message = `a VM named ${spec.name} was launched from another spec: launch under another name`
        throw new InvalidRequestError("LaunchNameTaken", message)
      }
      if (observed.facts.power !== "off") return show(observed)
      await powerOn(folder, this.#options)
      return show((await this.#observe(folder)) ?? observed)
    } catch (error) {
      if (error instanceof CloudError) throw error
      throw new OutcomeUnknownError("LaunchFailed", `launch of ${spec.name} failed half-way`, { cause: error })
    }
  }

  async list(scope: Scope): Promise<Vm[]> {
    if (scope.region !== this.region) return []
    return await this.#orTransient(async () => {
      await mkdir(this.#options.dataDir, { recursive: true, mode: 0o700 })
      const folders = await listFolders(this.#options.dataDir, this.#options.clock.now())
      const table = await readProcessTable()
      const all = await Promise.all(folders.map((folder) => this.#advance(folder, table)))
      return all
        .filter((observed) => observed !== undefined)
        .filter(({ record }) => record.installation === scope.installation && record.region === scope.region)
        .map(show)
    })
  }

  async terminate(vm: VmRef, fence?: () => void): Promise<void> {
    if (!NAME.test(vm.id)) throw new InvalidRequestError("MalformedId", `"${vm.id}" is no VM id of the local cloud`)
    fence?.()
    await this.#orTransient(async () => {
      const folder = this.#folder(vm.id)
      const observed = await this.#observe(folder)
      if (observed === undefined || observed.facts.terminationTime !== undefined) return
      try {
        if (observed.facts.power !== "gone") await folder.recordMoment("termination-request", this.#now())
      } finally {
        // A full disk takes no record; the VM ends all the same.
        // Only as far as it goes at once: the rest is the watch's, or after a restart `list`'s.
        if (observed.facts.power === "on") await this.#stop(observed)
        this.#watch(folder)
      }
    })
  }

  /** Returns whether a VM's agent runs or may still be started, by the process table alone. */
  async isOn(vm: VmRef): Promise<boolean> {
    return await this.#orTransient(async () => {
      const agent = await this.#folder(vm.id).process()
      if (agent === "nobody") return false
      return agent === undefined || isAlive(agent, await readProcessTable())
    })
  }

  /**
   * Ends what still runs of a VM at once, whatever its agent has left to say. Resolves when none of its processes and
   * containers is left; its end is on record only where the disk takes it.
   */
  async kill(vm: VmRef): Promise<void> {
    await this.#orTransient(async () => {
      const folder = this.#folder(vm.id)
      for (let step = 0; step < MOST_STEPS && (await killLeftovers(folder)); step++) await sleep(STEP_MS)
      if (this.#options.dockerSocket !== undefined) await removeContainers(this.#options.dockerSocket, vm.launch)
      await this.#advance(folder)
    })
  }

  async verify(): Promise<Identity> {
    return { account: hostname() }
  }

  /** Looks after ending VMs no more: `list` goes on with them, in this process or the next. VMs live on. */
  async close(): Promise<void> {
    for (const cancel of this.#watches.values()) cancel()
    this.#watches.clear()
    // Else one that is half-way would find its folder gone, or tell of errors to somebody who has ended.
    await Promise.all(this.#looks)
  }

  #refuseInvalid(spec: LaunchSpec): void {
    if (!NAME.test(spec.name)) {
      const allowed = "up to 253 of a-z, 0-9, - and ., with a letter or digit at both ends"
      throw new InvalidRequestError("MalformedName", `name "${spec.name}" of a launch: allowed are ${allowed}`)
    }
    const { cloud, region } = spec.offer
    if (cloud === "local" && region === this.region) return
    const message = `offer of ${cloud}/${region}: only local/${this.region} is to be had here`
    throw new InvalidRequestError("UnknownRegion", message)
  }

  #folder(name: string): VmFolder {
    return new VmFolder(join(this.#options.dataDir, name))
  }

  #now(): string {
    return timestamp(this.#options.clock.now())
  }

  async #orTransient<T>(act: () => Promise<T>): Promise<T> {
    try {
      return await act()
    } catch (error) {
      if (error instanceof CloudError) throw error
      throw hostError(error)
    }
  }

  /** What disk and process table say of a VM, or undefined when there is none. */
  async #observe(folder: VmFolder, table?: ProcessTable): Promise<Observed | undefined> {
    const record = await folder.record()
    if (record === undefined) return undefined
    const { createTime, lifetimeSeconds } = record
    const terminationTime = await folder.moment("termination")
    const terminationRequestTime = await folder.moment("termination-request")
    const facts: VmFacts = {
      createTime,
      lifetimeSeconds,
      power: "gone",
      ...(terminationRequestTime !== undefined && { terminationRequestTime }),
      ...(terminationTime !== undefined && { terminationTime }),
    }
    if (terminationTime !== undefined) return { folder, record, facts }
    const agent = await folder.process()
    if (agent === undefined) return { folder, record, facts: { ...facts, power: "off" } }
    if (agent === "nobody") return { folder, record, facts }
    // A table that was read before the agent wrote down who it is doesn't show it: only a later one proves a death.
    const alive = (table !== undefined && isAlive(agent, table)) || isAlive(agent, await readProcessTable())
    return { folder, record, facts: { ...facts, power: alive ? "on" : "gone" } }
  }

  /** Takes a VM as far as it goes now. Undefined when nothing of it is left to show. */
  async #advance(folder: VmFolder, table?: ProcessTable): Promise<Observed | undefined> {
    let observed = await this.#observe(folder, table)
    try {
      for (let step = 0; observed !== undefined && step < MOST_STEPS; step++) {
        if (!(await this.#takeStep(observed))) break
        observed = await this.#observe(folder)
      }
    } catch (error) {
      // One VM's step that fails, as on a full disk, must not hide the others.
      const known = error instanceof CloudError ? error : hostError(error)
      this.#options.onError(known)
    }
    return observed
  }

  /** Takes the next step; false when there is nothing to do but wait. */
  async #takeStep(observed: Observed): Promise<boolean> {
    const { folder, facts } = observed
    switch (nextStep(facts, this.#options.clock.now())) {
      case "none":
        return false
      case "cancelBoot":
        await folder.forbidBoot()
        return true
      case "stop":
        return await this.#stop(observed)
      case "kill":
        await killLeftovers(folder)
        await sleep(STEP_MS)
        return true
      case "cleanUp":
        await this.#cleanUp(observed)
        return true
      case "forget":
        await folder.remove()
        return true
    }
  }

  /** Asks the agent to end, once from this process: again after a restart, in case the last one died in between. */
  async #stop({ folder, record, facts }: Observed): Promise<boolean> {
    if (this.#stopped.has(record.launch)) return false
    this.#stopped.add(record.launch)
    const agent = await folder.process()
    if (typeof agent === "object" && isAlive(agent, await readProcessTable())) signal(agent.pid, "SIGTERM")
    if (facts.terminationRequestTime === undefined) await folder.recordMoment("termination-request", this.#now())
    return true
  }

  /** Ends what a dead agent left, and once nothing is left records when it was over. */
  async #cleanUp({ folder, record, facts }: Observed): Promise<void> {
    if (await killLeftovers(folder)) return await sleep(STEP_MS)
    if (this.#options.dockerSocket !== undefined) await removeContainers(this.#options.dockerSocket, record.launch)
    const lastSign = (await folder.process()) === "nobody" ? this.#options.clock.now() : await folder.lastSignOfLife()
    const times = [record.createTime, timestamp(lastSign), facts.terminationRequestTime ?? ""]
    await folder.recordMoment("termination", times.sort().at(-1) ?? this.#now())
    this.#stopped.delete(record.launch)
  }

  /** Looks after an ending VM until it is terminated. What fails here is tried again, and told by the next `list` too. */
  #watch(folder: VmFolder): void {
    this.#watches.get(folder.path)?.()
    this.#watches.set(
      folder.path,
      this.#options.clock.setTimer(WATCH_SECONDS, () => {
        const look = this.#look(folder).finally(() => this.#looks.delete(look))
        this.#looks.add(look)
      }),
    )
  }

  async #look(folder: VmFolder): Promise<void> {
    try {
      const observed = await this.#orTransient(() => this.#advance(folder))
      const over = observed === undefined || observed.facts.terminationTime !== undefined
      if (over) this.#watches.delete(folder.path)
      else if (this.#watches.has(folder.path)) this.#watch(folder)
    } catch (error) {
      if (!(error instanceof CloudError)) throw error
      this.#options.onError(error)
      if (this.#watches.has(folder.path)) this.#watch(folder)
    }
  }
}

function hostError(cause: unknown): TransientError {
  return new TransientError("HostError", `this host failed: ${String(cause)}`, { cause })
}

function show({ record, facts }: Observed): Vm {
  const { launch, installation, region, createTime } = record
  const { terminationTime } = facts
  const state = shownState(facts)
  return { id: launch, launch, installation, region, state, createTime, ...(terminationTime && { terminationTime }) }
}

/** The local cloud as the only one there is. It needs no credentials; any other cloud's name is refused. */
export function localClouds(local: LocalCloud): Clouds {
  return {
    async open(account: CloudAccount): Promise<Cloud> {
      if (account.cloud === "local" && account.region === local.region) return local
      const message = `no credentials for ${account.cloud}/${account.region}: only local/${local.region} is open here`
      throw new CredentialsError("NoCredentials", message)
    },
  }
}
