import { isDeepStrictEqual } from "node:util"
import { secondsBetween, timestamp } from "../../core/apis/clock.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import {
  type CredentialsState,
  isTerminal,
  JOB_FINALIZER,
  JobCondition,
  type JobPhase,
  JobReason,
  type JobStatus,
  type Placement,
  type RefusedOffer,
} from "../../core/apis/job.ts"
import { mirroredLabels } from "../../core/apis/labels.ts"
import { bootFailureOf, type Launch, launchName, pricesOf, type StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import { type CostParts, costOf, sumOfParts } from "../../core/apis/price.ts"
import type { EventNote } from "../../core/kube/events.ts"
import { observedAfter } from "../../core/order/prerequisites.ts"
import { isKept, minimumBilledSecondsOf } from "../../core/reuse/reuse.ts"
import { recordedVolumes } from "../../market/placement/inputs.ts"
import type { Amounts } from "../../market/placement/line.ts"
import type { JobSettings } from "../../market/placement/settings.ts"
import { settlesIn } from "../elapsed.ts"
import { buildConditions, buildEvents, refusalKey } from "./conditions.ts"
import type { JobFacts, LaunchFacts } from "./facts.ts"
import { type Retry, recordRetries } from "./retries.ts"
import type { Step, Verdict } from "./step.ts"

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
  /** Needs of a job that waits in its project's line. Absent: it is not in the line. */
  needs?: Amounts
}

/**
 * Maximum delay before a job that has not ended is checked again, seconds. Its obstacle may end earlier than expected,
 * or a clock may have been wrong. Ended jobs only wait for their deletion, and there are many of them.
 */
const LONGEST_WAIT_SECONDS = 300

/** Turns the step of a job into its status, actions and events. Pure. */
export function render(facts: JobFacts, step: Step): JobDecision {
  if (step.isDeleted === true) return renderDeletion(facts)
  const status = nextStatus(facts, step.verdict)
  const after = writeAfter(facts, status)
  return {
    status,
    actions: buildActions(facts, step, status, after),
    ...defined({ requeueAfter: requeueAfter(facts, step, status, after), needs: step.needs }),
    events: after === 0 ? buildEvents(facts.job, status) : [],
  }
}

/**
 * Ends the VMs, then drops the finalizer when no VM is left. A job that has ended stays until all that waits for it has its
 * outcome.
 */
function renderDeletion({ job, observed, alive }: JobFacts): JobDecision {
  const isAwaited = isTerminal(job.status?.phase) && observed.isOutcomeAwaited === true
  const isKept = !isAwaited && (job.metadata.finalizers?.includes(JOB_FINALIZER) ?? false)
  const dropped: JobAction[] = isKept ? [{ do: "dropFinalizer" }] : []
  return { status: job.status ?? {}, actions: alive.length > 0 ? endAll(alive) : dropped, events: [] }
}

/** Returns actions that end the Launches. One whose agent has finished ends by itself, unless its VM is kept. */
function endAll(launches: readonly StoredLaunch[]): JobAction[] {
  const endsItself = (launch: StoredLaunch) => launch.status?.agent?.finish !== undefined && !isKept(launch)
  return launches
    .filter((launch) => launch.spec.ended !== true && !endsItself(launch))
    .map((launch) => ({ do: "endLaunch", launch }))
}

function buildActions(facts: JobFacts, step: Step, status: JobStatus, after: number | undefined): JobAction[] {
  const actions: JobAction[] = []
  const labels = mirroredLabels(facts.job.spec.labels)
  const isNew = step.verdict !== undefined && needsAdoption(facts)
  // The finalizer of a settled job is removed before the status is written: no operator looks at a settled job again.
  if (status.settled === true && after === 0) actions.push(...buildRelease(facts, isNew ? labels : undefined))
  else if (isNew) actions.push({ do: "adopt", labels })
  if (step.create !== undefined)
    actions.push({ do: "createLaunch", launch: step.create, isStrict: step.isStrict === true })
  const write: JobAction[] = after === 0 ? [{ do: "writeStatus", status }] : []
  const end = endAll(step.end ?? [])
  // A job's end is written before its VM is ended. A VM is ended before the job is written as waiting again.
  if (isTerminal(status.phase) && step.isUnstarted !== true) return [...actions, ...write, ...end]
  return [...actions, ...end, ...write]
}

