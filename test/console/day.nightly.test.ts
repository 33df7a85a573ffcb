import { join } from "node:path"
import type { Browser, Locator, Page } from "playwright-core"
import { afterAll, beforeAll, expect } from "vitest"
import { browserNeeded, collectFaults, launchBrowser } from "../browser.ts"
import { folder, prepareStacks, start } from "../e2e/stack.ts"
import { expectFits, violationsOn } from "./look.ts"

/** A day of a person who has only the console and a keyboard. Jobs really run. */
prepareStacks()

const WIDTHS = [360, 1280, 2560]

/** Prints a progress bar of 10,000 steps as tqdm does, and then a line. */
const BAR = `-c 'i=0; while [ $i -lt 10000 ]; do i=$((i+1)); printf "\\r%3d%%|####| %d/10000" $((i/100)) $i; [ $((i%2500)) = 0 ] && sleep 0.7; done; echo; echo done with it'`

/** Fails for one of its values. */
const SWEEP = `-c 'echo begins; echo loss of $LR at $SEED; [ $SEED != 7 ]'`

browserNeeded.describe("a day in the console, by keyboard", () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await launchBrowser()
  })
  afterAll(() => browser?.close())

  /** Expects that the page fits each width, and has no violation in either theme. */
  async function look(page: Page, name: string): Promise<void> {
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme })
      expect.soft(await violationsOn(page), `${name}, ${colorScheme}`).toEqual([])
    }
    for (const width of WIDTHS) await expectFits(page, name, width)
    await page.setViewportSize({ width: 1280, height: 900 })
  }

  /** Presses Tab until a control has the focus. */
  async function reach(page: Page, control: Locator): Promise<void> {
    await control.waitFor()
    for (let presses = 0; presses < 400; presses++) {
      if (await control.evaluate((element) => element.matches(":focus"))) return
      await page.keyboard.press("Tab")
    }
    throw new Error(`Tab does not reach ${control}`)
  }

  async function press(page: Page, control: Locator): Promise<void> {
    await reach(page, control)
    await page.keyboard.press("Enter")
  }

  /** Replaces the text of a field. */
  async function type(page: Page, label: string, text: string): Promise<void> {
    await reach(page, page.getByLabel(label, { exact: true }))
    await page.keyboard.press("Control+A")
    await page.keyboard.insertText(text)
  }

  /** Fills in a container that runs the shell. */
  async function describe(page: Page, name: string, args: string): Promise<void> {
    const fields = { Image: "busybox:1.36", Name: name, Command: "sh", Arguments: args }
    for (const [label, text] of Object.entries(fields)) await type(page, label, text)
  }

  /** Chooses a radio button by the arrow keys, which move within its group. */
  async function choose(page: Page, name: string): Promise<void> {
    const radio = page.getByRole("radio", { name, exact: true })
    await reach(page, page.locator(`input[name="shape"]:checked`))
    for (let presses = 0; presses < 3 && !(await radio.isChecked()); presses++) await page.keyboard.press("ArrowRight")
    expect(await radio.isChecked()).toBe(true)
  }

  const menu = (page: Page, name: string) =>
    page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name, exact: true })

  browserNeeded.it("signs in, sweeps, schedules, finds a failure and a line, and sees the costs", async () => {
    // No cloud can be reached, wherever the test runs.
    const noCloud = { HTTPS_PROXY: "http://127.0.0.1:9" }
    const dataDir = join(folder, "day")
    const stack = start("serve", dataDir, ["--port", "0", "--config-home", join(folder, "config")], noCloud)
    const [, link = ""] = await stack.printed(/(http:\S+\/console\/#\S+)/, 240)
    const { origin } = new URL(link)
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-GB" })
    const open = async (address: string) => {
      const page = await context.newPage()
      const seen = collectFaults(page, [`${origin}/`, "data:", "blob:"])
      await page.goto(address)
      return { page, seen }
    }

    // Sign-in by key, F5, and a new tab.
    const { page, seen } = await open(link)
    await press(page, page.getByRole("button", { name: "Sign in to default" }))
    await page.getByText("Live", { exact: true }).waitFor()
    await look(page, "empty overview")
    await page.reload()
    await page.getByText("Live", { exact: true }).waitFor()
    const second = await open(`${origin}/console/projects/default/new`)
    await second.page.getByText("Live", { exact: true }).waitFor()
    await second.page.close()

    // A job with its plan, whose bar moves and stands at 100 % in the end.
    await press(page, page.getByRole("main").getByRole("link", { name: "New job" }))
    const plan = page.getByRole("complementary", { name: "Plan" })
    await describe(page, "bar", BAR)
    await plan.getByText("Its price per hour").waitFor()
    await look(page, "new job")
    await press(page, page.getByRole("button", { name: "Submit the job" }))
    await page.getByRole("heading", { name: "bar" }).waitFor()
    await press(page, page.getByRole("link", { name: "Log" }))
    const lines = page.getByRole("region", { name: "Lines of the log" })
    const bar = lines.locator(".log-line", { hasText: "####" })
    const seenSteps = new Set<string>()
    await expect
      .poll(
        async () => {
          for (const text of await bar.allTextContents()) seenSteps.add(text)
          return lines.getByText("done with it").count()
        },
        { timeout: 60_000, interval: 50 },
      )
      .toBe(1)
    expect(await bar.allTextContents()).toEqual([expect.stringContaining("100%|####| 10000/10000")])
    expect(seenSteps.size).toBeGreaterThan(1)
    await reach(page, page.getByRole("checkbox", { name: "Times" }))
    await page.keyboard.press("Space")
    await page
      .locator(".log-time", { hasText: /\d\d:\d\d:\d\d/ })
      .first()
      .waitFor()
    await look(page, "log")
    await type(page, "Go to line", "2")
    await page.keyboard.press("Enter")
    await page.locator(".log-line.linked").waitFor()
    const other = await open(page.url())
    await other.page.locator(".log-line.linked", { hasText: "done with it" }).waitFor()
    expect(await other.page.locator(".log-line.linked").count()).toBe(1)
    await other.page.close()

    // A sweep of 30 with its sum, of which three fail.
    await page.goto(`${origin}/console/projects/default/new`)
    await choose(page, "Repeat with values")
    await type(page, "Values", "LR=0.1,0.01,0.001\nSEED=1..10")
    await type(page, "Jobs at the same time", "6")
    await describe(page, "sweep", SWEEP)
    await plan.getByText(/^30 jobs: about \$[\d.]+ in total, \$[\d.]+ each\./).waitFor()
    await look(page, "new sweep")
    await press(page, page.getByRole("button", { name: "Submit 30 jobs" }))
    await page.getByRole("heading", { name: "sweep", exact: true }).waitFor()
    await page.getByText("27 succeeded, 3 failed").waitFor({ timeout: 120_000 })
    const rows = page.getByRole("table").getByRole("row")
    await rows
      .filter({ hasText: "exit code 1" })
      .or(rows.filter({ hasText: "failed" }))
      .first()
      .waitFor()
    await look(page, "sweep")

    // A schedule, run now.
    await page.goto(`${origin}/console/projects/default/new`)
    await choose(page, "On a schedule")
    await type(page, "Schedule (UTC)", "0 3 1 1 *")
    await describe(page, "nightly", "-c 'echo report of the night; exit 3'")
    await plan.getByText("This is an estimate").waitFor()
    await look(page, "new schedule")
    await press(page, page.getByRole("button", { name: "Create the cronjob" }))
    await press(page, page.getByRole("button", { name: "Run now" }))
    const started = page.getByRole("status").getByRole("link", { name: /^nightly-/ })
    await started.waitFor()
    await look(page, "cronjob")

    // The Overview has the runs, and what the failures said last.
    await press(page, menu(page, "Overview"))
    const failures = page.locator("section").filter({ hasText: "Failed in the last 24 hours" })
    await failures.getByText("report of the night").waitFor({ timeout: 60_000 })
    await failures.getByText("exit code 3").waitFor()
    await failures.getByText(/^loss of 0\.\d+ at 7$/).waitFor()
    await page.getByText(/running jobs, at most [1-9]/).waitFor()
    await look(page, "overview")

    // A connection that can't reach its cloud says so.
    await press(page, menu(page, "Connections"))
    await press(page, page.getByRole("button", { name: "New connection" }))
    await type(page, "Name of the connection", "main")
    await type(page, "Access key id", "AKIAIOSFODNN7EXAMPLE")
    await type(page, "Secret access key", "x".repeat(40))
    await page.keyboard.press("Enter")
    await press(page, page.getByRole("button", { name: "Test now main" }))
    await page.getByRole("article").filter({ hasText: "main" }).getByRole("status").getByText("Unreachable").waitFor()
    await look(page, "connections")

    await press(page, menu(page, "Costs"))
    await page.getByRole("main").getByText("sweep").or(page.getByRole("main").getByText("local")).first().waitFor()
    await look(page, "costs")
    expect(seen).toEqual([])
    await context.close()
    await stack.stop("SIGINT")
  })
})
