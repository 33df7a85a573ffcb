import type { Clock } from "../core/apis/clock.ts"
import type { BootConfig } from "../core/protocol/protocol.ts"
import type { LaunchOptions } from "./context.ts"
import { type LeaveCause, STOP_GRACE_SECONDS } from "./run.ts"
import { timer, waitUnlessAborted } from "./timers.ts"

/** Time for the last report when the VM shuts down, seconds. */
export const LAST_REPORT_SECONDS = 5

/**
 * Maximum grace time of a container while its VM shuts down, seconds. The VM's system waits 90 s for the agent, and the
 * uploads need a part of them.
 */
const SHUTDOWN_GRACE_SECONDS = 45

/** Time for the last report after the container's end in a quick shutdown, seconds. */
const SHORT_LAST_REPORT_SECONDS = 1

/** Delay after the stop's grace and the last report until the agent exits, even if something hangs; seconds. */
const HARD_END_SECONDS = 20

/** Part of a lease's last seconds that the container doesn't have: uploads, the last report and the clean-up do. */
const AFTER_CONTAINER_SECONDS = 20

/** Part of a lease's last seconds that the run doesn't have: the clean-up does, which also ends what hangs. */
const AFTER_RUN_SECONDS = 5

/** Time for a run to end in order after its lease, seconds. A machine that was suspended may wake up later than that. */
const LATE_SECONDS = 5

/** Arms the timers that end a VM of this age. Returns how to cancel them. */
export function endTimers(
  { lifetimeSeconds, budgetSeconds = Number.POSITIVE_INFINITY }: BootConfig,
  { clock, leave, age }: { clock: Clock; leave: AbortController; age: number },
): () => void {
  const cause: LeaveCause = budgetSeconds < lifetimeSeconds ? "budget" : "expired"
  return timer(clock, Math.min(lifetimeSeconds, budgetSeconds) - age, () => leave.abort(cause))
}

function hardEndSeconds(cause: LeaveCause, options: LaunchOptions): number {
  const { stopGraceSeconds = STOP_GRACE_SECONDS, shutdownSeconds, leaseSeconds = () => 0 } = options
  if (cause === "lease") return Math.max(LATE_SECONDS, leaseSeconds() - AFTER_RUN_SECONDS)
  if (cause === "shutdown" && shutdownSeconds !== undefined) return shutdownSeconds
  return leaveSeconds(cause, options) + stopGraceSeconds + LAST_REPORT_SECONDS + HARD_END_SECONDS
}

/** Returns the maximum seconds that the container has after the order to leave. */
export function leaveSeconds(
  cause: LeaveCause,
  { stopGraceSeconds = STOP_GRACE_SECONDS, shutdownSeconds, leaseSeconds = () => 0 }: LaunchOptions,
) {
  if (cause === "lease") return Math.max(0, leaseSeconds() - AFTER_CONTAINER_SECONDS)
  if (cause !== "shutdown" && cause !== "ended") return stopGraceSeconds
  if (shutdownSeconds === undefined) return Math.max(stopGraceSeconds, SHUTDOWN_GRACE_SECONDS)
  return Math.max(0, shutdownSeconds - SHORT_LAST_REPORT_SECONDS)
}

/** Resolves some seconds after the order to leave. A hanging engine must not keep a VM alive. */
export async function afterLeaving(
  clock: Clock,
  leave: AbortSignal,
  { done, options }: { done: AbortSignal; options: LaunchOptions },
): Promise<LeaveCause> {
  await waitUnlessAborted(clock, Number.POSITIVE_INFINITY, AbortSignal.any([leave, done]))
  const cause = leave.reason as LeaveCause
  await waitUnlessAborted(clock, hardEndSeconds(cause, options), done)
  return cause
}
