import { nvidiaGpusOf } from "../../core/apis/offer.ts"
import { type CloudMachines, EIGHT_GPU_BOOT, type Family, type SoldMachine } from "../machines/family.ts"

const TYPES = "https://docs.nebius.com/compute/virtual-machines/types"
const IMAGES = "https://docs.nebius.com/compute/storage/boot-disk-images"
/** A few minutes until a container runs on a new VM. */
const BOOT = "https://docs.nebius.com/serverless/jobs/manage"

const amd64 = { architecture: "amd64", diskType: "NETWORK_SSD", source: TYPES } as const

function withGpu(model: string, types: RegExp): Family & { image: "gpu" } {
  return { name: model, types, ...amd64, image: "gpu", gpu: { models: [model], module: "open" } }
}

/** Machines of Nebius AI Cloud, as of November 2026: a platform and a preset. */
export const NEBIUS = {
  images: {
    cpu: { name: "ubuntu24.04-driverless", leastDiskGib: 10, source: IMAGES },
    gpu: {
      name: "ubuntu24.04-cuda13.0",
      leastDiskGib: 50,
      driver: "in the image, with NVIDIA's container toolkit",
      source: IMAGES,
    },
  },
  families: [
    { name: "CPU", types: /^cpu-(d3|e2)_/, ...amd64, image: "cpu" },
    withGpu("H100", /^gpu-h100-sxm_/),
    withGpu("H200", /^gpu-h200-sxm_/),
    withGpu("B200", /^gpu-b200-sxm(-a)?_/),
    withGpu("L40S", /^gpu-l40s-[ad]_/),
  ],
  exclusions: [],
  bootDeadlines: {
    cpu: { seconds: 600, source: BOOT },
    gpu: { seconds: 900, source: BOOT },
    eightGpus: EIGHT_GPU_BOOT,
  },
  burstable: [],
  diskPerformance: {},
  fastDisk: { types: /^$/ },
  diskGib: { cpu: 50, gpu: 200 },
  seriesOf: platformOf,
  // https://docs.nebius.com/compute/resources/quotas-limits
  quotaOf: (instanceType) => (instanceType.startsWith("cpu-") ? "non-GPU vCPUs" : platformOf(instanceType)),
} as const satisfies CloudMachines

/** Returns the image that a machine boots, as a key of the table. */
export function imageKey(machine: Pick<SoldMachine, "gpu">): keyof typeof NEBIUS.images {
  return nvidiaGpusOf(machine) === undefined ? "cpu" : "gpu"
}

function platformOf(instanceType: string): string {
  return instanceType.split("_", 1)[0] ?? instanceType
}
