import { readFileSync } from "node:fs"
import { describe, expect, test } from "vitest"
import {
  agentOf,
  at,
  INSTALLATION,
  jobOf,
  launchOf,
  levelOf,
  marketOf,
  offerOf,
  seenOf,
  time,
  vmStatus,
} from "../../../test/harness/builders.ts"
import { systemClock } from "../../core/apis/clock.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import { CRON_JOB_ANNOTATIONS } from "../../core/apis/cronjob.ts"
import type { JobSpec, JobStatus, StoredJob } from "../../core/apis/job.ts"
import type { AgentStatus, LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS, LABELS } from "../../core/apis/meta.ts"
import { offerKey } from "../../core/apis/offer.ts"
import { submissionId } from "../../core/apis/origin.ts"
import { IndexedStore } from "../../core/kube/store.ts"
import { launchIndexes } from "../../market/caches.ts"
import { fixedOffers } from "../../market/catalogue/offers.ts"
import { type BucketState, type Buckets, findVolumes } from "../../market/placement/inputs.ts"
import type { Market } from "../../market/placement/market.ts"
import { jobPlanner } from "../../market/placement/place.ts"
import { JOB_DEFAULTS } from "../../market/placement/settings.ts"
import { createCatalogue } from "../../market/router/catalogue.ts"
import { CHECKS, decide } from "./decide.ts"
import type { JobObservation } from "./facts.ts"
import type { JobDecision } from "./render.ts"

function decideAt(
  seconds: number,
  job: StoredJob,
  launches: readonly StoredLaunch[] = [],
  market: Partial<Market> = {},
  others: Partial<JobObservation> = {},
): JobDecision {
  const observed = { launches, market: () => marketOf(market), ...seenOf(job), ...others }
  return decide(job, observed, at(seconds), JOB_DEFAULTS)
}

function acts({ actions }: JobDecision): string[] {
  return actions.map((action) => action.do)
}

function truth(status: JobStatus): Record<string, string> {
  return Object.fromEntries((status.conditions ?? []).map(({ type, status: value }) => [type, value]))
}

const UNANSWERED = { class: "Unavailable", message: "out of order", since: time(0) } as const

const booting: JobStatus = { phase: "booting", reason: "Booting", message: "m" }

test("ARCHITECTURE.md has the checks in their order", () => {
  const page = readFileSync(new URL("../../../ARCHITECTURE.md", import.meta.url), "utf8")
  const rows = CHECKS.flatMap(({ phase, rows: own }) => own.map((row) => `| ${[phase, ...row].join(" | ")} |`))
  expect(page).toContain(["| phase | observation | next |", "|---|---|---|", ...rows, ""].join("\n"))
})

test("the Launch of a cronjob's job has the cronjob's uid and name, by which its cost is shown", () => {
  const labels = { [LABELS.cronJobUid]: "u" }
  const annotations = { [CRON_JOB_ANNOTATIONS.name]: "nightly" }
  const { actions } = decideAt(0, jobOf({ metadata: { labels, annotations } }))
  expect(actions).toContainEqual(
    expect.objectContaining({
      do: "createLaunch",
      launch: expect.objectContaining({ spec: expect.objectContaining({ cronJob: "u", cronJobName: "nightly" }) }),
    }),
  )
})

describe("a new job", () => {
  const fresh = jobOf({
    metadata: { finalizers: [], annotations: {} },
    spec: { labels: { team: "a", "helm.sh/x": "b" } },
  })

  test("is adopted before its Launch is created, and its first status satisfies kstatus", () => {
    const decision = decideAt(0, fresh)
    expect(acts(decision)).toEqual(["adopt", "createLaunch"])
    expect(decision.actions[0]).toEqual({ do: "adopt", labels: { team: "a" } })
    expect(decision.status).toMatchObject({
      observedGeneration: 1,
      phase: "booting",
      vm: { state: "provisioning" },
      credentials: "issued",
      launches: { count: 1, current: `${fresh.metadata.uid}-1` },
      cost: { estimatedUsd: 0.6 },
    })
    expect(truth(decision.status)).toMatchObject({
      Placed: "True",
      Ready: "False",
      Reconciling: "True",
      Started: "False",
    })
    expect(decision.status.conditions?.every((condition) => condition.observedGeneration === 1)).toBe(true)
    expect(decision.events).toEqual([])
  })

  describe("the status of a new job with a Launch", () => {
    const queued = jobOf()
    const requested = launchOf(queued, 1, { status: { phase: "requested" } })

    test("is written once, with its VM, if the cloud answers soon", () => {
      expect(decideAt(0, queued).requeueAfter).toBe(2)
      const waiting = decideAt(1, queued, [requested])
      expect([acts(waiting), waiting.events, waiting.requeueAfter]).toEqual([[], [], 1])
      const answered = decideAt(1, queued, [launchOf(queued, 1, { status: vmStatus() })])
      expect(acts(answered)).toEqual(["writeStatus"])
      expect(answered.status).toMatchObject({ phase: "booting", vm: { id: "vm-1" }, launches: { count: 1, billed: 1 } })
      expect(answered.events).toEqual([
        { type: "Normal", reason: "Placed", message: expect.stringMatching(/^VM vm-1, launch 1: /) },
      ])
    })

    test.each([
      ["the cloud does not answer soon", 2, requested],
      ["the cloud does not say if there is a VM", 1, launchOf(queued, 1, { status: { unanswered: UNANSWERED } })],
      ["the clock was wrong", -10, requested],
    ])("is written without a VM if %s, and its VM later", (_, seconds, launch) => {
      const written = decideAt(seconds, queued, [launch])
      expect(acts(written)).toEqual(["writeStatus"])
      expect(written.status).toMatchObject({ phase: "booting", vm: { state: "provisioning" }, launches: { count: 1 } })
      expect(written.events).toEqual([])
      const later = decideAt(20, jobOf({ ...queued, status: written.status }), [
        launchOf(queued, 1, { status: vmStatus() }),
      ])
      expect(later.events.map(({ reason }) => reason)).toEqual(["Placed"])
    })
  })

  test("fails if no offer in any catalogue fits, and explains which request excludes which offers", () => {
    const decision = decideAt(0, jobOf({ spec: { resources: { cpu: 64 } } }))
    expect(decision.status).toMatchObject({
      phase: "failed",
      reason: "NoOffer",
      completionTime: time(0),
      cost: { actualUsd: 0 },
    })
    expect(decision.status.message).toContain("cpu ≥ 64 excludes 3")
    expect(truth(decision.status)).toMatchObject({
      Failed: "True",
      Stalled: "True",
      Ready: "False",
      Reconciling: "False",
    })
  })

  test("is checked again after 5 minutes at most", () => {
    for (const until of [at(3600), new Date("9999-12-31T23:59:59Z")]) {
      expect(decideAt(0, jobOf(), [], { cooldowns: [{ cloud: "sim", until }] }).requeueAfter).toBe(300)
    }
  })

  test("waits with ProjectLimit while the project is full, and is checked again after 2 minutes", () => {
    const observed = { launches: [], market: () => marketOf({}), ...seenOf(jobOf()) }
    const decision = decide(jobOf(), { ...observed, overLimit: "the project has 3 jobs" }, at(0), JOB_DEFAULTS)
    expect(acts(decision)).not.toContain("createLaunch")
    expect(decision.status).toMatchObject({
      phase: "queued",
      reason: "ProjectLimit",
      message: "the project has 3 jobs",
    })
    expect(decision.requeueAfter).toBe(120)
  })

  test("is cancelled with ProjectDeleting if its project is deleted while it is queued; a running job is not", () => {
    const observed = {
      market: () => marketOf({}),
      ...seenOf(jobOf()),
      ending: "the project p is being deleted",
    }
    const queued = decide(jobOf(), { ...observed, launches: [] }, at(0), JOB_DEFAULTS)
    expect(queued.status).toMatchObject({ phase: "cancelled", reason: "ProjectDeleting" })
    expect(queued.status.message).toBe("the project p is being deleted: its queued jobs are cancelled")
    const launch = launchOf(jobOf(), 1, {
      status: vmStatus({ agent: agentOf({ startTime: time(2) }) }),
    })
    const running = decide(jobOf(), { ...observed, launches: [launch] }, at(3), JOB_DEFAULTS)
    expect(running.status.phase).toBe("running")
    expect(acts(running)).not.toContain("endLaunch")
  })

  test.each<[string, Partial<Market>, string, string]>([
    ["no connection", { launchAccounts: [] }, "NoConnection", "add one of type sim"],
    [
      "all rest",
      { cooldowns: [{ cloud: "sim", until: at(300) }] },
      "NoCapacity",
      "next attempt at 2026-05-01T12:05:00Z",
    ],
    ["the cap of VMs", { levels: [levelOf({ maxVms: 2 }, { vms: 2 })] }, "CapReached", "2 VMs"],
    [
      "the cap an hour",
      { levels: [levelOf({ maxHourlyUsd: 1 }, { vms: 1, hourlyUsd: 0.6 })] },
      "CapReached",
      "$1 an hour",
    ],
    [
      "the cap a month",
      { levels: [levelOf({ maxMonthlyUsd: 9 }, { vms: 1, endedUsd: 8, expectedUsd: 1 })] },
      "CapReached",
      "$9 a month",
    ],
    ["the breaker", { paused: [{ cloud: "sim", until: at(60) }] }, "LaunchesPaused", "never registered"],
    ["the launch rate", { rateWaitSeconds: 7 }, "CapReached", "launch rate"],
    ["an empty catalogue", { offers: createCatalogue([]) }, "NoCapacity", "no offers yet"],
  ])("waits for %s", (_, market, reason, message) => {
    const decision = decideAt(0, jobOf(), [], market)
    expect(acts(decision)).toEqual(["writeStatus"])
    expect(decision.status).toMatchObject({
      phase: "queued",
      reason,
      vm: { state: "nonassigned" },
      credentials: "empty",
    })
    expect(decision.status.message).toContain(message)
    expect(decision.requeueAfter).toBeGreaterThan(0)
    expect(decision.events).toEqual([expect.objectContaining({ type: "Warning", reason })])
    expect(truth(decision.status)).toMatchObject({ Placed: "False", Ready: "False", Reconciling: "True" })
  })

  test("does not run and is not changed if it is a copy of another job", () => {
    const copy = jobOf({ metadata: { annotations: { [ANNOTATIONS.recordedUid]: "another" } } })
    const decision = decideAt(0, copy)
    expect(acts(decision)).toEqual(["writeStatus"])
    expect(decision.status).toMatchObject({ phase: "queued", reason: "Held" })
    expect(truth(decision.status)).toMatchObject({ Stalled: "True", Reconciling: "False" })
  })

  describe("a new job of the REST API", () => {
    const submission = submissionId(INSTALLATION.id)
    const annotations = { [ANNOTATIONS.submission]: submission, [ANNOTATIONS.createdAt]: at(0).toISOString() }

    test("needs no adoption, and its Launch has its submission", () => {
      const decision = decideAt(0, jobOf({ metadata: { annotations } }))
      expect(decision.actions).toMatchObject([
        { do: "createLaunch", launch: { metadata: { annotations: { [ANNOTATIONS.submission]: submission } } } },
      ])
    })

    test.each([
      ["lost its finalizer", { finalizers: [], annotations }],
      ["lost its submission", { annotations: { [ANNOTATIONS.createdAt]: at(0).toISOString() } }],
    ])("is adopted if it %s", (_, metadata) => {
      expect(acts(decideAt(0, jobOf({ metadata })))).toEqual(["adopt", "createLaunch"])
    })

    test("stays a copy after its original is deleted, until a user removes its submission", () => {
      const status: JobStatus = { phase: "queued", reason: "Held" }
      const held = decideAt(0, jobOf({ metadata: { annotations, finalizers: [] }, status }))
      expect([held.status.reason, acts(held)]).toEqual(["Held", ["writeStatus"]])
      const freed = { annotations: { [ANNOTATIONS.createdAt]: at(0).toISOString() } }
      expect(acts(decideAt(0, jobOf({ metadata: freed, status })))).toEqual(["adopt", "createLaunch"])
    })

    test.each([
      ["was created long before", { creationTimestamp: time(3600), annotations }],
      [
        "belongs to another installation",
        { annotations: { ...annotations, [ANNOTATIONS.submission]: submissionId("another") } },
      ],
    ])("is a copy if its original %s", (_, metadata) => {
      const decision = decideAt(3600, jobOf({ metadata }))
      expect(acts(decision)).toEqual(["writeStatus"])
      expect(decision.status).toMatchObject({ phase: "queued", reason: "Held" })
      expect(decision.status.message).toContain("remove its annotation berth.dev/submission")
    })
  })
})

