import { describe, expect, test } from "vitest"
import { findCondition } from "../../src/apis/conditions.ts"
import type { JobPhase } from "../../src/apis/job.ts"
import { isOver } from "../../src/apis/launch.ts"
import { TransientError } from "../../src/cloud/errors.ts"
import { isNotFound } from "../../src/kube/errors.ts"
import { eventually } from "../cloud/eventually.ts"
import { kubectl } from "../control-plane.ts"
import { inParallel } from "../in-parallel.ts"
import { type Stage, stages } from "./harness.ts"

const newStage = stages()

/** Waits for the job's phase, and returns the job. */
function inPhase(stage: Stage, name: string, phase: JobPhase) {
  return eventually(async () => {
    const job = await stage.job(name)
    expect(job.status?.phase, job.status?.message).toBe(phase)
    return job
  })
}

/** Waits until the job is settled: ended, its VMs gone, its cost final. */
function settled(stage: Stage, name: string, phase: JobPhase) {
  return eventually(async () => {
    const job = await stage.job(name)
    expect(job.status?.phase, job.status?.message).toBe(phase)
    expect(job.status?.cost?.actualUsd).toBeDefined()
    expect(stage.cloud.alive).toEqual([])
    return job
  })
}

/** Waits for a Launch with a VM; not one of those that were seen before. */
function liveLaunch(stage: Stage, not: readonly string[] = []): Promise<string> {
  return eventually(async () => {
    const { name } = (await stage.liveLaunch()).metadata
    expect(not).not.toContain(name)
    return name
  })
}

async function started(stage: Stage, not: readonly string[] = []): Promise<string> {
  const launch = await liveLaunch(stage, not)
  await stage.register(launch)
  await stage.start(launch)
  return launch
}

function expectOneVmPerLaunch(stage: Stage): void {
  expect(stage.cloud.breaches).toEqual([])
  const launches = stage.cloud.vms.map(({ vm }) => vm.launch)
  expect(new Set(launches).size).toBe(launches.length)
}

