import { isDeepStrictEqual } from "node:util"
import { secondsBetween, timestamp } from "../../core/apis/clock.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import {
  type CredentialsState,
  isTerminal,
  JobCondition,
  type JobPhase,
  JobReason,
  type JobStatus,
  type Placement,
  type RefusedOffer,
  type StoredJob,
} from "../../core/apis/job.ts"
import { bootFailureOf, isOver, launchName, pricesOf, type StoredLaunch } from "../../core/apis/launch.ts"
import { LIMITS } from "../../core/apis/limits.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { addParts, type CostParts, costOf, type HourlyPrices, NO_COST, sumOfParts } from "../../core/apis/price.ts"
import { type RecordedVolumes, volumesOf } from "../../market/placement/inputs.ts"
import { fallbackOf, lossesOf } from "../../market/placement/losses.ts"
import { expectedSecondsOf } from "../../market/placement/market.ts"
import { outcomeOf } from "../../market/placement/outcome.ts"
import type { JobSettings } from "../../market/placement/settings.ts"
import { settlesIn } from "../elapsed.ts"
import { conditionsOf } from "./conditions.ts"
import { newest, refusalKey, refusedOffer } from "./launches.ts"

/** Result of a decision for the job's phase. */
export interface Verdict {
  phase: JobPhase
  reason: string
  message: string
  /** Time of the container's end, as reported by the agent. */
  finishTime?: string
  /** Number of lost VMs, if counted. */
  lost?: number
  /** New placement. */
  placement?: {
    number: number
    offer: Offer
    prices: HourlyPrices
    connection: string | undefined
    why: string
    volumes?: RecordedVolumes | undefined
  }
}

interface Inputs {
  launches: readonly StoredLaunch[]
  /** Absent: the job has ended, and only its VM is followed. */
  verdict: Verdict | undefined
  /** True while a reader waits for the job's end. Absent: none does. */
  isEndAwaited?: boolean | undefined
  now: Date
  settings: JobSettings
}

/** Returns the next status from the previous one, the Launches and the verdict. Pure. */
export function nextStatus(job: StoredJob, inputs: Inputs): JobStatus {
  const { launches, verdict, now } = inputs
  const before = job.status ?? {}
  const phase = verdict?.phase ?? before.phase ?? "queued"
  const current = currentName(job, phase, inputs)
  const launch = launches.find(({ metadata }) => metadata.name === current)
  const placement = placementOf(before, current, launch, verdict)
  const status: JobStatus = compact({
    ...before,
    observedGeneration: job.metadata.generation,
    phase,
    placement,
    vm: vmOf(current, launch, before),
    credentials: credentialsOf(current, launch, before),
    volumes: verdict?.placement?.volumes ?? before.volumes ?? volumesOf(launch),
    launches: countsOf(job, current, inputs),
    cost: jobCost(job, { current, launch, phase, ...inputs }),
    settled: before.settled ?? (isSettled(phase, inputs) ? true : undefined),
    ...(verdict !== undefined && story(before, { current, launch, verdict, launches, now })),
  })
  const fallback = isTerminal(before.phase) ? undefined : fallbackOf(job, launches)
  return { ...status, conditions: conditionsOf(job, status, { launch, fallback }, now) }
}

/** Returns the fields that change only until the job ends. Later reports of the VM have no effect on them. */
function story(
  before: JobStatus,
  inputs: {
    current: string | undefined
    launch: StoredLaunch | undefined
    verdict: Verdict
    launches: readonly StoredLaunch[]
    now: Date
  },
) {
  const { current, launch, verdict, launches, now } = inputs
  const agent = launch?.status?.agent
  const startTime = before.startTime ?? agent?.startTime
  return {
    reason: verdict.reason,
    message: cutTo(verdict.message, LIMITS.message),
    // VMs that were ended for the job's own limit did not fail.
    refusedOffers:
      verdict.reason === JobReason.QueueDeadlineExceeded
        ? before.refusedOffers
        : refusedOffers(before.refusedOffers, launches),
    retryCount: agent?.retryCount ?? (current === undefined ? 0 : (before.retryCount ?? 0)),
    exitCode: agent?.finish?.exitCode ?? agent?.lastExitCode ?? before.exitCode,
    startTime,
    completionTime: isTerminal(verdict.phase) ? endTime(verdict.finishTime, startTime, now) : undefined,
    lastHeartbeatTime: isTerminal(verdict.phase)
      ? (agent?.lastHeartbeatTime ?? agent?.registrationTime ?? before.lastHeartbeatTime)
      : undefined,
  }
}

