import { secondsBetween } from "../../apis/clock.ts"
import { isTerminal, JOB_FINALIZER, JobReason, type JobStatus, type StoredJob } from "../../apis/job.ts"
import { mirroredLabels } from "../../apis/labels.ts"
import { type Finish, isOver, type Launch, type StoredLaunch } from "../../apis/launch.ts"
import { ANNOTATIONS } from "../../apis/meta.ts"
import type { EventNote } from "../../kube/events.ts"
import type { ImageState } from "../../placement/inputs.ts"
import { reasonToWait, type VolumesVerdict } from "../../placement/inputs.ts"
import type { Market } from "../../placement/market.ts"
import { bootDeadline, outcomeOf } from "../../placement/outcome.ts"
import { place } from "../../placement/place.ts"
import type { JobSettings } from "../../placement/settings.ts"
import { eventsOf } from "./conditions.ts"
import { bootFailureReason, countOutcomes, launchObject, newest } from "./launches.ts"
import type { InstallationFacts } from "./options.ts"
import { nextStatus, type Verdict, writeAfter } from "./status.ts"

/** Everything that a decision on a Job is made from, besides the Job itself. */
export interface JobObservation {
  /** The job's own Launches; the one that its status names is among them unless it is gone by a live read. */
  launches: readonly StoredLaunch[]
  /** Reckoned from what has been read already, and only when a place is looked for. */
  market: () => Market
  /** What has become of looking for the job's buckets; absent: it has none, or nobody looks. */
  volumes?: VolumesVerdict
  /** What is known of what the job's image runs on; absent: nobody looks. */
  image?: ImageState
  installation: InstallationFacts
}

/** What is to be done, in this order. */
export type JobAction =
  /** Write the finalizer, the uid that it stands for, and the mirrored labels. */
  | { do: "adopt"; labels: Record<string, string> }
  | { do: "createLaunch"; launch: Launch }
  | { do: "writeStatus"; status: JobStatus }
  | { do: "endLaunch"; launch: StoredLaunch }
  | { do: "deleteJob" }
  | { do: "dropFinalizer" }

export interface JobDecision {
  /** What the status is or becomes; it is written only when an action says so. */
  status: JobStatus
  actions: JobAction[]
  /** Told once the actions are done. */
  events: EventNote[]
  requeueAfter?: number
}

/** What a job's phases have come to, and what follows from it. */
interface Step {
  verdict: Verdict
  create?: Launch
  end?: readonly StoredLaunch[]
  requeueAfter?: number
}

/**
 * What is to be done about a Job now: the table of its life, pure. A terminal job stays as it is for ever; `cancelled`
 * counts before whatever the VM reports; a new Launch is made only when all earlier ones are over by the cloud's word.
 */
export function decide(job: StoredJob, observed: JobObservation, now: Date, settings: JobSettings): JobDecision {
  if (job.metadata.deletionTimestamp !== undefined) return decideDeletion(job, observed)
  if (isTerminal(job.status?.phase)) return decideEnded(job, observed, now, settings)
  const step = decideStep(job, observed, now, settings)
  const status = nextStatus(job, { launches: observed.launches, verdict: step.verdict, now, settings })
  return toDecision(job, step, { status, launches: observed.launches, now, settings })
}

/** The VMs go first, then the Job: its finalizer is dropped when nothing runs any more. */
function decideDeletion(job: StoredJob, { launches }: JobObservation): JobDecision {
  const status = job.status ?? {}
  const alive = launches.filter((launch) => !isOver(launch))
  if (alive.length > 0) return { status, actions: endAll(alive), events: [] }
  const isKept = job.metadata.finalizers?.includes(JOB_FINALIZER) ?? false
  return { status, actions: isKept ? [{ do: "dropFinalizer" }] : [], events: [] }
}

