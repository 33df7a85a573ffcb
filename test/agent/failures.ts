import { endText } from "../../src/cli/commands/attach.ts"
import type { Finish } from "../../src/core/apis/launch.ts"
import { toRecord } from "../../src/core/records/job.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { decide } from "../../src/operator/job/decide.ts"
import { agentOf, at, jobOf, launchOf, marketOf, seenOf, time, vmStatus } from "../harness/builders.ts"

/** Words that a user reads of a failure, by place. */
export interface FailureWords {
  /** `status.reason`, and the reason of the condition `Failed`. */
  reason: string
  /** `status.message`, and the message of conditions and events. */
  kubectl: string
  /** `error_message` of REST, which the console shows. */
  rest: string
  /** Last line of `berth run`. */
  cli: string
}

/** Returns what a user reads after an agent has reported this finish. */
export function wordsFor(finish: Finish): FailureWords {
  const job = jobOf({ status: { phase: "running", reason: "Started", startTime: time(30), launches: { count: 1 } } })
  const ended = { ...finish, time: time(90) }
  const agent = agentOf({ startTime: time(30), lastHeartbeatTime: time(40), finish: ended })
  const launch = launchOf(job, 1, { status: vmStatus({ agent }) })
  const observed = { launches: [launch], market: () => marketOf({}), ...seenOf(job) }
  const { status } = decide(job, observed, at(91), JOB_DEFAULTS)
  const record = toRecord({ ...job, status }, { projectId: "p", organizationId: "o" })
  return {
    reason: status.reason ?? "",
    kubectl: status.message ?? "",
    rest: record.error_message ?? record.message ?? "",
    cli: endText(record),
  }
}
