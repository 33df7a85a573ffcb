import type { JobPhase } from "../../core/apis/job.ts"
import type { Launch, StoredLaunch } from "../../core/apis/launch.ts"
import type { Offer } from "../../core/apis/offer.ts"
import type { HourlyPrices } from "../../core/apis/price.ts"
import type { RecordedVolumes } from "../../market/placement/inputs.ts"
import type { Amounts } from "../../market/placement/line.ts"

/** Result of a decision for the job's phase. */
export interface Verdict {
  phase: JobPhase
  reason: string
  message: string
  /** Time of the container's end, as reported by the agent. */
  finishTime?: string
  /** New placement. */
  placement?: {
    number: number
    offer: Offer
    prices: HourlyPrices
    connection: string | undefined
    why: string
    volumes?: RecordedVolumes | undefined
  }
}

/** Decision of a check. */
export interface Step {
  /** Next phase of the job. Absent: the job has ended, and only its VMs are followed. */
  verdict?: Verdict
  /** True for a job that is deleted: it loses its finalizer once no VM is left. */
  isDeleted?: boolean
  create?: Launch
  /** True if the Launch's reservation must not be exceeded. */
  isStrict?: boolean
  /** Launches to end. */
  end?: readonly StoredLaunch[]
  /** True for an end that holds only if no VM has started the container: its Launches are ended before it is written. */
  isUnstarted?: boolean
  requeueAfter?: number
  /** Needs of a job that waits in its project's line. Absent: it is not in the line. */
  needs?: Amounts
}
