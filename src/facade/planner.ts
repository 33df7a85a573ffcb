import type { JobReason, JobSpec } from "../apis/job.ts"
import type { RankedPlacement } from "../router/route.ts"

/** What would become of a job if it were submitted now. */
export interface JobPlan {
  /** `placeable`: a VM would be asked for at once. `waits`: it would stay queued. `noOffer`: it would fail. */
  verdict: "placeable" | "waits" | "noOffer"
  /** What the job's condition Placed would say. */
  reason: JobReason
  message: string
  /** What would be tried, first choice first. */
  placements: readonly RankedPlacement[]
  /** For people: one line for each placement. */
  ranking: readonly string[]
}

/**
 * Plans a job of a namespace as the job controller would place it, and does nothing; `wire.ts` gives it.
 * Rejects with RangeError for a quantity that no validated spec has
 */
export type Planner = (namespace: string, spec: JobSpec) => Promise<JobPlan>
