import { expect, test } from "vitest"
import { agentOf, at, INSTALLATION, jobOf, launchOf, time, vmStatus } from "../../../test/harness/builders.ts"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { SimCloud } from "../../../test/harness/sim-cloud.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { IndexedStore } from "../../core/kube/store.ts"
import { receivingSince, timedOutLaunches, VmObserver } from "./observe.ts"
import { HEARTBEAT_DEFAULTS } from "./settings.ts"

const logger: Logger = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined }

test("the observer reports when a VM that is no longer listed was last seen", async () => {
  const clock = new ManualClock()
  const clouds = new SimCloud(clock)
  const launch = launchOf(jobOf(), 1, { status: vmStatus() })
  const launches = new IndexedStore<StoredLaunch>()
  launches.put(launch)
  const observer = new VmObserver({ clouds, launches, installation: INSTALLATION.id, clock, logger })
  const { name } = launch.metadata
  clouds.plant(INSTALLATION.id, name, clock.now().toISOString())
  for (const state of ["running", "terminated"] as const) {
    clock.advance(10)
    const [planted] = clouds.vms
    if (planted !== undefined) planted.vm = { ...planted.vm, state }
    await observer.poll()
    expect(observer.view(name)).toMatchObject({ is: "found", vm: { state } })
  }
  clouds.vms.pop()
  clock.advance(10)
  await observer.poll()
  expect(observer.view(name)).toEqual({ is: "notFound", lastSeen: new Date(10_000) })

  const late = new VmObserver({ clouds, launches, installation: INSTALLATION.id, clock, logger })
  await late.poll()
  expect(late.view(name)).toEqual({ is: "notFound" })
})

test("the observer finds the VM of a Launch by its name while its id is not recorded, an ended one last", async () => {
  const clock = new ManualClock()
  const clouds = new SimCloud(clock)
  clouds.consistencySeconds = 30
  const silent = launchOf(jobOf(), 1)
  const heard = launchOf(jobOf(), 2, { status: { phase: "requested", agent: agentOf() } })
  const launches = new IndexedStore<StoredLaunch>()
  for (const launch of [silent, heard]) launches.put(launch)
  const observer = new VmObserver({ clouds, launches, installation: INSTALLATION.id, clock, logger })
  await observer.poll()
  // A list may not show the VM yet.
  expect(observer.view(heard.metadata.name)).toEqual({ is: "unknown" })
  clock.advance(30)
  await observer.poll()
  expect(observer.view(heard.metadata.name)).toEqual({ is: "notFound" })
  expect(observer.view(silent.metadata.name)).toEqual({ is: "unknown" })
  clouds.plant(INSTALLATION.id, heard.metadata.name, clock.now().toISOString())
  const second = clouds.plant(INSTALLATION.id, heard.metadata.name, clock.now().toISOString())
  clouds.lose("vm-1")
  await observer.poll()
  expect(observer.view(heard.metadata.name)).toMatchObject({ is: "found", vm: { id: second.id, state: "running" } })
  clouds.lose(second.id)
  await observer.poll()
  expect(observer.view(heard.metadata.name)).toMatchObject({ is: "found", vm: { id: "vm-1", state: "terminated" } })
})

test("the observer finds a VM that was taken over by the name of its first Launch, or by its id", async () => {
  const clock = new ManualClock()
  const clouds = new SimCloud(clock)
  const spec = { takesOver: "first-1", root: "first-1" }
  const heard = launchOf(jobOf(), 1, { spec, status: { phase: "requested", agent: agentOf() } })
  const known = launchOf(jobOf(), 1, { spec, status: vmStatus({ agent: agentOf() }) })
  const over = launchOf(jobOf({ metadata: { uid: "first" } }), 1, {
    status: vmStatus({ phase: "handedOver", handedTo: known.metadata.name }),
  })
  const launches = new IndexedStore<StoredLaunch>()
  for (const launch of [over, heard, known]) launches.put(launch)
  const observer = new VmObserver({ clouds, launches, installation: INSTALLATION.id, clock, logger })
  clouds.plant(INSTALLATION.id, "first-1", clock.now().toISOString())
  await observer.poll()
  const found = { is: "found", vm: { id: "vm-1", launch: "first-1", state: "running" } }
  for (const { metadata } of [heard, known]) expect(observer.view(metadata.name)).toMatchObject(found)
  // Its first Launch has no VM any more.
  expect(observer.view("first-1")).toEqual({ is: "unknown" })
})

