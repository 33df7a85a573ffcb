import type { Offer } from "../../core/apis/offer.ts"

/** Estimate of how often a cloud preempts spot VMs of one machine type in one region. */
export interface PreemptionRate {
  /** Preemptions of one VM an hour. */
  perHour: number
  /** Hours that such VMs ran in this installation. */
  hours: number
  /** Preemptions of such VMs in this installation. */
  preemptions: number
}

/** Work that preemptions undo, for a job on spot VMs. */
export interface LostWork {
  /** Run time that one preemption undoes, hours. */
  hours: number
  rateOf: (offer: Offer) => PreemptionRate
}

/** Time from a preemption to the container's start on the next VM, hours: its boot and the pull of its image. */
const RESTART_HOURS = 0.05

/** Time between two checkpoints of a job, which only the job knows, hours. */
const CHECKPOINT_HOURS = 1 / 6

/**
 * Returns the run time that one preemption undoes, hours. Without checkpoints it is half of the run time on average, and
 * with them half of the time between two. The next VM's start comes on top. Pure.
 */
export function lostHours({ expectedSeconds, hasCheckpoints }: { expectedSeconds: number; hasCheckpoints: boolean }) {
  const hours = Math.max(0, expectedSeconds) / 3600
  return RESTART_HOURS + (hasCheckpoints ? Math.min(hours, CHECKPOINT_HOURS) : hours) / 2
}

/** Returns the part by which preemptions raise a spot VM's expected cost: price × (1 + rate × lost work). Pure. */
export function lostShare({ hours, rateOf }: LostWork, offer: Offer): number {
  return offer.provisioning === "spot" ? rateOf(offer).perHour * hours : 0
}
