import type { Debug } from "../../core/apis/debug.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import type { Architecture } from "../../core/apis/offer.ts"
import type { ReuseDefault } from "../../core/reuse/reuse.ts"

/** Settings of the job controller. All durations are in seconds. */
export interface JobSettings extends ReuseDefault {
  /**
   * Maximum time from a VM's creation until its agent registers, and maximum time without an answer of the cloud, on a
   * cloud without data of its own (`machines`).
   */
  bootDeadlineSeconds: number
  /**
   * Maximum time from an agent's registration to its container's start. An agent whose pull makes no progress gives up
   * long before.
   */
  startDeadlineSeconds: number
  /** Default timeout of a job. */
  timeoutSeconds: number
  /** True if sessions are allowed, so that a job's `debug` may keep its VM. */
  allowsSessions: boolean
  /** Default of a job's `idleLimit`. Absent: none. */
  idleSeconds?: number
  /** Delay after the timeout before the controller enforces it. The agent enforces it first. */
  timeoutGraceSeconds: number
  /** Expected run time of a job without a timeout, for its estimated cost and for ranking. */
  expectedSeconds: number
  /** Default of `maxLostVms`: the number of lost VMs after which a job gets another one. */
  maxLostVms: number
  /** Number of VMs that were billed but never started the container, after which a job fails. */
  maxBootFailures: number
  /** Cooldown of an offer after a rejection. Each further rejection in a row doubles it, up to the cap. */
  cooldownSeconds: number
  maxCooldownSeconds: number
  /** Number of VMs in a row that never registered, after which launching pauses. Then one VM is tried. */
  breakerBoots: number
  breakerPauseSeconds: number
  /** Launches per minute over all projects. Above it each project has an equal share. */
  launchesPerMinute: number
  /** Default time for which a finished Job is kept. */
  ttlSeconds: number
  /** Architectures that images are assumed to support; empty: any. */
  architectures: readonly Architecture[]
  /** Time in which the cloud may answer before a job is written as booting without a VM. */
  answerSeconds: number
  /** Minimum duration of a VM state before it is written on its own. */
  settleSeconds: number
  /** Time for which jobs behind it may pass a job that waits for a cap. Then what becomes free is kept for it. */
  passSeconds: number
  /** Delay between two checks for something that emits no event. */
  capRetrySeconds: number
  connectionRetrySeconds: number
  bucketRetrySeconds: number
  agentImageRetrySeconds: number
  limitRetrySeconds: number
}

/** Returns what a job asks for after a failure; undefined: nothing, or the installation allows no sessions. */
export function debugOf(
  { debug }: Pick<JobSpec, "debug">,
  { allowsSessions }: Pick<JobSettings, "allowsSessions">,
): Debug | undefined {
  return allowsSessions ? debug : undefined
}

export const JOB_DEFAULTS: JobSettings = {
  bootDeadlineSeconds: 300,
  startDeadlineSeconds: 1800,
  timeoutSeconds: LIMITS.timeoutSeconds,
  allowsSessions: false,
  timeoutGraceSeconds: 120,
  expectedSeconds: 3600,
  maxLostVms: 2,
  maxBootFailures: 5,
  cooldownSeconds: 300,
  maxCooldownSeconds: 3600,
  breakerBoots: 5,
  breakerPauseSeconds: 600,
  launchesPerMinute: 600,
  ttlSeconds: 30 * 24 * 3600,
  architectures: [],
  answerSeconds: 2,
  settleSeconds: 3,
  passSeconds: 600,
  capRetrySeconds: 15,
  connectionRetrySeconds: 300,
  bucketRetrySeconds: 60,
  agentImageRetrySeconds: 60,
  limitRetrySeconds: 120,
}