/** Returns the name of the job's current Launch; for an ended job, of its last one. */
function currentName(job: StoredJob, phase: JobPhase, { launches, verdict }: Inputs): string | undefined {
  if (verdict?.placement !== undefined) return launchName(job.metadata.uid, verdict.placement.number)
  const last = newest(launches)
  const alive = last !== undefined && !isOver(last) ? last.metadata.name : undefined
  if (phase === "queued") return alive
  if (!isTerminal(phase)) return last?.metadata.name
  const finished = last !== undefined && outcomeOf(last).kind === "finished" ? last.metadata.name : undefined
  return finished ?? alive ?? job.status?.launches?.current
}

function placementOf(
  before: JobStatus,
  current: string | undefined,
  launch: StoredLaunch | undefined,
  verdict: Verdict | undefined,
): Placement | undefined {
  if (verdict?.placement !== undefined) {
    const { offer, connection, why } = verdict.placement
    return { offer, ...(connection !== undefined && { connection }), reason: cutTo(why, LIMITS.message) }
  }
  if (current === undefined) return undefined
  if (launch === undefined) return before.placement
  const { offer, connection, number } = launch.spec
  const isSame = before.launches?.current === current && before.placement !== undefined
  const written = launch.metadata.annotations?.[ANNOTATIONS.placementReason] ?? `placed by launch ${number}`
  const reason = isSame ? (before.placement?.reason ?? "") : written
  return { offer, ...(connection !== undefined && { connection }), reason }
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

function vmOf(current: string | undefined, launch: StoredLaunch | undefined, before: JobStatus): JobStatus["vm"] {
  if (current === undefined) return { state: "nonassigned" }
  if (launch === undefined) {
    // This decision creates it, or its record has been deleted.
    return before.launches?.current === current ? before.vm : { state: "provisioning" }
  }
  const vm = launch.status?.vm
  if (vm === undefined) return { state: isOver(launch) ? "nonassigned" : "provisioning" }
  // A VM that ended before it was recorded has no id.
  const { id, ipAddress } = vm
  return { state: vmState(launch), ...(id !== undefined && { id }), ...(ipAddress !== undefined && { ipAddress }) }
}

function vmState(launch: StoredLaunch): "terminated" | "terminating" | "running" | "booting" {
  if (isOver(launch)) return "terminated"
  if (isEnding(launch)) return "terminating"
  return launch.status?.agent === undefined ? "booting" : "running"
}

function credentialsOf(
  current: string | undefined,
  launch: StoredLaunch | undefined,
  before: JobStatus,
): CredentialsState {
  if (current === undefined) return "empty"
  if (launch === undefined) return before.launches?.current === current ? (before.credentials ?? "issued") : "issued"
  if (isOver(launch) || isEnding(launch)) return "revoked"
  return launch.status?.agent === undefined ? "issued" : "delivered"
}

function countsOf(job: StoredJob, current: string | undefined, inputs: Inputs): JobStatus["launches"] {
  const { launches, verdict } = inputs
  const known = job.status?.launches
  const count = Math.max(known?.count ?? 0, newest(launches)?.spec.number ?? 0, verdict?.placement?.number ?? 0)
  if (count === 0) return undefined
  const billed = launches.filter((launch) => launch.status?.vm !== undefined).length
  return compact({
    count,
    billed: Math.max(known?.billed ?? 0, billed),
    ...lossCounts(job, inputs),
    current,
  })
}

/** Returns the numbers of lost VMs. After the job's end its VM is terminated on purpose, which isn't a loss. */
function lossCounts(
  job: StoredJob,
  { launches, verdict }: Inputs,
): Pick<NonNullable<JobStatus["launches"]>, "lost" | "preempted"> {
  if (verdict === undefined) return { lost: job.status?.launches?.lost ?? 0, ...preemptedIn(job.status) }
  const { lost, preempted } = lossesOf(job, launches)
  const isCounted = preempted > 0 || job.status?.launches?.preempted !== undefined
  return { lost: Math.max(lost, verdict.lost ?? 0), ...(isCounted && { preempted }) }
}

function preemptedIn(status: JobStatus | undefined): { preempted?: number } {
  const preempted = status?.launches?.preempted
  return preempted === undefined ? {} : { preempted }
}

/** Returns the latest offers that failed, oldest first, each once. */
function refusedOffers(
  before: readonly RefusedOffer[] | undefined,
  launches: readonly StoredLaunch[],
): RefusedOffer[] | undefined {
  const fresh = launches.map(refusedOffer).filter((refused) => refused !== undefined)
  const all = new Map([...(before ?? []), ...fresh].map((refused) => [refusalKey(refused), refused]))
  if (all.size === 0) return undefined
  return [...all.values()].sort((a, b) => Date.parse(a.time) - Date.parse(b.time)).slice(-LIMITS.refusedOffers)
}

/**
 * Returns the cost. The actual cost is written once it is final: the job has ended and no VM is left. Until then the
 * record's reader adds the current VM, which costs `hourly` since `since`, to what ended VMs cost.
 */
function jobCost(
  job: StoredJob,
  inputs: Inputs & { current: string | undefined; launch: StoredLaunch | undefined; phase: JobPhase },
): JobStatus["cost"] {
  const { launches, phase, settings } = inputs
  const before = job.status?.cost
  const chosen = chosenVm(inputs)
  const estimate = chosen && costOf(chosen.hourly, { seconds: expectedSecondsOf(job, settings), ...chosen.billed })
  // Records of Launches are deleted after a time. Earlier counts stay.
  const ended = addParts(launches.map(endedCost))
  if (before?.actualUsd !== undefined && sumOfParts(ended) <= before.actualUsd) return before
  const spent = larger(before?.spent, ended)
  const endedSpot = sumOfParts(addParts(launches.filter(isSpot).map(endedCost)))
  const spotUsd = Math.max(before?.spotUsd ?? 0, endedSpot)
  const cost = compact({
    estimatedUsd: estimate === undefined ? before?.estimatedUsd : sumOfParts(estimate),
    ...totals(before, phase, inputs, ended),
    hourly: chosen?.hourly ?? before?.hourly,
    minimumBilledSeconds: chosen?.billed.minimumBilledSeconds ?? before?.minimumBilledSeconds,
    since: inputs.launch !== undefined && !isOver(inputs.launch) ? inputs.launch.status?.vm?.createTime : undefined,
    spent: spent !== undefined && sumOfParts(spent) > 0 ? spent : undefined,
    spotUsd: spotUsd > 0 ? spotUsd : undefined,
  })
  return Object.keys(cost).length === 0 ? undefined : cost
}

/** Returns the cost that is known at the job's end, and the actual cost once no VM is left. */
function totals(before: JobStatus["cost"], phase: JobPhase, inputs: Inputs, ended: CostParts) {
  const isFinal = isCostFinal(phase, inputs)
  const actualUsd = isFinal ? Math.max(before?.actualUsd ?? 0, sumOfParts(ended)) : before?.actualUsd
  const endedUsd = isTerminal(phase) ? (actualUsd ?? before?.endedUsd ?? costAtEnd(inputs, ended)) : undefined
  return { actualUsd, endedUsd }
}

/** Returns what all VMs cost until now, USD: those that ended, and one whose end the cloud has not confirmed yet. */
function costAtEnd({ launches, now }: Inputs, ended: CostParts): number {
  const live = launches.filter((launch) => !isOver(launch) && launch.status?.vm?.createTime !== undefined)
  const costs = live.map((launch) => {
    const seconds = secondsBetween(launch.status?.vm?.createTime ?? now, now)
    return costOf(pricesOf(launch), { seconds, minimumBilledSeconds: launch.spec.offer.minimumBilledSeconds })
  })
  return sumOfParts(addParts([ended, ...costs]))
}

function isCostFinal(phase: JobPhase, { launches }: Inputs): boolean {
  return isTerminal(phase) && launches.every(isOver)
}

/** Returns true if the cost is final and all readers have seen the end. */
function isSettled(phase: JobPhase, inputs: Inputs): boolean {
  return isCostFinal(phase, inputs) && inputs.isEndAwaited !== true
}

/** Returns the prices of the job's current VM, of a new placement or of its Launch. */
function chosenVm({
  verdict,
  current,
  launch,
}: Inputs & { current: string | undefined; launch: StoredLaunch | undefined }) {
  if (verdict?.placement !== undefined) {
    const { offer, prices } = verdict.placement
    return { hourly: prices, billed: { minimumBilledSeconds: offer.minimumBilledSeconds } }
  }
  if (current === undefined || launch === undefined) return undefined
  return { hourly: pricesOf(launch), billed: { minimumBilledSeconds: launch.spec.offer.minimumBilledSeconds } }
}

function isSpot({ spec }: StoredLaunch): boolean {
  return spec.offer.provisioning === "spot"
}

/** Returns the cost of a Launch whose VM has ended. */
function endedCost({ status }: StoredLaunch): CostParts {
  return status?.cost ?? NO_COST
}

function larger(before: CostParts | undefined, now: CostParts): CostParts {
  return before !== undefined && sumOfParts(before) > sumOfParts(now) ? before : now
}

/** Returns a job's end by its agent's clock, bounded by its start and by now. */
function endTime(finishTime: string | undefined, startTime: string | undefined, now: Date): string {
  if (finishTime === undefined || new Date(finishTime) > now) return timestamp(now)
  return startTime !== undefined && new Date(finishTime) < new Date(startTime) ? startTime : finishTime
}

/**
 * Returns the delay before the status is written: 0 now, a number of seconds, or undefined for no write.
 * A new Launch is written with its VM, or when the cloud has not answered soon. A state of the VM is written after it has
 * lasted. Both are also written with any other change.
 */
export function writeAfter(
  before: JobStatus | undefined,
  next: JobStatus,
  launches: readonly StoredLaunch[],
  { now, settings }: { now: Date; settings: JobSettings },
): number | undefined {
  if (!isDeepStrictEqual(significant(before ?? {}), significant(next))) {
    return awaitsAnswer(before ?? {}, next) ? answerTime(next, launches, { now, settings }) : 0
  }
  if (before === undefined) return 0
  if (isDeepStrictEqual(passing(before), passing(next))) return undefined
  const launch = launches.find(({ metadata }) => metadata.name === next.launches?.current)
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
  const others = ({ launches, refusedOffers, volumes }: JobStatus) => [
    launches?.lost ?? 0,
    launches?.preempted ?? 0,
    refusedOffers,
    volumes,
  ]
  return isDeepStrictEqual(others(before), others(next))
}

/** Returns the remaining seconds in which the cloud may answer. The API server's clock dates the Launch. */
function answerTime(
  next: JobStatus,
  launches: readonly StoredLaunch[],
  { now, settings }: { now: Date; settings: JobSettings },
): number {
  const { answerSeconds } = settings
  const launch = launches.find(({ metadata }) => metadata.name === next.launches?.current)
  if (launch === undefined) return answerSeconds
  const age = secondsBetween(launch.metadata.creationTimestamp, now)
  const isWrong = age < -answerSeconds || launch.status?.unanswered !== undefined
  return isWrong ? 0 : Math.min(answerSeconds, Math.max(0, answerSeconds - age))
}

/** Conditions that only describe the VM's progress. */
const PASSING_CONDITIONS: readonly string[] = [JobCondition.VMReady, JobCondition.Unisolated]

function significant(status: JobStatus): unknown {
  const { vm: _, credentials: __, lastHeartbeatTime: ___, launches, cost, conditions, ...rest } = status
  const { billed: ____, ...counts } = launches ?? {}
  const { since: _____, ...costs } = cost ?? {}
  return { ...rest, counts, costs, conditions: conditions?.filter(({ type }) => !PASSING_CONDITIONS.includes(type)) }
}

function passing({ vm, credentials, launches, cost, conditions }: JobStatus): unknown {
  const shown = conditions?.filter(({ type }) => PASSING_CONDITIONS.includes(type))
  return { vm, credentials, billed: launches?.billed, since: cost?.since, conditions: shown }
}

/** Returns the object without undefined fields, like JSON, for comparison with what was read. */
function compact<T extends object>(object: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]: Exclude<T[K], undefined>
  }
}