describe("a booting job", () => {
  const job = jobOf({ status: booting })

  test("runs once its container has started", () => {
    const launch = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ startTime: time(30) }) }) })
    const { status, events } = decideAt(31, job, [launch])
    expect(status).toMatchObject({
      phase: "running",
      startTime: time(30),
      vm: { state: "running", id: "vm-1" },
      credentials: "delivered",
    })
    expect(truth(status)).toMatchObject({ Started: "True", VMReady: "True", Ready: "True", Reconciling: "False" })
    expect(events.map(({ reason }) => reason)).toEqual(["Placed"])
  })

  test("emits both events if its container ended before a status was written, the VM's first", () => {
    const finish = { reason: "Succeeded" as const, exitCode: 0, time: time(34) }
    const agent = agentOf({ startTime: time(30), finish })
    const { status, events } = decideAt(35, jobOf(), [launchOf(job, 1, { status: vmStatus({ agent }) })])
    expect(status).toMatchObject({ phase: "succeeded", startTime: time(30), vm: { id: "vm-1" } })
    expect(events.map(({ reason }) => reason)).toEqual(["Placed", "Succeeded"])
  })

  test("has a deadline of its own to start the container once its agent has registered", () => {
    const spec = { bootDeadlineSeconds: 300, startDeadlineSeconds: 1800 }
    const registered = launchOf(job, 1, { spec, status: vmStatus({ agent: agentOf({ registrationTime: time(290) }) }) })
    // A large image that is pulled for twelve minutes starts.
    expect(decideAt(290 + 720, job, [registered]).status.phase).toBe("booting")
    expect(decideAt(290 + 1799, job, [registered])).toMatchObject({ status: { phase: "booting" }, requeueAfter: 2 })
    const late = decideAt(290 + 1800, job, [registered])
    expect(acts(late)).toEqual(["endLaunch", "writeStatus"])
    expect(late.status).toMatchObject({
      phase: "queued",
      reason: "BootDeadlineExceeded",
      message: expect.stringContaining("did not start within 1800 s after the agent registered"),
    })
  })

  test("fails if its limit is spent before its container starts, and its VM ends", () => {
    const spec = { budgetSeconds: 60, startDeadlineSeconds: 1800 }
    const limited = jobOf({ ...job, spec: { maxCostUsd: 0.1 } })
    const agent = agentOf({ registrationTime: time(30) })
    const decision = decideAt(5 + 240, limited, [launchOf(limited, 1, { spec, status: vmStatus({ agent }) })])
    expect(acts(decision)).toContain("endLaunch")
    expect(decision.status).toMatchObject({ phase: "failed", reason: "BudgetExceeded" })
  })

  test("ends its Launch at the boot deadline; the next one waits until its VM is deleted", () => {
    const launch = launchOf(job, 1, { status: vmStatus() })
    expect(decideAt(904, job, [launch])).toMatchObject({ status: { phase: "booting" }, requeueAfter: 2 })
    const decision = decideAt(905, job, [launch])
    expect(acts(decision)).toEqual(["endLaunch", "writeStatus"])
    expect(decision.status).toMatchObject({ phase: "queued", reason: "BootDeadlineExceeded" })
    expect(decision.status.message).toContain(
      `its VM never reached ${launch.spec.gatewayUrl}. Check the subnet's route`,
    )

    const ended = launchOf(job, 1, { spec: { ended: true }, status: vmStatus() })
    const waiting = decideAt(910, jobOf({ ...job, status: decision.status }), [ended])
    expect(acts(waiting)).not.toContain("createLaunch")
    expect(waiting.status).toMatchObject({ phase: "queued", vm: { state: "terminating" }, credentials: "revoked" })

    const over = launchOf(job, 1, {
      spec: { ended: true },
      status: vmStatus({ phase: "terminated", vm: { state: "terminated", id: "vm-1", terminationTime: time(930) } }),
    })
    const next = decideAt(931, job, [over])
    expect(acts(next)).toEqual(["createLaunch", "writeStatus"])
    expect(next.status).toMatchObject({
      phase: "booting",
      launches: { count: 2, billed: 1 },
      refusedOffers: [
        {
          ...{ reason: "BootDeadlineExceeded", instanceType: "small" },
          message: expect.stringContaining(`its VM never reached ${launch.spec.gatewayUrl}`),
        },
      ],
    })
  })

  test("shows why its agent ended with MachineFailed, and gets another VM", () => {
    const [reason, message] = [
      "MachineFailed",
      "the container can't be started: could not select device driver",
    ] as const
    const finish = { reason, message, time: time(40) }
    const why = `launch 1: its VM cannot run containers (${reason}): ${message}`
    const agent = agentOf({ finish })
    const failed = decideAt(41, job, [launchOf(job, 1, { status: vmStatus({ agent }) })])
    // The Launch's controller terminates the VM of a finished agent.
    expect(acts(failed)).toEqual(["writeStatus"])
    expect(failed.status).toMatchObject({ phase: "queued", reason: "BootFailed" })
    const vm = { state: "terminated" as const, id: "vm-1", terminationTime: time(60) }
    const over = vmStatus({ phase: "terminated", vm, agent })
    const next = decideAt(61, job, [launchOf(job, 1, { spec: { ended: true }, status: over })])
    expect(next.status).toMatchObject({ phase: "booting", refusedOffers: [{ reason: "BootFailed", message: why }] })
    // It isn't a lost VM: the job may have five of them.
    expect(next.status.launches).toMatchObject({ lost: 0 })
    const four = [1, 2, 3, 4].map((n) => launchOf(job, n, { spec: { ended: true }, status: over }))
    expect(decideAt(61, job, four).status.phase).toBe("booting")
  })

  test("ends the Launch of a VM that can't run containers, shows why and tries the next offer", () => {
    const bootFailure = { reason: "GPUUnavailable" as const, message: "nvidia-smi showed no GPU", time: time(40) }
    const why = "launch 1: its VM cannot run containers (GPUUnavailable): nvidia-smi showed no GPU"
    const failed = decideAt(41, job, [launchOf(job, 1, { status: vmStatus({ bootFailure }) })])
    expect(acts(failed)).toEqual(["endLaunch", "writeStatus"])
    expect(failed.status).toMatchObject({
      phase: "queued",
      reason: "BootFailed",
      message: `${why}; Berth tries the next machine after this VM is deleted`,
      credentials: "revoked",
    })
    expect(failed.events).toContainEqual(expect.objectContaining({ type: "Warning", reason: "BootFailed" }))
    const vm = { state: "terminated" as const, id: "vm-1", terminationTime: time(60) }
    const over = vmStatus({ phase: "terminated", vm, bootFailure })
    const next = decideAt(61, job, [launchOf(job, 1, { spec: { ended: true }, status: over })])
    expect(next.status).toMatchObject({ phase: "booting", refusedOffers: [{ reason: "BootFailed", message: why }] })
    const five = [1, 2, 3, 4, 5].map((n) => launchOf(job, n, { spec: { ended: true }, status: over }))
    expect(decideAt(61, job, five).status).toMatchObject({
      phase: "failed",
      reason: "LaunchLimitExceeded",
      message: expect.stringMatching(/^5 VMs were billed .*; launch 5: its VM cannot run containers/),
    })
  })

  test("has no deadline yet while its Launch waits behind others for its create call", () => {
    const launch = launchOf(job, 1)
    const decision = decideAt(9000, job, [launch])
    expect(acts(decision)).not.toContain("endLaunch")
    expect(decision.status).toMatchObject({ phase: "booting", message: "launch 1: preparing the VM" })
    expect(decision.requeueAfter).toBeUndefined()
    // Its VM has the whole boot deadline.
    const late = launchOf(job, 1, {
      status: vmStatus({ vm: { state: "booting", id: "vm-1", createTime: time(8000) } }),
    })
    expect(decideAt(8899, job, [late]).status.phase).toBe("booting")
    expect(acts(decideAt(8900, job, [late]))).toContain("endLaunch")
  })

  test("shows why a cloud does not answer, and takes the next offer at the boot deadline", () => {
    const unanswered = { class: "Unavailable" as const, message: "the region is out of order", since: time(100) }
    const why = { metadata: { annotations: { [ANNOTATIONS.placementReason]: "the cheapest" } } }
    const launch = launchOf(job, 1, { ...why, status: { phase: "requested", unanswered } })
    const waiting = decideAt(999, job, [launch])
    expect(waiting.status.message).toBe("launch 1: no VM yet: the region is out of order")
    const messages = ["Ready", "Reconciling"].map((type) => findCondition(waiting.status.conditions, type)?.message)
    expect(messages).toEqual([waiting.status.message, waiting.status.message])
    expect(waiting.status.message).toContain("out of order")
    expect(waiting.requeueAfter).toBe(2)
    const answered = launchOf(job, 1, { ...why, status: vmStatus() })
    expect(decideAt(200, jobOf({ ...job, status: waiting.status }), [answered]).status.message).toBe(
      "launch 1: the cheapest",
    )

    const decision = decideAt(1000, job, [launch])
    expect(acts(decision)).toEqual(["endLaunch", "writeStatus"])
    expect(decision.status).toMatchObject({
      phase: "queued",
      reason: "BootDeadlineExceeded",
      message: "launch 1 got no VM within 900 s: the region is out of order",
    })
    // Until the cloud says if the VM exists there is no other one.
    const ended = launchOf(job, 1, { spec: { ended: true }, status: { phase: "requested", unanswered } })
    const unsettled = decideAt(1001, jobOf({ ...job, status: decision.status }), [ended])
    expect(acts(unsettled)).toEqual(["writeStatus"])
    expect(unsettled.status).toMatchObject({
      reason: "BootDeadlineExceeded",
      message: "waiting until the cloud says if launch 1 has a VM: the region is out of order",
    })
    expect(unsettled.status.refusedOffers).toBeUndefined()
    const refusal = { class: "Unavailable" as const, message: "the region is out of order", time: time(1010) }
    const refused = launchOf(job, 1, { spec: { ended: true }, status: { phase: "refused", unanswered, refusal } })
    const cooldowns = [{ cloud: "sim", offer: offerKey(launch.spec.offer), until: at(1310) }]
    const next = decideAt(1011, jobOf({ ...job, status: unsettled.status }), [refused], { cooldowns })
    expect(next.status).toMatchObject({
      phase: "booting",
      placement: { offer: { instanceType: "medium" } },
      refusedOffers: [{ reason: "Unavailable", message: "launch 1: the region is out of order" }],
    })
    expect(next.events.map(({ reason }) => reason)).toEqual(["OfferRefused"])
  })

  test("does not report a boot that took too long if the VM was discovered after its Launch ended", () => {
    const vm = { state: "terminated", id: "vm-1", createTime: time(950), terminationTime: time(960) } as const
    const launch = launchOf(job, 1, { spec: { ended: true }, status: { phase: "terminated", vm } })
    expect(decideAt(970, job, [launch]).status.refusedOffers).toMatchObject([{ time: time(960) }])
  })

  test("takes the next offer at once after a rejection, which is stored and emitted", () => {
    const refusal = { class: "Capacity" as const, code: "X", message: "none left", time: time(2) }
    const launch = launchOf(job, 1, { status: { phase: "refused", refusal } })
    const cooldowns = [{ cloud: "sim", offer: offerKey(launch.spec.offer), until: at(300) }]
    const decision = decideAt(3, job, [launch], { cooldowns })
    expect(decision.status).toMatchObject({
      phase: "booting",
      placement: { offer: { instanceType: "medium" } },
      launches: { count: 2, current: `${job.metadata.uid}-2` },
      refusedOffers: [{ reason: "Capacity", message: "launch 1: none left" }],
    })
    expect(decision.events.map(({ reason }) => reason)).toEqual(["OfferRefused"])
    expect(acts(decision)).toEqual(["createLaunch", "writeStatus"])
  })

  test("fails after 5 billed boots", () => {
    const launches = [1, 2, 3, 4, 5].map((n) =>
      launchOf(job, n, { spec: { ended: true }, status: vmStatus({ phase: "terminated" }) }),
    )
    expect(decideAt(9000, job, launches).status).toMatchObject({ phase: "failed", reason: "LaunchLimitExceeded" })
    expect(acts(decideAt(9000, job, launches.slice(1)))).toContain("createLaunch")
  })

  test("has a VM's state written only after it has lasted", () => {
    const launch = launchOf(job, 1, { status: vmStatus() })
    const first = decideAt(5, job, [launch]).status
    const settled = jobOf({ ...job, status: first })
    const registered = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ registrationTime: time(20) }) }) })
    const early = decideAt(21, settled, [registered])
    expect(acts(early)).toEqual([])
    expect(early.requeueAfter).toBe(2)
    expect(acts(decideAt(23, settled, [registered]))).toEqual(["writeStatus"])
  })
})

