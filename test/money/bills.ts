/**
 * Bills of clouds for VMs, written from their public rules and not from Berth's code:
 * - AWS (https://aws.amazon.com/ec2/pricing/, https://aws.amazon.com/ebs/pricing/, https://aws.amazon.com/vpc/pricing/):
 *   machine, disk and address by the second, at least a minute. A spot machine at its present price. If AWS interrupts it
 *   within its first hour, the machine is free.
 * - Google Cloud (https://cloud.google.com/compute/vm-instance-pricing): by the second, at least a minute. A spot machine at its
 *   present price, which is never above on-demand.
 * - Azure (https://azure.microsoft.com/pricing/details/virtual-machines/linux/): by the second. A spot machine at its present price, at
 *   most the VM's maximum price.
 * - Nebius (https://docs.nebius.com/compute/resources/pricing): by the second. Preemptible VMs at their present price.
 */

/** VM as its cloud knows it. */
export interface BilledVm {
  cloud: "aws" | "gcp" | "azure" | "nebius"
  isSpot: boolean
  /** Unix times, seconds. */
  begin: number
  end: number
  /** True if the cloud ended it. */
  isInterrupted: boolean
  /** Price of the machine, dollars an hour, from its time on. The first is that of the beginning. */
  machinePrices: readonly { from: number; hourly: number }[]
  diskHourly: number
  addressHourly: number
}

const MINUTE = 60
const HOUR = 3600

/** Returns the dollars that a cloud bills for a VM in each calendar month (UTC), such as `2026-11`. */
export function billOf(vm: BilledVm): Map<string, number> {
  const shortest = vm.cloud === "azure" || vm.cloud === "nebius" ? 0 : MINUTE
  // A minimum extends the last second.
  const end = Math.max(vm.end, vm.begin + shortest)
  const isFree = vm.cloud === "aws" && vm.isSpot && vm.isInterrupted && vm.end - vm.begin < HOUR
  const bill = new Map<string, number>()
  const charge = (from: number, to: number, hourly: number): void => {
    for (let at = from; at < to; ) {
      const next = Math.min(to, beginOfNextMonth(at))
      const month = new Date(at * 1000).toISOString().slice(0, 7)
      bill.set(month, (bill.get(month) ?? 0) + ((next - at) / HOUR) * hourly)
      at = next
    }
  }
  for (const [index, { from, hourly }] of vm.machinePrices.entries()) {
    const until = vm.machinePrices[index + 1]?.from ?? end
    if (!isFree) charge(Math.max(from, vm.begin), Math.min(until, end), hourly)
  }
  charge(vm.begin, end, vm.diskHourly)
  charge(vm.begin, end, vm.addressHourly)
  return bill
}

function beginOfNextMonth(seconds: number): number {
  const time = new Date(seconds * 1000)
  return Date.UTC(time.getUTCFullYear(), time.getUTCMonth() + 1, 1) / 1000
}
