import { JobCondition, type StoredJob } from "../../core/apis/job.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { outcomeOf } from "./outcome.ts"

/** Default of `fallbackAfter`. */
const FALLBACK_AFTER = 3

/** VMs that a job lost before its end. */
export interface Losses {
  /** VMs that failed or disappeared. */
  lost: number
  /** VMs that the cloud took back. They do not count as lost. */
  preempted: number
}

/** Returns the VMs that a job lost. Pure. @param launches all of its Launches, unless someone deleted some */
export function lossesOf({ status }: Pick<StoredJob, "status">, launches: readonly StoredLaunch[]): Losses {
  const { lost = 0, preempted = 0 } = status?.launches ?? {}
  const seenLost = launches.filter((launch) => reasonOf(launch) === "VMLost").length
  return { lost: Math.max(lost, seenLost), preempted: Math.max(preempted, launches.filter(isPreempted).length) }
}

/** Returns true if the cloud took back the Launch's VM before the end of its job. */
export function isPreempted(launch: StoredLaunch): boolean {
  return reasonOf(launch) === "Preempted"
}

/**
 * Returns who says that a VM was preempted: the cloud, or only the VM's agent, whose keys its tenant may have. Undefined: it
 * was not preempted.
 */
export function preemptedBy(launch: StoredLaunch): "cloud" | "agent" | undefined {
  if (!isPreempted(launch)) return undefined
  return launch.status?.vm?.preempted === true ? "cloud" : "agent"
}

function reasonOf(launch: StoredLaunch): "VMLost" | "Preempted" | undefined {
  const outcome = outcomeOf(launch)
  return outcome.kind === "lost" ? outcome.reason : undefined
}

/**
 * Returns why a `spotFirst` job gets on-demand VMs, once as many spot VMs in a row were preempted as `fallbackAfter`
 * says. A job that has fallen back stays so. Undefined: it may get spot VMs. Pure.
 */
export function fallbackOf(
  { spec, status }: Pick<StoredJob, "spec" | "status">,
  launches: readonly StoredLaunch[],
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
function preemptedInRow(launches: readonly StoredLaunch[]): number {
  const ran = launches
    .filter(({ spec, status }) => spec.offer.provisioning === "spot" && status?.vm !== undefined)
    .sort((a, b) => b.spec.number - a.spec.number)
  const end = ran.findIndex((launch) => !isPreempted(launch))
  return end === -1 ? ran.length : end
}
