import { roundUsd } from "../../src/core/apis/money.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import type { CloudFixture, OpenCloudFixture } from "../faults/crash-clouds.ts"
import { OwnHosts } from "../faults/own-hosts.ts"
import { offerOf } from "../harness/builders.ts"
import { SimCloud } from "../harness/sim-cloud.ts"
import type { Scenario } from "./scenario.ts"

/** Machines of the simulated cloud, USD per hour. */
const MACHINES = [
  { instanceType: "small", hourlyPriceUsd: 0.1, memoryGib: 8 },
  { instanceType: "medium", hourlyPriceUsd: 0.2, memoryGib: 16 },
  { instanceType: "gpu", hourlyPriceUsd: 0.9, memoryGib: 32, gpu: { model: "L4", count: 1, vramGib: 24 } },
] as const

const OFFERS: readonly Offer[] = MACHINES.flatMap((machine) => {
  const offer = { cloud: "sim", region: "here", cpu: 4, minimumBilledSeconds: 60, ...machine }
  return [
    offerOf(offer as Partial<Offer>),
    offerOf({ ...offer, provisioning: "spot", hourlyPriceUsd: machine.hourlyPriceUsd / 4 } as Partial<Offer>),
  ]
})

/** Time for which a host runs on without an answer, seconds: longer than the clock moves between two looks. */
const LEASE_SECONDS = 300

/** The clouds of a scenario, and what they saw. */
export interface TogetherClouds extends CloudFixture {
  cloud: SimCloud
  hosts: OwnHosts
}

/** Opens a simulated cloud and own machines for a scenario. */
export function openClouds({ machines, cloudFaults }: Scenario): OpenCloudFixture & { opened: () => TogetherClouds } {
  let opened: TogetherClouds | undefined
  const open: OpenCloudFixture = async (clock, { client, namespace, systemNamespace, onTerminate }) => {
    const cloud = new SimCloud(clock)
    cloud.remembersEnded = false
    cloud.faults.push(...cloudFaults.map((fault) => ({ fault })))
    const hosts = new OwnHosts({ client, clock, namespace, systemNamespace, onStop: onTerminate })
    for (let index = 0; index < machines; index++)
      await hosts.join(`machine-${index}`, { hourlyPriceUsd: 0.05, leaseSeconds: LEASE_SECONDS })
    opened = {
      ...{ cloud, hosts },
      accounts: [{ cloud: "sim", region: "here" }],
      needsProject: true,
      offers: OFFERS,
      clouds: (life) => life.clouds(cloud),
      alive: async () => [...cloud.alive.map(({ launch }) => launch), ...(await hosts.look())],
      booted: () => Promise.resolve([...cloud.alive.map(({ launch }) => launch), ...hosts.reachable]),
      takeBack: async (vmId) => cloud.lose(vmId, true),
      billUsd: () => roundUsd(cloudBillUsd(cloud) + hosts.billUsd()),
      sellOut: () => undefined,
      violations: () => cloud.breaches,
      close: () => Promise.resolve(),
    }
    return opened
  }
  return Object.assign(open, {
    opened: () => {
      if (opened === undefined) throw new Error("the clouds are not open yet")
      return opened
    },
  })
}

/** Returns the cloud's bill. @param now as for `vmBills` */
export function cloudBillUsd(cloud: SimCloud, now?: Date): number {
  return [...vmBills(cloud, now).values()].reduce((total, usd) => total + usd, 0)
}

/**
 * Returns the bill of each VM by the cloud's own times: whole seconds, at least the minimum; by the Launch that created it.
 * @param now end of what is billed so far. Default: all VMs have ended
 */
export function vmBills({ vms }: SimCloud, now?: Date): Map<string, number> {
  const bills = vms.map(({ vm, spec }) => {
    const { hourlyPriceUsd = 0, minimumBilledSeconds = 0 } = spec?.offer ?? {}
    const end = vm.terminationTime === undefined ? (now?.getTime() ?? Number.NaN) : Date.parse(vm.terminationTime)
    const seconds = Math.max(
      minimumBilledSeconds,
      Math.floor(end / 1000) - Math.floor(Date.parse(vm.createTime) / 1000),
    )
    return [vm.launch, (seconds * hourlyPriceUsd) / 3600] as const
  })
  return new Map(bills)
}
