import { type CloudMachines, EIGHT_GPU_BOOT } from "../machines/family.ts"

const IMAGE = "https://cloud.google.com/deep-learning-vm/docs/images"
const COS = "https://cloud.google.com/container-optimized-os/docs/concepts/versions"
const GENERAL = "https://cloud.google.com/compute/docs/general-purpose-machines"
const COMPUTE = "https://cloud.google.com/compute/docs/compute-optimized-machines"
const MEMORY = "https://cloud.google.com/compute/docs/memory-optimized-machines"
const STORAGE = "https://cloud.google.com/compute/docs/storage-optimized-machines"
const GPUS = "https://cloud.google.com/compute/docs/accelerator-optimized-machines"
const N1_GPUS = "https://cloud.google.com/compute/docs/gpus#n1-gpus"
const SHARED_CORES = "https://cloud.google.com/compute/docs/general-purpose-machines#sharedcore"
const BALANCED = "https://cloud.google.com/compute/docs/disks/hd-types/hyperdisk-balanced"
const NVIDIA_MODULES = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html"
/** Under a minute for 96 vCPUs, in a row of 5,000 VMs. */
const BOOT = "https://robaboukhalil.medium.com/move-fast-and-break-the-cloud-b55b899e3683"
/** Up to ten minutes for nodes with GPUs, with the pull of their image. */
const GPU_BOOT = "https://github.com/apple/axlearn/pull/362"

const amd64 = { architecture: "amd64", image: "amd64", security: "secureBoot" } as const
const arm64 = { architecture: "arm64", image: "arm64" } as const
const PERSISTENT = { diskType: "pd-balanced" } as const
const HYPERDISK = { diskType: "hyperdisk-balanced" } as const
/** NVIDIA's modules are not signed for Secure Boot, and GPUs are not migrated. */
const gpu = { architecture: "amd64", image: "gpu", security: "unsigned", pinned: true } as const
const open = (...models: string[]) => ({ models, module: "open" }) as const

