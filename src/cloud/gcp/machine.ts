import { createHash } from "node:crypto"
import type { protos } from "@google-cloud/compute"
import type { Offer } from "../../apis/offer.ts"
import { InvalidRequestError } from "../errors.ts"
import type { LaunchSpec } from "../provider.ts"
import { specDigest } from "../spec-digest.ts"

export type Instance = protos.google.cloud.compute.v1.IInstance
type Scheduling = protos.google.cloud.compute.v1.IScheduling

/** Where an installation's VMs are put; each has a default. */
export interface GcpSettings {
  /** VPC network, by name. Default: `default`. */
  network?: string
  /** Subnetwork of the region, by name: needed where the network makes none by itself. */
  subnetwork?: string
  /** Size of the boot disk, GB. Default 50. */
  diskGb?: number
  /** Image families, as `projects/PROJECT/global/images/family/FAMILY`. */
  images?: Partial<Record<"amd64" | "arm64" | "gpu", string>>
}

/** Label of the installation that a VM belongs to: what lists are filtered by. */
export const INSTALLATION_LABEL = "berth-installation"
/** Label of the Launch that a VM was made for. */
export const LAUNCH_LABEL = "berth-launch"
/** Label of what it was made from: another spec under the same name is noticed by it. */
export const SPEC_LABEL = "berth-spec"
/** Network tag of every VM: the firewall rule that lets nothing in goes by it. */
export const NETWORK_TAG = "berth"

/**
 * An image family stands for its newest image, which Compute Engine looks up when a VM is made. A replay names the same
 * family; whether the family has moved on meanwhile doesn't matter, as the replay makes no second VM.
 */
const IMAGES = {
  amd64: "projects/cos-cloud/global/images/family/cos-stable",
  arm64: "projects/cos-cloud/global/images/family/cos-arm64-stable",
  // Container-Optimized OS has no runtime for Docker's device requests. This one has driver and toolkit; user data brings Docker.
  gpu: "projects/deeplearning-platform-release/global/images/family/common-cu129-ubuntu-2204-nvidia-580",
}

const NAME_PREFIX_LENGTH = 8
const LABEL = /^[a-z0-9_-]{0,63}$/

/** What the name of each VM of an installation begins with. Operations on VMs that are gone tell no more than names. */
export function namePrefix(installation: string): string {
  return `berth-${sha256(installation).slice(0, NAME_PREFIX_LENGTH)}-`
}

/** The name of a Launch's VM. @throws InvalidRequestError when Compute Engine can't take it as a name and a label */
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

/** The id of an identical request: Compute Engine takes one of the same id, in a zone, for a repetition. */
export function requestId(spec: LaunchSpec, zone: string): string {
  const hex = sha256(JSON.stringify(["insert", spec.installation, spec.name, zone]))
  // A UUID of version 8, which is free for one's own contents (RFC 9562).
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex")
}

/** A machine type and the GPUs that are attached to it, where it isn't sold with them. */
interface MachineType {
  machineType: string
  accelerator?: { type: string; count: number }
}

/** The catalogue names attached GPUs after the machine type: `n1-standard-4_1xnvidia-tesla-t4`. */
export function machineTypeOf(instanceType: string): MachineType {
  const attached = /^(?<machineType>[a-z0-9-]+)_(?<count>\d+)x(?<type>[a-z0-9-]+)$/.exec(instanceType)?.groups
  if (attached !== undefined) {
    const { machineType = "", count, type = "" } = attached
    return { machineType, accelerator: { type, count: Number(count) } }
  }
  if (/^[a-z][a-z0-9-]*$/.test(instanceType)) return { machineType: instanceType }
  const message = `instance type "${instanceType}" is none of Google Cloud's: such as n2-standard-4`
  throw new InvalidRequestError("MalformedInstanceType", message)
}

/** These take Hyperdisk only (Compute Engine's page on machine families). */
const HYPERDISK_ONLY = /^(n4[ad]?|c4[ad]?|h4d|m4n?|x4|a3-ultragpu|a4x?|g4)-/

/** These are never moved to another host alive. */
const NOT_MIGRATED = /^(h3|h4d|x4|z3)-|-metal$/

/** The request that makes a Launch's VM in a zone. Pure. @throws InvalidRequestError when no request can */
export function instanceOf(spec: LaunchSpec, zone: string, settings: GcpSettings): Instance {
  const { offer } = spec
  const { machineType, accelerator } = machineTypeOf(offer.instanceType)
  const { network = "default", subnetwork } = settings
  const disk = HYPERDISK_ONLY.test(machineType) ? "hyperdisk-balanced" : "pd-balanced"
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
          sourceImage: imageOf(spec, settings),
          diskType: `zones/${zone}/diskTypes/${disk}`,
          diskSizeGb: String(settings.diskGb ?? 50),
        },
      },
    ],
    networkInterfaces: [
      {
        network: `global/networks/${network}`,
        ...(subnetwork !== undefined && { subnetwork: `regions/${offer.region}/subnetworks/${subnetwork}` }),
        // The way out; nothing comes in.
        accessConfigs: [{ name: "External NAT", type: "ONE_TO_ONE_NAT" }],
      },
    ],
    // No identity: whoever gets at the metadata service finds no credentials there.
    serviceAccounts: [],
    scheduling: schedulingOf(spec, machineType),
    metadata: {
      items: [
        { key: "user-data", value: spec.userData },
        { key: "block-project-ssh-keys", value: "TRUE" },
      ],
    },
    ...shielding(offer),
  }
}

function imageOf({ offer, imageId }: LaunchSpec, { images = {} }: GcpSettings): string {
  const kind = offer.gpu === undefined ? offer.architecture : "gpu"
  return imageId ?? images[kind] ?? IMAGES[kind]
}

/** The longest and shortest run that Compute Engine can be asked to end, seconds. */
const LONGEST_RUN = 120 * 24 * 3600
const SHORTEST_RUN = 30

/** It is deleted at the end of its life, not stopped: the disk of a stopped VM is billed. */
function schedulingOf({ offer, lifetimeSeconds }: LaunchSpec, machineType: string): Scheduling {
  const spot = offer.provisioning === "spot"
  const stays = spot || offer.gpu !== undefined || NOT_MIGRATED.test(machineType)
  const seconds = Math.min(Math.max(Math.ceil(lifetimeSeconds), SHORTEST_RUN), LONGEST_RUN)
  return {
    provisioningModel: spot ? "SPOT" : "STANDARD",
    automaticRestart: false,
    onHostMaintenance: stays ? "TERMINATE" : "MIGRATE",
    instanceTerminationAction: "DELETE",
    maxRunDuration: { seconds: String(seconds) },
  }
}

/** Arm machines have no shielded boot, and NVIDIA's driver is not signed for Secure Boot. */
function shielding({ architecture, gpu }: Offer): Pick<Instance, "shieldedInstanceConfig"> {
  if (architecture === "arm64") return {}
  const enableSecureBoot = gpu === undefined
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

/** Labels take less than names of Kubernetes: what they can't take becomes a `-`. They are for people and bills. */
function labelValue(value: string): string {
  return value
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]/g, "-")
    .slice(0, 63)
}
