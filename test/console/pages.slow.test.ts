import type { Page } from "playwright-core"
import { beforeAll, expect } from "vitest"
import type { Discoverer } from "../../src/api/resources/discovery/schema.ts"
import { browserNeeded } from "../browser.ts"
import { bucket } from "../discovery/accounts.ts"
import { caller } from "../harness/caller.ts"
import { type ProjectFixture, projectFixture } from "../harness/facade-project.ts"
import { isNightly } from "../nightly.ts"
import { consoleSite, goTo, type Visit } from "./browser.ts"
import { expectFits, violationsOn } from "./look.ts"
import { people } from "./people.ts"
import { fillProject, SHOWN_AFTER_MINUTES, spend } from "./sample.ts"
import { EMPTY, PAGES, PAGES_OF_PEOPLE, type Scene, STATES, STATES_OF_PEOPLE } from "./scenes.ts"

/** Folder for screenshots; undefined: none are made. `npm run screenshots` sets it. */
const folder = process.env["BERTH_SCREENSHOTS"]
/** Widths at which every state is kept, such as `360,3840`, to look at them. Default: the pages of the documentation. */
const watched = process.env["BERTH_SCREENSHOT_WIDTHS"]?.split(",").map(Number)
const WIDTHS = isNightly ? [3840, 2560, 1920, 1280, 400, 360] : [2560, 1280, 360]

browserNeeded.describe("the pages of the console", () => {
  const fixture = projectFixture("console-pages")
  const empty = projectFixture("console-empty")
  const team = people(fixture)
  const discover: Discoverer = async (_sort, connections) => {
    const found = connections.map((connection) => ({ connection, resource: bucket("training-data") }))
    return { found, failures: connections.map((connection) => ({ connection, reason: "Denied", message: "no more" })) }
  }
  const site = consoleSite(fixture, () => ({ ...team.replicaOptions(), discover, caps: { maxMonthlyUsd: 5000 } }))

  beforeAll(async () => {
    await fillProject({ fixture, replica: site.replica, call: caller(() => site.replica, fixture) })
    await spend({ fixture })
    await team.makeOrganization("Acme", { ada: "owner", bea: "admin", cem: "member" })
  })

  interface Look {
    colorScheme: Theme
    /** True for the pages of the documentation. */
    isPage?: boolean
  }

  /** Expects no violation, and no sideways scrolling at any width. */
  async function check(of: Page, name: string, look: Look): Promise<void> {
    expect.soft(await violationsOn(of), name).toEqual([])
    // Themes differ in colors only, so one of them shows how a page fits, and what its narrow form does.
    if (look.colorScheme === "light" || folder !== undefined) await checkWidths(of, name, look)
    if (look.colorScheme === "light" && (look.isPage || isNightly))
      expect.soft(await violationsOn(of), `${name}, narrow`).toEqual([])
    await of.setViewportSize({ width: 1280, height: 900 })
  }

  async function checkWidths(of: Page, name: string, { colorScheme, isPage = false }: Look): Promise<void> {
    const kept = watched ?? (isPage ? [1280] : [])
    for (const width of WIDTHS) {
      await expectFits(of, name, width)
      if (folder !== undefined && kept.includes(width))
        await of.screenshot({ path: `${folder}/${name}-${width}-${colorScheme}.png`, fullPage: watched !== undefined })
    }
  }

  async function checkAll(
    { page: of }: Visit,
    scenes: readonly Scene[],
    look: Look & { in?: ProjectFixture },
  ): Promise<void> {
    await of.clock.setFixedTime(Date.now() + SHOWN_AFTER_MINUTES * 60_000)
    for (const { name, path, shown, prepare } of scenes) {
      // The states of the scene before end with its page.
      await goTo(of, look.in ?? fixture, "/jobs?name=none")
      if (name === "offline") site.network.cut()
      await goTo(of, look.in ?? fixture, path)
      await of.getByText(shown).first().waitFor()
      await prepare?.(of)
      await check(of, name, look)
      if (name === "menu") await prepare?.(of)
    }
    site.network.restore()
  }

  const themes = ["light", "dark"] as const
  type Theme = (typeof themes)[number]
  browserNeeded.it.each(themes)("have no accessibility violation and fit their width: %s", async (colorScheme) => {
    const visit = await site.signedIn("", { colorScheme })
    await checkAll(visit, PAGES, { colorScheme, isPage: true })
    const ofPerson = await site.signedInAs("ada", "", { colorScheme })
    await checkAll(ofPerson, PAGES_OF_PEOPLE, { colorScheme, isPage: true })
    expect([...visit.faults, ...ofPerson.faults]).toEqual([])
    await Promise.all([visit.page.close(), ofPerson.page.close()])
  })

  // Themes differ in colors only, and the pages have most of them.
  browserNeeded.it.each(isNightly ? themes : themes.slice(0, 1))(
    "have no accessibility violation in dialogs, forms, errors and empty lists: %s",
    async (colorScheme) => {
      const ofPerson = await site.signedInAs("ada", "", { colorScheme })
      await checkAll(ofPerson, STATES_OF_PEOPLE, { colorScheme })
      const ofEmpty = await site.signedIn("", { colorScheme, of: empty })
      await checkAll(ofEmpty, EMPTY, { colorScheme, in: empty })
      expect([...ofPerson.faults, ...ofEmpty.faults]).toEqual([])
      const visit = await site.signedIn("", { colorScheme })
      await checkAll(visit, STATES, { colorScheme })
      await Promise.all([visit, ofPerson, ofEmpty].map((one) => one.page.close()))
    },
  )

  browserNeeded.it.each(themes)(
    "have no accessibility violation at the sign-in, and in its errors: %s",
    async (colorScheme) => {
      const { page: of } = await site.open("/jobs", { colorScheme })
      await of.getByLabel("API key", { exact: true }).waitFor()
      await check(of, "sign-in", { colorScheme })
      await of.getByLabel("API key", { exact: true }).fill("bk_wrong")
      await of.getByRole("form").getByRole("button", { name: "Sign in" }).click()
      await of.getByRole("alert").waitFor()
      await check(of, "sign-in-wrong", { colorScheme })
      await of.close()
      const stranger = await site.open("/jobs", { colorScheme })
      await stranger.page.getByRole("region", { name: "Sign in as a person" }).getByRole("button").click()
      await stranger.page.getByLabel("Name").fill("stranger")
      await stranger.page.getByRole("button", { name: "Sign in" }).click()
      await stranger.page.getByRole("link", { name: "Choose another project" }).waitFor()
      await check(stranger.page, "no-access", { colorScheme })
      await stranger.page.getByRole("link", { name: "Choose another project" }).click()
      await stranger.page.getByText("You are in no organization yet.").waitFor()
      await check(stranger.page, "no-projects", { colorScheme })
      await stranger.page.close()
    },
  )
})
