import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type JobUsage, JobUsageSchema } from "../../src/api/resources/jobs/usage.ts"
import { launchName } from "../../src/core/apis/launch.ts"
import type { UsagePoint } from "../../src/core/apis/usage.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import type { JobRecord } from "../../src/core/records/job.ts"
import { JOBS } from "../../src/core/resources.ts"
import { launchOf } from "../harness/builders.ts"
import { caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture, setStatus } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-usage")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())

const START = Date.parse("2026-10-01T12:00:00Z")

function minutes(count: number, fields: Partial<UsagePoint> = {}): UsagePoint[] {
  return Array.from({ length: count }, (_, index) => ({
    time: START + index * 60_000,
    seconds: 60,
    cpu: 1 + index,
    memoryMib: 2048,
    ...fields,
  }))
}

async function submit(name: string) {
  const { job_id } = await created(await call("/1/jobs", { body: { name, image: "a" } }))
  const job = await fixture.client.get(JOBS, { namespace: fixture.namespace, name })
  return { id: job_id, job, launch: launchOf(job, 1), ref: { namespace: fixture.namespace, uid: job_id } }
}

async function usageOf(id: string, query = ""): Promise<JobUsage> {
  const answer = (await (await call(`/1/jobs/${id}/usage${query}`, { key: fixture.keys.viewer })).json()) as JobUsage
  expect(findErrors(JobUsageSchema, answer)).toEqual([])
  return answer
}

const NOTHING = { usage: null, machine: null, known_until: null, points: [] }

describe("what a job uses", () => {
  it("is nothing before it runs, and under an older agent", async () => {
    const { id } = await submit("older")
    expect(await usageOf(id)).toEqual(NOTHING)
    const record = (await (await call(`/1/jobs/${id}`)).json()) as JobRecord
    expect(record.usage).toBeNull()
    expect((await call("/1/jobs/none/usage")).status).toBe(404)
  })

  it("is what this replica has heard of its VM, after what is stored", async () => {
    const { id, launch, ref } = await submit("running")
    const { offer } = launch.spec
    const placement = { offer: { ...offer, cpu: 8, memoryGib: 32 }, reason: "cheapest" }
    const current = launchName(id, 1)
    await setStatus(fixture, "running", { phase: "running", launches: { count: 1, current }, placement })
    await replica.usageStore.add(ref, 1, minutes(2))
    const heard = { ...launch, metadata: { ...launch.metadata, name: current } }
    const [, , third] = minutes(3, { gpu: 50, vramMib: 4096, diskGib: 3.5, receivedMib: 10, sentMib: 1 })
    if (third === undefined) throw new Error("there are three minutes")
    await replica.usage.take(heard, { points: [third], upTo: third.time }, false)
    const answer = await eventually(async () => {
      const read = await usageOf(id)
      expect(read.points).toHaveLength(3)
      return read
    })
    expect(answer).toMatchObject({
      machine: { cpu: 8, memory_gib: 32, gpus: null, vram_gib: null },
      usage: { seconds: 180, cpu_mean: 2, cpu_peak: 3, memory_peak_mib: 2048, gpu_mean: 50, vram_peak_mib: 4096 },
      known_until: "2026-10-01T12:03:00.000Z",
    })
    expect(answer.points[0]).toMatchObject({ launch: 1, time: "2026-10-01T12:00:00.000Z", gpu_percent: null })
    expect(answer.points[2]).toEqual({
      ...{ launch: 1, time: "2026-10-01T12:02:00.000Z", seconds: 60, cpu: 3, memory_mib: 2048, disk_gib: 3.5 },
      ...{ received_mib: 10, sent_mib: 1, gpu_percent: 50, vram_mib: 4096 },
    })
    const last = await usageOf(id, "?last=1")
    expect(last).toEqual({ ...answer, points: answer.points.slice(2) })
  })

  it("is the agent's own summary after the end, also in the job's record; it is deleted with the job", async () => {
    const { id, ref } = await submit("ended")
    await replica.usageStore.add(ref, 1, minutes(2))
    const usage = { seconds: 130, cpuMean: 1.25, cpuPeak: 2, memoryPeakMib: 3000, gpuMean: 12.5 }
    await setStatus(fixture, "ended", { phase: "succeeded", usage, settled: true })
    const summary = {
      ...{ seconds: 130, cpu_mean: 1.25, cpu_peak: 2, memory_peak_mib: 3000, gpu_mean: 12.5 },
      ...{ disk_peak_gib: null, received_gib: null, sent_gib: null, vram_peak_mib: null },
    }
    await eventually(async () => expect((await usageOf(id)).usage).toEqual(summary))
    expect(((await (await call(`/1/jobs/${id}`)).json()) as JobRecord).usage).toEqual(summary)
    expect((await usageOf("ended")).points).toHaveLength(2)
    const job = { namespace: fixture.namespace, name: "ended" }
    // As the operator does when a job settles.
    await fixture.client.patch(JOBS, job, { merge: { metadata: { finalizers: null } } })
    await fixture.client.delete(JOBS, job)
    await eventually(async () => expect(await replica.usageStore.read(ref)).toEqual([]))
  })
})
