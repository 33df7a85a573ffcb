import { createHash } from "node:crypto"
import type { ImageReference, VirtualMachine } from "@azure/arm-compute"
import { InvalidRequestError } from "../errors.ts"
import type { LaunchSpec } from "../provider.ts"
import { specDigest } from "../spec-digest.ts"
import { withDeletion } from "./user-data.ts"

/** What VMs are made of; each has a default. */
export interface AzureSettings {
  /** Size of the operating system's disk, GB. Default 64. */
  diskGb?: number
  /** Images of the marketplace, as publisher:offer:sku:version. */
  images?: Partial<Record<keyof typeof IMAGES, string>>
}

/** Tag of the installation that a VM belongs to. */
export const INSTALLATION_TAG = "berth-installation"
/** Tag of the Launch that a VM was made for. */
export const LAUNCH_TAG = "berth-launch"
/** Tag of what it was made from: another spec under the same name is noticed by it. */
export const SPEC_TAG = "berth-spec"

/** Canonical's images have no driver for GPUs; Microsoft's for HPC has it, with Docker and NVIDIA's toolkit. */
const IMAGES = {
  amd64: "Canonical:ubuntu-24_04-lts:server:latest",
  amd64Generation1: "Canonical:ubuntu-24_04-lts:server-gen1:latest",
  arm64: "Canonical:ubuntu-24_04-lts:server-arm64:latest",
  gpu: "microsoft-dsvm:ubuntu-hpc:2204:latest",
}

/** Sizes that boot images of the first generation only (Azure's list of sizes that support the second). */
const GENERATION_1 =
  /^(Basic_|Standard_A\d|Standard_D\d+(_v[23])?$|Standard_DC\d+s$|Standard_E\d+i?_v3$|Standard_F\d+$|Standard_G\d+$|Standard_H\d+m?r?$|Standard_NV\d+$)/

