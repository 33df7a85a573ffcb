import type { JobSpec } from "../../src/core/apis/job.ts"
import type { JobArraySpec } from "../../src/core/apis/jobarray.ts"
import type { RetryRule } from "../../src/core/apis/retry-rules.ts"
import { randomFrom } from "../random.ts"

/**
 * Random projects that combine what jobs can ask for, and what the pages docs/*.md promise about their ends. Nothing here
 * uses the operator's rules: this is the oracle.
 */

/** Ends of a container. `lost`: its VM disappears. */
export type Outcome = "ok" | "fail" | "oom" | "idle" | "lost" | "preempted"

/** A job, and what becomes of each of its containers, in order. The last outcome repeats. */
export interface PlannedJob {
  name: string
  spec: Partial<JobSpec>
  outcomes: readonly Outcome[]
  /** Looks for which each container runs. */
  looks: number
  /** True: a user cancels it at some time. */
  isCancelled: boolean
}

export interface Caps {
  maxVms: number
  maxGpus: number
}

export interface Scenario {
  seed: number
  jobs: readonly PlannedJob[]
  array: { name: string; spec: JobArraySpec; outcomes: readonly (readonly Outcome[])[] } | undefined
  caps: Caps
  /** Number of own machines. */
  machines: number
  /** Limits of concurrency groups. */
  groups: Readonly<Record<string, number>>
  /** Faults of the cloud's launch calls, in order. */
  cloudFaults: readonly ("capacity" | "transient" | "answerLost")[]
  /** Faults of the operators, one after the other: at which of its calls that change something, and how. */
  operatorFaults: readonly { at: number; fault: "before" | "after" | "lost" | "pause" }[]
  /** Seconds by which the clock jumps, some time after the beginning. */
  jumps: readonly number[]
}

const GROUPS = { db: 1, train: 2 }

/** Returns the scenario of a seed. */
export function scenarioOf(seed: number): Scenario {
  const random = randomFrom(seed)
  const one = <T>(values: readonly T[]): T => values[Math.floor(random() * values.length)] as T
  const some = (probability: number): boolean => random() < probability
  const upTo = (most: number): number => 1 + Math.floor(random() * most)
  const machines = one([0, 1, 2])
  const outcomesOf = (isSpot: boolean): Outcome[] => {
    const all: Outcome[] = ["ok", "ok", "fail", "oom", "idle", "lost", ...(isSpot ? (["preempted"] as const) : [])]
    return Array.from({ length: upTo(4) }, () => one(all)).concat(some(0.7) ? "ok" : "fail")
  }
  const placeOf = (): Partial<JobSpec> => {
    const isOwn = machines > 0 && some(0.25)
    const isAway = machines > 0 && !isOwn && some(0.5)
    return {
      ...(!isOwn && some(0.35) && { provisioning: "spot" }),
      ...(isOwn && { cloud: ["own"] }),
      ...(isAway && { cloud: ["sim"] }),
      ...(!isOwn && some(0.15) && { resources: { gpu: { model: "L4", count: 1 } } }),
    }
  }
  const specOf = (): Partial<JobSpec> => {
    const group = one(Object.keys(GROUPS) as (keyof typeof GROUPS)[])
    return {
      ...placeOf(),
      ...(some(0.4) && {
        retryRules: [one(RULES)].map((rule) => (rule.action === "newVm" ? { ...rule, limit: upTo(2) } : rule)),
      }),
      // Berth takes no job with both: a VM that is reused lives longer than the job's own budget.
      ...(some(0.4)
        ? { reuse: { idleSeconds: 300 } }
        : some(0.4) && { maxCostUsd: Math.round((0.02 + random() * 0.2) * 100) / 100 }),
      ...(some(0.35) && { debug: { keepSeconds: 60 + Math.floor(random() * 600) } }),
      ...(some(0.25) && { maxLostVms: Math.floor(random() * 2) }),
      ...(some(0.3) && { idleLimit: { seconds: 600 } }),
      ...(some(0.3) && { concurrencyGroup: { name: group, limit: GROUPS[group] } }),
      ...(some(0.3) && { priority: Math.floor(random() * 3) }),
    }
  }
  const jobs: PlannedJob[] = []
  for (let index = 0, count = 2 + Math.floor(random() * 4); index < count; index++) {
    const spec = specOf()
    const earlier = jobs.map(({ name }) => name)
    const after = earlier
      .filter(() => some(0.25))
      .map((job) => ({ job, outcome: one(["succeeded", "ended", "failed"] as const) }))
    jobs.push({
      name: `job-${index}`,
      spec: { ...spec, ...(after.length > 0 && { after }) },
      outcomes: outcomesOf(spec.provisioning === "spot"),
      looks: upTo(3),
      isCancelled: some(0.1),
    })
  }
  const size = 2 + Math.floor(random() * 3)
  const definition = specOf()
  const array = some(0.5)
    ? {
        name: "sweep",
        spec: {
          size,
          parallelism: upTo(2),
          jobDefinition: { image: "busybox", ...definition },
          ...(some(0.4) && { after: [{ job: "job-0", outcome: "ended" as const }] }),
        } as JobArraySpec,
        outcomes: Array.from({ length: size }, () => outcomesOf(definition.provisioning === "spot")),
      }
    : undefined
  return {
    seed,
    jobs,
    array,
    caps: { maxVms: 1 + upTo(3), maxGpus: 1 },
    machines,
    groups: GROUPS,
    cloudFaults: Array.from({ length: Math.floor(random() * 4) }, () => one(["capacity", "transient", "answerLost"])),
    operatorFaults: Array.from({ length: Math.floor(random() * 4) }, () => ({
      at: upTo(40),
      fault: one(["before", "after", "lost", "pause"] as const),
    })),
    jumps: Array.from({ length: Math.floor(random() * 3) }, () => 10 + Math.floor(random() * 50)),
  }
}

