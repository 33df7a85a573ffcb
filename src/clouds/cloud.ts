import { defined } from "../core/apis/defined.ts"
import type { VmDisk } from "../core/apis/disk.ts"
import type { StoredLaunch } from "../core/apis/launch.ts"
import type { Offer } from "../core/apis/offer.ts"
import type { VmNetwork } from "../core/apis/vm-settings.ts"

/** Everything that a cloud needs to create one VM. The same spec always means the same VM. */
export interface LaunchSpec {
  /** Name of the Launch. It is the idempotency token and, if the cloud allows it, the VM's name. */
  name: string
  /** Id of this Berth installation: the tag by which `list` finds VMs. */
  installation: string
  /** Further tags, for people and bills: project and job. */
  tags: Record<string, string>
  offer: Offer
  /** The cloud's VM image; absent if the cloud has only one. */
  imageId?: string
  /** Network settings of the connection. Absent: those of the installation, or the cloud's default. */
  network?: VmNetwork
  /** Absent: the cloud's default. */
  disk?: VmDisk
  /** Number of subnets that rejected this launch with a SubnetCapacityError. The request names the next one. */
  exhaustedSubnets?: number
  /** User data of the VM. It holds no cloud credentials. */
  userData: string
  /** Price of the spot machine above which the cloud ends the VM, USD per hour. Absent: the cloud's own limit. */
  ceilingUsd?: number
  /** Seconds after which the cloud itself terminates the VM, if it can. */
  lifetimeSeconds: number
}

/** State of a VM as the cloud reports it. `terminated`: nothing runs and nothing is billed any more. */
export type CloudVmState = "booting" | "running" | "terminating" | "terminated"

/** A VM as its cloud lists it. Times are RFC 3339. */
export interface Vm {
  id: string
  /** Name of the VM's Launch, from its tag. */
  launch: string
  installation: string
  region: string
  state: CloudVmState
  createTime: string
  terminationTime?: string
  ipAddress?: string
  /** True if the cloud reclaimed the VM (spot). */
  preempted?: boolean
}

/** Reference to a VM, sufficient to terminate it. */
export interface VmRef {
  id: string
  launch: string
  region: string
  zone?: string
}

/** One installation's VMs in one region of the account that the cloud was opened with. */
export interface Scope {
  installation: string
  region: string
}

/** Account of the credentials that a cloud was opened with. */
export interface Identity {
  account: string
}

/**
 * A cloud, opened with one account's credentials. It has no knowledge of Jobs or Kubernetes. Every method throws only
 * the errors of `errors.ts`.
 */
export interface Cloud {
  /**
   * Returns the current VM image for an offer. The answer changes with time, so the caller keeps it and repeats it in
   * every launch of the same VM. Absent if the cloud has only one image.
   */
  readonly imageFor?: (offer: Offer) => Promise<string>
  /**
   * Creates the VM, or finds the one that an earlier, identical call created. Returns as soon as the cloud has accepted
   * it.
   * @param fence called right before each request that changes anything; if it throws, nothing is sent
   */
  launch(spec: LaunchSpec, fence?: () => void): Promise<Vm>
  /**
   * Completes an earlier, identical `launch` of a VM that the cloud lists, and creates none. Does nothing if the VM is
   * deleted. Absent if a launch is complete as soon as there is a VM.
   * @param fence as in `launch`
   */
  readonly completeLaunch?: (spec: LaunchSpec, fence?: () => void) => Promise<void>
  /**
   * Returns all VMs of the installation in the region, from all pages. Includes terminated VMs while the cloud lists
   * them.
   */
  list(scope: Scope): Promise<Vm[]>
  /** Terminates a VM. A VM that is terminating or deleted isn't an error. @param fence as in `launch` */
  terminate(vm: VmRef, fence?: () => void): Promise<void>
  /**
   * Returns the text on a VM's serial console, or its end. Undefined if the cloud has none (any more). Absent if Berth
   * reads no consoles of this cloud.
   */
  readonly consoleOf?: (vm: VmRef) => Promise<string | undefined>
  /** Verifies the credentials and returns their account. */
  verify(): Promise<Identity>
  /** Seconds after a launch during which `list` may not contain the VM yet. */
  readonly consistencySeconds: number
}

/**
 * The account that a Launch is pinned to. `sealedCredentials` is a copy, sealed for `project` and `connection`; the
 * implementation of `Clouds` unseals it. Accounts that need no connection have none of the last four fields.
 */
export interface CloudAccount {
  cloud: string
  region: string
  account?: string
  /** Id of the project that pays, and the connection that it pays with. */
  project?: string
  connection?: string
  sealedCredentials?: string
}

/** Opens clouds for accounts. Throws `CredentialsError` when it can't. */
export interface Clouds {
  open(account: CloudAccount): Promise<Cloud>
}

/** Returns the account and region that a Launch is pinned to, with the credentials that open it. */
export function accountOf(launch: Pick<StoredLaunch, "spec">): CloudAccount {
  const { offer, account, project, connection, sealedCredentials } = launch.spec
  return {
    cloud: offer.cloud,
    region: offer.region,
    ...defined({ account, project, connection, sealedCredentials }),
  }
}
