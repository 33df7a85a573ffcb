import { describe, expect, test } from "vitest"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import type { JobPhase } from "../../src/core/apis/job.ts"
import { isOver } from "../../src/core/apis/launch.ts"
import { submissionId } from "../../src/core/apis/origin.ts"
import { isNotFound } from "../../src/core/kube/errors.ts"
import { CapacityError, TransientError } from "../../src/core/outbound/errors.ts"
import { kubectl } from "../control-plane.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"

const newHarness = controllerHarnesses()

/** Waits for the job's phase, and returns the job. */
function inPhase(harness: ControllerHarness, name: string, phase: JobPhase) {
  return eventually(async () => {
    const job = await harness.job(name)
    expect(job.status?.phase, job.status?.message).toBe(phase)
    return job
  })
}

/** Waits until the job is settled: it has ended, its VMs are deleted, and its cost is final. */
function settled(harness: ControllerHarness, name: string, phase: JobPhase) {
  return eventually(async () => {
    const job = await harness.job(name)
    expect(job.status?.phase, job.status?.message).toBe(phase)
    expect(job.status?.cost?.actualUsd).toBeDefined()
    expect(harness.cloud.alive).toEqual([])
    return job
  })
}

/** Waits for a Launch with a VM, other than those in `seen`. */
function liveLaunch(harness: ControllerHarness, not: readonly string[] = []): Promise<string> {
  return eventually(async () => {
    const { name } = (await harness.liveLaunch()).metadata
    expect(not).not.toContain(name)
    return name
  })
}

async function started(harness: ControllerHarness, not: readonly string[] = []): Promise<string> {
  const launch = await liveLaunch(harness, not)
  await harness.register(launch)
  await harness.start(launch)
  return launch
}

function expectOneVmPerLaunch(harness: ControllerHarness): void {
  expect(harness.cloud.breaches).toEqual([])
  const launches = harness.cloud.vms.map(({ vm }) => vm.launch)
  expect(new Set(launches).size).toBe(launches.length)
}

