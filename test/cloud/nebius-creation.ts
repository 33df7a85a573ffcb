import { badRequest, type FieldViolation, notFound, type Refusal } from "./nebius-description.ts"

/** Request to create a VM, in the JSON form of its message, with the fields that the stand-in reads. */
export interface CreateRequest {
  metadata?: { parentId?: string; name?: string; labels?: Record<string, string> }
  spec?: InstanceSpec
}

export interface InstanceSpec {
  serviceAccountId?: string
  resources: { platform: string; preset: string }
  recoveryPolicy?: "FAIL" | "ALWAYS"
  reservationPolicy?: { policy?: string; reservationIds?: string[] }
  preemptible?: { onPreemption: string }
  bootDisk: { attachMode: string; managedDisk?: { name: string; spec: DiskSpec } }
  networkInterfaces: NetworkInterface[]
  cloudInitUserData?: string
}

interface DiskSpec {
  type: string
  sourceImageId?: string
  sourceImageFamily?: { imageFamily: string; parentId?: string }
  [size: `size${string}`]: string
}

interface NetworkInterface {
  name: string
  subnetId: string
  publicIpAddress?: object
  securityGroups?: { id: string }[]
}

export interface NebiusSubnet {
  id: string
  name: string
  networkId: string
}

/** A project, which belongs to one region. */
export interface NebiusProject {
  id: string
  region: string
  /** Absent: one subnet of the project's default network. */
  subnets?: NebiusSubnet[]
  /** Platforms that the region sells. Absent: all of `PRESETS`. */
  platforms?: string[]
}

export interface NebiusImage {
  id: string
  family: string
  region: string
  minDiskGib: number
}

/** Facts of the tenant that a creation is checked against. */
export interface Tenant {
  projects: readonly NebiusProject[]
  images: readonly NebiusImage[]
  /** Networks of the security groups, by id. */
  groupNetworks: ReadonlyMap<string, string>
}

/** Presets of platforms, as the public catalog of SkyPilot lists them (https://github.com/skypilot-org/skypilot-catalog). */
export const PRESETS: Readonly<Record<string, readonly string[]>> = {
  "cpu-d3": [4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256].map((cpus) => `${cpus}vcpu-${4 * cpus}gb`),
  "cpu-e2": [2, 4, 8, 16, 32, 48, 64, 80].map((cpus) => `${cpus}vcpu-${4 * cpus}gb`),
  "gpu-h100-sxm": ["1gpu-16vcpu-200gb", "8gpu-128vcpu-1600gb"],
  "gpu-h200-sxm": ["1gpu-16vcpu-200gb", "8gpu-128vcpu-1600gb"],
  "gpu-b200-sxm": ["8gpu-160vcpu-1792gb"],
  "gpu-l40s-a": [8, 16, 24, 32, 40].map((cpus) => `1gpu-${cpus}vcpu-${4 * cpus}gb`),
  "gpu-l40s-d": [
    ...[16, 32, 48].map((cpus) => `1gpu-${cpus}vcpu-${6 * cpus}gb`),
    ...[64, 96].map((cpus) => `2gpu-${cpus}vcpu-${6 * cpus}gb`),
    ...[128, 192].map((cpus) => `4gpu-${cpus}vcpu-${6 * cpus}gb`),
  ],
}

/** Disks consist of parts of 93 GiB (https://docs.nebius.com/compute/storage/types). */
const IN_PARTS = ["NETWORK_SSD_NON_REPLICATED", "NETWORK_SSD_IO_M3"]
const PART_GIB = 93

/** Bytes of user data. The description counts characters; the stand-in takes the smaller limit. */
const MAX_USER_DATA_BYTES = 32_768

/**
 * Nebius publishes no rules for labels. The stand-in has those of Google Cloud
 * (https://cloud.google.com/compute/docs/labeling-resources), the strictest among clouds of this kind.
 */
const LABEL_KEY = /^[a-z][_a-z0-9-]{0,62}$/
const LABEL_VALUE = /^[_a-z0-9-]{0,63}$/
const MAX_LABELS = 64

export const instanceTypeOf = ({ resources }: Pick<InstanceSpec, "resources">): string =>
  `${resources.platform}_${resources.preset}`

/** Returns the size of a disk, GiB. */
export function sizeGibOf(disk: DiskSpec): number {
  const units: Record<string, number> = { sizeBytes: 2 ** -30, sizeKibibytes: 2 ** -20, sizeMebibytes: 2 ** -10 }
  const [field = "", size = "0"] = Object.entries(disk).find(([name]) => name.startsWith("size")) ?? []
  return Number(size) * (units[field] ?? 1)
}

