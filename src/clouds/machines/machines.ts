import { nvidiaGpusOf, type Offer } from "../../core/apis/offer.ts"
import { DEFINITIONS, VM_CLOUDS, vmsOf } from "../definitions.ts"
import type { BootDeadline, Burstable, CloudMachines, Exclusion } from "./family.ts"

/** Facts about machines, by cloud. The local cloud needs none. */
export const MACHINES: Readonly<Record<string, CloudMachines>> = Object.fromEntries(
  VM_CLOUDS.map((cloud) => [cloud, DEFINITIONS[cloud].vms.machines]),
)

/** Returns how a machine type shares its cores; undefined if it has them for itself. */
export function burstableOf(cloud: string, instanceType: string): Burstable | undefined {
  return MACHINES[cloud]?.burstable.find(({ types }) => types.test(instanceType))
}

/** Returns the rule by which a machine type can't be launched in a region with this provisioning. */
export function findExclusion(
  cloud: string,
  instanceType: string,
  { region, provisioning }: Pick<Offer, "region" | "provisioning">,
): Exclusion | undefined {
  return MACHINES[cloud]?.exclusions.find(
    (rule) =>
      rule.types.test(instanceType) &&
      (rule.regions?.test(region) ?? true) &&
      (rule.provisioning ?? provisioning) === provisioning,
  )
}

/** Longest time that a VM may boot, seconds. */
export const LONGEST_BOOT_SECONDS = Math.max(
  ...Object.values(MACHINES).flatMap(({ bootDeadlines }) => Object.values(bootDeadlines).map(({ seconds }) => seconds)),
)

/**
 * Returns how long a VM of this offer may boot until its agent registers; undefined on clouds without a table. A machine
 * with less than a vCPU has longer: its system boots more slowly.
 */
export function bootDeadlineOf(offer: Pick<Offer, "cloud" | "cpu" | "gpu">): BootDeadline | undefined {
  const count = nvidiaGpusOf(offer)?.count ?? 0
  const found = MACHINES[offer.cloud]?.bootDeadlines[count === 0 ? "cpu" : count < 8 ? "gpu" : "eightGpus"]
  if (found === undefined || offer.cpu >= 1) return found
  return { ...found, seconds: Math.min(LONGEST_BOOT_SECONDS, Math.ceil(found.seconds / offer.cpu)) }
}

/** Returns the time in which a VM of this offer is free if its cloud preempts it, seconds; 0: none. */
export function freeSecondsOf({ cloud, provisioning }: Pick<Offer, "cloud" | "provisioning">): number {
  return provisioning === "spot" ? (vmsOf(cloud)?.spot.freeSeconds ?? 0) : 0
}

/** Returns the series of a machine type, by its cloud's naming. A name of no known form is a series of its own. */
export function seriesOf(cloud: string, instanceType: string): string {
  return MACHINES[cloud]?.seriesOf(instanceType) ?? instanceType
}

/** Returns the name of the quota that counts a machine type: the clouds let several series share one. */
export function quotaOf(cloud: string, instanceType: string): string {
  return MACHINES[cloud]?.quotaOf(instanceType) ?? instanceType
}
