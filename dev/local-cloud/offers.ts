import type { Architecture, Offer } from "../../src/core/apis/offer.ts"

export const LOCAL_REGION = "local"

/** Machine types by vCPU, each with 4 GiB a vCPU. */
const LADDER = [1, 2, 4, 8] as const
const GIB_PER_CPU = 4

/** US dollars per vCPU and hour, similar to the cheapest public clouds. It is never billed. */
const NOTIONAL_CPU_PRICE_USD = 0.02

/** Returns the architecture of this host's programs, and so of its VMs. */
export function hostArchitecture(): Architecture {
  return process.arch === "arm64" ? "arm64" : "amd64"
}

/**
 * Returns the offers of the local cloud: a few machine types. Their sizes are notional, as every VM is a process on
 * this host and may use all of it. Their prices are notional too, and make routing and accounting visible.
 * @param architecture of this host
 */
export function localOffers(architecture: Architecture = hostArchitecture()): Offer[] {
  return LADDER.map((cpu) => ({
    cloud: "local",
    region: LOCAL_REGION,
    instanceType: `local-${cpu}`,
    architecture,
    provisioning: "onDemand",
    cpu,
    memoryGib: cpu * GIB_PER_CPU,
    hourlyPriceUsd: cpu * NOTIONAL_CPU_PRICE_USD,
    minimumBilledSeconds: 60,
  }))
}