/** An ended job is followed until its VM is gone and its cost is final, then kept for its time. */
function decideEnded(job: StoredJob, { launches }: JobObservation, now: Date, settings: JobSettings): JobDecision {
  const status = nextStatus(job, { launches, verdict: undefined, now, settings })
  const actions = endAll(launches.filter((launch) => !isOver(launch)))
  const after = writeAfter(job.status, status, launches, { now, settings })
  if (after === 0) actions.unshift({ do: "writeStatus", status })
  const events = after === 0 ? eventsOf(job, status) : []
  if (launches.some((launch) => !isOver(launch))) {
    return { status, actions, events, ...(after !== undefined && after > 0 && { requeueAfter: after }) }
  }
  const kept = job.spec.ttlSecondsAfterFinished ?? settings.ttlSeconds
  const left = kept - secondsBetween(status.completionTime ?? job.metadata.creationTimestamp, now)
  if (left > 0) return { status, actions, events, requeueAfter: left }
  return { status, actions: [...actions, { do: "deleteJob" }], events }
}

/** Launches that are to be ended and haven't been told. One whose agent has finished ends by itself. */
function endAll(launches: readonly StoredLaunch[]): JobAction[] {
  return launches
    .filter((launch) => launch.spec.ended !== true && launch.status?.agent?.finish === undefined)
    .map((launch) => ({ do: "endLaunch", launch }))
}

function decideStep(job: StoredJob, observed: JobObservation, now: Date, settings: JobSettings): Step {
  if (job.spec.cancelled === true) {
    return {
      verdict: { phase: "cancelled", reason: JobReason.Cancelled, message: "cancelled on request" },
      end: observed.launches,
    }
  }
  if (isCopy(job)) return held(job)
  const launch = newest(observed.launches)
  const outcome = launch === undefined ? undefined : outcomeOf(launch)
  if (launch !== undefined && outcome?.kind === "finished") return concluded(outcome.finish, observed.launches)
  if (launch !== undefined && outcome?.kind === "live") return decideLive(job, launch, now, settings)
  return decideQueued(job, observed, now, settings)
}

/** Whether the Job is a copy (restored by a backup tool, or applied from an export) of one that was run already. */
function isCopy(job: StoredJob): boolean {
  const recorded = job.metadata.annotations?.[ANNOTATIONS.recordedUid]
  return recorded !== undefined && recorded !== job.metadata.uid
}

function held(job: StoredJob): Step {
  const recorded = job.metadata.annotations?.[ANNOTATIONS.recordedUid]
  const message =
    `this is a copy of the Job with the uid ${recorded}, which was run already, so it is held. ` +
    `To run it all the same, remove its annotation ${ANNOTATIONS.recordedUid}`
  return { verdict: { phase: "queued", reason: JobReason.Held, message } }
}

/** The agent has said how the container, or what stands before it, ended. */
function concluded(finish: Finish, launches: readonly StoredLaunch[]): Step {
  const { reason, exitCode, time } = finish
  const isSuccess = reason === "Succeeded"
  const code = exitCode === undefined ? "" : ` (exit code ${exitCode})`
  const message = finish.message ?? (isSuccess ? `the container succeeded${code}` : `the container failed${code}`)
  const phase = isSuccess ? "succeeded" : "failed"
  return { verdict: { phase, reason, message, finishTime: time }, end: launches }
}

/** The VM boots or the container runs: in time, or not. */
function decideLive(job: StoredJob, launch: StoredLaunch, now: Date, settings: JobSettings): Step {
  const startTime = launch.status?.agent?.startTime
  if (startTime === undefined) return decideBooting(launch, now)
  const limit = (job.spec.timeoutSeconds ?? settings.timeoutSeconds) + settings.timeoutGraceSeconds
  const left = limit - secondsBetween(job.status?.startTime ?? startTime, now)
  if (left > 0) {
    const message = `the container runs on ${launch.status?.vm?.id ?? launch.metadata.name}`
    return { verdict: { phase: "running", reason: JobReason.Started, message }, requeueAfter: left + 1 }
  }
  return { verdict: deadlineExceeded(job, settings), end: [launch] }
}

