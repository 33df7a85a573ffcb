import { type Burstable, type CloudMachines, cpuOfCredits, EIGHT_GPU_BOOT } from "../machines/family.ts"

const SIZES = "https://learn.microsoft.com/azure/virtual-machines/sizes/overview"
const NVME = "https://learn.microsoft.com/azure/virtual-machines/nvme-overview#vm-sizes"
const GENERATION_2 = "https://learn.microsoft.com/azure/virtual-machines/generation-2"
const HPC = "https://github.com/Azure/azhpc-images/blob/master/README.md"
const RETIRED = "https://learn.microsoft.com/azure/virtual-machines/sizes/retirement/retired-sizes-list"
const CONFIDENTIAL = "https://learn.microsoft.com/azure/confidential-computing/virtual-machine-options"
const UBUNTU = "https://documentation.ubuntu.com/azure/azure-how-to/instances/find-ubuntu-images/"
/** 68 seconds to allocate and start; then the user data installs an engine, for up to two minutes. */
const BOOT = "https://github.com/Azure/az-hop/issues/1217"
/** 324 seconds until a machine with a GPU runs. */
const GPU_BOOT = "https://github.com/Azure/AgentBaker/pull/8797"

const GENERAL = "https://learn.microsoft.com/azure/virtual-machines/sizes/general-purpose"

/** Standard SSDs work with every size; only sizes with an `s` take premium ones. */
const cpu = { diskType: "StandardSSD_LRS", source: SIZES } as const
const amd64 = { ...cpu, architecture: "amd64", image: "amd64" } as const
/**
 * The modules of NVIDIA's driver in the image are not signed for Secure Boot, which is the default since API version
 * 2025-11-01 where size and image support it (https://learn.microsoft.com/azure/virtual-machines/trusted-launch).
 */
const gpu = { ...cpu, architecture: "amd64", image: "gpu", security: "unsigned", source: HPC } as const
const open = (...models: string[]) => ({ models, module: "open" }) as const

/** Returns sizes of a series by name, with the credits that each banks in an hour. A VM starts with 30 for each vCPU. */
function burstable(series: string, creditsPerHour: Readonly<Record<string, number>>): Burstable[] {
  return Object.entries(creditsPerHour).map(([size, credits]) => ({
    types: new RegExp(`^Standard_${size}$`),
    cpu: cpuOfCredits(credits),
    source: `${GENERAL}/${series}-series`,
  }))
}