describe("the operator of a job", () => {
  test("runs a job to success with phases, times, cost, credentials and events of each step", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("hello", { labels: { team: "a" } })
    const launch = await liveLaunch(harness)
    const booting = await inPhase(harness, "hello", "booting")
    expect(booting.metadata).toMatchObject({ labels: { team: "a" }, finalizers: ["berth.dev/job"] })
    expect(booting.status).toMatchObject({ observedGeneration: 1, credentials: "issued", cost: { estimatedUsd: 0.6 } })
    await harness.register(launch)
    await eventually(async () => expect((await harness.job("hello")).status?.credentials).toBe("delivered"))
    await harness.start(launch)
    const running = await inPhase(harness, "hello", "running")
    expect(findCondition(running.status?.conditions, "Ready")).toMatchObject({ status: "True", observedGeneration: 1 })
    await harness.finish(launch, "Succeeded")
    await kubectl(["-n", harness.namespace, "wait", "--for=condition=Complete", "bj/hello", "--timeout=120s"])
    const job = await settled(harness, "hello", "succeeded")
    expect(job.status).toMatchObject({
      reason: "Succeeded",
      credentials: "revoked",
      vm: { state: "terminated", id: "vm-1" },
      launches: { count: 1, billed: 1, lost: 0 },
      cost: { actualUsd: 0.01 },
    })
    expect(job.status?.startTime).toBeDefined()
    await eventually(async () =>
      // Within one second, events are ordered only by their names.
      expect((await harness.eventReasons("hello")).sort()).toEqual(["Placed", "Succeeded"]),
    )
    expectOneVmPerLaunch(harness)
  })

  test("counts retries in the VM, and fails the job after the last one", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("flaky", { maxRetries: 1 })
    const launch = await started(harness)
    await harness.report(launch, () => ({ retryCount: 1, lastExitCode: 7 }))
    await eventually(async () =>
      expect((await harness.job("flaky")).status).toMatchObject({ phase: "running", retryCount: 1 }),
    )
    await harness.finish(launch, "ContainerFailed", 9)
    const job = await settled(harness, "flaky", "failed")
    expect(job.status).toMatchObject({ reason: "ContainerFailed", exitCode: 9, retryCount: 1 })
    expect(findCondition(job.status?.conditions, "Stalled")?.status).toBe("True")
    await eventually(async () => expect(await harness.eventReasons("flaky")).toContain("ContainerRestarted"))
    expect(harness.cloud.vms).toHaveLength(1)
  })

  test("fails a job at a timeout that the agent does not enforce", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("slow", { timeoutSeconds: 60 })
    await started(harness)
    await inPhase(harness, "slow", "running")
    harness.clock.advance(60 + 121)
    const job = await settled(harness, "slow", "failed")
    expect(job.status).toMatchObject({ reason: "DeadlineExceeded" })
  })

  test("fails a job that no cloud has room for within its maxQueueSeconds, without a VM", async () => {
    const harness = await newHarness()
    harness.operator()
    harness.cloud.outage = new CapacityError("InsufficientInstanceCapacity", "full")
    await harness.submit("patient", { maxQueueSeconds: 60 })
    await eventually(async () => expect((await harness.job("patient")).status?.reason).toBe("NoCapacity"))
    harness.clock.advance(61)
    const job = await settled(harness, "patient", "failed")
    expect(job.status).toMatchObject({ reason: "QueueDeadlineExceeded", cost: { actualUsd: 0 } })
    expect(job.status?.message).toMatch(
      /^the container did not start within its maxQueueSeconds of 60 s\. The last reason was NoCapacity: /,
    )
    expect(harness.cloud.vms).toEqual([])
  })

  test("ends a VM that boots when maxQueueSeconds are over, and no container that has just started", async () => {
    const harness = await newHarness()
    const operator = harness.operator()
    await harness.submit("slow", { maxQueueSeconds: 120 })
    const slow = await liveLaunch(harness)
    await harness.register(slow)
    harness.clock.advance(121)
    expect((await settled(harness, "slow", "failed")).status).toMatchObject({ reason: "QueueDeadlineExceeded" })
    expect(harness.cloud.of(slow)).toMatchObject([{ state: "terminated" }])
    await harness.submit("started", { maxQueueSeconds: 600 })
    const launch = await liveLaunch(harness)
    await inPhase(harness, "started", "booting")
    await operator.stop()
    // The time ends before an operator sees the start.
    await harness.start(launch)
    harness.clock.advance(600)
    harness.operator()
    await inPhase(harness, "started", "running")
    harness.cloud.lose(harness.cloud.of(launch)[0]?.id ?? "", true)
    await inPhase(harness, "started", "booting")
    await harness.finish(await started(harness, [launch]), "Succeeded")
    await settled(harness, "started", "succeeded")
    expectOneVmPerLaunch(harness)
  })

  test("fails no job for its deadlines when the clock is set two hours ahead", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("booting", { timeoutSeconds: 60, maxQueueSeconds: 600 })
    const launch = await liveLaunch(harness)
    await inPhase(harness, "booting", "booting")
    harness.clock.setWrong(2 * 3600)
    await harness.start(launch)
    await inPhase(harness, "booting", "running")
    harness.clock.setWrong(4 * 3600)
    // The agent's report makes both controllers decide again.
    await harness.report(launch, () => ({ retryCount: 1, lastExitCode: 7 }))
    await eventually(async () => expect((await harness.job("booting")).status).toMatchObject({ retryCount: 1 }))
    await inPhase(harness, "booting", "running")
    await harness.finish(launch, "Succeeded")
    const job = await settled(harness, "booting", "succeeded")
    expect(job.status?.launches).toMatchObject({ count: 1, lost: 0 })
  })

  test("says in a VM's own words that it found no way to the gateway, and launches another VM", async () => {
    const harness = await newHarness()
    harness.operator()
    const why = "the VM found no way to the gateway: curl: (6) Could not resolve host: berth.example"
    harness.cloud.consoleText = `login: \r\n[  9.1] eth0 berth-boot {"reason":"GatewayUnreachable","message":"${why}"}\r\nbye`
    await harness.submit("lost")
    const first = await liveLaunch(harness)
    await inPhase(harness, "lost", "booting")
    harness.clock.advance(241)
    const second = await liveLaunch(harness, [first])
    expect(harness.cloud.consoleReads).toEqual(["vm-1"])
    const job = await harness.job("lost")
    expect(job.status?.refusedOffers).toEqual([
      expect.objectContaining({
        reason: "BootFailed",
        message: `launch 1: its VM cannot run containers (GatewayUnreachable): ${why}`,
      }),
    ])
    const ended = (await harness.launches()).find(({ metadata }) => metadata.name === first)
    expect(findCondition(ended?.status?.conditions, "Stalled")).toMatchObject({
      status: "True",
      reason: "GatewayUnreachable",
    })
    await harness.start(second)
    await harness.finish(second, "Succeeded")
    await settled(harness, "lost", "succeeded")
    expectOneVmPerLaunch(harness)
  })

  test("looks at a console twice at most, and a console that can't be read delays and stops nothing", async () => {
    const harness = await newHarness()
    harness.operator()
    harness.cloud.consoleText = "forbidden"
    await harness.submit("mute")
    const first = await liveLaunch(harness)
    await inPhase(harness, "mute", "booting")
    harness.clock.advance(241)
    await eventually(async () => expect(harness.cloud.consoleReads).toEqual(["vm-1"]))
    await inPhase(harness, "mute", "booting")
    harness.clock.advance(301 - 241)
    const second = await liveLaunch(harness, [first])
    expect(harness.cloud.consoleReads).toEqual(["vm-1", "vm-1"])
    expect((await harness.job("mute")).status?.refusedOffers?.[0]?.message).toContain("its VM never reached")
    await harness.start(second)
    await harness.finish(second, "Succeeded")
    await settled(harness, "mute", "succeeded")
    // The second VM had an agent.
    expect(harness.cloud.consoleReads).toHaveLength(2)
  })

  test("launches the next VM on another offer after the boot deadline, and ignores a late start of the first", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("sleepy")
    const first = await liveLaunch(harness)
    await inPhase(harness, "sleepy", "booting")
    harness.clock.advance(301)
    const second = await started(harness, [first])
    await harness.start(first)
    await inPhase(harness, "sleepy", "running")
    await harness.finish(second, "Succeeded")
    const job = await settled(harness, "sleepy", "succeeded")
    expect(job.status).toMatchObject({
      launches: { count: 2, billed: 2, lost: 0 },
      placement: { offer: { instanceType: "medium" } },
      refusedOffers: [{ reason: "BootDeadlineExceeded", instanceType: "small" }],
    })
    expectOneVmPerLaunch(harness)
  })

  test("replaces lost and preempted VMs, and fails the job after the third loss", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("unlucky")
    const seen: string[] = []
    for (const preempted of [false, true, false, true, false]) {
      const launch = await started(harness, seen)
      seen.push(launch)
      await inPhase(harness, "unlucky", "running")
      harness.cloud.lose(harness.cloud.alive[0]?.id ?? "", preempted)
    }
    const job = await settled(harness, "unlucky", "failed")
    expect(job.status).toMatchObject({ reason: "VMLost", launches: { count: 5, lost: 3, preempted: 2 } })
    const reasons = job.status?.refusedOffers?.map(({ reason }) => reason)
    expect(reasons).toEqual(["VMLost", "Preempted", "VMLost", "Preempted", "VMLost"])
    expectOneVmPerLaunch(harness)
  })

  test("tries the next offer at once without capacity, then pauses, then tries the first again", async () => {
    const harness = await newHarness()
    harness.cloud.faults.push({ fault: "capacity" }, { fault: "capacity" }, { fault: "capacity" })
    harness.operator()
    await harness.submit("crowded")
    const waiting = await inPhase(harness, "crowded", "queued")
    await eventually(async () => expect((await harness.job("crowded")).status?.reason).toBe("NoCapacity"))
    expect(waiting.metadata.name).toBe("crowded")
    const refused = (await harness.job("crowded")).status?.refusedOffers
    expect(refused?.map(({ instanceType }) => instanceType).sort()).toEqual(["large", "medium", "small"])
    expect(harness.cloud.vms).toEqual([])
    harness.clock.advance(301)
    const launch = await started(harness)
    await harness.finish(launch, "Succeeded")
    const job = await settled(harness, "crowded", "succeeded")
    expect(job.status).toMatchObject({
      launches: { count: 4, billed: 1 },
      placement: { offer: { instanceType: "small" } },
    })
  })

  test("launches a VM although stored preemptions have future times", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("poisoner")
    const seen: string[] = []
    for (let vm = 0; vm < 3; vm++) {
      const launch = await started(harness, seen)
      seen.push(launch)
      await harness.report(launch, () => ({ finish: { reason: "Preempted", time: "9999-12-31T23:59:59Z" } }))
    }
    await settled(harness, "poisoner", "failed")
    await harness.submit("other")
    await harness.finish(await started(harness, seen), "Succeeded")
    await settled(harness, "other", "succeeded")
  })

  test("reports a cloud that is out of order, and tries another place after the length of a boot", async () => {
    const harness = await newHarness()
    harness.cloud.outage = new TransientError("SimDown", "the region is out of order")
    harness.operator()
    await harness.submit("stranded")
    await eventually(async () => {
      const { status } = await harness.job("stranded")
      expect(status).toMatchObject({ phase: "booting", message: "launch 1: no VM yet: the region is out of order" })
    })
    harness.clock.advance(301)
    await eventually(async () => {
      const { status } = await harness.job("stranded")
      expect(status).toMatchObject({ phase: "queued", reason: "NoCapacity" })
      expect(status?.refusedOffers).toMatchObject([
        { reason: "Unavailable", message: expect.stringContaining("order") },
      ])
    })
    expect(harness.cloud.vms).toEqual([])
    await eventually(async () => expect(await harness.eventReasons("stranded")).toContain("OfferRefused"))
    harness.cloud.outage = undefined
    harness.clock.advance(301)
    await harness.finish(await started(harness), "Succeeded")
    await settled(harness, "stranded", "succeeded")
  })

  test("deletes records of rejected Launches while the job still waits", async () => {
    const harness = await newHarness()
    harness.cloud.faults.push({ fault: "capacity" })
    let isPaid = true
    harness.operator({ launchAccounts: () => (isPaid ? [{ cloud: "sim" }] : []) })
    await harness.submit("patient")
    await eventually(async () => expect((await harness.job("patient")).status?.launches?.count).toBe(2))
    await liveLaunch(harness)
    isPaid = false
    harness.cloud.lose(harness.cloud.alive[0]?.id ?? "")
    await eventually(async () => expect((await harness.job("patient")).status?.reason).toBe("NoConnection"))
    // Records that were released in one minute are deleted together, up to two minutes after the retention of an hour.
    harness.clock.advance(3600 + 180)
    await eventually(async () => expect((await harness.launches()).map(({ spec }) => spec.number)).toEqual([2]))
    expect((await harness.job("patient")).status).toMatchObject({
      phase: "queued",
      refusedOffers: [{ reason: "Capacity" }, { reason: "VMLost" }],
    })
  })

  test("reports a missing response, settles nothing from it, and terminates the VM of the lost response", async () => {
    const harness = await newHarness()
    // Immediately: the next call comes soon, and would be answered.
    const outage = new TransientError("SimDown", "the region is out of order")
    harness.cloud.faults.push({ fault: "answerLost", outage })
    harness.operator()
    await harness.submit("victim")
    await eventually(() => expect(harness.cloud.alive).toHaveLength(1))
    await eventually(async () => {
      harness.clock.advance(1)
      expect((await harness.launches())[0]?.status?.unanswered?.class).toBe("Unavailable")
    })
    await harness.cancel("victim")
    await inPhase(harness, "victim", "cancelled")
    harness.clock.advance(61)
    expect((await harness.launches()).some(isOver)).toBe(false)
    harness.cloud.outage = undefined
    await eventually(async () => {
      harness.clock.advance(61)
      await settledNow(harness, "victim")
    })
    expect((await harness.launches())[0]?.status).not.toHaveProperty("unanswered")
    expectOneVmPerLaunch(harness)
  })

  test("settles a lost response by repeating the same call, with one VM", async () => {
    const harness = await newHarness()
    harness.cloud.faults.push({ fault: "answerLost" }, { fault: "transient" })
    harness.cloud.consistencySeconds = 5
    harness.operator()
    await harness.submit("unheard")
    const launch = await started(harness)
    await inPhase(harness, "unheard", "running")
    await harness.finish(launch, "Succeeded")
    await eventually(async () => {
      harness.clock.advance(6)
      await settledNow(harness, "unheard")
    })
    expect(harness.cloud.vms).toHaveLength(1)
    expectOneVmPerLaunch(harness)
  })

  test("holds a copy of a Job that has run", async () => {
    const harness = await newHarness()
    harness.operator()
    const metadata = { name: "copy", namespace: harness.namespace, annotations: { "berth.dev/recorded-uid": "old" } }
    await kubectl(
      ["create", "-f", "-"],
      JSON.stringify({ apiVersion: "berth.dev/v1alpha1", kind: "Job", metadata, spec: { image: "x" } }),
    )
    await eventually(async () => expect((await harness.job("copy")).status?.reason).toBe("Held"))
    await kubectl(["-n", harness.namespace, "annotate", "bj/copy", "berth.dev/recorded-uid-"])
    await inPhase(harness, "copy", "booting")
  })

  test("holds young copies of a job of the REST API, also when the original is deleted", async () => {
    const harness = await newHarness()
    harness.operator()
    const createdAt = harness.clock.now().toISOString()
    const annotations = {
      "berth.dev/submission": submissionId(harness.installation),
      "berth.dev/created-at": createdAt,
    }
    const metadata = { finalizers: ["berth.dev/job"], annotations }
    const original = await harness.submit("original", {}, metadata)
    const launch = await started(harness)
    await harness.submit("copy", {}, metadata)
    await harness.finish(launch, "Succeeded")
    const ended = { ...annotations, "berth.dev/updated-at": expect.any(String) }
    expect((await settled(harness, "original", "succeeded")).metadata.annotations).toEqual(ended)
    await harness.delete("original")
    await eventually(async () => expect(await isGone(() => harness.job("original"))).toBe(true))
    await harness.submit("restored", {}, metadata)
    for (const name of ["copy", "restored"]) {
      await eventually(async () => expect((await harness.job(name)).status?.reason).toBe("Held"))
      expect((await harness.job(name)).status?.message).toContain(`uid ${original.metadata.uid}`)
    }
    expect(harness.cloud.vms).toHaveLength(1)
    await kubectl(["-n", harness.namespace, "annotate", "bj/copy", "berth.dev/submission-"])
    await inPhase(harness, "copy", "booting")
  })

  test("deletes a finished Job after its TTL, and the record of its Launch after an hour", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("brief", { ttlSecondsAfterFinished: 100 })
    await harness.finish(await started(harness), "Succeeded")
    await settled(harness, "brief", "succeeded")
    harness.clock.advance(101)
    await eventually(async () => expect(await isGone(() => harness.job("brief"))).toBe(true))
    harness.clock.advance(3600 + 180)
    await eventually(async () => expect(await harness.launches()).toEqual([]))
  })
})