describe("a job's life", () => {
  test("success: phases, times, cost, credentials and the story in its events", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.submit("hello", { labels: { team: "a" } })
    const launch = await liveLaunch(stage)
    const booting = await inPhase(stage, "hello", "booting")
    expect(booting.metadata).toMatchObject({ labels: { team: "a" }, finalizers: ["berth.dev/job"] })
    expect(booting.status).toMatchObject({ observedGeneration: 1, credentials: "issued", cost: { estimatedUsd: 0.6 } })
    await stage.register(launch)
    await eventually(async () => expect((await stage.job("hello")).status?.credentials).toBe("delivered"))
    await stage.start(launch)
    const running = await inPhase(stage, "hello", "running")
    expect(findCondition(running.status?.conditions, "Ready")).toMatchObject({ status: "True", observedGeneration: 1 })
    await stage.finish(launch, "Succeeded")
    await kubectl(["-n", stage.namespace, "wait", "--for=condition=Complete", "bj/hello", "--timeout=120s"])
    const job = await settled(stage, "hello", "succeeded")
    expect(job.status).toMatchObject({
      reason: "Succeeded",
      credentials: "revoked",
      vm: { state: "terminated", id: "vm-1" },
      launches: { count: 1, billed: 1, lost: 0 },
      cost: { actualUsd: 0.01 },
    })
    expect(job.status?.startTime).toBeDefined()
    await eventually(async () =>
      // Within one second events have no order but their names'.
      expect((await stage.eventReasons("hello")).sort()).toEqual([
        "Booting",
        "Placed",
        "Started",
        "Succeeded",
        "VMTerminated",
      ]),
    )
    expectOneVmPerLaunch(stage)
  })

  test("retries in the VM are counted, and the last failure ends the job", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.submit("flaky", { maxRetries: 1 })
    const launch = await started(stage)
    await stage.report(launch, () => ({ retryCount: 1, lastExitCode: 7 }))
    await eventually(async () =>
      expect((await stage.job("flaky")).status).toMatchObject({ phase: "running", retryCount: 1 }),
    )
    await stage.finish(launch, "ContainerFailed", 9)
    const job = await settled(stage, "flaky", "failed")
    expect(job.status).toMatchObject({ reason: "ContainerFailed", exitCode: 9, retryCount: 1 })
    expect(findCondition(job.status?.conditions, "Stalled")?.status).toBe("True")
    await eventually(async () => expect(await stage.eventReasons("flaky")).toContain("ContainerRestarted"))
    expect(stage.cloud.vms).toHaveLength(1)
  })

  test("a timeout that the agent does not enforce", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.submit("slow", { timeoutSeconds: 60 })
    await started(stage)
    await inPhase(stage, "slow", "running")
    stage.clock.advance(60 + 121)
    const job = await settled(stage, "slow", "failed")
    expect(job.status).toMatchObject({ reason: "DeadlineExceeded" })
  })

  test("the boot deadline: the next VM, on another offer; a late start of the first is not heard", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.submit("sleepy")
    const first = await liveLaunch(stage)
    await inPhase(stage, "sleepy", "booting")
    stage.clock.advance(901)
    const second = await started(stage, [first])
    await stage.start(first)
    await inPhase(stage, "sleepy", "running")
    await stage.finish(second, "Succeeded")
    const job = await settled(stage, "sleepy", "succeeded")
    expect(job.status).toMatchObject({
      launches: { count: 2, billed: 2, lost: 0 },
      placement: { offer: { instanceType: "medium" } },
      refusedOffers: [{ reason: "BootDeadlineExceeded", instanceType: "small" }],
    })
    expectOneVmPerLaunch(stage)
  })

  test("a VM that is lost is replaced, three times make the job fail", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.submit("unlucky")
    const seen: string[] = []
    for (const preempted of [false, true, false]) {
      const launch = await started(stage, seen)
      seen.push(launch)
      await inPhase(stage, "unlucky", "running")
      stage.cloud.lose(stage.cloud.alive[0]?.id ?? "", preempted)
    }
    const job = await settled(stage, "unlucky", "failed")
    expect(job.status).toMatchObject({ reason: "VMLost", launches: { count: 3, lost: 3 } })
    expect(job.status?.refusedOffers?.map(({ reason }) => reason)).toEqual(["VMLost", "Preempted", "VMLost"])
    expectOneVmPerLaunch(stage)
  })

  test("no capacity: the next offer at once, then a rest, then the first again", async () => {
    const stage = await newStage()
    stage.cloud.faults.push({ fault: "capacity" }, { fault: "capacity" }, { fault: "capacity" })
    stage.operator()
    await stage.submit("crowded")
    const waiting = await inPhase(stage, "crowded", "queued")
    await eventually(async () => expect((await stage.job("crowded")).status?.reason).toBe("NoCapacity"))
    expect(waiting.metadata.name).toBe("crowded")
    const refused = (await stage.job("crowded")).status?.refusedOffers
    expect(refused?.map(({ instanceType }) => instanceType).sort()).toEqual(["large", "medium", "small"])
    expect(stage.cloud.vms).toEqual([])
    stage.clock.advance(301)
    const launch = await started(stage)
    await stage.finish(launch, "Succeeded")
    const job = await settled(stage, "crowded", "succeeded")
    expect(job.status).toMatchObject({
      launches: { count: 4, billed: 1 },
      placement: { offer: { instanceType: "small" } },
    })
  })

  test("preemptions in time to come, which a former version stored, keep no other job from a VM", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.submit("poisoner")
    const seen: string[] = []
    for (let vm = 0; vm < 3; vm++) {
      const launch = await started(stage, seen)
      seen.push(launch)
      await stage.report(launch, () => ({ finish: { reason: "Preempted", time: "9999-12-31T23:59:59Z" } }))
    }
    await settled(stage, "poisoner", "failed")
    await stage.submit("other")
    await stage.finish(await started(stage, seen), "Succeeded")
    await settled(stage, "other", "succeeded")
  })

  test("a cloud out of order: the job tells why, and looks for another place when it has lasted as long as a boot", async () => {
    const stage = await newStage()
    stage.cloud.outage = new TransientError("SimDown", "the region is out of order")
    stage.operator()
    await stage.submit("stranded")
    await eventually(async () => {
      const { status } = await stage.job("stranded")
      expect(status).toMatchObject({ phase: "booting", message: "launch 1: no VM yet: the region is out of order" })
    })
    stage.clock.advance(901)
    await eventually(async () => {
      const { status } = await stage.job("stranded")
      expect(status).toMatchObject({ phase: "queued", reason: "NoCapacity" })
      expect(status?.refusedOffers).toMatchObject([
        { reason: "Unavailable", message: expect.stringContaining("order") },
      ])
    })
    expect(stage.cloud.vms).toEqual([])
    await eventually(async () => expect(await stage.eventReasons("stranded")).toContain("OfferRefused"))
    stage.cloud.outage = undefined
    stage.clock.advance(301)
    await stage.finish(await started(stage), "Succeeded")
    await settled(stage, "stranded", "succeeded")
  })

  test("records of refused Launches go while their job still waits", async () => {
    const stage = await newStage()
    stage.cloud.faults.push({ fault: "capacity" })
    let isPaid = true
    stage.operator({ payers: () => (isPaid ? [{ cloud: "sim" }] : []) })
    await stage.submit("patient")
    await eventually(async () => expect((await stage.job("patient")).status?.launches?.count).toBe(2))
    await liveLaunch(stage)
    isPaid = false
    stage.cloud.lose(stage.cloud.alive[0]?.id ?? "")
    await eventually(async () => expect((await stage.job("patient")).status?.reason).toBe("NoConnection"))
    stage.clock.advance(3601)
    await eventually(async () => expect((await stage.launches()).map(({ spec }) => spec.number)).toEqual([2]))
    expect((await stage.job("patient")).status).toMatchObject({
      phase: "queued",
      refusedOffers: [{ reason: "Capacity" }, { reason: "VMLost" }],
    })
  })

  test("that there is no answer is told, and settles nothing: the VM of an answer that was lost is ended", async () => {
    const stage = await newStage()
    // At once: the call is soon made again, and would be answered.
    const outage = new TransientError("SimDown", "the region is out of order")
    stage.cloud.faults.push({ fault: "answerLost", outage })
    stage.operator()
    await stage.submit("victim")
    await eventually(() => expect(stage.cloud.alive).toHaveLength(1))
    await eventually(async () => {
      stage.clock.advance(1)
      expect((await stage.launches())[0]?.status?.unanswered?.class).toBe("Unavailable")
    })
    await stage.cancel("victim")
    await inPhase(stage, "victim", "cancelled")
    stage.clock.advance(61)
    expect((await stage.launches()).some(isOver)).toBe(false)
    stage.cloud.outage = undefined
    await eventually(async () => {
      stage.clock.advance(61)
      await settledNow(stage, "victim")
    })
    expect((await stage.launches())[0]?.status).not.toHaveProperty("unanswered")
    expectOneVmPerLaunch(stage)
  })

  test("an answer that was lost is settled by the same call again: one VM", async () => {
    const stage = await newStage()
    stage.cloud.faults.push({ fault: "answerLost" }, { fault: "transient" })
    stage.cloud.consistencySeconds = 5
    stage.operator()
    await stage.submit("unheard")
    const launch = await started(stage)
    await inPhase(stage, "unheard", "running")
    await stage.finish(launch, "Succeeded")
    await eventually(async () => {
      stage.clock.advance(6)
      await settledNow(stage, "unheard")
    })
    expect(stage.cloud.vms).toHaveLength(1)
    expectOneVmPerLaunch(stage)
  })

  test("a copy of a Job that has run is held", async () => {
    const stage = await newStage()
    stage.operator()
    const metadata = { name: "copy", namespace: stage.namespace, annotations: { "berth.dev/recorded-uid": "old" } }
    await kubectl(
      ["create", "-f", "-"],
      JSON.stringify({ apiVersion: "berth.dev/v1alpha1", kind: "Job", metadata, spec: { image: "x" } }),
    )
    await eventually(async () => expect((await stage.job("copy")).status?.reason).toBe("Held"))
    await kubectl(["-n", stage.namespace, "annotate", "bj/copy", "berth.dev/recorded-uid-"])
    await inPhase(stage, "copy", "booting")
  })

  test("a finished Job goes when its time is over, the record of its Launch after an hour", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.submit("brief", { ttlSecondsAfterFinished: 100 })
    await stage.finish(await started(stage), "Succeeded")
    await settled(stage, "brief", "succeeded")
    stage.clock.advance(101)
    await eventually(async () => expect(await isGone(() => stage.job("brief"))).toBe(true))
    stage.clock.advance(3601)
    await eventually(async () => expect(await stage.launches()).toEqual([]))
  })
})

