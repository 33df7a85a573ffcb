import type { JobSpec } from "../../core/apis/job.ts"
import { sumOfParts } from "../../core/apis/price.ts"
import type { Images } from "./inputs.ts"
import type { MarketSources } from "./market.ts"
import { laterPlacements } from "./place.ts"
import { JOB_DEFAULTS, type JobSettings } from "./settings.ts"
import { warningsOf } from "./warnings.ts"

/** Returns the warnings about a job of a namespace that was just created. */
export type CreationWarnings = (namespace: string, spec: JobSpec) => Promise<string[]>

/** Returns a function that reads caches only. A registry that has not answered yet is not waited for. */
export function creationWarnings(
  sources: Pick<MarketSources, "offers" | "launchAccounts" | "agentImage" | "clock"> & {
    images?: Images
    /** Waits until the scan of all offers may begin. */
    nextTurn: () => Promise<void>
  },
  settings: Partial<JobSettings> = {},
): CreationWarnings {
  const effective = { ...JOB_DEFAULTS, ...settings }
  return async (namespace, spec) => {
    // Only a job with a warning needs its price, for which all offers are scanned.
    if (warningsOf(spec, undefined, effective).length === 0) return []
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
    return warningsOf(spec, first && sumOfParts(first.prices), effective)
  }
}
