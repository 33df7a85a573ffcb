import type { Page } from "playwright-core"
import { Webhook } from "standardwebhooks"
import { afterAll, beforeAll, expect } from "vitest"
import type { StoredWebhook, WebhookStatus } from "../../src/core/apis/webhook.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { WEBHOOKS } from "../../src/core/resources.ts"
import { browserNeeded } from "../browser.ts"
import { caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { type Received, WebhookReceiver } from "../harness/webhook-receiver.ts"
import { consoleSite, goTo, tabTo } from "./browser.ts"

const SLACK = "https://hooks.slack.com/services/T0/B0/very-secret"

/** Interval in which the page reads the numbers again, milliseconds. */
const NUMBERS_MS = 10_000

browserNeeded.describe("the webhooks in the console", () => {
  const fixture = projectFixture("console-webhooks")
  const site = consoleSite(fixture)
  const call = caller(() => site.replica, fixture)
  let receiver: WebhookReceiver

  beforeAll(async () => {
    receiver = await WebhookReceiver.start()
  })
  afterAll(() => receiver?.stop())

  const stored = (name: string) => ifFound(fixture.client.get(WEBHOOKS, { namespace: fixture.namespace, name }))
  const panelOf = (page: Page, name: string) => page.getByRole("article", { name, exact: true })

  async function make(name: string, body: object = {}): Promise<void> {
    await created(await call("/1/webhooks", { body: { name, url: receiver.url, events: ["job.*"], ...body } }))
  }

  async function setWebhookStatus(name: string, status: WebhookStatus): Promise<void> {
    const merge = { status } as Partial<StoredWebhook>
    await fixture.client.patchStatus(WEBHOOKS, { namespace: fixture.namespace, name }, { merge })
  }

  /** Returns true if a message has the signature of a secret. */
  function isSignedBy(secret: string, { body, headers }: Received): boolean {
    try {
      new Webhook(secret).verify(body, headers as Record<string, string>)
      return true
    } catch {
      return false
    }
  }

  /** Returns the secret that the page shows, and closes it. */
  async function takeSecret(page: Page): Promise<string> {
    const secret = (await page.getByLabel("Signing secret", { exact: true }).textContent()) ?? ""
    expect(secret).toMatch(/^whsec_/)
    await page.getByRole("button", { name: "I have copied it" }).click()
    await page.getByLabel("Signing secret", { exact: true }).waitFor({ state: "detached" })
    expect(await page.content()).not.toContain(secret)
    return secret
  }

  browserNeeded.it("are created with a secret that is shown once, tested, rotated, disabled and deleted", async () => {
    const { page, faults } = await site.signedIn("/webhooks")
    await page.getByText("No webhook sends events.").waitFor()
    await page.getByRole("button", { name: "New webhook" }).click()
    const form = page.getByRole("form", { name: "New webhook" })
    await form.getByLabel("Name").fill("ci-server")
    await form.getByLabel("Address of the receiver").fill(receiver.url)
    await form.getByLabel("Only jobs with labels").fill("team=vision run=a17")
    await form.getByLabel("Only jobs with tags").fill("nightly")
    await form.getByLabel("connection.failed").check()
    await form.getByLabel("Send the end of each job's log too.").check()
    await form.getByRole("button", { name: "Add the webhook" }).click()
    const secret = await takeSecret(page)
    const panel = panelOf(page, "ci-server")
    await panel.getByText("job.*, connection.failed").waitFor()
    const { spec } = (await stored("ci-server")) ?? {}
    expect(spec).toMatchObject({
      ...{ url: receiver.url, format: "cloudevents", events: ["job.*", "connection.failed"] },
      ...{ labels: { team: "vision", run: "a17" }, tags: ["nightly"], include: ["output"] },
    })

    await panel.getByRole("button", { name: "Test ci-server" }).click()
    await panel.getByText(/^The receiver accepted the test with 204 in \d+ ms\.$/).waitFor()
    expect(receiver.received.map((message) => isSignedBy(secret, message))).toEqual([true])
    receiver.reply = () => 500
    await panel.getByRole("button", { name: "Test ci-server" }).click()
    await panel.getByText("The test was not accepted: the receiver answered 500.").waitFor()
    receiver.reply = () => 204

    await panel.getByRole("button", { name: "Rotate ci-server" }).click()
    await page.getByRole("dialog").getByText("For a day, messages are signed with both secrets.").waitFor()
    await page.getByRole("button", { name: "Create a new secret" }).click()
    const next = await takeSecret(page)
    expect(next).not.toBe(secret)
    await panel.getByRole("button", { name: "Test ci-server" }).click()
    await panel.getByText(/accepted the test/).waitFor()
    const last = receiver.received.at(-1) as Received
    expect([isSignedBy(secret, last), isSignedBy(next, last)]).toEqual([true, true])

    await panel.getByRole("button", { name: "Disable ci-server" }).click()
    await panel.getByRole("button", { name: "Enable ci-server" }).waitFor()
    expect((await stored("ci-server"))?.spec.active).toBe(false)
    await panel.getByRole("button", { name: "Enable ci-server" }).click()
    await panel.getByRole("button", { name: "Disable ci-server" }).waitFor()
    expect((await stored("ci-server"))?.spec.active).toBe(true)

    await panel.getByRole("button", { name: "Delete ci-server" }).click()
    await page.getByRole("button", { name: "Delete the webhook" }).click()
    await panel.waitFor({ state: "detached" })
    await eventually(async () => expect(await stored("ci-server")).toBeUndefined())
    expect(faults).toEqual([])
  })

  browserNeeded.it("show the API's errors at the fields of the form, which keyboards alone can fill", async () => {
    const { page, faults } = await site.signedIn("/webhooks")
    await tabTo(page, ".page-title button")
    await page.keyboard.press("Enter")
    const form = page.getByRole("form", { name: "New webhook" })
    await tabTo(page, "form.panel input")
    await page.keyboard.type("a")
    await tabTo(page, "form.panel select")
    await page.keyboard.press("Tab")
    await page.keyboard.type("ci.example.com")
    await tabTo(page, ".events input:checked")
    await page.keyboard.press("Space")
    await page.keyboard.press("Enter")
    await form.getByRole("alert").getByText("correct the marked fields").waitFor()
    const errorOf = async (label: string): Promise<string | null> => {
      const ids = (await form.getByLabel(label).getAttribute("aria-describedby")) ?? ""
      const notes = await Promise.all(ids.split(" ").map((id) => page.locator(`[id="${id}"]`).textContent()))
      return notes.at(-1) ?? null
    }
    expect(await errorOf("Name")).toMatch(/^name must /)
    expect(await errorOf("Address of the receiver")).toMatch(/^url must /)
    await form
      .locator(".events")
      .getByText(/^events must /)
      .waitFor()
    // The first of them has the focus, so that it can be corrected at once.
    await page.keyboard.type("larms")
    await tabTo(page, "[aria-invalid]")
    expect(await form.getByLabel("Name").inputValue()).toBe("alarms")
    await form.getByLabel("Format").selectOption("slack")
    await form.getByLabel("Address of the receiver").fill(SLACK)
    await form.getByLabel("job.failed").check()
    await form.getByLabel("job.failed").press("Enter")
    await panelOf(page, "alarms").waitFor()
    expect(faults).toEqual([expect.stringMatching(/status of 400/)])
  })

  browserNeeded.it("never show the address of Slack", async () => {
    const { page, faults } = await site.signedIn("/webhooks")
    const received: Promise<string>[] = []
    page.on("response", (response) => void received.push(response.text().catch(() => "")))
    await page.getByRole("button", { name: "New webhook" }).click()
    const form = page.getByRole("form", { name: "New webhook" })
    await form.getByLabel("Name").fill("chat")
    await form.getByLabel("Format").selectOption("slack")
    const address = form.getByLabel("Address of the receiver")
    expect(await address.getAttribute("type")).toBe("password")
    await address.fill(SLACK)
    await form.getByRole("button", { name: "Add the webhook" }).click()
    const panel = panelOf(page, "chat")
    await panel.getByText("a secret address at Slack").waitFor()
    expect(await page.getByLabel("Signing secret", { exact: true }).count()).toBe(0)
    expect(await panel.getByRole("button", { name: /^Rotate/ }).count()).toBe(0)
    const everything = [await page.content(), ...(await Promise.all(received)), JSON.stringify(await stored("chat"))]
    expect(everything.join("\n")).not.toContain("very-secret")
    expect(faults).toEqual([])
  })

  browserNeeded.it("show what was delivered and what failed, and new numbers by themselves", async () => {
    await make("numbers")
    const at = "2026-11-24T10:00:00Z"
    const failure = { type: "job.failed" as const, time: at, error: "the receiver answered 503" }
    const pending = { ...failure, id: "1", subject: "jobs/lost", attempts: 3, jobUid: "1", nextAttemptTime: at }
    const missed = { ...failure, id: "2", subject: "jobs/old", attempts: 9, endTime: at, result: "missed" as const }
    const sent = { id: "3", type: "job.succeeded" as const, subject: "jobs/new", time: at, attempts: 1 }
    const delivered = { ...sent, endTime: at, result: "delivered" as const, statusCode: 204 }
    const failing = { pending: [pending], pendingCount: 1, missedCount: 1, failingSince: at }
    await setWebhookStatus("numbers", { ...failing, deliveries: [missed], deliveredCount: 0 })
    const { page, faults } = await site.signedIn("/jobs")
    await page.clock.install()
    await goTo(page, fixture, "/webhooks")
    const panel = panelOf(page, "numbers")
    await panel.getByText(/^No delivery has succeeded since .* Berth retries\.$/).waitFor()
    const rows = () => panel.locator("tbody tr").allTextContents()
    await expect
      .poll(rows)
      .toEqual([
        expect.stringMatching(/^jobs\/lostjob\.failedpendingthe receiver answered 503, next attempt .*3/),
        expect.stringMatching(/^jobs\/oldjob\.failedmissedthe receiver answered 5039/),
      ])
    await setWebhookStatus("numbers", {
      ...{ deliveries: [delivered, missed], deliveredCount: 1, lastSuccessTime: at },
      ...{ pending: [], pendingCount: 0, failingSince: null as never },
    })
    // The façade's cache may have the new status only after a first look.
    await expect
      .poll(async () => {
        await page.clock.fastForward(NUMBERS_MS)
        return await rows()
      })
      .toEqual([
        expect.stringMatching(/^jobs\/newjob\.succeededdeliveredanswered 2041/),
        expect.stringMatching(/^jobs\/old/),
      ])
    expect(await panel.getByText(/^No delivery has succeeded/).count()).toBe(0)
    expect(faults).toEqual([])
  })

  browserNeeded.it("show to viewers no button and no whole address", async () => {
    await make("seen", { url: "https://ci.example.com/secret" })
    const viewer = await site.open("/webhooks")
    await viewer.page.getByRole("textbox", { name: "API key" }).fill(fixture.keys.viewer)
    await viewer.page.getByRole("button", { name: "Sign in" }).click()
    await panelOf(viewer.page, "seen").getByText("https://ci.example.com", { exact: true }).waitFor()
    expect(await viewer.page.getByRole("button", { name: /New|Test|Rotate|able|Delete/ }).count()).toBe(0)
    expect(viewer.faults).toEqual([])
  })
})
