/**
 * Prices of a VM whose vCPUs are all busy, by the request that creates it. They are written from the clouds' public pages, and
 * this file imports nothing of Berth. The price of the machine itself is given.
 *
 * - credits: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/burstable-performance-instances-unlimited-mode-concepts.html,
 *   https://aws.amazon.com/ec2/pricing/on-demand/#T2.2FT3.2FT4g_Unlimited_Mode_Pricing
 * - ceilings: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instances-maximum-price.html,
 *   https://learn.microsoft.com/azure/virtual-machines/spot-vms#pricing, https://cloud.google.com/compute/docs/instances/spot
 * - disks: https://aws.amazon.com/ebs/pricing/, https://cloud.google.com/compute/disks-image-pricing,
 *   https://azure.microsoft.com/pricing/details/managed-disks/
 * - addresses: https://aws.amazon.com/vpc/pricing/, https://cloud.google.com/vpc/network-pricing#ipaddress,
 *   https://azure.microsoft.com/pricing/details/ip-addresses/
 */

/** USD per hour. */
export interface PublicPrices {
  machine: number
  /** CPU above what the price of the machine includes. */
  credits: number
  disk: number
  address: number
  /** False if no public page that is known here has the disk's price in the region: it is then the highest one. */
  isDiskKnown: boolean
}

/** Machine as it is sold. */
export interface SoldAs {
  region: string
  /** Present price of the machine, USD per hour. */
  hourly: number
  /** On-demand price of the same machine there, USD per hour. */
  onDemand: number | undefined
}

const HOURS_A_MONTH = 730

/** Part of each vCPU that a T instance may use for its price, and its vCPUs, by size. */
const T2: Readonly<Record<string, readonly [vcpus: number, baseline: number]>> = {
  nano: [1, 0.05],
  micro: [1, 0.1],
  small: [1, 0.2],
  medium: [2, 0.2],
  large: [2, 0.3],
  xlarge: [4, 0.225],
  "2xlarge": [8, 0.17],
}
const T3_T4G: typeof T2 = {
  nano: [2, 0.05],
  micro: [2, 0.1],
  small: [2, 0.2],
  medium: [2, 0.2],
  large: [2, 0.3],
  xlarge: [4, 0.4],
  "2xlarge": [8, 0.4],
}

/** USD for each vCPU-hour above the baseline, and the mode of a request that names none. */
const CREDITS: Readonly<Record<string, { sizes: typeof T2; vcpuHour: number; mode: "standard" | "unlimited" }>> = {
  t2: { sizes: T2, vcpuHour: 0.05, mode: "standard" },
  t3: { sizes: T3_T4G, vcpuHour: 0.05, mode: "unlimited" },
  t3a: { sizes: T3_T4G, vcpuHour: 0.05, mode: "unlimited" },
  t4g: { sizes: T3_T4G, vcpuHour: 0.04, mode: "unlimited" },
}

/** gp3 and gp2, USD for a GiB and month. */
const EBS: Readonly<Record<string, readonly [gp3: number, gp2: number]>> = {
  "af-south-1": [0.1047, 0.1309],
  "ap-east-1": [0.1056, 0.132],
  "ap-northeast-1": [0.096, 0.12],
  "ap-northeast-2": [0.0912, 0.114],
  "ap-northeast-3": [0.096, 0.12],
  "ap-south-1": [0.0912, 0.114],
  "ap-southeast-1": [0.096, 0.12],
  "ap-southeast-2": [0.096, 0.12],
  "ca-central-1": [0.088, 0.11],
  "eu-central-1": [0.0952, 0.119],
  "eu-north-1": [0.0836, 0.1045],
  "eu-south-1": [0.0924, 0.1155],
  "eu-west-1": [0.088, 0.11],
  "eu-west-2": [0.0928, 0.116],
  "eu-west-3": [0.0928, 0.116],
  "me-south-1": [0.0968, 0.121],
  "sa-east-1": [0.152, 0.19],
  "us-east-1": [0.08, 0.1],
  "us-east-2": [0.08, 0.1],
  "us-west-1": [0.096, 0.12],
  "us-west-2": [0.08, 0.1],
}

/** gp3 includes these. More costs a part of a GiB's price: $0.005 and $0.04 where a GiB is $0.08. */
const GP3 = { iops: 3000, mibps: 125, iopsOfGib: 1 / 16, mibpsOfGib: 1 / 2 }

