import { mkdir } from "node:fs/promises"
import { hostname } from "node:os"
import { join } from "node:path"
import { setTimeout as sleep } from "node:timers/promises"
import type { Cloud, CloudAccount, Clouds, Identity, LaunchSpec, Scope, Vm, VmRef } from "../../src/clouds/cloud.ts"
import { specDigest } from "../../src/clouds/spec-digest.ts"
import { type Clock, timestamp } from "../../src/core/apis/clock.ts"
import { defined } from "../../src/core/apis/defined.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import {
  CloudError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  TransientError,
} from "../../src/core/outbound/errors.ts"
import { removeContainers } from "./containers.ts"
import { nextStep, shownState, type VmFacts } from "./decide.ts"
import { createFolder, listFolders, VmFolder, type VmRecord } from "./folder.ts"
import { killAllNow, killLeftovers } from "./leftovers.ts"
import { type Agent, powerOn } from "./power.ts"
import { isAlive, type ProcessTable, readProcessTable, signal } from "./processes.ts"

export interface LocalCloudOptions extends Agent {
  /** Folder of the VMs' folders. One per host and user; any number of processes may share it. */
  dataDir: string
  region: string
  clock: Clock
  /** Socket of the Docker engine that agents use; absent if there is none. */
  dockerSocket?: string
  /** Called when a VM currently can't be terminated. It stays `terminating`, and Berth retries. */
  onError: (error: CloudError) => void
}

/** Allowed names of a Launch: each becomes the name of a folder. */
const NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/

/** Poll interval of a terminating VM, seconds. */
const WATCH_SECONDS = 0.5

/** Maximum number of consecutive steps for one VM, and milliseconds between them while its processes end. */
const MOST_STEPS = 100
const STEP_MS = 20

/** Number of VMs whose files are read at a time. Each has at most one open file. */
const MOST_LOOKS = 64

/** Result of one observation of a VM. */
interface Observed {
  folder: VmFolder
  record: VmRecord
  facts: VmFacts
}

/**
 * The cloud for development. A "VM" is an agent process on this host. It has a session of its own, and survives the
 * death of this process. Its whole state is on disk (`VmFolder`) and in the process table. A VM boots once. When its
 * agent ends, for any reason, the VM is powered off. Its remaining processes are killed, and only then it is
 * `terminated`. Ten minutes later its disk is deleted. The VM is listed until `forget`; then its name is free again.
 */
export class LocalCloud implements Cloud {
  readonly consistencySeconds = 0
  readonly region: string
  readonly #options: LocalCloudOptions
  /** Monotonic time of the SIGTERM that this process sent to a VM's agent, by Launch. */
  readonly #stopped = new Map<string, number>()
  /** VMs that have ended, by path: their records never change, so they are read once. */
  readonly #ended = new Map<string, Observed>()
  /** Functions that cancel the timers of terminating VMs. */
  readonly #watches = new Map<string, () => void>()
  /** Pending observations of terminating VMs. */
  readonly #looks = new Set<Promise<void>>()

  constructor(options: LocalCloudOptions) {
    this.region = options.region
    this.#options = options
  }

