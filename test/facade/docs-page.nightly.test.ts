import type { Browser, Page } from "playwright-core"
import { afterAll, beforeAll, expect } from "vitest"
import { browserNeeded, collectFaults, launchBrowser } from "../browser.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

interface Document {
  paths: Record<string, Record<string, { operationId: string }>>
}

browserNeeded.describe("the page /1/docs in a browser", () => {
  const fixture = projectFixture("facade-docs")
  let replica: Replica
  let browser: Browser
  let operations: string[]
  let origin: string

  beforeAll(async () => {
    // Browsers resolve hosts below localhost to this machine, and trust them without HTTPS.
    replica = await startReplica({ settings: { baseDomain: "localhost" } })
    origin = `http://${fixture.project}.localhost:${replica.port}`
    browser = await launchBrowser()
    const { paths } = (await (await fetch(`http://127.0.0.1:${replica.port}/1/openapi.json`)).json()) as Document
    operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    )
  })
  afterAll(async () => {
    await browser?.close()
    await replica?.close()
  })

  /** Opens the page. `faults` collects errors of its console, refused resources and requests to other hosts. */
  async function openPage(options: Parameters<Browser["newPage"]>[0] = {}): Promise<{ page: Page; faults: string[] }> {
    const page = await browser.newPage(options)
    const faults = collectFaults(page, [`${origin}/`, "data:"])
    await page.goto(`${origin}/1/docs`)
    return { page, faults }
  }

  browserNeeded.it("lists every operation of openapi.json by method and path", async () => {
    const { page, faults } = await openPage()
    const summaries = page.locator(".opblock-summary")
    await expect.poll(() => summaries.count()).toBe(operations.length)
    // Invisible characters let long paths wrap.
    const listed = await Promise.all(
      (await summaries.all()).map(async (summary) => {
        const method = await summary.locator(".opblock-summary-method").textContent()
        return `${method} ${await summary.locator(".opblock-summary-path").getAttribute("data-path")}`
      }),
    )
    expect(listed.toSorted()).toEqual(operations.toSorted())
    expect(faults).toEqual([])
  })

  browserNeeded.it("shows the role, the example and the errors of an operation", async () => {
    const { page, faults } = await openPage()
    const operation = page.locator("#operations-jobs-createJob")
    await operation.locator(".opblock-summary-control").click()
    await operation.locator(".responses-table").first().waitFor()
    const text = (await operation.textContent()) ?? ""
    expect(text).toMatch(/Needs the role developer or higher/)
    expect(text).toMatch(/x-required-role\s*"developer"/)
    expect(text).toContain('"image"')
    expect(text).toContain("https://berth.dev/problems/")
    for (const status of ["201", "400", "401", "403", "409", "429", "503"])
      expect(await operation.locator(`.response[data-code="${status}"]`).count(), status).toBe(1)
    expect(faults).toEqual([])
  })

  browserNeeded.it("sends a request with an API key and shows the response 200", async () => {
    const { page, faults } = await openPage()
    await page.locator("button.authorize").first().click()
    const dialog = page.locator(".auth-container").first()
    await dialog.locator("input").fill(fixture.keys.viewer)
    await dialog.locator("button.authorize").click()
    await page.locator(".close-modal").click()
    const operation = page.locator("#operations-jobs-listJobs")
    await operation.locator(".opblock-summary-control").click()
    await operation.locator(".try-out__btn").click()
    const live = operation.locator(".live-responses-table")
    await eventually(async () => {
      await operation.locator("button.execute").click()
      await live.waitFor()
      expect(await live.locator(".response-col_status").last().textContent()).toMatch(/^200/)
    })
    expect(await live.textContent()).toContain('"jobs": []')
    expect(faults).toEqual([])
  })

  browserNeeded.it("follows the color scheme of the reader's system", async () => {
    const background = "getComputedStyle(document.documentElement).backgroundColor"
    const { page, faults } = await openPage({ colorScheme: "dark" })
    await page.locator(".opblock").first().waitFor()
    const dark = await page.evaluate(background)
    await page.emulateMedia({ colorScheme: "light" })
    await expect.poll(() => page.evaluate(background)).not.toBe(dark)
    expect(faults).toEqual([])
  })

  browserNeeded.it("fits the width of a phone, an operation included", async () => {
    const { page, faults } = await openPage({ viewport: { width: 400, height: 900 } })
    const operation = page.locator("#operations-jobs-createJob")
    await operation.locator(".opblock-summary-control").click()
    await operation.locator(".responses-table").first().waitFor()
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(400)
    expect(faults).toEqual([])
  })

  browserNeeded.it("links to openapi.json for a reader without JavaScript", async () => {
    const context = await browser.newContext({ javaScriptEnabled: false })
    const page = await context.newPage()
    await page.goto(`${origin}/1/docs`)
    expect(await page.locator("noscript a").getAttribute("href")).toBe("/1/openapi.json")
    await context.close()
  })
})
