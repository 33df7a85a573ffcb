import type { JobSpec } from "../../core/apis/job.ts"
import { sumOfParts } from "../../core/apis/price.ts"
import { memo } from "../router/memo.ts"
import type { Images } from "./inputs.ts"
import type { MarketSources } from "./market.ts"
import { laterPlacements } from "./place.ts"
import { JOB_DEFAULTS, type JobSettings } from "./settings.ts"
import { warningsOf } from "./warnings.ts"

/** Returns the warnings about a job of a namespace that was just created. */
export type CreationWarnings = (namespace: string, spec: JobSpec) => Promise<string[]>

/** Time for which a price is remembered, milliseconds: prices may change at a date. */
const REMEMBERED_MS = 60_000

/**
 * Returns a function that reads caches only. A registry that has not answered yet is not waited for. Many jobs that differ
 * only in what their container does are priced once.
 */
export function creationWarnings(
  sources: Pick<MarketSources, "offers" | "launchAccounts" | "agentImage" | "clock"> & {
    images?: Images
    /** Waits until the scan of all offers may begin. */
    nextTurn: () => Promise<void>
  },
  settings: Partial<JobSettings> = {},
): CreationWarnings {
  const effective = { ...JOB_DEFAULTS, ...settings }
  const hourlyUsd = memo<number | undefined>()
  return async (namespace, spec) => {
    // Only a job with a warning needs its price, for which all offers are scanned.
    if (warningsOf(spec, undefined, effective).length === 0) return []
    await sources.nextTurn()
    const [image, agentImage] = [sources.images?.find(namespace, spec.image), sources.agentImage?.()]
    const launchAccounts = sources.launchAccounts.of(namespace)
    const [offers, now] = [sources.offers.current(), sources.clock.now()]
    const key = [needsOf(spec), launchAccounts, image, agentImage, Math.floor(now.getTime() / REMEMBERED_MS)]
    const usd = hourlyUsd(offers, key, () => {
      const market = {
        ...{ offers, launchAccounts, cooldowns: [], levels: [], paused: [], rateWaitSeconds: 0 },
        ...(image && { image }),
        ...(agentImage && { agentImage }),
      }
      const [first] = laterPlacements({ spec }, market, now, effective)
      return first && sumOfParts(first.prices)
    })
    return warningsOf(spec, usd, effective)
  }
}

/** Returns the spec without the fields that have no effect on machine and price. */
function needsOf({ command, args, env, secretEnv, workdir, labels, tags, after, ...needs }: JobSpec): Partial<JobSpec> {
  return needs
}