  async launch(spec: LaunchSpec, fence?: () => void): Promise<Vm> {
    this.#refuseInvalid(spec)
    // From here on, the folder settles any race with other processes.
    fence?.()
    try {
      await mkdir(this.#options.dataDir, { recursive: true, mode: 0o700 })
      const folder = this.#folder(spec.name)
      if ((await folder.record()) === undefined) {
        this.#ended.delete(folder.path)
        await createFolder(this.#options.dataDir, spec, this.#now())
      }
      const observed = await this.#observe(folder)
      if (observed === undefined) throw new TransientError("Vanished", `${folder.path} was removed in the meantime`)
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
      const paths = new Set(folders.map(({ path }) => path))
      for (const path of this.#ended.keys()) if (!paths.has(path)) this.#ended.delete(path)
      const table = readProcessTable()
      const all = await inParallel(folders, MOST_LOOKS, (folder) => this.#advance(folder, table))
      return all
        .filter((observed) => observed !== undefined)
        .filter(({ record }) => record.installation === scope.installation && record.region === scope.region)
        .map(show)
    })
  }

  async terminate(vm: VmRef, fence?: () => void): Promise<void> {
    if (!NAME.test(vm.id)) throw new InvalidRequestError("MalformedId", `"${vm.id}" is not a VM id of the local cloud`)
    fence?.()
    await this.#orTransient(async () => {
      const folder = this.#folder(vm.id)
      const observed = await this.#observe(folder)
      if (observed === undefined || observed.facts.terminationTime !== undefined) return
      try {
        if (observed.facts.power !== "gone") await folder.recordMoment("termination-request", this.#now())
      } finally {
        // On a full disk the record fails, but the VM must still end. Only the first step runs here. The watch
        // continues, or after a restart `list`.
        if (observed.facts.power === "on") await this.#stop(observed)
        this.#watch(folder)
      }
    })
  }

  /** Removes what is left of VMs that have ended, so that their names are free again. Other VMs stay. */
  async forget(vms: readonly VmRef[]): Promise<void> {
    await this.#orTransient(async () => {
      await inParallel(vms, MOST_LOOKS, async ({ id }) => {
        const folder = this.#folder(id)
        const observed = this.#ended.get(folder.path) ?? (await this.#observe(folder))
        if (observed?.facts.terminationTime === undefined) return
        await folder.remove()
        this.#ended.delete(folder.path)
      })
    })
  }

  /** Records that the VM ends because Berth stops on this machine. The next start reads it: `powerOffTime`. */
  async planPowerOff(vm: VmRef): Promise<void> {
    await this.#orTransient(() => this.#folder(vm.id).recordMoment("power-off", this.#now()))
  }

  /** Returns the time of a planned power-off of the VM; undefined if there was none, or if there is no such VM. */
  async powerOffTime(vm: Pick<VmRef, "id">): Promise<string | undefined> {
    return await this.#orTransient(() => this.#folder(vm.id).moment("power-off"))
  }

