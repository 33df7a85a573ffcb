import type { JobSpec } from "../../src/core/apis/job.ts"
import type { Outcome } from "./scenario.ts"

/** Ends of jobs by what the pages docs/*.md promise. Nothing here uses the operator's rules: this is the oracle. */

export interface ExpectedEnd {
  phase: "succeeded" | "failed"
  /** Word for the cause. */
  reason: string
  /** Number of VMs on which the job's work began. */
  attempts: number
}

/** Failed work: what `retryRules` compare, and if the fault passes by itself. */
interface Failure {
  /** Words that a rule may name. The first one is the job's own reason. */
  reasons: readonly string[]
  exitCode?: number
  passes?: true
}

/** Failures by docs/retries.md: `ContainerFailed` includes `OutOfMemory`. */
const FAILURES: Partial<Record<Outcome, Failure>> = {
  fail: { reasons: ["ContainerFailed"], exitCode: 1 },
  oom: { reasons: ["ContainerFailed", "OutOfMemory"], exitCode: 137 },
  registryDown: { reasons: ["ImagePullFailed"], passes: true },
  imageMissing: { reasons: ["ImagePullFailed"] },
  bucketDown: { reasons: ["VolumeMountFailed"], passes: true },
  bucketForbidden: { reasons: ["VolumeMountFailed"] },
}

/** Defaults of docs/retries.md: of `maxLostVms`, of a rule's `limit`, and the new VMs after faults that pass. */
const [LOST_VMS, RULE_LIMIT, PASSING_LIMIT] = [2, 3, 2]

/** Returns how a job ends that no one cancels, and that starts. */
export function expectedEnd(spec: Partial<JobSpec>, outcomes: readonly Outcome[]): ExpectedEnd {
  const { maxLostVms = LOST_VMS } = spec
  const newVmsLeft = newVmsFor(spec)
  let lost = 0
  for (let attempts = 1; ; attempts++) {
    const outcome = outcomeOf(outcomes, attempts)
    // A VM that the cloud takes back counts for nothing: there is no maxPreemptions.
    if (outcome === "preempted") continue
    if (outcome === "ok" || outcome === "hangs") return { phase: "succeeded", reason: "Succeeded", attempts }
    // A rule matches no timeout, and an idle limit ends a run as one.
    if (outcome === "idle") return { phase: "failed", reason: "Idle", attempts }
    const failure = FAILURES[outcome]
    if (failure === undefined && ++lost > maxLostVms) return { phase: "failed", reason: "VMLost", attempts }
    if (failure !== undefined && !newVmsLeft(failure))
      return { phase: "failed", reason: failure.reasons[0] ?? "", attempts }
  }
}

/** Returns a count of the new VMs that failures get: true if this one gets one. The first rule that matches decides. */
function newVmsFor({ retryRules = [] }: Partial<JobSpec>): (failure: Failure) => boolean {
  const given = new Map<unknown, number>()
  return (failure) => {
    const rule = retryRules.find((each) => matches(each, failure))
    const count = (given.get(rule) ?? 0) + 1
    given.set(rule, count)
    if (rule === undefined) return count <= (failure.passes ? PASSING_LIMIT : 0)
    return count <= limitOf(rule)
  }
}

/** Returns what becomes of a job's attempt, from 1. */
export function outcomeOf(outcomes: readonly Outcome[], attempt: number): Outcome {
  return outcomes[Math.min(attempt, outcomes.length) - 1] ?? "ok"
}

type Rule = NonNullable<JobSpec["retryRules"]>[number]

/** A rule with reasons and exit codes needs both. One without them matches every failure. */
function matches({ reasons, exitCodes }: Rule, failure: Failure): boolean {
  const isReason = reasons?.some((one) => failure.reasons.includes(one)) ?? true
  return isReason && (exitCodes?.some((code) => code === failure.exitCode) ?? true)
}

function limitOf({ action, limit = RULE_LIMIT }: Rule): number {
  return action === "newVm" ? limit : 0
}
