import { createHash } from "node:crypto"
import type { ImageReference, VirtualMachine } from "@azure/arm-compute"
import { defined } from "../../core/apis/defined.ts"
import { orderedDisk } from "../../core/apis/disk.ts"
import { nvidiaGpusOf, type Offer } from "../../core/apis/offer.ts"
import { InvalidRequestError } from "../../core/outbound/errors.ts"
import type { LaunchSpec } from "../cloud.ts"
import type { Family } from "../machines/family.ts"
import { findFamily } from "../machines/family.ts"
import { specDigest } from "../spec-digest.ts"
import { bootDisk } from "./boot-disk.ts"
import { AZURE, type AzureImage } from "./machines.ts"
import { withDeletion } from "./user-data.ts"

/** Settings of VMs; each has a default. */
export interface AzureSettings {
  /** Images of the marketplace, as publisher:offer:sku:version. */
  images?: Partial<Record<AzureImage, string>>
}

/** Tag of the installation that a VM belongs to. */
export const INSTALLATION_TAG = "berth-installation"
/** Tag with the name of a VM's Launch. */
export const LAUNCH_TAG = "berth-launch"
/** Tag with the digest of the spec: it reveals another spec under the same name. */
export const SPEC_TAG = "berth-spec"

const NAME = /^[a-z0-9]([-a-z0-9]{0,55}[a-z0-9])?$/
const INSTALLATION = /^[a-z0-9]([-a-z0-9]{0,34}[a-z0-9])?$/
const REGION = /^[a-z0-9-]{1,32}$/

/** Returns the name of a Launch's VM. @throws InvalidRequestError if Azure does not allow it */
export function vmName(launch: string): string {
  if (NAME.test(launch)) return `berth-${launch}`
  const allowed = "up to 57 of a-z, 0-9 and -, with a letter or digit at both ends"
  throw new InvalidRequestError("MalformedName", `name "${launch}" of a launch: allowed are ${allowed}`)
}

/**
 * Returns the resource group of an installation's VMs in a region. @throws InvalidRequestError if Azure does not allow
 * it
 */
export function groupName(installation: string, region: string): string {
  if (!INSTALLATION.test(installation)) {
    const allowed = "up to 36 of a-z, 0-9 and -, with a letter or digit at both ends"
    throw new InvalidRequestError("MalformedInstallation", `installation "${installation}": allowed are ${allowed}`)
  }
  if (REGION.test(region)) return `berth-${installation}-${region}`
  throw new InvalidRequestError("UnknownRegion", `"${region}" is not an Azure region; an example is westeurope`)
}

/** Network and identity resources of a VM. */
export interface Place {
  subnetId: string
  securityGroupId: string
}

/** Version of the network API that creates a VM's network interface and address with the VM. */
const NETWORK_API = "2022-11-01"

/**
 * Returns the request that creates a Launch's VM. Its interface, address and disk are deleted with it. Pure.
 * @throws InvalidRequestError if the spec allows no request
 */
export function buildMachine(spec: LaunchSpec, place: Place, settings: AzureSettings): VirtualMachine {
  const { offer } = spec
  const name = vmName(spec.name)
  const tags = tagsOf(spec)
  const spot = offer.provisioning === "spot"
  const family: MachineFamily = findFamily(AZURE, offer) ?? unknownFamily(offer)
  const disk = orderedDisk(bootDisk(offer), spec.disk)
  return {
    location: offer.region,
    tags,
    ...(offer.zone !== undefined && { zones: [zoneNumber(offer.zone)] }),
    // Identity of the VM. It may delete the VM, and nothing else.
    identity: { type: "SystemAssigned" },
    hardwareProfile: { vmSize: offer.instanceType },
    ...(spot && { priority: "Spot", evictionPolicy: "Delete", billingProfile: { maxPrice: spec.ceilingUsd ?? -1 } }),
    ...(family.security === "unsigned" && { securityProfile: { securityType: "Standard" } }),
    storageProfile: {
      imageReference: imageOf(spec, family, settings),
      ...defined({ diskControllerType: family.diskController }),
      osDisk: {
        name: `${name}-disk`,
        createOption: "FromImage",
        deleteOption: "Delete",
        diskSizeGB: disk.sizeGib,
        managedDisk: { storageAccountType: disk.type },
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
    networkProfile: networkOf(name, tags, { ...place, isPublic: spec.network?.publicAddress !== false }),
  }
}

function networkOf(
  name: string,
  tags: Record<string, string>,
  place: Place & { isPublic: boolean },
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
            // For outbound connections; no inbound ones are allowed.
            ...(place.isPublic && {
              publicIPAddressConfiguration: {
                name: `${name}-ip`,
                tags,
                deleteOption: "Delete",
                publicIPAllocationMethod: "Static",
                sku: { name: "Standard", tier: "Regional" },
              },
            }),
          },
        ],
      },
    ],
  }
}

type MachineFamily = Omit<Family, "image"> & { image: AzureImage }

/**
 * Returns the needs of a machine type that the table lacks, such as one of an installation's own offers.
 * @throws InvalidRequestError if there is no image for it
 */
function unknownFamily(offer: Offer): MachineFamily {
  const { architecture, instanceType } = offer
  const base = { name: "", types: /^/, architecture, diskType: "StandardSSD_LRS", source: "" }
  if (nvidiaGpusOf(offer) === undefined) return { ...base, image: architecture }
  if (architecture === "amd64") return { ...base, image: "gpu", security: "unsigned" }
  throw new InvalidRequestError(
    "NoImage",
    `Berth knows no image for GPUs on ${architecture}, which ${instanceType} has`,
  )
}

function imageOf({ imageId }: LaunchSpec, { image }: MachineFamily, { images = {} }: AzureSettings): ImageReference {
  const urn = imageId ?? images[image] ?? AZURE.images[image].name
  const [publisher, product, sku, version, ...rest] = urn.split(":")
  if (publisher && product && sku && version && rest.length === 0) return { publisher, offer: product, sku, version }
  throw new InvalidRequestError("MalformedImage", `image "${urn}": must be publisher:offer:sku:version`)
}

/** Returns the number of a zone, as Azure wants it; the catalogue may have `westeurope-1`. */
function zoneNumber(zone: string): string {
  const number = /(?:^|-)([1-9])$/.exec(zone)?.[1]
  if (number !== undefined) return number
  throw new InvalidRequestError("UnknownZone", `zone "${zone}" is not an Azure zone: allowed are 1, 2 and 3`)
}

/**
 * Returns an SSH key, because Azure requires one. It is derived from a hash: no private key exists, and a repeated
 * request has the same one.
 */
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

/** Returns the tags of a VM and of all resources that are created with it. */
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