/** Returns what is wrong with a creation and no annotation says. Berth must never send such a request. */
export function creationViolations({ metadata, spec }: CreateRequest): FieldViolation[] {
  if (spec === undefined) return [{ field: "spec", message: "value is required" }]
  const found: FieldViolation[] = []
  const check = (isRight: boolean, field: string, message: string): void => {
    if (!isRight) found.push({ field, message })
  }
  const { platform, preset } = spec.resources
  check(PRESETS[platform]?.includes(preset) === true, "spec.resources.preset", `${platform} has no preset ${preset}`)
  // "It's an error to provide reservation_ids with policy = FORBID" (instance.proto).
  const { policy, reservationIds = [] } = spec.reservationPolicy ?? {}
  check(policy !== "FORBID" || reservationIds.length === 0, "spec.reservation_policy", "FORBID takes no ids")
  // "Available only for instances in nvlinstancegroup" (instance.proto).
  check(spec.recoveryPolicy !== "ALWAYS", "spec.recovery_policy", "ALWAYS needs an NVLink instance group")
  // https://docs.nebius.com/compute/virtual-machines/preemptible#supported-platforms
  check(!spec.preemptible || platform.startsWith("gpu-"), "spec.preemptible", `${platform} has no preemptible VMs`)
  const userDataBytes = Buffer.byteLength(spec.cloudInitUserData ?? "")
  check(userDataBytes <= MAX_USER_DATA_BYTES, "spec.cloud_init_user_data", `${userDataBytes} bytes`)
  const { attachMode, managedDisk } = spec.bootDisk
  check(attachMode === "READ_WRITE", "spec.boot_disk.attach_mode", "a boot disk is written")
  if (managedDisk !== undefined && IN_PARTS.includes(managedDisk.spec.type)) {
    const sizeGib = sizeGibOf(managedDisk.spec)
    check(sizeGib % PART_GIB === 0, "spec.boot_disk.managed_disk.spec.size_gibibytes", `is no multiple of ${PART_GIB}`)
  }
  const labels = Object.entries(metadata?.labels ?? {})
  check(labels.length <= MAX_LABELS, "metadata.labels", `has ${labels.length} labels`)
  for (const [key, value] of labels)
    check(LABEL_KEY.test(key) && LABEL_VALUE.test(value), "metadata.labels", `${key}: ${value} is no valid label`)
  return found
}

const unfit = (field: string, message: string): Refusal => badRequest([{ field, message }])

/**
 * Returns the refusal of a creation whose subnet, image or group does not exist where it is needed. A user's
 * settings can lead to it, so it is no violation.
 */
export function creationRefusal({ spec }: CreateRequest, project: NebiusProject, tenant: Tenant): Refusal | undefined {
  if (spec === undefined) return undefined
  for (const each of spec.networkInterfaces) {
    const refused = interfaceRefusal(each, project, tenant)
    if (refused !== undefined) return refused
  }
  const disk = spec.bootDisk.managedDisk?.spec
  if (disk === undefined) return undefined
  const { sourceImageId, sourceImageFamily } = disk
  const image = tenant.images.find(({ id }) => id === sourceImageId)
  if (image === undefined || image.region !== project.region)
    return notFound(sourceImageId ?? sourceImageFamily?.imageFamily ?? "")
  if (sizeGibOf(disk) >= image.minDiskGib) return undefined
  return unfit("spec.boot_disk.managed_disk.spec.size", `the image needs ${image.minDiskGib} GiB`)
}

function interfaceRefusal(
  { subnetId, securityGroups = [] }: NetworkInterface,
  project: NebiusProject,
  { projects, groupNetworks }: Tenant,
): Refusal | undefined {
  const owner = projects.find((each) => subnetsOf(each).some(({ id }) => id === subnetId))
  const subnet = owner && subnetsOf(owner).find(({ id }) => id === subnetId)
  if (owner === undefined || subnet === undefined) return notFound(subnetId)
  if (owner.region !== project.region)
    return unfit("spec.network_interfaces.subnet_id", `the subnet is in ${owner.region}, the VM in ${project.region}`)
  for (const { id } of securityGroups) {
    if (!groupNetworks.has(id)) return notFound(id)
    if (groupNetworks.get(id) !== subnet.networkId)
      return unfit("spec.network_interfaces.security_groups", `${id} is not of the network ${subnet.networkId}`)
  }
  return undefined
}

/** Returns the part of ids that names a region, such as `e00` in `project-e00aaa`. */
export const regionCodeOf = (id: string): string => /^[a-z]+-([a-z]\d\d)/.exec(id)?.[1] ?? ""

export function subnetsOf({ id, subnets }: NebiusProject): NebiusSubnet[] {
  const rest = id.replace(/^project-/, "")
  return subnets ?? [{ id: `vpcsubnet-${rest}`, name: `default-subnet-${rest}`, networkId: `vpcnetwork-${rest}` }]
}
