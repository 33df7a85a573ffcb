import { secondsBetween, timestamp } from "../../core/apis/clock.ts"
import type { Debug } from "../../core/apis/debug.ts"
import { defined } from "../../core/apis/defined.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import { type AgentStatus, bootFailureOf, type Finish, isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import { HEARTBEAT_SECONDS, type RegisterRequest, type ReportRequest } from "../../core/protocol/protocol.ts"

/**
 * Minimum delay between two writes of a healthy VM's heartbeat into its Launch, because every write reaches every watcher
 * of Launches.
 */
export const HEARTBEAT_WRITE_SECONDS = 60

/** Reports a second that a replica asks for, at most, before it asks VMs to report less often. */
const REPORTS_PER_SECOND = 100

/** Longest interval of reports. A heartbeat that outweighs a list may be no older (recentHeartbeatSeconds). */
const LONGEST_HEARTBEAT_SECONDS = 60

/** Returns the seconds between two reports of a VM, by the number of VMs that report to this replica. */
export function heartbeatSecondsFor(vms: number): number {
  return Math.min(LONGEST_HEARTBEAT_SECONDS, Math.max(HEARTBEAT_SECONDS, Math.ceil(vms / REPORTS_PER_SECOND)))
}

/** Returns true if this Launch may begin or continue its run. Then it is not ended, finished, failed or deleted. */
export function isCurrent(launch: StoredLaunch): boolean {
  const hasFailed = launch.status?.agent?.finish !== undefined || bootFailureOf(launch.status) !== undefined
  return !isOver(launch) && desiredState(launch) === "run" && !hasFailed
}

/** Returns the desired state of the agent of this Launch. */
export function desiredState(launch: StoredLaunch): "run" | "stop" {
  const { spec, metadata, status } = launch
  if (spec.ended === true || metadata.deletionTimestamp !== undefined) return "stop"
  return status?.phase === "terminating" || status?.loss !== undefined ? "stop" : "run"
}

/** Returns the status of a Launch whose agent registers for the first time. */
export function registered(request: RegisterRequest, now: Date): AgentStatus {
  const { signingKey, encryptionKey, version, runtime, abilities } = request
  const time = timestamp(now)
  return {
    signingKey,
    encryptionKey,
    version,
    runtime,
    abilities,
    registrationTime: time,
    sequence: 0,
    retryCount: 0,
    lastHeartbeatTime: time,
  }
}

/**
 * Returns the Launch's status after a report, or undefined if nothing needs to be written. The first finish counts,
 * from any report, and later reports change nothing. A report that is older than a previous one changes nothing else.
 * @param debug what the run asks for after a failure
 */
export function takeReport(
  agent: AgentStatus,
  report: ReportRequest,
  now: Date,
  debug?: Debug,
): AgentStatus | undefined {
  if (agent.finish !== undefined) return undefined
  const late = report.sequence <= agent.sequence
  if (late && report.finish === undefined) return undefined
  const next: AgentStatus = late ? { ...agent } : { ...agent, ...news(agent, report, now) }
  next.lastHeartbeatTime = timestamp(now)
  if (report.finish !== undefined) {
    const time = boundTime(report.finish.time, agent, now)
    next.finish = { ...finishOf(report.finish), ...keptAfter(report.finish, debug, now), time }
  }
  return late || isNews(agent, next) || isHeartbeatDue(agent, now) ? next : undefined
}

function news(agent: AgentStatus, report: ReportRequest, now: Date): Partial<AgentStatus> {
  const first = (stored: string | undefined, reported: string | undefined) =>
    stored ?? (reported === undefined ? undefined : boundTime(reported, agent, now))
  const startTime = first(agent.startTime, report.startTime)
  const preemptionNotice = first(agent.preemptionNotice, report.preemptionNotice)
  return {
    sequence: report.sequence,
    // A job has no more retries, and a count never falls. An agent's keys are on the VM, so its word may be a user's.
    retryCount: Math.max(agent.retryCount, Math.min(report.retryCount, LIMITS.maxRetries)),
    ...(startTime !== undefined && { startTime }),
    ...(preemptionNotice !== undefined && { preemptionNotice }),
    ...(report.lastExitCode !== undefined && { lastExitCode: report.lastExitCode }),
  }
}

/** Returns until when the VM is kept, by this clock. An agent's word may be a user's: no longer than the job has asked for. */
function keptAfter(
  { keepSeconds }: NonNullable<ReportRequest["finish"]>,
  debug: Debug | undefined,
  now: Date,
): Pick<Finish, "keptUntil"> {
  if (keepSeconds === undefined || debug === undefined) return {}
  const seconds = Math.min(keepSeconds, debug.keepSeconds)
  return { keptUntil: timestamp(new Date(now.getTime() + seconds * 1000)) }
}

/** Returns only the fields of the CRD. A newer agent may send more. */
function finishOf(finish: NonNullable<ReportRequest["finish"]>): Omit<Finish, "time" | "keptUntil"> {
  const { reason, exitCode, message, cause, transient, lastLine, usage } = finish
  return defined({ reason, exitCode, message, cause, transient, lastLine, usage })
}

/**
 * Returns a time by the VM's clock, moved into the time from the agent's registration until now. A VM's clock may be
 * wrong, and a user with access to the VM may send any time. Jobs of others must not wait for such a time.
 */
function boundTime(time: string, { registrationTime }: AgentStatus, now: Date): string {
  const at = Date.parse(time)
  // `Date.parse` returns NaN for a leap second.
  if (Number.isNaN(at) || at > now.getTime()) return timestamp(now)
  // Engines report up to nine digits of a second. All times of a status have none.
  return at < Date.parse(registrationTime) ? registrationTime : timestamp(new Date(at))
}

/** Returns true if the report is newer than the last one, of an agent that has not finished, or whose VM is kept. */
export function isHeartbeat({ finish, sequence }: AgentStatus, report: ReportRequest): boolean {
  return (finish === undefined || finish.keptUntil !== undefined) && report.sequence > sequence
}

/** Returns true if the written heartbeat is from before the clock was set back. */
export function isAhead({ lastHeartbeatTime }: AgentStatus, now: Date): boolean {
  return lastHeartbeatTime !== undefined && secondsBetween(now, lastHeartbeatTime) >= HEARTBEAT_WRITE_SECONDS
}

/** Returns true if more than the heartbeat has changed. */
export function isNews(before: AgentStatus, after: AgentStatus): boolean {
  const fields = ["retryCount", "startTime", "preemptionNotice", "lastExitCode", "finish"] as const
  return fields.some((field) => before[field] !== after[field])
}

function isHeartbeatDue(agent: AgentStatus, now: Date): boolean {
  if (agent.lastHeartbeatTime === undefined) return true
  // If the clock was set back, heartbeats must continue at once.
  return Math.abs(secondsBetween(agent.lastHeartbeatTime, now)) >= HEARTBEAT_WRITE_SECONDS
}
