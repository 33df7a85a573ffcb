import type { Cloud, CloudAccount, Clouds, Identity, LaunchSpec, Scope, Vm, VmRef } from "../../clouds/cloud.ts"
import { specDigest } from "../../clouds/spec-digest.ts"
import { type Clock, timestamp } from "../../core/apis/clock.ts"
import { type MachineLaunch, OWN_CLOUD, OWN_REGION, type StoredMachine } from "../../core/apis/machine.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { ifFound, isConflict, isNotFound } from "../../core/kube/errors.ts"
import type { Store } from "../../core/kube/store.ts"
import { machineOf, runOn, servesNamespace, whyUnavailable } from "../../core/machines/machine.ts"
import { CapacityError, InvalidRequestError, OutcomeUnknownError, TransientError } from "../../core/outbound/errors.ts"
import { MACHINES } from "../../core/resources.ts"
import { unavailableText } from "../../market/placement/machines.ts"

/** Owner of the field `status.launch` of Machines. */
const FIELD_MANAGER = "berth-machine-launches"

/** Number of attempts at a write that others' writes to the same Machine precede. */
const WRITE_TRIES = 5

export interface OwnCloudOptions {
  client: Pick<KubeClient, "get" | "list" | "patchStatus">
  /** Namespace of all Machines. Absent: every namespace has some. */
  watchNamespace?: string | undefined
  clock: Pick<Clock, "now">
}

/** Opens the cloud of own machines for the project of a Launch, and every other account by other clouds. */
export function withOwnMachines(others: Clouds, options: OwnCloudOptions): Clouds {
  return {
    open: async (account: CloudAccount) =>
      account.cloud === OWN_CLOUD ? new OwnCloud(account.account ?? "", options) : await others.open(account),
  }
}

/** Returns the accounts and regions in which own machines have Launches. */
export function machinesInUse(machines: Pick<Store<StoredMachine>, "list">): CloudAccount[] {
  return machines.list().flatMap(({ status }) => {
    const { namespace, region } = status?.launch ?? {}
    return namespace === undefined || region === undefined ? [] : [{ cloud: OWN_CLOUD, region, account: namespace }]
  })
}

/**
 * The machines that people own, as a cloud to one project: its account is the project's namespace. A VM is a Launch that has
 * a machine. All of it is in the Machines' status, which is read live: a cache proves nothing. Each method throws only the
 * errors of `errors.ts`.
 */
class OwnCloud implements Cloud {
  readonly consistencySeconds = 0
  readonly #namespace: string
  readonly #options: OwnCloudOptions

  constructor(namespace: string, options: OwnCloudOptions) {
    this.#namespace = namespace
    this.#options = options
  }

