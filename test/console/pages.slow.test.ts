import { readFile } from "node:fs/promises"
import { createRequire } from "node:module"
import type { Page } from "playwright-core"
import { beforeAll, expect } from "vitest"
import { caller, testFixture } from "../facade/harness.ts"
import { browserNeeded, consoleSite } from "./browser.ts"
import { fillProject, SHOWN_AFTER_MINUTES } from "./sample.ts"

/** Every page in both themes: no violation of axe-core, no report of the content security policy, no sideways scrolling. */
const PAGES: readonly [name: string, path: string, shown: string][] = [
  ["overview", "", "Why jobs wait"],
  ["jobs", "/jobs", "fine-tune"],
  ["job-log", "/jobs/fine-tune?tab=log", "gradient norm"],
  ["job-story", "/jobs/fine-tune?tab=story", "Offers that the cloud refused"],
  ["job-spec", "/jobs/fine-tune?tab=spec", "ghcr.io/acme/train:3.2"],
  ["new-job", "/new?from=fine-tune", "Its price per hour"],
  ["cronjobs", "/cronjobs", "nightly-train"],
  ["cronjob", "/cronjobs/nightly-train", "Next ticks"],
  ["offers", "/offers?gpu=L4", "g2-standard-4"],
  ["connections", "/connections", "aws-prod"],
  ["keys", "/keys", "yours"],
]

/** Folder for screenshots; undefined: none are made. `npm run screenshots` sets it. */
const folder = process.env["BERTH_SCREENSHOTS"]

interface AxeResult {
  violations: { id: string; help: string; nodes: { html: string; failureSummary?: string }[] }[]
}

browserNeeded.describe("the pages of the console", () => {
  const fixture = testFixture("console-pages")
  const site = consoleSite(fixture)
  let axe: string

  beforeAll(async () => {
    axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")
    await fillProject({ fixture, replica: site.replica, call: caller(() => site.replica, fixture) })
  })

  /** Shows another page of the console, so that the sign-in stays. */
  async function go(page: Page, path: string): Promise<void> {
    await page.evaluate(`history.pushState(null, "", "/console/projects/${fixture.project}${path}")`)
    await page.evaluate(`dispatchEvent(new PopStateEvent("popstate"))`)
  }

  /** Returns the violations that axe-core finds on the page as it is. */
  async function violationsOn(page: Page): Promise<string[]> {
    const { violations } = (await page.evaluate(`${axe}; axe.run({ resultTypes: ["violations"] })`)) as AxeResult
    return violations.flatMap(({ id, nodes }) =>
      nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
    )
  }

  const themes = ["light", "dark"] as const
  browserNeeded.it.each(themes)("have no accessibility violation and fit their width: %s", async (colorScheme) => {
    const { page, faults } = await site.signedIn("", { colorScheme })
    await page.clock.setFixedTime(Date.now() + SHOWN_AFTER_MINUTES * 60_000)
    for (const [name, path, shown] of PAGES) {
      await page.setViewportSize({ width: 1280, height: 900 })
      await go(page, path)
      await page.getByText(shown).first().waitFor()
      expect(await violationsOn(page), name).toEqual([])
      for (const width of [1280, 400]) {
        await page.setViewportSize({ width, height: 900 })
        await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        expect(await page.evaluate("document.documentElement.scrollWidth"), `${name} at ${width}`).toBe(width)
        if (folder !== undefined && width === 1280)
          await page.screenshot({ path: `${folder}/${name}-${width}-${colorScheme}.png` })
      }
      // Themes differ in colors only, so one of them shows what the narrow form does.
      if (colorScheme === "light") expect(await violationsOn(page), `${name}, narrow`).toEqual([])
    }
    expect(faults).toEqual([])
    await page.close()
  })
})