async function settledNow(harness: ControllerHarness, name: string): Promise<void> {
  const job = await harness.job(name)
  expect(job.status?.cost?.actualUsd).toBeDefined()
  expect(harness.cloud.alive).toEqual([])
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

/** Functions that bring a job into each phase before its end. */
const PHASES: [string, (harness: ControllerHarness) => Promise<unknown>][] = [
  [
    "queued",
    async (harness) => {
      await inPhase(harness, "victim", "queued")
    },
  ],
  ["booting", (harness) => liveLaunch(harness)],
  ["running", (harness) => started(harness).then(() => inPhase(harness, "victim", "running"))],
]

describe("the operator on cancel and delete", () => {
  test.each(PHASES)("cancels a job while %s", async (phase, reach) => {
    const harness = await newHarness()
    harness.operator(phase === "queued" ? { launchAccounts: () => [] } : {})
    await harness.submit("victim")
    await reach(harness)
    await harness.cancel("victim")
    const job = await settled(harness, "victim", "cancelled")
    expect(job.status).toMatchObject({ reason: "Cancelled" })
    expect(job.status?.refusedOffers).toBeUndefined()
    expect(findCondition(job.status?.conditions, "Failed")).toMatchObject({ status: "True", reason: "Cancelled" })
    expect(harness.cloud.vms.length).toBe(phase === "queued" ? 0 : 1)
  })

  test.each(PHASES)("terminates the VM before the deletion of a job while %s", async (phase, reach) => {
    const harness = await newHarness()
    harness.operator(phase === "queued" ? { launchAccounts: () => [] } : {})
    await harness.submit("victim")
    await reach(harness)
    await kubectl(["-n", harness.namespace, "delete", "bj", "victim", "--timeout=120s"])
    expect(harness.cloud.alive).toEqual([])
    expect((await harness.launches()).every(isOver)).toBe(true)
  })

  test("stops a running job before a hundred earlier jobs have a VM", async () => {
    const harness = await newHarness()
    const before = harness.operator()
    await harness.submit("zz-runs")
    const launch = await started(harness)
    await before.stop()
    const waiting = Array.from({ length: 100 }, (_, n) => () => harness.submit(`waits-${n}`))
    await inParallel(waiting, 16, (task) => task())
    await harness.cancel("zz-runs")
    harness.operator()
    await eventually(() => expect(harness.cloud.alive.map((vm) => vm.launch)).not.toContain(launch))
    expect(harness.cloud.vms.length).toBeLessThan(1 + waiting.length / 2)
    await eventually(() => expect(harness.cloud.vms).toHaveLength(1 + waiting.length))
    expectOneVmPerLaunch(harness)
  })

  test("deletes the VM of a Job that was deleted without its finalizer", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.submit("victim")
    await started(harness)
    await inPhase(harness, "victim", "running")
    await kubectl([
      "-n",
      harness.namespace,
      "patch",
      "bj",
      "victim",
      "--type=merge",
      "-p",
      '{"metadata":{"finalizers":[]}}',
    ])
    await eventually(async () => {
      // The controller may write its finalizer again, so remove it until the Job is deleted.
      await harness.delete("victim").catch(() => undefined)
      expect(harness.cloud.alive).toEqual([])
    })
  })
})

