import type { Offer } from "../../core/apis/offer.ts"
import {
  afterAcceptance,
  CloudError,
  checkRegion,
  InvalidRequestError,
  OutcomeUnknownError,
  RegionError,
  TransientError,
} from "../../core/outbound/errors.ts"
import type { Cloud, CloudVmState, Identity, LaunchSpec, Scope, Vm, VmRef } from "../cloud.ts"
import type { RegionOpener } from "../provider.ts"
import { specDigest } from "../spec-digest.ts"
import type { ClientOf, Nebius, Project } from "./client.ts"
import { isAlreadyThere, isNotFound } from "./errors.ts"
import { closedGroup, forgetNetworks, subnetFor } from "./network.ts"
import { type FollowOptions, follow, type Operation } from "./operation.ts"
import {
  buildInstance,
  INSTALLATION_LABEL,
  idempotencyKey,
  imageFamily,
  LAUNCH_LABEL,
  SPEC_LABEL,
  vmName,
} from "./request.ts"

export interface NebiusOptions extends FollowOptions {
  /** Default 30. The API's description says nothing of its lists. */
  consistencySeconds?: number
}

const CONSISTENCY_SECONDS = 30
const INSTANCES = "compute.v1.InstanceService"

/** A VM, with what is read of it (nebius/compute/v1/instance.proto). */
interface Instance {
  metadata: { id: string; name: string; createdAt?: string; labels?: Record<string, string> }
  spec?: { preemptible?: object }
  status?: { state?: string; reconciling?: boolean; networkInterfaces?: { publicIpAddress?: { address?: string } }[] }
}

interface PublicImage {
  metadata: { id: string; createdAt?: string }
  spec: { imageFamily?: string; cpuArchitecture?: string }
  status?: { state?: string }
}

/** Opens Nebius' regions. */
export function openNebius(clientOf: ClientOf, options: NebiusOptions = {}): RegionOpener {
  return (credentials, region) => new NebiusCloud(clientOf(credentials), region, options)
}

/** The project of a connection in one region. A VM's name and the key of its request derive from its Launch. */
class NebiusCloud implements Cloud {
  readonly consistencySeconds: number
  readonly #nebius: Nebius
  readonly #region: string
  readonly #options: NebiusOptions

  constructor(nebius: Nebius, region: string, options: NebiusOptions) {
    this.#nebius = nebius
    this.#region = region
    this.#options = options
    this.consistencySeconds = options.consistencySeconds ?? CONSISTENCY_SECONDS
  }

