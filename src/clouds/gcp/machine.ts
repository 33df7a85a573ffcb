import { createHash } from "node:crypto"
import type { protos } from "@google-cloud/compute"
import { defined } from "../../core/apis/defined.ts"
import { orderedDisk } from "../../core/apis/disk.ts"
import { nvidiaGpusOf, type Offer } from "../../core/apis/offer.ts"
import { InvalidRequestError } from "../../core/outbound/errors.ts"
import type { LaunchSpec } from "../cloud.ts"
import { derivedIndex, derivedUuid } from "../derived.ts"
import type { Family } from "../machines/family.ts"
import { findFamily } from "../machines/family.ts"
import { specDigest } from "../spec-digest.ts"
import { bootDisk } from "./boot-disk.ts"
import { GCP, type GcpImage } from "./machines.ts"

export type Instance = protos.google.cloud.compute.v1.IInstance
type Scheduling = protos.google.cloud.compute.v1.IScheduling

/** Placement of an installation's VMs; each setting has a default. */
export interface GcpSettings {
  /** VPC network, by name. Default: `default`. */
  network?: string
  /** Subnetwork of the region, by name. Required if the network creates none by itself. */
  subnetwork?: string
  /** Image families, as `projects/PROJECT/global/images/family/FAMILY`. */
  images?: Partial<Record<GcpImage, string>>
}

/** Label of the installation that a VM belongs to; lists are filtered by it. */
export const INSTALLATION_LABEL = "berth-installation"
/** Label with the name of a VM's Launch. */
export const LAUNCH_LABEL = "berth-launch"
/** Label with the digest of the spec: it reveals another spec under the same name. */
export const SPEC_LABEL = "berth-spec"
/** Network tag of every VM: the firewall rule that rejects inbound traffic selects it. */
export const NETWORK_TAG = "berth"

const NAME_PREFIX_LENGTH = 8
const LABEL = /^[a-z0-9_-]{0,63}$/

/** Returns the prefix of all VM names of an installation. Operations on deleted VMs show only names. */
export function namePrefix(installation: string): string {
  return `berth-${sha256(installation).slice(0, NAME_PREFIX_LENGTH)}-`
}

/**
 * Returns the name of a Launch's VM. @throws InvalidRequestError if Compute Engine does not allow it as a name and a
 * label
 */
