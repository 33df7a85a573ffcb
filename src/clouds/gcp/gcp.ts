import { type Clock, systemClock } from "../../core/apis/clock.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import {
  afterAcceptance,
  CapacityError,
  CloudError,
  checkRegion,
  InvalidRequestError,
  OutcomeUnknownError,
  RegionError,
  TransientError,
} from "../../core/outbound/errors.ts"
import { ByCredentials } from "../by-credentials.ts"
import type { Cloud, CloudVmState, Identity, LaunchSpec, Scope, Vm, VmRef } from "../cloud.ts"
import { derivedIndex } from "../derived.ts"
import type { RegionOpener } from "../provider.ts"
import { specDigest } from "../spec-digest.ts"
import { type CallOptions, type Clients, Compute, type ComputeOptions } from "./compute.ts"
import { isAlreadyThere, isNotFound, operationError } from "./errors.ts"
import { closeInbound } from "./firewall.ts"
import {
  buildInstance,
  buildNetwork,
  type GcpSettings,
  INSTALLATION_LABEL,
  type Instance,
  LAUNCH_LABEL,
  namePrefix,
  requestId,
  SPEC_LABEL,
  vmName,
} from "./machine.ts"
import { networkError } from "./network-error.ts"
import { isDone, type Operation } from "./operation.ts"

export interface GcpOptions extends ComputeOptions {
  settings?: GcpSettings
  /** Network of the VMs, for some regions. */
  networks?: Readonly<Record<string, Pick<GcpSettings, "network" | "subnetwork">>>
  /**
   * Maximum time that a VM's creation is polled, seconds. Afterwards the outcome is unknown, and the next, identical
   * call continues.
   */
  followSeconds?: number
  /** Default 30: reads of single instances see every write, lists lag by seconds. */
  consistencySeconds?: number
  clock?: Clock
}

const FOLLOW_SECONDS = 120
const CONSISTENCY_SECONDS = 30
/** Maximum number of accounts whose clients and tokens are cached. */
const MOST_ACCOUNTS = 100
/** Page size for VMs: Compute Engine's maximum. */
const PAGE_SIZE = 500

/** State of an account, shared by all its regions. */
interface Account {
  compute: Compute
  /** Zones of each region. */
  zones: Map<string, Promise<string[]>>
  /** Networks that reject inbound traffic, as far as this process knows. */
  closed: Map<string, Promise<void>>
}

/** Opens Google Cloud's regions. Clients and tokens of recently used accounts are cached. */
export function openGcp(options: GcpOptions = {}): RegionOpener {
  const accounts = new ByCredentials<Account>(MOST_ACCOUNTS)
  return (credentials: CredentialFields, region: string) => {
    const open = () => ({ compute: new Compute(credentials, options), zones: new Map(), closed: new Map() })
    const account = accounts.get(credentials, open)
    const settings = { ...options.settings, ...options.networks?.[region] }
    return new GcpCloud(account, region, { ...options, settings })
  }
}

/**
 * Compute Engine in one region of one project. A VM's name and the order in which zones are tried derive from its
 * Launch. So a repeated call follows the same order and finds the result of the earlier one.
 */
class GcpCloud implements Cloud {
  readonly consistencySeconds: number
  readonly #account: Account
  readonly #region: string
  readonly #options: GcpOptions
  readonly #clock: Clock

  constructor(account: Account, region: string, options: GcpOptions) {
    this.#account = account
    this.#region = region
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.consistencySeconds = options.consistencySeconds ?? CONSISTENCY_SECONDS
  }