/** Balanced and SSD persistent disks, USD for a GiB and month. */
const PERSISTENT: Readonly<Record<string, readonly [balanced: number, ssd: number]>> = {
  "africa-south1": [0.109788, 0.1866395],
  "asia-east1": [0.1, 0.17],
  "asia-east2": [0.11, 0.187],
  "asia-northeast1": [0.13, 0.221],
  "asia-northeast2": [0.13, 0.221],
  "asia-northeast3": [0.13, 0.221],
  "asia-south1": [0.12, 0.204],
  "asia-south2": [0.12, 0.204],
  "asia-southeast1": [0.11, 0.187],
  "asia-southeast2": [0.13, 0.221],
  "asia-southeast3": [0.105, 0.1785],
  "australia-southeast1": [0.135, 0.23],
  "australia-southeast2": [0.135, 0.23],
  "europe-central2": [0.13, 0.204],
  "europe-north1": [0.11, 0.187],
  "europe-north2": [0.1, 0.17],
  "europe-southwest1": [0.12, 0.2006],
  "europe-west1": [0.1, 0.17],
  "europe-west10": [0.154, 0.2618],
  "europe-west12": [0.12, 0.204],
  "europe-west2": [0.12, 0.204],
  "europe-west3": [0.12, 0.204],
  "europe-west4": [0.11, 0.187],
  "europe-west6": [0.13, 0.221],
  "europe-west8": [0.116, 0.1972],
  "europe-west9": [0.116, 0.1972],
  "me-central1": [0.1215, 0.20655],
  "me-central2": [0.16, 0.272],
  "me-west1": [0.11, 0.187],
  "northamerica-northeast1": [0.11, 0.187],
  "northamerica-northeast2": [0.11, 0.187],
  "northamerica-south1": [0.109, 0.1853],
  "southamerica-east1": [0.15, 0.255],
  "southamerica-west1": [0.143, 0.2431],
  "us-central1": [0.1, 0.17],
  "us-east1": [0.1, 0.17],
  "us-east4": [0.11, 0.187],
  "us-east5": [0.1, 0.17],
  "us-south1": [0.12, 0.2006],
  "us-west1": [0.1, 0.17],
  "us-west2": [0.12, 0.204],
  "us-west3": [0.12, 0.204],
  "us-west4": [0.11, 0.187],
}

/** Hyperdisk Balanced in us-central1, USD a month: for a GiB, and above what is included. It never costs more than a balanced disk. */
const HYPERDISK = { gib: 0.08, iops: 3000, mibps: 140, iopsUsd: 0.005, mibpsUsd: 0.04 }

/** Disks of East US, USD a month by size, GiB. */
const MANAGED: Readonly<Record<string, readonly (readonly [gib: number, usd: number])[]>> = {
  StandardSSD_LRS: [
    [32, 2.4],
    [64, 4.8],
    [128, 9.6],
    [256, 19.2],
    [512, 38.4],
    [1024, 76.8],
    [2048, 153.6],
    [4096, 307.2],
  ],
  Standard_LRS: [
    [32, 1.54],
    [64, 3.01],
    [128, 5.89],
    [256, 11.33],
    [512, 21.76],
    [1024, 40.96],
    [2048, 77.83],
    [4096, 143.36],
  ],
  Premium_LRS: [
    [32, 5.28],
    [64, 10.21],
    [128, 19.71],
    [256, 38.02],
    [512, 73.22],
    [1024, 135.17],
    [2048, 259.2],
    [4096, 495.43],
  ],
}

/** Brazil South, the dearest region of which the price of a disk (E10) was seen, against East US. */
const DEAREST_AZURE = 17.92 / 9.6

/** A request of EC2's RunInstances. */
export interface Ec2Request {
  InstanceType?: string | undefined
  CreditSpecification?: { CpuCredits?: string | undefined } | undefined
  InstanceMarketOptions?: { SpotOptions?: { MaxPrice?: string | undefined } | undefined } | undefined
  NetworkInterfaces?: { AssociatePublicIpAddress?: boolean | undefined }[] | undefined
  BlockDeviceMappings?:
    | { Ebs?: { VolumeType?: string; VolumeSize?: number; Iops?: number; Throughput?: number } | undefined }[]
    | undefined
}