function decideBooting(launch: StoredLaunch, now: Date): Step {
  const { number, bootDeadlineSeconds } = launch.spec
  const unanswered = launch.status?.vm === undefined ? launch.status?.unanswered : undefined
  const deadline = bootDeadline(launch)
  const left = deadline === undefined ? undefined : secondsBetween(now, deadline)
  if (left === undefined || left > 0) {
    const why = unanswered === undefined ? reasonOf(launch) : `no VM yet: ${unanswered.message}`
    const verdict = { phase: "booting", reason: JobReason.Booting, message: `launch ${number}: ${why}` } as const
    return { verdict, ...(left !== undefined && { requeueAfter: left + 1 }) }
  }
  const message =
    unanswered === undefined
      ? `launch ${number} had not started the container in ${bootDeadlineSeconds} s: its VM is ended`
      : `launch ${number} got no VM in ${bootDeadlineSeconds} s: ${unanswered.message}`
  return { verdict: { phase: "queued", reason: JobReason.BootDeadlineExceeded, message }, end: [launch] }
}

/** Why a Launch's place was taken, as it was told when it was. */
function reasonOf({ metadata }: StoredLaunch): string {
  return metadata.annotations?.[ANNOTATIONS.placementReason] ?? "gets its VM ready"
}

function deadlineExceeded(job: StoredJob, settings: JobSettings): Verdict {
  const timeout = job.spec.timeoutSeconds ?? settings.timeoutSeconds
  return { phase: "failed", reason: JobReason.DeadlineExceeded, message: `not done within its timeout of ${timeout} s` }
}

/** There is no VM that may run the container: give up, wait until the last one is gone, or find the next place. */
function decideQueued(job: StoredJob, observed: JobObservation, now: Date, settings: JobSettings): Step {
  const { launches } = observed
  const limit = limitReached(job, launches, settings)
  if (limit !== undefined) return { verdict: limit, end: launches }
  const timeout = job.spec.timeoutSeconds ?? settings.timeoutSeconds
  const started = job.status?.startTime
  const timeoutSeconds = Math.ceil(timeout - (started === undefined ? 0 : secondsBetween(started, now)))
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
  const failed = alive.find(({ status }) => status?.bootFailure !== undefined)
  const outcome = failed && outcomeOf(failed)
  if (outcome?.kind === "bootFailed") {
    return `launch ${failed?.spec.number}: ${outcome.message}; the next machine is tried when this VM is gone`
  }
  const unsettled = alive.find(({ status }) => status?.vm === undefined && status?.unanswered !== undefined)
  if (unsettled === undefined)
    return `waits until the VM of launch ${alive.map(({ spec }) => spec.number).join(", ")} is gone`
  const { spec, status } = unsettled
  return `waits until it is known whether launch ${spec.number} has a VM: ${status?.unanswered?.message ?? ""}`
}

function waitReason(alive: readonly StoredLaunch[]): JobReason {
  const last = newest(alive)
  const outcome = last === undefined ? undefined : outcomeOf(last)
  if (outcome?.kind === "lost") return outcome.reason
  if (last !== undefined && outcome?.kind === "bootFailed") return bootFailureReason(last)
  return outcome?.kind === "unused" ? JobReason.BootDeadlineExceeded : JobReason.Queued
}

/** Whether the job has used up the VMs that it may lose or fail to boot. */
function limitReached(job: StoredJob, launches: readonly StoredLaunch[], settings: JobSettings): Verdict | undefined {
  const lost = lostCount(job, launches)
  if (lost >= settings.maxLost) {
    const message = `lost ${lost} VMs, which is as many as a job may lose`
    return { phase: "failed", reason: JobReason.VMLost, message, lost }
  }
  const failures = countOutcomes(launches, "bootFailed")
  if (failures < settings.maxBootFailures) return undefined
  const last = launches.findLast(({ status }) => status?.bootFailure !== undefined)
  const outcome = last && outcomeOf(last)
  const why = outcome?.kind === "bootFailed" ? `; launch ${last?.spec.number}: ${outcome.message}` : ""
  const message = `${failures} VMs were paid for and never started the container${why}`
  return { phase: "failed", reason: JobReason.LaunchLimitExceeded, message }
}