  async launch(spec: LaunchSpec, fence?: () => void): Promise<Vm> {
    checkRegion(spec.offer, this.#region)
    const name = vmName(spec)
    const zones = await this.#zonesFor(spec)
    const found = await this.#find(name, zones)
    if (found !== undefined) this.#refuseOther(spec, found.instance)
    if (found !== undefined && found.instance.status !== "PROVISIONING") return this.#show(found.instance)
    if (found === undefined) await this.#closeInbound(spec, fence)
    // A VM that is being provisioned may still be rejected: the repeated request returns the result.
    const wanted = spec.offer.zone === undefined ? zones.filter((zone) => !AI_ZONE.test(zone)) : zones
    const order = found === undefined ? wanted : [found.zone, ...wanted.filter((zone) => zone !== found.zone)]
    const refusals: string[] = []
    let last: CapacityError | undefined
    for (const zone of order) {
      try {
        return await this.#launchIn(zone, spec, { isThere: zone === found?.zone, fence })
      } catch (error) {
        if (!(error instanceof CapacityError)) throw error
        last = error
        refusals.push(`${zone}: ${error.message}`)
      }
    }
    throw new CapacityError(last?.code ?? "NoZone", refusals.join("; "), { cause: last })
  }

  /** @throws CapacityError if the zone (currently) has no such machine; another zone may */
  async #launchIn(
    zone: string,
    spec: LaunchSpec,
    { isThere, fence }: { isThere: boolean; fence: (() => void) | undefined },
  ): Promise<Vm> {
    const name = vmName(spec)
    const insertion = this.#insert(zone, spec, fence)
    const operation = await (isThere ? afterAcceptance(insertion) : insertion).catch((error: unknown) => {
      throw networkError(error, spec)
    })
    if (operation !== undefined) await this.#follow(zone, operation)
    const instance = await afterAcceptance(this.#get(zone, name))
    if (instance !== undefined) {
      this.#refuseOther(spec, instance)
      return this.#show(instance)
    }
    if (operation === undefined) throw new TransientError("Vanished", `${zone}/${name} existed, and is deleted`)
    // The answer was the operation of an earlier request, whose VM has ended.
    return {
      id: idOf(zone, name),
      launch: spec.name,
      installation: spec.installation,
      region: this.#region,
      state: "terminated",
      createTime: utc(operation.insertTime),
    }
  }

  /** Returns the operation that creates the VM; undefined if a VM of that name exists already. */
  async #insert(zone: string, spec: LaunchSpec, fence?: () => void): Promise<Operation | undefined> {
    const { compute } = this.#account
    const request = {
      project: compute.project,
      zone,
      requestId: requestId(spec, zone),
      instanceResource: buildInstance(spec, zone, this.#options.settings ?? {}),
    }
    const insert = async ({ instances }: Clients, options: CallOptions) => {
      try {
        const [{ latestResponse }] = await instances.insert(request, options)
        return latestResponse as Operation
      } catch (error) {
        if (isAlreadyThere(error)) return undefined
        throw error
      }
    }
    return await compute.call("change", insert, fence)
  }

  /** Waits for an operation's end. @throws its error, classified; OutcomeUnknownError after a timeout */
  async #follow(zone: string, started: Operation): Promise<void> {
    const { compute } = this.#account
    const deadline = this.#clock.monotonic() + (this.#options.followSeconds ?? FOLLOW_SECONDS)
    const name = started.name ?? ""
    let operation = started
    while (!isDone(operation)) {
      if (this.#clock.monotonic() >= deadline) {
        throw new OutcomeUnknownError(
          "OperationPending",
          `operation ${zone}/${name} has not ended: Berth polls it again`,
        )
      }
      // Answers at the operation's end, or after two minutes at most.
      const look = compute.call("read", ({ zoneOperations }, options) =>
        zoneOperations.wait({ project: compute.project, zone, operation: name }, options),
      )
      ;[operation] = await afterAcceptance(look)
    }
    const errors = operation.error?.errors ?? []
    if (errors.length > 0) throw operationError(errors, operation.httpErrorStatusCode ?? 0)
  }

