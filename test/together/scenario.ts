import type { JobSpec } from "../../src/core/apis/job.ts"
import type { JobArraySpec } from "../../src/core/apis/jobarray.ts"
import type { RetryRule } from "../../src/core/apis/retry-rules.ts"
import type { Fault } from "../faults/crash-gate.ts"
import type { Reply } from "../harness/webhook-receiver.ts"
import { randomFrom } from "../random.ts"

/**
 * Random projects that combine what jobs can ask for with what may go wrong around them.
 */

/**
 * Ends of the work on a VM. `hangs`: its agent is silent for a while, then reports success. `lost`: the VM disappears. The last
 * four end before the container starts: the registry is down or has no such image, the bucket's server is down or forbids the mount.
 */
export type Outcome =
  | "ok"
  | "fail"
  | "oom"
  | "idle"
  | "lost"
  | "hangs"
  | "preempted"
  | "registryDown"
  | "imageMissing"
  | "bucketDown"
  | "bucketForbidden"

/** A job, and what becomes of each of its VMs, in order. The last outcome repeats. */
export interface PlannedJob {
  name: string
  spec: Partial<JobSpec>
  outcomes: readonly Outcome[]
  /** Looks for which each container runs. */
  looks: number
  /** True: it is submitted by REST. Otherwise as an object. */
  isPosted: boolean
  /** True: a user cancels it at some time. */
  isCancelled: boolean
}

/** Caps of the project. A user removes those in USD when nothing runs and a job still waits for them. */
export interface Caps {
  maxVms: number
  maxGpus: number
  maxHourlyUsd?: number
  maxMonthlyUsd?: number
  reserve?: "strict"
}

/** Fault of a program: at which of its calls that change something, and how. */
export interface ProgramFault {
  at: number
  fault: Fault
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
  /** Faults of the operators, one after the other. */
  operatorFaults: readonly ProgramFault[]
  /** Faults of the façades that users submit to, one after the other. */
  facadeFaults: readonly ProgramFault[]
  /** Answers of the receiver of the project's webhook, in order. Then it accepts. Undefined: there is no webhook. */
  receiver: readonly Reply[] | undefined
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
    const all = [...OUTCOMES, ...(isSpot ? (["preempted"] as const) : [])]
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
  const caps = capsOf({ one, some, upTo })
  const specOf = (): Partial<JobSpec> => {
    const group = one(Object.keys(GROUPS) as (keyof typeof GROUPS)[])
    return {
      ...placeOf(),
      // Under a strict cap of a month a job without a timeout takes 30 days.
      ...(caps.maxMonthlyUsd !== undefined && { timeoutSeconds: 3600 }),
      ...(some(0.4) && {
        retryRules: Array.from({ length: upTo(3) }, () => one(RULES)).map((rule) =>
          rule.action === "newVm" ? { ...rule, limit: upTo(2) } : rule,
        ),
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
      isPosted: some(0.5),
      isCancelled: some(0.1),
    })
  }
  const faultsOf = (length: number, latest: number): ProgramFault[] =>
    Array.from({ length }, () => ({ at: upTo(latest), fault: one(["before", "after", "lost", "pause"] as const) }))
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
    caps,
    machines,
    groups: GROUPS,
    cloudFaults: Array.from({ length: Math.floor(random() * 4) }, () => one(["capacity", "transient", "answerLost"])),
    operatorFaults: faultsOf(Math.floor(random() * 4), 40),
    facadeFaults: faultsOf(Math.floor(random() * 3), 6),
    receiver: some(0.5) ? Array.from({ length: Math.floor(random() * 5) }, () => one(REPLIES)) : undefined,
    jumps: Array.from({ length: Math.floor(random() * 3) }, () => 10 + Math.floor(random() * 50)),
  }
}

const RULES: readonly RetryRule[] = [
  { action: "newVm" },
  { action: "newVm", reasons: ["OutOfMemory"] },
  { action: "newVm", reasons: ["ContainerFailed"] },
  { action: "newVm", reasons: ["ImagePullFailed", "VolumeMountFailed"] },
  { action: "newVm", exitCodes: [137] },
  { action: "newVm", reasons: ["ContainerFailed"], exitCodes: [1] },
  { action: "fail", reasons: ["OutOfMemory"] },
  { action: "fail", reasons: ["ImagePullFailed"] },
]

/** The first are more likely. */
const OUTCOMES: readonly Outcome[] = [
  ...(["ok", "ok", "ok", "fail", "oom", "idle", "lost", "hangs"] as const),
  ...(["registryDown", "imageMissing", "bucketDown", "bucketForbidden"] as const),
]

const REPLIES: readonly Reply[] = [500, 503, 429, "reset", { status: 302, headers: { location: "http://127.0.0.1:1" } }]

interface Chances {
  one<T>(values: readonly T[]): T
  some(probability: number): boolean
  upTo(most: number): number
}

function capsOf({ one, some, upTo }: Chances): Caps {
  return {
    ...{ maxVms: 1 + upTo(3), maxGpus: 1 },
    ...(some(0.3) && { maxHourlyUsd: one([0.15, 0.3, 1]) }),
    ...(some(0.3) && { maxMonthlyUsd: one([0.3, 0.6, 2]), reserve: "strict" as const }),
  }
}
