import type { Response } from "playwright-core"
import { beforeAll, expect } from "vitest"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { JOBS } from "../../src/core/resources.ts"
import { browserNeeded } from "../browser.ts"
import { caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { projectFixture, setStatus } from "../harness/facade-project.ts"
import { consoleSite, goTo } from "./browser.ts"
import { writeLog } from "./sample.ts"

const JOB_COUNT = 50_000
const LOG_BYTES = 64 * 1024 * 1024

/** Notes in `firstRowMs` when the first row of a table appears after a form was sent, milliseconds. */
const MEASURE_FIRST_ROW = `addEventListener("submit", () => {
  const begun = performance.now()
  new MutationObserver((_, observer) => {
    if (document.querySelector("tbody tr") === null) return
    window.firstRowMs = performance.now() - begun
    observer.disconnect()
  }).observe(document.body, { childList: true, subtree: true })
}, { capture: true, once: true })`

/** The console with the largest sizes that it promises. */
browserNeeded.describe("the console", () => {
  const fixture = projectFixture("console-sizes")
  const site = consoleSite(fixture, () => ({ settings: { projectLimits: { unfinishedJobs: JOB_COUNT + 10 } } }))
  const call = caller(() => site.replica, fixture)

  beforeAll(async () => {
    const kind = { apiVersion: API_VERSION, kind: "Job", spec: { image: "alpine" } } as const
    const tasks = Array.from({ length: JOB_COUNT }, (_, index) => () => {
      const metadata = { name: `many-${index}`, namespace: fixture.namespace }
      return fixture.client.create(JOBS, { ...kind, metadata } as StoredJob)
    })
    await inParallel(tasks, 64, (task) => task())
  }, 1_800_000)

  browserNeeded.it("lists 50,000 jobs, page by page and by name", async () => {
    const { page, faults } = await site.open("/jobs")
    const answers: Response[] = []
    page.on("response", (response) => void (/[/]1[/]/.test(response.url()) && answers.push(response)))
    await page.getByLabel("API key", { exact: true }).fill(fixture.keys.admin)
    await page.evaluate(MEASURE_FIRST_ROW)
    await page.getByRole("form").getByRole("button", { name: "Sign in" }).click()
    await page.getByText(/1–50 of 50,000/).waitFor()
    expect(await page.locator("tbody tr").count()).toBe(50)
    // The caller, the stream of changes, and one page of the list: the size of the project does not matter.
    const asked = answers.map((response) => new URL(response.url()).pathname.split("/1/")[1])
    expect(asked.sort()).toEqual(["events", "jobs", "whoami"])
    const list = answers.find((response) => /[/]jobs$/.test(new URL(response.url()).pathname))
    const bytes = (await list?.body())?.length ?? 0
    expect(bytes).toBeLessThan(128 * 1024)
    const milliseconds = Math.round((await page.evaluate("window.firstRowMs")) as number)
    console.log(`first list of ${JOB_COUNT} jobs: ${milliseconds} ms after the click, ${bytes} bytes`)
    await page.getByRole("button", { name: "Older" }).click()
    await page.getByText(/51–100 of 50,000/).waitFor()
    await page.getByLabel("Name contains").fill("many-4999")
    await page.getByText("11 in all").waitFor()
    for (const path of [
      "/jobs?sort_by=name&sort_order=asc",
      "/jobs?group=origin",
      "/jobs?group=origin&sort_by=name&sort_order=desc",
    ]) {
      const answered = page.waitForResponse((response) => /[/]1[/]job(s|-groups)[?]/.test(response.url()))
      await goTo(page, fixture, path)
      const response = await answered
      await response.finished()
      const { responseEnd } = response.request().timing()
      console.log(`${path} of ${JOB_COUNT} jobs: answered after ${Math.round(responseEnd)} ms`)
      await page.getByText(/1–50 of 50,000/).waitFor()
    }
    expect(faults).toEqual([])
  })

  browserNeeded.it("scrolls a log of 64 MiB to its end, finds in it and wraps it", async () => {
    const { job_id } = await created(await call("/1/jobs", { body: { name: "long", image: "alpine" } }))
    const line = (number: number): string => `line ${number} ${"x".repeat(60)}\n`
    const lines: string[] = []
    for (let size = 0; size < LOG_BYTES - 200; size += lines.at(-1)?.length ?? 0) lines.push(line(lines.length))
    const whole = new TextEncoder().encode(lines.join(""))
    const PIECE = 4 * 1024 * 1024
    const sample = { fixture, call, replica: site.replica }
    for (let at = 0; at < whole.length; at += PIECE) await writeLog(sample, job_id, whole.subarray(at, at + PIECE), at)
    await setStatus(fixture, "long", {
      phase: "succeeded",
      startTime: "2026-11-24T10:00:00Z",
      completionTime: "2026-11-24T11:00:00Z",
    })
    const { page, faults } = await site.signedIn("/jobs/long?tab=log")
    const shown = page.getByRole("region", { name: "Lines of the log" })
    await page.locator('.log[data-state="complete"]').waitFor({ timeout: 120_000 })
    const last = `line ${lines.length - 1} `
    await shown.getByText(last).waitFor()
    expect(await shown.locator(".log-line").count()).toBeLessThan(100)
    await page.getByLabel("Find in the log").last().fill("line 400000 ")
    await page.getByText("1 of 1").waitFor()
    await shown.getByText("line 400000 ").waitFor()
    await page.getByText("Wrap").click()
    await shown.getByText("line 400000 ").waitFor()
    await page.evaluate("document.querySelector('.log-lines').scrollTop = 0")
    await shown.getByText("line 0 ").waitFor()
    await page.evaluate("document.querySelector('.log-lines').scrollTop = 1e9")
    await eventually(async () => expect(await shown.textContent()).toContain(last))
    // A link shows its line once that is read, wrapped or not, also while the log is read again with its times.
    const { page: linked } = await site.signedIn("/jobs/long?tab=log&line=400001")
    const target = linked.locator(".log-line.linked").getByText("line 400000 ")
    await target.waitFor({ timeout: 120_000 })
    await linked.getByRole("checkbox", { name: "Wrap" }).uncheck()
    await linked.getByRole("checkbox", { name: "Times" }).check()
    await linked.locator(".log-line.linked").getByText("11-24").waitFor({ timeout: 120_000 })
    expect(await target.isVisible()).toBe(true)
    expect(faults).toEqual([])
  })
})