describe("a running job", () => {
  const status: JobStatus = { phase: "running", reason: "Started", startTime: time(30), launches: { count: 1 } }
  const job = jobOf({ status })
  const started = agentOf({ startTime: time(30), lastHeartbeatTime: time(40) })

  test.each([
    ["Succeeded", "succeeded", "Succeeded", { Complete: "True", Ready: "True", Reconciling: "False" }],
    ["ContainerFailed", "failed", "ContainerFailed", { Failed: "True", Ready: "False", Stalled: "True" }],
    ["DeadlineExceeded", "failed", "DeadlineExceeded", { Failed: "True" }],
    ["VolumeFlushFailed", "failed", "VolumeFlushFailed", { Failed: "True" }],
    ["ImagePullFailed", "failed", "ImagePullFailed", { Failed: "True" }],
    ["SecretMissing", "failed", "SecretMissing", { Failed: "True" }],
    ["WorkdirMissing", "failed", "WorkdirMissing", { Failed: "True" }],
    ["WorkdirFailed", "failed", "WorkdirFailed", { Failed: "True" }],
  ] as const)("ends by the agent's report: finish %s", (reason, phase, expected, conditions) => {
    const agent = agentOf({ ...started, finish: { reason, exitCode: 3, time: time(90) } })
    const decision = decideAt(91, job, [launchOf(job, 1, { status: vmStatus({ agent }) })])
    expect(decision.status).toMatchObject({
      phase,
      reason: expected,
      exitCode: 3,
      completionTime: time(90),
      vm: { state: "terminating" },
    })
    expect(truth(decision.status)).toMatchObject(conditions)
    expect(findCondition(decision.status.conditions, phase === "succeeded" ? "Failed" : "Complete")).toBeUndefined()
    expect(acts(decision)).toEqual(["writeStatus"])
  })

  test("ends with the reason Idle if its agent ended it for that, with what it used", () => {
    const usage = { seconds: 1800, cpuMean: 0.01, cpuPeak: 0.1, memoryPeakMib: 900 }
    const message = "no GPU above 5 % for 30 min"
    const idle = { reason: "DeadlineExceeded", cause: "Idle", message, usage, time: time(90) } as const
    const launch = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ ...started, finish: idle }) }) })
    const { status: ended } = decideAt(91, job, [launch])
    expect(ended).toMatchObject({ phase: "failed", reason: "Idle", message, usage, completionTime: time(90) })
  })

  test("has the use of a run that its agent reports after a cancel, and is not written only for it", () => {
    const usage = { seconds: 30, cpuMean: 1, cpuPeak: 2, memoryPeakMib: 900 }
    const finish = { reason: "Stopped", usage, time: time(92) } as const
    const before = launchOf(job, 1, { spec: { ended: true }, status: vmStatus({ agent: started }) })
    const { status: cancelled } = decideAt(91, jobOf({ spec: { cancelled: true }, status }), [before])
    expect(cancelled).toMatchObject({ phase: "cancelled" })
    expect(cancelled).not.toHaveProperty("usage")
    const after = jobOf({ spec: { cancelled: true }, status: cancelled })
    const agent = agentOf({ ...started, finish })
    const stopped = launchOf(job, 1, { spec: { ended: true }, status: vmStatus({ agent }) })
    expect(acts(decideAt(92, after, [stopped]))).toEqual([])
    const over = launchOf(job, 1, {
      spec: { ended: true },
      status: vmStatus({ phase: "terminated", costUsd: 1, agent }),
    })
    expect(decideAt(99, after, [over]).status).toMatchObject({ settled: true, usage })
  })

  test("keeps the last line of a failed container's output, and has it in no message, condition or event", () => {
    const finish = {
      reason: "ContainerFailed",
      exitCode: 1,
      message: "exit code 1",
      lastLine: "no GPU",
      time: time(90),
    } as const
    const launch = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ ...started, finish }) }) })
    const { status: next, events } = decideAt(91, job, [launch])
    expect(next).toMatchObject({ message: "exit code 1", lastLine: "no GPU" })
    expect(JSON.stringify([next.conditions, events])).not.toContain("no GPU")
    expect(decideAt(200, jobOf({ ...job, status: next }), []).status.lastLine).toBe("no GPU")
    const passed = agentOf({ ...started, finish: { ...finish, reason: "Succeeded", exitCode: 0 } })
    expect(
      decideAt(91, job, [launchOf(job, 1, { status: vmStatus({ agent: passed }) })]).status.lastLine,
    ).toBeUndefined()
  })

  test("stays running while its container is restarted in its VM", () => {
    const agent = agentOf({ ...started, retryCount: 1, lastExitCode: 7 })
    const { status: next, events } = decideAt(60, job, [launchOf(job, 1, { status: vmStatus({ agent }) })])
    expect(next).toMatchObject({ phase: "running", retryCount: 1 })
    expect(events.map(({ reason }) => reason)).toContain("ContainerRestarted")
  })

  test("ends by the controller shortly after the agent should have enforced the timeout", () => {
    const timed = jobOf({ status, spec: { timeoutSeconds: 100 } })
    const launch = launchOf(timed, 1, { status: vmStatus({ agent: started }) })
    expect(decideAt(240, timed, [launch]).status.phase).toBe("running")
    const decision = decideAt(250, timed, [launch])
    expect(decision.status).toMatchObject({ phase: "failed", reason: "DeadlineExceeded" })
    expect(acts(decision)).toEqual(["writeStatus", "endLaunch"])
  })

  test.each<[string, Partial<JobObservation>, number, string]>([
    ["runs 50 s although the clock is two hours ahead", { runSeconds: 50 }, 7250, "running"],
    ["runs 220 s although the clock is an hour behind", { runSeconds: 220 }, -3600, "failed"],
  ])("has its timeout by the measured time: a container %s", (_, measured, seconds, phase) => {
    const timed = jobOf({ status, spec: { timeoutSeconds: 100 } })
    const launch = launchOf(timed, 1, { status: vmStatus({ agent: started }) })
    const observed = { launches: [launch], market: () => marketOf(), ...seenOf(timed), ...measured }
    expect(decide(timed, observed, at(seconds), JOB_DEFAULTS).status.phase).toBe(phase)
  })

  test.each<[string, number | undefined, number, string]>([
    ["boots for 60 s although the clock is two hours ahead", 60, 7260, "booting"],
    ["has booted for 900 s although the clock is an hour behind", 900, -2700, "queued"],
    ["is new to this process, so the calendar counts", undefined, 7260, "queued"],
  ])("has its boot deadline by the measured time: a VM %s", (_, bootSeconds, seconds, phase) => {
    const fresh = jobOf({ status: booting })
    const observed = {
      launches: [launchOf(fresh, 1, { status: vmStatus() })],
      market: () => marketOf(),
      ...seenOf(fresh),
      ...(bootSeconds !== undefined && { bootSeconds }),
    }
    expect(decide(fresh, observed, at(seconds), JOB_DEFAULTS).status.phase).toBe(phase)
  })

  test("has no writes for its heartbeats", () => {
    const beat = (seconds: number) =>
      launchOf(job, 1, {
        status: vmStatus({ agent: agentOf({ startTime: time(30), lastHeartbeatTime: time(seconds) }) }),
      })
    const { status } = decideAt(40, job, [beat(40)])
    expect(status.lastHeartbeatTime).toBeUndefined()
    expect(acts(decideAt(4000, jobOf({ ...job, status }), [beat(4000)]))).toEqual([])
  })

  test("keeps the last heartbeat of its VM when it ends", () => {
    const finish = { reason: "Succeeded" as const, exitCode: 0, time: time(90) }
    const agent = agentOf({ startTime: time(30), lastHeartbeatTime: time(91), finish })
    const { status } = decideAt(95, job, [launchOf(job, 1, { status: vmStatus({ agent }) })])
    expect(status).toMatchObject({ phase: "succeeded", lastHeartbeatTime: time(91) })
    const later = decideAt(99, jobOf({ ...job, status }), [])
    expect(later.status.lastHeartbeatTime).toBe(time(91))
  })

  const loss = (number: number) =>
    launchOf(job, number, {
      status: vmStatus({
        phase: "terminated",
        loss: { reason: "VMLost", message: "gone", time: time(50 + number) },
        agent: started,
      }),
    })

  test("takes the next offer after a lost VM, with the remainder of the timeout", () => {
    const timed = jobOf({ ...job, spec: { timeoutSeconds: 100 } })
    const decision = decideAt(70, timed, [loss(1)])
    expect(decision.status).toMatchObject({
      phase: "booting",
      launches: { count: 2, lost: 1 },
      refusedOffers: [{ reason: "VMLost" }],
    })
    const create = decision.actions.find((action) => action.do === "createLaunch")
    expect(create).toMatchObject({ launch: { spec: { number: 2, run: { timeoutSeconds: 60 } } } })
    expect(decideAt(131, timed, [loss(1)]).status).toMatchObject({ phase: "failed", reason: "DeadlineExceeded" })
  })

  test("gets no new Launch before a VM lost without heartbeats is deleted, because it may still run", () => {
    const silent = launchOf(job, 1, {
      status: vmStatus({ phase: "terminating", loss: { reason: "Silent", message: "silent", time: time(700) } }),
    })
    const decision = decideAt(701, job, [silent])
    expect(acts(decision)).toEqual(["writeStatus"])
    expect(decision.status).toMatchObject({ phase: "queued", reason: "VMLost" })
  })

  test("fails when 3 VMs are lost", () => {
    expect(decideAt(70, job, [loss(1), loss(2), loss(3)]).status).toMatchObject({
      phase: "failed",
      reason: "VMLost",
      launches: { lost: 3 },
    })
  })

  test("takes the next offer after planned power-offs, which are no losses, without a limit", () => {
    const off = (number: number) =>
      launchOf(job, number, {
        status: vmStatus({
          phase: "terminated",
          loss: { reason: "PoweredOff", message: "stopped", time: time(50 + number) },
          agent: { ...started, finish: { reason: "Stopped", time: time(50 + number) } },
        }),
      })
    const decision = decideAt(70, job, [off(1), off(2), off(3), off(4)])
    expect(decision.status).toMatchObject({ phase: "booting", launches: { count: 5, lost: 0 } })
    expect(decision.status.refusedOffers).toBeUndefined()
    // Without waiting for the cloud's answer: the job no longer runs.
    expect(acts(decision)).toContain("writeStatus")
  })

  test("counts a result that was delivered during a planned power-off", () => {
    const done = launchOf(job, 1, {
      status: vmStatus({
        phase: "terminating",
        loss: { reason: "PoweredOff", message: "stopped", time: time(50) },
        agent: { ...started, finish: { reason: "Succeeded", exitCode: 0, time: time(50) } },
      }),
    })
    expect(decideAt(70, job, [done]).status).toMatchObject({ phase: "succeeded", exitCode: 0 })
  })

  test("never uses a number again, also when the records of earlier Launches are deleted", () => {
    const known = jobOf({ status: { phase: "queued", launches: { count: 4 } } })
    expect(decideAt(70, known, []).status.launches?.current).toBe(`${known.metadata.uid}-5`)
    expect(decideAt(70, known, [loss(6)]).status.launches?.current).toBe(`${known.metadata.uid}-7`)
  })

  test("counts a Launch that its status names and that is deleted as lost", () => {
    const named = jobOf({ status: { ...status, launches: { count: 3, lost: 2, current: "gone-3" } } })
    expect(decideAt(70, named, []).status).toMatchObject({ phase: "failed", reason: "VMLost" })
  })
})

