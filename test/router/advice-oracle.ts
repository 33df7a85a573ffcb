import type { Architecture, Offer } from "../../src/core/apis/offer.ts"

/** A group of runs, and what their definition asks for. Types and rules follow the documents, not the router. */
export interface OracleGroup {
  /** Null: the definition names none. */
  asked: { cpu: number | null; memoryGib: number | null; vramGib: number | null; diskGib: number | null }
  provisioning: "onDemand" | "spot" | "spotFirst"
  /** Empty: any. */
  clouds: readonly string[]
  regions: readonly string[]
  architectures: readonly Architecture[]
  timeoutSeconds: number | null
  runs: readonly OracleRun[]
}

export interface OracleRun {
  daysAgo: number
  seconds: number
  cpu: number
  machineCpu: number | null
  memoryMib: number
  vramMib: number | null
  diskGib: number | null
}

export interface OracleAdvice {
  current: Offer
  advised: Offer
  savingUsd: number
}

/** Facts besides the group. */
export interface OracleWorld {
  offers: readonly Offer[]
  /** Clouds with an account. */
  accounts: readonly string[]
  /** Regions that a name stands for, besides itself. */
  isIn: (offer: Offer, region: string) => boolean
  /** Price of disk and address, US dollars an hour. @param diskGib that the job asks for; null: none */
  parts: (offer: Offer, diskGib: number | null) => { diskUsd: number; addressUsd: number }
}

interface Need {
  cpu: number
  /** For the container; null: a machine of 4 GiB. */
  memoryGib: number | null
  vramGib: number | null
  diskGib: number | null
}

/** Brute force: calculates each offer for both needs, sorts all, and takes the first. */
export function bruteForce(group: OracleGroup, world: OracleWorld): OracleAdvice | undefined {
  const { asked, runs } = group
  const month = runs.filter(({ daysAgo }) => daysAgo < 30)
  if (runs.length < 3 || month.length === 0) return undefined
  const before: Need = { ...asked, cpu: asked.cpu ?? 1 }
  const after = needOf(group)
  const isLess =
    after.cpu < before.cpu ||
    (after.memoryGib ?? 0) < (before.memoryGib ?? 3.5) ||
    (after.vramGib ?? 0) < (before.vramGib ?? 0) ||
    (after.diskGib ?? 0) < (before.diskGib ?? 0)
  if (!isLess) return undefined
  const [current, advised] = [cheapest(before, group, world), cheapest(after, group, world)]
  if (current === undefined || advised === undefined) return undefined
  const mean = month.reduce((sum, { seconds }) => sum + seconds, 0) / month.length
  const [was, would] = [costUsd(current, before, mean, world), costUsd(advised, after, mean, world)]
  const saved = was - would
  const savingUsd = Math.round(saved * month.length * 1e6) / 1e6
  if (savingUsd <= 0 || saved < was / 10) return undefined
  return { current, advised, savingUsd }
}

function needOf({ asked, runs }: OracleGroup): Need {
  let cpu = 0
  for (const { cpu: peak, machineCpu } of runs) {
    // A quarter more, but a job that filled its machine needs no larger one.
    const more = machineCpu === null ? peak * 1.25 : Math.min(peak * 1.25, machineCpu)
    cpu = Math.max(cpu, peak, more)
  }
  const memory = (Math.max(...runs.map(({ memoryMib }) => memoryMib)) / 1024) * 1.25
  const vrams = runs.map(({ vramMib }) => vramMib)
  const disks = runs.map(({ diskGib }) => diskGib)
  let vramGib = asked.vramGib
  if (vramGib !== null && !vrams.includes(null)) {
    vramGib = Math.min(vramGib, Math.max(1, up((Math.max(...vrams.map(Number)) / 1024) * 1.25, 1)))
  }
  let diskGib = asked.diskGib
  if (!disks.includes(null)) {
    const needed = Math.max(10, up(Math.max(...disks.map(Number)) * 1.25, 1))
    diskGib = diskGib === null && needed === 10 ? null : needed
  }
  return {
    cpu: cpu < 1 ? up(cpu, 0.1) : up(cpu, 0.5),
    memoryGib: memory < 2 ? up(memory, 0.125) : up(memory, 0.5),
    vramGib,
    diskGib,
  }
}

/** Rounds up to a multiple, at least to one. */
function up(value: number, step: number): number {
  let count = Math.max(1, Math.floor(value / step) - 1)
  while (count * step < value - 1e-9) count++
  return Math.round(count * step * 1000) / 1000
}

function cheapest(need: Need, group: OracleGroup, world: OracleWorld): Offer | undefined {
  const fitting = world.offers.filter((offer) => fits(offer, need, group, world))
  const spot = fitting.filter(({ provisioning }) => provisioning === "spot")
  const pool = group.provisioning === "spotFirst" && spot.length > 0 ? spot : fitting
  const seconds = group.timeoutSeconds ?? 3600
  let best: { offer: Offer; key: readonly (number | string)[] } | undefined
  for (const offer of pool) {
    const { cpu, memoryGib, gpu, instanceType, cloud, region } = offer
    const total = costUsd(offer, need, seconds, world)
    const order = [total, offer.hourlyPriceUsd, cpu, memoryGib, gpu?.count ?? 0, instanceType, cloud]
    const key = [...order, offer.architecture, cloud, region]
    if (best === undefined || isBefore(key, best.key)) best = { offer, key }
  }
  return best?.offer
}

function isBefore(a: readonly (number | string)[], b: readonly (number | string)[]): boolean {
  for (const [index, value] of a.entries()) {
    const other = b[index] as typeof value
    if (value < other) return true
    if (value > other) return false
  }
  return false
}

function fits(offer: Offer, need: Need, group: OracleGroup, { accounts, isIn }: OracleWorld): boolean {
  // The system keeps half a GiB, or an eighth of a small machine.
  const container = offer.memoryGib < 4 ? (offer.memoryGib * 7) / 8 : offer.memoryGib - 0.5
  const hasMemory = need.memoryGib === null ? offer.memoryGib >= 4 : container >= need.memoryGib
  if (!hasMemory || offer.cpu < need.cpu || !accounts.includes(offer.cloud)) return false
  if (group.provisioning !== "spotFirst" && offer.provisioning !== group.provisioning) return false
  if (group.clouds.length > 0 && !group.clouds.includes(offer.cloud)) return false
  if (group.architectures.length > 0 && !group.architectures.includes(offer.architecture)) return false
  if (group.regions.length > 0 && !group.regions.some((region) => isIn(offer, region))) return false
  if (need.vramGib === null) return true
  const { gpu } = offer
  return gpu !== undefined && !gpu.model.includes(":") && gpu.count * gpu.vramGib >= need.vramGib
}

function costUsd(offer: Offer, { diskGib }: Need, seconds: number, { parts }: OracleWorld): number {
  const billed = Math.max(Math.ceil(seconds), offer.minimumBilledSeconds)
  const { diskUsd, addressUsd } = parts(offer, diskGib)
  let sum = 0
  for (const hourly of [offer.hourlyPriceUsd, diskUsd, addressUsd])
    sum += Math.round(((hourly * billed) / 3600) * 1e6) / 1e6
  return Math.round(sum * 1e6) / 1e6
}
