import type { RegisterRequest, ReportRequest } from "../agent/protocol.ts"
import { secondsBetween, timestamp } from "../apis/clock.ts"
import { type AgentStatus, type Finish, isOver, type StoredLaunch } from "../apis/launch.ts"

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
  const next: AgentStatus = late ? { ...agent } : { ...agent, ...news(agent, report, now) }
  next.lastHeartbeatTime = timestamp(now)
  if (report.finish !== undefined) {
    next.finish = { ...finishOf(report.finish), time: believed(report.finish.time, agent, now) }
  }
  return late || isNews(agent, next) || isHeartbeatDue(agent, now) ? next : undefined
}

function news(agent: AgentStatus, report: ReportRequest, now: Date): Partial<AgentStatus> {
  const first = (stored: string | undefined, reported: string | undefined) =>
    stored ?? (reported === undefined ? undefined : believed(reported, agent, now))
  const startTime = first(agent.startTime, report.startTime)
  const preemptionNotice = first(agent.preemptionNotice, report.preemptionNotice)
  return {
    sequence: report.sequence,
    retryCount: report.retryCount,
    ...(startTime !== undefined && { startTime }),
    ...(preemptionNotice !== undefined && { preemptionNotice }),
    ...(report.lastExitCode !== undefined && { lastExitCode: report.lastExitCode }),
  }
}

/** Only the fields that the CRD knows: a newer agent may send more. */
function finishOf(finish: NonNullable<ReportRequest["finish"]>): Omit<Finish, "time"> {
  const { reason, exitCode, message } = finish
  return { reason, ...(exitCode !== undefined && { exitCode }), ...(message !== undefined && { message }) }
}

/**
 * Returns a time by the VM's clock, moved into the time from the agent's registration until now. A VM's clock may be
 * wrong, and who controls a VM may say anything: jobs of others must not wait for it.
 */
function believed(time: string, { registrationTime }: AgentStatus, now: Date): string {
  const at = Date.parse(time)
  // A leap second is not a number here.
  if (Number.isNaN(at) || at > now.getTime()) return timestamp(now)
  return at < Date.parse(registrationTime) ? registrationTime : time
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
