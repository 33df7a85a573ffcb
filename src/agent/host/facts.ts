import { execFile } from "node:child_process"
import { statfs } from "node:fs/promises"
import { availableParallelism, totalmem } from "node:os"
import { promisify } from "node:util"
import Docker from "dockerode"
import { defined } from "../../core/apis/defined.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { MachineFacts } from "../../core/apis/machine.ts"
import type { Architecture } from "../../core/apis/offer.ts"
import { DEFAULT_DOCKER_SOCKET } from "../runtimes/docker.ts"
import { withTimeout } from "../runtimes/engine.ts"
import { GpuHelper } from "../runtimes/gpu-helper.ts"

const GIB = 1024 ** 3

/** Time for each question about the machine, seconds. */
const ANSWER_SECONDS = 30

/** Call of `nvidia-smi` that prints the name and the memory, MiB, of each card. */
export const NVIDIA_CARDS = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]

/** Architectures by the names that Linux and Node.js have for them. */
const ARCHITECTURE_NAMES: Readonly<Record<string, Architecture>> = {
  ...{ x86_64: "amd64", x64: "amd64" },
  ...{ aarch64: "arm64", arm64: "arm64" },
}

export interface FactsOptions {
  /** Name of the machine. */
  name: string
  runtime: "docker" | "process"
  dockerSocket?: string
  /** Image that runs `nvidia-smi`. Default: the image of the agent's own container. */
  gpuImage?: string
  dataDir: string
  logger: Logger
}

/**
 * Finds out what the host has for jobs. With an engine it is what the engine has: the agent's own container may be limited.
 * Rejects with an Error if the engine does not answer, or is for an architecture that Berth doesn't know.
 */
export async function readFacts(options: FactsOptions): Promise<MachineFacts> {
  const { dataDir, runtime, dockerSocket: socketPath = DEFAULT_DOCKER_SOCKET } = options
  if (runtime === "process") {
    const memoryGib = rounded(totalmem() / GIB)
    const diskGib = await freeGib([dataDir])
    return { cpu: availableParallelism(), memoryGib, diskGib, architecture: architectureOf(process.arch) }
  }
  const docker = new Docker({ socketPath })
  const { NCPU, MemTotal, Architecture, DockerRootDir } = (await withTimeout(
    ANSWER_SECONDS,
    docker.info(),
  )) as EngineInfo
  const gpu = gpuOf(await cards(docker, options))
  return {
    cpu: NCPU,
    memoryGib: rounded(MemTotal / GIB),
    // The agent's own container does not see the engine's folder. Its own folder is on the same disk as a rule.
    diskGib: await freeGib([DockerRootDir, dataDir]),
    architecture: architectureOf(Architecture),
    ...defined({ gpu }),
  }
}

/** Part of the engine's answer to `GET /info`. */
interface EngineInfo {
  NCPU: number
  MemTotal: number
  Architecture: string
  DockerRootDir: string
}

function architectureOf(name: string): Architecture {
  const architecture = ARCHITECTURE_NAMES[name]
  if (architecture === undefined) throw new Error(`this machine is for ${name}; Berth runs jobs on amd64 and arm64`)
  return architecture
}

/** Rounds down, so that no job is promised more than there is. */
function rounded(gib: number): number {
  return Math.floor(gib * 100) / 100
}

/** Returns the free space, GiB, of the first of these folders that is there. */
async function freeGib([folder = "/", ...others]: string[]): Promise<number> {
  try {
    const { bavail, bsize } = await statfs(folder)
    return rounded((bavail * bsize) / GIB)
  } catch (error) {
    if (others.length === 0) throw error
    return await freeGib(others)
  }
}

/** Returns what `nvidia-smi` prints about the cards; empty if there are none. */
async function cards(docker: Docker, { name, gpuImage: image, logger }: FactsOptions): Promise<string> {
  try {
    const labels = { "berth.dev/machine": name }
    const helper = new GpuHelper({ docker, launch: `machine-${name}`, labels, image, logger })
    const signal = AbortSignal.timeout(ANSWER_SECONDS * 1000)
    const printed = await helper.watch(signal, NVIDIA_CARDS)
    if (printed !== undefined) return await textOf(printed)
    const [program = "", ...args] = NVIDIA_CARDS
    return (await promisify(execFile)(program, args, { timeout: ANSWER_SECONDS * 1000 })).stdout
  } catch (error) {
    // No NVIDIA runtime, no driver or no such program: as on every machine without cards.
    logger.info({ err: error }, "found no NVIDIA cards")
    return ""
  }
}

async function textOf(pieces: AsyncIterable<string>): Promise<string> {
  let all = ""
  for await (const piece of pieces) all += piece
  return all
}

/** Returns the cards in an output of `NVIDIA_CARDS`; undefined for none, and for several models. Pure. */
export function gpuOf(printed: string): MachineFacts["gpu"] {
  const found = printed.split(/\r?\n/).flatMap((line) => {
    const [, model, mebibytes] = /^(.+), *(\d+)$/.exec(line.trim()) ?? []
    return model === undefined ? [] : [{ model: model.slice(0, LIMITS.gpuModel), mebibytes: Number(mebibytes) }]
  })
  const [first] = found
  if (first === undefined || found.some(({ model }) => model !== first.model)) return undefined
  const least = Math.min(...found.map(({ mebibytes }) => mebibytes))
  // A driver shows somewhat less than the size by which a card is known.
  return { model: first.model, count: Math.min(found.length, LIMITS.gpuCount), vramGib: Math.ceil(least / 1024) }
}
