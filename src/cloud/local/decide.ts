import { secondsBetween } from "../../apis/clock.ts"
import type { CloudVmState } from "../provider.ts"

/** Seconds that an agent has, after SIGTERM, to stop its container (10 of them) and to report. */
export const TERMINATION_GRACE_SECONDS = 15

/** Seconds that a terminated VM stays in the list. */
export const RETENTION_SECONDS = 24 * 3600

/** The agent process of a VM: `off` was not started yet, `gone` runs no more or never will. */
export type Power = "off" | "on" | "gone"

/** What is known of one VM. Times are RFC 3339. */
export interface VmFacts {
  createTime: string
  lifetimeSeconds: number
  power: Power
  /** When its end was asked for. */
  terminationRequestTime?: string
  /** When it was seen to be over. */
  terminationTime?: string
}

/**
 * What is to be done next about a VM: `cancelBoot` makes sure that it is never started, `stop` asks the agent to end,
 * `kill` leaves it no choice, `cleanUp` ends what a dead agent left running and records the end, `forget` removes
 * its record.
 */
export type Step = "none" | "cancelBoot" | "stop" | "kill" | "cleanUp" | "forget"

/** The next step of a VM's life. Pure; following it repeatedly from any state ends in `none` or `forget`. */
export function nextStep(facts: VmFacts, now: Date): Step {
  if (facts.terminationTime !== undefined) {
    return secondsBetween(facts.terminationTime, now) > RETENTION_SECONDS ? "forget" : "none"
  }
  if (facts.power === "gone") return "cleanUp"
  const asked = facts.terminationRequestTime
  const overdue = secondsBetween(facts.createTime, now) >= facts.lifetimeSeconds
  if (asked === undefined && !overdue) return "none"
  if (facts.power === "off") return "cancelBoot"
  return asked !== undefined && secondsBetween(asked, now) >= TERMINATION_GRACE_SECONDS ? "kill" : "stop"
}

/** The state that a cloud would show. */
export function shownState(facts: VmFacts): CloudVmState {
  if (facts.terminationTime !== undefined) return "terminated"
  if (facts.terminationRequestTime !== undefined || facts.power === "gone") return "terminating"
  return facts.power === "on" ? "running" : "booting"
}
