import type Docker from "dockerode"
import { MIB } from "./engine.ts"

/** Maximum number of processes and threads of a container. It stops a fork bomb before it stops the host. */
const PIDS_LIMIT = { vm: 32_768, sharedHost: 4096 }

const NONE = -1
const KIB = 1024

/**
 * Limits of each process of a container, soft and hard (man 2 getrlimit). All that Docker can set are here. The ones
 * left out would be those of the engine's own service, which differ between the systems of the clouds.
 */
const ULIMITS: Record<string, readonly [soft: number, hard: number]> = {
  // A crash writes no core file unless the program raises this, because it would fill the VM's disk.
  core: [0, NONE],
  cpu: [NONE, NONE],
  data: [NONE, NONE],
  fsize: [NONE, NONE],
  locks: [NONE, NONE],
  // Pinned memory of CUDA, NCCL and RDMA. It counts in the container's memory like all other.
  memlock: [NONE, NONE],
  // The kernel's default.
  msgqueue: [800 * KIB, 800 * KIB],
  nice: [0, 0],
  nofile: [1_048_576, 1_048_576],
  // The number of processes has its own limit.
  nproc: [NONE, NONE],
  rss: [NONE, NONE],
  rtprio: [0, 0],
  rttime: [NONE, NONE],
  sigpending: [131_072, 131_072],
  // https://docs.nvidia.com/deeplearning/frameworks/user-guide/index.html
  stack: [64 * MIB, NONE],
}

/** Returns the limits of a container that may use this memory, bytes. A shared host also runs other jobs. */
export function containerLimits(memory: number, isShared: boolean): Docker.HostConfig {
  return {
    Memory: memory,
    // The same as the memory: no swap.
    MemorySwap: memory,
    // Files in /dev/shm are in the container's memory, so this size takes nothing from the machine.
    ShmSize: isShared ? Math.floor(memory / 2) : memory,
    PidsLimit: isShared ? PIDS_LIMIT.sharedHost : PIDS_LIMIT.vm,
  }
}

/** Returns the limits of a container's processes. */
export function ulimits(): Docker.HostConfig {
  return { Ulimits: Object.entries(ULIMITS).map(([Name, [Soft, Hard]]) => ({ Name, Soft, Hard })) }
}

/**
 * Returns a container's rights. On a VM of its own, programs like sudo work. On a shared host no process gets more
 * rights than the first one has.
 */
export function containerRights(isShared: boolean): Docker.HostConfig {
  // NET_RAW lets a container send forged router advertisements to its host (CVE-2020-13401).
  return { CapDrop: ["NET_RAW"], ...(isShared && { SecurityOpt: ["no-new-privileges"] }) }
}

const DRIVER_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"

/**
 * Returns the request for GPUs. The engine passes the parts of NVIDIA's driver in it to NVIDIA's runtime, and overwrites
 * the container's own choice. So they are requested only if the environment names none: with all but the display's
 * part NVENC and Vulkan work in any image
 * (https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html#driver-capabilities).
 * @param env variables of the image and of the job, as `NAME=value`
 */
export function gpuRequest(count: number, env: readonly string[]): Docker.HostConfig {
  if (count === 0) return {}
  const isChosen = env.some((line) => line.startsWith(`${DRIVER_CAPABILITIES}=`))
  const parts = isChosen ? [] : ["compute", "utility", "video", "graphics"]
  return { DeviceRequests: [{ Driver: "", Count: count, Capabilities: [["gpu", ...parts]] }] }
}
