import type { Page } from "playwright-core"
import { expect } from "vitest"
import { timestamp } from "../../src/core/apis/clock.ts"
import type { Host, MachineStatus } from "../../src/core/apis/machine.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { verifyJoinToken } from "../../src/core/protocol/machines.ts"
import { JOBS, LAUNCHES, MACHINES } from "../../src/core/resources.ts"
import { browserNeeded } from "../browser.ts"
import { launchOf } from "../harness/builders.ts"
import { caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { BOOTSTRAP_KEY } from "../harness/gateway.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { consoleSite } from "./browser.ts"

const NOW = timestamp(new Date())
const HOST: Host = {
  ...{ joinNumber: 1, joinTime: NOW, signingKey: "{}", encryptionKey: "{}", version: "0.1.0", sequence: 1 },
  facts: { cpu: 8, memoryGib: 31.2, diskGib: 100, architecture: "amd64", gpu: { model: "L4", count: 2, vramGib: 24 } },
  ...{ lastHeartbeatTime: NOW, leaseSeconds: 900 },
}

browserNeeded.describe("the machines in the console", () => {
  const fixture = projectFixture("console-machines")
  const { client, namespace } = fixture
  const site = consoleSite(fixture)
  const call = caller(() => site.replica, fixture)
  const ref = { namespace, name: "gpu-1" }
  const stored = () => ifFound(client.get(MACHINES, ref))

  /** Writes a machine's status as gateway and operator do. */
  const writeStatus = (status: MachineStatus) => client.patchStatus(MACHINES, ref, { merge: { status } })

  /** Returns the claims of the join token in the command that the page shows, and closes it. */
  async function takeCommand(page: Page, start: RegExp): Promise<{ name: string; number: number } | undefined> {
    const command = (await page.getByLabel("Command", { exact: true }).textContent()) ?? ""
    expect(command).toMatch(start)
    const [, token = ""] = /BERTH_JOIN_TOKEN='?([\w.-]+)/.exec(command) ?? []
    await page.getByRole("button", { name: "I have copied it" }).click()
    await page.getByLabel("Command", { exact: true }).waitFor({ state: "detached" })
    expect(await page.content()).not.toContain(token)
    return verifyJoinToken(BOOTSTRAP_KEY, token)
  }

  browserNeeded.it("join by a command that is shown once, show their job, are drained and removed", async () => {
    const { page, faults } = await site.signedIn("/machines")
    await page.getByText("This project has no machines of its own.").waitFor()
    await page.getByRole("button", { name: "New machine" }).click()
    const form = page.getByRole("form", { name: "New machine" })
    await form.getByLabel("Name").fill("g")
    await form.getByLabel("Price, USD per hour").fill("0.2")
    await form.getByLabel("Region").fill("office")
    await form.getByRole("button", { name: "Add the machine" }).click()
    await form.getByText(/^name must /).waitFor()
    await form.getByLabel("Name").fill("gpu-1")
    await form.getByRole("button", { name: "Add the machine" }).click()
    await page.getByLabel("systemd and Node.js").check()
    expect(await takeCommand(page, /systemctl enable berth-machine/)).toMatchObject({ name: "gpu-1", number: 1 })
    expect((await stored())?.spec).toMatchObject({ hourlyPriceUsd: 0.2, region: "office" })
    const panel = page.getByRole("article", { name: "gpu-1", exact: true })
    await panel.getByText("pending", { exact: true }).waitFor()

    await created(await call("/1/jobs", { body: { name: "train", image: "a" } }))
    const launch = launchOf(await client.get(JOBS, { namespace, name: "train" }), 1)
    const at = { namespace: SYSTEM_NAMESPACE, name: launch.metadata.name }
    await client.create(LAUNCHES, { ...launch, metadata: at })
    const holder = { ...{ name: at.name, installation: "i", namespace, region: "office" }, specDigest: "d" }
    await writeStatus({ host: { ...HOST, running: at.name }, launch: { ...holder, createTime: NOW } })
    // A change of a job shows who has the machine now.
    await created(await call("/1/jobs", { body: { name: "next", image: "a" } }))
    await panel.getByRole("link", { name: "train" }).waitFor()
    await panel.getByText("2 × L4, 24 GiB each").waitFor()

    await panel.getByRole("button", { name: "Drain gpu-1", exact: true }).click()
    await panel.getByText("draining", { exact: true }).waitFor()
    expect((await stored())?.spec.unschedulable).toBe(true)
    await panel.getByRole("button", { name: "Undo the drain gpu-1" }).click()
    await panel.getByText("busy", { exact: true }).waitFor()
    expect((await stored())?.spec.unschedulable).toBe(false)

    await panel.getByRole("button", { name: "Join again gpu-1" }).click()
    await page.getByRole("dialog").getByText("A job on the present one ends first.").waitFor()
    await page.getByRole("button", { name: "Make a command" }).click()
    expect(await takeCommand(page, /sudo docker run/)).toMatchObject({ name: "gpu-1", number: 2 })

    await panel.getByRole("button", { name: "Remove gpu-1" }).click()
    await page.getByRole("dialog").getByText("Its job train ends, and gets another machine.").waitFor()
    await page.getByRole("button", { name: "Remove the machine" }).click()
    await panel.waitFor({ state: "detached" })
    await eventually(async () => expect(await stored()).toBeUndefined())
    await client.delete(LAUNCHES, at)
    expect(faults).toEqual([expect.stringMatching(/status of 400/)])
  })

  browserNeeded.it("are changed in price, region and lease, and only in what was entered", async () => {
    await created(await call("/1/machines", { body: { name: "gpu-1", hourly_price_usd: 0.2, region: "office" } }))
    const { page, faults } = await site.signedIn("/machines")
    let isDeleted = false
    // A list that was read after the deletion would close the form, even one that was requested before it.
    await page.route(
      ({ pathname }) => pathname.endsWith("/1/machines"),
      async (route) => {
        const response = await route.fetch()
        if (!isDeleted) await route.fulfill({ response })
      },
    )
    const panel = page.getByRole("article", { name: "gpu-1", exact: true })
    await panel.getByRole("button", { name: "Change gpu-1" }).click()
    const form = panel.getByRole("form", { name: "Change gpu-1" })
    expect(await form.getByLabel("Price, USD per hour").inputValue()).toBe("0.2")
    await form.getByLabel("Region").fill("Berlin Mitte")
    await form.getByLabel("Lease, seconds").fill("3600")
    await form.getByRole("button", { name: "Change the machine" }).click()
    await form.getByText(/^region must /).waitFor()
    await form.getByText("Nothing was changed: correct the marked fields.").waitFor()
    expect((await stored())?.spec).toMatchObject({ region: "office", leaseSeconds: 900 })
    // Someone else changes what this form leaves as it is.
    await client.patch(MACHINES, ref, { merge: { spec: { hourlyPriceUsd: 0.5 } } })
    await form.getByLabel("Region").fill("")
    await form.getByRole("button", { name: "Change the machine" }).click()
    await form.waitFor({ state: "detached" })
    expect((await stored())?.spec).toMatchObject({ hourlyPriceUsd: 0.5, region: "own", leaseSeconds: 3600 })
    await panel.getByText("1 h").waitFor()

    await panel.getByRole("button", { name: "Change gpu-1" }).click()
    await form.getByLabel("Price, USD per hour").fill("1")
    // Deleted when the change is sent.
    await page.route("**/1/machines/gpu-1", async (route) => {
      isDeleted = true
      await client.delete(MACHINES, ref)
      await route.continue()
    })
    await form.getByRole("button", { name: "Change the machine" }).click()
    await form.getByText("There is no machine with the id or name").waitFor()
    await page.unrouteAll({ behavior: "ignoreErrors" })
    expect(faults).toEqual([expect.stringMatching(/status of 400/), expect.stringMatching(/status of 404/)])
  })

  browserNeeded.it("show viewers their state and no button", async () => {
    await created(await call("/1/machines", { body: { name: "gpu-1" } }))
    const { page, faults } = await site.open("/machines")
    await page.getByLabel("API key", { exact: true }).fill(fixture.keys.viewer)
    await page.getByRole("form").getByRole("button", { name: "Sign in" }).click()
    await page.getByRole("article", { name: "gpu-1" }).getByText("pending").waitFor()
    expect(await page.locator("main").getByRole("button").count()).toBe(0)
    expect(faults).toEqual([])
  })
})
