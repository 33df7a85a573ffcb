import { isDeepStrictEqual } from "node:util"
import { secondsBetween } from "../../core/apis/clock.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import {
  arrayError,
  DEFAULT_PARALLELISM,
  hasArrayEnded,
  JOB_ARRAY_FINALIZER,
  JobArrayReason,
  type JobArrayStatus,
  type StoredJobArray,
} from "../../core/apis/jobarray.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { EventNote } from "../../core/kube/events.ts"
import { observedAfter, openPrerequisites } from "../../core/order/prerequisites.ts"
import type { Decision } from "../../core/runtime/reconcile-object.ts"
import type { PrerequisiteFacts } from "../prerequisites.ts"
import type { JobSummary } from "../settled-jobs.ts"
import {
  attemptOf,
  countIndexes,
  currentJobs,
  nextAttempt,
  observe,
  type Progress,
  pendingIn,
  progressFields,
  recordedProgress,
  retry,
  surplusJobs,
  unfinishedAmong,
} from "./progress.ts"
import {
  arrayTimes,
  buildConditions,
  type Cause,
  endVerdict,
  nameTakenEvent,
  reasonEvents,
  retriedEvent,
  runningVerdict,
  type Verdict,
} from "./status.ts"

/** Facts about an array besides the object. */
export interface ArrayObservation {
  /** The array's Jobs that are not settled, and those that a live read found. */
  jobs: readonly StoredJob[]
  /** Its settled Jobs. */
  settled: readonly JobSummary[]
  /** Active indexes whose Job was deleted. */
  missing: ReadonlySet<number>
  /** Indexes whose Job could not be created, because another Job has its name. */
  taken: ReadonlySet<number>
  /** Launches whose VMs wait for a job of this array only. Absent: there are none. */
  kept?: readonly StoredLaunch[]
  /** Prerequisites of the array. Absent: it has none. */
  prerequisites?: PrerequisiteFacts
  /** True while a job or an array that waits for this one lacks its outcome. */
  isAwaited?: boolean
  /** Reason why no Job may be created now. */
  blocked?: Cause
  /** Number of Jobs that the project may still create. */
  room: number
  /** Seconds since this process last wrote the status. Absent: it has not. */
  writtenSeconds?: number
}

/** A Job to create. */
export interface NewJob {
  index: number
  attempt: number
}

export type ArrayAction =
  | { do: "addFinalizer" }
  | { do: "createJobs"; jobs: readonly NewJob[] }
  | { do: "cancelJobs"; jobs: readonly StoredJob[] }
  | { do: "deleteJobs"; jobs: readonly JobSummary[] }
  /** End VMs for which the array has no job left. */
  | { do: "endLaunches"; launches: readonly StoredLaunch[] }
  | { do: "deleteArray" }
  | { do: "dropFinalizer" }

export interface ArrayDecision extends Decision<JobArrayStatus, ArrayAction> {
  actions: ArrayAction[]
  events: EventNote[]
}

/** Times in the life of an array, seconds. */
export interface ArraySettings {
  /** Time for which an ended array is kept, unless it says otherwise. */
  ttlSeconds: number
}

/** Jobs that one reconcile creates. The next one follows at once, with the state of the array as it is then. */
const MOST_CREATED = 50

/** Time between two writes of a status that only has more progress. */
const PROGRESS_SECONDS = 1

/** Delay before an array that may create no jobs is checked again. */
const BLOCKED_SECONDS = 10

/**
 * Decides what to do with an array. The indexes of its status and the Jobs that exist say which indexes have no Job yet. The
 * name of a Job makes a second one of its index and attempt impossible. Pure.
 */
