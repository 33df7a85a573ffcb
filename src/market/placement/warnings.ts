import type { Debug } from "../../core/apis/debug.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { JOB_DEFAULTS, type JobSettings } from "./settings.ts"

const DAY_SECONDS = 86_400

/**
 * Returns what a person should know before a job runs: without a limit it may run for the default timeout, and after a
 * failure its VM may be kept. Pure.
 * @param hourlyUsd price of its VM with disk and address; undefined: unknown
 */
export function warningsOf(
  { timeoutSeconds, maxCostUsd, idleLimit, debug }: JobSpec,
  hourlyUsd: number | undefined,
  { timeoutSeconds: longest, allowsSessions }: Pick<JobSettings, "timeoutSeconds" | "allowsSessions"> = JOB_DEFAULTS,
): string[] {
  const isLimited = timeoutSeconds !== undefined || maxCostUsd !== undefined || idleLimit !== undefined
  const cost = (seconds: number): string => {
    const usd = roundUsd(((hourlyUsd ?? 0) * seconds) / 3600)
    return usd > 0 ? ` and cost up to $${usd.toFixed(2)}` : ""
  }
  const unlimited =
    `This job has no timeoutSeconds: it may run for ${longest / DAY_SECONDS} days${cost(longest)}. ` +
    "Set timeoutSeconds, maxCostUsd or idleLimit."
  const kept = allowsSessions
    ? debug && keptWarning(debug, maxCostUsd, cost)
    : debug && "If its container fails, its VM ends at once: this installation allows no sessions (--sessions)."
  return [...(isLimited ? [] : [unlimited]), ...(kept === undefined ? [] : [kept])]
}

function keptWarning(
  { keepSeconds }: Debug,
  maxCostUsd: number | undefined,
  cost: (seconds: number) => string,
): string {
  const bound = maxCostUsd === undefined ? "" : `, within its maxCostUsd of $${maxCostUsd}`
  return `If its container fails, its VM is kept for ${Math.ceil(keepSeconds / 60)} minutes${cost(keepSeconds).replace("cost", "costs")}${bound}.`
}
