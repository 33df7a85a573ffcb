import { afterAll, beforeAll, expect } from "vitest"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { idlenessOf } from "../../src/core/reuse/reuse.ts"
import { browserNeeded } from "../browser.ts"
import { caller, created } from "../harness/caller.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { makeIdleVm } from "../harness/idle-vms.ts"
import { consoleSite } from "./browser.ts"

browserNeeded.describe("the idle machines in the console", () => {
  const fixture = projectFixture("console-idle")
  const site = consoleSite(fixture)
  const call = caller(() => site.replica, fixture)
  const launches: StoredLaunch[] = []

  beforeAll(async () => {
    for (const name of ["resize-1", "resize-2"]) {
      await created(await call("/1/jobs", { body: { name, image: "a", reuse: { idleSeconds: 300, key: "small" } } }))
      launches.push(await makeIdleVm(fixture.client, { namespace: fixture.namespace, name }))
    }
  })
  afterAll(() => Promise.all(launches.map(({ metadata }) => fixture.client.delete(LAUNCHES, metadata))))

  const idleness = async () => {
    const found = await Promise.all(launches.map(({ metadata }) => fixture.client.get(LAUNCHES, metadata)))
    return found.map((launch) => idlenessOf(launch).is)
  }

  browserNeeded.it("are on the overview with the cost of their wait, and end by a button", async () => {
    const { page, faults } = await site.signedIn("/")
    const table = page.getByRole("table").filter({ hasText: "Cost of the wait" })
    const row = table.getByRole("row").filter({ hasText: "resize-1" })
    await row.getByRole("cell", { name: "resize-1 small" }).waitFor()
    expect(await row.innerText()).toMatch(/\$\d/)
    await row.getByRole("button", { name: "End the machine of resize-1" }).click()
    await row.waitFor({ state: "detached" })
    expect(await table.getByRole("row").filter({ hasText: "resize-2" }).count()).toBe(1)
    expect(await idleness()).toEqual(["none", "idle"])
    await page.getByRole("button", { name: "End the machine of resize-2" }).click()
    await table.waitFor({ state: "detached" })
    expect(await idleness()).toEqual(["none", "none"])
    expect(faults).toEqual([])
  })

  browserNeeded.it("are named in the facts of their job", async () => {
    const { page, faults } = await site.signedIn("/jobs/resize-1?tab=story")
    await page.getByText("5m:small").waitFor()
    await page.getByText(/VM 1 wait(s|ed) for another job, for 300 s at most/).waitFor()
    expect(faults).toEqual([])
  })
})