async function settledNow(stage: Stage, name: string): Promise<void> {
  const job = await stage.job(name)
  expect(job.status?.cost?.actualUsd).toBeDefined()
  expect(stage.cloud.alive).toEqual([])
}

async function isGone(read: () => Promise<unknown>): Promise<boolean> {
  try {
    await read()
    return false
  } catch (error) {
    if (!isNotFound(error)) throw error
    return true
  }
}

/** Brings a job into each of its phases before its end. */
const PHASES: [string, (stage: Stage) => Promise<unknown>][] = [
  [
    "queued",
    async (stage) => {
      await inPhase(stage, "victim", "queued")
    },
  ],
  ["booting", (stage) => liveLaunch(stage)],
  ["running", (stage) => started(stage).then(() => inPhase(stage, "victim", "running"))],
]

describe("cancel and delete", () => {
  test.each(PHASES)("cancel while %s", async (phase, reach) => {
    const stage = await newStage()
    stage.operator(phase === "queued" ? { payers: () => [] } : {})
    await stage.submit("victim")
    await reach(stage)
    await stage.cancel("victim")
    const job = await settled(stage, "victim", "cancelled")
    expect(job.status).toMatchObject({ reason: "Cancelled" })
    expect(job.status?.refusedOffers).toBeUndefined()
    expect(findCondition(job.status?.conditions, "Failed")).toMatchObject({ status: "True", reason: "Cancelled" })
    expect(stage.cloud.vms.length).toBe(phase === "queued" ? 0 : 1)
  })

  test.each(PHASES)("delete while %s ends the VM first", async (phase, reach) => {
    const stage = await newStage()
    stage.operator(phase === "queued" ? { payers: () => [] } : {})
    await stage.submit("victim")
    await reach(stage)
    await kubectl(["-n", stage.namespace, "delete", "bj", "victim", "--timeout=120s"])
    expect(stage.cloud.alive).toEqual([])
    expect((await stage.launches()).every(isOver)).toBe(true)
  })

  test("a job that runs is stopped before a hundred that came earlier have a VM", async () => {
    const stage = await newStage()
    const before = stage.operator()
    await stage.submit("zz-runs")
    const launch = await started(stage)
    await before.stop()
    const waiting = Array.from({ length: 100 }, (_, n) => () => stage.submit(`waits-${n}`))
    await inParallel(waiting, 16)
    await stage.cancel("zz-runs")
    stage.operator()
    await eventually(() => expect(stage.cloud.alive.map((vm) => vm.launch)).not.toContain(launch))
    expect(stage.cloud.vms.length).toBeLessThan(1 + waiting.length / 2)
    await eventually(() => expect(stage.cloud.vms).toHaveLength(1 + waiting.length))
    expectOneVmPerLaunch(stage)
  })

  test("a Job that vanished without its finalizer takes its VM along", async () => {
    const stage = await newStage()
    stage.operator()
    await stage.submit("victim")
    await started(stage)
    await inPhase(stage, "victim", "running")
    await kubectl([
      "-n",
      stage.namespace,
      "patch",
      "bj",
      "victim",
      "--type=merge",
      "-p",
      '{"metadata":{"finalizers":[]}}',
    ])
    await eventually(async () => {
      // The controller may have written its finalizer again: it is taken away until the Job is gone.
      await stage.delete("victim").catch(() => undefined)
      expect(stage.cloud.alive).toEqual([])
    })
  })
})

