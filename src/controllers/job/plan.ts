import { cutTo } from "../../apis/conditions.ts"
import { JobReason, type StoredJob } from "../../apis/job.ts"
import { LIMITS } from "../../apis/limits.ts"
import { explainRanking } from "../../router/explain.ts"
import type { Payer } from "../../router/rest.ts"
import type { RankedPlacement } from "../../router/route.ts"
import { type MarketSources, marketOf } from "./gather.ts"
import type { Images } from "./image.ts"
import { LaunchLedger } from "./ledger.ts"
import type { Market } from "./market.ts"
import { type PlaceVerdict, placeAmong } from "./place.ts"
import { JOB_DEFAULTS, type JobSettings } from "./settings.ts"
import { type Buckets, reasonToWait, whenVolumesFound } from "./volumes.ts"

/** What would become of a job if it were submitted now. */
export interface JobPlan {
  /** `placeable`: a VM would be asked for at once. `waits`: it would stay queued. `noOffer`: it would fail. */
  verdict: "placeable" | "waits" | "noOffer"
  /** What the job's condition Placed would say. */
  reason: JobReason
  message: string
  /** What would be tried, first choice first; a job that waits for room under a cap has them, too. */
  placements: RankedPlacement<Payer>[]
  /** For people: one line for each placement. */
  ranking: string[]
}

/** Plans a job by the very verdict that its controller would come to. Pure. */
export function planJob(job: Pick<StoredJob, "spec">, market: Market, now: Date, settings: JobSettings): JobPlan {
  const { verdict: found, placements } = placeAmong(job, market, now, settings)
  return planOf(told(found), placements)
}

type Told = Pick<JobPlan, "verdict" | "reason" | "message">

function told(found: PlaceVerdict): Told {
  switch (found.kind) {
    case "placed":
      return { verdict: "placeable", reason: JobReason.Placed, message: found.why }
    case "wait":
      return { verdict: "waits", reason: found.reason, message: found.message }
    case "noOffer":
      return { verdict: "noOffer", reason: JobReason.NoOffer, message: found.message }
  }
}

function planOf({ message, ...told }: Told, placements: JobPlan["placements"]): JobPlan {
  return { ...told, message: cutTo(message, LIMITS.message), placements, ranking: explainRanking({ placements }) }
}

/**
 * Plans jobs of a namespace from what a process has cached, in any process: nothing is written, and only the image's
 * registry and the accounts of the volumes' connections are asked.
 */
export function jobPlanner(
  sources: MarketSources & { images?: Images; buckets?: Buckets },
  settings: Partial<JobSettings> = {},
): (namespace: string, spec: StoredJob["spec"]) => Promise<JobPlan> {
  const effective = { ...JOB_DEFAULTS, ...settings }
  // Nothing is ever reserved in it: a plan takes no place.
  const ledger = new LaunchLedger(sources.launches.store, sources.clock)
  return async (namespace, spec) => {
    const [image, volumes] = await Promise.all([
      sources.images?.whenFound(namespace, spec.image),
      sources.buckets && whenVolumesFound(namespace, spec, sources.buckets),
    ])
    if (volumes !== undefined && volumes.kind !== "found")
      return planOf({ verdict: "waits", reason: reasonToWait(volumes), message: volumes.message }, [])
    const known = { ...(image && { image }), ...(volumes && { buckets: volumes.places }) }
    const market = { ...marketOf(namespace, sources, ledger, effective), ...known }
    return planJob({ spec }, market, sources.clock.now(), effective)
  }
}
