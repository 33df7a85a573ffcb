import type { Architecture, Offer } from "../../apis/offer.ts"

/** The one region of the local cloud. */
export const LOCAL_REGION = "local"

/** Machine types by vCPU, each with 4 GiB a vCPU. */
const LADDER = [1, 2, 4, 8] as const
const GIB_PER_CPU = 4

/** US dollars per vCPU and hour: about what the cheapest public clouds ask. Nobody bills it. */
const NOTIONAL_CPU_PRICE_USD = 0.02

/** What programs of this host, and so its VMs, run on. */
export function hostArchitecture(): Architecture {
  return process.arch === "arm64" ? "arm64" : "amd64"
}

/**
 * What the local cloud offers: a small ladder of machine types. It is notional, as every VM is a process on this host
 * and may use all of it; so are the prices, which are there to show routing and accounting at work.
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
