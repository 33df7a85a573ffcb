import { timestamp } from "../../core/apis/clock.ts"
import { containerMemoryGib } from "../../core/apis/memory.ts"
import { fromMetadataName } from "../../core/apis/names.ts"
import type { Offer } from "../../core/apis/offer.ts"
import type { Catalogue } from "./catalogue.ts"
import type { CooldownTally } from "./cooldown.ts"
import { rankedUsd } from "./cost.ts"
import type { Criterion } from "./fit.ts"
import type { LostWork } from "./lost-work.ts"
import { memo } from "./memo.ts"
import type { Requirements } from "./requirements.ts"
import type { RankedPlacement, Routing } from "./route.ts"
import type { Alternative, Shortfall } from "./shortfall.ts"

/** Returns an offer for people: `local-2 in local (on demand, 2 vCPU, 8 GiB, $0.04/h)`. */
export function describeOffer(offer: Offer): string {
  const { gpu } = offer
  const size = [`${offer.cpu} vCPU`, `${round(offer.memoryGib)} GiB`]
  if (gpu !== undefined) size.push(`${gpu.count} × ${gpu.model}`)
  return `${placeOf(offer)} (${provisioningText(offer.provisioning)}, ${size.join(", ")}, ${usd(offer.hourlyPriceUsd)}/h)`
}

/**
 * Explains the choice of the first placement: the number of matching offers, those before it that are in cooldown, the
 * cost of the next one, and the date of the price.
 * @param clouds clouds whose offers are counted
 * @throws RangeError if there is no placement
 */
export function explainChoice(
  { placements, offers, fitting, passedOver }: Omit<Routing, "shortfall">,
  clouds: readonly string[],
): string {
  const [chosen, next] = placements
  if (chosen === undefined) throw new RangeError("there is no placement: explain its shortfall")
  const among = `on ${clouds.join(" or ")}, out of ${number(offers)} in the catalogue`
  const cheapest = passedOver === undefined ? "cheapest" : "cheapest available"
  const { priceDate } = chosen.offer
  const parts = [
    fitting === 1 ? `the only matching offer ${among}` : `${cheapest} of ${number(fitting)} matching offers ${among}`,
    ...(passedOver === undefined ? [] : [explainPassedOver(passedOver)]),
    ...(next === undefined ? [] : [explainNext(chosen, next)]),
    ...(next === undefined && fitting > 1 ? ["no other is available now"] : []),
    ...(priceDate === undefined ? [] : [`price of ${priceDate}`]),
  ]
  return parts.join("; ")
}

function explainPassedOver(tally: CooldownTally): string {
  const { offers, until } = tally
  const first =
    until === undefined ? "" : offers === 1 ? ` until ${timestamp(until)}` : `, the first until ${timestamp(until)}`
  const causes = explainCauses(tally)
  return `${number(offers)} that ${offers === 1 ? "ranks" : "rank"} before it ${offers === 1 ? "is" : "are"} in cooldown${first}${causes === "" ? "" : `: ${causes}`}`
}

/** Number of causes that a message names. */
const MOST_CAUSES = 2

/** Returns the causes of cooldowns with the most offers, for people: `aws had no capacity (12 offers)`. */
export function explainCauses({ causes = [] }: CooldownTally, detailed = false): string {
  const named = causes.slice(0, MOST_CAUSES).map(({ cause, offers }) => {
    const count = causes.length === 1 ? "" : ` (${number(offers)} ${offers === 1 ? "offer" : "offers"})`
    return `${cause.group}${count}${detailed && cause.detail !== undefined ? `: ${cause.detail}` : ""}`
  })
  const others = causes.length - named.length
  return [...named, ...(others > 0 ? [`${others} more causes`] : [])].join("; ")
}

function explainNext(chosen: RankedPlacement, next: RankedPlacement): string {
  if (next.offer.provisioning !== chosen.offer.provisioning) {
    return `spot is preferred; ${provisioningText(next.offer.provisioning)}, ${placeOf(next.offer)} costs ${usd(next.totalUsd)} in total`
  }
  return `the next, ${placeOf(next.offer)}, costs ${inTotal(next)}`
}

/** Returns the cost of a placement for people, with the work that preemptions undo. */
function inTotal(placement: RankedPlacement): string {
  const { totalUsd, lostWorkUsd = 0 } = placement
  return `${usd(totalUsd)} in total${lostWorkUsd > 0 ? ` (${usd(rankedUsd(placement))} with lost work)` : ""}`
}

