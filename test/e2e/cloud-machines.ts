import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdir, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { compileCache } from "../../dev/compile-cache.ts"
import type { BootedVm } from "../cloud/booted-vm.ts"
import { agentProgram } from "../harness/agent-program.ts"
import type { ContainerRuntime } from "../harness/container-runtime.ts"
import { removeContainers } from "../harness/traces.ts"
import { agentConfig } from "./ec2-hypervisor.ts"

/**
 * Machines that the clouds' stand-ins lack. Each VM that starts is an agent in a process of its own, which has only the
 * VM's user data. When the agent ends, the machine powers off. When the cloud deletes the VM, the process is killed.
 */
export class CloudMachines {
  readonly #agents: { launch: string; agent: ChildProcess }[] = []
  readonly #folder: string
  readonly #runtime: ContainerRuntime
  readonly faults: unknown[] = []
  /** Output of all machines. */
  output = ""

  constructor(folder: string, runtime: ContainerRuntime) {
    this.#folder = folder
    this.#runtime = runtime
  }

  /** Boots a machine for a VM. */
  readonly boot = (vm: BootedVm): (() => void) => {
    const power = new AbortController()
    this.#boot(vm, power.signal).catch((error: unknown) => this.faults.push(error))
    return () => power.abort()
  }

  async #boot({ name, launch, userData, powerOff }: BootedVm, cut: AbortSignal): Promise<void> {
    const disk = join(this.#folder, name)
    await mkdir(disk, { recursive: true })
    await writeFile(join(disk, "user-data.json"), agentConfig(userData), { mode: 0o600 })
    if (cut.aborted) return
    const agent = spawn(process.execPath, [...agentProgram(), "--data-dir", disk, "--runtime", this.#runtime.name], {
      // A VM has no credentials or endpoints of this machine.
      env: { ...compileCache(), PATH: process.env["PATH"] },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    })
    for (const stream of [agent.stdout, agent.stderr]) {
      stream.setEncoding("utf8").on("data", (piece: string) => {
        this.output += piece
      })
    }
    this.#agents.push({ launch, agent })
    cut.addEventListener("abort", () => kill(agent))
    await once(agent, "close")
    const { dockerSocket } = this.#runtime
    if (cut.aborted && dockerSocket !== undefined) await removeContainers(dockerSocket, [launch])
    powerOff()
  }

  /** Kills all machines. */
  async close(): Promise<void> {
    for (const { agent } of this.#agents) {
      if (agent.exitCode !== null || agent.signalCode !== null) continue
      const gone = once(agent, "close")
      kill(agent)
      await gone
    }
    const { dockerSocket } = this.#runtime
    const launches = this.#agents.map(({ launch }) => launch)
    if (dockerSocket !== undefined) await removeContainers(dockerSocket, launches)
  }
}

/** Kills a process and all that it has started. */
function kill({ pid, exitCode, signalCode }: ChildProcess): void {
  if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, "SIGKILL")
}
