/** What a VM's machine knows of itself, for tests that boot something in the place of it. */
export interface BootedVm {
  name: string
  launch: string
  userData: string
  /** The machine's own shutdown. */
  powerOff(): void
}

/** Told of each VM that starts; what it answers is called when the cloud takes the machine away. */
export type OnBoot = (vm: BootedVm) => () => void

/** The machines of VMs that run, by the id that their cloud knows them by. */
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

  /** The cloud has removed the VM. */
  cutPower(id: string): void {
    this.#power.get(id)?.()
    this.#power.delete(id)
  }
}
