import { isDeepStrictEqual } from "node:util"
import type { Cloud, CloudAccount, Clouds, LaunchSpec, Scope, Vm, VmRef } from "../../src/clouds/cloud.ts"
import type { Clock } from "../../src/core/apis/clock.ts"
import {
  CapacityError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  TransientError,
} from "../../src/core/outbound/errors.ts"

/** Fault of a launch call. `answerLost`: the VM is created, and the response is lost. */
export type Fault = "capacity" | "transient" | "answerLost"

interface SimVm {
  vm: Vm
  /** Spec of the launch call that created it. */
  spec: LaunchSpec | undefined
  /** Monotonic seconds from which lists show it. */
  visibleAt: number
}

/** A cloud in memory, with the behaviour that the interface requires and the faults of real clouds. */
export class SimCloud implements Clouds {
  /** Every VM that was ever created. */
  readonly vms: SimVm[] = []
  /** Faults of the next launch calls, by machine type or for any; `outage` begins with the fault. */
  readonly faults: { fault: Fault; instanceType?: string; outage?: Error }[] = []
  /** Breaches of the interface's contract by its caller. */
  readonly breaches: string[] = []
  /** Text on each VM's console; "forbidden": the credentials may not read it. */
  consoleText = ""
  /** Ids of the VMs whose console was read. */
  readonly consoleReads: string[] = []
  consistencySeconds = 0
  listsFail = false
  /** Error of every launch call, before anything happens; undefined: none. */
  outage: Error | undefined
  /** True if a repeated launch returns its ended VM; otherwise it creates another VM, like Azure's. */
  remembersEnded = true
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  open(account: CloudAccount): Promise<Cloud> {
    if (account.cloud !== "sim") throw new InvalidRequestError("UnknownCloud", `no cloud "${account.cloud}"`)
    return Promise.resolve({
      consistencySeconds: this.consistencySeconds,
      launch: (spec, fence) => this.#launch(spec, account, fence),
      list: (scope) => this.#list(scope),
      terminate: (ref, fence) => this.#terminate(ref, fence),
      consoleOf: ({ id }) => this.#consoleOf(id),
      verify: () => Promise.resolve({ account: "sim" }),
    })
  }

  /** VMs that run or are billed. */
  get alive(): Vm[] {
    return this.vms.map(({ vm }) => vm).filter((vm) => vm.state !== "terminated")
  }

  of(launch: string): Vm[] {
    return this.vms.map(({ vm }) => vm).filter((vm) => vm.launch === launch)
  }

  /** Removes the VM, like a preemption or an outage. */
  lose(id: string, preempted = false): void {
    this.#end(id, preempted)
  }

  /** Ends the VM of a Launch, and keeps no record of it, like Azure. */
  forget(launch: string): void {
    for (const found of this.vms.filter(({ vm }) => vm.launch === launch)) {
      this.#end(found.vm.id, false)
      found.visibleAt = Number.POSITIVE_INFINITY
    }
  }

  /** Creates a VM that no Launch knows. */
  plant(installation: string, launch: string, createTime: string): Vm {
    const vm: Vm = {
      id: `vm-${this.vms.length + 1}`,
      launch,
      installation,
      region: "here",
      state: "running",
      createTime,
    }
    this.vms.push({ vm, spec: undefined, visibleAt: 0 })
    return vm
  }

  async #launch(spec: LaunchSpec, account: CloudAccount, fence?: () => void): Promise<Vm> {
    await Promise.resolve()
    fence?.()
    if (this.outage !== undefined) throw this.outage
    if (spec.userData === "" || spec.lifetimeSeconds <= 0) this.breaches.push(`bad spec of ${spec.name}`)
    const made = this.vms.find(
      ({ vm }) => vm.launch === spec.name && (this.remembersEnded || vm.state !== "terminated"),
    )
    if (made !== undefined) {
      if (!isDeepStrictEqual(made.spec, spec)) this.breaches.push(`another spec for ${spec.name}`)
      return { ...made.vm }
    }
    const fault = this.#nextFault(spec)
    if (fault === "capacity") throw new CapacityError("SimCapacity", "no such machine is free")
    if (fault === "transient") throw new TransientError("SimThrottled", "slow down")
    const vm: Vm = {
      id: `vm-${this.vms.length + 1}`,
      launch: spec.name,
      installation: spec.installation,
      region: account.region,
      state: "running",
      createTime: this.#clock.now().toISOString(),
    }
    const visibleAt = this.#clock.monotonic() + this.consistencySeconds
    this.vms.push({ vm, spec: structuredClone(spec), visibleAt })
    if (fault === "answerLost") throw new OutcomeUnknownError("SimTimeout", "the connection was reset")
    return { ...vm }
  }

  #nextFault({ offer }: LaunchSpec): Fault | undefined {
    const index = this.faults.findIndex(
      ({ instanceType }) => instanceType === undefined || instanceType === offer.instanceType,
    )
    const [found] = index === -1 ? [] : this.faults.splice(index, 1)
    this.outage ??= found?.outage
    return found?.fault
  }

  async #list({ installation, region }: Scope): Promise<Vm[]> {
    await Promise.resolve()
    if (this.listsFail) throw new TransientError("SimDown", "try again later")
    return this.vms
      .filter(
        ({ vm, visibleAt }) =>
          vm.installation === installation && vm.region === region && visibleAt <= this.#clock.monotonic(),
      )
      .map(({ vm }) => ({ ...vm }))
  }

  async #consoleOf(id: string): Promise<string> {
    await Promise.resolve()
    this.consoleReads.push(id)
    if (this.consoleText === "forbidden") throw new CredentialsError("SimForbidden", "no right to read consoles")
    return this.consoleText
  }

  async #terminate({ id }: VmRef, fence?: () => void): Promise<void> {
    await Promise.resolve()
    fence?.()
    if (!this.vms.some(({ vm }) => vm.id === id)) this.breaches.push(`terminate of unknown ${id}`)
    this.#end(id, false)
  }

  #end(id: string, preempted: boolean): void {
    const found = this.vms.find(({ vm }) => vm.id === id)
    if (found === undefined || found.vm.state === "terminated") return
    const terminationTime = this.#clock.now().toISOString()
    found.vm = { ...found.vm, state: "terminated", terminationTime, ...(preempted && { preempted }) }
  }
}