export function decide(
  array: StoredJobArray,
  observed: ArrayObservation,
  now: Date,
  settings: ArraySettings,
): ArrayDecision {
  const { deletionTimestamp, finalizers = [] } = array.metadata
  if (deletionTimestamp !== undefined) return decideDeletion(array, observed)
  if (!finalizers.includes(JOB_ARRAY_FINALIZER)) return { actions: [{ do: "addFinalizer" }], events: [] }
  const error = array.status?.size === undefined ? arrayError(array.spec) : undefined
  if (error !== undefined) return invalid(array, error, now, settings)
  const { progress, events } = progressOf(array, observed)
  const current = currentJobs(array, observed.jobs, progress)
  const counts = countIndexes(progress, current)
  const { maxFailed = Number.POSITIVE_INFINITY } = array.spec
  const pending = progress.failed.size > maxFailed ? [] : pendingIn(progress)
  const isDone = progress.active.size === 0 && pending.length === 0
  const blocked = waitsFor(array, observed) ?? observed.blocked
  const failure = blocked?.reason === "DependencyFailed" && !isDone ? blocked : undefined
  const isOver = isDone || failure !== undefined
  const verdict = isDone ? endVerdict(array, counts) : runningVerdict(array, counts, blocked)
  const after = observedAfter(observed.prerequisites?.states ?? [])
  const status = { ...progressFields(progress), counts, ...(after && { after }) }
  const decision = writeIfDue(array, { status, verdict, events }, observed, now)
  const seen = { ...observed, ...(blocked && { blocked }) }
  decision.actions.push(...actionsOn(array, seen, { progress, current, pending }))
  return { ...decision, ...requeue(array, decision, { isOver, pending }, { now, settings, observed: seen }) }
}

/**
 * Returns why an array waits for its prerequisites; undefined: it doesn't. All outcomes are in its status before it creates
 * a job.
 */
function waitsFor(array: StoredJobArray, { prerequisites }: ArrayObservation): Cause | undefined {
  if (prerequisites === undefined) return undefined
  if (prerequisites.obstacle !== undefined) return prerequisites.obstacle
  const isRecorded = openPrerequisites(array).length === 0
  return isRecorded ? undefined : { reason: JobArrayReason.Queued, message: "all that it waited for has ended" }
}

/** Cancels the unfinished Jobs. The deletion doesn't wait for their end. */
function decideDeletion(array: StoredJobArray, { jobs, isAwaited }: ArrayObservation): ArrayDecision {
  if (!array.metadata.finalizers?.includes(JOB_ARRAY_FINALIZER)) return { actions: [], events: [] }
  // What waits for an array that has ended gets its outcome first.
  const isKept = hasArrayEnded(array) && isAwaited === true
  return {
    actions: [...cancel(unfinishedAmong(jobs)), ...(isKept ? [] : [{ do: "dropFinalizer" } as const])],
    events: [],
  }
}

function invalid(array: StoredJobArray, message: string, now: Date, settings: ArraySettings): ArrayDecision {
  const verdict = { phase: "failed", reason: JobArrayReason.InvalidDefinition, message, isOver: true } as const
  const decision = writeIfDue(array, { status: {}, verdict, events: [] }, undefined, now)
  return { ...decision, ...requeue(array, decision, { isOver: true, pending: [] }, { now, settings }) }
}

/** Returns the progress after what was observed and requested, and the events of it. */
function progressOf(array: StoredJobArray, observed: ArrayObservation): { progress: Progress; events: EventNote[] } {
  const before = recordedProgress(array)
  const seen = currentJobs<JobSummary>(array, [...observed.settled, ...observed.jobs], before)
  const progress = observe(before, seen, observed.missing)
  const events: EventNote[] = []
  const retried = retry(array, progress)
  if (retried !== undefined) events.push(retriedEvent(retried))
  if (array.spec.cancelled === true) {
    for (const index of pendingIn(progress)) progress.cancelled.add(index)
    return { progress, events }
  }
  const pending = new Set(pendingIn(progress))
  const taken = [...observed.taken].filter((index) => pending.has(index))
  for (const index of taken) events.push(nameTakenEvent(array, index, attemptOf(progress, index)))
  nextAttempt(progress, taken)
  return { progress, events }
}