/**
 * Explains what preemptions add to the expected cost of a spot offer: the rate, what it comes from, and the work that one
 * preemption undoes. Empty if they add nothing.
 */
export function explainLostWork({ offer, lostWorkUsd = 0 }: RankedPlacement, lostWork: LostWork | undefined): string {
  if (lostWork === undefined || lostWorkUsd === 0) return ""
  const { perHour, preemptions, hours } = lostWork.rateOf(offer)
  const seen = `${round(preemptions)} in ${round(hours)} h of this machine here`
  const lost = Math.round(lostWork.hours * 60)
  return `, and ${usd(lostWorkUsd)} more for work lost to preemptions: ${perHour.toPrecision(2)} an hour (${seen}) of ${lost} min each`
}

/**
 * Returns one line for each placement: the offer, the connection (REST's name), the total cost, and the difference to
 * the best.
 */
export function explainRanking({ placements }: Pick<Routing, "placements">): string[] {
  const [best] = placements
  return placements.map((placement) => {
    const { offer, launchAccount, totalUsd } = placement
    const more = best === undefined || totalUsd === best.totalUsd ? "" : `, ${difference(totalUsd, best.totalUsd)}`
    const by =
      launchAccount.connection === undefined ? "" : ` by connection ${fromMetadataName(launchAccount.connection)}`
    return `${describeOffer(offer)}${by}: ${inTotal(placement)}${more}`
  })
}

function difference(totalUsd: number, bestUsd: number): string {
  if (bestUsd === 0) return `${usd(totalUsd)} more`
  const percent = Math.round((totalUsd / bestUsd - 1) * 100)
  return percent === 0 ? "less than 1 % more" : `${Math.abs(percent)} % ${percent > 0 ? "more" : "less"}`
}

/**
 * Explains why no offer matches: the requirements, the offers without one of them, and the number that each excludes.
 * `no offer has 4 × H100, ≥ 1 vCPU and ≥ 4 GiB on demand in eu; us has 12 offers from $9.8/h (…); …`
 */
export function explainShortfall(shortfall: Shortfall, requirements: Requirements): string {
  const { alternatives, nearestMiss, excluded } = shortfall
  if (excluded.size === 0) return "the catalogue has no offers"
  const parts = [`no offer has ${describeNeeds(requirements)}`]
  parts.push(...alternatives.slice(0, MOST_ALTERNATIVES).map((alternative) => counterOffer(alternative, requirements)))
  if (nearestMiss !== undefined) {
    const unmet = nearestMiss.unmet.map((criterion) => nameRequirement(criterion, requirements))
    parts.push(`the nearest is ${describeOffer(nearestMiss.offer)}, except for ${unmet.join(" and ")}`)
  }
  const counts = [...excluded].sort((a, b) => b[1] - a[1])
  const each = counts.map(
    ([criterion, count]) => `${nameRequirement(criterion, requirements)} excludes ${number(count)}`,
  )
  return `${parts.join("; ")}. Of all offers ${each.join(", ")}`
}

/**
 * Explains that a container gets less than its machine has, if that excludes machines: `machines with 16 GiB leave 15.5
 * GiB for the container`. Undefined if it excludes none.
 */
export function explainMemory({ memoryGib, memoryOf, clouds }: Requirements, catalogue: Catalogue): string | undefined {
  if (memoryOf === "machine") return undefined
  return memoryMemo(catalogue, [memoryGib, clouds], () => excludedByMemory(memoryGib, clouds, catalogue))
}

const memoryMemo = memo<string | undefined>()

function excludedByMemory(memoryGib: number, clouds: readonly string[], { table }: Catalogue): string | undefined {
  const excluded = table.machines.filter(
    (machine) =>
      machine.memoryGib >= memoryGib &&
      containerMemoryGib(machine) < memoryGib &&
      (clouds.length === 0 || clouds.includes(machine.cloud)),
  )
  const [first, ...others] = excluded
  if (first === undefined) return undefined
  const least = others.reduce((found, machine) => (machine.memoryGib < found.memoryGib ? machine : found), first)
  return `machines with ${round(least.memoryGib)} GiB leave ${round(containerMemoryGib(least))} GiB for the container`
}