function heartbeatAt(seconds: number): StoredLaunch {
  return launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ lastHeartbeatTime: time(seconds) }) }) })
}

const timedOutAt = (seconds: number, launches: readonly StoredLaunch[], since: Date | undefined) =>
  timedOutLaunches(launches, since, at(seconds), HEARTBEAT_DEFAULTS)

test("a lone agent never times out: the gateway may be the cause", () => {
  const launches = [heartbeatAt(0)]
  expect(receivingSince(at(0), launches, at(700), HEARTBEAT_DEFAULTS)).toBeUndefined()
  expect(timedOutAt(700, launches, undefined)).toEqual([])
})

test("an agent times out while others send heartbeats", () => {
  const launches = [heartbeatAt(0), heartbeatAt(690)]
  const since = receivingSince(at(0), launches, at(700), HEARTBEAT_DEFAULTS)
  expect(since).toEqual(at(0))
  expect(timedOutAt(599, launches, since)).toEqual([])
  expect(timedOutAt(600, launches, since)).toEqual([launches[0]])
})

test("every agent has the full timeout again after an outage of the gateway", () => {
  const launches = [heartbeatAt(0), heartbeatAt(0), heartbeatAt(800)]
  const since = receivingSince(undefined, launches, at(800), HEARTBEAT_DEFAULTS)
  expect(since).toEqual(at(800))
  expect(timedOutAt(801, launches, since)).toEqual([])
})

test("every agent has the full timeout again after the sleep of a machine with operator, façade and agents", async () => {
  const clock = new ManualClock()
  const clouds = new SimCloud(clock)
  const launches = new IndexedStore<StoredLaunch>()
  const observer = new VmObserver({ clouds, launches, installation: INSTALLATION.id, clock, logger })
  const [early, late] = [launchOf(jobOf(), 1), launchOf(jobOf(), 1)]
  let version = 1
  const beats = (launch: StoredLaunch) => {
    const agent = agentOf({ lastHeartbeatTime: clock.now().toISOString() })
    const metadata = { ...launch.metadata, resourceVersion: String(++version) }
    launches.put({ ...launch, metadata, status: vmStatus({ agent }) })
  }
  for (const launch of [early, late]) beats(launch)
  await observer.poll()
  clock.setCalendar(7200)
  beats(early)
  await observer.poll()
  expect(observer.heartbeatTimedOut(late.metadata.name)).toBe(false)
  for (let seconds = 0; seconds < HEARTBEAT_DEFAULTS.timeoutSeconds; seconds += 100) {
    clock.advance(100)
    beats(early)
    await observer.poll()
  }
  expect(observer.heartbeatTimedOut(late.metadata.name)).toBe(true)
})

test("only a few VMs are evicted if many agents time out at once, the oldest heartbeat first", () => {
  const launches = [heartbeatAt(30), heartbeatAt(10), heartbeatAt(20), heartbeatAt(690)]
  expect(timedOutAt(700, launches, at(0))).toEqual([launches[1]])
  const evicted = launchOf(jobOf(), 1, {
    status: vmStatus({ phase: "terminated", loss: { reason: "Silent", message: "", time: time(650) } }),
  })
  expect(timedOutAt(700, [...launches, evicted], at(0))).toEqual([])
})

test("an agent whose VM is to end does not time out", () => {
  const ended = launchOf(jobOf(), 1, { spec: { ended: true }, status: vmStatus({ agent: agentOf() }) })
  expect(timedOutAt(9000, [ended, heartbeatAt(8990)], at(0))).toEqual([])
})
