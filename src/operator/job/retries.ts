import { LIMITS } from "../../core/apis/field-limits.ts"
import type { JobSpec, JobStatus, StoredJob } from "../../core/apis/job.ts"
import { pricesOf, type StoredLaunch } from "../../core/apis/launch.ts"
import { containerMemoryGib } from "../../core/apis/memory.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { type HourlyPrices, sumOfParts } from "../../core/apis/price.ts"
import { parseGib } from "../../core/apis/quantity.ts"
import {
  DEFAULT_RETRY_LIMIT,
  type Failure,
  isGrowth,
  matchingRule,
  type RetryRule,
  rulesOf,
} from "../../core/apis/retry-rules.ts"
import type { EndedLaunch } from "../../market/placement/losses.ts"
import { usd } from "../../market/router/explain.ts"

/** Which failed runs of a job get a new VM, and with how much memory. Pure: it follows from Launches and status. */

/** Rule of faults that pass, for a job whose own rules don't match them. */
const TRANSIENT: RetryRule = { action: "newVm", limit: 2 }

/** Failed run of a Launch. */
interface FailedRun extends Failure {
  number: number
  time: string
  message?: string
  isTransient: boolean
  /** Absent: its record is deleted, and the job's status has the rest. */
  launch?: StoredLaunch
  /** Memory that the status says the next VM needs, GiB. */
  recordedGib?: number
}

/** A failed run with what follows from it. */
export interface Retry extends FailedRun {
  /** Number of the attempt that follows by the same rule, from 2. */
  attempt: number
  /** Maximum number of attempts by that rule. Infinite: the memory can still grow. */
  attempts: number
  /** Memory that the next VM's container must have, GiB. Absent: what the job requests. */
  memoryGib?: number
  /** Reason why the job fails instead, for people; empty: no rule gives it a new VM. Absent: it gets one. */
  refusal?: string
}

/** Retries of a job on new VMs. */
export interface Retries {
  /** Failures that another Launch has followed, oldest first. */
  past: readonly Retry[]
  /** Failure of the newest Launch. */
  latest: Retry | undefined
  /** Failure for which a VM is looked for: no VM was created after it. */
  open: Retry | undefined
  /** Memory that the next VM's container must have, GiB. Absent: what the job requests. */
  memoryGib: number | undefined
}

/** Derives the retries of a job from its Launches, and from its status where their records are deleted. Pure. */
export function deriveRetries({ spec, status }: StoredJob, launches: readonly EndedLaunch[]): Retries {
  const rules = rulesOf(spec)
  const counts = new Map<RetryRule | undefined, number>()
  let memoryGib: number | undefined
  const retries = failedRuns(status, launches).map((run): Retry => {
    const rule = matchingRule(rules, run) ?? (run.isTransient ? TRANSIENT : undefined)
    const count = (counts.get(rule) ?? 0) + 1
    counts.set(rule, count)
    const refusal = refusalOf(rule, count, run, spec)
    if (refusal === undefined) memoryGib = grownMemory(run, spec, memoryGib)
    const attempts = limitOf(rule) + 1
    const followed = { ...run, attempt: count + 1, attempts }
    return {
      ...followed,
      ...(memoryGib !== undefined && { memoryGib }),
      ...(refusal !== undefined && { refusal }),
    }
  })
  const newest = launches.at(-1)?.launch.spec.number ?? status?.launches?.count
  const latest = retries.find(({ number }) => number === newest)
  const last = retries.at(-1)
  const isOpen = launches.every(({ launch: each }) => each.spec.number <= (last?.number ?? 0) || !each.status?.vm)
  return {
    past: retries.filter((each) => each !== latest),
    latest,
    open: last !== undefined && isOpen && (last !== latest || last.refusal === undefined) ? last : undefined,
    memoryGib,
  }
}

/** Returns the failed runs by their numbers. */
function failedRuns(status: JobStatus | undefined, launches: readonly EndedLaunch[]): FailedRun[] {
  const recorded = (status?.retries ?? []).map(
    ({ launch: number, reason, memoryGib, ...rest }): FailedRun => ({
      ...{ number, ...rest },
      ...(reason === "OutOfMemory" ? { reason: "ContainerFailed", cause: reason } : { reason }),
      // A run that got a new VM without any rule had such a fault.
      isTransient: true,
      ...(memoryGib !== undefined && { recordedGib: memoryGib }),
    }),
  )
  const seen = launches.flatMap(({ launch, outcome }): FailedRun[] => {
    if (outcome.kind !== "finished" || outcome.finish.reason === "Succeeded") return []
    const { lastLine: _, transient = false, ...finish } = outcome.finish
    return [{ ...finish, number: launch.spec.number, isTransient: transient, launch }]
  })
  const runs = new Map([...recorded, ...seen].map((run) => [run.number, run]))
  return [...runs.values()].sort((a, b) => a.number - b.number)
}

function limitOf(rule: RetryRule | undefined): number {
  if (rule === undefined || rule.action === "fail") return 0
  return isGrowth(rule) ? Number.POSITIVE_INFINITY : (rule.limit ?? DEFAULT_RETRY_LIMIT)
}