const MOST_ALTERNATIVES = 3

function describeNeeds({ gpu, cpu, memoryGib, diskGib, ...rest }: Requirements): string {
  const sizes = [`≥ ${cpu} vCPU`, `≥ ${round(memoryGib)} GiB`]
  if (gpu?.model !== undefined) sizes.unshift(gpu.count === undefined ? gpu.model : `${gpu.count} × ${gpu.model}`)
  if (gpu?.vramGib !== undefined)
    sizes.splice(gpu.model === undefined ? 0 : 1, 0, `≥ ${round(gpu.vramGib)} GiB of GPU memory`)
  if (diskGib !== undefined) sizes.push(`≥ ${round(diskGib)} GiB of disk`)
  const last = sizes.pop()
  const { clouds, regions, architectures, provisioning, maxHourlyPriceUsd } = rest
  const terms = [`${sizes.join(", ")} and ${last}`]
  if (architectures.length === 1) terms.push(`on ${architectures[0]}`)
  terms.push(provisioning === "spotFirst" ? "on spot or on demand" : provisioningText(provisioning))
  if (regions.length > 0) terms.push(`in ${regions.join(" or ")}`)
  if (clouds.length > 0) terms.push(`of ${clouds.join(" or ")}`)
  if (maxHourlyPriceUsd !== undefined) terms.push(`for at most ${usd(maxHourlyPriceUsd)}/h`)
  return terms.join(" ")
}

function counterOffer(alternative: Alternative, requirements: Requirements): string {
  const { criterion, offers, cheapest, where, most } = alternative
  const from = `${number(offers)} ${offers === 1 ? "offer" : "offers"} from ${usd(cheapest.hourlyPriceUsd)}/h (${describeOffer(cheapest)})`
  const there = offers === 1 ? "there is" : "there are"
  switch (criterion) {
    case "cloud":
      return `other clouds have ${from}`
    case "region":
      return `${where ?? "elsewhere"} has ${from}`
    case "architecture":
      return `other architectures have ${from}`
    case "provisioning":
      return `${requirements.provisioning === "spot" ? "on demand" : "as spot"} ${there} ${from}`
    case "maxHourlyPriceUsd":
      return `the cheapest costs ${usd(cheapest.hourlyPriceUsd)}/h (${describeOffer(cheapest)})`
    case "gpu":
      return `with other GPUs ${there} ${from}`
    default:
      return `there are at most ${round(most ?? 0)} ${UNITS[criterion]}, in ${from}`
  }
}

const UNITS = {
  "gpu.count": "cards",
  "gpu.vram": "GiB of GPU memory",
  cpu: "vCPU",
  memory: "GiB of memory for a container",
  disk: "GiB of disk",
} as const

function nameRequirement(criterion: Criterion, requirements: Requirements): string {
  const {
    clouds,
    regions,
    architectures,
    gpu,
    cpu,
    memoryGib,
    diskGib = 0,
    provisioning,
    maxHourlyPriceUsd = 0,
  } = requirements
  const values: Record<Criterion, string> = {
    cloud: clouds.join("|"),
    region: regions.join("|"),
    architecture: architectures.join("|"),
    gpu: gpu?.model ?? "of NVIDIA",
    "gpu.count": `≥ ${gpu?.count}`,
    "gpu.vram": `≥ ${round(gpu?.vramGib ?? 0)} GiB`,
    cpu: `≥ ${cpu}`,
    memory: `≥ ${round(memoryGib)} GiB`,
    disk: `≥ ${round(diskGib)} GiB`,
    provisioning,
    maxHourlyPriceUsd: `≤ ${usd(maxHourlyPriceUsd)}`,
  }
  return `${criterion} ${values[criterion]}`.trimEnd()
}

function placeOf({ cloud, instanceType, region, zone }: Offer): string {
  return `${cloud} ${instanceType} in ${zone ?? region}`
}

function provisioningText(provisioning: "onDemand" | "spot"): string {
  return provisioning === "spot" ? "spot" : "on demand"
}

/** Returns USD without trailing zeros: `$0.04`, `$12.5`, `$0.000333`. */
export function usd(amount: number): string {
  return `$${Number(amount.toPrecision(4))}`
}

/** Returns a number with separators: `163,412`. */
function number(value: number): string {
  return value.toLocaleString("en-US")
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}
