import { describe, expect, test } from "vitest"
import {
  agentOf,
  at,
  jobOf,
  launchOf,
  marketOf,
  offerOf,
  seenOf,
  time,
  vmStatus,
} from "../../../test/harness/builders.ts"
import type { JobSpec, JobStatus, StoredJob } from "../../core/apis/job.ts"
import type { Finish, StoredLaunch } from "../../core/apis/launch.ts"
import { containerMemoryGib } from "../../core/apis/memory.ts"
import { API_VERSION } from "../../core/apis/meta.ts"
import { JOB_DEFAULTS } from "../../market/placement/settings.ts"
import { createCatalogue } from "../../market/router/catalogue.ts"
import { decide } from "./decide.ts"
import type { JobDecision } from "./render.ts"

/** Machines whose containers get 3.5, 7.5, 15.5 and 31.5 GiB. */
const CATALOGUE = createCatalogue(
  [4, 8, 16, 32].map((memoryGib) =>
    offerOf({ instanceType: `m${memoryGib}`, memoryGib, hourlyPriceUsd: memoryGib / 20 }),
  ),
)
const SMALL = offerOf({ instanceType: "m4", memoryGib: 4, hourlyPriceUsd: 0.2 })

type Failed = Partial<Omit<Finish, "time">>

const OOM: Failed = { exitCode: 137, cause: "OutOfMemory", message: "exit code 137 (SIGKILL): OOMKilled" }

/** Returns a Launch whose run failed. Its VM is deleted, or not yet. */
function failed(job: StoredJob, number: number, finish: Failed, { memoryGib = 4, isOver = true } = {}): StoredLaunch {
  const agent = agentOf({
    startTime: time(30),
    finish: { reason: "ContainerFailed", ...finish, time: time(40 * number) },
  })
  const offer = offerOf({ instanceType: `m${memoryGib}`, memoryGib, hourlyPriceUsd: memoryGib / 20 })
  const vm = { id: `vm-${number}`, createTime: time(5), terminationTime: time(40 * number + 10) }
  const status = isOver
    ? vmStatus({ phase: "terminated", vm: { state: "terminated", ...vm }, agent, costUsd: 0.01 })
    : vmStatus({ phase: "finished", agent })
  return launchOf(job, number, { spec: { offer }, status })
}

function lost(job: StoredJob, number: number): StoredLaunch {
  const loss = { reason: "VMLost", message: "gone", time: time(40 * number) } as const
  return launchOf(job, number, { status: vmStatus({ phase: "terminated", loss }) })
}

function decideFor(job: StoredJob, launches: readonly StoredLaunch[]): JobDecision {
  const observed = { launches, market: () => marketOf({ offers: CATALOGUE }), ...seenOf(job) }
  return decide(job, observed, at(1000), JOB_DEFAULTS)
}

const running: JobStatus = {
  phase: "running",
  reason: "Started",
  message: "m",
  launches: { count: 1, billed: 1, lost: 0 },
  vm: { state: "running", id: "vm-1" },
  startTime: time(30),
}

function jobWith(spec: Partial<JobSpec>, status: JobStatus = running): StoredJob {
  return jobOf({ spec: { ...spec }, status })
}

/** Returns what a job does after each of these failures, one on each VM: `new VM`, or the reason for which it fails. */
function resultOf(spec: Partial<JobSpec>, ...failures: Failed[]): string {
  const job = jobWith(spec)
  const launches = failures.map((finish, index) => failed(job, index + 1, finish))
  const { status } = decideFor(job, launches)
  return status.phase === "booting" ? "new VM" : `${status.phase} (${status.reason})`
}