/** Returns true if the Job has no finalizer yet. A copy is not adopted: its annotation identifies it as a copy. */
function needsAdoption({ job, origin }: JobFacts): boolean {
  if (origin.is === "copy") return false
  return origin.is === "unrecorded" || !job.metadata.finalizers?.includes(JOB_FINALIZER)
}

function buildRelease({ job, nextNumber }: JobFacts, labels: Record<string, string> | undefined): JobAction[] {
  const isHeld = job.metadata.finalizers?.includes(JOB_FINALIZER) ?? false
  if (!isHeld && labels === undefined) return []
  return [{ do: "release", next: nextNumber, ...(labels && { labels }) }]
}

/** Returns the delay before the job is checked again, seconds; undefined: only a change requeues it. */
function requeueAfter({ left }: JobFacts, step: Step, { phase }: JobStatus, after: number | undefined) {
  const waits = [step.requeueAfter, after === 0 ? undefined : after].filter((seconds) => seconds !== undefined)
  if (step.verdict === undefined) return waits[0]
  if (!isTerminal(phase) && Number.isFinite(left.queue)) waits.push(left.queue + 1)
  return waits.length === 0 ? undefined : Math.min(...waits, LONGEST_WAIT_SECONDS)
}

/** The job's Launch that its status names, and the part of the verdict that its fields depend on. */
interface Current {
  name: string | undefined
  /** Absent: this decision creates it, or its record has been deleted. */
  launch: LaunchFacts | undefined
  verdict: Verdict | undefined
}

/** Returns the next status. @param verdict absent: the job has ended, and only its VMs are followed */
function nextStatus(facts: JobFacts, verdict: Verdict | undefined): JobStatus {
  const { job, launches, observed, alive } = facts
  const before = job.status ?? {}
  const phase = verdict?.phase ?? before.phase ?? "queued"
  const name = currentName(facts, phase, verdict)
  const launch = launches.find((each) => each.launch.metadata.name === name)
  const current = { name, launch, verdict }
  const isCostFinal = isTerminal(phase) && alive.length === 0
  const status: JobStatus = defined({
    ...before,
    observedGeneration: job.metadata.generation,
    phase,
    after: (observed.prerequisites && observedAfter(observed.prerequisites.states)) ?? before.after,
    placement: nextPlacement(before, current),
    vm: nextVm(before, current),
    credentials: nextCredentials(before, current),
    volumes: verdict?.placement?.volumes ?? before.volumes ?? recordedVolumes(launch?.launch),
    launches: countLaunches(facts, current),
    cost: jobCost(facts, current, phase, isCostFinal),
    // The agent of a cancelled job finishes after the job's end.
    usage: isTerminal(phase) ? (launch?.launch.status?.agent?.finish?.usage ?? before.usage) : undefined,
    keptUntil: keptTime(facts, phase),
    // All readers have seen the end.
    settled: before.settled ?? (isCostFinal && observed.isEndAwaited !== true ? true : undefined),
    ...(verdict !== undefined && story(facts, current, verdict)),
    retries: verdict === undefined ? before.retries : (recordRetries(retriesUntil(facts, phase)) ?? before.retries),
  })
  return {
    ...status,
    conditions: buildConditions(job, status, { launch: launch?.launch, fallback: facts.fallback }, facts.now),
  }
}

/** Returns the time until which the VM is kept. A job that gets another VM, or is cancelled, gives it up. */
function keptTime({ keptUntil }: JobFacts, phase: JobPhase): string | undefined {
  return phase === "failed" ? keptUntil : undefined
}

