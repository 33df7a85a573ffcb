import type { Offer } from "../apis/offer.ts"
import type { Criterion } from "./fit.ts"
import type { Requirements } from "./requirements.ts"
import type { RankedPlacement, Routing } from "./route.ts"

/** `local-2 in local (on demand, 2 vCPU, 8 GiB, $0.04/h)`: an offer for people. */
export function describeOffer(offer: Offer): string {
  const { gpu } = offer
  const size = [`${offer.cpu} vCPU`, `${round(offer.memoryGib)} GiB`]
  if (gpu !== undefined) size.push(`${gpu.count} × ${gpu.model}`)
  const bought = offer.provisioning === "spot" ? "spot" : "on demand"
  return `${offer.cloud} ${offer.instanceType} in ${offer.region} (${bought}, ${size.join(", ")}, ${usd(offer.hourlyPriceUsd)}/h)`
}

/** Why the first placement was taken: how many could have been, and what the next one would have cost. */
export function explainChoice(routing: Routing): string {
  const [chosen, next] = routing.placements
  if (chosen === undefined) return explainExclusions(routing)
  const count = `cheapest of ${routing.placements.length} placements (${routing.fitting} of ${routing.offers} offers fit)`
  return next === undefined ? count : `${count}; the next, ${nameOf(next)}, costs ${usd(next.totalUsd)} in all`
}

function nameOf({ offer }: RankedPlacement): string {
  return `${offer.cloud} ${offer.instanceType} in ${offer.region}`
}

/** Why nothing fits: how many offers each requirement excludes, most first, and the nearest miss. */
export function explainExclusions(routing: Routing, requirements?: Requirements): string {
  if (routing.offers === 0) return "the catalogue has no offers"
  const counts = [...routing.excluded].sort((a, b) => b[1] - a[1])
  const excluded = counts.map(([criterion, count]) => `${nameRequirement(criterion, requirements)} excludes ${count}`)
  const parts = [`none of ${routing.offers} offers fits: ${excluded.join(", ")}`]
  const miss = routing.nearestMiss
  if (miss !== undefined) parts.push(`nearest: ${describeOffer(miss.offer)}, but for ${miss.unmet.join(" and ")}`)
  return parts.join("; ")
}

function nameRequirement(criterion: Criterion, requirements: Requirements | undefined): string {
  const value = requirements === undefined ? undefined : wantedValue(criterion, requirements)
  return value === undefined ? criterion : `${criterion} ${value}`
}

function wantedValue(criterion: Criterion, requirements: Requirements): string | undefined {
  const { gpu } = requirements
  const values: Record<Criterion, string | undefined> = {
    cloud: requirements.clouds.join("|"),
    region: requirements.regions.join("|"),
    architecture: requirements.architectures.join("|"),
    gpu: [gpu?.count, gpu?.model, gpu?.vramGib === undefined ? undefined : `≥ ${round(gpu.vramGib)} GiB`]
      .filter((part) => part !== undefined)
      .join(" "),
    cpu: `≥ ${requirements.cpu}`,
    memory: `≥ ${round(requirements.memoryGib)} GiB`,
    provisioning: requirements.provisioning,
    maxHourlyPriceUsd: `≤ ${requirements.maxHourlyPriceUsd}`,
  }
  return values[criterion]
}

/** `$0.04`, `$12.5`, `$0.000333`: US dollars without trailing zeros. */
export function usd(amount: number): string {
  return `$${Number(amount.toPrecision(4))}`
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}