const FINISHES: Record<string, Failed> = {
  "exit code 1": { exitCode: 1 },
  "exit code 75": { exitCode: 75 },
  "exit code 119": { exitCode: 119 },
  "exit code 137": { exitCode: 137 },
  "out of memory": OOM,
  "a failed pull": { reason: "ImagePullFailed" },
  "a registry that is down": { reason: "RegistryUnavailable" },
  "a failed mount": { reason: "VolumeMountFailed" },
  "a mount that may pass": { reason: "VolumeMountFailed", transient: true },
  "a failed upload": { reason: "VolumeFlushFailed", exitCode: 0 },
  "a failed workdir": { reason: "WorkdirFailed" },
  "a missing workdir": { reason: "WorkdirMissing" },
  "a missing Secret": { reason: "SecretMissing" },
  "the timeout": { reason: "DeadlineExceeded", exitCode: 75 },
  "the budget": { reason: "BudgetExceeded" },
  "an idle run": { reason: "DeadlineExceeded", cause: "Idle", exitCode: 75 },
  "an idle failure": { reason: "ContainerFailed", cause: "Idle", exitCode: 75 },
}

const RULES: [string, Partial<JobSpec>, string[]][] = [
  ["no rule", {}, ["a registry that is down", "a mount that may pass"]],
  [
    "a rule on all failures",
    { retryRules: [{ action: "newVm" }] },
    Object.keys(FINISHES).filter((name) => !/missing|timeout|budget|idle/.test(name)),
  ],
  [
    "a rule on exit codes",
    { retryRules: [{ exitCodes: [75, "100-119"], action: "newVm" }] },
    ["exit code 75", "exit code 119", "a registry that is down", "a mount that may pass"],
  ],
  [
    "a rule on a cause",
    { retryRules: [{ reasons: ["OutOfMemory"], action: "newVm" }] },
    ["out of memory", "a registry that is down", "a mount that may pass"],
  ],
  [
    "a rule on a reason, which has all causes",
    { retryRules: [{ reasons: ["ContainerFailed"], exitCodes: ["100-255"], action: "newVm" }] },
    ["exit code 119", "exit code 137", "out of memory", "a registry that is down", "a mount that may pass"],
  ],
  [
    "the first match of two",
    {
      retryRules: [
        { exitCodes: [137], action: "fail" },
        { reasons: ["ContainerFailed", "VolumeFlushFailed"], action: "newVm" },
      ],
    },
    [
      ...["exit code 1", "exit code 75", "exit code 119", "a registry that is down"],
      ...["a mount that may pass", "a failed upload"],
    ],
  ],
  ["a rule that fails at once, also after faults that pass", { retryRules: [{ action: "fail" }] }, []],
  ["maxMemory alone", { maxMemory: "16Gi" }, ["out of memory", "a registry that is down", "a mount that may pass"]],
]

/** Every finish with every set of rules. */
const CASES = RULES.flatMap(([rules, spec, retried]) =>
  Object.entries(FINISHES).map(
    ([name, finish]) => [name, rules, { spec, finish, isRetried: retried.includes(name) }] as const,
  ),
)

