import { type Burstable, type CloudMachines, cpuOfCredits, EIGHT_GPU_BOOT } from "../machines/family.ts"

const ECS = "/aws/service/ecs/optimized-ami/amazon-linux-2023"
const ECS_IMAGES = "https://docs.aws.amazon.com/AmazonECS/latest/developerguide/retrieve-ecs-optimized_AMI.html"
const TYPES = "https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-types.html"
const PREVIOUS = "https://aws.amazon.com/ec2/previous-generation/"
/** 39 seconds from the request of a c5.xlarge to a node that has registered. After five minutes none comes any more. */
const BOOT = "https://github.com/awslabs/amazon-eks-ami/issues/1099"
/** Up to ten minutes for nodes with GPUs, with the pull of their image. */
const GPU_BOOT = "https://github.com/apple/axlearn/pull/362"
/** At boot the image loads the open, the proprietary or the GRID module, by the PCI id of the card. */
const KMOD = "https://github.com/aws/amazon-ecs-ami/blob/main/scripts/al2023/gpu/nvidia-kmod-load.sh"

const CREDITS = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/burstable-credits-baseline-concepts.html"
const EBS = "https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"

const x86 = { architecture: "amd64", image: "gpu", diskType: "gp3", source: KMOD } as const
const open = (...models: string[]) => ({ models, module: "open" }) as const

/** Returns the machine types of a family by size, with the CPU credits that each earns in an hour. */
function burstable(family: string, creditsPerHour: Readonly<Record<string, number>>): Burstable[] {
  return Object.entries(creditsPerHour).map(([size, credits]) => ({
    types: new RegExp(`^${family}\\.${size}$`),
    cpu: cpuOfCredits(credits),
    source: CREDITS,
  }))
}

