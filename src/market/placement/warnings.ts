import type { Debug } from "../../core/apis/debug.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { sumOfParts } from "../../core/apis/price.ts"
import type { Images } from "./inputs.ts"
import type { MarketSources } from "./market.ts"
import { laterPlacements } from "./place.ts"
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
  { timeoutSeconds: longest }: Pick<JobSettings, "timeoutSeconds"> = JOB_DEFAULTS,
): string[] {
  const isLimited = timeoutSeconds !== undefined || maxCostUsd !== undefined || idleLimit !== undefined
  const cost = (seconds: number): string => {
    const usd = roundUsd(((hourlyUsd ?? 0) * seconds) / 3600)
    return usd > 0 ? ` and cost up to $${usd.toFixed(2)}` : ""
  }
  const unlimited =
    `This job has no timeoutSeconds: it may run for ${longest / DAY_SECONDS} days${cost(longest)}. ` +
    "Set timeoutSeconds, maxCostUsd or idleLimit."
  return [...(isLimited ? [] : [unlimited]), ...(debug === undefined ? [] : [keptWarning(debug, maxCostUsd, cost)])]
}

function keptWarning(
  { keepSeconds }: Debug,
  maxCostUsd: number | undefined,
  cost: (seconds: number) => string,
): string {
  const bound = maxCostUsd === undefined ? "" : `, within its maxCostUsd of $${maxCostUsd}`
  return `If its container fails, its VM is kept for ${keepSeconds / 60} minutes${cost(keepSeconds)}${bound}.`
}

/** Returns the price of the VM that a job of a namespace would get now, US dollars an hour; undefined: none is known. */
export type HourlyPriceNow = (namespace: string, spec: JobSpec) => Promise<number | undefined>

/** Returns a lookup of prices that reads caches only. A registry that has not answered yet is not waited for. */
export function hourlyPrices(
  sources: Pick<MarketSources, "offers" | "launchAccounts" | "agentImage" | "clock"> & {
    images?: Images
    /** Waits until the scan of all offers may begin. */
    nextTurn: () => Promise<void>
  },
  settings: Partial<JobSettings> = {},
): HourlyPriceNow {
  const effective = { ...JOB_DEFAULTS, ...settings }
  return async (namespace, spec) => {
    await sources.nextTurn()
    const [image, agentImage] = [sources.images?.find(namespace, spec.image), sources.agentImage?.()]
    const market = {
      offers: sources.offers.current(),
      launchAccounts: sources.launchAccounts.of(namespace),
      ...{ cooldowns: [], levels: [], paused: [], rateWaitSeconds: 0 },
      ...(image && { image }),
      ...(agentImage && { agentImage }),
    }
    const [first] = laterPlacements({ spec }, market, sources.clock.now(), effective)
    return first && sumOfParts(first.prices)
  }
}
