import { expect, test } from "vitest"
import { INSTALLATION, jobOf, launchOf, offerOf } from "../../test/harness/builders.ts"
import { ManualClock } from "../../test/harness/manual-clock.ts"
import { VmImages } from "./vm-images.ts"

const launch = launchOf(jobOf(), 1, { spec: { account: "1" } })
const similar = (spec: Partial<typeof launch.spec>) => launchOf(jobOf(), 1, { spec: { account: "1", ...spec } })

test("new Launches of the same machine and account get the image of a former one, for ten minutes", () => {
  const clock = new ManualClock()
  const images = new VmImages(clock)
  expect(images.find(launch)).toBeUndefined()
  images.add(launch, "ami-1")
  expect(images.find(similar({ installation: INSTALLATION.id }))).toBe("ami-1")
  expect(images.find(similar({ account: "2" }))).toBeUndefined()
  expect(images.find(similar({ project: "other" }))).toBeUndefined()
  expect(images.find(similar({ offer: offerOf({ region: "there" }) }))).toBeUndefined()
  expect(images.find(similar({ offer: offerOf({ instanceType: "medium" }) }))).toBeUndefined()
  clock.advance(599)
  expect(images.find(launch)).toBe("ami-1")
  clock.advance(1)
  expect(images.find(launch)).toBeUndefined()
})

test("the image is requested again after a rejected request", () => {
  const images = new VmImages(new ManualClock())
  images.add(launch, "ami-1")
  images.remove(launch)
  expect(images.find(launch)).toBeUndefined()
})