const RULES: readonly RetryRule[] = [
  { action: "newVm" },
  { action: "newVm", reasons: ["OutOfMemory"] },
  { action: "newVm", reasons: ["ContainerFailed"] },
  { action: "fail", reasons: ["OutOfMemory"] },
]

/** End of a job by what docs/retries.md, docs/usage.md and docs/jobs.md promise. */
export interface ExpectedEnd {
  phase: "succeeded" | "failed"
  /** Word for the cause. */
  reason: string
  /** Number of containers that were started. */
  runs: number
}

/** Default of `maxLostVms` (docs/retries.md). */
const LOST_VMS = 2

/** Returns how a job ends that no one cancels, and that starts. */
export function expectedEnd(spec: Partial<JobSpec>, outcomes: readonly Outcome[]): ExpectedEnd {
  const { maxLostVms = LOST_VMS } = spec
  let [lost, byRule] = [0, 0]
  for (let runs = 1; ; runs++) {
    const outcome = outcomes[Math.min(runs, outcomes.length) - 1] ?? "ok"
    // A VM that the cloud takes back counts for nothing: there is no maxPreemptions.
    if (outcome === "preempted") continue
    if (outcome === "ok") return { phase: "succeeded", reason: "Succeeded", runs }
    // A rule matches no timeout, and an idle limit ends a run as one.
    if (outcome === "idle") return { phase: "failed", reason: "Idle", runs }
    if (outcome === "lost" && ++lost > maxLostVms) return { phase: "failed", reason: "VMLost", runs }
    if (outcome !== "lost" && byRule++ >= newVmsFor(spec, outcome))
      return { phase: "failed", reason: "ContainerFailed", runs }
  }
}

/** Returns how many new VMs the rules give a job for a failed container. Each scenario has one rule at most. */
function newVmsFor({ retryRules = [] }: Partial<JobSpec>, outcome: "fail" | "oom"): number {
  // `ContainerFailed` includes `OutOfMemory`; a rule without reasons matches every failure.
  const names = outcome === "oom" ? ["ContainerFailed", "OutOfMemory"] : ["ContainerFailed"]
  const rule = retryRules.find(({ reasons }) => reasons?.some((one) => names.includes(one)) ?? true)
  return rule?.action === "newVm" ? (rule.limit ?? 3) : 0
}
