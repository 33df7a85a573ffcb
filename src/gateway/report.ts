import type { RegisterRequest, ReportRequest } from "../agent/protocol.ts"
import { secondsBetween, timestamp } from "../apis/clock.ts"
import { type AgentStatus, isOver, type StoredLaunch } from "../apis/launch.ts"

/** A healthy VM's heartbeat is written no more often: every write reaches every watcher of Launches. */
export const HEARTBEAT_WRITE_SECONDS = 60

/** Whether this Launch may (still) begin its run: nobody has ended it and nothing of it has ended by itself. */
export function isCurrent(launch: StoredLaunch): boolean {
  const { agent, bootFailure } = launch.status ?? {}
  return !isOver(launch) && desiredOf(launch) === "run" && agent?.finish === undefined && bootFailure === undefined
}

/** What the agent of this Launch should do now. */
export function desiredOf(launch: StoredLaunch): "run" | "stop" {
  const { spec, metadata, status } = launch
  if (spec.ended === true || metadata.deletionTimestamp !== undefined) return "stop"
  return status?.phase === "terminating" || status?.loss !== undefined ? "stop" : "run"
}

/** The status of a Launch whose agent registers for the first time. */
export function registered(request: RegisterRequest, now: Date): AgentStatus {
  const { signingKey, encryptionKey, version, runtime } = request
  const time = timestamp(now)
  return {
    signingKey,
    encryptionKey,
    version,
    runtime,
    registrationTime: time,
    sequence: 0,
    retryCount: 0,
    lastHeartbeatTime: time,
  }
}

/**
 * What a report makes of the Launch's status; undefined when nothing need be written. A finish is taken once,
 * from whichever report brings it first, and nothing that comes after it changes anything; a report that is older
 * than one already taken changes nothing else.
 */
export function takeReport(agent: AgentStatus, report: ReportRequest, now: Date): AgentStatus | undefined {
  if (agent.finish !== undefined) return undefined
  const late = report.sequence <= agent.sequence
  if (late && report.finish === undefined) return undefined
  const next: AgentStatus = late ? { ...agent } : { ...agent, ...news(agent, report) }
  next.lastHeartbeatTime = timestamp(now)
  if (report.finish !== undefined) next.finish = finishOf(report.finish)
  return late || isNews(agent, next) || isHeartbeatDue(agent, now) ? next : undefined
}

function news(agent: AgentStatus, report: ReportRequest): Partial<AgentStatus> {
  const startTime = agent.startTime ?? report.startTime
  const preemptionNotice = agent.preemptionNotice ?? report.preemptionNotice
  return {
    sequence: report.sequence,
    retryCount: report.retryCount,
    ...(startTime !== undefined && { startTime }),
    ...(preemptionNotice !== undefined && { preemptionNotice }),
    ...(report.lastExitCode !== undefined && { lastExitCode: report.lastExitCode }),
  }
}

/** Only the fields that the CRD knows: a newer agent may send more. */
function finishOf(finish: NonNullable<ReportRequest["finish"]>): NonNullable<AgentStatus["finish"]> {
  const { reason, exitCode, message, time } = finish
  return { reason, ...(exitCode !== undefined && { exitCode }), ...(message !== undefined && { message }), time }
}

/** Whether more has changed than when the agent was heard last. */
export function isNews(before: AgentStatus, after: AgentStatus): boolean {
  const fields = ["retryCount", "startTime", "preemptionNotice", "lastExitCode", "finish"] as const
  return fields.some((field) => before[field] !== after[field])
}

function isHeartbeatDue(agent: AgentStatus, now: Date): boolean {
  if (agent.lastHeartbeatTime === undefined) return true
  // A clock that was set back must not silence the heartbeats until it has caught up.
  return Math.abs(secondsBetween(agent.lastHeartbeatTime, now)) >= HEARTBEAT_WRITE_SECONDS
}
