import type { JobSpec } from "../../core/apis/job.ts"
import { roundUsd } from "../../core/apis/money.ts"
import { sumOfParts } from "../../core/apis/price.ts"
import type { Images } from "./inputs.ts"
import type { MarketSources } from "./market.ts"
import { laterPlacements } from "./place.ts"
import { JOB_DEFAULTS, type JobSettings } from "./settings.ts"

const DAY_SECONDS = 86_400

/**
 * Returns what a person should know before a job runs: without a limit it may run for the default timeout. Pure.
 * @param hourlyUsd price of its VM with disk and address; undefined: unknown
 */
export function warningsOf(
  { timeoutSeconds, maxCostUsd, idleLimit }: JobSpec,
  hourlyUsd: number | undefined,
  { timeoutSeconds: longest }: Pick<JobSettings, "timeoutSeconds"> = JOB_DEFAULTS,
): string[] {
  if (timeoutSeconds !== undefined || maxCostUsd !== undefined || idleLimit !== undefined) return []
  const most = roundUsd(((hourlyUsd ?? 0) * longest) / 3600)
  const cost = most > 0 ? ` and cost up to $${most.toFixed(2)}` : ""
  return [
    `This job has no timeoutSeconds: it may run for ${longest / DAY_SECONDS} days${cost}. ` +
      "Set timeoutSeconds, maxCostUsd or idleLimit.",
  ]
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