async function phases(harness: ControllerHarness, names: readonly string[]): Promise<string[]> {
  const jobs = await Promise.all(names.map((name) => harness.job(name)))
  return jobs.map((job) => job.status?.phase ?? "")
}

describe("an operator", () => {
  test("holds launches back at the caps, also for jobs created at the same moment", async () => {
    const harness = await newHarness()
    harness.operator({ caps: { maxVms: 2 } })
    const names = ["a", "b", "c", "d", "e"]
    await Promise.all(names.map((name) => harness.submit(name)))
    await eventually(async () => {
      const jobs = await Promise.all(names.map((name) => harness.job(name)))
      expect(jobs.map((job) => job.status?.reason ?? "").sort()).toEqual([
        "Booting",
        "Booting",
        "CapReached",
        "CapReached",
        "CapReached",
      ])
    })
    // A job is booting from the decision on. The request to the cloud comes later.
    await eventually(() => expect(harness.cloud.vms).toHaveLength(2))
    await eventually(async () => {
      await harness.agentsStep()
      harness.clock.advance(16)
      expect(await phases(harness, names)).toEqual(names.map(() => "succeeded"))
    })
    expect(harness.cloud.vms).toHaveLength(5)
  })

  test("pauses launching after boots that never register; one probe boots, and its registration ends the pause", async () => {
    const harness = await newHarness()
    harness.operator({ settings: { breakerBoots: 2, cooldownSeconds: 1, maxCooldownSeconds: 1 } })
    await harness.submit("one")
    const first = await liveLaunch(harness)
    await inPhase(harness, "one", "booting")
    harness.clock.advance(301)
    await liveLaunch(harness, [first])
    await eventually(async () => expect((await harness.job("one")).status?.launches?.current).not.toBe(first))
    harness.clock.advance(301)
    await eventually(async () => expect((await harness.job("one")).status?.reason).toBe("LaunchesPaused"))
    await harness.submit("two")
    await eventually(async () => expect((await harness.job("two")).status?.reason).toBe("LaunchesPaused"))
    expect(harness.cloud.vms).toHaveLength(2)
    harness.clock.advance(601)
    const probe = await liveLaunch(harness)
    await eventually(async () => expect((await phases(harness, ["one", "two"])).sort()).toEqual(["booting", "queued"]))
    expect(harness.cloud.vms).toHaveLength(3)
    await harness.register(probe)
    await eventually(async () => {
      harness.clock.advance(16)
      await harness.agentsStep()
      expect(await phases(harness, ["one", "two"])).toEqual(["succeeded", "succeeded"])
    })
    expect(harness.cloud.vms).toHaveLength(4)
  })

  test("terminates a VM without a Launch in the second round of garbage collection, and no other VM", async () => {
    const harness = await newHarness()
    const { launchControl } = harness.operator()
    await harness.submit("rightful")
    await started(harness)
    await inPhase(harness, "rightful", "running")
    const old = new Date(harness.clock.now().getTime() - 3600_000).toISOString()
    const orphan = harness.cloud.plant(harness.installation, "unlaunched-1", old)
    const foreign = harness.cloud.plant("another-installation", "unlaunched-2", old)
    const young = harness.cloud.plant(harness.installation, "unlaunched-3", harness.clock.now().toISOString())
    harness.cloud.listsFail = true
    expect(await launchControl.garbageCollector.round()).toEqual([])
    harness.cloud.listsFail = false
    expect(await launchControl.garbageCollector.round()).toEqual([])
    expect((await launchControl.garbageCollector.round()).map(({ id }) => id)).toEqual([orphan.id])
    expect(harness.cloud.alive.map(({ id }) => id).sort()).toEqual(["vm-1", foreign.id, young.id].sort())
    expect((await harness.job("rightful")).status?.phase).toBe("running")
  })

  test("gives up a silent agent while another agent reports", async () => {
    const harness = await newHarness()
    const operator = harness.operator()
    await harness.submit("silent")
    const silent = await started(harness)
    await inPhase(harness, "silent", "running")
    await harness.submit("loud")
    const loud = await eventually(async () => {
      const name = (await harness.launches()).find((launch) => launch.spec.job.name === "loud" && launch.status?.vm?.id)
        ?.metadata.name
      expect(name).toBeDefined()
      return name ?? ""
    })
    await harness.register(loud)
    await harness.start(loud)
    await eventually(async () => {
      harness.clock.advance(60)
      await harness.register(loud)
      // An operator that hears no agent at all gives up none.
      await operator.caughtUp()
      expect((await harness.launches()).find(({ metadata }) => metadata.name === silent)?.status?.loss?.reason).toBe(
        "Silent",
      )
    })
    expect((await harness.launches()).find(({ metadata }) => metadata.name === loud)?.status?.loss).toBeUndefined()
    await eventually(() => expect(harness.cloud.of(silent)[0]?.state).toBe("terminated"))
  })
})
