import type { VirtualMachine } from "@azure/arm-compute"
import { type Clock, systemClock } from "../../core/apis/clock.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { defined } from "../../core/apis/defined.ts"
import {
  afterAcceptance,
  CloudError,
  checkRegion,
  InvalidRequestError,
  OutcomeUnknownError,
  RegionError,
  TransientError,
} from "../../core/outbound/errors.ts"
import { ByCredentials } from "../by-credentials.ts"
import type { Cloud, CloudVmState, Identity, LaunchSpec, Scope, Vm, VmRef } from "../cloud.ts"
import type { RegionOpener } from "../provider.ts"
import { specDigest } from "../spec-digest.ts"
import { Arm, type ArmOptions } from "./arm.ts"
import { errorStatus, GROUP_GONE, NETWORK_GONE, provisioningError } from "./errors.ts"
import {
  type AzureSettings,
  buildMachine,
  groupName,
  INSTALLATION_TAG,
  LAUNCH_TAG,
  type Place,
  SPEC_TAG,
  vmName,
} from "./machine.ts"
import { idOfSubnet, namedSubnet } from "./named-subnet.ts"
import { placeFor } from "./place.ts"
import { RestrictionLists } from "./restrictions.ts"
import { letDeleteItself, vmRoleId } from "./self-delete.ts"
import { type RunStatus, readRunStatus } from "./status.ts"

export interface AzureOptions extends ArmOptions {
  settings?: AzureSettings
  /** Maximum time that a launch waits for Azure to allocate a machine, seconds. Default 30. */
  settleSeconds?: number
  /** Interval of status queries during that time, for all launches of an account together, seconds. Default 2. */
  lookSeconds?: number
  /** Default 120: Resource Manager caches its lists in several regions, and the caches lag. */
  consistencySeconds?: number
  clock?: Clock
}

const SETTLE_SECONDS = 30
const CONSISTENCY_SECONDS = 120
const LOOK_SECONDS = 2
/**
 * Age after which `list` deletes a VM that could not be provisioned, seconds. Until then its launch may still be
 * running, and deletes it itself.
 */
const FAILED_SECONDS = 300
/** Maximum number of accounts whose clients and tokens are cached. */
const MOST_ACCOUNTS = 100
const SUBSCRIPTIONS_API = "2022-12-01"

/** State of an account, shared by all its regions. */
interface Account {
  arm: Arm
  restrictions: RestrictionLists
  /** By resource group and subnet. */
  places: Map<string, Promise<Place>>
  role?: Promise<string> | undefined
  /** The status query in progress. */
  looking?: Promise<Map<string, RunStatus>> | undefined
}

/** Opens Azure's regions. Clients and tokens of recently used accounts are cached. */
export function openAzure(options: AzureOptions = {}): RegionOpener {
  const accounts = new ByCredentials<Account>(MOST_ACCOUNTS)
  return (credentials: CredentialFields, region: string) => {
    const account = accounts.get(credentials, () => {
      const arm = new Arm(credentials, options)
      return { arm, places: new Map(), restrictions: new RestrictionLists(arm, options.clock ?? systemClock) }
    })
    return new AzureCloud(account, region, options)
  }
}

/**
 * Azure in one region of one subscription. Each installation has a resource group there. A VM's name derives from its
 * Launch. Azure keeps no record of a deleted VM.
 */
class AzureCloud implements Cloud {
  readonly consistencySeconds: number
  readonly #account: Account
  readonly #region: string
  readonly #options: AzureOptions
  readonly #clock: Clock

  constructor(account: Account, region: string, options: AzureOptions) {
    this.#account = account
    this.#region = region
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.consistencySeconds = options.consistencySeconds ?? CONSISTENCY_SECONDS
  }

