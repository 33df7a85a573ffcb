import { cutTo } from "../../apis/conditions.ts"
import { JobReason, type StoredJob } from "../../apis/job.ts"
import { LIMITS } from "../../apis/limits.ts"
import { explainRanking } from "../../router/explain.ts"
import type { Payer } from "../../router/rest.ts"
import type { RankedPlacement } from "../../router/route.ts"
import { type MarketSources, marketOf } from "./gather.ts"
import { LaunchLedger } from "./ledger.ts"
import type { Market } from "./market.ts"
import { type PlaceVerdict, placeAmong } from "./place.ts"
import { JOB_DEFAULTS, type JobSettings } from "./settings.ts"

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
  const { message, ...verdict } = told(found)
  const ranking = explainRanking({ placements })
  return { ...verdict, message: cutTo(message, LIMITS.message), placements, ranking }
}

function told(found: PlaceVerdict): Pick<JobPlan, "verdict" | "reason" | "message"> {
  switch (found.kind) {
    case "placed":
      return { verdict: "placeable", reason: JobReason.Placed, message: found.why }
    case "wait":
      return { verdict: "waits", reason: found.reason, message: found.message }
    case "noOffer":
      return { verdict: "noOffer", reason: JobReason.NoOffer, message: found.message }
  }
}

/** Plans jobs of a namespace from what a process has cached, in any process: nothing is read or written. */
export function jobPlanner(
  sources: MarketSources,
  settings: Partial<JobSettings> = {},
): (namespace: string, spec: StoredJob["spec"]) => JobPlan {
  const effective = { ...JOB_DEFAULTS, ...settings }
  // Nothing is ever reserved in it: a plan takes no place.
  const ledger = new LaunchLedger(sources.launches.store, sources.clock)
  return (namespace, spec) => {
    const market = marketOf(namespace, sources, ledger, effective)
    return planJob({ spec }, market, sources.clock.now(), effective)
  }
}