  /** Returns true if a VM's agent runs or may still be started. Uses only the process table. */
  async isOn(vm: VmRef): Promise<boolean> {
    return await this.#orTransient(async () => {
      const agent = await this.#folder(vm.id).process()
      if (agent === "nobody") return false
      return agent === undefined || isAlive(agent, readProcessTable())
    })
  }

  /**
   * Kills a VM at once, without waiting for its agent's last report. Resolves when none of its processes and containers
   * is left. Its end is recorded only if the disk accepts the record.
   */
  async kill(vm: VmRef): Promise<void> {
    await this.#orTransient(async () => {
      const folder = this.#folder(vm.id)
      for (let step = 0; step < MOST_STEPS && (await killLeftovers(folder)); step++) await sleep(STEP_MS)
      if (this.#options.dockerSocket !== undefined) await removeContainers(this.#options.dockerSocket, vm.launch)
      await this.#advance(folder)
    })
  }

  /**
   * Kills the processes of all VMs before it returns, for a process that exits before `kill` is done. Records nothing, and
   * leaves containers: the next start does both.
   */
  killNow(): void {
    killAllNow(this.#options.dataDir)
  }

  async verify(): Promise<Identity> {
    return { account: hostname() }
  }

  /** Stops polling terminating VMs; VMs continue to run. `list` continues the polling, in this process or the next. */
  async close(): Promise<void> {
    for (const cancel of this.#watches.values()) cancel()
    this.#watches.clear()
    // A pending observation could otherwise find its folder removed, or report errors to a caller that has ended.
    await Promise.all(this.#looks)
  }

  #refuseInvalid(spec: LaunchSpec): void {
    if (!NAME.test(spec.name)) {
      const allowed = "up to 253 of a-z, 0-9, - and ., with a letter or digit at both ends"
      throw new InvalidRequestError("MalformedName", `name "${spec.name}" of a launch: allowed are ${allowed}`)
    }
    const { cloud, region } = spec.offer
    if (cloud === "local" && region === this.region) return
    const message = `offer of ${cloud}/${region}: only local/${this.region} is available here`
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

  /** Observes a VM on disk and in the process table; undefined if there is none. */
  async #observe(folder: VmFolder, table?: ProcessTable): Promise<Observed | undefined> {
    const record = await folder.record()
    if (record === undefined) return undefined
    const stoppedAt = this.#stopped.get(record.launch)
    const terminationTime = await folder.moment("termination")
    const terminationRequestTime = await folder.moment("termination-request")
    const facts: VmFacts = {
      power: "gone",
      hasDisk: await folder.hasDisk(),
      ...(stoppedAt !== undefined && { stoppedSeconds: this.#options.clock.monotonic() - stoppedAt }),
      ...defined({ terminationRequestTime, terminationTime }),
    }
    if (terminationTime !== undefined) return { folder, record, facts }
    const agent = await folder.process()
    if (agent === undefined) return { folder, record, facts: { ...facts, power: "off" } }
    if (agent === "nobody") return { folder, record, facts }
    // A process table from before the agent recorded its identity does not contain it. Only a later table proves a
    // death.
    const alive = (table !== undefined && isAlive(agent, table)) || isAlive(agent, readProcessTable())
    return { folder, record, facts: { ...facts, power: alive ? "on" : "gone" } }
  }

  /** Takes all currently possible steps of a VM. Returns undefined if nothing of the VM is left. */
  async #advance(folder: VmFolder, table?: ProcessTable): Promise<Observed | undefined> {
    let observed = this.#ended.get(folder.path) ?? (await this.#observe(folder, table))
    try {
      for (let step = 0; observed !== undefined && step < MOST_STEPS; step++) {
        if (observed.facts.terminationTime !== undefined) this.#ended.set(folder.path, observed)
        if (!(await this.#takeStep(observed))) break
        observed = await this.#observe(folder)
      }
    } catch (error) {
      // If one VM's step fails, as on a full disk, the other VMs must still be listed.
      const known = error instanceof CloudError ? error : hostError(error)
      this.#options.onError(known)
    }
    return observed
  }

  /** Takes the next step. Returns false if the VM can only wait. */
  async #takeStep(observed: Observed): Promise<boolean> {
    const { folder, facts } = observed
    switch (nextStep(facts, this.#options.clock.now())) {
      case "none":
        return false
      case "cancelBoot":
        await folder.forbidBoot()
        return true
      case "stop":
        await this.#stop(observed)
        return true
      case "kill":
        await killLeftovers(folder)
        await sleep(STEP_MS)
        return true
      case "cleanUp":
        await this.#cleanUp(observed)
        return true
      case "deleteDisk":
        await folder.deleteDisk()
        return true
    }
  }

  /**
   * Asks the agent to end, once per process. A restarted process asks again, because the last one may have died in
   * between.
   */
  async #stop({ folder, record, facts }: Observed): Promise<void> {
    if (this.#stopped.has(record.launch)) return
    this.#stopped.set(record.launch, this.#options.clock.monotonic())
    const agent = await folder.process()
    if (typeof agent === "object" && isAlive(agent, readProcessTable())) signal(agent.pid, "SIGTERM")
    if (facts.terminationRequestTime === undefined) await folder.recordMoment("termination-request", this.#now())
  }

  /** Kills the remains of a dead agent. Records the end when nothing is left. */
  async #cleanUp({ folder, record, facts }: Observed): Promise<void> {
    if (await killLeftovers(folder)) return await sleep(STEP_MS)
    if (this.#options.dockerSocket !== undefined) await removeContainers(this.#options.dockerSocket, record.launch)
    const lastSign = (await folder.process()) === "nobody" ? this.#options.clock.now() : await folder.lastSignOfLife()
    const times = [record.createTime, timestamp(lastSign), facts.terminationRequestTime ?? ""]
    await folder.recordMoment("termination", times.sort().at(-1) ?? this.#now())
    this.#stopped.delete(record.launch)
  }

  /** Polls a terminating VM until it is terminated. An error is retried, and the next `list` reports it too. */
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

/** Returns the local cloud as the only cloud. It needs no credentials. Other clouds' names are rejected. */
export function localClouds(local: LocalCloud): Clouds {
  return {
    async open(account: CloudAccount): Promise<Cloud> {
      if (account.cloud === "local" && account.region === local.region) return local
      const message = `no credentials for ${account.cloud}/${account.region}: only local/${local.region} is available here`
      throw new CredentialsError("NoCredentials", message)
    },
  }
}
