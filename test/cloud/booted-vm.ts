/** Facts about a VM, for tests that boot something in its place. */
export interface BootedVm {
  name: string
  launch: string
  userData: string
  /** Shuts the machine down from within. */
  powerOff(): void
}

/** Callback for each VM that starts. The cloud calls the returned function when it deletes the machine. */
export type OnBoot = (vm: BootedVm) => () => void

/** Machines of running VMs, by their id in the cloud. */
export class Machines {
  onBoot: OnBoot | undefined
  /** Names of VMs that were ever started, in order. */
  readonly boots: string[] = []
  readonly #power = new Map<string, () => void>()

  start(id: string, vm: BootedVm): void {
    this.boots.push(vm.name)
    const cut = this.onBoot?.(vm)
    if (cut !== undefined) this.#power.set(id, cut)
  }

  /** Kills the machine after the cloud has deleted the VM. */
  cutPower(id: string): void {
    this.#power.get(id)?.()
    this.#power.delete(id)
  }
}
