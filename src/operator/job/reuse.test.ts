import { describe, expect, test } from "vitest"
import {
  agentOf,
  at,
  jobOf,
  launchOf,
  levelOf,
  marketOf,
  offerOf,
  seenOf,
  time,
  vmStatus,
} from "../../../test/harness/builders.ts"
import type { JobStatus, StoredJob } from "../../core/apis/job.ts"
import type { AgentStatus, Finish, LaunchSpec, LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { LABELS } from "../../core/apis/meta.ts"
import type { Market } from "../../market/placement/market.ts"
import { JOB_DEFAULTS } from "../../market/placement/settings.ts"
import { createCatalogue } from "../../market/router/catalogue.ts"
import { decide } from "./decide.ts"

const REUSE = { idleSeconds: 300 }
const SUCCEEDED: Finish = { reason: "Succeeded", exitCode: 0, time: time(100) }
const FAILED: Finish = { reason: "ContainerFailed", exitCode: 1, time: time(100) }

function reusing(name = "train", changes: Parameters<typeof jobOf>[0] = {}): StoredJob {
  const metadata = { name, uid: name, finalizers: ["berth.dev/job"], ...changes.metadata }
  return jobOf({ ...changes, metadata, spec: { reuse: REUSE, ...changes.spec } })
}

function launched(
  job: StoredJob,
  {
    finish = SUCCEEDED,
    agent = {},
    spec = {},
    status = {},
  }: { finish?: Finish; agent?: Partial<AgentStatus>; spec?: Partial<LaunchSpec>; status?: LaunchStatus } = {},
): StoredLaunch {
  return launchOf(job, 1, {
    spec: { run: { image: "busybox", reuse: REUSE }, vmLifetimeSeconds: 91_800, ...spec },
    status: vmStatus({ agent: agentOf({ startTime: time(30), finish, ...agent }), ...status }),
  })
}

function decideOn(job: StoredJob, launches: readonly StoredLaunch[], market: Partial<Market> = {}, byDefault = {}) {
  const observed = { launches, market: () => marketOf(market), ...seenOf(job) }
  return decide(job, observed, at(200), { ...JOB_DEFAULTS, ...byDefault })
}

const running: JobStatus = { phase: "running", reason: "Started", message: "m", startTime: time(30) }

describe("the VM of a job that has ended", () => {
  test.each([
    ["waits", SUCCEEDED, "succeeded"],
    ["waits also after a failure", FAILED, "failed"],
  ])("%s for another job, and the job is not settled", (_, finish, phase) => {
    const decision = decideOn(reusing("a", { status: running }), [launched(reusing("a"), { finish })])
    expect(decision.actions.map(({ do: what }) => what)).toEqual(["writeStatus"])
    expect(decision.status).toMatchObject({ phase, vm: { state: "running" } })
    const ended = reusing("a", { status: decision.status })
    const idle = launched(ended, { finish, agent: { idleTime: time(110) } })
    expect(decideOn(ended, [idle]).actions).toEqual([])
    expect(decideOn(ended, [idle]).status.settled).toBeUndefined()
  })

  test("settles the job at the takeover, with the cost of its idle time", () => {
    const status = { ...running, phase: "succeeded", completionTime: time(100) } as const
    const over = launched(reusing("a"), {
      agent: { idleTime: time(110) },
      status: {
        phase: "handedOver",
        handedTo: "b-1",
        costUsd: 0.03,
        idleUsd: 0.01,
        cost: { machineUsd: 0.03, diskUsd: 0, addressUsd: 0 },
      },
    })
    const { cost } = decideOn(reusing("a", { status }), [over]).status
    expect(cost).toMatchObject({ actualUsd: 0.03, idleUsd: 0.01 })
    // The record of the Launch is deleted after a time.
    expect(decideOn(reusing("a", { status: { ...status, ...(cost && { cost }) } }), []).status.cost).toEqual(cost)
  })

  test("ends with its job's deletion", () => {
    const job = reusing("a", {
      metadata: { deletionTimestamp: time(150) },
      status: { ...running, phase: "succeeded" },
    })
    const { actions } = decideOn(job, [launched(job, { agent: { idleTime: time(110) } })])
    expect(actions).toMatchObject([{ do: "endLaunch" }])
  })

  test("ends others that are too many for a cap, once it waits itself", () => {
    const job = reusing("a", { status: { ...running, phase: "succeeded" } })
    const older = launched(reusing("old"), { agent: { idleTime: time(50) } })
    const endedBy = (launch: StoredLaunch) => {
      const observed = {
        ...{ launches: [launch], ...seenOf(job) },
        ...{ market: () => marketOf({}), surplusIdle: () => [older] },
      }
      return decide(job, observed, at(200), JOB_DEFAULTS).actions.filter((action) => action.do === "endLaunch")
    }
    expect(endedBy(launched(job))).toEqual([])
    expect(endedBy(launched(job, { agent: { idleTime: time(110) } }))).toMatchObject([{ launch: older }])
  })

  test("ends if the job gets a new VM, which waits for that", () => {
    const retryRules = [{ action: "newVm" as const, limit: 1 }]
    const job = reusing("a", { spec: { retryRules }, status: running })
    const { actions, status } = decideOn(job, [launched(job, { finish: FAILED })])
    expect(status).toMatchObject({ phase: "queued", reason: "Retrying" })
    expect(actions).toMatchObject([{ do: "endLaunch" }, { do: "writeStatus" }])
  })
})

describe("a job on an idle VM", () => {
  const holder = launched(reusing("a"), {
    agent: { idleTime: time(110) },
    spec: { offer: offerOf({ hourlyPriceUsd: 0.5 }), hourlyPrices: { machineUsd: 0.5, diskUsd: 0.1, addressUsd: 0 } },
  })

  function launchFor(spec: StoredJob["spec"] | object, market: Partial<Market> = {}, kept = [holder]) {
    const { actions } = decideOn(reusing("b", { spec }), [], { kept, ...market })
    return actions.find((action) => action.do === "createLaunch")?.launch
  }

  test("has a Launch that takes over the VM as it is", () => {
    const launch = launchFor({ timeoutSeconds: 600 })
    expect(launch?.metadata.labels).toMatchObject({ [LABELS.rootLaunch]: "a-1" })
    expect(launch?.spec).toMatchObject({
      ...{ takesOver: "a-1", root: "a-1", vmLifetimeSeconds: 91_800, bootDeadlineSeconds: 60 },
      ...{ offer: holder.spec.offer, hourlyPrices: holder.spec.hourlyPrices, run: { reuse: REUSE } },
    })
    const third = { ...holder, metadata: { ...holder.metadata, name: "b-1" }, spec: { ...holder.spec, root: "a-1" } }
    expect(launchFor({ timeoutSeconds: 600 }, {}, [third])?.spec).toMatchObject({ takesOver: "b-1", root: "a-1" })
  })

  test("gets a new VM for later jobs too, if there is none, whose timer is a day longer", () => {
    const spec = launchFor({ timeoutSeconds: 600 }, {}, [])?.spec
    expect(spec?.takesOver).toBeUndefined()
    expect(spec?.vmLifetimeSeconds).toBe((spec?.lifetimeSeconds ?? 0) + 86_400)
  })

  test.each([
    ["of another agent image", { agentImage: "registry/berth:old" }],
    ["that reports to another gateway", { gatewayUrl: "https://elsewhere.test" }],
  ])("takes no VM %s", (_, spec) => {
    const other = { ...holder, spec: { ...holder.spec, ...spec } }
    expect(launchFor({ timeoutSeconds: 600 }, {}, [other])?.spec.takesOver).toBeUndefined()
  })

  test("under a strict cap has a VM that is not kept", () => {
    const levels = [levelOf({ maxMonthlyUsd: 100, reserve: "strict" })]
    const spec = launchFor({ timeoutSeconds: 600 }, { levels })?.spec
    expect(spec?.run.reuse).toBeUndefined()
    expect(spec?.vmLifetimeSeconds).toBeUndefined()
  })

  test.each([
    [0, undefined],
    [1, REUSE],
  ])("under a cap of %i idle VMs has a VM that is kept for: %o", (maxIdleVms, reuse) => {
    const launch = launchFor({ timeoutSeconds: 600 }, { levels: [levelOf({}), levelOf({ maxIdleVms })] })
    expect(launch?.spec.run.reuse).toEqual(reuse)
    expect(launch?.spec.takesOver).toBe(reuse && "a-1")
  })

  test("is placed again after a lost takeover, which counts toward no limit", () => {
    const job = reusing("b", { status: { phase: "booting", reason: "Booting", message: "m" } })
    const lost = (number: number) =>
      launchOf(job, number, { spec: { takesOver: "a-1", root: "a-1" }, status: { phase: "terminated", costUsd: 0 } })
    const { actions, status } = decideOn(job, [1, 2, 3, 4, 5, 6].map(lost))
    expect(status.phase).toBe("booting")
    expect(actions).toMatchObject([{ do: "createLaunch", launch: { spec: { number: 7 } } }, { do: "writeStatus" }])
  })

  test("waits while the VM whose agent never came is terminated", () => {
    const job = reusing("b", { status: { phase: "booting", reason: "Booting", message: "m" } })
    const overdue = launchOf(job, 1, { spec: { takesOver: "a-1", root: "a-1", ended: true }, status: vmStatus() })
    expect(decideOn(job, [overdue]).status).toMatchObject({ phase: "queued", reason: "TakeoverLost" })
  })
})

describe("where the installation has a default of reuse", () => {
  const byDefault = { reuseIdleSeconds: 300 }
  const spotOf = (cloud: string) => ({
    offers: createCatalogue([offerOf({ cloud, provisioning: "spot" })]),
    launchAccounts: [{ cloud }],
  })

  test.each<[string, Partial<StoredJob["spec"]>, Partial<Market>, object | undefined]>([
    ["says nothing has the default", {}, {}, REUSE],
    ["has a reuse keeps it", { reuse: { idleSeconds: 9, key: "a" } }, {}, { idleSeconds: 9, key: "a" }],
    ["wants a VM of its own gets one", { reuse: { idleSeconds: 0 } }, {}, undefined],
    ["has maxCostUsd gets a VM of its own", { maxCostUsd: 50 }, {}, undefined],
    [
      "is under a strict cap gets a VM of its own",
      {},
      { levels: [levelOf({ maxMonthlyUsd: 100, reserve: "strict" })] },
      undefined,
    ],
    ["gets a spot VM of AWS has it for itself", { provisioning: "spot" }, spotOf("aws"), undefined],
    ["gets a spot VM of another cloud has the default", { provisioning: "spot" }, spotOf("gcp"), REUSE],
  ])("a job that %s", (_, spec, market, reuse) => {
    const job = jobOf({ metadata: { finalizers: ["berth.dev/job"] }, spec: { timeoutSeconds: 600, ...spec } })
    const { actions } = decideOn(job, [], market, byDefault)
    const [created] = actions.filter((action) => action.do === "createLaunch")
    expect(created?.launch.spec.run.reuse).toEqual(reuse)
    expect(created?.launch.spec.vmLifetimeSeconds !== undefined).toBe(reuse !== undefined)
  })

  test("a job without reuse takes over an idle VM", () => {
    const idle = launched(reusing("a"), { agent: { idleTime: time(110) } })
    const job = jobOf({ metadata: { finalizers: ["berth.dev/job"] }, spec: { timeoutSeconds: 600 } })
    const { actions } = decideOn(job, [], { kept: [idle] }, byDefault)
    expect(actions).toMatchObject([{ launch: { spec: { takesOver: idle.metadata.name } } }])
  })
})

test("a job that waits for room under caps ends the VM that has been idle for the longest time", () => {
  const idle = (name: string, since: number) => launched(reusing(name), { agent: { idleTime: time(since) } })
  const kept = [idle("new", 180), idle("old", 110)]
  const level = levelOf({ maxVms: 2 }, { vms: 2, hourlyUsd: 1.2 })
  const { actions, status } = decideOn(jobOf({ metadata: { uid: "w" } }), [], { kept, levels: [level] })
  expect(status).toMatchObject({ phase: "queued", reason: "CapReached" })
  expect(actions.filter((action) => action.do === "endLaunch")).toMatchObject([
    { launch: { spec: { job: { name: "old" } } } },
  ])
})

test("a job that waits for its concurrency group ends no idle VM", () => {
  const kept = [launched(reusing("idle"), { agent: { idleTime: time(110) } })]
  const group = { name: "db", limit: 1, members: ["other"] }
  const { actions, status } = decideOn(jobOf({ metadata: { uid: "w" } }), [], { kept, group })
  expect(status).toMatchObject({ phase: "queued", reason: "GroupFull" })
  expect(actions.filter((action) => action.do === "endLaunch")).toEqual([])
})
