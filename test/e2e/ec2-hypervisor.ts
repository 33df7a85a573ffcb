import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { load } from "js-yaml"
import { compileCache } from "../../dev/compile-cache.ts"
import { endRecordedGroup } from "../../src/agent/runtimes/process.ts"
import { parseUserData } from "../../src/core/protocol/messages.ts"
import { type Ec2Console, isGone } from "../cloud/ec2-console.ts"
import { agentProgram } from "../harness/agent-program.ts"
import type { ContainerRuntime } from "../harness/container-runtime.ts"
import { removeContainers } from "../harness/traces.ts"

const LOOK_MS = 200

interface Machine {
  id: string
  launch: string
  disk: string
  agent: ChildProcess
  output: string
}

export interface HypervisorOptions {
  console: Ec2Console
  installation: string
  /** Folder for the disks of its machines. */
  folder: string
  runtime: ContainerRuntime
  /** Returns the disk of an instance, and the program of its agent. Default: a folder, and Berth's own program. */
  prepare?: (id: string) => Promise<{ disk: string; program: readonly string[] }>
}

/**
 * Machines that moto lacks: one for each instance of an installation, an agent in a process of its own that has only
 * the instance's user data. A machine that powers off terminates its instance, like InstanceInitiatedShutdownBehavior.
 * When an instance is terminated, its machine is killed.
 */
export class Hypervisor {
  readonly #options: HypervisorOptions
  readonly #machines = new Map<string, Machine>()
  readonly #powered = new Set<string>()
  readonly #stop = new AbortController()
  readonly #loop: Promise<void>
  /** User data of every instance that was booted, by its id. */
  readonly userData = new Map<string, string>()
  readonly faults: unknown[] = []

  constructor(options: HypervisorOptions) {
    this.#options = options
    this.#loop = this.#run()
  }

  /** Ids of machines whose agent runs. */
  get running(): string[] {
    return [...this.#machines.values()]
      .filter(({ agent }) => agent.exitCode === null && agent.signalCode === null)
      .map(({ id }) => id)
  }

  /** Output of all machines. */
  get output(): string {
    return [...this.#machines.values()].map(({ id, output }) => `--- machine ${id}\n${output.slice(-4000)}`).join("\n")
  }

  async close(): Promise<void> {
    this.#stop.abort()
    await this.#loop
    await Promise.all([...this.#machines.values()].map((machine) => this.#cutPower(machine)))
  }

  /** Kills a machine's agent and its container, also one that is processes of this host. */
  async #cutPower({ agent, launch, disk }: Machine): Promise<void> {
    const { dockerSocket } = this.#options.runtime
    if (agent.exitCode === null && agent.signalCode === null && agent.pid !== undefined) {
      const gone = once(agent, "close")
      process.kill(-agent.pid, "SIGKILL")
      await gone
    }
    endRecordedGroup(disk)
    if (dockerSocket !== undefined) await removeContainers(dockerSocket, [launch])
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#look().catch((error: unknown) => this.faults.push(error))
      await delay(LOOK_MS, undefined, { signal: this.#stop.signal }).catch(() => undefined)
    }
  }

  async #look(): Promise<void> {
    const { console: ec2, installation } = this.#options
    for (const instance of await ec2.instances("installation", installation)) {
      const id = instance.InstanceId ?? ""
      const machine = this.#machines.get(id)
      if (isGone(instance)) {
        if (machine !== undefined && this.#powered.delete(id)) await this.#cutPower(machine)
      } else if (machine === undefined && instance.State?.Name === "running") await this.#boot(id)
    }
  }

  async #boot(id: string): Promise<void> {
    const { console: ec2 } = this.#options
    const userData = await ec2.userData(id)
    this.userData.set(id, userData)
    const { disk, program } = await (this.#options.prepare ?? ((machine) => this.#folder(machine)))(id)
    const config = agentConfig(userData)
    await writeFile(join(disk, "user-data.json"), config, { mode: 0o600 })
    const agent = spawn(process.execPath, program, {
      // A VM has no credentials or endpoints of this machine.
      env: { ...compileCache(), PATH: process.env["PATH"] },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    })
    const machine: Machine = { id, launch: parseUserData(config).launch, disk, agent, output: "" }
    this.#powered.add(id)
    for (const stream of [agent.stdout, agent.stderr]) {
      stream?.setEncoding("utf8").on("data", (piece: string) => {
        machine.output += piece
      })
    }
    this.#machines.set(id, machine)
    void once(agent, "close").then(() => this.#end(id).catch((error: unknown) => this.faults.push(error)))
  }

  async #folder(id: string): Promise<{ disk: string; program: readonly string[] }> {
    const { folder, runtime } = this.#options
    const disk = join(folder, id)
    await mkdir(disk, { recursive: true })
    return {
      disk,
      program: [...agentProgram(), "--data-dir", disk, "--runtime", runtime.name, "--log-level", "debug"],
    }
  }

  async #end(id: string): Promise<void> {
    const { console: ec2, installation } = this.#options
    await ec2.terminate(id).catch(async (error: unknown) => {
      // Moto fails on an instance that Berth terminates at the same moment.
      const found = await ec2.instances("installation", installation)
      if (!found.some((instance) => instance.InstanceId === id && isGone(instance))) throw error
    })
  }
}

/** Returns the agent's file from the user data: the one of cloud-init's write_files, or the user data itself. */
export function agentConfig(userData: string): string {
  if (!userData.startsWith("#cloud-config")) return userData
  const { write_files: files = [] } = load(userData) as { write_files?: { path: string; content: string }[] }
  const file = files.find(({ path }) => path.endsWith("/user-data.json"))
  if (file === undefined) throw new Error("the user data writes no user-data.json")
  return file.content
}