export function vmName(spec: Pick<LaunchSpec, "name" | "installation">): string {
  if (!/^[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?$/.test(spec.name)) {
    const allowed = "up to 48 of a-z, 0-9 and -, with a letter or digit at both ends"
    throw new InvalidRequestError("MalformedName", `name "${spec.name}" of a launch: allowed are ${allowed}`)
  }
  if (!LABEL.test(spec.installation)) {
    const message = `installation "${spec.installation}": as a label it may be up to 63 of a-z, 0-9, - and _`
    throw new InvalidRequestError("MalformedInstallation", message)
  }
  return namePrefix(spec.installation) + spec.name
}

/** Returns the id of a request. Compute Engine treats requests of the same id in a zone as repetitions. */
export function requestId(spec: LaunchSpec, zone: string): string {
  return derivedUuid(["insert", spec.installation, spec.name, zone])
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex")
}

/** A machine type, and its attached GPUs if it is sold without them. */
interface MachineType {
  machineType: string
  accelerator?: { type: string; count: number }
}

/**
 * Parses an instance type. The catalogue appends attached GPUs to the machine type: `n1-standard-4_1xnvidia-tesla-t4`.
 */
export function parseMachineType(instanceType: string): MachineType {
  const attached = /^(?<machineType>[a-z0-9-]+)_(?<count>\d+)x(?<type>[a-z0-9-]+)$/.exec(instanceType)?.groups
  if (attached !== undefined) {
    const { machineType = "", count, type = "" } = attached
    return { machineType, accelerator: { type, count: Number(count) } }
  }
  if (/^[a-z][a-z0-9-]*$/.test(instanceType)) return { machineType: instanceType }
  const message = `instance type "${instanceType}" is not one of Google Cloud's; an example is n2-standard-4`
  throw new InvalidRequestError("MalformedInstanceType", message)
}

/**
 * Returns the needs of a machine type that the table lacks, such as one of an installation's own offers.
 * @throws InvalidRequestError if there is no image for it
 */
function unknownFamily(offer: Offer): MachineFamily {
  const { architecture, instanceType } = offer
  const base = { name: "", types: /^/, architecture, diskType: "pd-balanced", source: "" }
  if (nvidiaGpusOf(offer) === undefined) {
    return { ...base, image: architecture, ...(architecture === "amd64" && { security: "secureBoot" }) }
  }
  if (architecture === "amd64") return { ...base, image: "gpu", security: "unsigned", pinned: true }
  throw new InvalidRequestError(
    "NoImage",
    `Berth knows no image for GPUs on ${architecture}, which ${instanceType} has`,
  )
}

type MachineFamily = Omit<Family, "image"> & { image: GcpImage }

/**
 * Returns the request that creates a Launch's VM in a zone. Pure. @throws InvalidRequestError if the spec allows no
 * request
 */
export function buildInstance(spec: LaunchSpec, zone: string, settings: GcpSettings): Instance {
  const { offer } = spec
  const { machineType, accelerator } = parseMachineType(offer.instanceType)
  const { network, subnetwork } = buildNetwork(spec, settings)
  const family: MachineFamily = findFamily(GCP, offer) ?? unknownFamily(offer)
  const disk = orderedDisk(bootDisk(offer), spec.disk)
  return {
    name: vmName(spec),
    machineType: `zones/${zone}/machineTypes/${machineType}`,
    ...(accelerator !== undefined && {
      guestAccelerators: [
        { acceleratorType: `zones/${zone}/acceleratorTypes/${accelerator.type}`, acceleratorCount: accelerator.count },
      ],
    }),
    labels: labelsOf(spec),
    tags: { items: [NETWORK_TAG] },
    disks: [
      {
        boot: true,
        autoDelete: true,
        initializeParams: {
          sourceImage: imageOf(spec, family, settings),
          diskType: `zones/${zone}/diskTypes/${disk.type}`,
          diskSizeGb: String(disk.sizeGib),
          ...(disk.performance !== undefined && {
            provisionedIops: String(disk.performance.iops),
            provisionedThroughput: String(disk.performance.mibps),
          }),
        },
      },
    ],
    networkInterfaces: [
      {
        network: `global/networks/${network}`,
        ...(subnetwork !== undefined && { subnetwork: `regions/${offer.region}/subnetworks/${subnetwork}` }),
        // For outbound connections; no inbound ones are allowed.
        ...(spec.network?.publicAddress !== false && {
          accessConfigs: [{ name: "External NAT", type: "ONE_TO_ONE_NAT" }],
        }),
      },
    ],
    // No identity: the metadata service has no credentials to steal.
    serviceAccounts: [],
    scheduling: schedulingOf(spec, family),
    metadata: {
      items: [
        { key: "user-data", value: spec.userData },
        { key: "block-project-ssh-keys", value: "TRUE" },
      ],
    },
    ...shielding(family),
  }
}

/** Returns the network of a spec's VM. A connection with several subnets in a region spreads its VMs over them. */
export function buildNetwork(
  { name, network: { network, subnets = [] } = { publicAddress: true } }: LaunchSpec,
  settings: GcpSettings,
): { network: string; subnetwork?: string } {
  if (network === undefined) {
    const { network: configured = "default", subnetwork } = settings
    return { network: configured, ...defined({ subnetwork }) }
  }
  const subnetwork = subnets[derivedIndex(name, subnets.length)]
  return { network, ...defined({ subnetwork }) }
}

/**
 * Returns the image family. Compute Engine resolves it to its newest image when a VM is created. A repeated request
 * names the same family. It creates no second VM, so a newer image does not matter.
 */
function imageOf({ imageId }: LaunchSpec, { image }: MachineFamily, { images = {} }: GcpSettings): string {
  return imageId ?? images[image] ?? GCP.images[image].name
}

/** Maximum and minimum of the run duration that Compute Engine accepts, seconds. */
const LONGEST_RUN = 120 * 24 * 3600
const SHORTEST_RUN = 30

/**
 * At the end of its lifetime Compute Engine deletes the VM instead of stopping it. The disk of a stopped VM is billed.
 */
function schedulingOf({ offer, lifetimeSeconds }: LaunchSpec, { pinned }: MachineFamily): Scheduling {
  const spot = offer.provisioning === "spot"
  const stays = spot || pinned === true
  const seconds = Math.min(Math.max(Math.ceil(lifetimeSeconds), SHORTEST_RUN), LONGEST_RUN)
  return {
    provisioningModel: spot ? "SPOT" : "STANDARD",
    automaticRestart: false,
    onHostMaintenance: stays ? "TERMINATE" : "MIGRATE",
    instanceTerminationAction: "DELETE",
    maxRunDuration: { seconds: String(seconds) },
  }
}

/** Arm machines have no shielded boot. */
function shielding({ security }: MachineFamily): Pick<Instance, "shieldedInstanceConfig"> {
  if (security === undefined) return {}
  const enableSecureBoot = security === "secureBoot"
  return { shieldedInstanceConfig: { enableSecureBoot, enableVtpm: true, enableIntegrityMonitoring: true } }
}

function labelsOf(spec: LaunchSpec): Record<string, string> {
  const tags = Object.entries(spec.tags).map(([key, value]) => [labelKey(key), labelValue(value)])
  return {
    ...Object.fromEntries(tags),
    [INSTALLATION_LABEL]: spec.installation,
    [LAUNCH_LABEL]: spec.name,
    [SPEC_LABEL]: specDigest(spec),
  }
}

function labelKey(key: string): string {
  const name = key.startsWith("berth.dev/") ? key.slice("berth.dev/".length) : key
  return labelValue(`berth-${name}`)
}

/**
 * Replaces characters that labels don't allow by `-`. Kubernetes allows more in names. The labels are for people and
 * bills.
 */
function labelValue(value: string): string {
  return value
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]/g, "-")
    .slice(0, 63)
}
