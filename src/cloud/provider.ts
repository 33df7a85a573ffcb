import type { Offer } from "../apis/offer.ts"

/** Everything that a cloud needs to make one VM. The same spec always means the same VM. */
export interface LaunchSpec {
  /** Name of the Launch: the idempotency token and, where the cloud allows it, the VM's name. */
  name: string
  /** Id of this Berth installation: the tag that `list` finds VMs by. */
  installation: string
  /** Further tags, for people and bills: project and job. */
  tags: Record<string, string>
  offer: Offer
  /** The cloud's VM image; absent where the cloud has but one. */
  imageId?: string
  /** What the VM starts with. It holds no cloud credentials. */
  userData: string
  /** Seconds after which the cloud itself ends the VM, where it can. */
  lifetimeSeconds: number
}

/** What a cloud says of a VM. `terminated`: nothing runs and nothing is billed any more. */
export type CloudVmState = "booting" | "running" | "terminating" | "terminated"

/** A VM as its cloud lists it. Times are RFC 3339. */
export interface Vm {
  id: string
  /** Name of the Launch that it was made for, from its tag. */
  launch: string
  installation: string
  region: string
  state: CloudVmState
  createTime: string
  terminationTime?: string
  ipAddress?: string
  /** True when the cloud took it back (spot). */
  preempted?: boolean
}

/** Enough of a VM to end it. */
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

/** Whose credentials a cloud was opened with. */
export interface Identity {
  account: string
}

/**
 * A cloud, opened with one account's credentials. It knows nothing of Jobs or Kubernetes.
 * Every method throws only the errors of `errors.ts`.
 */
export interface Cloud {
  /**
   * The VM image that an offer is to start with now. It changes with time, so whoever launches keeps the answer and says
   * it in every launch of the same VM. Absent where the cloud has but one.
   */
  readonly imageFor?: (offer: Offer) => Promise<string>
  /**
   * Makes the VM, or finds the one that an earlier, identical call made. Returns as soon as the cloud has accepted it.
   * @param fence called right before each request that changes anything; when it throws, nothing is sent
   */
  launch(spec: LaunchSpec, fence?: () => void): Promise<Vm>
  /** Every VM of the installation in the region, all pages; terminated ones as long as the cloud shows them. */
  list(scope: Scope): Promise<Vm[]>
  /** Ends a VM; no error when it is ending or gone already. @param fence as in `launch` */
  terminate(vm: VmRef, fence?: () => void): Promise<void>
  /** Proves the credentials and tells whose they are. */
  verify(): Promise<Identity>
  /** Seconds after a launch during which `list` may not show the VM yet. */
  readonly consistencySeconds: number
}

/**
 * The account that a Launch is pinned to; `sealedCredentials` is a copy, sealed for `project` and `connection`, and opened
 * by who implements `Clouds`. Accounts that need no connection have none of the last four.
 */
export interface CloudAccount {
  cloud: string
  region: string
  account?: string
  /** Id of the project that pays, and the connection by which it does. */
  project?: string
  connection?: string
  sealedCredentials?: string
}

/** Opens clouds for accounts. Throws `CredentialsError` when it can't. */
export interface Clouds {
  open(account: CloudAccount): Promise<Cloud>
}
