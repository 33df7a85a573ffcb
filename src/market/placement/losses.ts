import { JobCondition, type StoredJob } from "../../core/apis/job.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { launchOutcome, type Outcome, preemptionWitness } from "./outcome.ts"

/** Default of `fallbackAfter`. */
const FALLBACK_AFTER = 3

/** A Launch with its outcome for its job. */
export interface EndedLaunch {
  launch: StoredLaunch
  outcome: Outcome
}

/** VMs that a job lost before its end. */
export interface Losses {
  /** VMs that failed or disappeared. */
  lost: number
  /** VMs that the cloud took back. They do not count as lost. */
  preempted: number
}

/**
 * Counts the VMs that a job lost. A deleted Launch that the status names counts as a lost VM. Pure.
 * @param launches all of its Launches, unless someone deleted some
 */
export function countLosses({ status }: Pick<StoredJob, "status">, launches: readonly EndedLaunch[]): Losses {
  const { lost = 0, preempted = 0, current } = status?.launches ?? {}
  const count = (reason: "VMLost" | "Preempted") =>
    launches.filter(({ outcome }) => outcome.kind === "lost" && outcome.reason === reason).length
  const isMissing = current !== undefined && !launches.some(({ launch }) => launch.metadata.name === current)
  return {
    lost: Math.max(lost, count("VMLost")) + (isMissing ? 1 : 0),
    preempted: Math.max(preempted, count("Preempted")),
  }
}

/** Returns who says that a Launch's VM was preempted before the end of its job. Undefined: it was not. */
export function preemptedBy(launch: StoredLaunch): "cloud" | "agent" | undefined {
  return isPreempted(launchOutcome(launch)) ? (preemptionWitness(launch) ?? "agent") : undefined
}

function isPreempted(outcome: Outcome): boolean {
  return outcome.kind === "lost" && outcome.reason === "Preempted"
}

/**
 * Returns why a `spotFirst` job gets on-demand VMs, once as many spot VMs in a row were preempted as `fallbackAfter`
 * says. A job that has fallen back stays so. Undefined: it may get spot VMs. Pure.
 */
export function fallbackReason(
  { spec, status }: Pick<StoredJob, "spec" | "status">,
  launches: readonly EndedLaunch[],
): string | undefined {
  if (spec.provisioning !== "spotFirst") return undefined
  const before = status?.conditions?.find(({ type }) => type === JobCondition.OnDemandFallback)
  if (before?.status === "True") return before.message
  const { fallbackAfter = FALLBACK_AFTER } = spec
  if (preemptedInRow(launches) < fallbackAfter) return undefined
  const vms = fallbackAfter === 1 ? "a spot VM was" : `${fallbackAfter} spot VMs in a row were`
  return `${vms} preempted, so this job gets on-demand VMs (fallbackAfter is ${fallbackAfter})`
}

/** Returns the number of the last spot VMs that were all preempted. An offer that gave no VM does not count. */
function preemptedInRow(launches: readonly EndedLaunch[]): number {
  const ran = launches
    .filter(({ launch: { spec, status } }) => spec.offer.provisioning === "spot" && status?.vm !== undefined)
    .sort((a, b) => b.launch.spec.number - a.launch.spec.number)
  const end = ran.findIndex(({ outcome }) => !isPreempted(outcome))
  return end === -1 ? ran.length : end
}
