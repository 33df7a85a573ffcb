import { isTerminal, JobReason, type JobStatus, type StoredJob } from "../../apis/job.ts"
import { REFUSALS } from "../../apis/launch.ts"
import type { EventNote } from "../../kube/events.ts"
import { usd } from "../../router/explain.ts"
import { refusalKey } from "./history.ts"

/** Reason of the event that tells that a job's VM is gone and what it has cost. */
export const VM_TERMINATED = "VMTerminated"

/**
 * The events that tell how a job came from its last written status to the next one: each step of its story once,
 * because each write of a status happens once. Pure.
 */
export function eventsOf(job: StoredJob, next: JobStatus, number?: number): EventNote[] {
  const before = job.status ?? {}
  return [
    ...refusals(before, next),
    ...waiting(before, next),
    ...placed(next, number),
    ...machine(before, next),
    ...container(before, next),
    ...ended(before, next),
  ]
}

function normal(reason: string, message: string): EventNote {
  return { type: "Normal", reason, message }
}

function warning(reason: string, message: string): EventNote {
  return { type: "Warning", reason, message }
}

/** Refusals whose reason is the cloud's word; the other reasons are events of their own. */
const CLOUD_REFUSALS: readonly string[] = REFUSALS

function refusals(before: JobStatus, next: JobStatus): EventNote[] {
  const known = new Set(before.refusedOffers?.map(refusalKey))
  const fresh = next.refusedOffers?.filter((refused) => !known.has(refusalKey(refused))) ?? []
  return fresh.map(({ reason, cloud, instanceType, region, message }) => {
    const where = `${cloud} ${instanceType} in ${region}`
    const isRefusal = CLOUD_REFUSALS.includes(reason)
    return warning(isRefusal ? JobReason.OfferRefused : reason, `${where}: ${isRefusal ? `${reason}: ` : ""}${message}`)
  })
}

/** Reasons that `refusals` has told already. */
const TOLD: readonly string[] = [
  JobReason.BootDeadlineExceeded,
  JobReason.BootFailed,
  JobReason.VMLost,
  JobReason.Preempted,
]

function waiting(before: JobStatus, next: JobStatus): EventNote[] {
  const { reason = "", message = "" } = next
  if (next.phase !== "queued" || before.reason === reason || TOLD.includes(reason)) return []
  return [reason === JobReason.Queued ? normal(reason, message) : warning(reason, message)]
}

function placed(next: JobStatus, number: number | undefined): EventNote[] {
  if (number === undefined) return []
  return [normal(JobReason.Placed, `launch ${number}: ${next.placement?.reason ?? ""}`)]
}

function machine(before: JobStatus, next: JobStatus): EventNote[] {
  const { vm } = next
  if (vm?.id === undefined || vm.id === before.vm?.id || isTerminal(next.phase)) return []
  return [normal(JobReason.Booting, `VM ${vm.id} was created`)]
}

function container(before: JobStatus, next: JobStatus): EventNote[] {
  const notes: EventNote[] = []
  if (next.phase === "running" && before.phase !== "running") notes.push(normal(JobReason.Started, next.message ?? ""))
  const retries = next.retryCount ?? 0
  if (retries > (before.retryCount ?? 0)) {
    const code = next.exitCode === undefined ? "" : ` after exit code ${next.exitCode}`
    notes.push(warning(JobReason.ContainerRestarted, `retry ${retries}${code}`))
  }
  return notes
}

function ended(before: JobStatus, next: JobStatus): EventNote[] {
  const notes: EventNote[] = []
  const { phase, reason = "", message = "" } = next
  if (isTerminal(phase) && !isTerminal(before.phase)) {
    const isGood = phase === "succeeded" || phase === "cancelled"
    notes.push(isGood ? normal(reason, message) : warning(reason, message))
  }
  const actualUsd = next.cost?.actualUsd
  if (actualUsd !== undefined && before.cost?.actualUsd === undefined && next.vm?.id !== undefined) {
    notes.push(normal(VM_TERMINATED, `VM ${next.vm.id} is gone; the job cost ${usd(actualUsd)}`))
  }
  return notes
}