describe("a job whose spot VMs are preempted", () => {
  const spot = offerOf({ provisioning: "spot", hourlyPriceUsd: 0.2 })
  const market = { offers: createCatalogue([offerOf(), spot]) }
  const spotFirst = jobOf({ spec: { provisioning: "spotFirst" } })

  /** A spot VM that ran and was lost for this reason. */
  const ended = (job: StoredJob, number: number, reason: "Preempted" | "VMLost" = "Preempted") =>
    launchOf(job, number, {
      spec: { offer: spot },
      status: vmStatus({
        phase: "terminated",
        loss: { reason, message: "gone", time: time(50 + number) },
        costUsd: 0.01,
        cost: { machineUsd: 0.01, diskUsd: 0, addressUsd: 0 },
      }),
    })
  const endedRow = (job: StoredJob, count: number) => Array.from({ length: count }, (_, at) => ended(job, at + 1))
  const createdBy = ({ actions }: JobDecision) => actions.find((action) => action.do === "createLaunch")?.launch.spec

  test("continues without a limit, and the preemptions do not count as lost VMs", () => {
    const job = jobOf({ spec: { provisioning: "spot" } })
    const decision = decideAt(70, job, endedRow(job, 12), market)
    expect(decision.status).toMatchObject({ phase: "booting", launches: { count: 13, lost: 0, preempted: 12 } })
    expect(createdBy(decision)?.offer.provisioning).toBe("spot")
    expect(truth(decision.status)).not.toHaveProperty("OnDemandFallback")
    const mixed = [...endedRow(job, 4), ended(job, 5, "VMLost"), ended(job, 6, "VMLost"), ended(job, 7, "VMLost")]
    expect(decideAt(70, job, mixed, market).status).toMatchObject({ phase: "failed", reason: "VMLost" })
  })

  test.each([
    [0, 1],
    [2, 3],
  ])("fails above a maxPreemptions of %i", (maxPreemptions, preempted) => {
    const job = jobOf({ spec: { provisioning: "spot", maxPreemptions } })
    expect(decideAt(70, job, endedRow(job, preempted - 1), market).status.phase).toBe("booting")
    expect(decideAt(70, job, endedRow(job, preempted), market).status).toMatchObject({
      phase: "failed",
      reason: "Preempted",
      message: `the cloud preempted ${preempted} VMs, and maxPreemptions is ${maxPreemptions}`,
    })
  })

  test("gets an on-demand VM after three in a row, and says so", () => {
    expect(createdBy(decideAt(70, spotFirst, endedRow(spotFirst, 2), market))?.offer.provisioning).toBe("spot")
    const decision = decideAt(70, spotFirst, endedRow(spotFirst, 3), market)
    const why = "3 spot VMs in a row were preempted, so this job gets on-demand VMs (fallbackAfter is 3)"
    expect(createdBy(decision)?.offer.provisioning).toBe("onDemand")
    expect(decision.status.placement?.reason).toContain(why)
    expect(findCondition(decision.status.conditions, "OnDemandFallback")).toMatchObject({
      status: "True",
      reason: "Preempted",
      message: why,
    })
    expect(decision.events).toContainEqual({ type: "Warning", reason: "OnDemandFallback", message: why })
    expect(decision.status.cost).toMatchObject({ spent: { machineUsd: 0.03 }, spotUsd: 0.03 })
  })

  test("stays on demand, also when that VM is lost and when the records of its VMs are deleted", () => {
    const job = jobOf({ ...spotFirst, status: decideAt(70, spotFirst, endedRow(spotFirst, 3), market).status })
    const loss = { reason: "VMLost", message: "gone", time: time(80) } as const
    const onDemand = launchOf(job, 4, { status: vmStatus({ phase: "terminated", loss, costUsd: 0.3 }) })
    const next = decideAt(90, job, [...endedRow(job, 3), onDemand], market)
    expect(createdBy(next)?.offer.provisioning).toBe("onDemand")
    expect(next.status.cost).toMatchObject({ spent: { machineUsd: 0.33 }, spotUsd: 0.03 })
    expect(createdBy(decideAt(90, job, [], market))?.offer.provisioning).toBe("onDemand")
    expect(next.events.map(({ reason }) => reason)).not.toContain("OnDemandFallback")
  })

  test("takes spot again if no on-demand machine is available", () => {
    const job = jobOf({ spec: { provisioning: "spotFirst", maxHourlyPriceUsd: 0.3 } })
    expect(createdBy(decideAt(70, job, endedRow(job, 3), market))?.offer.provisioning).toBe("spot")
  })

  test("counts only preemptions in a row, by its fallbackAfter", () => {
    const broken = [ended(spotFirst, 1), ended(spotFirst, 2), ended(spotFirst, 3, "VMLost"), ended(spotFirst, 4)]
    expect(createdBy(decideAt(70, spotFirst, broken, market))?.offer.provisioning).toBe("spot")
    const early = jobOf({ spec: { provisioning: "spotFirst", fallbackAfter: 1 } })
    expect(createdBy(decideAt(70, early, endedRow(early, 1), market))?.offer.provisioning).toBe("onDemand")
    const spotOnly = jobOf({ spec: { provisioning: "spot", fallbackAfter: 1 } })
    expect(createdBy(decideAt(70, spotOnly, endedRow(spotOnly, 1), market))?.offer.provisioning).toBe("spot")
  })

  test("has the rest of one timeout over all its VMs", () => {
    const job = jobOf({ spec: { provisioning: "spot", timeoutSeconds: 100 }, status: { startTime: time(0) } })
    const decision = decideAt(70, job, endedRow(job, 5), market)
    expect(createdBy(decision)?.run.timeoutSeconds).toBe(30)
    expect(decideAt(101, job, endedRow(job, 5), market).status.reason).toBe("DeadlineExceeded")
  })
})

