import { expect, test } from "vitest"
import { INSTALLATION, jobOf, launchOf, vmStatus } from "../../../test/controllers/builders.ts"
import { SimCloud } from "../../../test/controllers/sim-cloud.ts"
import { ManualClock } from "../../../test/kube/manual-clock.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import type { Logger } from "../../apis/logger.ts"
import { IndexedStore } from "../../kube/store.ts"
import { VmObserver } from "./observer.ts"

const logger: Logger = { debug: () => undefined, info: () => undefined, warn: () => undefined, error: () => undefined }

test("tells of a VM that is gone when it was seen last", async () => {
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
    expect(observer.sighting(name)).toMatchObject({ seen: "present", vm: { state } })
  }
  clouds.vms.pop()
  clock.advance(10)
  await observer.poll()
  expect(observer.sighting(name)).toEqual({ seen: "absent", lastSeen: new Date(10_000) })

  const late = new VmObserver({ clouds, launches, installation: INSTALLATION.id, clock, logger })
  await late.poll()
  expect(late.sighting(name)).toEqual({ seen: "absent" })
})