export function priceOfEc2(request: Ec2Request, { region, hourly, onDemand }: SoldAs): PublicPrices {
  const market = request.InstanceMarketOptions
  const ceiling = Number(market?.SpotOptions?.MaxPrice ?? Number.POSITIVE_INFINITY)
  const { VolumeType = "", VolumeSize = 0, Iops, Throughput } = request.BlockDeviceMappings?.[0]?.Ebs ?? {}
  const own = EBS[region]
  const [gp3, gp2] = own ?? dearest(EBS)
  const gib = VolumeType === "gp3" ? gp3 : VolumeType === "gp2" ? gp2 : Number.NaN
  const extra =
    VolumeType === "gp3" ? above(Iops, GP3.iops) * GP3.iopsOfGib + above(Throughput, GP3.mibps) * GP3.mibpsOfGib : 0
  return {
    machine: market === undefined ? hourly : highestSpot(hourly, ceiling, onDemand),
    credits: surplusCredits(request),
    disk: (gib * (VolumeSize + extra)) / HOURS_A_MONTH,
    address: request.NetworkInterfaces?.[0]?.AssociatePublicIpAddress === false ? 0 : 0.005,
    isDiskKnown: own !== undefined,
  }
}

/** Returns the price of what a T instance uses above its baseline, all vCPUs busy, USD per hour. */
function surplusCredits({ InstanceType = "", CreditSpecification }: Ec2Request): number {
  const [family = "", size = ""] = InstanceType.split(".")
  const credits = CREDITS[family]
  if (credits === undefined || (CreditSpecification?.CpuCredits ?? credits.mode) === "standard") return 0
  const [vcpus, baseline] = credits.sizes[size] ?? [Number.NaN, 0]
  return vcpus * (1 - baseline) * credits.vcpuHour
}

/** A VM in the words of Compute Engine. */
export interface GceRequest {
  scheduling?: { provisioningModel?: string | null } | null
  networkInterfaces?: { accessConfigs?: unknown[] | null }[] | null
  disks?:
    | {
        initializeParams?: {
          diskType?: string | null
          diskSizeGb?: unknown
          provisionedIops?: unknown
          provisionedThroughput?: unknown
        } | null
      }[]
    | null
}

export function priceOfGce(request: GceRequest, { region, hourly, onDemand }: SoldAs): PublicPrices {
  const isSpot = request.scheduling?.provisioningModel === "SPOT"
  const isPublic = (request.networkInterfaces?.[0]?.accessConfigs ?? []).length > 0
  const { diskType, diskSizeGb, ...performance } = request.disks?.[0]?.initializeParams ?? {}
  const type = diskType?.split("/").at(-1)
  const own = PERSISTENT[region]
  const [balanced, ssd] = own ?? dearest(PERSISTENT)
  const isIowa = region === "us-central1"
  const gibs = Number(diskSizeGb)
  const monthly = new Map([
    ["pd-balanced", () => gibs * balanced],
    ["pd-ssd", () => gibs * ssd],
    ["hyperdisk-balanced", () => hyperdiskUsd(gibs, performance, isIowa ? HYPERDISK.gib : balanced)],
  ])
  return {
    // At most 91 % below on-demand, where that price is not known.
    machine: isSpot ? Math.max(hourly, onDemand ?? hourly / 0.09) : hourly,
    credits: 0,
    disk: (monthly.get(type ?? "")?.() ?? Number.NaN) / HOURS_A_MONTH,
    address: isPublic ? (isSpot ? 0.0025 : 0.005) : 0,
    isDiskKnown: own !== undefined && (type !== "hyperdisk-balanced" || isIowa),
  }
}

/** @throws Error if the request leaves operations or throughput to a default, which depends on the size and is billed */
function hyperdiskUsd(
  gibs: number,
  { provisionedIops, provisionedThroughput }: { provisionedIops?: unknown; provisionedThroughput?: unknown },
  gibUsd: number,
): number {
  if (provisionedIops === undefined || provisionedThroughput === undefined)
    throw new Error("a Hyperdisk of no set speed")
  // Where prices of a region are not known, they rise with that of the capacity.
  const level = gibUsd / HYPERDISK.gib
  const iops = above(Number(provisionedIops), HYPERDISK.iops) * HYPERDISK.iopsUsd
  const mibps = above(Number(provisionedThroughput), HYPERDISK.mibps) * HYPERDISK.mibpsUsd
  return gibs * gibUsd + (iops + mibps) * level
}

/** A VM in Nebius' words (nebius/compute/v1/instance.proto). */
export interface NebiusRequest {
  spec: {
    preemptible?: object
    recoveryPolicy?: string
    networkInterfaces: { publicIpAddress?: object }[]
    bootDisk: { managedDisk: { spec: { type: string; sizeGibibytes: string } } }
  }
}

