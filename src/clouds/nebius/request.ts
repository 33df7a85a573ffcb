import { orderedDisk } from "../../core/apis/disk.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { InvalidRequestError } from "../../core/outbound/errors.ts"
import type { LaunchSpec } from "../cloud.ts"
import { derivedUuid } from "../derived.ts"
import { specDigest } from "../spec-digest.ts"
import type { Json } from "./api.ts"
import { bootDisk } from "./definition.ts"
import { imageKey, NEBIUS } from "./machines.ts"

/** Label of the installation that a VM belongs to. */
export const INSTALLATION_LABEL = "berth-installation"
/** Label with the name of a VM's Launch. */
export const LAUNCH_LABEL = "berth-launch"
/** Label with the digest of the spec: it reveals another spec under the same name. */
export const SPEC_LABEL = "berth-spec"

/** Ids of what a VM is created in and from. */
export interface Place {
  projectId: string
  subnetId: string
  /** Security group without inbound traffic. */
  securityGroupId: string
  imageId: string
}

/** Returns the name of a Launch's VM. @throws InvalidRequestError if it would not be one */
export function vmName({ name }: Pick<LaunchSpec, "name">): string {
  if (/^[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?$/.test(name)) return `berth-${name}`
  const allowed = "up to 48 of a-z, 0-9 and -, with a letter or digit at both ends"
  throw new InvalidRequestError("MalformedName", `name "${name}" of a launch: allowed are ${allowed}`)
}

/** Returns the key by which Nebius executes a Launch's request once. */
export function idempotencyKey({ installation, name }: Pick<LaunchSpec, "installation" | "name">): string {
  return derivedUuid(["create", installation, name])
}

/** Parses an instance type: a platform and a preset. */
export function sizeOf(instanceType: string): { platform: string; preset: string } {
  const { platform, preset } = /^(?<platform>[a-z0-9-]+)_(?<preset>[a-z0-9-]+)$/.exec(instanceType)?.groups ?? {}
  if (platform !== undefined && preset !== undefined) return { platform, preset }
  const message = `instance type "${instanceType}" is not one of Nebius': an example is cpu-d3_4vcpu-16gb`
  throw new InvalidRequestError("MalformedInstanceType", message)
}

/** Returns the family of public images that a machine boots. */
export function imageFamily(offer: Pick<Offer, "gpu">): string {
  return NEBIUS.images[imageKey(offer)].name
}

/** Returns the request that creates a Launch's VM (nebius/compute/v1/instance.proto). Pure. */
export function buildInstance(spec: LaunchSpec, place: Place): Json {
  const { offer, network } = spec
  const name = vmName(spec)
  const labels = labelsOf(spec)
  const disk = orderedDisk(bootDisk(offer), spec.disk)
  return {
    metadata: { parentId: place.projectId, name, labels },
    spec: {
      ...machineOf(offer),
      bootDisk: {
        attachMode: "READ_WRITE",
        // It is deleted with the VM.
        managedDisk: {
          name,
          labels,
          spec: { type: disk.type, sizeGibibytes: String(disk.sizeGib), sourceImageId: place.imageId },
        },
      },
      networkInterfaces: [
        {
          name: "eth0",
          subnetId: place.subnetId,
          ipAddress: {},
          ...(network?.publicAddress !== false && { publicIpAddress: {} }),
          securityGroups: [{ id: place.securityGroupId }],
        },
      ],
      cloudInitUserData: spec.userData,
    },
  }
}

/** Returns the part of a request that the price depends on, besides disk and address. */
export function machineOf({ instanceType, provisioning }: Pick<Offer, "instanceType" | "provisioning">) {
  return {
    resources: sizeOf(instanceType),
    // The default starts a VM again that has powered itself off, and Nebius bills it
    // (https://docs.nebius.com/compute/virtual-machines/stop-start).
    recoveryPolicy: "FAIL",
    reservationPolicy: { policy: "FORBID" },
    ...(provisioning === "spot" && { preemptible: { onPreemption: "STOP" } }),
  }
}

function labelsOf({ name, installation, tags, ...spec }: LaunchSpec): Record<string, string> {
  const others = Object.entries(tags).map(([key, value]) => [labelKey(key), labelText(value)])
  return {
    ...Object.fromEntries(others),
    [INSTALLATION_LABEL]: installation,
    [LAUNCH_LABEL]: name,
    [SPEC_LABEL]: specDigest({ name, installation, tags, ...spec }),
  }
}

function labelKey(key: string): string {
  return labelText(`berth-${key.replace(/^berth\.dev\//, "")}`)
}

/** Replaces characters that labels may not allow: the API publishes no rule, and bills show them to people. */
function labelText(value: string): string {
  return value
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]/g, "-")
    .slice(0, 63)
}