/** Returns the write of the status if it is due. More progress alone waits, so that a large array writes once a second. */
function writeIfDue(
  array: StoredJobArray,
  { status, verdict, events }: { status: Partial<JobArrayStatus>; verdict: Verdict; events: EventNote[] },
  observed: ArrayObservation | undefined,
  now: Date,
): ArrayDecision {
  const next: JobArrayStatus = {
    observedGeneration: array.metadata.generation,
    phase: verdict.phase,
    conditions: buildConditions(array, verdict, now),
    ...status,
    ...arrayTimes(array, verdict.isOver, now),
  }
  if (isDeepStrictEqual(next, array.status)) return { actions: [], events: [] }
  const isMinor = isDeepStrictEqual(significant(next), significant(array.status ?? {}))
  const left = isMinor ? PROGRESS_SECONDS - (observed?.writtenSeconds ?? PROGRESS_SECONDS) : 0
  if (left > 0) return { actions: [], events: [], requeueAfter: left }
  return { status: next, actions: [], events: [...events, ...reasonEvents(array.status, next)] }
}

/** Returns the part of a status that is written at once. */
function significant({ observedGeneration, phase, conditions, attempts, retried, completionTime }: JobArrayStatus) {
  return { observedGeneration, phase, conditions, attempts, retried, completionTime }
}

interface Work {
  progress: Progress
  current: ReadonlyMap<number, StoredJob>
  /** Indexes that may get a Job now or later. */
  pending: readonly number[]
}

function actionsOn(array: StoredJobArray, observed: ArrayObservation, work: Work): ArrayAction[] {
  const { progress, current } = work
  const unfinished = unfinishedAmong(current.values())
  const release = endKept(observed, work, unfinished)
  const surplus = surplusJobs(array, observed.settled, progress)
  const remove: ArrayAction[] = surplus.length === 0 ? [] : [{ do: "deleteJobs", jobs: surplus }]
  if (array.spec.cancelled === true) return [...cancel(unfinished), ...release, ...remove]
  const jobs = newJobs(array, observed, work, unfinished.length)
  return [...release, ...(jobs.length === 0 ? [] : [{ do: "createJobs", jobs } as const]), ...remove]
}

/**
 * Ends the VMs that wait for a job of the array, once each of its jobs runs. A job that boots may be about to take one of
 * them over, or may lose its own VM.
 */
function endKept({ kept = [] }: ArrayObservation, { pending }: Work, unfinished: readonly StoredJob[]): ArrayAction[] {
  const isAnyWaiting = pending.length > 0 || unfinished.some(({ status }) => status?.phase !== "running")
  return kept.length === 0 || isAnyWaiting ? [] : [{ do: "endLaunches", launches: kept }]
}

function newJobs(
  { spec }: StoredJobArray,
  { blocked, room }: ArrayObservation,
  { progress, pending }: Work,
  unfinished: number,
): NewJob[] {
  if (blocked !== undefined) return []
  const { parallelism = DEFAULT_PARALLELISM } = spec
  const count = Math.max(0, Math.min(parallelism - unfinished, room, MOST_CREATED))
  return pending.slice(0, count).map((index) => ({ index, attempt: attemptOf(progress, index) }))
}

function cancel(jobs: readonly StoredJob[]): ArrayAction[] {
  const left = jobs.filter(({ spec }) => spec.cancelled !== true)
  return left.length === 0 ? [] : [{ do: "cancelJobs", jobs: left }]
}

/** Returns the delay of the next look, and the deletion of an array whose TTL has passed. */
function requeue(
  array: StoredJobArray,
  { actions, status, requeueAfter }: ArrayDecision,
  { isOver, pending }: { isOver: boolean; pending: readonly number[] },
  { now, settings, observed }: { now: Date; settings: ArraySettings; observed?: ArrayObservation },
): Partial<ArrayDecision> {
  if (!isOver) {
    const isWaiting = pending.length > 0 && (observed?.blocked !== undefined || observed?.room === 0)
    const waits = [requeueAfter, isWaiting ? BLOCKED_SECONDS : undefined].filter((seconds) => seconds !== undefined)
    return waits.length === 0 ? {} : { requeueAfter: Math.min(...waits) }
  }
  const completionTime = status?.completionTime ?? array.status?.completionTime
  if (completionTime === undefined) return {}
  const left = (array.spec.ttlSecondsAfterFinished ?? settings.ttlSeconds) - secondsBetween(completionTime, now)
  if (left > 0) return { requeueAfter: Math.min(left, requeueAfter ?? left) }
  if (observed?.isAwaited === true) return { requeueAfter: BLOCKED_SECONDS }
  return { actions: [...actions, { do: "deleteArray" }] }
}
