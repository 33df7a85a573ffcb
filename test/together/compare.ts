import { secondsBetween } from "../../src/core/apis/clock.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { vmNameOf } from "../../src/core/reuse/reuse.ts"
import type { Fixture } from "../faults/crash-fixture.ts"
import { expectedEnd } from "./ends.ts"
import type { Outcome } from "./scenario.ts"
import { type TogetherClouds, vmBills } from "./world.ts"

/** Largest sum of what the costs of the Launches of one scenario are rounded by, USD. */
const ROUNDING_USD = 0.002

/** Fate of a job in the world. */
export interface Witnessed {
  outcomes: readonly Outcome[]
  /** Number of VMs on which its work began. */
  attempts: number
  /** Time at which its first container started. */
  started: Date | undefined
  isCancelled: boolean
  /** True if the cluster was restored from a backup meanwhile. */
  isRestored: boolean
  after: NonNullable<StoredJob["spec"]["after"]>
  phaseOf: (job: string) => string | undefined
}

/** Returns how a job's end differs from what the oracle expects; undefined: it doesn't. */
export function compareJob(job: StoredJob, seen: Witnessed): string | undefined {
  const { name } = job.metadata
  if (job.status?.settled !== true) return `${name} is not settled`
  const { phase, reason } = job.status
  const { attempts, after, phaseOf, outcomes } = seen
  if (seen.isCancelled && phase === "cancelled") return undefined
  if (seen.isRestored)
    return isPlausible(job, seen) ? undefined : `${name} ended as ${phase}: ${reason} after a restore`
  const unmet = after.find(
    ({ job: before = "", outcome = "succeeded" }) => outcome !== "ended" && phaseOf(before) !== outcome,
  )
  if (unmet !== undefined) {
    if (reason === "DependencyFailed" && attempts === 0) return undefined
    return `${name} is ${reason} after ${attempts} attempts, and ${unmet.job} did not end as ${unmet.outcome}`
  }
  const { maxCostUsd = Number.POSITIVE_INFINITY } = job.spec
  const usd = job.status.cost?.actualUsd ?? 0
  if (usd > maxCostUsd) return `${name} costs ${usd} USD, and its maxCostUsd is ${maxCostUsd}`
  if (hasReachedLimit(job, seen.started)) return undefined
  const expected = JSON.stringify(expectedEnd(job.spec, outcomes))
  const found = JSON.stringify({ phase, reason, attempts })
  return found === expected ? undefined : `${name} ended as ${found}, not as ${expected}`
}

/**
 * Returns true if a job may have ended like this in a cluster that has forgotten some of its VMs: what they did may count
 * again or not at all, and a VM that has ended since the backup is lost.
 */
function isPlausible({ spec, status }: StoredJob, { outcomes, after }: Witnessed): boolean {
  const { reason = "" } = status ?? {}
  const ends = outcomes.flatMap((_, from) => {
    const rest = outcomes.slice(from)
    return [spec, { ...spec, retryRules: [], maxLostVms: 0 }].map((each) => expectedEnd(each, rest).reason)
  })
  const others = [
    "VMLost",
    ...(after.length > 0 ? ["DependencyFailed"] : []),
    ...(spec.maxCostUsd === undefined ? [] : ["BudgetExceeded"]),
    ...(spec.timeoutSeconds === undefined ? [] : ["DeadlineExceeded"]),
  ]
  return [...ends, ...others].includes(reason)
}

/** Returns true if a job was ended by its own budget, or by a timeout that has passed since its first container's start. */
function hasReachedLimit({ spec, status }: StoredJob, started: Date | undefined): boolean {
  if (status?.reason === "BudgetExceeded") return spec.maxCostUsd !== undefined
  if (status?.reason !== "DeadlineExceeded" || spec.timeoutSeconds === undefined) return false
  const { completionTime } = status
  return started !== undefined && secondsBetween(started, completionTime ?? started) >= spec.timeoutSeconds
}

/** Returns how the bills of the clouds, the Statements and the costs of jobs differ. */
export async function compareBills(
  fixture: Fixture,
  clouds: TogetherClouds,
  jobs: readonly StoredJob[],
): Promise<string[]> {
  const launches = await fixture.launches()
  const ofMachines = clouds.hosts.harm(launches.filter(({ spec }) => spec.offer.cloud === "own"))
  const breaches = ofMachines.map(({ what }) => what)
  const [billed, stated] = [clouds.billUsd?.() ?? 0, await fixture.statedUsd()]
  if (differ(billed, stated)) {
    breaches.push(`billed ${billed} USD, and the Statements have ${stated}`)
    breaches.push(...wrongVms(clouds, launches))
  }
  const ofJobs = usdOf(jobs)
  if (differ(billed, ofJobs)) breaches.push(`billed ${billed} USD, and the jobs cost ${ofJobs}`)
  return breaches
}

/** Returns how the Statements and the costs of jobs differ. A restored cluster doesn't know the cost of VMs that it has ended. */
export async function compareRestoredBills(fixture: Fixture, jobs: readonly StoredJob[]): Promise<string[]> {
  const [stated, ofJobs] = [await fixture.statedUsd(), usdOf(jobs)]
  return differ(stated, ofJobs) ? [`the Statements have ${stated} USD, and the jobs cost ${ofJobs}`] : []
}

function usdOf(jobs: readonly StoredJob[]): number {
  return jobs.reduce((total, { status }) => total + (status?.cost?.actualUsd ?? 0), 0)
}

function differ(one: number, other: number): boolean {
  return !(Math.abs(one - other) <= ROUNDING_USD)
}

/** Returns the VMs whose Launches have another cost than the cloud's bill. */
function wrongVms({ cloud }: TogetherClouds, launches: Awaited<ReturnType<Fixture["launches"]>>): string[] {
  return [...vmBills(cloud)].flatMap(([vm, billed]) => {
    const chain = launches.filter((launch) => vmNameOf(launch) === vm)
    const usd = chain.reduce((total, { status }) => total + (status?.costUsd ?? 0), 0)
    if (Math.abs(usd - billed) < 0.0003) return []
    const found = chain.map(({ spec, status }) => [
      spec.job.name,
      status?.vm,
      status?.loss,
      status?.agent?.finish?.reason,
    ])
    return [`the VM of ${vm} was billed ${billed} USD, and its Launches cost ${usd}: ${JSON.stringify(found)}`]
  })
}
