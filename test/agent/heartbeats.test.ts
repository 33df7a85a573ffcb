import { afterAll, beforeEach, describe, expect, it } from "vitest"
import { HeartbeatWriter } from "../../src/api/gateway/heartbeats.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ANNOTATIONS } from "../../src/core/apis/meta.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { HEARTBEATS_CACHE, parseHeartbeats, SharedHeartbeats } from "../../src/core/kube/heartbeats.ts"
import { type Lease, leases } from "../../src/core/kube/lease.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { IndexedStore } from "../../src/core/kube/store.ts"
import { VmObserver } from "../../src/operator/launch/observe.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { agentOf, INSTALLATION, jobOf, launchOf, T0, time, vmStatus } from "../harness/builders.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { SimCloud } from "../harness/sim-cloud.ts"

const PATIENCE = { timeout: 30_000, interval: 5 }
const ROUND_SECONDS = 10

const client = new KubeClient(kubeConfig())
const running = new AbortController()
const namespace = testNamespace("heartbeats")
let clock: ManualClock

beforeEach(async () => {
  clock = new ManualClock()
  clock.setCalendar(T0.getTime() / 1000)
  const { items } = await client.list(leases, { namespace })
  await Promise.all(items.map(({ metadata: { name } }) => client.delete(leases, { namespace, name })))
})
afterAll(async () => {
  running.abort()
  await client.close()
})

/** Cache of the Leases, as an operator or a façade has it. */
function startCache() {
  const cache = new Reflector<Lease>({ client, ...HEARTBEATS_CACHE, namespace, logger: silentLogger })
  const times = new SharedHeartbeats(cache, clock)
  void cache.run(running.signal)
  return { cache, times }
}

/** A replica of the façade. `isRead`: answer of the look at the operators' Lease. */
async function startReplica(launches: ReadonlyMap<string, StoredLaunch>) {
  const { cache, times } = startCache()
  await cache.whenSynced(AbortSignal.timeout(60_000))
  let writes = 0
  let isDown = false
  const counted = <Args extends unknown[], Result>(call: (...args: Args) => Promise<Result>) => {
    return async (...args: Args): Promise<Result> => {
      if (isDown) throw new Error("the API server is away")
      writes++
      return await call(...args)
    }
  }
  const writer = new HeartbeatWriter({
    client: {
      create: counted(client.create.bind(client)) as KubeClient["create"],
      patch: counted(client.patch.bind(client)) as KubeClient["patch"],
      delete: client.delete.bind(client),
    },
    namespace,
    written: cache.store,
    times,
    launches: { get: (name) => launches.get(name) },
    holder: "replica",
    clock,
    logger: silentLogger,
  })
  let sequence = 0
  return {
    writer,
    times,
    leases: () => cache.store.list(),
    /** Hears the VMs now. */
    hear: (names: Iterable<string>) => {
      sequence++
      for (const name of names) writer.beat(name, sequence)
    },
    /** Writes what is due, and waits until its own cache shows it. */
    round: async () => {
      await writer.round()
      if (isDown) return
      const { items, metadata } = await client.list(leases, { namespace })
      await cache.store.waitUntil(() => items.every((lease) => isShown(cache, lease)), AbortSignal.timeout(60_000))
      return metadata.resourceVersion
    },
    /** Returns the number of writes since the last call. */
    writes: () => {
      const count = writes
      writes = 0
      return count
    },
    setDown: (down: boolean) => {
      isDown = down
    },
  }
}

function isShown(cache: Reflector<Lease>, { metadata }: Lease): boolean {
  const shown = cache.store.get({ namespace: metadata.namespace, name: metadata.name })
  return shown?.metadata.resourceVersion === metadata.resourceVersion
}

function launchesOf(count: number, beatAt = 0): Map<string, StoredLaunch> {
  const all = Array.from({ length: count }, () =>
    launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ lastHeartbeatTime: time(beatAt) }) }) }),
  )
  return new Map(all.map((launch) => [launch.metadata.name, launch]))
}

