import { secondsBetween } from "../../core/apis/clock.ts"
import { isTerminal, JobReason, type StoredJob } from "../../core/apis/job.ts"
import { isOver, pricesOf, type StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { markCopy, type Origin } from "../../core/apis/origin.ts"
import { addParts, type CostParts, costOf, NO_COST, sumOfParts } from "../../core/apis/price.ts"
import { debugUntil, isKept, minimumBilledSecondsOf } from "../../core/reuse/reuse.ts"
import { BOOT_RESERVE_SECONDS, type Budget, jobBudget } from "../../market/placement/budget.ts"
import type { CancelState } from "../../market/placement/caps.ts"
import type { ImageState, VolumesVerdict } from "../../market/placement/inputs.ts"
import { toWaiter, type Waiter } from "../../market/placement/line.ts"
import { countLosses, type EndedLaunch, fallbackReason, type Losses } from "../../market/placement/losses.ts"
import { expectedRunSeconds, type Market } from "../../market/placement/market.ts"
import { bootStage, launchOutcome } from "../../market/placement/outcome.ts"
import type { JobSettings } from "../../market/placement/settings.ts"
import type { PrerequisiteFacts } from "../prerequisites.ts"
import type { InstallationFacts } from "./dependencies.ts"
import { deriveRetries, type Retries } from "./retries.ts"

/** Inputs of a decision on a Job that `gather` has read, besides the Job itself. */
export interface JobObservation {
  /** The job's own Launches. They include the one that its status names, unless a live read found it deleted. */
  launches: readonly StoredLaunch[]
  /** Calculates the market from earlier reads. It runs only if the job needs a place. */
  market: (waiter: Waiter) => Market
  /** Calculates which idle VMs are to end because a cap allows fewer, also those of other jobs. */
  surplusIdle?: () => readonly StoredLaunch[]
  /** State of the search for the job's buckets. Absent if the job has none, or no search runs. */
  volumes?: VolumesVerdict
  /** Known architectures of the job's image. Absent if no lookup runs. */
  image?: ImageState
  installation: InstallationFacts
  /** Organization of the project. Absent: there is none. */
  organization?: string
  /** State of the caps that cancel running jobs. Absent: there are none. */
  cancel?: CancelState
  /** Origin of the job, which another job of the same submission makes a copy. */
  origin: Origin
  /** Deletion of the project for which its queued jobs are cancelled. Absent: there is none. */
  ending?: string
  /** Limit of the project that keeps the job waiting. Absent: none does. */
  overLimit?: string
  /** Reason why the job has not all values of its secretEnv, for people. Absent: it has, or is not waiting for a place. */
  secretMissing?: string
  /** Prerequisites of the job. Absent: it has none, or it has ended. */
  prerequisites?: PrerequisiteFacts
  /** True while a job or an array that waits for this one lacks its outcome. Absent: none does. */
  isOutcomeAwaited?: boolean
  /** True while a reader waits for the job's end. Absent: none does. */
  isEndAwaited?: boolean
  /** Seconds since the container's first start, on any VM. Absent: they are counted by the calendar. */
  runSeconds?: number
  /**
   * Seconds for which the newest Launch is in its present part of the boot. Absent: they are counted by the calendar.
   */
  bootSeconds?: number
  /** Seconds since the job was created. Absent: they are counted by the calendar. */
  queueSeconds?: number
}

/** A Launch of the job, with what it means for the job. */
export interface LaunchFacts extends EndedLaunch {
  isOver: boolean
}

/** Seconds that are left of each limit. Infinite: the limit does not hold now. */
export interface TimeLeft {
  /** `maxQueueSeconds`, in which the container must start. It does not hold after the first start of the container. */
  queue: number
  /** Budget of the newest Launch, after which Berth ends its VM. Its agent ends it first. */
  budget: number
  /** Deadline of the newest Launch's boot; undefined while it has not begun. */
  boot: number | undefined
  /** Timeout, with the grace that the agent has to enforce it. */
  run: number
  /** Timeout of the next container, whole seconds: what earlier runs left of it. */
  timeout: number
}

/** Facts on which a decision on a Job depends. `deriveFacts` derives each of them once. */
export interface JobFacts {
  job: StoredJob
  now: Date
  settings: JobSettings
  observed: JobObservation
  /** By their numbers. */
  launches: readonly LaunchFacts[]
  newest: LaunchFacts | undefined
  /** Launches whose VM may exist. */
  alive: readonly StoredLaunch[]
  /** Those whose VM neither waits for another job nor is kept for sessions. */
  unkept: readonly StoredLaunch[]
  /** Time until which the VM of the failed job is kept for sessions, RFC 3339. Absent: it is not. */
  keptUntil: string | undefined
  /** Number of the next Launch. */
  nextNumber: number
  origin: Origin
  losses: Losses
  retries: Retries
  /** Reason why a `spotFirst` job gets on-demand VMs. Absent: it may get spot VMs. */
  fallback: string | undefined
  /** Amount that the job may still spend. Absent: it has no limit of its own. */
  budget: Budget | undefined
  /** The job as one that looks for a place. */
  waiter: Waiter
  left: TimeLeft
  costs: CostFacts
  /** Time that the job is expected to run, seconds. */
  expectedSeconds: number
}

/** Costs of the job's Launches. */
interface CostFacts {
  /** Of the VMs that have ended. */
  ended: CostParts
  endedUsd: number
  /** Of those that were spot VMs, USD. */
  endedSpotUsd: number
  /** Of the times in which they waited for another job, USD. */
  endedIdleUsd: number
  /** Of all VMs until now: those that ended, and those whose end the cloud has not confirmed yet. USD. */
  untilNowUsd: number
}

/** Derives the facts of a Job. Pure. */
export function deriveFacts(job: StoredJob, observed: JobObservation, now: Date, settings: JobSettings): JobFacts {
  const launches = byNumber(observed.launches).map((launch) => ({
    launch,
    outcome: launchOutcome(launch),
    isOver: isOver(launch),
  }))
  const newest = launches.at(-1)
  const alive = launches.flatMap(({ launch, isOver: hasNoVm }) => (hasNoVm ? [] : [launch]))
  const hasEnded = isTerminal(job.status?.phase)
  return {
    job,
    now,
    settings,
    observed,
    launches,
    newest,
    alive,
    unkept: alive.filter((launch) => !isKept(launch) || isDebugOver(launch, job, observed)),
    keptUntil: newest && debugUntil(newest.launch),
    nextNumber: Math.max(job.status?.launches?.count ?? 0, newest?.launch.spec.number ?? 0) + 1,
    origin: originIn(job, observed),
    left: timeLeft(job, newest?.launch, observed, { now, settings }),
    costs: sumCosts(observed.launches, now),
    losses: countLosses(job, launches),
    fallback: hasEnded ? undefined : fallbackReason(job, launches),
    retries: deriveRetries(job, launches),
    budget: jobBudget(job, observed.launches),
    waiter: toWaiter(job),
    expectedSeconds: expectedRunSeconds(job, settings),
  }
}

/** Returns true if a VM that is kept for sessions is to end: by request, for a cap that cancels jobs, or with its project. */
function isDebugOver(launch: StoredLaunch, { spec }: StoredJob, { cancel, ending }: JobObservation): boolean {
  if (debugUntil(launch) === undefined) return false
  return spec.debugEnded === true || cancel?.message !== undefined || ending !== undefined
}

/** Returns a job's Launches by their numbers, the newest last. */
export function byNumber(launches: readonly StoredLaunch[]): StoredLaunch[] {
  return launches.toSorted((a, b) => a.spec.number - b.spec.number)
}

/** Returns the origin of a Job. A copy stays one after its original and the records of its VMs are deleted. */
function originIn(job: StoredJob, { origin }: JobObservation): Origin {
  const wasHeld = job.status?.reason === JobReason.Held && origin.is === "recorded" && origin.submission !== undefined
  return wasHeld ? markCopy("a Job that is deleted", ANNOTATIONS.submission) : origin
}

function timeLeft(
  { metadata, spec, status }: StoredJob,
  launch: StoredLaunch | undefined,
  { launches, runSeconds, bootSeconds, queueSeconds }: JobObservation,
  { now, settings }: { now: Date; settings: JobSettings },
): TimeLeft {
  const hasStarted =
    status?.startTime !== undefined || launches.some((each) => each.status?.agent?.startTime !== undefined)
  const startTime = status?.startTime ?? launch?.status?.agent?.startTime
  const ran = startTime === undefined ? 0 : (runSeconds ?? secondsBetween(startTime, now))
  const { timeoutSeconds = settings.timeoutSeconds, terminationGraceSeconds = 0, maxQueueSeconds } = spec
  // A preempted job keeps its place without limit, because its run was paid for.
  const waited = queueSeconds ?? secondsBetween(metadata.creationTimestamp, now)
  const stage = launch && bootStage(launch)
  return {
    queue: maxQueueSeconds === undefined || hasStarted ? Number.POSITIVE_INFINITY : maxQueueSeconds - waited,
    budget: launch === undefined ? Number.POSITIVE_INFINITY : budgetSecondsLeft(launch, now),
    boot: stage && stage.seconds - (bootSeconds ?? secondsBetween(stage.since, now)),
    run: timeoutSeconds + terminationGraceSeconds + settings.timeoutGraceSeconds - ran,
    timeout: Math.ceil(timeoutSeconds - (status?.startTime === undefined ? 0 : ran)),
  }
}

function budgetSecondsLeft({ spec, status }: StoredLaunch, now: Date): number {
  const since = status?.vm?.createTime
  if (spec.budgetSeconds === undefined || since === undefined) return Number.POSITIVE_INFINITY
  return BOOT_RESERVE_SECONDS + spec.budgetSeconds - secondsBetween(since, now)
}

function sumCosts(launches: readonly StoredLaunch[], now: Date): CostFacts {
  const endedCost = ({ status }: StoredLaunch) => status?.cost ?? NO_COST
  const ended = addParts(launches.map(endedCost))
  const live = launches.flatMap((launch) => (isOver(launch) ? [] : [costSince(launch, now)]))
  const spot = launches.filter(({ spec }) => spec.offer.provisioning === "spot")
  return {
    ended,
    endedUsd: sumOfParts(ended),
    endedSpotUsd: sumOfParts(addParts(spot.map(endedCost))),
    endedIdleUsd: roundUsd(launches.reduce((sum, { status }) => sum + (status?.idleUsd ?? 0), 0)),
    untilNowUsd: sumOfParts(addParts([ended, ...live])),
  }
}

function costSince(launch: StoredLaunch, now: Date): CostParts {
  const since = launch.status?.vm?.createTime
  if (since === undefined) return NO_COST
  const minimumBilledSeconds = minimumBilledSecondsOf(launch)
  return costOf(pricesOf(launch), { seconds: secondsBetween(since, now), minimumBilledSeconds })
}