  async launch(spec: LaunchSpec, fence?: () => void): Promise<Vm> {
    checkRegion(spec.offer, this.#region)
    const group = groupName(spec.installation, this.#region)
    const name = vmName(spec.name)
    const roleId = await this.#roleId()
    const machine = await this.#findOrMake(spec, { group, name }, fence)
    if (machine.tags?.[SPEC_TAG] !== specDigest(spec)) {
      const message = `a VM named ${name} was launched from another spec: launch under another name`
      throw new InvalidRequestError("LaunchNameTaken", message)
    }
    const shown = this.#show(machine, undefined)
    if (shown.state === "terminating") return shown
    await this.#settle({ group, name, id: shown.id }, fence)
    const principalId = machine.identity?.principalId
    if (principalId === undefined) throw new OutcomeUnknownError("NoIdentity", `${name} has no identity yet`)
    await this.#letDeleteItself({ vmId: shown.id, principalId, roleId }, { group, name }, fence)
    return shown
  }

  /** Gives the VM the right to delete itself, which `launch` does last. The VM stays if Azure rejects that. */
  async completeLaunch(spec: LaunchSpec, fence?: () => void): Promise<void> {
    const roleId = await this.#roleId()
    const machine = await this.#get({ group: groupName(spec.installation, this.#region), name: vmName(spec.name) })
    const principalId = machine?.identity?.principalId
    if (machine === undefined || principalId === undefined) return
    await letDeleteItself(this.#account.arm, { vmId: idOf(machine), principalId, roleId }, fence).catch(
      (error: unknown) => {
        if (!(error instanceof CloudError && error.code === "RoleAssignmentExists")) throw error
      },
    )
  }

  async #findOrMake(spec: LaunchSpec, at: Named, fence?: () => void): Promise<VirtualMachine> {
    const found = await this.#get(at)
    if (found !== undefined) return found
    // Before anything is created: a subscription may use few sizes, and Azure would reject each of the others.
    const restrictions = await this.#account.restrictions.of(this.#region)
    restrictions?.check(spec.offer)
    const place = await this.#place(spec, fence)
    await this.#make(buildMachine(spec, place, this.#options.settings ?? {}), at, fence)
    const made = await afterAcceptance(this.#get(at))
    if (made !== undefined) return made
    throw new OutcomeUnknownError("Vanished", `${at.name} was accepted, but does not exist`)
  }

  async #make(wanted: VirtualMachine, { group, name }: Named, fence?: () => void): Promise<void> {
    const { arm, places } = this.#account
    try {
      await arm.call(
        "change",
        async ({ compute }, options) => {
          // Never changes an existing VM: that could start it again.
          const creation = { ...options, ifNoneMatch: "*" }
          await compute.virtualMachines
            .createOrUpdate(group, name, wanted, creation)
            .submitted()
            .catch((error: unknown) => {
              if (errorStatus(error) !== 412) throw error
            })
        },
        fence,
      )
    } catch (error) {
      const isGone = error instanceof CloudError && (error.code === GROUP_GONE || NETWORK_GONE.test(error.code))
      // A deleted network leaves the other places of the group. They are found again by one call.
      if (isGone) for (const key of places.keys()) if (key.startsWith(`${group}/`)) places.delete(key)
      throw error
    }
  }

  async #get({ group, name }: Named): Promise<VirtualMachine | undefined> {
    return await this.#account.arm.call("read", async ({ compute }, options) => {
      try {
        return await compute.virtualMachines.get(group, name, options)
      } catch (error) {
        if (errorStatus(error) === 404) return undefined
        throw error
      }
    })
  }

  /**
   * Waits until Azure has allocated a machine for the VM, up to a timeout. A VM that takes longer counts as accepted. A
   * VM that can't be provisioned is deleted. @throws the error of its provisioning
   */
  async #settle({ group, name, id }: Named & { id: string }, fence?: () => void): Promise<void> {
    const deadline = this.#clock.monotonic() + (this.#options.settleSeconds ?? SETTLE_SECONDS)
    for (;;) {
      const status = await this.#glance(id)
      if (status?.failure !== undefined && !status.runs) {
        await afterAcceptance(this.#delete({ group, name }, fence))
        throw provisioningError(status.failure.code, status.failure.message)
      }
      if (status?.runs === true || this.#clock.monotonic() >= deadline) return
      await new Promise<void>((resolve) => this.#clock.setTimer(this.#options.lookSeconds ?? LOOK_SECONDS, resolve))
    }
  }

  /**
   * Returns a VM's status; undefined if the query fails. A failed query proves nothing about the VM, which was created.
   */
  async #glance(id: string): Promise<RunStatus | undefined> {
    try {
      return (await this.#look()).get(id)
    } catch (error) {
      if (error instanceof CloudError) return undefined
      throw error
    }
  }

  /** Returns the status of the subscription's VMs, by id. All waiting launches share one call. */
  #look(): Promise<Map<string, RunStatus>> {
    const account = this.#account
    account.looking ??= this.#runStatuses().finally(() => {
      account.looking = undefined
    })
    return account.looking
  }

  async #runStatuses(): Promise<Map<string, RunStatus>> {
    return await this.#account.arm.call("read", async ({ compute }, options) => {
      const statuses = new Map<string, RunStatus>()
      for await (const machine of compute.virtualMachines.listAll({ ...options, statusOnly: "true" })) {
        statuses.set(idOf(machine), readRunStatus(machine.instanceView?.statuses ?? []))
      }
      return statuses
    })
  }

  /** Lets the VM delete itself. If Azure rejects that for certain, the VM is deleted: it would outlive its job. */
  async #letDeleteItself(
    right: { vmId: string; principalId: string; roleId: string },
    at: Named,
    fence?: () => void,
  ): Promise<void> {
    try {
      await letDeleteItself(this.#account.arm, right, fence)
    } catch (error) {
      if (!(error instanceof CloudError)) throw error
      if (error.code === "RoleAssignmentExists") return
      if (error instanceof TransientError || error instanceof OutcomeUnknownError) {
        throw new OutcomeUnknownError(error.code, `the VM is created: ${error.message}`, { cause: error })
      }
      await afterAcceptance(this.#delete(at, fence))
      throw error
    }
  }

  async #roleId(): Promise<string> {
    const account = this.#account
    account.role ??= vmRoleId(account.arm).catch((error: unknown) => {
      account.role = undefined
      throw error
    })
    return await account.role
  }

  async #place(spec: LaunchSpec, fence?: () => void): Promise<Place> {
    const { arm, places } = this.#account
    const { installation } = spec
    const named = namedSubnet(spec, arm.subscription)
    const key = `${groupName(installation, this.#region)}/${named === undefined ? "" : idOfSubnet(named)}`
    const { lookSeconds = LOOK_SECONDS } = this.#options
    const making =
      places.get(key) ??
      placeFor(arm, { installation, region: this.#region, named }, { lookSeconds, fence }).catch((error: unknown) => {
        places.delete(key)
        if (!(error instanceof InvalidRequestError)) throw error
        // This call comes before anything of the offer, so its error holds for the whole region.
        throw new RegionError(error.code, error.message, { cause: error })
      })
    places.set(key, making)
    return await making
  }

  /**
   * Lists VMs, and deletes those that have stopped or were never provisioned. Both are billed, and nothing starts them
   * again, so deleting them needs no fence. If the deletion fails, the VM is listed as running, because it is billed.
   * The caller then terminates it and gets the error.
   */
  async list({ installation, region }: Scope): Promise<Vm[]> {
    const group = groupName(installation, region)
    const machines = await this.#machines(group)
    if (machines.length === 0) return []
    const [statuses, addresses] = await Promise.all([this.#look(), this.#addresses(group)])
    return await Promise.all(
      machines.map(async (machine): Promise<Vm> => {
        const status = statuses.get(idOf(machine))
        const vm = this.#show(machine, status)
        const ipAddress = addresses.get(vm.launch)
        const stays = this.#isLeftOver(machine, status) && !(await this.#ends({ group, name: machine.name ?? "" }))
        return { ...vm, ...(stays && { state: "running" }), ...defined({ ipAddress }) }
      }),
    )
  }

  async #ends(at: Named): Promise<boolean> {
    try {
      await this.#delete(at)
      return true
    } catch (error) {
      if (error instanceof CloudError) return false
      throw error
    }
  }

  async #machines(group: string): Promise<VirtualMachine[]> {
    return await this.#account.arm.call("read", async ({ compute }, options) => {
      try {
        const machines: VirtualMachine[] = []
        for await (const machine of compute.virtualMachines.list(group, options)) machines.push(machine)
        return machines
      } catch (error) {
        if (errorStatus(error) === 404) return []
        throw error
      }
    })
  }

  /** Returns public addresses by Launch. */
  async #addresses(group: string): Promise<Map<string, string>> {
    return await this.#account.arm.call("read", async ({ network }, options) => {
      const addresses = new Map<string, string>()
      for await (const { tags, ipAddress } of network.publicIPAddresses.list(group, options)) {
        const launch = tags?.[LAUNCH_TAG]
        if (launch !== undefined && ipAddress !== undefined) addresses.set(launch, ipAddress)
      }
      return addresses
    })
  }

  #isLeftOver({ provisioningState, timeCreated }: VirtualMachine, status: RunStatus | undefined): boolean {
    if (provisioningState === "Deleting" || status === undefined) return false
    if (status.stopped) return true
    const age = (this.#clock.now().getTime() - (timeCreated?.getTime() ?? 0)) / 1000
    return status.failure !== undefined && !status.runs && age > FAILED_SECONDS
  }

  async terminate(vm: VmRef, fence?: () => void): Promise<void> {
    const { subscription } = this.#account.arm
    const parts = ID.exec(vm.id.toLowerCase())?.groups ?? {}
    const { group, name } = parts
    if (group === undefined || name === undefined || parts["subscription"] !== subscription.toLowerCase()) {
      throw new InvalidRequestError("MalformedId", `"${vm.id}" is not the id of a Berth VM in this subscription`)
    }
    await this.#delete({ group, name }, fence)
  }

  async #delete({ group, name }: Named, fence?: () => void): Promise<void> {
    await this.#account.arm.call(
      "change",
      async ({ compute }, options) => {
        try {
          // Does not wait for the operating system to shut down: the agent has already sent its last report.
          await compute.virtualMachines.delete(group, name, { ...options, forceDeletion: true }).submitted()
        } catch (error) {
          if (errorStatus(error) !== 404) throw error
        }
      },
      fence,
    )
  }

  async verify(): Promise<Identity> {
    const { arm } = this.#account
    const path = `/subscriptions/${arm.subscription}`
    await arm.request("read", { method: "GET", path, apiVersion: SUBSCRIPTIONS_API })
    return { account: arm.subscription }
  }

  #show(machine: VirtualMachine, status: RunStatus | undefined): Vm {
    const { tags, timeCreated } = machine
    return {
      id: idOf(machine),
      launch: tags?.[LAUNCH_TAG] ?? "",
      installation: tags?.[INSTALLATION_TAG] ?? "",
      region: this.#region,
      state: stateOf(machine, status),
      createTime: (timeCreated ?? this.#clock.now()).toISOString(),
    }
  }
}

interface Named {
  group: string
  name: string
}

/**
 * Returns the id in lower case: Azure spells the same id in several ways. Its lists have the resource group in
 * capitals.
 */
function idOf({ id = "" }: VirtualMachine): string {
  return id.toLowerCase()
}

const ID =
  /^\/subscriptions\/(?<subscription>[0-9a-f-]{36})\/resourcegroups\/(?<group>berth-[a-z0-9-]+)\/providers\/microsoft\.compute\/virtualmachines\/(?<name>berth-[a-z0-9-]+)$/

function stateOf({ provisioningState }: VirtualMachine, status: RunStatus | undefined): CloudVmState {
  if (provisioningState === "Deleting" || status?.stopped === true) return "terminating"
  if (status?.runs === true) return "running"
  return status?.failure === undefined ? "booting" : "terminating"
}