describe("a VM's container", () => {
  const volumes = {
    data: { bucket: "b", mountPath: "/data", prefix: "in" },
    ckpt: { bucket: "b", mountPath: "/ckpt", prefix: "/runs/", checkpoint: true },
    more: { bucket: "b", mountPath: "/more", checkpoint: true },
  }
  const runOf = (job: StoredJob, launches: readonly StoredLaunch[] = []) =>
    decideAt(70, job, launches).actions.find((action) => action.do === "createLaunch")?.launch.spec.run

  test("knows its VM, the preemptions before and the folder of its checkpoints", () => {
    const job = jobOf({ spec: { env: { A: "1" }, volumes } })
    const loss = { reason: "Preempted", message: "gone", time: time(60) } as const
    const before = launchOf(job, 1, { status: vmStatus({ phase: "terminated", loss }) })
    expect(runOf(job, [before])?.env).toEqual({
      A: "1",
      BERTH_LAUNCH: "2",
      BERTH_PREEMPTIONS: "1",
      BERTH_CHECKPOINT_DIR: "/ckpt",
    })
  })

  test("keeps the variables that its job sets itself", () => {
    const secretEnv = { BERTH_PREEMPTIONS: { secret: "s", key: "k" } }
    expect(runOf(jobOf({ spec: { env: { BERTH_LAUNCH: "mine" }, secretEnv } }))?.env).toEqual({ BERTH_LAUNCH: "mine" })
  })

  test("has a folder of its own for checkpoints, the same on all VMs", () => {
    const job = jobOf({ spec: { volumes } })
    const { uid } = job.metadata
    const loss = { reason: "Preempted", message: "gone", time: time(60) } as const
    const first = runOf(job)?.volumes
    expect(first?.["data"]?.prefix).toBe("in")
    expect(first?.["ckpt"]?.prefix).toBe(`runs/${uid}/ckpt`)
    expect(first?.["more"]?.prefix).toBe(`${uid}/more`)
    expect(runOf(job, [launchOf(job, 1, { status: vmStatus({ phase: "terminated", loss }) })])?.volumes).toEqual(first)
    expect(runOf(jobOf({ spec: { volumes } }))?.volumes?.["ckpt"]).not.toEqual(first?.["ckpt"])
  })

  test("has the installation's idle limit unless its job has one", () => {
    const idleOf = (spec: object, idleSeconds?: number) => {
      const job = jobOf({ spec })
      const observed = { launches: [], market: () => marketOf({}), ...seenOf(job) }
      const settings = { ...JOB_DEFAULTS, ...(idleSeconds !== undefined && { idleSeconds }) }
      const { actions } = decide(job, observed, at(70), settings)
      return actions.find((action) => action.do === "createLaunch")?.launch.spec.run.idleLimit
    }
    expect(idleOf({})).toBeUndefined()
    expect(idleOf({}, 3600)).toEqual({ seconds: 3600 })
    const none = { idleLimit: { seconds: 2_592_000 } }
    expect(idleOf(none, 3600)).toEqual(none.idleLimit)
  })

  test("has its grace time on top of the timeout before its VM is ended", () => {
    const job = jobOf({ spec: { timeoutSeconds: 100, terminationGraceSeconds: 300 }, status: { phase: "running" } })
    const agent = agentOf({ startTime: time(0) })
    const running = [launchOf(job, 1, { status: vmStatus({ agent }) })]
    expect(decideAt(519, job, running).status.phase).toBe("running")
    expect(decideAt(521, job, running).status.reason).toBe("DeadlineExceeded")
    const { launch } = decideAt(0, job).actions.find((action) => action.do === "createLaunch") ?? {}
    expect(launch?.spec.lifetimeSeconds).toBe(900 + 1800 + 100 + 600 + 300)
  })
})