  async #get(zone: string, instance: string): Promise<Instance | undefined> {
    const { compute } = this.#account
    return await compute.call("read", async ({ instances }, options) => {
      try {
        return (await instances.get({ project: compute.project, zone, instance }, options))[0]
      } catch (error) {
        if (isNotFound(error)) return undefined
        throw error
      }
    })
  }

  /** Searches every zone for a VM of this name. Reads of single VMs see writes that a list may not show yet. */
  async #find(name: string, zones: readonly string[]): Promise<{ zone: string; instance: Instance } | undefined> {
    const looks = await Promise.all(zones.map(async (zone) => ({ zone, instance: await this.#get(zone, name) })))
    for (const { zone, instance } of looks) if (instance !== undefined) return { zone, instance }
    return undefined
  }

  #refuseOther(spec: LaunchSpec, instance: Instance): void {
    if (instance.labels?.[SPEC_LABEL] === specDigest(spec)) return
    const message = `a VM named ${instance.name} was launched from another spec: launch under another name`
    throw new InvalidRequestError("LaunchNameTaken", message)
  }

  /**
   * Returns the zones in which the Launch's VM may be. Each Launch has another order, so that jobs spread over the
   * zones.
   */
  async #zonesFor({ name, offer }: LaunchSpec): Promise<string[]> {
    if (offer.zone !== undefined) return [offer.zone]
    const { zones } = this.#account
    const known =
      zones.get(this.#region) ??
      this.#zones().catch((error: unknown) => {
        zones.delete(this.#region)
        throw error
      })
    zones.set(this.#region, known)
    const all = await known
    const first = derivedIndex(name, all.length)
    return [...all.slice(first), ...all.slice(0, first)]
  }

  async #zones(): Promise<string[]> {
    const { compute } = this.#account
    const zones = await compute.call("read", async ({ regions }, options) => {
      try {
        const [region] = await regions.get({ project: compute.project, region: this.#region }, options)
        return region.zones ?? []
      } catch (error) {
        if (isNotFound(error)) return []
        throw error
      }
    })
    if (zones.length > 0) return zones.map(lastPart).sort()
    throw new RegionError("NoZone", `region ${this.#region} has no zones that the project may use`)
  }

  async #closeInbound(spec: LaunchSpec, fence?: () => void): Promise<void> {
    const { compute, closed } = this.#account
    const { network } = buildNetwork(spec, this.#options.settings ?? {})
    const closing =
      closed.get(network) ??
      closeInbound(compute, network, fence).catch((error: unknown) => {
        closed.delete(network)
        throw networkError(error, spec)
      })
    closed.set(network, closing)
    await closing
  }

  /**
   * Lists VMs, and deletes those that have stopped. The disk of a stopped VM is billed, and nothing starts the VM
   * again, so deleting it needs no fence. If the deletion fails, the VM is listed as running, because it is billed. The
   * caller then terminates it and gets the error. Compute Engine deletes a reclaimed spot VM; then only an operation
   * shows it.
   */
  async list(scope: Scope): Promise<Vm[]> {
    const [instances, preempted] = await Promise.all([this.#instances(scope), this.#preempted(scope)])
    const shown = await Promise.all(
      instances.map(async (instance): Promise<Vm> => {
        const vm = this.#show(instance)
        return hasStopped(instance) && !(await this.#ends(instance)) ? { ...vm, state: "running" } : vm
      }),
    )
    const ids = new Set(shown.map(({ id }) => id))
    return [...shown, ...preempted.filter(({ id }) => !ids.has(id))]
  }

  async #ends(instance: Instance): Promise<boolean> {
    try {
      await this.#delete(zoneOf(instance), instance.name ?? "")
      return true
    } catch (error) {
      if (error instanceof CloudError) return false
      throw error
    }
  }

  async #instances({ installation, region }: Scope): Promise<Instance[]> {
    const { compute } = this.#account
    const filter = `labels.${INSTALLATION_LABEL} = "${installation}"`
    return await compute.call("read", async (clients, options) => {
      const found: Instance[] = []
      const request = { project: compute.project, filter, maxResults: PAGE_SIZE }
      for await (const [scopeName, list] of clients.instances.aggregatedListAsync(request, {
        ...options,
        autoPaginate: false,
      })) {
        const { code, message } = list.warning ?? {}
        if (code === "UNREACHABLE" && inRegion(scopeName, region)) {
          throw new TransientError(code, `${scopeName} could not be listed: ${message}`)
        }
        if (inRegion(scopeName, region)) found.push(...(list.instances ?? []))
      }
      return found
    })
  }

  async #preempted({ installation, region }: Scope): Promise<Vm[]> {
    const { compute } = this.#account
    const prefix = namePrefix(installation)
    return await compute.call("read", async ({ globalOperations }, options) => {
      const vms: Vm[] = []
      const request = { project: compute.project, filter: 'operationType = "compute.instances.preempted"' }
      for await (const [scopeName, list] of globalOperations.aggregatedListAsync(request, {
        ...options,
        autoPaginate: false,
      })) {
        if (!inRegion(scopeName, region)) continue
        for (const operation of list.operations ?? []) {
          if (!lastPart(operation.targetLink ?? "").startsWith(prefix)) continue
          vms.push({ ...takenBack(operation, lastPart(scopeName), prefix), installation, region })
        }
      }
      return vms
    })
  }

  async terminate(vm: VmRef, fence?: () => void): Promise<void> {
    const { zone, name } = partsOf(vm.id)
    await this.#delete(zone, name, fence)
  }

  /** Sends no request id: a repeated request must be executed, not answered with the earlier error. */
  async #delete(zone: string, instance: string, fence?: () => void): Promise<void> {
    const { compute } = this.#account
    const remove = async ({ instances }: Clients, options: CallOptions) => {
      try {
        await instances.delete({ project: compute.project, zone, instance }, options)
      } catch (error) {
        if (!isNotFound(error)) throw error
      }
    }
    await compute.call("change", remove, fence)
  }

  /** Reads the end of the first serial port. Compute Engine keeps it only while the VM exists. */
  readonly consoleOf = async ({ id }: VmRef): Promise<string | undefined> => {
    const { zone, name: instance } = partsOf(id)
    const { compute } = this.#account
    return await compute.call("read", async ({ instances }, options) => {
      try {
        const request = { project: compute.project, zone, instance, port: 1 }
        return (await instances.getSerialPortOutput(request, options))[0].contents ?? undefined
      } catch (error) {
        if (isNotFound(error)) return undefined
        throw error
      }
    })
  }

  async verify(): Promise<Identity> {
    const { compute } = this.#account
    await compute.call("read", ({ projects }, options) => projects.get({ project: compute.project }, options))
    return { account: compute.project }
  }

  #show(instance: Instance): Vm {
    const { name, labels, status, creationTimestamp, networkInterfaces } = instance
    const ipAddress = networkInterfaces?.[0]?.accessConfigs?.[0]?.natIP
    return {
      id: idOf(zoneOf(instance), name ?? ""),
      launch: labels?.[LAUNCH_LABEL] ?? "",
      installation: labels?.[INSTALLATION_LABEL] ?? "",
      region: this.#region,
      state: STATES[String(status)] ?? "terminating",
      createTime: utc(creationTimestamp),
      ...(ipAddress && { ipAddress }),
    }
  }
}

