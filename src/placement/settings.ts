import { LIMITS } from "../apis/limits.ts"
import type { Architecture } from "../apis/offer.ts"
import type { SpendCaps } from "../apis/project.ts"

/** How jobs are looked after. All durations are in seconds. */
export interface JobSettings {
  /** From a VM's creation until its container must have started; as long a cloud may give no answer. */
  bootDeadlineSeconds: number
  /** How long a job may run that asks for no timeout. */
  timeoutSeconds: number
  /** The agent enforces the timeout; this long after it the controller does. */
  timeoutGraceSeconds: number
  /** How long a job without a timeout is expected to run, for its estimated cost and for ranking. */
  expectedSeconds: number
  /** A job fails when it has lost so many VMs. */
  maxLost: number
  /** A job fails when so many of its VMs were billed and never started the container. */
  maxBootFailures: number
  /** How long an offer rests after it refused; doubled with each further refusal in a row, up to the cap. */
  restSeconds: number
  restCapSeconds: number
  /** After so many boots in a row that never registered no VM is launched for a while; then one, to see. */
  breakerBoots: number
  breakerPauseSeconds: number
  /** Launches a minute, over all projects; beyond it each project's equal share of them. */
  launchesPerMinute: number
  /** What each project may spend that has no caps of its own. */
  caps: SpendCaps
  /** How long a finished Job is kept that doesn't say. */
  ttlSeconds: number
  /** What images are taken to run on; empty: anything. */
  architectures: readonly Architecture[]
  /** Between two status writes that only carry on a heartbeat, at least. */
  heartbeatSeconds: number
  /** A state of the VM that passes sooner is not worth a write of its own. */
  settleSeconds: number
  /** Between two looks at what a waiting job waits for and nothing announces. */
  capRetrySeconds: number
  connectionRetrySeconds: number
  bucketRetrySeconds: number
  agentImageRetrySeconds: number
}

export const JOB_DEFAULTS: JobSettings = {
  bootDeadlineSeconds: 900,
  timeoutSeconds: LIMITS.timeoutSeconds,
  timeoutGraceSeconds: 120,
  expectedSeconds: 3600,
  maxLost: 3,
  maxBootFailures: 5,
  restSeconds: 300,
  restCapSeconds: 3600,
  breakerBoots: 5,
  breakerPauseSeconds: 600,
  launchesPerMinute: 600,
  caps: {},
  ttlSeconds: 30 * 24 * 3600,
  architectures: [],
  heartbeatSeconds: 60,
  settleSeconds: 3,
  capRetrySeconds: 15,
  connectionRetrySeconds: 300,
  bucketRetrySeconds: 60,
  agentImageRetrySeconds: 60,
}