describe("heartbeats of many VMs", () => {
  it.each([
    { vms: 1, reportSeconds: 15, most: 2, oldest: 40 },
    { vms: 100, reportSeconds: 15, most: 0.5, oldest: 40 },
    { vms: 10_000, reportSeconds: 60, most: 0.1, oldest: 70 },
  ])("$vms of them cost at most $most writes a minute each, and none is shown older than $oldest s", async (goal) => {
    const launches = launchesOf(goal.vms)
    const names = [...launches.keys()]
    const replica = await startReplica(launches)
    const minutes = 3
    let oldest = 0
    const measure = () => {
      for (const name of names) oldest = Math.max(oldest, clock.now().getTime() - Number(replica.times.get(name)))
    }
    // VMs report at different seconds. The first two minutes fill the Leases.
    for (let second = 0; second < (2 + minutes) * 60; second++) {
      clock.advance(1)
      replica.hear(names.filter((_, index) => (second + index) % goal.reportSeconds === 0))
      const isMeasured = second >= 120
      if (isMeasured && second % ROUND_SECONDS === ROUND_SECONDS - 1) measure()
      if (second % ROUND_SECONDS === ROUND_SECONDS - 1) await replica.round()
      if (second === 119) replica.writes()
    }
    const cost = replica.writes() / minutes / goal.vms
    expect(cost).toBeLessThanOrEqual(goal.most)
    expect(oldest / 1000).toBeLessThanOrEqual(goal.oldest)
    expect(replica.leases().length).toBe(Math.ceil(goal.vms / 1000))
    for (const { metadata } of replica.leases())
      expect(metadata.annotations?.[ANNOTATIONS.heartbeats]?.length).toBeLessThan(128 * 1024)
  })

  it("are the latest of all replicas, and each VM is left to the replica that hears it", async () => {
    const launches = launchesOf(2)
    const [moving = "", staying = ""] = launches.keys()
    const [one, two] = [await startReplica(launches), await startReplica(launches)]
    for (let minute = 0; minute < 8; minute++) {
      clock.advance(60)
      one.hear(minute === 0 ? [moving, staying] : [staying])
      two.hear(minute === 0 ? [] : [moving])
      await one.round()
      await two.round()
    }
    await expect
      .poll(() => [one.times.get(moving), two.times.get(staying)], PATIENCE)
      .toEqual([clock.now(), clock.now()])
    expect([one.writer.size, two.writer.size]).toEqual([1, 1])
  })

  it("are forgotten when the Launch has ended, and ignored if a report is not newer", async () => {
    const launches = launchesOf(2)
    const [over = "", live = ""] = launches.keys()
    const replica = await startReplica(launches)
    clock.advance(60)
    replica.hear([over, live])
    const heardAt = clock.now()
    clock.advance(60)
    replica.writer.beat(live, 1)
    launches.set(over, launchOf(jobOf(), 1, { status: vmStatus({ phase: "terminated" }) }))
    await replica.round()
    expect(replica.times.get(live)).toEqual(heardAt)
    expect(replica.times.get(over)).toBeUndefined()
  })

  it("are deleted an hour after their replica has ended, and written again if that was wrong", async () => {
    const launches = launchesOf(2)
    const [first = "", second = ""] = launches.keys()
    const [ended, paused, live] = [
      await startReplica(launches),
      await startReplica(launches),
      await startReplica(launches),
    ]
    clock.advance(60)
    ended.hear([first])
    paused.hear([second])
    await ended.round()
    await paused.round()
    await expect.poll(() => live.leases().length, PATIENCE).toBe(2)
    await live.writer.round()
    clock.advance(3599)
    await live.writer.round()
    expect((await client.list(leases, { namespace })).items.length).toBe(2)
    clock.advance(1)
    await live.writer.round()
    await expect.poll(() => live.leases().length, PATIENCE).toBe(0)
    paused.hear([second])
    await expect.poll(() => paused.leases().length, PATIENCE).toBe(0)
    await paused.round()
    expect(paused.times.get(second)).toEqual(clock.now())
  })

  it("are written after an outage of the API server, and once more when the program stops", async () => {
    const launches = launchesOf(1)
    const names = [...launches.keys()]
    const replica = await startReplica(launches)
    replica.setDown(true)
    clock.advance(60)
    replica.hear(names)
    await replica.round()
    replica.setDown(false)
    await replica.round()
    expect(replica.times.get(names[0] ?? "")).toEqual(clock.now())
    clock.advance(5)
    replica.hear(names)
    await replica.round()
    await replica.writer.run(AbortSignal.abort())
    await expect.poll(() => replica.times.get(names[0] ?? ""), PATIENCE).toEqual(clock.now())
  })
})

