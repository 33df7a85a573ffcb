import { mkdir } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { runAgent } from "../../src/agent/main.ts"
import { parseUserData } from "../../src/core/protocol/messages.ts"
import { Ec2Console, isGone } from "../cloud/ec2-console.ts"
import { agentConfig } from "../e2e/ec2-hypervisor.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import type { Moto } from "../moto.ts"

const LOOK_MS = 500

type Instance = Awaited<ReturnType<Ec2Console["instances"]>>[number]

export interface MachinesOptions {
  moto: Moto
  regions: readonly string[]
  /** Installation whose instances are booted. */
  installation: string
  /** Folder for their disks. */
  folder: string
}

/**
 * Machines that moto lacks, for many instances at a time. Each is an agent in this process, which has only the
 * instance's user data and runs its job as a process of this host.
 */
export class Machines {
  readonly faults: unknown[] = []
  /** Launches that were booted, one entry for each boot. */
  readonly booted: string[] = []
  readonly #options: MachinesOptions
  readonly #consoles: Ec2Console[]
  readonly #power = new Map<string, AbortController>()
  readonly #agents: Promise<void>[] = []
  readonly #stop = new AbortController()
  readonly #loop: Promise<void>

  constructor(options: MachinesOptions) {
    this.#options = options
    this.#consoles = options.regions.map((region) => new Ec2Console(options.moto, region))
    this.#loop = this.#run()
  }

  /** Returns all instances that were ever created. */
  async instances(): Promise<Instance[]> {
    const { installation } = this.#options
    return (await Promise.all(this.#consoles.map((ec2) => ec2.instances("installation", installation)))).flat()
  }

  async close(): Promise<void> {
    this.#stop.abort()
    await this.#loop
    for (const power of this.#power.values()) power.abort()
    await Promise.all(this.#agents)
    for (const ec2 of this.#consoles) ec2.close()
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const looks = this.#consoles.map((ec2) => this.#look(ec2).catch((error: unknown) => this.faults.push(error)))
      await Promise.all(looks)
      await delay(LOOK_MS, undefined, { signal: this.#stop.signal }).catch(() => undefined)
    }
  }

  async #look(ec2: Ec2Console): Promise<void> {
    for (const instance of await ec2.instances("installation", this.#options.installation)) {
      const id = instance.InstanceId ?? ""
      const power = this.#power.get(id)
      if (power !== undefined && isGone(instance)) power.abort()
      if (power !== undefined || instance.State?.Name !== "running") continue
      this.#power.set(id, new AbortController())
      this.#agents.push(this.#boot(ec2, id).catch((error: unknown) => void this.faults.push(error)))
    }
  }

  async #boot(ec2: Ec2Console, id: string): Promise<void> {
    const userData = agentConfig(await ec2.userData(id))
    const dataDir = join(this.#options.folder, id)
    await mkdir(dataDir, { recursive: true })
    this.booted.push(parseUserData(userData).launch)
    const { signal } = this.#power.get(id) ?? new AbortController()
    await runAgent({ dataDir, userData, signal, runtime: "process", logger: silentLogger, stopGraceSeconds: 1 })
    // A power-off terminates the instance, like InstanceInitiatedShutdownBehavior.
    await ec2.terminate(id).catch(async (error: unknown) => {
      // Moto fails on an instance that Berth terminates at the same moment.
      const found = await ec2.instances("installation", this.#options.installation)
      if (!found.some((instance) => instance.InstanceId === id && isGone(instance))) throw error
    })
  }
}