  /** Returns the newest image of the machine's family that is public in the region. */
  readonly imageFor = async (offer: Offer): Promise<string> => {
    const family = imageFamily(offer)
    const all = (await this.#nebius.list("compute.v1.ImageService/ListPublic", {
      region: this.#region,
    })) as unknown as PublicImage[]
    const isOurs = ({ spec, status }: PublicImage) =>
      spec.imageFamily === family && status?.state === "READY" && spec.cpuArchitecture !== "ARM64"
    const [newest] = all.filter(isOurs).sort((one, other) => createdAt(other) - createdAt(one))
    if (newest !== undefined) return newest.metadata.id
    throw new RegionError("NoImage", `${this.#region} has no public image of the family ${family}`)
  }

  async launch(spec: LaunchSpec, fence?: () => void): Promise<Vm> {
    checkRegion(spec.offer, this.#region)
    const name = vmName(spec)
    const project = await this.#nebius.projectIn(this.#region)
    const found = await this.#find(project, name)
    if (found !== undefined) this.#refuseOther(spec, found)
    if (found !== undefined && hasStarted(found)) return this.#show(found)
    // A VM that is being created may still be rejected. A rejected one is left stopped, until a list deletes it. The
    // repeated request returns the result.
    const creation = this.#create(spec, project, fence)
    const operation = await (found === undefined ? creation : afterAcceptance(creation))
    if (operation !== undefined) await this.#follow(operation, spec, project)
    const instance = await afterAcceptance(this.#find(project, name))
    if (instance !== undefined) {
      this.#refuseOther(spec, instance)
      return this.#show(instance)
    }
    if (operation === undefined) throw new TransientError("Vanished", `${name} existed, and is deleted`)
    // The answer was the operation of an earlier request, whose VM has ended.
    return {
      ...{ id: operation.resourceId ?? "", launch: spec.name, installation: spec.installation, region: this.#region },
      ...{ state: "terminated", createTime: utc(operation.createdAt) },
    }
  }

  /** Returns the operation that creates the VM; undefined if a VM of that name exists already. */
  async #create(spec: LaunchSpec, project: Project, fence?: () => void): Promise<Operation | undefined> {
    const { metadata, spec: subnet } = await subnetFor(this.#nebius, project, spec)
    const parts = { project, networkId: subnet.networkId }
    const securityGroupId = await closedGroup(this.#nebius, parts, { ...this.#options, fence })
    const imageId = spec.imageId ?? (await this.imageFor(spec.offer))
    const request = buildInstance(spec, { projectId: project.id, subnetId: metadata.id, securityGroupId, imageId })
    const options = { effect: "change", fence, idempotencyKey: idempotencyKey(spec) } as const
    try {
      return (await this.#nebius.call(`${INSTANCES}/Create`, request, options)) as Operation
    } catch (error) {
      if (isAlreadyThere(error)) return undefined
      if (isNotFound(error)) forgetNetworks(this.#nebius)
      throw error
    }
  }

  /** Waits for the VM. A rejected one may be left in the state ERROR, with a disk that is billed: it is deleted. */
  async #follow(operation: Operation, spec: LaunchSpec, project: Project): Promise<void> {
    try {
      await follow(this.#nebius, operation, { ...this.#options, startedBy: `${INSTANCES}/Create` })
    } catch (error) {
      if (error instanceof OutcomeUnknownError || !(error instanceof CloudError)) throw error
      if (isNotFound(error)) forgetNetworks(this.#nebius)
      const left = await afterAcceptance(this.#find(project, vmName(spec)))
      if (left !== undefined) await afterAcceptance(this.#delete(left.metadata.id))
      throw error
    }
  }

  async #find({ id: parentId }: Project, name: string): Promise<Instance | undefined> {
    return await this.#ifFound(this.#nebius.call(`${INSTANCES}/GetByName`, { parentId, name }))
  }

  async #ifFound(call: Promise<object>): Promise<Instance | undefined> {
    try {
      return (await call) as Instance
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }

  #refuseOther(spec: LaunchSpec, { metadata: { name, labels } }: Instance): void {
    if (labels?.[SPEC_LABEL] === specDigest(spec) && labels[INSTALLATION_LABEL] === spec.installation) return
    const message = `a VM named ${name} was launched from another spec: launch under another name`
    throw new InvalidRequestError("LaunchNameTaken", message)
  }

  /**
   * Lists VMs, and deletes those that have stopped: their disks are billed, and nothing starts them again, so deleting
   * them needs no fence. If the deletion fails, the VM is listed as running. The caller then terminates it and gets the
   * error.
   */
  async list({ installation, region }: Scope): Promise<Vm[]> {
    const project = (await this.#nebius.projects()).find((each) => each.region === region)
    if (project === undefined) return []
    const all = (await this.#nebius.list(`${INSTANCES}/List`, { parentId: project.id })) as unknown as Instance[]
    const own = all.filter(({ metadata }) => metadata.labels?.[INSTALLATION_LABEL] === installation)
    return await Promise.all(
      own.map(async (instance) => {
        const vm = this.#show(instance)
        return hasStopped(instance) && !(await this.#ends(instance)) ? { ...vm, state: "running" } : vm
      }),
    )
  }

  async #ends({ metadata: { id } }: Instance): Promise<boolean> {
    try {
      await this.#delete(id)
      return true
    } catch (error) {
      if (error instanceof CloudError) return false
      throw error
    }
  }

  async terminate({ id }: VmRef, fence?: () => void): Promise<void> {
    if (!/^[a-z0-9-]+$/.test(id)) {
      throw new InvalidRequestError(
        "MalformedId",
        `"${id}" is not the id of a VM: an example is computeinstance-e00abc`,
      )
    }
    await this.#delete(id, fence)
  }

  async #delete(id: string, fence?: () => void): Promise<void> {
    try {
      await this.#nebius.call(`${INSTANCES}/Delete`, { id }, { effect: "change", fence })
    } catch (error) {
      if (isNotFound(error)) return
      // A resource has one operation at a time. It may be an earlier deletion.
      if (!(error instanceof TransientError) || (await this.#isDeleting(id)) === false) throw error
    }
  }

  async #isDeleting(id: string): Promise<boolean> {
    const instance = await this.#ifFound(this.#nebius.call(`${INSTANCES}/Get`, { id }))
    return instance === undefined || instance.status?.state === "DELETING"
  }

  verify(): Promise<Identity> {
    return this.#nebius.identity()
  }

  #show(instance: Instance): Vm {
    const { metadata, spec, status } = instance
    const address = status?.networkInterfaces?.[0]?.publicIpAddress?.address
    return {
      id: metadata.id,
      launch: metadata.labels?.[LAUNCH_LABEL] ?? "",
      installation: metadata.labels?.[INSTALLATION_LABEL] ?? "",
      region: this.#region,
      state: isBeingCreated(instance) ? "booting" : (STATES[status?.state ?? ""] ?? "terminating"),
      createTime: utc(metadata.createdAt),
      // Addresses are written as networks of one address.
      ...(address && { ipAddress: address.replace(/\/\d+$/, "") }),
      // Nebius says no cause. Other than by itself, nothing but a preemption stops the VM.
      ...(hasStopped(instance) && spec?.preemptible !== undefined && { preempted: true }),
    }
  }
}

/** All other states mean that the VM is stopping or has stopped; `list` deletes it. */
const STATES: Readonly<Record<string, CloudVmState>> = {
  UPDATING: "running",
  STARTING: "booting",
  RUNNING: "running",
}

/**
 * Returns true while the operation that creates the VM runs. A new VM is STOPPED at first
 * (https://docs.nebius.com/compute/virtual-machines/lifecycle); one that has stopped has no `reconciling`.
 */
function isBeingCreated({ status: { state = "", reconciling = false } = {} }: Instance): boolean {
  return state === "CREATING" || (reconciling && (state === "STOPPED" || state === "STARTING"))
}

function hasStarted(instance: Instance): boolean {
  return STATES[instance.status?.state ?? ""] !== undefined && !isBeingCreated(instance)
}

function hasStopped(instance: Instance): boolean {
  return ["STOPPED", "ERROR"].includes(instance.status?.state ?? "") && !isBeingCreated(instance)
}

function createdAt({ metadata }: PublicImage): number {
  return Date.parse(metadata.createdAt ?? "") || 0
}

function utc(time: string | undefined): string {
  return new Date(time ?? 0).toISOString()
}
