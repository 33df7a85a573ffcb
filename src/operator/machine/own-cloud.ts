import type { Cloud, CloudAccount, Clouds, Identity, LaunchSpec, Scope, Vm, VmRef } from "../../clouds/cloud.ts"
import { specDigest } from "../../clouds/spec-digest.ts"
import { type Clock, timestamp } from "../../core/apis/clock.ts"
import {
  type MachineLaunch,
  OWN_CLOUD,
  OWN_REGION,
  PREVIOUS_LAUNCHES,
  type PreviousLaunch,
  type StoredMachine,
} from "../../core/apis/machine.ts"
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
      const known = machine && heldOn(machine).find(({ launch }) => launch.name === spec.name)
      if (known !== undefined) return found(known, spec)
      const [given] = heldOn(await this.#give(machine, spec, fence))
      if (given !== undefined) return given.vm
    }
    throw new TransientError("Conflict", `machine ${spec.offer.instanceType} changes too fast`)
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
    const why = whyUnavailable(machine)
    if (why !== undefined) throw new CapacityError("MachineUnavailable", unavailableText(machine, why))
    const launch: MachineLaunch = {
      name: spec.name,
      installation: spec.installation,
      namespace: this.#namespace,
      region: machine.spec.region ?? OWN_REGION,
      specDigest: specDigest(spec),
      createTime: timestamp(clock.now()),
      ...previousOf(machine),
    }
    fence?.()
    // Null removes what the Launch before it had.
    return await this.#write(machine, { ...launch, endTime: null, lostTime: null })
  }

  async list({ installation, region }: Scope): Promise<Vm[]> {
    const machines = await this.#all()
    return machines
      .flatMap(heldOn)
      .filter(({ launch }) => launch.namespace === this.#namespace)
      .filter(({ launch }) => launch.installation === installation && launch.region === region)
      .map(({ vm }) => vm)
  }

  async terminate(vm: VmRef, fence?: () => void): Promise<void> {
    const [namespace = "", name = ""] = vm.id.split("/")
    for (let tries = 0; tries < WRITE_TRIES; tries++) {
      const machine = await this.#read({ namespace, name })
      const launch = machine?.status?.launch
      if (machine === undefined || launch?.name !== vm.launch || launch.endTime !== undefined) return
      if (runOn(machine).is === "over") return
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

/** Launch that has or had a machine, and its VM as a cloud shows it. */
interface Held {
  launch: Omit<PreviousLaunch, "terminationTime">
  vm: Vm
}

/**
 * Returns the Launches that have or had a machine, the last one first. The next one may get the machine before a list shows
 * the end of the former one, whose bill needs it.
 */
function heldOn(machine: StoredMachine | undefined): Held[] {
  const { launch } = machine?.status ?? {}
  if (machine === undefined || launch === undefined) return []
  const run = runOn(machine)
  const state = run.is === "none" ? "booting" : STATES[run.is]
  const present = toVm(machine, launch, { state, ...(run.is === "over" && { terminationTime: run.endTime }) })
  const previous = (launch.previous ?? []).map(({ terminationTime, ...one }) => ({
    launch: one,
    vm: toVm(machine, one, { state: "terminated", terminationTime }),
  }))
  return [{ launch, vm: present }, ...previous]
}

function toVm(
  { metadata }: StoredMachine,
  { name, installation, region, createTime }: Held["launch"],
  state: Pick<Vm, "state" | "terminationTime">,
): Vm {
  const id = `${metadata.namespace}/${metadata.name}/${name}`
  return { id, launch: name, installation, region, createTime, ...state }
}

/** Returns the VM of a Launch that got its machine by this request. @throws InvalidRequestError: it was another one */
function found({ launch, vm }: Held, spec: LaunchSpec): Vm {
  if (launch.specDigest === specDigest(spec)) return vm
  const message = `launch ${spec.name} got machine ${spec.offer.instanceType} with another spec: launch under another name`
  throw new InvalidRequestError("LaunchNameTaken", message)
}

/** Returns the Launches that had a free machine until now, the last one first. */
function previousOf(machine: StoredMachine): Pick<MachineLaunch, "previous"> {
  const run = runOn(machine)
  if (run.is !== "over") return {}
  const { previous = [], endTime: _, lostTime: __, ...launch } = run.launch
  return { previous: [{ ...launch, terminationTime: run.endTime }, ...previous].slice(0, PREVIOUS_LAUNCHES) }
}
