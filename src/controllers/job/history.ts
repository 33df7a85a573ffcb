import { cutTo } from "../../apis/conditions.ts"
import { JobReason, type RefusedOffer } from "../../apis/job.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import { type Outcome, outcomeOf } from "../../placement/outcome.ts"

/** The reason that a job gives for a Launch whose container never started. */
export function bootFailureReason({ status }: StoredLaunch): JobReason {
  return status?.bootFailure === undefined ? JobReason.BootDeadlineExceeded : JobReason.BootFailed
}

/** A job's Launch of the highest number. */
export function newest(launches: readonly StoredLaunch[]): StoredLaunch | undefined {
  return launches.reduce<StoredLaunch | undefined>(
    (latest, launch) => (latest === undefined || launch.spec.number > latest.spec.number ? launch : latest),
    undefined,
  )
}

/** How many of a job's Launches came to this. */
export function countOutcomes(launches: readonly StoredLaunch[], kind: Outcome["kind"]): number {
  return launches.filter((launch) => outcomeOf(launch).kind === kind).length
}

/** What a Launch that came to nothing is remembered by; undefined for any other. */
export function refusedOffer(launch: StoredLaunch): RefusedOffer | undefined {
  const outcome = outcomeOf(launch)
  const { cloud, region, instanceType, provisioning } = launch.spec.offer
  // The number tells two refusals of one offer in one second apart.
  const told = (message: string) => ({
    cloud,
    region,
    instanceType,
    provisioning,
    message: cutTo(`launch ${launch.spec.number}: ${message}`, 1024),
  })
  switch (outcome.kind) {
    case "refused":
      return { ...told(outcome.refusal.message), reason: outcome.refusal.class, time: outcome.refusal.time }
    case "bootFailed":
      return { ...told(outcome.message), reason: bootFailureReason(launch), time: outcome.time }
    case "lost":
      return { ...told(outcome.message), reason: outcome.reason, time: outcome.time }
    default:
      return undefined
  }
}

/** Tells refusals apart. */
export function refusalKey({ cloud, region, instanceType, provisioning, message, time }: RefusedOffer): string {
  return JSON.stringify([cloud, region, instanceType, provisioning, message, time])
}