/** VMs lost so far; a Launch that the status names and that is gone altogether is one of them. */
function lostCount(job: StoredJob, launches: readonly StoredLaunch[]): number {
  const { lost = 0, current } = job.status?.launches ?? {}
  const isMissing = current !== undefined && !launches.some((launch) => launch.metadata.name === current)
  return Math.max(lost + (isMissing ? 1 : 0), countOutcomes(launches, "lost"))
}

function placed(
  job: StoredJob,
  { launches, market, installation, volumes, image }: JobObservation,
  { now, settings, timeoutSeconds }: { now: Date; settings: JobSettings; timeoutSeconds: number },
): Step {
  const lost = lostCount(job, launches)
  if (volumes !== undefined && volumes.kind !== "found") return withoutBuckets(volumes, lost, settings)
  if (image?.state === "looking") return withoutImage(job, lost)
  const known = { ...(volumes && { buckets: volumes.places }), ...(image && { image }) }
  const found = place(job, { ...market(), ...known }, now, settings)
  if (found.kind === "noOffer") {
    return { verdict: { phase: "failed", reason: JobReason.NoOffer, message: found.message, lost } }
  }
  if (found.kind === "wait") {
    const { reason, message, seconds } = found
    return { verdict: { phase: "queued", reason, message, lost }, requeueAfter: seconds }
  }
  const number = Math.max(job.status?.launches?.count ?? 0, newest(launches)?.spec.number ?? 0) + 1
  const { placement: chosen, why } = found
  const inputs = { number, placement: chosen, why, timeoutSeconds, volumes: volumes?.volumes }
  const create = launchObject(job, inputs, installation, settings)
  const message = `launch ${number}: ${why}`
  const { connection } = chosen.payer
  const placement = { number, offer: chosen.offer, connection, why, volumes: volumes?.recorded }
  return { verdict: { phase: "booting", reason: JobReason.Booting, message, lost, placement }, create }
}

/**
 * Longest time until a job that has not ended is looked at again, seconds: what it waits for may end earlier than was
 * expected, or a clock may have been wrong. Ended jobs only wait for their deletion, and there are many of them.
 */
const LONGEST_WAIT_SECONDS = 300

/** How soon it is looked again whether somebody has answered, seconds. */
const LOOK_AGAIN_SECONDS = 1

/** Not for long: what nobody tells in some seconds is assumed. */
function withoutImage({ spec }: StoredJob, lost: number): Step {
  const message = `looks up what ${spec.image} runs on`
  return { verdict: { phase: "queued", reason: JobReason.Queued, message, lost }, requeueAfter: LOOK_AGAIN_SECONDS }
}

/** A bucket that nobody reaches may be made, or opened to a connection, any time: the job waits. */
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
  context: { status: JobStatus; launches: readonly StoredLaunch[]; now: Date; settings: JobSettings },
): JobDecision {
  const { status, launches } = context
  const actions: JobAction[] = []
  if (needsAdoption(job)) actions.push({ do: "adopt", labels: mirroredLabels(job.spec.labels) })
  if (step.create !== undefined) actions.push({ do: "createLaunch", launch: step.create })
  const after = writeAfter(job.status, status, launches, context)
  const write: JobAction[] = after === 0 ? [{ do: "writeStatus", status }] : []
  const end = endAll((step.end ?? []).filter((launch) => !isOver(launch)))
  // How a job ended is written before its VM is ended; that a VM is ended, before the job counts as waiting again.
  if (isTerminal(status.phase)) actions.push(...write, ...end)
  else actions.push(...end, ...write)
  const waits = [step.requeueAfter, after === 0 ? undefined : after].filter((seconds) => seconds !== undefined)
  if (waits.length > 0) waits.push(LONGEST_WAIT_SECONDS)
  const events = after === 0 ? eventsOf(job, status, step.create?.spec.number) : []
  return { status, actions, events, ...(waits.length > 0 && { requeueAfter: Math.min(...waits) }) }
}

/** A copy is not adopted: its annotation is what tells that it is one. */
function needsAdoption(job: StoredJob): boolean {
  if (isCopy(job)) return false
  const isRecorded = job.metadata.annotations?.[ANNOTATIONS.recordedUid] === job.metadata.uid
  return !isRecorded || !job.metadata.finalizers?.includes(JOB_FINALIZER)
}
