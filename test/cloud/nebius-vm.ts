import type { Json } from "../../src/clouds/nebius/api.ts"
import { type InstanceSpec, sizeGibOf } from "./nebius-creation.ts"
import type { Shown } from "./nebius-network.ts"

export type VmState = "CREATING" | "STARTING" | "RUNNING" | "STOPPED" | "DELETING" | "ERROR"

/** VM of the stand-in, with its managed disk and the time for which it is billed. */
export class NebiusVm {
  readonly metadata: { id: string; parentId: string; name: string; labels: Record<string, string>; createdAt: string }
  readonly spec: InstanceSpec
  readonly diskId: string
  state: VmState
  /** Operation that runs on the VM. */
  operation: string | undefined
  readonly #now: () => number
  readonly #nextAddress: () => string
  /** Dynamic public address, which only a started VM has. */
  #address: string | undefined
  #billedMs = 0
  #billedSinceMs: number | undefined

  constructor(
    made: Pick<NebiusVm, "metadata" | "spec" | "diskId" | "state" | "operation">,
    { now, nextAddress }: { now: () => number; nextAddress: () => string },
  ) {
    this.metadata = made.metadata
    this.spec = made.spec
    this.diskId = made.diskId
    this.state = made.state
    this.operation = made.operation
    this.#now = now
    this.#nextAddress = nextAddress
  }

  /**
   * Changes the state. A VM is billed from its start to a complete stop
   * (https://docs.nebius.com/legal/specific-terms/compute). The stand-in bills one that ran until its deletion is complete.
   */
  enter(state: VmState): void {
    const isStarted = state === "STARTING" || state === "RUNNING"
    const isBilled = isStarted || (state === "DELETING" && this.#billedSinceMs !== undefined)
    if (isBilled) this.#billedSinceMs ??= this.#now()
    else {
      this.#billedMs = 1000 * this.billedSeconds(this.#now())
      this.#billedSinceMs = undefined
    }
    // A dynamic address is released when the VM stops (https://docs.nebius.com/compute/virtual-machines/preemptible).
    this.#address = isStarted ? (this.#address ?? this.#nextAddress()) : undefined
    this.state = state
  }

  billedSeconds(now: number): number {
    return (this.#billedMs + now - (this.#billedSinceMs ?? now)) / 1000
  }

  /** Size of the managed disk, GiB. It is billed in every state. */
  get diskGib(): number {
    const disk = this.spec.bootDisk.managedDisk
    return disk === undefined ? 0 : sizeGibOf(disk.spec)
  }

  /** Returns the VM as the API shows it. */
  shown(): Shown {
    const { metadata, state, operation, diskId } = this
    // "Sensitive": may be masked or removed (annotations.proto).
    const { cloudInitUserData: _, ...spec } = this.spec
    const disk = { id: diskId, name: spec.bootDisk.managedDisk?.name ?? "", isManaged: true }
    return {
      metadata: { ...metadata, resourceVersion: "1", updatedAt: metadata.createdAt },
      spec: spec as unknown as Json,
      status: {
        ...{ state, reconciling: operation !== undefined, disk_attachments: [disk] },
        networkInterfaces: this.#shownInterfaces(),
      },
    }
  }

  /** Addresses have a mask, which clients cut off, such as SkyPilot (sky/provision/nebius/utils.py). */
  #shownInterfaces(): Json[] {
    const address = this.#address
    return this.spec.networkInterfaces.map(({ name, publicIpAddress }, index) => ({
      ...{ index, name, ipAddress: { address: "10.0.0.7/32", allocationId: "vpcallocation-e00private" } },
      ...(publicIpAddress !== undefined && address !== undefined && { publicIpAddress: { address: `${address}/32` } }),
    }))
  }
}
