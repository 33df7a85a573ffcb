import { describe, expect, test } from "vitest"
import { INSTALLATION, jobOf, launchOf, T0, time, vmStatus } from "../../../test/harness/builders.ts"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { SimCloud } from "../../../test/harness/sim-cloud.ts"
import type { Clouds } from "../../clouds/cloud.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { LABELS } from "../../core/apis/meta.ts"
import { KubeError } from "../../core/kube/errors.ts"
import { IndexedStore } from "../../core/kube/store.ts"
import { GarbageCollector } from "./garbage-collection.ts"

const ended = (terminationTime = time(0)) =>
  launchOf(jobOf({ metadata: { uid: "root" } }), 1, {
    status: vmStatus({ phase: "terminated", vm: { state: "terminated", createTime: time(0), terminationTime } }),
  })

/** Returns the ended Launch on another cloud. */
const endedOn = (cloud: string): StoredLaunch => {
  const launch = ended()
  return { ...launch, spec: { ...launch.spec, offer: { ...launch.spec.offer, cloud } } }
}

const missing = () => Promise.reject(new KubeError({ code: 404, reason: "NotFound", message: "not found" }))

/** Returns a collector of one account, with the Launch as the API server has it, and those that have taken over its VM. */
function collectorOf(live: StoredLaunch | undefined, cached = live, heirs: readonly StoredLaunch[] = []) {
  const clock = new ManualClock()
  clock.setCalendar(T0.getTime() / 1000)
  const cloud = new SimCloud(clock)
  const launches = new IndexedStore<StoredLaunch>()
  if (cached !== undefined) launches.put(cached)
  const log = () => undefined
  const api = { isAway: false }
  const get = () => {
    if (api.isAway) return Promise.reject(new KubeError({ code: 503, reason: "ServiceUnavailable", message: "away" }))
    return live === undefined ? missing() : Promise.resolve(live)
  }
  const list = (_: unknown, { labelSelector }: { labelSelector: string }) => {
    if (api.isAway) return Promise.reject(new KubeError({ code: 503, reason: "ServiceUnavailable", message: "away" }))
    const isListed = labelSelector === `${LABELS.rootLaunch}=${ended().metadata.name}`
    return Promise.resolve({ items: isListed ? heirs : [] })
  }
  const clouds: Clouds = { open: (account) => cloud.open({ ...account, cloud: "sim" }) }
  const collector = new GarbageCollector({
    ...{ client: { get, list } as never, clouds, launches, clock, fence: () => undefined },
    ...{
      accounts: () => [{ cloud: live?.spec.offer.cloud ?? "sim", region: "here" }],
      systemNamespace: INSTALLATION.systemNamespace,
    },
    ...{ installation: INSTALLATION.id, logger: { debug: log, info: log, warn: log, error: log } },
  })
  const plant = () => cloud.plant(INSTALLATION.id, ended().metadata.name, clock.now().toISOString())
  return { clock, cloud, collector, plant, api }
}

/** Advances the clock by so many seconds, with time for the rounds that fall due. */
async function pass(clock: ManualClock, seconds: number): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve))
  for (let second = 0; second < seconds; second++) {
    clock.advance(1)
    await new Promise((resolve) => setImmediate(resolve))
  }
}

