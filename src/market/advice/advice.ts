import type { JobSpec, Resources, StoredJob } from "../../core/apis/job.ts"
import { containerMemoryGib } from "../../core/apis/memory.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { costOf, sumOfParts } from "../../core/apis/price.ts"
import type { Market } from "../placement/market.ts"
import { openPlacements } from "../placement/place.ts"
import type { JobSettings } from "../placement/settings.ts"
import type { LaunchAccount } from "../router/cooldown.ts"
import { usd } from "../router/explain.ts"
import type { RankedPlacement } from "../router/route.ts"
import {
  amountsOf,
  LEAST_RUNS,
  type MeasuredRun,
  neededResources,
  peaksOf,
  RESOURCE_NAMES,
  type ResourceName,
} from "./needs.ts"

/** Succeeded runs of one cronjob, one array or one program. */
export interface RunGroup {
  /** Newest of the runs. Its definition is the one that advice is about. */
  latest: Pick<StoredJob, "metadata" | "spec">
  runs: readonly MeasuredRun[]
}

/** Smaller resources with which a group of runs would cost less, at the prices of now. */
export interface Advice {
  /** Number of runs with a measurement. */
  runs: number
  /** Resources in place of those of the latest run. */
  resources: Resources
  /** Machine that the latest run's definition gets now, and the one that it would get. */
  current: RankedPlacement<LaunchAccount>
  advised: RankedPlacement<LaunchAccount>
  /** For as many runs as in the last 30 days. */
  savingUsdPerMonth: number
  /** Part of the present cost. */
  savingPercent: number
  /** The advice in words. */
  reason: string
}

/** Smallest saving that is worth a change, as a part of the present cost. */
const LEAST_SAVING = 0.1

const MONTH_MS = 30 * 86_400_000

/**
 * Returns what a group would save with the resources that its runs have used; undefined if that is too little, or unknown.
 * Both machines are the cheapest of now, without caps and cooldowns, on the project's accounts. Pure.
 */
export function advise(
  { latest, runs }: RunGroup,
  market: Market,
  now: Date,
  settings: JobSettings,
): Advice | undefined {
  const recent = runs.filter(({ endedAt }) => endedAt > now.getTime() - MONTH_MS)
  if (runs.length < LEAST_RUNS || recent.length === 0) return undefined
  const resources = neededResources(latest.spec, runs)
  if (resources === undefined) return undefined
  const placementOf = (spec: JobSpec) => openPlacements({ ...latest, spec }, market, now, settings)[0]
  const current = placementOf(latest.spec)
  const advised = placementOf({ ...latest.spec, resources })
  if (current === undefined || advised === undefined) return undefined
  const seconds = recent.reduce((total, run) => total + run.seconds, 0) / recent.length
  const currentUsd = costOfRun(current, seconds)
  const savedUsd = currentUsd - costOfRun(advised, seconds)
  const savingUsdPerMonth = roundUsd(savedUsd * recent.length)
  if (savingUsdPerMonth <= 0 || savedUsd < currentUsd * LEAST_SAVING) return undefined
  const found = { runs: runs.length, resources, current, advised, savingUsdPerMonth }
  const savingPercent = Math.round((savedUsd / currentUsd) * 1000) / 10
  return { ...found, savingPercent, reason: reasonOf(latest.spec.resources, runs, found) }
}

/** Returns the cost of a run of this time, US dollars. */
function costOfRun({ offer, prices, trafficUsd }: RankedPlacement, seconds: number): number {
  return sumOfParts(costOf(prices, { seconds, minimumBilledSeconds: offer.minimumBilledSeconds })) + trafficUsd
}

/** Returns the advice in words. */
function reasonOf(
  asked: Resources = {},
  runs: readonly MeasuredRun[],
  { resources, current, advised, savingUsdPerMonth }: Omit<Advice, "savingPercent" | "reason">,
): string {
  const { cpu, memoryGib, vramGib = 0, diskGib = 0 } = peaksOf(runs)
  const { offer } = current
  const [before, after] = [amountsOf(asked), amountsOf(resources)]
  const gpuGib = (offer.gpu?.count ?? 0) * (offer.gpu?.vramGib ?? 0)
  const texts: Record<ResourceName, readonly [change: string, peak: string]> = {
    cpu: [`cpu ${after.cpu}`, `${amount(cpu)} of ${amount(offer.cpu)} vCPUs`],
    memory: [`memory ${resources.memory}`, `${amount(memoryGib)} of ${amount(containerMemoryGib(offer))} GiB`],
    gpu: [`gpu ${resources.gpu?.vram}`, `${amount(vramGib)} of ${amount(gpuGib)} GiB of GPU memory`],
    disk: [`disk ${resources.disk}`, `${amount(diskGib)} GiB of disk`],
  }
  const changed = RESOURCE_NAMES.filter((name) => before[name] !== after[name]).map((name) => texts[name])
  const used = listed(changed.map(([, peak]) => peak))
  const changes = listed(changed.map(([change]) => change))
  const prices = `${usd(hourlyUsd(advised))} instead of ${usd(hourlyUsd(current))}/h`
  return (
    `peak ${used} in ${runs.length} runs: with ${changes} ${machinesText(advised, current)}, ${prices}, ` +
    `about ${monthlyText(savingUsdPerMonth)} a month. Peaks shorter than 5 s are unseen.`
  )
}

/** Returns the price of machine, disk and address, US dollars an hour. */
function hourlyUsd({ prices }: RankedPlacement): number {
  return sumOfParts(prices)
}

/** Returns both machines, with their places if these differ. */
function machinesText({ offer: to }: RankedPlacement, { offer: from }: RankedPlacement): string {
  const isElsewhere = to.cloud !== from.cloud || to.region !== from.region
  const place = ({ cloud, region, instanceType }: typeof to) =>
    isElsewhere ? `${cloud} ${instanceType} in ${region}` : instanceType
  return `${place(to)} instead of ${place(from)}`
}

function listed(words: readonly string[]): string {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`
}

/** Returns an amount with one decimal, or with two digits below one. */
function amount(value: number): string {
  return String(value < 1 ? Number(value.toPrecision(2)) : Math.round(value * 10) / 10)
}

function monthlyText(savingUsd: number): string {
  return savingUsd < 10 ? usd(Math.round(savingUsd * 100) / 100) : `$${Math.round(savingUsd).toLocaleString("en-US")}`
}
