import { secondsBetween } from "../../core/apis/clock.ts"
import { CANCELLED, isTerminal, JOB_FINALIZER, JobReason, type JobStatus, type StoredJob } from "../../core/apis/job.ts"
import { mirroredLabels } from "../../core/apis/labels.ts"
import { type Finish, isOver, type Launch, type StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import { copyOf, type Origin, originOf } from "../../core/apis/origin.ts"
import type { EventNote } from "../../core/kube/events.ts"
import { BOOT_RESERVE_SECONDS, budgetOf } from "../../market/placement/budget.ts"
import { type CancelState, hasStrictCap } from "../../market/placement/caps.ts"
import type { ImageState } from "../../market/placement/inputs.ts"
import { reasonToWait, type VolumesVerdict } from "../../market/placement/inputs.ts"
import { fallbackOf, lossesOf } from "../../market/placement/losses.ts"
import type { Market } from "../../market/placement/market.ts"
import { bootOverrun, bootStage, machineFailureOf, outcomeOf } from "../../market/placement/outcome.ts"
import { type PlaceVerdict, place } from "../../market/placement/place.ts"
import type { JobSettings } from "../../market/placement/settings.ts"
import { eventsOf } from "./conditions.ts"
import { bootFailureReason, countOutcomes, launchObject, newest } from "./launches.ts"
import type { InstallationFacts } from "./options.ts"
import { nextStatus, type Verdict, writeAfter } from "./status.ts"

/** Inputs of a decision on a Job, besides the Job itself. */
export interface JobObservation {
  /** The job's own Launches. They include the one that its status names, unless a live read found it deleted. */
  launches: readonly StoredLaunch[]
  /** Calculates the market from earlier reads. It runs only if the job needs a place. */
  market: () => Market
  /** State of the search for the job's buckets. Absent if the job has none, or no search runs. */
  volumes?: VolumesVerdict
  /** Known architectures of the job's image. Absent if no lookup runs. */
  image?: ImageState
  installation: InstallationFacts
  /** Organization of the project. Absent: there is none. */
  organization?: string
  /** State of the caps that cancel running jobs. Absent: there are none. */
  cancel?: CancelState
  /** Origin of the job. Absent: it is read from the Job alone. */
  origin?: Origin
  /** Deletion of the project for which its queued jobs are cancelled. Absent: there is none. */
  ending?: string
  /** Limit of the project that keeps the job waiting. Absent: none does. */
  overLimit?: string
  /** Reason why the job has not all values of its secretEnv, for people. Absent: it has, or is not waiting for a place. */
  secretMissing?: string
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

/** Actions, in the order of execution. */
export type JobAction =
  /** Write the finalizer, its uid, and the mirrored labels. */
  | { do: "adopt"; labels: Record<string, string> }
  /** `isStrict`: its reservation holds for the prices of the decision. */
  | { do: "createLaunch"; launch: Launch; isStrict: boolean }
  | { do: "writeStatus"; status: JobStatus }
  | { do: "endLaunch"; launch: StoredLaunch }
  /** Remove the finalizer of a job whose VMs are deleted, with what an adoption writes. Requires that no Launch has the number `next`. */
  | { do: "release"; next: number; labels?: Record<string, string> }
  | { do: "dropFinalizer" }

export interface JobDecision {
  /** Current or next status. It is written only by an action. */
  status: JobStatus
  actions: JobAction[]
  /** Events that are emitted after the actions. */
  events: EventNote[]
  requeueAfter?: number
}

/** Next phase of a job, and what follows from it. */
interface Step {
  verdict: Verdict
  create?: Launch
  /** True if the Launch's reservation must not be exceeded. */
  isStrict?: boolean
  end?: readonly StoredLaunch[]
  /** True if the job ends only if its Launches end in the version that was read: a start may have been reported since. */
  isUnstarted?: boolean
  requeueAfter?: number
}

/**
 * Returns the actions for a Job: the state machine of its life. Pure.
 * A terminal job never changes. `cancelled` takes precedence over reports of the VM. A new Launch needs the cloud's
 * word that all earlier ones are over.
 */
export function decide(job: StoredJob, observed: JobObservation, now: Date, settings: JobSettings): JobDecision {
  if (job.metadata.deletionTimestamp !== undefined) return decideDeletion(job, observed)
  if (isTerminal(job.status?.phase)) return decideEnded(job, observed, now, settings)
  const step = decideStep(job, observed, now, settings)
  const { launches, isEndAwaited } = observed
  const status = nextStatus(job, { launches, isEndAwaited, verdict: step.verdict, now, settings })
  const origin = originIn(job, observed)
  const queueLeft = isTerminal(status.phase) ? Number.POSITIVE_INFINITY : queueSecondsLeft(job, observed, now)
  return toDecision(job, step, { status, origin, launches, queueLeft, now, settings })
}

/** Ends the VMs, then drops the finalizer when no VM is left. */
function decideDeletion(job: StoredJob, { launches }: JobObservation): JobDecision {
  const status = job.status ?? {}
  const alive = launches.filter((launch) => !isOver(launch))
  if (alive.length > 0) return { status, actions: endAll(alive), events: [] }
  const isKept = job.metadata.finalizers?.includes(JOB_FINALIZER) ?? false
  return { status, actions: isKept ? [{ do: "dropFinalizer" }] : [], events: [] }
}

/**
 * Follows an ended job until its VM is deleted, its cost is final, and all readers have seen its end. Then it is settled,
 * and `SettledJobs` deletes it after its TTL. A reader of the end requeues a job that it has seen.
 */
function decideEnded(
  job: StoredJob,
  { launches, isEndAwaited }: JobObservation,
  now: Date,
  settings: JobSettings,
): JobDecision {
  const status = nextStatus(job, { launches, isEndAwaited, verdict: undefined, now, settings })
  const actions = endAll(launches.filter((launch) => !isOver(launch)))
  const after = writeAfter(job.status, status, launches, { now, settings })
  if (after === 0) actions.unshift(...releaseOf(job, status, launches), { do: "writeStatus", status })
  const events = after === 0 ? eventsOf(job, status) : []
  return { status, actions, events, ...(after !== undefined && after > 0 && { requeueAfter: after }) }
}

/** Returns actions that end the Launches. One whose agent has finished ends by itself. */
function endAll(launches: readonly StoredLaunch[]): JobAction[] {
  return launches
    .filter((launch) => launch.spec.ended !== true && launch.status?.agent?.finish === undefined)
    .map((launch) => ({ do: "endLaunch", launch }))
}

function decideStep(job: StoredJob, observed: JobObservation, now: Date, settings: JobSettings): Step {
  if (job.spec.cancelled === true) {
    return { verdict: CANCELLED, end: observed.launches }
  }
  const origin = originIn(job, observed)
  if (origin.is === "copy") return held(origin)
  const launch = newest(observed.launches)
  const outcome = launch === undefined ? undefined : outcomeOf(launch)
  if (launch !== undefined && outcome?.kind === "finished") return concluded(outcome.finish, observed.launches)
  if (queueSecondsLeft(job, observed, now) <= 0) return queuedTooLong(job, observed.launches)
  if (launch !== undefined && outcome?.kind === "live") {
    return decideLive(job, launch, observed, { now, settings })
  }
  return decideQueued(job, observed, now, settings)
}

/**
 * Returns the seconds in which the container of a job with `maxQueueSeconds` must start. There is no limit after its first
 * start: a preempted job keeps its place, because its run was paid for.
 */
function queueSecondsLeft(job: StoredJob, { launches, queueSeconds }: JobObservation, now: Date): number {
  const { maxQueueSeconds } = job.spec
  const hasStarted =
    job.status?.startTime !== undefined || launches.some(({ status }) => status?.agent?.startTime !== undefined)
  if (maxQueueSeconds === undefined || hasStarted) return Number.POSITIVE_INFINITY
  return maxQueueSeconds - (queueSeconds ?? secondsBetween(job.metadata.creationTimestamp, now))
}

function queuedTooLong({ spec, status }: StoredJob, launches: readonly StoredLaunch[]): Step {
  const { reason = JobReason.Queued, message = "it was not considered yet" } = status ?? {}
  const limit = `the container did not start within its maxQueueSeconds of ${spec.maxQueueSeconds} s`
  const verdict = { phase: "failed", reason: JobReason.QueueDeadlineExceeded } as const
  return {
    verdict: { ...verdict, message: `${limit}. The last reason was ${reason}: ${message}` },
    end: launches,
    isUnstarted: true,
  }
}

/** Returns the origin of a Job. A copy stays one after its original and the records of its VMs are deleted. */
function originIn(job: StoredJob, observed: JobObservation): Origin {
  const origin = observed.origin ?? originOf(job, observed.installation.id)
  const wasHeld = job.status?.reason === JobReason.Held && origin.is === "recorded" && origin.submission !== undefined
  return wasHeld ? copyOf("a Job that is deleted", ANNOTATIONS.submission) : origin
}

function held({ of, annotation }: Origin & { is: "copy" }): Step {
  const message =
    `this Job is a copy of ${of}, which already ran, so Berth does not run it. ` +
    `To run it, remove its annotation ${annotation}`
  return { verdict: { phase: "queued", reason: JobReason.Held, message } }
}

/** Returns the step after the agent reported the end of the run. */
function concluded(finish: Finish, launches: readonly StoredLaunch[]): Step {
  const { reason, exitCode, time } = finish
  const isSuccess = reason === "Succeeded"
  const code = exitCode === undefined ? "" : ` (exit code ${exitCode})`
  const message = finish.message ?? (isSuccess ? `the container succeeded${code}` : `the container failed${code}`)
  const phase = isSuccess ? "succeeded" : "failed"
  return { verdict: { phase, reason, message, finishTime: time }, end: launches }
}

/** Returns the step of a job whose VM boots or runs, within its deadlines or not. */
function decideLive(
  job: StoredJob,
  launch: StoredLaunch,
  { runSeconds, bootSeconds, cancel }: JobObservation,
  { now, settings }: { now: Date; settings: JobSettings },
): Step {
  if (cancel?.message !== undefined) {
    return { verdict: { phase: "cancelled", reason: JobReason.CapReached, message: cancel.message }, end: [launch] }
  }
  const startTime = launch.status?.agent?.startTime
  if (startTime === undefined) return decideBooting(job, launch, bootSeconds, now)
  const { timeoutSeconds = settings.timeoutSeconds, terminationGraceSeconds = 0 } = job.spec
  const limit = timeoutSeconds + terminationGraceSeconds + settings.timeoutGraceSeconds
  const timeLeft = limit - (runSeconds ?? secondsBetween(job.status?.startTime ?? startTime, now))
  const budgetLeft = budgetSecondsLeft(launch, now)
  const left = Math.min(timeLeft, budgetLeft)
  if (left > 0) {
    const message = `the container runs on ${launch.status?.vm?.id ?? launch.metadata.name}`
    const capLeft = cancel && Math.min(CAP_CHECK_SECONDS, cancel.secondsLeft ?? Number.POSITIVE_INFINITY)
    const requeueAfter = Math.min(left, capLeft ?? Number.POSITIVE_INFINITY) + 1
    return { verdict: { phase: "running", reason: JobReason.Started, message }, requeueAfter }
  }
  return { verdict: budgetLeft <= 0 ? budgetExceeded(job) : deadlineExceeded(job, settings), end: [launch] }
}

/** Returns the seconds until a VM must be ended so that its job stays within its budget. Its agent ends it first. */
function budgetSecondsLeft({ spec, status }: StoredLaunch, now: Date): number {
  const since = status?.vm?.createTime
  if (spec.budgetSeconds === undefined || since === undefined) return Number.POSITIVE_INFINITY
  return BOOT_RESERVE_SECONDS + spec.budgetSeconds - secondsBetween(since, now)
}

/** Longest delay before a running job under a cap that cancels is checked again, seconds. New VMs spend it sooner. */
const CAP_CHECK_SECONDS = 60

function budgetExceeded({ spec }: StoredJob): Verdict {
  const message = `the VM was ended before the job costs more than its maxCostUsd of ${spec.maxCostUsd}`
  return { phase: "failed", reason: JobReason.BudgetExceeded, message }
}

function decideBooting(job: StoredJob, launch: StoredLaunch, bootSeconds: number | undefined, now: Date): Step {
  const { number, bootDeadlineSeconds } = launch.spec
  const unanswered = launch.status?.vm === undefined ? launch.status?.unanswered : undefined
  const budgetLeft = budgetSecondsLeft(launch, now)
  if (budgetLeft <= 0) return { verdict: budgetExceeded(job), end: [launch] }
  const stage = bootStage(launch)
  const left = stage && Math.min(budgetLeft, stage.seconds - (bootSeconds ?? secondsBetween(stage.since, now)))
  if (left === undefined || left > 0) {
    const why = unanswered === undefined ? reasonOf(launch) : `no VM yet: ${unanswered.message}`
    const verdict = { phase: "booting", reason: JobReason.Booting, message: `launch ${number}: ${why}` } as const
    return { verdict, ...(left !== undefined && { requeueAfter: left + 1 }) }
  }
  const message =
    unanswered === undefined
      ? `launch ${number}: ${bootOverrun(launch)}; Berth terminates its VM`
      : `launch ${number} got no VM within ${bootDeadlineSeconds} s: ${unanswered.message}`
  return { verdict: { phase: "queued", reason: JobReason.BootDeadlineExceeded, message }, end: [launch] }
}

/** Returns the explanation of a Launch's placement, as written at that time. */
function reasonOf({ metadata }: StoredLaunch): string {
  return metadata.annotations?.[ANNOTATIONS.placementReason] ?? "preparing the VM"
}

function deadlineExceeded(job: StoredJob, settings: JobSettings): Verdict {
  const timeout = job.spec.timeoutSeconds ?? settings.timeoutSeconds
  return {
    phase: "failed",
    reason: JobReason.DeadlineExceeded,
    message: `not finished within its timeout of ${timeout} s`,
  }
}

/**
 * Returns the step of a job without a VM that may run its container: fail, wait for the end of the last VM, or find an
 * offer.
 */
function decideQueued(job: StoredJob, observed: JobObservation, now: Date, settings: JobSettings): Step {
  const { launches, ending } = observed
  if (ending !== undefined) {
    const message = `${ending}: its queued jobs are cancelled`
    return { verdict: { phase: "cancelled", reason: JobReason.ProjectDeleting, message }, end: launches }
  }
  const limit = limitReached(job, launches, settings)
  if (limit !== undefined) return { verdict: limit, end: launches }
  const timeout = job.spec.timeoutSeconds ?? settings.timeoutSeconds
  const started = job.status?.startTime
  const elapsed = started === undefined ? 0 : (observed.runSeconds ?? secondsBetween(started, now))
  const timeoutSeconds = Math.ceil(timeout - elapsed)
  if (timeoutSeconds <= 0) return { verdict: deadlineExceeded(job, settings), end: launches }
  const alive = launches.filter((launch) => !isOver(launch))
  if (alive.length > 0) {
    const verdict = { phase: "queued", reason: waitReason(alive), message: waitMessage(alive) } as const
    return { verdict, end: alive.filter(isBootFailure) }
  }
  return placed(job, observed, { now, settings, timeoutSeconds })
}

function isBootFailure(launch: StoredLaunch): boolean {
  return outcomeOf(launch).kind === "bootFailed"
}

function waitMessage(alive: readonly StoredLaunch[]): string {
  const failed = alive.find(({ status }) => machineFailureOf(status) !== undefined)
  const outcome = failed && outcomeOf(failed)
  if (outcome?.kind === "bootFailed") {
    return `launch ${failed?.spec.number}: ${outcome.message}; Berth tries the next machine after this VM is deleted`
  }
  const unsettled = alive.find(({ status }) => status?.vm === undefined && status?.unanswered !== undefined)
  if (unsettled === undefined)
    return `waiting until the VM of launch ${alive.map(({ spec }) => spec.number).join(", ")} is deleted`
  const { spec, status } = unsettled
  return `waiting until the cloud says if launch ${spec.number} has a VM: ${status?.unanswered?.message ?? ""}`
}

function waitReason(alive: readonly StoredLaunch[]): JobReason {
  const last = newest(alive)
  const outcome = last === undefined ? undefined : outcomeOf(last)
  if (outcome?.kind === "lost") return outcome.reason
  if (last !== undefined && outcome?.kind === "bootFailed") return bootFailureReason(last)
  return outcome?.kind === "unused" ? JobReason.BootDeadlineExceeded : JobReason.Queued
}

/** Returns the failure of a job that reached its limit of lost VMs, of preemptions or of failed boots. */
function limitReached(job: StoredJob, launches: readonly StoredLaunch[], settings: JobSettings): Verdict | undefined {
  const lost = lostCount(job, launches)
  if (lost >= settings.maxLost) {
    const message = `lost ${lost} VMs, the maximum for a job`
    return { phase: "failed", reason: JobReason.VMLost, message, lost }
  }
  const { preempted } = lossesOf(job, launches)
  const { maxPreemptions = Number.POSITIVE_INFINITY } = job.spec
  if (preempted > maxPreemptions) {
    const message = `the cloud preempted ${preempted} VMs, and maxPreemptions is ${maxPreemptions}`
    return { phase: "failed", reason: JobReason.Preempted, message, lost }
  }
  const failures = countOutcomes(launches, "bootFailed")
  if (failures < settings.maxBootFailures) return undefined
  const last = launches.findLast(({ status }) => machineFailureOf(status) !== undefined)
  const outcome = last && outcomeOf(last)
  const why = outcome?.kind === "bootFailed" ? `; launch ${last?.spec.number}: ${outcome.message}` : ""
  const message = `${failures} VMs were billed but never started the container${why}`
  return { phase: "failed", reason: JobReason.LaunchLimitExceeded, message }
}

/** Returns the number of lost VMs. A deleted Launch that the status names counts as one. */
function lostCount(job: StoredJob, launches: readonly StoredLaunch[]): number {
  const { current } = job.status?.launches ?? {}
  const isMissing = current !== undefined && !launches.some((launch) => launch.metadata.name === current)
  return lossesOf(job, launches).lost + (isMissing ? 1 : 0)
}

function placed(
  job: StoredJob,
  { launches, market, installation, organization, volumes, image, overLimit, secretMissing }: JobObservation,
  { now, settings, timeoutSeconds }: { now: Date; settings: JobSettings; timeoutSeconds: number },
): Step {
  const lost = lostCount(job, launches)
  if (overLimit !== undefined) {
    const verdict = { phase: "queued", reason: JobReason.ProjectLimit, message: overLimit, lost } as const
    return { verdict, requeueAfter: settings.limitRetrySeconds }
  }
  if (secretMissing !== undefined) {
    // A new Secret requeues the job.
    return { verdict: { phase: "queued", reason: JobReason.SecretMissing, message: secretMissing, lost } }
  }
  if (volumes !== undefined && volumes.kind !== "found") return withoutBuckets(volumes, lost, settings)
  if (image?.state === "looking") return withoutImage(job, lost)
  const budget = budgetOf(job, launches)
  const known = { ...(volumes && { buckets: volumes.places }), ...(image && { image }), budget }
  const present = market()
  const found = placeFor(job, launches, { ...present, ...known }, { now, settings })
  if (found.kind === "noOffer") {
    return { verdict: { phase: "failed", reason: JobReason.NoOffer, message: found.message, lost } }
  }
  if (found.kind === "noImage") {
    return { verdict: { phase: "failed", reason: JobReason.ImagePullFailed, message: found.message, lost } }
  }
  if (found.kind === "overBudget") {
    return { verdict: { phase: "failed", reason: JobReason.BudgetExceeded, message: found.message, lost } }
  }
  if (found.kind === "wait") {
    const { reason, message, seconds } = found
    return { verdict: { phase: "queued", reason, message, lost }, requeueAfter: seconds }
  }
  const number = nextNumber(job, launches)
  const { placement: chosen, why } = found
  const { preempted } = lossesOf(job, launches)
  const isStrict = budget !== undefined || hasStrictCap(present.levels)
  const vm = { placement: chosen, why, timeoutSeconds, preempted, budget, isStrict }
  const inputs = { number, ...vm, organization, volumes: volumes?.volumes }
  const create = launchObject(job, inputs, installation, settings)
  const message = `launch ${number}: ${why}`
  const { connection } = chosen.launchAccount
  const { offer, prices } = chosen
  const placement = { number, offer, prices, connection, why, volumes: volumes?.recorded }
  return { verdict: { phase: "booting", reason: JobReason.Booting, message, lost, placement }, create, isStrict }
}

/**
 * Finds a place. A `spotFirst` job whose spot VMs were preempted gets an on-demand VM, or a spot VM if there is no
 * on-demand one now.
 */
function placeFor(
  job: StoredJob,
  launches: readonly StoredLaunch[],
  market: Market,
  { now, settings }: { now: Date; settings: JobSettings },
): PlaceVerdict {
  const fallback = fallbackOf(job, launches)
  if (fallback !== undefined) {
    const onDemand = { ...job, spec: { ...job.spec, provisioning: "onDemand" as const } }
    const found = place(onDemand, market, now, settings)
    if (found.kind === "placed") return { ...found, why: `${found.why}; ${fallback}` }
  }
  return place(job, market, now, settings)
}

/**
 * Maximum delay before a job that has not ended is checked again, seconds. Its obstacle may end earlier than expected,
 * or a clock may have been wrong. Ended jobs only wait for their deletion, and there are many of them.
 */
const LONGEST_WAIT_SECONDS = 300

/** Delay before checking again for a lookup's answer, seconds. */
const LOOK_AGAIN_SECONDS = 1

/**
 * Waits for the registry's answer. The lookup times out after a few seconds; then the default architecture is assumed.
 */
function withoutImage({ spec }: StoredJob, lost: number): Step {
  const message = `resolving the CPU architectures of image ${spec.image}`
  return { verdict: { phase: "queued", reason: JobReason.Queued, message, lost }, requeueAfter: LOOK_AGAIN_SECONDS }
}

/** Waits for access to the buckets. A user may create the bucket or grant access at any time. */
function withoutBuckets(
  volumes: Exclude<VolumesVerdict, { kind: "found" }>,
  lost: number,
  settings: JobSettings,
): Step {
  const verdict = { phase: "queued", reason: reasonToWait(volumes), message: volumes.message, lost } as const
  return { verdict, requeueAfter: volumes.kind === "looking" ? LOOK_AGAIN_SECONDS : settings.bucketRetrySeconds }
}

function toDecision(
  job: StoredJob,
  step: Step,
  context: {
    status: JobStatus
    origin: Origin
    launches: readonly StoredLaunch[]
    /** Seconds until the job has waited too long. */
    queueLeft: number
    now: Date
    settings: JobSettings
  },
): JobDecision {
  const { status, launches, queueLeft } = context
  const actions: JobAction[] = []
  const labels = mirroredLabels(job.spec.labels)
  const isNew = needsAdoption(job, context.origin)
  if (status.settled === true) actions.push(...releaseOf(job, status, launches, isNew ? labels : undefined))
  else if (isNew) actions.push({ do: "adopt", labels })
  if (step.create !== undefined)
    actions.push({ do: "createLaunch", launch: step.create, isStrict: step.isStrict === true })
  const after = writeAfter(job.status, status, launches, context)
  const write: JobAction[] = after === 0 ? [{ do: "writeStatus", status }] : []
  const end = endAll((step.end ?? []).filter((launch) => !isOver(launch)))
  // A job's end is written before its VM is ended. A VM is ended before the job is written as waiting again.
  if (isTerminal(status.phase) && step.isUnstarted !== true) actions.push(...write, ...end)
  else actions.push(...end, ...write)
  const waits = [step.requeueAfter, after === 0 ? undefined : after].filter((seconds) => seconds !== undefined)
  if (Number.isFinite(queueLeft)) waits.push(queueLeft + 1)
  if (waits.length > 0) waits.push(LONGEST_WAIT_SECONDS)
  const events = after === 0 ? eventsOf(job, status) : []
  return { status, actions, events, ...(waits.length > 0 && { requeueAfter: Math.min(...waits) }) }
}

/**
 * Returns the removal of the finalizer of a job that is about to be settled. It is removed first: no operator looks at a
 * settled job again.
 */
function releaseOf(
  job: StoredJob,
  { settled }: JobStatus,
  launches: readonly StoredLaunch[],
  labels?: Record<string, string>,
): JobAction[] {
  const isHeld = job.metadata.finalizers?.includes(JOB_FINALIZER) ?? false
  if (settled !== true || (!isHeld && labels === undefined)) return []
  return [{ do: "release", next: nextNumber(job, launches), ...(labels && { labels }) }]
}

/** Returns the number of the next Launch of a job. */
function nextNumber({ status }: StoredJob, launches: readonly StoredLaunch[]): number {
  return Math.max(status?.launches?.count ?? 0, newest(launches)?.spec.number ?? 0) + 1
}

/** Returns true if the Job has no finalizer yet. A copy is not adopted: its annotation identifies it as a copy. */
function needsAdoption({ metadata }: StoredJob, origin: Origin): boolean {
  if (origin.is === "copy") return false
  return origin.is === "unrecorded" || !metadata.finalizers?.includes(JOB_FINALIZER)
}
