import { afterAll, beforeAll, describe, expect, it } from "vitest"
import {
  type LaunchList,
  LaunchListSchema,
  type Timeline,
  TimelineSchema,
} from "../../src/api/resources/jobs/launches.ts"
import { type Launch, type LaunchStatus, launchName, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { JOBS, LAUNCHES } from "../../src/core/resources.ts"
import { agentOf, launchOf } from "../harness/builders.ts"
import { caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture, setStatus } from "../harness/facade-project.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"

const fixture = projectFixture("facade-launches")
let replica: Replica
const call = caller(() => replica, fixture)
const made: { namespace: string; name: string }[] = []

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(async () => {
  await Promise.all(made.map((ref) => fixture.client.delete(LAUNCHES, ref)))
  await replica.close()
})

const refOf = (name: string) => ({ namespace: SYSTEM_NAMESPACE, name })

/** Creates a Launch of a job with this status. */
async function launch(name: string, number: number, status: LaunchStatus, more: Partial<Launch["spec"]> = {}) {
  const { spec } = launchOf(await fixture.client.get(JOBS, { namespace: fixture.namespace, name }), number)
  const ref = refOf(launchName(spec.job.uid, number))
  await fixture.client.create(LAUNCHES, { kind: "Launch", metadata: ref, spec: { ...spec, ...more } } as StoredLaunch)
  made.push(ref)
  await fixture.client.patchStatus(LAUNCHES, ref, { merge: { status } })
}

async function submit(name: string): Promise<string> {
  return (await created(await call("/1/jobs", { body: { name, image: "a" } }))).job_id
}

async function launchesOf(id: string): Promise<LaunchList> {
  const list = (await (await call(`/1/jobs/${id}/launches`)).json()) as LaunchList
  expect(findErrors(LaunchListSchema, list)).toEqual([])
  return list
}

async function timelineOf(id: string): Promise<Timeline> {
  const timeline = (await (await call(`/1/jobs/${id}/timeline`)).json()) as Timeline
  expect(findErrors(TimelineSchema, timeline)).toEqual([])
  return timeline
}

// In the year 2100, after the creation of everything in this test.
const time = (minute: number): string => `2100-01-01T00:${String(minute).padStart(2, "0")}:00Z`

describe("a job's VMs and its timeline", () => {
  it("show a rejection, a loss and the VM that ran the job to its end, with times and costs", async () => {
    const id = await submit("story")
    await launch("story", 1, {
      phase: "refused",
      refusal: { class: "Capacity", code: "Stockout", message: "no capacity in a", time: time(1) },
    })
    await launch("story", 2, {
      phase: "terminated",
      vm: { state: "terminated", id: "vm-2", createTime: time(2), terminationTime: time(6) },
      agent: agentOf({ registrationTime: time(3), startTime: time(4) }),
      loss: { reason: "Preempted", message: "the cloud took it back", time: time(5) },
      costUsd: 0.0421,
    })
    await launch("story", 3, {
      phase: "terminated",
      vm: { state: "terminated", id: "vm-3", ipAddress: "192.0.2.7", createTime: time(7), terminationTime: time(12) },
      agent: agentOf({
        registrationTime: time(8),
        startTime: time(9),
        finish: { reason: "Succeeded", exitCode: 0, time: time(10) },
      }),
      costUsd: 0.12,
    })
    const status = {
      phase: "succeeded",
      reason: "Succeeded",
      completionTime: time(11),
      launches: { count: 3 },
    } as const
    await setStatus(fixture, "story", { ...status, message: "exit code 0" })
    await eventually(async () => expect((await launchesOf(id)).launches.at(-1)?.cost_usd).toBe(0.12))
    const { launches, ...list } = await launchesOf("story")
    expect(list).toEqual({ total: 3, deleted: 0, message: null })
    expect(launches.map(({ number, phase }) => [number, phase])).toEqual([
      [1, "refused"],
      [2, "terminated"],
      [3, "terminated"],
    ])
    expect(launches[0]).toMatchObject({
      provider: "sim",
      vm_status: null,
      cost_usd: null,
      refusal: { reason: "Capacity", message: "no capacity in a", at: time(1) },
      loss: null,
    })
    expect(launches[1]).toMatchObject({
      vm_instance_id: "vm-2",
      created_at: time(2),
      registered_at: time(3),
      started_at: time(4),
      ended_at: time(6),
      cost_usd: 0.0421,
      loss: { reason: "Preempted", at: time(5) },
    })
    expect(launches[2]).toMatchObject({ ip_address: "192.0.2.7", finished_at: time(10), exit_code: 0, loss: null })
    const { timeline, deleted } = await eventually(async () => {
      const found = await timelineOf(id)
      expect(found.timeline.at(-2)?.type).toBe("Ended")
      return found
    })
    expect(deleted).toBe(0)
    expect(timeline.map(({ type, launch }) => `${type} ${launch ?? ""}`.trim())).toEqual([
      ...["Submitted", "Requested 1", "Requested 2", "Requested 3"],
      ...["Refused 1", "Created 2", "Registered 2", "Started 2", "Lost 2", "Deleted 2"],
      ...["Created 3", "Registered 3", "Started 3", "Finished 3", "Ended", "Deleted 3"],
    ])
    const messages = timeline.map(({ message }) => message)
    expect(messages[1]).toMatch(/^VM 1 was requested: sim \w+ in .*\/h\)\.$/)
    expect(messages).toContain("The cloud rejected VM 1: no capacity in a")
    expect(messages).toContain("VM 2 was lost: the cloud took it back")
    expect(messages).toContain("The run on VM 3 ended with exit code 0.")
    expect(messages).toContain("The job has succeeded: exit code 0")
    expect(messages.at(-1)).toBe("VM 3 was deleted; it cost $0.12.")
  })

  it("show a VM that two jobs had, one after the other, and what its wait cost", async () => {
    const [id, heir] = [await submit("first"), await submit("second")]
    const [first, second, third] = [launchName(id, 1), launchName(heir, 1), launchName(heir, 2)]
    const finish = { reason: "Succeeded", exitCode: 0, time: time(4) } as const
    const agent = agentOf({ registrationTime: time(2), startTime: time(3), finish, idleTime: time(5) })
    const vm = { state: "running", id: "vm-1", createTime: time(1) } as const
    const reuse = { run: { image: "a", reuse: { idleSeconds: 600 } } }
    await launch("first", 1, { phase: "idle", vm, agent }, reuse)
    await eventually(async () =>
      expect((await launchesOf(id)).launches).toMatchObject([
        ...[{ name: first, phase: "idle", warm: false, took_over: null, handed_to: null }],
      ]),
    )
    expect((await launchesOf(id)).launches[0]).toMatchObject({
      ...{ idle_since: time(5), idle_until: time(15), idle_usd: null, cost_usd: null },
    })
    expect((await timelineOf(id)).timeline.at(-1)).toMatchObject({
      ...{ type: "Idle", at: time(5), message: "VM 1 waits for another job, for 600 s at most." },
    })
    await fixture.client.patchStatus(LAUNCHES, refOf(first), {
      merge: {
        status: {
          phase: "handedOver",
          handedTo: second,
          vm: { ...vm, state: "terminated", terminationTime: time(7) },
          ...{ costUsd: 0.06, idleUsd: 0.02 },
        },
      },
    })
    await launch("second", 1, { phase: "created", vm: { ...vm, createTime: time(7) } }, { ...reuse, takesOver: first })
    const message = `the idle VM of launch ${second} was not taken over: another job took it first`
    await launch("second", 2, { phase: "terminated", message, costUsd: 0 }, { ...reuse, takesOver: second })
    await eventually(async () => expect((await launchesOf(heir)).total).toBe(2))
    expect((await launchesOf(heir)).launches).toMatchObject([
      { name: second, warm: true, took_over: first, handed_to: null, idle_until: null },
      { name: third, warm: true, took_over: second, vm_status: null },
    ])
    expect((await launchesOf(id)).launches).toMatchObject([
      { phase: "handedOver", handed_to: second, cost_usd: 0.06, idle_usd: 0.02, idle_since: time(5), idle_until: null },
    ])
    expect((await timelineOf(id)).timeline.slice(-2).map(({ message }) => message)).toEqual([
      "VM 1 waited for another job, for 600 s at most.",
      `VM 1 was handed over to job second (launch ${second}); it cost $0.06, of which $0.02 while it waited for another job.`,
    ])
    const story = (await timelineOf(heir)).timeline.map(({ message }) => message)
    expect(story).toContainEqual(
      expect.stringMatching(new RegExp(`^VM 1 is to be the idle VM of job first \\(launch ${first}\\): sim `)),
    )
    expect(story).toContain("VM 1 was taken over as vm-1; its billing for this job began.")
    expect(story).toContain(`There is no VM 2: ${message}`)
  })

  it("show a run that ran out of memory, with its cost and the memory of the next VM", async () => {
    const id = await submit("grown")
    const finish = (minute: number, more: object) => ({ finish: { ...more, time: time(minute) } })
    const oom = { reason: "ContainerFailed", cause: "OutOfMemory", exitCode: 137, message: "exit code 137" } as const
    for (const [number, more, costUsd] of [
      [1, oom, 0.0125],
      [2, { reason: "Succeeded", exitCode: 0 } as const, 0.05],
    ] as const) {
      await launch("grown", number, {
        phase: "terminated",
        vm: {
          state: "terminated",
          id: `vm-${number}`,
          createTime: time(2 * number),
          terminationTime: time(2 * number + 1),
        },
        agent: agentOf({ startTime: time(2 * number), ...finish(2 * number, more) } as never),
        costUsd,
      })
    }
    await setStatus(fixture, "grown", {
      phase: "succeeded",
      launches: { count: 2, retried: 1 },
      retries: [{ launch: 1, reason: "OutOfMemory", exitCode: 137, memoryGib: 31, time: time(2) }],
    })
    await eventually(async () => expect((await launchesOf(id)).launches.at(-1)?.cost_usd).toBe(0.05))
    const { launches } = await launchesOf(id)
    expect(launches.map(({ failure, cost_usd }) => [failure, cost_usd])).toEqual([
      [{ reason: "OutOfMemory", message: "exit code 137", at: time(2) }, 0.0125],
      [null, 0.05],
    ])
    await eventually(async () =>
      expect((await timelineOf(id)).timeline).toContainEqual({
        at: time(2),
        type: "Retried",
        reason: "OutOfMemory",
        launch: 1,
        message:
          "The run on VM 1 failed (OutOfMemory, exit code 137), and the job gets another VM whose container has at least 31 GiB.",
      }),
    )
    expect(await (await call(`/1/jobs/${id}`)).json()).toMatchObject({ new_vm_retries: 1 })
  })

  it("say what is deleted, and show what the job itself has", async () => {
    const id = await submit("old")
    const condition = { status: "True", observedGeneration: 1, message: "" } as const
    await setStatus(fixture, "old", {
      phase: "failed",
      reason: "ContainerFailed",
      message: "exit code 2",
      completionTime: time(9),
      launches: { count: 2 },
      conditions: [
        { ...condition, type: "Placed", reason: "Placed", lastTransitionTime: time(1) },
        { ...condition, type: "VMReady", reason: "Registered", lastTransitionTime: time(2) },
        { ...condition, type: "Started", reason: "Started", lastTransitionTime: time(3) },
      ],
      refusedOffers: [
        {
          cloud: "sim",
          region: "here",
          instanceType: "small",
          provisioning: "onDemand",
          reason: "Quota",
          message: "limit of 0 vCPUs",
          time: time(0),
        },
      ],
    })
    const { timeline, message, deleted } = await eventually(async () => {
      const found = await timelineOf(id)
      expect(found.deleted).toBe(2)
      return found
    })
    expect([deleted, message]).toEqual([2, expect.stringMatching(/^The records of 2 of 2 VMs are deleted: /)])
    expect(timeline.map(({ type, launch, message }) => [type, launch, message])).toEqual([
      ["Submitted", null, "The job was submitted."],
      ["Refused", null, "sim small in here: limit of 0 vCPUs"],
      ["Requested", null, "A VM was requested."],
      ["Registered", null, "The agent of the VM registered."],
      ["Started", null, "The container started."],
      ["Ended", null, "The job has failed: exit code 2"],
    ])
    expect(await launchesOf(id)).toMatchObject({ launches: [], total: 2, deleted: 2, message })
  })

  it("show why a job waits", async () => {
    const id = await submit("waits")
    expect((await timelineOf(id)).timeline).toHaveLength(1)
    const message = "4 offers match, but the project has no Ready connection"
    const placed = { type: "Placed", status: "False", reason: "NoConnection", message } as const
    await setStatus(fixture, "waits", {
      phase: "queued",
      conditions: [{ ...placed, observedGeneration: 1, lastTransitionTime: time(1) }],
    })
    await eventually(async () => {
      const { timeline } = await timelineOf(id)
      expect(timeline.at(-1)).toEqual({ type: "Waiting", at: time(1), reason: "NoConnection", message, launch: null })
    })
    expect(await launchesOf(id)).toEqual({ launches: [], total: 0, deleted: 0, message: null })
  })

  it("return 404 for an unknown job", async () => {
    for (const part of ["launches", "timeline"]) expect((await call(`/1/jobs/none/${part}`)).status).toBe(404)
  })
})
