import type Docker from "dockerode"
import type { Logger } from "../../core/apis/logger.ts"
import { GROUP } from "../../core/apis/meta.ts"
import { readIfThere } from "../disk.ts"
import { NVIDIA_SMI } from "../usage/nvidia-smi.ts"
import { errorStatus, ifFound, MIB, withTimeout } from "./engine.ts"

/** Label of the helper, beside those of all containers of a Launch. */
export const GPUS_LABEL = `${GROUP}/gpus`

/** Timeout of the helper's start, seconds. Without persistence mode NVIDIA's driver needs some for each card. */
const START_SECONDS = 60
const REMOVE_SECONDS = 10

/** User of Berth's image. Devices of GPUs are open to everyone. */
const NON_ROOT = "65532:65532"

const ALL_GPUS = -1

export interface GpuHelperOptions {
  docker: Docker
  launch: string
  /** Labels of the helper, as of all containers of this Launch. */
  labels: Record<string, string>
  /** Image in which it runs. Default: the image of the agent's own container. */
  image: string | undefined
  logger: Logger
}

/**
 * Container that watches the VM's GPUs, because the agent's own container has none. It is of the agent's image, which the VM
 * already has: NVIDIA's runtime puts `nvidia-smi` in it.
 */
export class GpuHelper {
  readonly #options: GpuHelperOptions

  constructor(options: GpuHelperOptions) {
    this.#options = options
  }

  /**
   * Starts the helper as `Runtime.watchGpus` says. An earlier helper of this agent is removed.
   * @param command call of `nvidia-smi`
   */
  async watch(signal: AbortSignal, command = NVIDIA_SMI): Promise<AsyncIterable<string> | undefined> {
    const { docker } = this.#options
    const image = this.#options.image ?? (await ownImage(docker))
    if (image === undefined) return undefined
    await this.remove()
    const container = await withTimeout(START_SECONDS, docker.createContainer(this.#spec(image, command)))
    try {
      // Attached before the start, so that no line is cut.
      const attached = container.attach({ stream: true, stdout: true, stderr: true, abortSignal: signal })
      const stream = await withTimeout(START_SECONDS, attached)
      await withTimeout(START_SECONDS, container.start())
      signal.throwIfAborted()
      return this.#output(stream, signal)
    } catch (error) {
      await this.#removeQuietly()
      throw error
    }
  }

  async *#output(stream: NodeJS.ReadableStream, signal: AbortSignal): AsyncGenerator<string, void, void> {
    try {
      stream.setEncoding("utf8")
      for await (const piece of stream) yield piece as string
    } catch (error) {
      // An aborted stream ends with an error.
      if (!signal.aborted) throw error
    } finally {
      await this.#removeQuietly()
    }
  }

  /** Removes the helpers of this agent. */
  async remove(): Promise<void> {
    const { docker, labels } = this.#options
    const label = [...Object.entries(labels).map(([name, value]) => `${name}=${value}`), GPUS_LABEL]
    for (const { Id } of await withTimeout(REMOVE_SECONDS, docker.listContainers({ all: true, filters: { label } }))) {
      try {
        await withTimeout(REMOVE_SECONDS, ifFound(docker.getContainer(Id).remove({ force: true, v: true })))
      } catch (error) {
        // 409: it is being removed already.
        if (errorStatus(error) !== 409) throw error
      }
    }
  }

  async #removeQuietly(): Promise<void> {
    const { logger } = this.#options
    await this.remove().catch((error: unknown) => logger.warn({ err: error }, "failed to remove the helper for GPUs"))
  }

  #spec(image: string, command: readonly string[]): Docker.ContainerCreateOptions {
    const { launch, labels } = this.#options
    return {
      name: `berth-${launch}-gpus`,
      Image: image,
      Entrypoint: [...command],
      Cmd: [],
      User: NON_ROOT,
      Labels: { ...labels, [GPUS_LABEL]: "" },
      // To a terminal, a program writes each line at once.
      Tty: true,
      HostConfig: {
        // `utility` is `nvidia-smi` and its library, without CUDA.
        DeviceRequests: [{ Driver: "", Count: ALL_GPUS, Capabilities: [["gpu", "utility"]] }],
        NetworkMode: "none",
        CapDrop: ["ALL"],
        SecurityOpt: ["no-new-privileges"],
        PidsLimit: 64,
        Memory: 256 * MIB,
        MemorySwap: 256 * MIB,
        // A line a second would fill the disk of a long run.
        LogConfig: { Type: "none", Config: {} },
      },
    }
  }
}

/** Returns the id of the container with these mounts (man 5 proc_pid_mountinfo); undefined if it is none of Docker's. */
export function containerIn(mountinfo: string): string | undefined {
  // The engine mounts its own files for a container's names and addresses, also in the host's network.
  return /\/containers\/([0-9a-f]{64})\/(?:resolv\.conf|hostname|hosts) /.exec(mountinfo)?.[1]
}

/** Returns the id of this process' own container; undefined if it runs in none of Docker's. */
export function ownContainer(): string | undefined {
  return containerIn(readIfThere("/proc/self/mountinfo") ?? "")
}

/** Returns the image of this process' own container; undefined if it runs in none of this engine. */
async function ownImage(docker: Docker): Promise<string | undefined> {
  const id = ownContainer()
  return id === undefined ? undefined : (await ifFound(docker.getContainer(id).inspect()))?.Image
}