/** Returns Nebius' prices: a disk for 730 hours, by https://docs.nebius.com/compute/resources/pricing. */
export function priceOfNebius({ spec }: NebiusRequest, { hourly, onDemand }: SoldAs): PublicPrices {
  const { type, sizeGibibytes } = spec.bootDisk.managedDisk.spec
  // Preemptible VMs are never dearer. Without FAIL a VM that powers itself off starts again, so its bill has no end
  // (https://docs.nebius.com/compute/virtual-machines/stop-start).
  const machine = spec.preemptible === undefined ? hourly : Math.max(hourly, onDemand ?? hourly / 0.2)
  return {
    machine: spec.recoveryPolicy === "FAIL" ? machine : Number.POSITIVE_INFINITY,
    credits: 0,
    disk: type === "NETWORK_SSD" ? (Number(sizeGibibytes) * 0.071) / 730 : Number.NaN,
    address: spec.networkInterfaces[0]?.publicIpAddress === undefined ? 0 : 0.005,
    isDiskKnown: true,
  }
}

/** A VM in the words of Azure's resource manager. */
export interface ArmRequest {
  priority?: string
  billingProfile?: { maxPrice?: number }
  storageProfile?: { osDisk?: { diskSizeGB?: number; managedDisk?: { storageAccountType?: string } } }
  networkProfile?: {
    networkInterfaceConfigurations?: { ipConfigurations?: { publicIPAddressConfiguration?: object }[] }[]
  }
}

export function priceOfArm(request: ArmRequest, { region, hourly, onDemand }: SoldAs): PublicPrices {
  const { maxPrice = -1 } = request.billingProfile ?? {}
  const { diskSizeGB = 0, managedDisk } = request.storageProfile?.osDisk ?? {}
  const [, usd = Number.NaN] = MANAGED[managedDisk?.storageAccountType ?? ""]?.find(([gib]) => gib >= diskSizeGB) ?? []
  const isDiskKnown = region === "eastus"
  const [nic] = request.networkProfile?.networkInterfaceConfigurations ?? []
  const isPublic = nic?.ipConfigurations?.[0]?.publicIPAddressConfiguration !== undefined
  const ceiling = maxPrice === -1 ? Number.POSITIVE_INFINITY : maxPrice
  return {
    machine: request.priority === "Spot" ? highestSpot(hourly, ceiling, onDemand) : hourly,
    credits: 0,
    disk: (usd * (isDiskKnown ? 1 : DEAREST_AZURE)) / HOURS_A_MONTH,
    address: isPublic ? 0.005 : 0,
    isDiskKnown,
  }
}

/** Returns the highest price of a spot machine: it is never above on-demand, nor above the request's own ceiling. */
function highestSpot(hourly: number, ceiling: number, onDemand = Number.POSITIVE_INFINITY): number {
  return Math.max(hourly, Math.min(ceiling, onDemand))
}

function above(value = 0, included: number): number {
  return Math.max(0, value - included)
}

function dearest(prices: Readonly<Record<string, readonly [number, number]>>): readonly [number, number] {
  const all = Object.values(prices)
  return [Math.max(...all.map(([first]) => first)), Math.max(...all.map(([, second]) => second))]
}

/** Part of each vCPU that an Azure B size sustains, by https://learn.microsoft.com/azure/virtual-machines/sizes/general-purpose. */
const B_V1: Readonly<Record<string, readonly [vcpus: number, base: number]>> = {
  B1ls: [1, 0.05],
  B1s: [1, 0.1],
  B1ms: [1, 0.2],
  B2s: [2, 0.2],
  B2ms: [2, 0.3],
  B4ms: [4, 0.225],
  B8ms: [8, 0.17],
  B12ms: [12, 0.17],
  B16ms: [16, 0.17],
  B20ms: [20, 0.17],
}
const B_V2 = { t: 0.2, l: 0.3, "": 0.4 }

/** https://cloud.google.com/compute/docs/general-purpose-machines#sharedcore */
const SHARED_CORE: Readonly<Record<string, number>> = {
  "f1-micro": 0.2,
  "e2-micro": 0.25,
  "g1-small": 0.5,
  "e2-small": 0.5,
  "e2-medium": 1,
}

/** Returns the vCPUs that a machine with shared cores sustains without credits; undefined for any other machine. */
export function sustainedVcpus(instanceType: string): number | undefined {
  const [family = "", size = ""] = instanceType.split(".")
  const [vcpus, baseline] = CREDITS[family]?.sizes[size] ?? []
  if (vcpus !== undefined && baseline !== undefined) return vcpus * baseline
  const [, name = ""] = /^Standard_(B.+)$/.exec(instanceType) ?? []
  const [, count, kind] = /^B(\d+)[ap]?([tl]?)s_v2$/.exec(name) ?? []
  if (count !== undefined) return Number(count) * B_V2[kind as keyof typeof B_V2]
  const [cores, base] = B_V1[name] ?? []
  return cores !== undefined && base !== undefined ? cores * base : SHARED_CORE[instanceType]
}