describe("a job that settles", () => {
  const ended = { phase: "succeeded", completionTime: time(60), launches: { count: 1 } } as const
  const over = vmStatus({ phase: "terminated", costUsd: 0.5 })

  test("loses its finalizer before the status with its final cost", () => {
    const job = jobOf({ status: ended })
    const { actions, status } = decideAt(70, job, [launchOf(job, 1, { status: over })])
    expect(actions).toEqual([
      { do: "release", next: 2 },
      { do: "writeStatus", status },
    ])
    expect(status).toMatchObject({ settled: true, cost: { actualUsd: 0.5 } })
    const crashed = jobOf({ metadata: { ...job.metadata, finalizers: [] }, status: ended })
    expect(acts(decideAt(70, crashed, [launchOf(crashed, 1, { status: over })]))).toEqual(["writeStatus"])
  })

  test("keeps its finalizer while a VM is left", () => {
    const job = jobOf({ status: ended })
    const decision = decideAt(70, job, [launchOf(job, 1, { status: vmStatus() })])
    expect([acts(decision), decision.status.settled]).toEqual([["writeStatus", "endLaunch"], undefined])
  })

  test("is recorded without a finalizer if it ends before its adoption", () => {
    const job = jobOf({ spec: { cancelled: true, labels: { a: "b" } }, metadata: { finalizers: [], annotations: {} } })
    const { actions } = decideAt(70, job)
    expect(actions).toMatchObject([{ do: "release", next: 1, labels: { a: "b" } }, { do: "writeStatus" }])
  })

  test("stays unsettled, whatever its TTL, until all readers have seen its end", () => {
    const job = jobOf({ spec: { ttlSecondsAfterFinished: 10 }, status: ended })
    const waiting = decideAt(70, job, [launchOf(job, 1, { status: over })], {}, { isEndAwaited: true })
    expect([acts(waiting), waiting.status.settled]).toEqual([["writeStatus"], undefined])
    const current = jobOf({ ...job, status: waiting.status })
    expect(acts(decideAt(9000, current, [], {}, { isEndAwaited: true }))).toEqual([])
    const seen = decideAt(9000, current, [], {}, { isEndAwaited: false })
    expect([acts(seen), seen.status.settled]).toEqual([["release", "writeStatus"], true])
  })

  test("is not settled before its end can be seen, if it ends without a VM", () => {
    const job = jobOf({ spec: { cancelled: true } })
    const decision = decideAt(70, job, [], {}, { isEndAwaited: true })
    expect([acts(decision), decision.status.settled]).toEqual([["writeStatus"], undefined])
  })
})

describe("a cancel", () => {
  const finished = agentOf({ startTime: time(30), finish: { reason: "Succeeded", time: time(60) } })

  test.each<[string, JobStatus | undefined]>([
    ["new", undefined],
    ["queued", { phase: "queued" }],
    ["booting", booting],
    ["running", { phase: "running" }],
  ])("ends a %s job", (_, status) => {
    const job = jobOf({ spec: { cancelled: true }, ...(status && { status }) })
    const launches =
      status?.phase === "booting" || status?.phase === "running" ? [launchOf(job, 1, { status: vmStatus() })] : []
    const decision = decideAt(61, job, launches)
    expect(decision.status).toMatchObject({ phase: "cancelled", reason: "Cancelled" })
    expect(acts(decision)).toEqual(launches.length > 0 ? ["writeStatus", "endLaunch"] : ["release", "writeStatus"])
    expect(decision.status.settled).toBe(launches.length > 0 ? undefined : true)
    expect(truth(decision.status)).toMatchObject({
      Failed: "True",
      Stalled: "True",
      Ready: "False",
      Reconciling: "False",
    })
  })

  test("overrides an exit report that came before the decision", () => {
    const job = jobOf({ spec: { cancelled: true }, status: { phase: "running" } })
    const launch = launchOf(job, 1, { status: vmStatus({ agent: finished }) })
    expect(decideAt(61, job, [launch]).status.phase).toBe("cancelled")
  })

  test("changes nothing of a job that has ended", () => {
    const job = jobOf({ spec: { cancelled: true }, status: { phase: "succeeded", completionTime: time(60) } })
    expect(decideAt(61, job, []).status.phase).toBe("succeeded")
  })
})