describe("a job with a failed run", () => {
  test.each(CASES)("decides about %s with %s", (_, __, { spec, finish, isRetried }) => {
    const own = finish.reason === "RegistryUnavailable" ? "ImagePullFailed" : (finish.reason ?? "ContainerFailed")
    const reason = finish.cause === "Idle" ? "Idle" : own
    expect(resultOf(spec, finish)).toBe(isRetried ? "new VM" : `failed (${reason})`)
  })

  test("never gets a new VM after a success", () => {
    expect(resultOf({ retryRules: [{ action: "newVm" }] }, { reason: "Succeeded", exitCode: 0 })).toBe(
      "succeeded (Succeeded)",
    )
  })

  test.each([
    ["three by default", { retryRules: [{ exitCodes: [75], action: "newVm" as const }] }, { exitCode: 75 }, 3],
    ["as many as its limit", { retryRules: [{ action: "newVm" as const, limit: 5 }] }, { exitCode: 1 }, 5],
    ["two without a rule, after a fault that passes", {}, { reason: "RegistryUnavailable" as const }, 2],
    ["20 whatever its rules allow", { retryRules: [{ action: "newVm" as const, limit: 20 }] }, { exitCode: 1 }, 20],
  ])("gets %s", (_, spec, finish, limit) => {
    const failures = (count: number) => Array.from({ length: count }, () => finish)
    expect(resultOf(spec, ...failures(limit))).toBe("new VM")
    expect(resultOf(spec, ...failures(limit + 1))).toMatch(/^failed/)
  })

  test("has a count for each rule, and one for faults that pass", () => {
    const retryRules: JobSpec["retryRules"] = [
      { exitCodes: [75], action: "newVm", limit: 1 },
      { exitCodes: [76], action: "newVm", limit: 1 },
    ]
    const failures = [{ exitCode: 75 }, { exitCode: 76 }, { reason: "RegistryUnavailable" as const }]
    expect(resultOf({ retryRules }, ...failures)).toBe("new VM")
    expect(resultOf({ retryRules }, ...failures, { exitCode: 76 })).toBe("failed (ContainerFailed)")
  })

  test("gets at most 20 VMs after failed runs and lost VMs, and says how many there were", () => {
    const job = jobWith({ retryRules: [{ action: "newVm", limit: 20 }], maxLostVms: 20 })
    const launches = (count: number) =>
      Array.from({ length: count }, (_, index) =>
        index % 2 === 0 ? failed(job, index + 1, { exitCode: 9, message: "exit code 9" }) : lost(job, index + 1),
      )
    expect(decideFor(job, launches(20)).status.phase).toBe("booting")
    expect(decideFor(job, launches(21)).status).toMatchObject({
      phase: "failed",
      reason: "LaunchLimitExceeded",
      message:
        "11 runs failed and 10 VMs were lost, and a job gets at most 20 new VMs after such ends; launch 21 failed: exit code 9",
    })
  })

  test("waits until its VM is deleted, then gets the next one, and says why", () => {
    const job = jobWith({ retryRules: [{ exitCodes: [75], action: "newVm" }] })
    const waiting = decideFor(job, [failed(job, 1, { exitCode: 75, message: "exit code 75" }, { isOver: false })])
    expect(waiting.actions.map((action) => action.do)).toEqual(["writeStatus"])
    expect(waiting.status).toMatchObject({
      phase: "queued",
      reason: "Retrying",
      message: "launch 1 failed: exit code 75; the job gets another VM (attempt 2 of 4)",
      launches: { count: 1, retried: 1 },
      retries: [{ launch: 1, reason: "ContainerFailed", exitCode: 75, time: time(40) }],
    })
    expect(waiting.events).toEqual([
      {
        type: "Warning",
        reason: "Retrying",
        message: "launch 1 failed (ContainerFailed, exit code 75): the job gets another VM",
      },
    ])
    const queued = jobOf({ ...job, status: waiting.status })
    const next = decideFor(queued, [failed(job, 1, { exitCode: 75, message: "exit code 75" })])
    expect(next.actions.map((action) => action.do)).toEqual(["createLaunch"])
    expect(next.status).toMatchObject({ phase: "booting", launches: { count: 2, retried: 1 } })
    expect(next.status.message).toMatch(
      /^launch 2: launch 1 failed: exit code 75; the job gets another VM \(attempt 2 of 4\); /,
    )
    expect(next.events).toEqual([])
  })

  test("emits its event also if its VM was deleted before anyone looked", () => {
    const job = jobWith({ retryRules: [{ action: "newVm" }] })
    const { status, events } = decideFor(job, [failed(job, 1, { exitCode: 3 })])
    expect(status).toMatchObject({ phase: "booting", launches: { count: 2, retried: 1 } })
    expect(events.map(({ reason }) => reason)).toContain("Retrying")
  })

  test("keeps the latest four failures, and the number of all", () => {
    const job = jobWith({ retryRules: [{ action: "newVm", limit: 20 }] })
    const launches = [1, 2, 3, 4, 5, 6].map((number) => failed(job, number, { exitCode: number }))
    const { status } = decideFor(job, launches)
    expect(status.launches?.retried).toBe(6)
    expect(status.retries?.map(({ launch }) => launch)).toEqual([3, 4, 5, 6])
  })

  test("counts failures whose records someone deleted", () => {
    const job = jobWith({ retryRules: [{ exitCodes: [75], action: "newVm", limit: 1 }] })
    const retries = [{ launch: 1, reason: "ContainerFailed", exitCode: 75, time: time(40) }]
    const later = jobOf({ ...job, status: { ...running, launches: { count: 2, retried: 1 }, retries } })
    expect(decideFor(later, [failed(job, 2, { exitCode: 75 })]).status).toMatchObject({
      phase: "failed",
      message: expect.stringContaining("its retry rule allows 1 new VM, and this was the last one"),
    })
  })

  test("gives the agent its rules, with the one that maxMemory implies", () => {
    const job = jobWith({ retryRules: [{ exitCodes: [2], action: "fail" }], maxMemory: "16Gi" })
    const { actions } = decideFor(job, [failed(job, 1, OOM)])
    expect(actions).toContainEqual(
      expect.objectContaining({
        do: "createLaunch",
        launch: expect.objectContaining({
          apiVersion: API_VERSION,
          spec: expect.objectContaining({
            run: expect.objectContaining({
              retryRules: [
                { exitCodes: [2], action: "fail" },
                { reasons: ["OutOfMemory"], action: "newVm" },
              ],
            }),
          }),
        }),
      }),
    )
  })

  test("is cancelled while its VM is awaited", () => {
    const job = jobWith({ retryRules: [{ action: "newVm" }], cancelled: true })
    expect(decideFor(job, [failed(job, 1, { exitCode: 1 }, { isOver: false })]).status.phase).toBe("cancelled")
  })

  test("fails for its timeout if the failed run has used it", () => {
    const job = jobWith({ retryRules: [{ action: "newVm" }], timeoutSeconds: 600 })
    expect(decideFor(job, [failed(job, 1, { exitCode: 1 })]).status).toMatchObject({
      phase: "failed",
      reason: "DeadlineExceeded",
    })
  })
})