async function phases(stage: Stage, names: readonly string[]): Promise<string[]> {
  const jobs = await Promise.all(names.map((name) => stage.job(name)))
  return jobs.map((job) => job.status?.phase ?? "")
}

describe("guards", () => {
  test("caps hold back what is too much, also for jobs that come at the same moment", async () => {
    const stage = await newStage()
    stage.operator({ caps: { maxVms: 2 } })
    const names = ["a", "b", "c", "d", "e"]
    await Promise.all(names.map((name) => stage.submit(name)))
    await eventually(async () => {
      const jobs = await Promise.all(names.map((name) => stage.job(name)))
      expect(jobs.map((job) => job.status?.reason ?? "").sort()).toEqual([
        "Booting",
        "Booting",
        "CapReached",
        "CapReached",
        "CapReached",
      ])
    })
    // A job boots from its decision on; the cloud is asked after that.
    await eventually(() => expect(stage.cloud.vms).toHaveLength(2))
    await eventually(async () => {
      await stage.agentsStep()
      stage.clock.advance(16)
      expect(await phases(stage, names)).toEqual(names.map(() => "succeeded"))
    })
    expect(stage.cloud.vms).toHaveLength(5)
  })

  test("boots that never register pause launching; one probe, and its registration ends the pause", async () => {
    const stage = await newStage()
    stage.operator({ settings: { breakerBoots: 2, restSeconds: 1, restCapSeconds: 1 } })
    await stage.submit("one")
    const first = await liveLaunch(stage)
    await inPhase(stage, "one", "booting")
    stage.clock.advance(901)
    await liveLaunch(stage, [first])
    await eventually(async () => expect((await stage.job("one")).status?.launches?.current).not.toBe(first))
    stage.clock.advance(901)
    await eventually(async () => expect((await stage.job("one")).status?.reason).toBe("LaunchesPaused"))
    await stage.submit("two")
    await eventually(async () => expect((await stage.job("two")).status?.reason).toBe("LaunchesPaused"))
    expect(stage.cloud.vms).toHaveLength(2)
    stage.clock.advance(601)
    const probe = await liveLaunch(stage)
    await eventually(async () => expect((await phases(stage, ["one", "two"])).sort()).toEqual(["booting", "queued"]))
    expect(stage.cloud.vms).toHaveLength(3)
    await stage.register(probe)
    await eventually(async () => {
      stage.clock.advance(16)
      await stage.agentsStep()
      expect(await phases(stage, ["one", "two"])).toEqual(["succeeded", "succeeded"])
    })
    expect(stage.cloud.vms).toHaveLength(4)
  })

  test("garbage collection terminates a VM without a Launch in the second round, and no other", async () => {
    const stage = await newStage()
    const { launchControl } = stage.operator()
    await stage.submit("rightful")
    await started(stage)
    await inPhase(stage, "rightful", "running")
    const old = new Date(stage.clock.now().getTime() - 3600_000).toISOString()
    const orphan = stage.cloud.plant(stage.installation, "nobody-1", old)
    const foreign = stage.cloud.plant("another-installation", "nobody-2", old)
    const young = stage.cloud.plant(stage.installation, "nobody-3", stage.clock.now().toISOString())
    stage.cloud.listsFail = true
    expect(await launchControl.garbageCollector.round()).toEqual([])
    stage.cloud.listsFail = false
    expect(await launchControl.garbageCollector.round()).toEqual([])
    expect((await launchControl.garbageCollector.round()).map(({ id }) => id)).toEqual([orphan.id])
    expect(stage.cloud.alive.map(({ id }) => id).sort()).toEqual(["vm-1", foreign.id, young.id].sort())
    expect((await stage.job("rightful")).status?.phase).toBe("running")
  })

  test("an agent that falls silent is given up while another is heard", async () => {
    const stage = await newStage()
    const operator = stage.operator()
    await stage.submit("silent")
    const silent = await started(stage)
    await inPhase(stage, "silent", "running")
    await stage.submit("loud")
    const loud = await eventually(async () => {
      const name = (await stage.launches()).find((launch) => launch.spec.job.name === "loud" && launch.status?.vm?.id)
        ?.metadata.name
      expect(name).toBeDefined()
      return name ?? ""
    })
    await stage.register(loud)
    await stage.start(loud)
    await eventually(async () => {
      stage.clock.advance(60)
      await stage.register(loud)
      // Whoever hears nobody for a while gives nobody up.
      await operator.caughtUp()
      expect((await stage.launches()).find(({ metadata }) => metadata.name === silent)?.status?.loss?.reason).toBe(
        "Silent",
      )
    })
    expect((await stage.launches()).find(({ metadata }) => metadata.name === loud)?.status?.loss).toBeUndefined()
    await eventually(() => expect(stage.cloud.of(silent)[0]?.state).toBe("terminated"))
  })
})