/** Returns the fields that change only until the job ends. Later reports of the VM have no effect on them. */
function story({ job, launches, now }: JobFacts, { name, launch }: Current, verdict: Verdict) {
  const before = job.status ?? {}
  const agent = launch?.launch.status?.agent
  const startTime = before.startTime ?? agent?.startTime
  const hasEnded = isTerminal(verdict.phase)
  return {
    // VMs that were ended for the job's own limit did not fail.
    refusedOffers:
      verdict.reason === JobReason.QueueDeadlineExceeded
        ? before.refusedOffers
        : refusedOffers(before.refusedOffers, launches),
    retryCount: agent?.retryCount ?? (name === undefined ? 0 : (before.retryCount ?? 0)),
    exitCode: agent?.finish?.exitCode ?? agent?.lastExitCode ?? before.exitCode,
    // A job that gets another VM after a failure has none.
    lastLine: verdict.phase === "failed" ? agent?.finish?.lastLine : undefined,
    startTime,
    completionTime: hasEnded ? endTime(verdict.finishTime, startTime, now) : undefined,
    lastHeartbeatTime: hasEnded
      ? (agent?.lastHeartbeatTime ?? agent?.registrationTime ?? before.lastHeartbeatTime)
      : undefined,
    reason: verdict.reason,
    message: cutTo(verdict.message, LIMITS.message),
  }
}

/** Returns a job's end by its agent's clock, bounded by its start and by now. */
function endTime(finishTime: string | undefined, startTime: string | undefined, now: Date): string {
  if (finishTime === undefined || new Date(finishTime) > now) return timestamp(now)
  return startTime !== undefined && new Date(finishTime) < new Date(startTime) ? startTime : finishTime
}

/** Returns the name of the job's current Launch; for an ended job, of its last one. */
function currentName({ job, newest }: JobFacts, phase: JobPhase, verdict: Verdict | undefined): string | undefined {
  if (verdict?.placement !== undefined) return launchName(job.metadata.uid, verdict.placement.number)
  const last = newest?.launch.metadata.name
  const alive = newest?.isOver === false ? last : undefined
  if (phase === "queued") return alive
  if (phase === "booting" || phase === "running") return last
  return newest?.outcome.kind === "finished" ? last : (alive ?? job.status?.launches?.current)
}

function nextPlacement(before: JobStatus, { name, launch, verdict }: Current): Placement | undefined {
  if (verdict?.placement !== undefined) {
    const { offer, connection, why } = verdict.placement
    return { offer, ...(connection !== undefined && { connection }), reason: cutTo(why, LIMITS.message) }
  }
  if (name === undefined) return undefined
  if (launch === undefined) return before.placement
  const { spec, metadata } = launch.launch
  const { offer, connection, number } = spec
  const isSame = before.launches?.current === name && before.placement !== undefined
  const written = metadata.annotations?.[ANNOTATIONS.placementReason] ?? `placed by launch ${number}`
  const reason = isSame ? (before.placement?.reason ?? "") : written
  return { offer, ...(connection !== undefined && { connection }), reason }
}

function nextVm(before: JobStatus, { name, launch }: Current): JobStatus["vm"] {
  if (name === undefined) return { state: "nonassigned" }
  if (launch === undefined) return before.launches?.current === name ? before.vm : { state: "provisioning" }
  const vm = launch.launch.status?.vm
  if (vm === undefined) return { state: launch.isOver ? "nonassigned" : "provisioning" }
  // A VM that ended before it was recorded has no id.
  const { id, ipAddress } = vm
  return { state: vmState(launch), ...defined({ id, ipAddress }) }
}

function vmState({ launch, isOver }: LaunchFacts): "terminated" | "terminating" | "running" | "booting" {
  if (isOver) return "terminated"
  // It waits for another job, or is kept for sessions.
  if (isKept(launch)) return "running"
  if (isEnding(launch)) return "terminating"
  return launch.status?.agent === undefined ? "booting" : "running"
}

/** Returns true if the Launch's VM is to be terminated, or does not exist. */
function isEnding({ spec, status, metadata }: StoredLaunch): boolean {
  return (
    spec.ended === true ||
    metadata.deletionTimestamp !== undefined ||
    status?.loss !== undefined ||
    status?.agent?.finish !== undefined ||
    bootFailureOf(status) !== undefined ||
    status?.phase === "terminating"
  )
}

function nextCredentials(before: JobStatus, { name, launch }: Current): CredentialsState {
  if (name === undefined) return "empty"
  if (launch === undefined) return before.launches?.current === name ? (before.credentials ?? "issued") : "issued"
  if (launch.isOver || isEnding(launch.launch)) return "revoked"
  return launch.launch.status?.agent === undefined ? "issued" : "delivered"
}