describe("a job with maxQueueSeconds", () => {
  const limited = (status: JobStatus) => jobOf({ spec: { maxQueueSeconds: 600 }, status })
  const limit = "the container did not start within its maxQueueSeconds of 600 s. The last reason was "

  test("waits until then, and looks again in time", () => {
    const decision = decideAt(590, limited({ phase: "queued", reason: "NoCapacity", message: "full" }), [], {
      launchAccounts: [],
    })
    expect(decision).toMatchObject({ status: { phase: "queued" }, requeueAfter: 11 })
  })

  test("fails with the last reason, without a VM", () => {
    const decision = decideAt(600, limited({ phase: "queued", reason: "NoCapacity", message: "no offer has capacity" }))
    expect(acts(decision)).not.toContain("createLaunch")
    expect(decision.status).toMatchObject({
      ...{ phase: "failed", reason: "QueueDeadlineExceeded", settled: true },
      message: `${limit}NoCapacity: no offer has capacity`,
    })
  })

  test("ends a VM that boots before the job's end is written: a start that was reported since wins", () => {
    const job = limited({ phase: "booting", reason: "Booting", message: "launch 1" })
    const registered = launchOf(job, 1, { status: vmStatus({ agent: agentOf() }) })
    expect(decideAt(599, job, [registered])).toMatchObject({ status: { phase: "booting" }, requeueAfter: 2 })
    const decision = decideAt(600, job, [registered])
    expect(acts(decision)).toEqual(["endLaunch", "writeStatus"])
    expect(decision.status).toMatchObject({ phase: "failed", reason: "QueueDeadlineExceeded" })
    // An operator that crashed between the two ends the job too. The machine is not blamed.
    const ended = launchOf(job, 1, { spec: { ended: true }, status: vmStatus({ agent: agentOf() }) })
    const { status } = decideAt(610, job, [ended])
    expect(status).toMatchObject({ phase: "failed", reason: "QueueDeadlineExceeded" })
    expect(status.refusedOffers).toBeUndefined()
  })

  test("is not ended once its container has started, also after a preemption", () => {
    const job = limited({ phase: "running", reason: "Started", message: "m", startTime: time(500) })
    const running = launchOf(job, 1, { status: vmStatus({ agent: agentOf({ startTime: time(500) }) }) })
    expect(decideAt(900, limited(booting), [running]).status.phase).toBe("running")
    const loss = { reason: "Preempted" as const, message: "taken", time: time(800) }
    const preempted = launchOf(job, 1, { status: vmStatus({ phase: "terminated", loss }) })
    expect(acts(decideAt(900, job, [preempted]))).toContain("createLaunch")
  })

  test("measures the wait by the monotonic clock", () => {
    const waiting = limited({ phase: "queued", reason: "Queued", message: "m" })
    expect(decideAt(7200, waiting, [], {}, { queueSeconds: 10 }).status.phase).toBe("booting")
  })
})

describe("a job with maxCostUsd", () => {
  test("gets a VM that ends itself before it costs more", () => {
    const decision = decideAt(0, jobOf({ spec: { maxCostUsd: 0.6 } }))
    const { launch } = decision.actions.find((action) => action.do === "createLaunch") ?? {}
    expect(launch?.spec).toMatchObject({ bootDeadlineSeconds: 300, budgetSeconds: 3240, lifetimeSeconds: 3330 })
  })

  test("gives the next VM what is left", () => {
    const job = jobOf({ spec: { maxCostUsd: 0.6 } })
    const loss = { reason: "VMLost" as const, message: "gone", time: time(1800) }
    const lost = launchOf(job, 1, { status: vmStatus({ phase: "terminated", loss, costUsd: 0.3 }) })
    const { launch } = decideAt(1900, job, [lost]).actions.find((action) => action.do === "createLaunch") ?? {}
    expect(launch?.spec.budgetSeconds).toBe(1800 - 360)
  })

  test("fails if too little is left for a VM", () => {
    const job = jobOf({ spec: { maxCostUsd: 0.6 } })
    const loss = { reason: "VMLost" as const, message: "gone", time: time(1800) }
    const lost = launchOf(job, 1, { status: vmStatus({ phase: "terminated", loss, costUsd: 0.55 }) })
    const { status, actions } = decideAt(1900, job, [lost])
    expect(status).toMatchObject({
      phase: "failed",
      reason: "BudgetExceeded",
      message: expect.stringContaining(
        "$0.05 of maxCostUsd $0.6 is left, and the cheapest of 3 matching offers costs $0.07 for the shortest time",
      ),
    })
    expect(truth(status)).toMatchObject({ Failed: "True" })
    expect(actions.map((action) => action.do)).not.toContain("createLaunch")
  })

  test("fails when its agent ends the container, and when a VM that booted late reaches its limit", () => {
    const job = jobOf({ spec: { maxCostUsd: 0.6 }, status: { phase: "running" } })
    const run = (agent: Partial<AgentStatus>) =>
      launchOf(job, 1, { spec: { budgetSeconds: 3240 }, status: vmStatus({ agent: agentOf(agent) }) })
    const finish = { reason: "BudgetExceeded" as const, time: time(3300) }
    const failed = { phase: "failed", reason: "BudgetExceeded" }
    expect(decideAt(3301, job, [run({ startTime: time(30), finish })]).status).toMatchObject(failed)
    const late = run({ startTime: time(800) })
    const since = Date.parse(late.status?.vm?.createTime ?? "") / 1000 - at(0).getTime() / 1000
    expect(decideAt(since + 3419, job, [late]).status.phase).toBe("running")
    const decision = decideAt(since + 3420, job, [late])
    expect(decision.status).toMatchObject(failed)
    expect(acts(decision)).toContain("endLaunch")
  })
})

describe("a job after its end", () => {
  const ended: JobStatus = {
    phase: "succeeded",
    completionTime: time(60),
    launches: { count: 1 },
    vm: { state: "terminating", id: "vm-1" },
  }

  test("is followed until the VM is deleted, then its cost is final", () => {
    const job = jobOf({ status: { ...ended, launches: { count: 1, current: "x" } } })
    const named = jobOf({ ...job, status: { ...ended, launches: { count: 1, current: `${job.metadata.uid}-1` } } })
    const vm = { state: "terminated" as const, id: "vm-1", terminationTime: time(70) }
    const over = launchOf(job, 1, { status: vmStatus({ phase: "terminated", vm, costUsd: 0.011 }) })
    const decision = decideAt(71, named, [over])
    expect(decision.status).toMatchObject({
      phase: "succeeded",
      vm: { state: "terminated" },
      credentials: "revoked",
      cost: { actualUsd: 0.011 },
    })
    expect(decision.events).toEqual([])
  })

  test("has the cost of all its VMs by part", () => {
    const cost = { machineUsd: 0.01, diskUsd: 0.001, addressUsd: 0.0001 }
    const over = (number: number, changes: LaunchStatus) =>
      launchOf(jobOf(), number, { status: vmStatus({ phase: "terminated", ...changes }) })
    const launches = [
      over(1, { costUsd: 0.5, cost: { machineUsd: 0.5, diskUsd: 0, addressUsd: 0 } }),
      over(2, { costUsd: 0.0111, cost }),
    ]
    expect(decideAt(71, jobOf({ status: ended }), launches).status.cost).toMatchObject({
      actualUsd: 0.5111,
      spent: { machineUsd: 0.51, diskUsd: 0.001, addressUsd: 0.0001 },
    })
  })

  test("ends a Launch that appears late", () => {
    const job = jobOf({ status: { ...ended, phase: "cancelled" } })
    expect(acts(decideAt(71, job, [launchOf(job)]))).toContain("endLaunch")
  })
})

describe("the conditions of a job", () => {
  const why = "cheapest of 3"
  const running = (): [StoredJob, StoredLaunch] => {
    const placement = { offer: offerOf(), reason: why }
    const status = { ...booting, placement, launches: { count: 1 } }
    const job = jobOf({ status })
    const current = { ...status, launches: { count: 1, current: `${job.metadata.uid}-1` } }
    const agent = agentOf({ startTime: time(30) })
    return [jobOf({ ...job, status: current }), launchOf(job, 1, { status: vmStatus({ agent }) })]
  }

  test("do not repeat the explanation of the choice, and only kstatus' conditions repeat that of the phase", () => {
    const created = decideAt(0, jobOf()).status
    const reason = created.placement?.reason ?? "?"
    const saying = created.conditions?.filter(({ message }) => message.includes(reason)).map(({ type }) => type)
    expect(saying).toEqual(["Ready", "Reconciling"])
    const [job, launch] = running()
    expect(JSON.stringify(decideAt(31, job, [launch]).status.conditions)).not.toContain(why)
  })
})