describe("a job that ran out of memory", () => {
  test("gets twice the memory that its container had, and says what it was, is and costs", () => {
    const job = jobWith({ maxMemory: "128Gi" })
    const waiting = decideFor(job, [failed(job, 1, OOM, { isOver: false })])
    expect(waiting.status).toMatchObject({
      reason: "Retrying",
      message: "launch 1 ran out of its 3.5 GiB; the next VM's container gets at least 7 GiB (attempt 2)",
      retries: [{ launch: 1, reason: "OutOfMemory", exitCode: 137, memoryGib: 7 }],
    })
    const next = decideFor(job, [failed(job, 1, OOM)])
    expect(next.status.placement?.offer.instanceType).toBe("m8")
    expect(next.status.message).toMatch(
      /^launch 2: launch 1 ran out of its 3.5 GiB; the next VM has 7.5 GiB \(attempt 2, \$0.4\/h instead of \$0.2\); /,
    )
  })

  test("keeps the memory that it needs after a lost VM and a rejected offer", () => {
    const job = jobWith({ maxMemory: "128Gi" })
    const launches = [failed(job, 1, OOM, { memoryGib: 8 }), lost(job, 2)]
    const { status } = decideFor(job, launches)
    expect(status.placement?.offer.instanceType).toBe("m16")
    const refusal = { class: "Capacity", message: "none", time: time(50) } as const
    const rejected = launchOf(job, 2, { spec: { offer: SMALL }, status: { phase: "refused", refusal } })
    expect(decideFor(job, [failed(job, 1, OOM, { memoryGib: 8 }), rejected]).status.message).toContain(
      "launch 1 ran out of its 7.5 GiB; the next VM has 15.5 GiB",
    )
  })

  test.each([
    ["less than twice", "15Gi", 8, "m16", 15],
    ["more than twice", "15.5Gi", 8, "m16", 15],
  ])("grows no further than maxMemory: %s", (_, maxMemory, memoryGib, instanceType, needed) => {
    const job = jobWith({ maxMemory })
    const { status } = decideFor(job, [failed(job, 1, OOM, { memoryGib })])
    expect(status.placement?.offer.instanceType).toBe(instanceType)
    expect(status.retries?.[0]?.memoryGib).toBe(needed)
  })

  test("fails with both numbers when its container had maxMemory, whatever a rule allows", () => {
    const rule: NonNullable<JobSpec["retryRules"]>[number] = { reasons: ["OutOfMemory"], action: "newVm", limit: 20 }
    for (const retryRules of [[], [rule]]) {
      const job = jobWith({ maxMemory: "7Gi", retryRules })
      expect(decideFor(job, [failed(job, 1, OOM), failed(job, 2, OOM, { memoryGib: 8 })]).status).toMatchObject({
        phase: "failed",
        reason: "ContainerFailed",
        message: expect.stringContaining("the container had 7.5 GiB, and maxMemory is 7Gi: raise it in a new job"),
        launches: { retried: 1 },
      })
    }
  })

  test("gets another VM with the same memory by a rule without maxMemory", () => {
    const job = jobWith({ retryRules: [{ reasons: ["OutOfMemory"], action: "newVm" }] })
    const { status } = decideFor(job, [failed(job, 1, OOM)])
    expect(status.placement?.offer.instanceType).toBe("m4")
    expect(status.message).toContain("launch 1 ran out of its 3.5 GiB; the job gets another VM (attempt 2 of 4)")
  })

  test("does not grow for an exit code 137 alone", () => {
    const job = jobWith({ maxMemory: "128Gi", retryRules: [{ exitCodes: [137], action: "newVm" }] })
    expect(decideFor(job, [failed(job, 1, { exitCode: 137 })]).status.placement?.offer.instanceType).toBe("m4")
  })

  test("fails if no machine has the memory, with what ran out and what the next VM needs", () => {
    const job = jobWith({ maxMemory: "128Gi" })
    const { status } = decideFor(job, [failed(job, 1, OOM, { memoryGib: 32 })])
    expect(status).toMatchObject({ phase: "failed", reason: "NoOffer" })
    expect(status.message).toMatch(
      /^launch 1 ran out of its 31.5 GiB, and the next VM's container needs 63 GiB: .*63 GiB/,
    )
  })

  test("fails if its budget has no room for the larger VM, with the numbers of both", () => {
    const job = jobWith({ maxMemory: "128Gi", maxCostUsd: 0.1 })
    const { status } = decideFor(job, [failed(job, 1, OOM, { memoryGib: 16 })])
    expect(status).toMatchObject({ phase: "failed", reason: "BudgetExceeded" })
    expect(status.message).toMatch(
      /^launch 1 ran out of its 15.5 GiB, and the next VM's container needs 31 GiB: \$0.09 of maxCostUsd \$0.1 is left, .* costs \$/,
    )
  })

  test("needs whole units of memory", () => {
    const job = jobWith({ maxMemory: "128G", resources: { memory: "1Gi" } })
    const { status } = decideFor(job, [failed(job, 1, OOM)])
    expect(containerMemoryGib(status.placement?.offer ?? SMALL)).toBe(7.5)
  })
})

describe("maxLostVms", () => {
  test.each([
    [undefined, 2],
    [0, 0],
    [1, 1],
    [5, 5],
  ])("allows %s: %s lost VMs", (maxLostVms, allowed) => {
    const job = jobWith(maxLostVms === undefined ? {} : { maxLostVms })
    const launches = (count: number) => Array.from({ length: count }, (_, index) => lost(job, index + 1))
    expect(decideFor(job, launches(allowed)).status.phase).toBe("booting")
    expect(decideFor(job, launches(allowed + 1)).status).toMatchObject({
      phase: "failed",
      reason: "VMLost",
      message: `lost ${allowed === 0 ? "1 VM" : `${allowed + 1} VMs`}, and maxLostVms is ${allowed}`,
    })
  })
})
