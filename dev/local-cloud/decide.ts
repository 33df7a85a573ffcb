import type { CloudVmState } from "../../src/clouds/cloud.ts"
import { secondsBetween } from "../../src/core/apis/clock.ts"

/** Seconds from SIGTERM in which an agent stops its container (10 of them) and reports. */
export const TERMINATION_GRACE_SECONDS = 15

/** Seconds that the disk of a terminated VM is kept. It has the output of the job and the agent's keys. */
export const DISK_RETENTION_SECONDS = 600

/** State of a VM's agent process. `off`: not started yet. `gone`: has ended, or will never start. */
export type Power = "off" | "on" | "gone"

/** Facts about one VM. Times are RFC 3339. */
export interface VmFacts {
  power: Power
  /** Time of the request to terminate the VM. */
  terminationRequestTime?: string
  /** Seconds since this process sent SIGTERM to the agent, by the monotonic clock. Absent: it has sent none. */
  stoppedSeconds?: number
  /** Time when the VM was first seen as ended. */
  terminationTime?: string
  /** True if the VM's disk exists. */
  hasDisk: boolean
}

/**
 * Next step for a VM. `cancelBoot` prevents its start. `stop` asks the agent to end, `kill` forces it. `cleanUp` ends
 * the remains of a dead agent and records the end. `deleteDisk` deletes the VM's disk.
 */
export type Step = "none" | "cancelBoot" | "stop" | "kill" | "cleanUp" | "deleteDisk"

/**
 * Returns the next step of a VM's life. Pure. From any state, repeated steps end in `none`. No step ends a VM at the end of
 * its lifetime: the calendar of a laptop that slept is hours ahead. The agent and the operator measure the lifetime.
 */
export function nextStep(facts: VmFacts, now: Date): Step {
  const { terminationTime, terminationRequestTime, stoppedSeconds } = facts
  if (terminationTime !== undefined) {
    return facts.hasDisk && secondsBetween(terminationTime, now) > DISK_RETENTION_SECONDS ? "deleteDisk" : "none"
  }
  if (facts.power === "gone") return "cleanUp"
  if (terminationRequestTime === undefined && stoppedSeconds === undefined) return "none"
  if (facts.power === "off") return "cancelBoot"
  if (stoppedSeconds === undefined) return "stop"
  return stoppedSeconds >= TERMINATION_GRACE_SECONDS ? "kill" : "none"
}

/** Returns the state that a cloud would show. */
export function shownState(facts: VmFacts): CloudVmState {
  if (facts.terminationTime !== undefined) return "terminated"
  if (facts.terminationRequestTime !== undefined || facts.power === "gone") return "terminating"
  return facts.power === "on" ? "running" : "booting"
}
