import type { Offer } from "../apis/offer.ts"
import { isInRegions } from "./regions.ts"
import type { GpuRequirement, Requirements } from "./requirements.ts"

/** What an offer can fail by, in the order in which people read it. */
export const CRITERIA = [
  "cloud",
  "region",
  "architecture",
  "gpu",
  "cpu",
  "memory",
  "provisioning",
  "maxHourlyPriceUsd",
] as const
export type Criterion = (typeof CRITERIA)[number]

type Test = (offer: Offer, requirements: Requirements) => boolean

const TESTS: Record<Criterion, Test> = {
  cloud: (offer, { clouds }) => clouds.length === 0 || clouds.includes(offer.cloud),
  region: (offer, { regions }) => isInRegions(offer.cloud, offer.region, regions),
  architecture: (offer, { architectures }) => architectures.length === 0 || architectures.includes(offer.architecture),
  gpu: (offer, { gpu }) => gpu === undefined || hasGpu(offer, gpu),
  cpu: (offer, { cpu }) => offer.cpu >= cpu,
  memory: (offer, { memoryGib }) => offer.memoryGib >= memoryGib,
  provisioning: (offer, { provisioning }) => provisioning === "spotFirst" || offer.provisioning === provisioning,
  maxHourlyPriceUsd: (offer, { maxHourlyPriceUsd }) =>
    maxHourlyPriceUsd === undefined || offer.hourlyPriceUsd <= maxHourlyPriceUsd,
}

/** The requirements that an offer doesn't meet; none: it fits. */
export function unmet(offer: Offer, requirements: Requirements): Criterion[] {
  return CRITERIA.filter((criterion) => !TESTS[criterion](offer, requirements))
}

/** The contract's rules 1 to 3: each bound that is given holds, over cards of one model. */
function hasGpu(offer: Offer, gpu: GpuRequirement): boolean {
  const has = offer.gpu
  if (has === undefined || has.count <= 0) return false
  if (gpu.model !== undefined && normalModel(gpu.model) !== normalModel(has.model)) return false
  if (gpu.count !== undefined && has.count < gpu.count) return false
  return gpu.vramGib === undefined || has.count * has.vramGib >= gpu.vramGib
}

/** `NVIDIA A100`, `nvidia-a100` and `A100` are one model. */
function normalModel(model: string): string {
  return model
    .toUpperCase()
    .replace(/[^A-Z0-9]/g, "")
    .replace(/^NVIDIA/, "")
}