/** Machines of Azure, as of November 2026. */
export const AZURE = {
  images: {
    amd64: { name: "Canonical:ubuntu-24_04-lts:server:latest", leastDiskGib: 30, source: UBUNTU },
    amd64Generation1: { name: "Canonical:ubuntu-24_04-lts:server-gen1:latest", leastDiskGib: 30, source: UBUNTU },
    arm64: { name: "Canonical:ubuntu-24_04-lts:server-arm64:latest", leastDiskGib: 30, source: UBUNTU },
    // Canonical's images have no GPU driver. Microsoft's HPC image has it, with Docker and NVIDIA's toolkit.
    gpu: {
      name: "microsoft-dsvm:ubuntu-hpc:2204:latest",
      leastDiskGib: 64,
      driver: "in the image: open kernel module",
      source: HPC,
    },
    gpuV100: {
      name: "microsoft-dsvm:ubuntu-hpc:2204-v100:latest",
      leastDiskGib: 64,
      driver: "in the image: proprietary kernel module",
      source: HPC,
    },
  },
  families: [
    { name: "NCas_T4_v3", types: /^Standard_NC\d+as_T4_v3$/, ...gpu, gpu: open("T4") },
    { name: "NCads_A100_v4", types: /^Standard_NC\d+ads_A100_v4$/, ...gpu, gpu: open("A100-80GB") },
    { name: "NCads_H100_v5", types: /^Standard_NC\d+adi?s_H100_v5$/, ...gpu, gpu: open("H100") },
    {
      name: "NDrs_v2",
      types: /^Standard_ND40rs_v2$/,
      ...gpu,
      image: "gpuV100",
      gpu: { models: ["V100-32GB"], module: "proprietary" },
    },
    { name: "ND A100 v4", types: /^Standard_ND96(asr|amsr_A100)_v4$/, ...gpu, gpu: open("A100", "A100-80GB") },
    { name: "NDisr_H100_v5", types: /^Standard_ND96isr?_H100_v5$/, ...gpu, gpu: open("H100") },
    { name: "NDisr_H200_v5", types: /^Standard_ND96isr?_H200_v5$/, ...gpu, gpu: open("H200") },
    {
      // A `p` among the letters after the number means Arm.
      name: "Arm: B, D and E with p",
      types: /^Standard_[BDE]\d+p[a-z]*_v\d$/,
      ...cpu,
      architecture: "arm64",
      image: "arm64",
    },
    {
      name: "NVMe only: D, E and F of v6 and v7",
      types: /^Standard_[DEF]\d+(-\d+)?[a-z]*_v[67]$/,
      ...amd64,
      diskController: "NVMe",
      source: NVME,
    },
    {
      name: "first generation only",
      types:
        /^(Basic_|Standard_A\d|Standard_D\d+(_v[23])?$|Standard_DC\d+s$|Standard_E\d+i?_v3$|Standard_F\d+$|Standard_G\d+$|Standard_H\d+m?r?$|Standard_NV\d+$)/,
      ...amd64,
      image: "amd64Generation1",
      source: GENERATION_2,
    },
    { name: "SGX: DC", types: /^Standard_DC\d+(d?s)?_v[23]$/, ...amd64, source: CONFIDENTIAL },
    // Their accelerators need drivers that the image lacks. Jobs can ask for NVIDIA's only.
    {
      name: "FPGAs: NP",
      types: /^Standard_NP\d+s$/,
      ...amd64,
      image: "amd64Generation1",
      source: "https://learn.microsoft.com/azure/virtual-machines/sizes/fpga-accelerated/np-series",
    },
    {
      name: "GPUs of AMD: NG, NV and ND",
      types: /^Standard_(NG\d+adm?s_V620_v1|NV\d+adm?s_V710_v5|ND\d+isr?_MI300X_v5)$/,
      ...amd64,
    },
    {
      name: "other x86",
      types: /^Standard_(B|D|DS|E|F|FX|GS|HB|HC|HX|L|M)\d+(-\d+)?[a-z]*(_\d+)?(_v\d)?$/,
      ...amd64,
    },
  ],
  exclusions: [
    {
      types: /^Standard_NC(6|12|24)r?s_v3$/,
      reason: "retired on 30 September 2025 (Azure's list of retired sizes)",
      source: RETIRED,
    },
    {
      types: /^Standard_NV(12|24|48)s_v3$|^Standard_NV(4|8|16|32)as_v4$/,
      reason: "retired on 30 September 2026 (Azure's list of retired sizes)",
      source: RETIRED,
    },
    {
      types: /^Standard_(DC|EC)\d+i?a?e?d?s(_cc)?_v[56]$/,
      reason: "confidential: takes confidential images and disks only",
      source: CONFIDENTIAL,
    },
    {
      types: /^Standard_NCC\d+ads_H100_v5$/,
      reason: "confidential: takes confidential images only, and none of them has a GPU driver",
      source: "https://learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated/nccadsh100v5-series",
    },
    {
      types: /^Standard_NV\d+adm?s_A10_v5$|^Standard_NC\d+ads_A10_v4$/,
      gpu: { models: ["A10"], fractions: true },
      reason: "needs NVIDIA's GRID driver, and the HPC image, which GPU machines boot, has the CUDA driver",
      source: "https://github.com/Azure/azhpc-images/issues/398",
    },
    {
      types: /^Standard_ND\d+isr_.*GB[23]00_v6$/,
      reason: "Arm with a GPU: the HPC image, which GPU machines boot, is published for x86 only",
      source: HPC,
    },
    {
      types: /^Standard_PB\d+s$/,
      reason: "a size of a former preview: Azure's list of sizes has no PB family",
      source: SIZES,
    },
  ],
  bootDeadlines: {
    cpu: { seconds: 480, source: BOOT },
    gpu: { seconds: 720, source: GPU_BOOT },
    eightGpus: EIGHT_GPU_BOOT,
  },
  // A size without credits runs at its baseline, and nothing is charged for more.
  burstable: [
    ...burstable("bv1", { B1ls: 3, B1s: 6, B1ms: 12, B2s: 24, B2ms: 36, B4ms: 54, B8ms: 81 }),
    ...burstable("bv1", { B12ms: 121, B16ms: 162, B20ms: 202 }),
    // A `p` is Arm (bpsv2) and an `a` AMD (basv2), with the same credits.
    ...burstable("bsv2", { "B2[ap]?ts_v2": 24, "B2[ap]?ls_v2": 36, "B2[ap]?s_v2": 48 }),
    ...burstable("bsv2", { "B4[ap]?ls_v2": 72, "B4[ap]?s_v2": 96, "B8[ap]?ls_v2": 144, "B8[ap]?s_v2": 192 }),
    ...burstable("bsv2", { "B16[ap]?ls_v2": 288, "B16[ap]?s_v2": 384, "B32[ap]?ls_v2": 576, "B32[ap]?s_v2": 768 }),
  ],
  // Premium and standard SSDs have the performance of their size. No other type can be an OS disk.
  diskPerformance: {},
  fastDisk: {
    types: /^Standard_(NC96ads_A100_v4|NC80adis_H100_v5|ND40rs_v2|ND96(asr|amsr_A100)_v4|ND96isr?_H[12]00_v5)$/,
    type: "Premium_LRS",
  },
  // The HPC image fills 57 of its 64 GiB: https://github.com/Azure/azhpc-images, `os_disk_size_gb`.
  diskGib: { cpu: 64, gpu: 200 },
  seriesOf,
  quotaOf: seriesOf,
} as const satisfies CloudMachines

/** Kinds of images. */
export type AzureImage = keyof typeof AZURE.images

/** Azure counts vCPUs by series: `Das_v5` of `Standard_D16-8as_v5` (https://learn.microsoft.com/azure/virtual-machines/quotas). */
function seriesOf(instanceType: string): string {
  const family = /^(?:Standard|Basic)_(.+)$/.exec(instanceType)?.[1]
  return family?.replace(/\d+(-\d+)?/, "") ?? instanceType
}