/** Returns the failed runs after which the job got a new VM, or gets one unless it has ended. */
function retriesUntil({ retries: { past, latest } }: JobFacts, phase: JobPhase): readonly Retry[] {
  return latest === undefined || latest.refusal !== undefined || isTerminal(phase) ? past : [...past, latest]
}

/** Returns the numbers of VMs. After the job's end its VM is terminated on purpose, which isn't a loss. */
function countLaunches(facts: JobFacts, { name, verdict }: Current): JobStatus["launches"] {
  const { job, launches, losses, nextNumber } = facts
  const known = job.status?.launches
  const count = verdict?.placement?.number ?? nextNumber - 1
  if (count === 0) return undefined
  const billed = launches.filter(({ launch }) => launch.status?.vm !== undefined).length
  const { lost, preempted } = verdict === undefined ? { lost: 0, preempted: 0, ...known } : losses
  const isShown = preempted > 0 || known?.preempted !== undefined
  const counts = { count, billed: Math.max(known?.billed ?? 0, billed), lost }
  const failed = verdict === undefined ? 0 : retriesUntil(facts, verdict.phase).length
  const retried = Math.max(known?.retried ?? 0, failed)
  return { ...counts, ...(isShown && { preempted }), ...(retried > 0 && { retried }), ...defined({ current: name }) }
}

/** Returns the latest offers that failed, oldest first, each once. */
function refusedOffers(
  before: readonly RefusedOffer[] | undefined,
  launches: readonly LaunchFacts[],
): RefusedOffer[] | undefined {
  const fresh = launches.map(refusedOffer).filter((refused) => refused !== undefined)
  const all = new Map([...(before ?? []), ...fresh].map((refused) => [refusalKey(refused), refused]))
  if (all.size === 0) return undefined
  return [...all.values()].sort((a, b) => Date.parse(a.time) - Date.parse(b.time)).slice(-LIMITS.refusedOffers)
}

/** Returns the record of a Launch that failed; undefined for any other. */
function refusedOffer({ launch, outcome }: LaunchFacts): RefusedOffer | undefined {
  const { cloud, region, instanceType, provisioning } = launch.spec.offer
  // The number distinguishes two rejections of one offer in one second.
  const record = (reason: RefusedOffer["reason"], message: string, time: string) => ({
    ...{ cloud, region, instanceType, provisioning, reason, time },
    message: cutTo(`launch ${launch.spec.number}: ${message}`, 1024),
  })
  switch (outcome.kind) {
    case "refused":
      return record(outcome.refusal.class, outcome.refusal.message, outcome.refusal.time)
    case "bootFailed":
    case "lost":
      return record(outcome.reason, outcome.message, outcome.time)
    default:
      return undefined
  }
}

/**
 * Returns the cost. The actual cost is written once it is final: the job has ended and no VM is left. Until then the
 * record's reader adds the current VM, which costs `hourly` since `since`, to what ended VMs cost.
 */
function jobCost(
  { job, costs, expectedSeconds }: JobFacts,
  { launch, ...current }: Current,
  phase: JobPhase,
  isFinal: boolean,
): JobStatus["cost"] {
  const before = job.status?.cost
  // Records of Launches are deleted after a time. Earlier counts stay.
  if (before?.actualUsd !== undefined && costs.endedUsd <= before.actualUsd) return before
  const vm = billedVm({ launch, ...current })
  const estimate = vm && costOf(vm.hourly, { seconds: expectedSeconds, minimumBilledSeconds: vm.minimumBilledSeconds })
  const actualUsd = isFinal ? Math.max(before?.actualUsd ?? 0, costs.endedUsd) : before?.actualUsd
  const endedUsd = actualUsd ?? before?.endedUsd ?? costs.untilNowUsd
  const spent = larger(before?.spent, costs.ended)
  const cost = defined({
    estimatedUsd: estimate === undefined ? before?.estimatedUsd : sumOfParts(estimate),
    actualUsd,
    endedUsd: isTerminal(phase) ? endedUsd : undefined,
    hourly: vm?.hourly ?? before?.hourly,
    minimumBilledSeconds: vm?.minimumBilledSeconds ?? before?.minimumBilledSeconds,
    since: launch?.isOver === false ? launch.launch.status?.vm?.createTime : undefined,
    spent: sumOfParts(spent) > 0 ? spent : undefined,
    spotUsd: largerUsd(before?.spotUsd, costs.endedSpotUsd),
    idleUsd: largerUsd(before?.idleUsd, costs.endedIdleUsd),
  })
  return Object.keys(cost).length === 0 ? undefined : cost
}