/** Machines of EC2, as of November 2026. */
export const AWS = {
  images: {
    amd64: { name: `${ECS}/recommended`, leastDiskGib: 30, source: ECS_IMAGES },
    arm64: { name: `${ECS}/arm64/recommended`, leastDiskGib: 30, source: ECS_IMAGES },
    gpu: {
      name: `${ECS}/gpu/recommended`,
      leastDiskGib: 30,
      driver: "in the image: branch 580, all three kernel modules",
      source: "https://github.com/aws/amazon-ecs-ami/releases/tag/20261113",
    },
  },
  families: [
    { name: "G4dn", types: /^g4dn\./, ...x86, gpu: open("T4") },
    { name: "G5", types: /^g5\./, ...x86, gpu: open("A10G") },
    { name: "G6, Gr6", types: /^gr?6\./, ...x86, gpu: open("L4") },
    {
      name: "G6f, Gr6f",
      types: /^gr?6f\./,
      ...x86,
      gpu: { models: ["L4"], module: "grid", fraction: true },
    },
    { name: "G6e", types: /^g6e\./, ...x86, gpu: open("L40S") },
    { name: "G7", types: /^g7\./, ...x86, gpu: open("RTX-PRO-4500") },
    { name: "G7e", types: /^g7e\./, ...x86, gpu: open("RTX-PRO-6000") },
    {
      name: "P3dn",
      types: /^p3dn\./,
      ...x86,
      gpu: { models: ["V100-32GB"], module: "proprietary" },
    },
    { name: "P4d, P4de", types: /^p4de?\./, ...x86, gpu: open("A100", "A100-80GB") },
    { name: "P5", types: /^p5\./, ...x86, gpu: open("H100") },
    { name: "P5e, P5en", types: /^p5en?\./, ...x86, gpu: open("H200") },
    { name: "P6-B200", types: /^p6-b200\./, ...x86, gpu: open("B200") },
    { name: "P6-B300", types: /^p6-b300\./, ...x86, gpu: open("B300") },
    {
      name: "Graviton",
      // A `g` after the generation means Graviton: c7g, m8gd, r8gb, im4gn, is4gen, x2gd, hpc7g.
      types: /^(c|m|r|t|i|im|is|x|hpc)\d+g[a-z]*\./,
      architecture: "arm64",
      image: "arm64",
      diskType: "gp3",
      source: TYPES,
    },
    {
      name: "x86",
      types: /^(c|m|r|t|i|d|h|x|z|hpc)\d+[a-z]*(-flex)?\.|^u-\d+tb1\.|^u7i[a-z]*-\d+tb\./,
      architecture: "amd64",
      image: "amd64",
      diskType: "gp3",
      source: TYPES,
    },
    {
      // Their accelerators need drivers that the image lacks. Jobs can ask for NVIDIA's only.
      name: "accelerators of other makers",
      types: /^(dl2q|f2|inf[12]|trn1n?|trn2|vt1)\./,
      architecture: "amd64",
      image: "amd64",
      diskType: "gp3",
      source: TYPES,
    },
  ],
  exclusions: [
    {
      types: /^(cc2|cr1|dl1|f1|g2|g3|g3s|g4ad|hs1|p2|p3|u-(9|12|18|24)tb1)\./,
      reason: "withdrawn: EC2 no longer describes the type (its own API, October 2026)",
      source: PREVIOUS,
    },
    {
      types: /^(c1|m1|m2|t1)\./,
      reason: "boots paravirtual machine images only, and today's images are HVM (Amazon EC2 user guide)",
      source: "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/virtualization_types.html",
    },
    {
      types: /^a1\./,
      reason: "Amazon Linux 2023, which machines boot, needs a Graviton2 or later (its user guide)",
      source: "https://docs.aws.amazon.com/linux/al2023/ug/system-requirements.html",
    },
    {
      types: /^g5g\./,
      reason: "Arm with a GPU: the ECS-optimized GPU image, which such machines boot, is published for x86 only",
      source: ECS_IMAGES,
    },
    {
      types: /\.metal/,
      reason:
        "bare metal: the firmware checks the whole server first, so it may take over 20 minutes until the system boots",
      source: "https://github.com/canonical/pycloudlib/pull/192",
    },
    {
      types: /^t(3a?|4g)\.nano$/,
      reason: "a tenth of a vCPU, and no launch credits in standard mode: too little to boot in time",
      source: CREDITS,
    },
  ],
  bootDeadlines: {
    cpu: { seconds: 300, source: BOOT },
    gpu: { seconds: 600, source: GPU_BOOT },
    eightGpus: EIGHT_GPU_BOOT,
  },
  // The request asks for standard mode: a machine without credits runs at its baseline, and nothing is charged for more.
  // The flex types (c7i-flex and others) have all their vCPUs in 95 % of the time and are never charged more.
  burstable: [
    ...burstable("t2", { nano: 3, micro: 6, small: 12, medium: 24, large: 36, xlarge: 54, "2xlarge": 81.6 }),
    ...burstable("t(3a?|4g)", { nano: 6, micro: 12, small: 24, medium: 24, large: 36, xlarge: 96, "2xlarge": 192 }),
  ],
  diskPerformance: { gp3: { iops: 3000, mibps: 125, source: EBS } },
  fastDisk: {
    types:
      /^(p3dn|p4de?)\.24xlarge$|^(p5(en?)?|p6-b[23]00|g5|g6e?|g7e?)\.48xlarge$|^(g6e|g7e?)\.24xlarge$|^g6e\.12xlarge$/,
    // Each of the 3,000 operations allows a quarter of a MiB/s, which is 750 in all.
    mibps: 500,
  },
  diskGib: { cpu: 50, gpu: 100 },
  seriesOf,
  quotaOf,
} as const satisfies CloudMachines

/** Kinds of images. */
export type AwsImage = keyof typeof AWS.images

/**
 * Names of the quotas that several families share, in vCPUs
 * (https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html). On demand and spot have one each.
 */
const QUOTAS: readonly [family: RegExp, quota: string][] = [
  [/^(g|gr|vt)\d/, "G and VT"],
  [/^p\d/, "P"],
  [/^(u-|u7)/, "High Memory"],
  [/^hpc/, "HPC"],
  [/^inf/, "Inf"],
  [/^trn/, "Trn"],
  [/^dl/, "DL"],
  [/^f\d/, "F"],
  [/^x\d/, "X"],
  [/^[acdhimrtz]/, "Standard (A, C, D, H, I, M, R, T, Z)"],
]

function quotaOf(instanceType: string): string {
  return QUOTAS.find(([family]) => family.test(instanceType))?.[1] ?? seriesOf(instanceType)
}

/** m7g of m7g.large (https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html) */
function seriesOf(instanceType: string): string {
  return /^([^.]+)\./.exec(instanceType)?.[1] ?? instanceType
}