  /** Gives the machine to the Launch. Its resourceVersion settles every race with other Launches and leaders. */
  async launch(spec: LaunchSpec, fence?: () => void): Promise<Vm> {
    const ref = machineOf(spec.offer.instanceType, this.#namespace)
    for (let tries = 0; tries < WRITE_TRIES; tries++) {
      const machine = await this.#read(ref)
      const known = machine?.status?.launch
      if (machine !== undefined && known?.name === spec.name) return this.#found(machine, known, spec)
      const written = await this.#give(machine, spec, fence)
      if (written?.status?.launch !== undefined) return toVm(written, written.status.launch, this.#options.clock.now())
    }
    throw new TransientError("Conflict", `machine ${spec.offer.instanceType} changes too fast`)
  }

  #found(machine: StoredMachine, launch: MachineLaunch, spec: LaunchSpec): Vm {
    if (launch.specDigest === specDigest(spec)) return toVm(machine, launch, this.#options.clock.now())
    const message = `launch ${spec.name} got machine ${machine.metadata.name} with another spec: launch under another name`
    throw new InvalidRequestError("LaunchNameTaken", message)
  }

  /** Returns undefined if the Machine has changed since it was read. @throws CapacityError if it can't have the Launch */
  async #give(
    machine: StoredMachine | undefined,
    spec: LaunchSpec,
    fence: (() => void) | undefined,
  ): Promise<StoredMachine | undefined> {
    const { clock } = this.#options
    const name = spec.offer.instanceType
    if (machine === undefined || !servesNamespace(machine, this.#namespace))
      throw new CapacityError("MachineGone", `the project has no machine ${name} any more`)
    const why = whyUnavailable(machine, clock.now())
    if (why !== undefined) throw new CapacityError("MachineUnavailable", unavailableText(machine, why))
    const launch: MachineLaunch = {
      name: spec.name,
      installation: spec.installation,
      namespace: this.#namespace,
      region: machine.spec.region ?? OWN_REGION,
      specDigest: specDigest(spec),
      createTime: timestamp(clock.now()),
    }
    fence?.()
    // Null removes what the Launch before it had.
    return await this.#write(machine, { ...launch, endTime: null })
  }

  async list({ installation, region }: Scope): Promise<Vm[]> {
    const machines = await this.#all()
    const now = this.#options.clock.now()
    return machines.flatMap((machine) => {
      const launch = machine.status?.launch
      if (launch === undefined || launch.namespace !== this.#namespace) return []
      return launch.installation === installation && launch.region === region ? [toVm(machine, launch, now)] : []
    })
  }

  async terminate(vm: VmRef, fence?: () => void): Promise<void> {
    const [namespace = "", name = ""] = vm.id.split("/")
    for (let tries = 0; tries < WRITE_TRIES; tries++) {
      const machine = await this.#read({ namespace, name })
      const launch = machine?.status?.launch
      if (machine === undefined || launch?.name !== vm.launch || launch.endTime !== undefined) return
      if (runOn(machine, this.#options.clock.now()).is === "over") return
      fence?.()
      if ((await this.#write(machine, { endTime: timestamp(this.#options.clock.now()) })) !== undefined) return
    }
    throw new TransientError("Conflict", `machine ${namespace}/${name} changes too fast`)
  }

  async verify(): Promise<Identity> {
    return { account: this.#namespace }
  }

  async #read(ref: { namespace: string; name: string }): Promise<StoredMachine | undefined> {
    try {
      return await ifFound(this.#options.client.get(MACHINES, ref))
    } catch (cause) {
      throw new TransientError("Unread", `machine ${ref.namespace}/${ref.name} could not be read`, { cause })
    }
  }

  async #all(): Promise<readonly StoredMachine[]> {
    const { client, watchNamespace: namespace } = this.#options
    try {
      return (await client.list(MACHINES, namespace === undefined ? {} : { namespace })).items
    } catch (cause) {
      throw new TransientError("Unread", "the machines could not be read", { cause })
    }
  }

  /** Returns undefined if the Machine has changed since it was read, or is deleted. */
  async #write(
    { metadata: { namespace, name, resourceVersion } }: StoredMachine,
    launch: { [Field in keyof MachineLaunch]?: MachineLaunch[Field] | null },
  ): Promise<StoredMachine | undefined> {
    const merge = { metadata: { resourceVersion }, status: { launch } }
    try {
      return await this.#options.client.patchStatus(
        MACHINES,
        { namespace, name },
        { merge },
        { fieldManager: FIELD_MANAGER },
      )
    } catch (cause) {
      if (isConflict(cause) || isNotFound(cause)) return undefined
      const message = `the write to machine ${namespace}/${name} had no answer`
      throw new OutcomeUnknownError("Unanswered", message, { cause })
    }
  }
}

const STATES = { assigned: "booting", running: "running", ending: "terminating", over: "terminated" } as const

/** Returns a Launch that has a machine, or had it last, as the VM of a cloud. */
function toVm(machine: StoredMachine, launch: MachineLaunch, now: Date): Vm {
  const { namespace, name } = machine.metadata
  const run = runOn(machine, now)
  return {
    id: `${namespace}/${name}/${launch.name}`,
    launch: launch.name,
    installation: launch.installation,
    region: launch.region,
    state: run.is === "none" ? "booting" : STATES[run.is],
    createTime: launch.createTime,
    ...(run.is === "over" && { terminationTime: run.endTime }),
  }
}