/** Machines of Compute Engine, as of November 2026. */
export const GCP = {
  images: {
    amd64: { name: "projects/cos-cloud/global/images/family/cos-stable", leastDiskGib: 10, source: COS },
    arm64: { name: "projects/cos-cloud/global/images/family/cos-arm64-stable", leastDiskGib: 10, source: COS },
    // Container-Optimized OS has no runtime for Docker's device requests. This image has driver and toolkit; the user
    // data installs Docker.
    gpu: {
      name: "projects/deeplearning-platform-release/global/images/family/common-cu129-ubuntu-2204-nvidia-580",
      leastDiskGib: 50,
      driver: "in the image: branch 580, open kernel module",
      source: IMAGE,
    },
  },
  families: [
    {
      name: "N1 with T4",
      types: /^n1-.*_\d+xnvidia-tesla-t4$/,
      ...gpu,
      ...PERSISTENT,
      gpu: open("T4"),
      source: N1_GPUS,
    },
    { name: "A2", types: /^a2-/, ...gpu, ...PERSISTENT, gpu: open("A100", "A100-80GB"), source: GPUS },
    { name: "A3 Ultra", types: /^a3-ultragpu-/, ...gpu, ...HYPERDISK, gpu: open("H200"), source: GPUS },
    { name: "A3", types: /^a3-/, ...gpu, ...PERSISTENT, gpu: open("H100", "H100-MEGA"), source: GPUS },
    { name: "A4", types: /^a4-/, ...gpu, ...HYPERDISK, gpu: open("B200"), source: GPUS },
    { name: "G2", types: /^g2-/, ...gpu, ...PERSISTENT, gpu: open("L4"), source: GPUS },
    { name: "G4", types: /^g4-/, ...gpu, ...HYPERDISK, gpu: open("RTX-PRO-6000"), source: GPUS },
    { name: "T2A", types: /^t2a-/, ...arm64, ...PERSISTENT, source: GENERAL },
    { name: "C4A, N4A", types: /^(c4a|n4a)-/, ...arm64, ...HYPERDISK, source: GENERAL },
    { name: "H4D", types: /^h4d-/, ...amd64, ...HYPERDISK, pinned: true, source: COMPUTE },
    { name: "H3", types: /^h3-/, ...amd64, ...PERSISTENT, pinned: true, source: COMPUTE },
    { name: "Z3", types: /^z3-/, ...amd64, ...PERSISTENT, pinned: true, source: STORAGE },
    { name: "N4, N4D, C4, C4D, C4N", types: /^(n4d?|c4[dn]?)-/, ...amd64, ...HYPERDISK, source: GENERAL },
    { name: "M4", types: /^m4n?-/, ...amd64, ...HYPERDISK, source: MEMORY },
    {
      name: "C2, C2D, C3, C3D, E2, N1, N2, N2D, T2D, shared cores",
      types: /^(c2d?|c3d?|e2|f1|g1|n1|n2d?|t2d)-[^_]+$/,
      ...amd64,
      ...PERSISTENT,
      source: GENERAL,
    },
    { name: "M1, M2, M3", types: /^m[123]-/, ...amd64, ...PERSISTENT, source: MEMORY },
  ],
  exclusions: [
    {
      types: /^a3-highgpu-[124]g$/,
      provisioning: "onDemand",
      reason: "sold as Spot or Flex-start only (Compute Engine's page on GPU machine types)",
      source: GPUS,
    },
    {
      types: /_\d+xnvidia-tesla-(p4|p100|v100|k80)$/,
      reason:
        "the GPU image has the open kernel module, which G4 and A4 require; P4, P100 and V100 need the proprietary one",
      source: NVIDIA_MODULES,
    },
    {
      types: /^g4-standard-(6|12|24)$/,
      gpu: { models: ["RTX-PRO-6000"], fractions: true },
      reason: "a fraction of a GPU needs NVIDIA's vGPU driver, and the GPU image has the driver for whole cards",
      source: "https://cloud.google.com/kubernetes-engine/docs/how-to/gpus",
    },
    {
      types: /-metal$/,
      reason:
        "bare metal: takes images with its own guest features only, which Container-Optimized OS is not known to have",
      source: "https://cloud.google.com/compute/docs/instances/bare-metal-instances",
    },
    {
      types: /^a4x-/,
      reason: "Arm with a GPU: the GPU image is published for x86 only",
      source: IMAGE,
    },
  ],
  bootDeadlines: {
    cpu: { seconds: 300, source: BOOT },
    gpu: { seconds: 600, source: GPU_BOOT },
    eightGpus: EIGHT_GPU_BOOT,
  },
  // Bursts above this are free, and end when Compute Engine says so.
  burstable: [
    { types: /^f1-micro$/, cpu: 0.2, source: SHARED_CORES },
    { types: /^e2-micro$/, cpu: 0.25, source: SHARED_CORES },
    { types: /^(e2|g1)-small$/, cpu: 0.5, source: SHARED_CORES },
    { types: /^e2-medium$/, cpu: 1, source: SHARED_CORES },
  ],
  // The price of the capacity includes both. Without these numbers, Compute Engine provisions more for larger disks.
  diskPerformance: { "hyperdisk-balanced": { iops: 3000, mibps: 140, source: BALANCED } },
  // Persistent disks have the throughput of their size: 200 GiB of a balanced one have 196 MiB/s.
  fastDisk: { types: /^g4-standard-(192|384)$|^a3-ultragpu-|^a4-/, mibps: 500 },
  // A registry's layers, their unpacked files and the job's own must fit beside a machine image of 50 GiB.
  diskGib: { cpu: 50, gpu: 200 },
  seriesOf,
  quotaOf,
} as const satisfies CloudMachines

/** Kinds of images. */
export type GcpImage = keyof typeof GCP.images

/** CPUS counts E2, N1 and shared cores; each other series has a quota of its own (https://cloud.google.com/compute/resource-usage#cpu_quota). */
function quotaOf(instanceType: string): string {
  const series = seriesOf(instanceType)
  return /^(e2|n1|f1|g1)$/.test(series) ? "CPUS" : series
}

/** n2 of n2-standard-4, nvidia-tesla-t4 of n1-standard-4_1xnvidia-tesla-t4: the card has the quota. */
function seriesOf(instanceType: string): string {
  return /_\d+x(.+)$/.exec(instanceType)?.[1] ?? /^([a-z0-9]+)-/.exec(instanceType)?.[1] ?? instanceType
}
