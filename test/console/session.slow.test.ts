import type { BrowserContext, Page } from "playwright-core"
import { expect } from "vitest"
import { browserNeeded } from "../browser.ts"
import { makeKey } from "../harness/api-keys.ts"
import { caller } from "../harness/caller.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { consoleSite } from "./browser.ts"

/** The sign-in over reloads and in several tabs. */
browserNeeded.describe("a sign-in with a key", () => {
  const fixture = projectFixture("console-session")
  const other = projectFixture("console-session-2")
  const site = consoleSite(fixture)
  const call = caller(() => site.replica, fixture)

  const live = (page: Page) => page.getByText("Live", { exact: true }).waitFor()
  const signIn = (page: Page) => page.getByRole("textbox", { name: "API key" })

  async function newTab(context: BrowserContext, path: string, { project } = fixture): Promise<Page> {
    const page = await context.newPage()
    await page.goto(`${site.origin}/console/projects/${project}${path}`)
    return page
  }

  /** Returns all that survives in the browser when its tabs are closed. */
  const lasting = (page: Page) => page.evaluate("JSON.stringify([{ ...localStorage }, document.cookie])")

  browserNeeded.it("holds over F5, and in new tabs while one is open", async () => {
    const { page, faults } = await site.signedIn("/jobs?status=failed")
    const context = page.context()
    await page.reload()
    await live(page)
    expect(page.url()).toBe(`${site.origin}/console/projects/${fixture.project}/jobs?status=failed`)
    const second = await newTab(context, "/offers")
    await live(second)
    const start = await context.newPage()
    await start.goto(`${site.origin}/console/`)
    await start.getByRole("link", { name: fixture.project }).click()
    await live(start)
    expect(await lasting(page)).not.toContain(fixture.keys.admin)
    // It is with the tabs alone, and ends with the last of them.
    for (const tab of [page, second, start]) await tab.close()
    const later = await newTab(context, "/jobs")
    await signIn(later).waitFor()
    expect(await later.evaluate("sessionStorage.length")).toBe(0)
    expect(faults).toEqual([])
    await context.close()
  })

  browserNeeded.it("opens its own project only, and stays with each tab's", async () => {
    const { page } = await site.signedIn("/jobs")
    const context = page.context()
    const foreign = await newTab(context, "/jobs", other)
    await signIn(foreign).waitFor()
    // Its project is on the button, so that a person can't sign in to another one unseen.
    await signIn(foreign).fill(other.keys.viewer)
    await foreign.getByRole("button", { name: `Sign in to ${other.project}` }).click()
    await live(foreign)
    await page.reload()
    await live(page)
    await foreign.reload()
    await live(foreign)
    expect(await foreign.getByText(fixture.project).count()).toBe(0)
    await context.close()
  })

  browserNeeded.it("a link with a key asks before it replaces the present one", async () => {
    const { page } = await site.signedIn("/jobs")
    await page.goto(`${site.origin}/console/`)
    await page.getByRole("link", { name: fixture.project }).waitFor()
    // Only the fragment changes, so the browser loads nothing.
    await page.goto(`${site.origin}/console/#key=${other.keys.viewer}&project=${other.project}`)
    const button = page.getByRole("button", { name: `Sign in to ${other.project}` })
    await button.waitFor()
    expect(page.url()).toBe(`${site.origin}/console/`)
    await button.click()
    await live(page)
    expect(page.url()).toBe(`${site.origin}/console/projects/${other.project}`)
    await page.context().close()
  })

  browserNeeded.it("ends in all tabs when a person signs out in one", async () => {
    const { page } = await site.signedIn("/jobs")
    const context = page.context()
    const second = await newTab(context, "/offers")
    await live(second)
    await page.locator("summary").first().click()
    await page.getByRole("button", { name: "Sign out" }).click()
    await second.getByText("You signed out in another tab.").waitFor()
    for (const tab of [page, second]) {
      await tab.reload()
      await signIn(tab).waitFor()
      expect(await tab.evaluate("sessionStorage.length")).toBe(0)
    }
    await context.close()
  })

  browserNeeded.it("ends in all tabs when its key is revoked", async () => {
    const key = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "short-lived" })
    const { page } = await site.open("/jobs")
    await signIn(page).fill(key)
    await page.getByRole("button", { name: "Sign in" }).click()
    await live(page)
    expect(await page.getByRole("link", { name: "New job" }).count()).toBe(0)
    const second = await newTab(page.context(), "/offers")
    await live(second)
    await call("/1/keys?name=short-lived").then(async (answer) => {
      const [found] = ((await answer.json()) as { keys: { id: string }[] }).keys
      await call(`/1/keys/${found?.id}`, { method: "DELETE" })
    })
    for (const tab of [page, second]) {
      await tab.getByText("Your sign-in has ended.").waitFor()
      expect(await tab.evaluate("sessionStorage.length")).toBe(0)
    }
    await page.context().close()
  })
})