describe("silence", () => {
  /** Returns an operator's observer of these Launches. */
  function startOperator(launches: ReadonlyMap<string, StoredLaunch>) {
    const { cache, times } = startCache()
    const store = new IndexedStore<StoredLaunch>()
    for (const launch of launches.values()) store.put(launch)
    const observer = new VmObserver({
      clouds: new SimCloud(clock),
      launches: store,
      heartbeatTimes: times,
      installation: INSTALLATION.id,
      clock,
      logger: silentLogger,
    })
    const shows = (name: string, heard: Date) =>
      expect.poll(() => times.get(name)?.getTime(), PATIENCE).toBe(heard.getTime())
    const silent = async () => {
      await observer.poll()
      return [...launches.keys()].filter((name) => observer.heartbeatTimedOut(name))
    }
    return { silent, shows, cache }
  }

  it("ends a VM after ten minutes while others are heard, and none while the façade is away", async () => {
    const launches = launchesOf(3)
    const [dead = "", live = "", other = ""] = launches.keys()
    const operator = startOperator(launches)
    const replica = await startReplica(launches)
    const hear = async (names: string[]) => {
      replica.hear(names)
      await replica.round()
      for (const name of names) await operator.shows(name, clock.now())
    }
    clock.advance(60)
    await hear([dead, live, other])
    expect(await operator.silent()).toEqual([])
    for (let second = 60; second < 600; second += 60) {
      clock.advance(60)
      await hear([live, other])
      expect(await operator.silent()).toEqual([])
    }
    clock.advance(60)
    await hear([live, other])
    expect(await operator.silent()).toEqual([dead])
    // The façade is away for an hour. Then every agent has the full timeout again.
    clock.advance(3600)
    expect(await operator.silent()).toEqual([])
    await hear([live])
    expect(await operator.silent()).toEqual([])
    for (let second = 0; second < 540; second += 60) {
      clock.advance(60)
      await hear([live])
      expect(await operator.silent()).toEqual([])
    }
  })

  it("gives every agent the full timeout when the operator starts", async () => {
    const launches = launchesOf(2)
    const [dead = "", live = ""] = launches.keys()
    const replica = await startReplica(launches)
    clock.advance(60)
    replica.hear([dead, live])
    await replica.round()
    clock.advance(3000)
    replica.hear([live])
    await replica.round()
    const operator = startOperator(launches)
    await operator.shows(live, clock.now())
    expect(await operator.silent()).toEqual([])
  })
})

it("a Lease has the names and seconds of its Launches", async () => {
  const launches = launchesOf(1)
  const [name = ""] = launches.keys()
  const replica = await startReplica(launches)
  clock.advance(60)
  replica.hear([name])
  await replica.round()
  const [lease] = replica.leases()
  expect(lease?.spec.holderIdentity).toBe("replica")
  const seconds = clock.now().getTime() / 1000
  expect(parseHeartbeats(lease?.metadata.annotations?.[ANNOTATIONS.heartbeats])).toEqual(new Map([[name, seconds]]))
})