const NAME = /^[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?$/
const INSTALLATION = /^[a-z0-9]([-a-z0-9]{0,34}[a-z0-9])?$/
const REGION = /^[a-z0-9-]{1,32}$/

/** The name of a Launch's VM. @throws InvalidRequestError when Azure can't take it */
export function vmName(launch: string): string {
  if (NAME.test(launch)) return `berth-${launch}`
  const allowed = "up to 57 of a-z, 0-9 and -, with a letter or digit at both ends"
  throw new InvalidRequestError("MalformedName", `name "${launch}" of a launch: allowed are ${allowed}`)
}

/** The resource group of an installation's VMs in a region. @throws InvalidRequestError when Azure can't take it */
export function groupName(installation: string, region: string): string {
  if (!INSTALLATION.test(installation)) {
    const allowed = "up to 36 of a-z, 0-9 and -, with a letter or digit at both ends"
    throw new InvalidRequestError("MalformedInstallation", `installation "${installation}": allowed are ${allowed}`)
  }
  if (REGION.test(region)) return `berth-${installation}-${region}`
  throw new InvalidRequestError("UnknownRegion", `"${region}" is no region of Azure's: such as westeurope`)
}

/** Where a VM is put. */
export interface Place {
  subnetId: string
  securityGroupId: string
}

/** Version of the network API that makes a VM's network interface and address together with it. */
const NETWORK_API = "2022-11-01"

/**
 * The request that makes a Launch's VM, with its interface, address and disk, which are deleted with it. Pure.
 * @throws InvalidRequestError when no request can
 */
export function machineOf(spec: LaunchSpec, place: Place, settings: AzureSettings): VirtualMachine {
  const { offer } = spec
  const name = vmName(spec.name)
  const tags = tagsOf(spec)
  const spot = offer.provisioning === "spot"
  return {
    location: offer.region,
    tags,
    ...(offer.zone !== undefined && { zones: [zoneNumber(offer.zone)] }),
    // By it the VM may delete itself, and nothing else.
    identity: { type: "SystemAssigned" },
    hardwareProfile: { vmSize: offer.instanceType },
    ...(spot && { priority: "Spot", evictionPolicy: "Delete", billingProfile: { maxPrice: -1 } }),
    storageProfile: {
      imageReference: imageOf(spec, settings),
      osDisk: {
        name: `${name}-disk`,
        createOption: "FromImage",
        deleteOption: "Delete",
        diskSizeGB: settings.diskGb ?? 64,
        managedDisk: { storageAccountType: "StandardSSD_LRS" },
      },
    },
    osProfile: {
      computerName: name,
      adminUsername: "berth",
      customData: Buffer.from(withDeletion(spec.userData)).toString("base64"),
      allowExtensionOperations: true,
      linuxConfiguration: {
        disablePasswordAuthentication: true,
        ssh: { publicKeys: [{ path: "/home/berth/.ssh/authorized_keys", keyData: nobodysKey(name) }] },
      },
    },
    networkProfile: networkOf(name, tags, place),
  }
}

function networkOf(
  name: string,
  tags: Record<string, string>,
  place: Place,
): VirtualMachine["networkProfile"] & object {
  return {
    networkApiVersion: NETWORK_API,
    networkInterfaceConfigurations: [
      {
        name: `${name}-nic`,
        tags,
        primary: true,
        deleteOption: "Delete",
        networkSecurityGroup: { id: place.securityGroupId },
        ipConfigurations: [
          {
            name: "primary",
            primary: true,
            subnet: { id: place.subnetId },
            // The way out; nothing comes in.
            publicIPAddressConfiguration: {
              name: `${name}-ip`,
              tags,
              deleteOption: "Delete",
              publicIPAllocationMethod: "Static",
              sku: { name: "Standard", tier: "Regional" },
            },
          },
        ],
      },
    ],
  }
}

function imageOf({ offer, imageId }: LaunchSpec, { images = {} }: AzureSettings): ImageReference {
  const cpu =
    offer.architecture === "amd64" && GENERATION_1.test(offer.instanceType) ? "amd64Generation1" : offer.architecture
  const kind = offer.gpu === undefined ? cpu : "gpu"
  const urn = imageId ?? images[kind] ?? IMAGES[kind]
  const [publisher, product, sku, version, ...rest] = urn.split(":")
  if (publisher && product && sku && version && rest.length === 0) return { publisher, offer: product, sku, version }
  throw new InvalidRequestError("MalformedImage", `image "${urn}": must be publisher:offer:sku:version`)
}

/** Azure knows zones by number; the catalogue may say `westeurope-1`. */
function zoneNumber(zone: string): string {
  const number = /(?:^|-)([1-9])$/.exec(zone)?.[1]
  if (number !== undefined) return number
  throw new InvalidRequestError("UnknownZone", `zone "${zone}" is none of Azure's: 1, 2 or 3`)
}

/** Azure wants an SSH key. This one is made of a hash: nobody has its private half, and a repetition has the same. */
function nobodysKey(name: string): string {
  const type = Buffer.from("ssh-ed25519")
  const point = createHash("sha256").update(`no one's key of ${name}`).digest()
  const parts = [type, point].flatMap((part) => [lengthOf(part), part])
  return `ssh-ed25519 ${Buffer.concat(parts).toString("base64")} nobody`
}

function lengthOf(part: Buffer): Buffer {
  const length = Buffer.alloc(4)
  length.writeUInt32BE(part.length)
  return length
}

/** Of a VM and all that is made with it. */
function tagsOf(spec: LaunchSpec): Record<string, string> {
  const named = Object.entries(spec.tags).map(([key, value]) => [`berth-${key.replace(/^berth\.dev\//, "")}`, value])
  return {
    ...Object.fromEntries(
      named.map(([key = "", value = ""]) => [key.replaceAll(/[<>%&\\?/]/g, "-"), value.slice(0, 256)]),
    ),
    [INSTALLATION_TAG]: spec.installation,
    [LAUNCH_TAG]: spec.name,
    [SPEC_TAG]: specDigest(spec),
  }
}