/** Returns the prices of the job's current VM, of a new placement or of its Launch. */
function billedVm({ name, launch, verdict }: Current) {
  if (verdict?.placement !== undefined) {
    const { offer, prices } = verdict.placement
    return { hourly: prices, minimumBilledSeconds: offer.minimumBilledSeconds }
  }
  if (name === undefined || launch === undefined) return undefined
  return { hourly: pricesOf(launch.launch), minimumBilledSeconds: minimumBilledSecondsOf(launch.launch) }
}

function largerUsd(before: number | undefined, now: number): number | undefined {
  const usd = Math.max(before ?? 0, now)
  return usd > 0 ? usd : undefined
}

function larger(before: CostParts | undefined, now: CostParts): CostParts {
  return before !== undefined && sumOfParts(before) > sumOfParts(now) ? before : now
}

/**
 * Returns the delay before the status is written: 0 now, a number of seconds, or undefined for no write.
 * A new Launch is written with its VM, or when the cloud has not answered soon. A state of the VM is written after it has
 * lasted. Both are also written with any other change.
 */
function writeAfter({ job: { status: before }, launches, now, settings }: JobFacts, next: JobStatus) {
  const launch = launches.find((each) => each.launch.metadata.name === next.launches?.current)?.launch
  if (!isDeepStrictEqual(significant(before ?? {}), significant(next))) {
    return awaitsAnswer(before ?? {}, next) ? answerTime(launch, now, settings) : 0
  }
  if (before === undefined) return 0
  if (isDeepStrictEqual(passing(before), passing(next))) return undefined
  const since = launch?.status?.agent?.registrationTime ?? launch?.status?.vm?.createTime
  return since === undefined ? 0 : settlesIn(since, now, settings)
}

/**
 * Returns true if the status says only what the new Launch says too. The cloud usually answers soon, and then one write
 * has the VM's id. Until then the Launch is the record of the decision. A job whose former VM has ended is written at
 * once: it must not be shown as running.
 */
function awaitsAnswer(before: JobStatus, next: JobStatus): boolean {
  const { phase = "queued" } = before
  if (phase !== "queued" || next.phase !== "booting" || next.vm?.id !== undefined) return false
  const others = ({ launches, refusedOffers: offers, volumes }: JobStatus) => [
    launches?.lost ?? 0,
    launches?.preempted ?? 0,
    launches?.retried ?? 0,
    offers,
    volumes,
  ]
  return isDeepStrictEqual(others(before), others(next))
}

/** Returns the remaining seconds in which the cloud may answer. The API server's clock dates the Launch. */
function answerTime(launch: StoredLaunch | undefined, now: Date, { answerSeconds }: JobSettings): number {
  if (launch === undefined) return answerSeconds
  const age = secondsBetween(launch.metadata.creationTimestamp, now)
  const isWrong = age < -answerSeconds || launch.status?.unanswered !== undefined
  return isWrong ? 0 : Math.min(answerSeconds, Math.max(0, answerSeconds - age))
}

/** Conditions that only describe the VM's progress. */
const PASSING_CONDITIONS: readonly string[] = [JobCondition.VMReady, JobCondition.Unisolated]

function significant(status: JobStatus): unknown {
  // Usage that comes after the end is written with the final cost.
  const { vm: _, credentials: __, lastHeartbeatTime: ___, usage: ______, launches, cost, conditions, ...rest } = status
  const { billed: ____, ...counts } = launches ?? {}
  const { since: _____, ...costs } = cost ?? {}
  return { ...rest, counts, costs, conditions: conditions?.filter(({ type }) => !PASSING_CONDITIONS.includes(type)) }
}

function passing({ vm, credentials, launches, cost, conditions }: JobStatus): unknown {
  const shown = conditions?.filter(({ type }) => PASSING_CONDITIONS.includes(type))
  return { vm, credentials, billed: launches?.billed, since: cost?.since, conditions: shown }
}