describe("a job with prerequisites", () => {
  const job = jobOf({ spec: { after: [{ job: "prepare" }] } })
  const prerequisite = { job: "prepare" }

  test("is not placed before its status has all outcomes", () => {
    const met = { states: [{ prerequisite, uid: "u", outcome: "succeeded" }] } as const
    const written = decideAt(1, job, [], {}, { prerequisites: met })
    expect(acts(written)).toEqual(["writeStatus"])
    expect(written.status).toMatchObject({
      ...{ phase: "queued", reason: "Queued", after: [{ job: "prepare", uid: "u", outcome: "succeeded" }] },
    })
    const placed = decideAt(2, { ...job, status: written.status }, [], {}, { prerequisites: met })
    expect(acts(placed)).toContain("createLaunch")
  })

  test("looks again for a missing one, and waits for an event of another", () => {
    const missing = { reason: "JobMissing", message: "m" } as const
    const delay = (obstacle: NonNullable<JobObservation["prerequisites"]>["obstacle"]) =>
      decideAt(1, job, [], {}, { prerequisites: { states: [{ prerequisite }], ...(obstacle && { obstacle }) } })
        .requeueAfter
    expect(delay(missing)).toBe(60)
    expect(delay({ reason: "WaitsForJob", message: "m" })).toBeUndefined()
  })
})

describe("a deleted job", () => {
  const metadata = { deletionTimestamp: time(50) }

  test("ends its VMs first, then drops its finalizer", () => {
    const job = jobOf({ metadata, status: booting })
    const launch = launchOf(job, 1, { status: vmStatus() })
    expect(acts(decideAt(51, job, [launch]))).toEqual(["endLaunch"])
    const ending = launchOf(job, 1, { spec: { ended: true }, status: vmStatus() })
    expect(acts(decideAt(51, job, [ending]))).toEqual([])
    const over = launchOf(job, 1, { status: vmStatus({ phase: "terminated" }) })
    expect(acts(decideAt(51, job, [over]))).toEqual(["dropFinalizer"])
  })

  test("stays until what waits for it has its outcome, if it has one", () => {
    const awaited = { isOutcomeAwaited: true }
    const ended = jobOf({ metadata, status: { phase: "succeeded" } })
    expect(acts(decideAt(51, ended, [], {}, awaited))).toEqual([])
    expect(acts(decideAt(51, ended))).toEqual(["dropFinalizer"])
    const cut = jobOf({ metadata, status: { phase: "queued" } })
    expect(acts(decideAt(51, cut, [], {}, awaited))).toEqual(["dropFinalizer"])
  })
})

const VOLUMES: NonNullable<JobSpec["volumes"]> = {
  data: { bucket: "cargo", mountPath: "/data" },
  out: { bucket: "logs", mountPath: "/out", connection: "mine", prefix: "a" },
}

/** Returns a search that finds these buckets and records its arguments. */
function bucketsWith(states: Record<string, BucketState>): Buckets & { searched: string[] } {
  const searched: string[] = []
  const find: Buckets["find"] = (namespace, bucket, connection) => {
    searched.push([namespace, bucket, ...(connection === undefined ? [] : [connection])].join(" "))
    return states[bucket] ?? { state: "looking" }
  }
  return { find, whenFound: async (...args) => find(...args), searched }
}

const CARGO: BucketState = { state: "reached", connection: "aws", type: "aws", region: "eu-west-1" }
const LOGS: BucketState = { state: "reached", connection: "mine", type: "cloudflare" }

function decideWith(job: StoredJob, states: Record<string, BucketState>, market: Partial<Market> = {}) {
  const volumes = findVolumes(job, bucketsWith(states))
  const observed = { launches: [], market: () => marketOf(market), ...seenOf(job) }
  return decide(job, { ...observed, ...(volumes && { volumes }) }, at(0), JOB_DEFAULTS)
}

describe("a job with volumes", () => {
  const job = jobOf({ spec: { volumes: VOLUMES } })

  test("is launched with the connections that reach its buckets, as its status shows", () => {
    const { actions, status } = decideWith(job, { cargo: CARGO, logs: LOGS })
    const created = actions.find((action) => action.do === "createLaunch")
    expect(created?.do === "createLaunch" && created.launch.spec.run.volumes).toEqual({
      data: { bucket: "cargo", mountPath: "/data", connection: "aws" },
      out: { bucket: "logs", mountPath: "/out", connection: "mine", prefix: "a" },
    })
    expect(status.volumes).toEqual({ data: { connection: "aws", region: "eu-west-1" }, out: { connection: "mine" } })
  })

  test("waits during the search for its buckets, and checks again soon", () => {
    const { actions, status, requeueAfter } = decideWith(job, { logs: LOGS })
    expect(actions.map((action) => action.do)).not.toContain("createLaunch")
    expect(status).toMatchObject({ phase: "queued", reason: "Queued" })
    expect(status.message).toBe("looking for the connection that gives access to cargo")
    expect(requeueAfter).toBe(1)
  })

  test("waits for access to a bucket, and names the bucket, the cause and the remedy", () => {
    const why = "aws: no such bucket, or no access to it"
    const decision = decideWith(job, { cargo: CARGO, logs: { state: "notReached", why } })
    const message =
      `volume out: bucket logs: connection mine has no access (${why}); ` +
      "correct the bucket or give a connection access to it"
    expect(decision.status).toMatchObject({ phase: "queued", reason: "BucketNotReached", message })
    expect(findCondition(decision.status.conditions, "Placed")).toMatchObject({
      status: "False",
      reason: "BucketNotReached",
    })
    expect(decision.events).toEqual([{ type: "Warning", reason: "BucketNotReached", message }])
    expect(decision.requeueAfter).toBe(60)
    expect(decideWith(job, { cargo: { state: "notReached", why } }).status.message).toContain(
      "volume data: bucket cargo: no connection of the project has access",
    )
  })

  test("is placed near its bucket if transfer costs more than the cheaper offer saves", () => {
    const near = offerOf({ cloud: "aws", region: "eu-west-1", hourlyPriceUsd: 1 })
    const far = offerOf({ cloud: "aws", region: "us-east-1", hourlyPriceUsd: 0.95 })
    const offers = createCatalogue([near, far])
    const market = { offers, launchAccounts: [{ cloud: "aws" }] }
    const one = jobOf({ spec: { volumes: { data: { bucket: "cargo", mountPath: "/data" } } } })
    expect(decideWith(one, { cargo: CARGO }, market).status.placement?.offer.region).toBe("eu-west-1")
    expect(decideWith(jobOf({}), {}, market).status.placement?.offer.region).toBe("us-east-1")
  })

  test("has a plan that shows the result", async () => {
    const near = offerOf({ cloud: "aws", region: "eu-west-1", hourlyPriceUsd: 1 })
    const far = offerOf({ cloud: "aws", region: "us-east-1", hourlyPriceUsd: 0.95 })
    const market = { offers: createCatalogue([near, far]), launchAccounts: [{ cloud: "aws" }] }
    const caches = {
      jobs: { store: new IndexedStore<StoredJob>() },
      launches: { store: new IndexedStore(launchIndexes) },
      statements: { store: { list: () => [], byIndex: () => [] } },
    }
    const sources = { ...caches, offers: fixedOffers([near, far]), launchAccounts: { of: () => market.launchAccounts } }
    const clock = { ...systemClock, now: () => at(0) }
    const lost: BucketState = { state: "notReached", why: "aws: no such bucket, or no access to it" }
    const situations: Record<string, BucketState>[] = [{ cargo: CARGO, logs: LOGS }, { cargo: CARGO }, { logs: lost }]
    for (const states of situations) {
      const plan = jobPlanner({ ...sources, clock, buckets: bucketsWith(states), nextTurn: async () => undefined })
      const { reason, message, placements } = await plan("team", job.spec)
      const { status } = decideWith(job, states, market)
      const placed = findCondition(status.conditions, "Placed")
      expect([placed?.reason, status.placement?.reason ?? placed?.message]).toEqual([reason, message])
      // The plan of a job that waits has the machines that it gets later.
      if (status.phase !== "queued") expect(placements[0]?.offer).toEqual(status.placement?.offer)
      else expect(placements[0]?.offer).toEqual(far)
    }
  })

  test("searches no account while it runs or without volumes, and after a crash uses its Launch's connections", () => {
    const buckets = bucketsWith({})
    expect(findVolumes(jobOf({ spec: { volumes: VOLUMES }, status: { phase: "running" } }), buckets)?.kind).toBe(
      "looking",
    )
    expect(findVolumes(jobOf({}), buckets)).toBeUndefined()
    expect(buckets.searched).toEqual([])
    findVolumes(job, buckets)
    expect(buckets.searched).toEqual([`${job.metadata.namespace} cargo`, `${job.metadata.namespace} logs mine`])

    const launch = launchOf(job, 1, { status: vmStatus() })
    launch.spec.run = {
      ...launch.spec.run,
      volumes: { data: { bucket: "cargo", mountPath: "/data", connection: "aws" } },
    }
    const observed = { launches: [launch], market: () => marketOf({}), ...seenOf(job) }
    expect(decide(job, observed, at(0), JOB_DEFAULTS).status.volumes).toEqual({ data: { connection: "aws" } })
  })
})