/** Returns why a failure is final; empty if no rule is about it. Undefined: it gets a new VM. */
function refusalOf(
  rule: RetryRule | undefined,
  count: number,
  run: FailedRun,
  { maxMemory }: JobSpec,
): string | undefined {
  const limit = limitOf(rule)
  if (rule === undefined || limit === 0) return ""
  const had = memoryOf(run)
  if (run.cause === "OutOfMemory" && maxMemory !== undefined && had !== undefined && had >= parseGib(maxMemory))
    return `the container had ${gib(had)}, and maxMemory is ${maxMemory}: raise it in a new job`
  if (count <= limit) return undefined
  const what = rule === TRANSIENT ? "a fault that passes gets" : "its retry rule allows"
  return `${what} ${limit} new ${limit === 1 ? "VM" : "VMs"}, and this was the last one`
}

/** Returns the memory that the container had, GiB; undefined if the Launch's record is deleted. */
function memoryOf({ launch }: FailedRun): number | undefined {
  return launch && containerMemoryGib(launch.spec.offer)
}

/** Returns the memory that the container needs after a failure, GiB: twice as much, up to `maxMemory`. */
function grownMemory(run: FailedRun, { maxMemory, resources }: JobSpec, before: number | undefined) {
  if (run.cause !== "OutOfMemory" || maxMemory === undefined) return before
  const had = memoryOf(run)
  if (had === undefined) return Math.max(before ?? 0, run.recordedGib ?? 0) || undefined
  const requested = before ?? (resources?.memory === undefined ? 0 : parseGib(resources.memory))
  return Math.min(parseGib(maxMemory), 2 * Math.max(requested, had))
}

/** Returns the job with the memory that its next VM must have. */
export function withGrownMemory(job: StoredJob, { memoryGib }: Retries): StoredJob {
  if (memoryGib === undefined) return job
  const memory = `${Math.floor(memoryGib * 1024 ** 2)}Ki`
  return { ...job, spec: { ...job.spec, resources: { ...job.spec.resources, memory } } }
}

/** Returns the latest retries for the job's status. */
export function recordRetries(retries: readonly Retry[]): JobStatus["retries"] {
  if (retries.length === 0) return undefined
  return retries.slice(-LIMITS.retries).map(({ number: launch, reason, cause, exitCode, memoryGib, time }) => ({
    ...{ launch, reason: cause ?? reason, time },
    ...(exitCode !== undefined && { exitCode }),
    ...(cause === "OutOfMemory" && memoryGib !== undefined && { memoryGib }),
  }))
}

/** Returns what happened and what the next VM is, while it is awaited: `launch 1 failed: exit code 75; …`. */
export function retryText(retry: Retry): string {
  const next = hasGrown(retry)
    ? `the next VM's container gets at least ${gib(retry.memoryGib ?? 0)}`
    : "the job gets another VM"
  return `${failureText(retry)}; ${next} (${attemptText(retry)})`
}

/** Returns what happened and what the placed VM has: `launch 1 ran out of its 3.5 GiB; the next VM has 7.5 GiB …`. */
export function placedText(retry: Retry, { offer, prices }: { offer: Offer; prices: HourlyPrices }): string {
  const usdNow = sumOfParts(prices)
  const usdBefore = retry.launch && sumOfParts(pricesOf(retry.launch))
  const cost = usdBefore === undefined || usdBefore === usdNow ? "" : `, ${usd(usdNow)}/h instead of ${usd(usdBefore)}`
  const next = hasGrown(retry) ? `the next VM has ${gib(containerMemoryGib(offer))}` : "the job gets another VM"
  return `${failureText(retry)}; ${next} (${attemptText(retry)}${cost})`
}

/** Returns why a job whose next VM can't be had fails, with what that VM would have needed. */
export function unplacedText(retry: Retry | undefined, why: string): string {
  if (retry === undefined) return why
  const need = hasGrown(retry) ? `, and the next VM's container needs ${gib(retry.memoryGib ?? 0)}` : ""
  return `${failureText(retry)}${need}: ${why}`
}

function hasGrown({ cause, memoryGib }: Retry): boolean {
  return cause === "OutOfMemory" && memoryGib !== undefined
}

export function failureText(run: Retry): string {
  const { number, reason, cause, exitCode, message } = run
  const had = memoryOf(run)
  if (cause === "OutOfMemory") return `launch ${number} ran out of its ${had === undefined ? "memory" : gib(had)}`
  const what = reason === "ContainerFailed" ? "failed" : `failed (${reason})`
  const code = exitCode === undefined ? undefined : `exit code ${exitCode}`
  return [`launch ${number} ${what}`, message ?? code].filter(Boolean).join(": ")
}

function attemptText({ attempt, attempts }: Retry): string {
  return Number.isFinite(attempts) ? `attempt ${attempt} of ${attempts}` : `attempt ${attempt}`
}

function gib(amount: number): string {
  return `${Number(amount.toPrecision(4))} GiB`
}