describe("the VM of a Launch that is over", () => {
  test("is terminated in the first round, however young it is", async () => {
    const { collector, cloud, plant } = collectorOf(ended())
    plant()
    expect(await collector.round()).toHaveLength(1)
    expect(cloud.alive).toEqual([])
  })

  test("is kept while a list may still show the VM that has ended", async () => {
    const { collector, cloud, plant, clock } = collectorOf(ended(time(60)))
    cloud.consistencySeconds = 120
    plant()
    clock.advance(179)
    expect(await collector.round()).toEqual([])
    clock.advance(1)
    expect(await collector.round()).toHaveLength(1)
  })

  test("is kept while only the cache says that it is over, and while the API server is away", async () => {
    const current = launchOf(jobOf({ metadata: { uid: "root" } }), 1, { status: vmStatus() })
    const restored = collectorOf(current, ended())
    restored.plant()
    const { collector, plant, api } = collectorOf(ended())
    plant()
    api.isAway = true
    for (let round = 0; round < 3; round++) {
      expect(await restored.collector.round()).toEqual([])
      expect(await collector.round()).toEqual([])
    }
  })

  test.each(["sim", "azure", "aws"])(
    "is found within 30 s after a take-over, and within five minutes later: %s",
    async (name) => {
      const { collector, cloud, plant, clock } = collectorOf(endedOn(name))
      const stop = new AbortController()
      const running = Promise.all([collector.run(stop.signal), collector.runAfterTakeover(stop.signal)])
      for (const [wait, most] of [
        [100, 30],
        [700, 30],
        [300, 300],
      ] as const) {
        await pass(clock, wait)
        plant()
        await pass(clock, most)
        expect(cloud.alive).toEqual([])
      }
      // The rounds after the take-over have ended.
      expect(clock.timers).toBe(1)
      stop.abort()
      await running
    },
  )
})

describe("a VM that was taken over", () => {
  const root = ended()
  const heir = (number: number, status: StoredLaunch["status"], name = root.metadata.name) =>
    launchOf(jobOf({ metadata: { uid: `heir-${number}` } }), 1, {
      spec: { root: name, takesOver: name },
      ...(status !== undefined && { status }),
    })
  const over = { phase: "terminated", vm: { state: "terminated", id: "vm-1" } } as const
  const handedOver = { phase: "handedOver", handedTo: "heir-3-1", vm: { state: "terminated", id: "vm-1" } } as const

  test.each<[string, StoredLaunch | undefined, StoredLaunch[], number]>([
    ["a Launch has it", root, [heir(1, handedOver), heir(2, vmStatus())], 0],
    ["a Launch may be about to get it", root, [heir(1, over), heir(2, undefined)], 0],
    ["a Launch has it whose predecessors are deleted", undefined, [heir(2, vmStatus())], 0],
    ["all its Launches are over", root, [heir(1, handedOver), heir(2, over)], 1],
    ["its Launch has another VM", root, [heir(1, vmStatus({ vm: { state: "running", id: "vm-2" } }))], 1],
    ["its Launch is of another chain", root, [heir(1, vmStatus(), "another-1")], 1],
    ["no Launch has ever taken it over", root, [], 1],
  ])("is terminated only if it is no one's: %s", async (_, live, heirs, count) => {
    const { collector, plant, clock } = collectorOf(live, live, heirs)
    plant()
    clock.advance(300)
    expect(await collector.round()).toHaveLength(count)
    expect(await collector.round()).toHaveLength(0)
  })

  test("is kept while the API server can't say whose it is", async () => {
    const { collector, plant, api } = collectorOf(root, root, [heir(1, over)])
    plant()
    api.isAway = true
    for (let round = 0; round < 3; round++) expect(await collector.round()).toEqual([])
    api.isAway = false
    expect(await collector.round()).toHaveLength(1)
  })
})

test.each(["gcp"])("%s is not asked more often after a take-over: it never creates a second VM", async (name) => {
  const { collector, cloud, plant, clock } = collectorOf(endedOn(name))
  const stop = new AbortController()
  const running = collector.runAfterTakeover(stop.signal)
  plant()
  await pass(clock, 120)
  expect(cloud.alive).toHaveLength(1)
  stop.abort()
  await running
  expect(await collector.round()).toHaveLength(1)
})

test("a VM without a Launch is terminated in the second round of those five minutes apart, and not before", async () => {
  const { collector, cloud, plant, clock } = collectorOf(undefined)
  const stop = new AbortController()
  const running = Promise.all([collector.run(stop.signal), collector.runAfterTakeover(stop.signal)])
  plant()
  await pass(clock, 599)
  expect(cloud.alive).toHaveLength(1)
  await pass(clock, 1)
  expect(cloud.alive).toEqual([])
  stop.abort()
  await running
})
