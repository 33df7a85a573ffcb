import { beforeEach, describe, expect, it } from "vitest"
import { agentOf, jobOf, launchOf, T0, vmStatus } from "../../../test/harness/builders.ts"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { MemoryObjects } from "../../../test/harness/memory-objects.ts"
import { silentLogger } from "../../../test/harness/silent-logger.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { UsagePoint } from "../../core/apis/usage.ts"
import { UsageStore } from "./store.ts"
import { UsageTails } from "./tails.ts"

let clock: ManualClock
let objects: MemoryObjects
let store: UsageStore
let tails: UsageTails
let launches: Map<string, StoredLaunch>

beforeEach(() => {
  clock = new ManualClock()
  clock.setCalendar(T0.getTime() / 1000)
  objects = new MemoryObjects()
  store = new UsageStore(objects)
  launches = new Map()
  tails = new UsageTails({ store, launches: { get: (name) => launches.get(name) }, clock, logger: silentLogger })
})

function newLaunch(): StoredLaunch {
  const launch = launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf() }) })
  launches.set(launch.metadata.name, launch)
  return launch
}

/** Returns points of so many minutes, from a minute of the run on. */
function minutes(count: number, from = 0): UsagePoint[] {
  return Array.from({ length: count }, (_, index) => ({
    time: T0.getTime() + (from + index) * 60_000,
    seconds: 60,
    cpu: 1,
    memoryMib: 100 + from + index,
  }))
}

const reported = (points: UsagePoint[], after?: number) => ({
  ...{ points, upTo: lastOf(points) },
  ...(after !== undefined && { after }),
})
const lastOf = (points: UsagePoint[]) => points.at(-1)?.time ?? -1

/** Lets what was started in the background go on. */
const settle = async () => {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve()
}

const jobOfLaunch = ({ spec: { job } }: StoredLaunch) => ({ namespace: job.namespace, uid: job.uid })

describe("the usage that a replica hears", () => {
  it("is stored when it spans half an hour, and only then; the next answer says so", async () => {
    const launch = newLaunch()
    for (let minute = 0; minute < 29; minute++) {
      const answer = await tails.take(launch, reported(minutes(1, minute), lastOf(minutes(minute))), false)
      expect(answer).toEqual({ usageHeld: lastOf(minutes(minute + 1)) })
      await settle()
    }
    expect(objects.puts).toBe(0)
    expect(await tails.read(jobOfLaunch(launch), launch.metadata.name)).toHaveLength(29)
    await tails.take(launch, reported(minutes(1, 29), lastOf(minutes(29))), false)
    await settle()
    expect(objects.puts).toBe(1)
    const answer = await tails.take(launch, reported(minutes(1, 30), lastOf(minutes(30))), false)
    expect(answer).toEqual({ usageStored: lastOf(minutes(30)), usageHeld: lastOf(minutes(31)) })
    await tails.take(launch, reported(minutes(1, 31), lastOf(minutes(31))), false)
    expect(objects.puts).toBe(1)
    const all = await tails.read(jobOfLaunch(launch), launch.metadata.name)
    expect(all.map(({ memoryMib }) => memoryMib)).toEqual(minutes(32).map(({ memoryMib }) => memoryMib))
  })

  it("has no gap: points after missing ones are not taken, until all are sent", async () => {
    const launch = newLaunch()
    const known = async () => (await tails.read(jobOfLaunch(launch), launch.metadata.name)).map(({ time }) => time)
    // Another replica has the first three.
    expect(await tails.take(launch, reported(minutes(2, 3), lastOf(minutes(3))), false)).toEqual({})
    expect(await known()).toEqual([])
    expect(await tails.take(launch, reported(minutes(5)), false)).toEqual({ usageHeld: lastOf(minutes(5)) })
    // The agent did not hear so, and sends from an earlier point on.
    const late = await tails.take(launch, reported(minutes(4, 2), lastOf(minutes(2))), false)
    expect(late).toEqual({ usageHeld: lastOf(minutes(6)) })
    expect(await known()).toEqual(minutes(6).map(({ time }) => time))
  })

  it("is in memory with as many points as an agent keeps, at most", async () => {
    const launch = newLaunch()
    objects.fault = new Error("ENOSPC: no space left on device")
    expect(await tails.take(launch, reported(minutes(64)), false)).toEqual({ usageHeld: lastOf(minutes(64)) })
    expect(await tails.take(launch, reported(minutes(1, 64), lastOf(minutes(64))), false)).toEqual({})
    expect(await tails.read(jobOfLaunch(launch), launch.metadata.name)).toHaveLength(64)
    const merged = minutes(64, 1)
    expect(await tails.take(launch, reported(merged), false)).toEqual({ usageHeld: lastOf(merged) })
  })

  it("is stored with the finish at once, and then no longer in memory", async () => {
    const launch = newLaunch()
    const last = minutes(3)
    expect(await tails.take(launch, reported(last), true)).toMatchObject({ usageStored: lastOf(last) })
    expect(tails.size).toBe(0)
    expect(await store.read(jobOfLaunch(launch))).toHaveLength(3)
    // The answer was lost: the agent sends its finish to another replica.
    expect(await tails.take(launch, reported(last), true)).toMatchObject({ usageStored: lastOf(last) })
    expect(await store.read(jobOfLaunch(launch))).toHaveLength(3)
  })

  it("stays with the agents while the store fails, which is asked again after five minutes, and at each finish", async () => {
    const launch = newLaunch()
    objects.fault = new Error("ENOSPC: no space left on device")
    for (let minute = 30; minute < 34; minute++) {
      expect(await tails.take(launch, reported(minutes(minute)), false)).not.toHaveProperty("usageStored")
      await settle()
      clock.advance(60)
    }
    expect(objects.puts).toBe(1)
    expect(await tails.take(newLaunch(), reported(minutes(1)), true)).not.toHaveProperty("usageStored")
    expect(objects.puts).toBe(2)
    objects.fault = undefined
    clock.advance(301)
    await tails.take(launch, reported(minutes(36)), false)
    await settle()
    expect(await tails.take(launch, reported(minutes(37)), false)).toMatchObject({ usageStored: lastOf(minutes(36)) })
  })

  it("keeps no finish waiting for a store that does not answer", async () => {
    objects.gate = new Promise(() => {})
    const answer = tails.take(newLaunch(), reported(minutes(3)), true)
    await settle()
    clock.advance(5)
    expect(await answer).not.toHaveProperty("usageStored")
  })

  it("is written for eight Launches at the same time, at most", async () => {
    objects.gate = new Promise(() => {})
    for (let vm = 0; vm < 12; vm++) await tails.take(newLaunch(), reported(minutes(30)), false)
    await settle()
    expect(objects.puts).toBe(8)
  })

  it("is forgotten when the Launch is over or deleted, and after an hour of silence", async () => {
    const [ended, removed, silent, heard] = [newLaunch(), newLaunch(), newLaunch(), newLaunch()]
    for (const launch of [ended, removed, silent, heard]) await tails.take(launch, reported(minutes(1)), false)
    launches.set(ended.metadata.name, { ...ended, status: vmStatus({ phase: "terminated" }) })
    launches.delete(removed.metadata.name)
    clock.advance(61)
    await tails.take(heard, reported(minutes(2)), false)
    expect(tails.size).toBe(2)
    clock.advance(3601)
    await tails.take(heard, reported(minutes(3)), false)
    expect(tails.size).toBe(1)
  })
})