/** Returns a deleted VM from the operation that shows its preemption. */
function takenBack(operation: Operation, zone: string, prefix: string): Omit<Vm, "installation" | "region"> {
  const { targetLink, insertTime, endTime } = operation
  const name = lastPart(targetLink ?? "")
  return {
    id: idOf(zone, name),
    launch: name.slice(prefix.length),
    state: "terminated",
    createTime: utc(insertTime),
    terminationTime: utc(endTime ?? insertTime),
    preempted: true,
  }
}

/** All other statuses mean that the VM is stopping or has stopped; `list` deletes it. */
const STATES: Readonly<Record<string, CloudVmState>> = {
  PROVISIONING: "booting",
  STAGING: "booting",
  RUNNING: "running",
  REPAIRING: "running",
}

function hasStopped({ status }: Instance): boolean {
  return ["TERMINATED", "STOPPED", "SUSPENDED"].includes(String(status))
}

/** Returns a VM's id with its zone, because Compute Engine finds no VM by its number alone. */
function idOf(zone: string, name: string): string {
  return `zones/${zone}/instances/${name}`
}

function partsOf(id: string): { zone: string; name: string } {
  const { zone, name } = /^zones\/(?<zone>[a-z0-9-]+)\/instances\/(?<name>berth-[a-z0-9-]+)$/.exec(id)?.groups ?? {}
  if (zone !== undefined && name !== undefined) return { zone, name }
  throw new InvalidRequestError("MalformedId", `"${id}" is not the id of a VM: expected zones/ZONE/instances/NAME`)
}

function zoneOf({ zone }: Instance): string {
  return lastPart(zone ?? "")
}

function lastPart(url: string): string {
  return url.slice(url.lastIndexOf("/") + 1)
}

/**
 * AI zones, such as us-central1-ai1a (https://cloud.google.com/compute/docs/regions-zones/ai-zones). They are far from
 * the other zones of their region, and have special accelerators and few other machines. A VM is created there only if
 * its offer names one.
 */
const AI_ZONE = /-ai\d+[a-z]$/

/** Returns true for a scope of an aggregated list, `zones/us-central1-a`, in a region: a zone up to its last dash. */
function inRegion(scope: string, region: string): boolean {
  return /^zones\/(.+)-[a-z0-9]+$/.exec(scope)?.[1] === region
}

/** Converts Compute Engine's times, which have its own time zone. */
function utc(time: string | null | undefined): string {
  return new Date(time ?? 0).toISOString()
}
