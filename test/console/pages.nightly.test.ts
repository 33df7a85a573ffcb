import type { Page } from "playwright-core"
import { beforeAll, expect } from "vitest"
import type { Discoverer } from "../../src/api/resources/discovery/schema.ts"
import { browserNeeded } from "../browser.ts"
import { bucket } from "../discovery/accounts.ts"
import { caller } from "../harness/caller.ts"
import { type ProjectFixture, projectFixture } from "../harness/facade-project.ts"
import { consoleSite, goTo, type Visit } from "./browser.ts"
import { CONTRAST, expectFits, violationsOn } from "./look.ts"
import { people } from "./people.ts"
import { fillProject, SHOWN_AFTER_MINUTES, spend } from "./sample.ts"
import { EMPTY, PAGES, PAGES_OF_PEOPLE, type Scene, STATES, STATES_OF_PEOPLE } from "./scenes.ts"

/** Folder for screenshots; undefined: none are made. `npm run screenshots` sets it. */
const folder = process.env["BERTH_SCREENSHOTS"]
/** Widths at which every state is kept, such as `360,3840`, to look at them. Default: the pages of the documentation. */
const watched = process.env["BERTH_SCREENSHOT_WIDTHS"]?.split(",").map(Number)
/** Size at which the pages are checked for violations, CSS pixels. */
const VIEWPORT = { width: 1280, height: 900 }
const LIGHT = { colorScheme: "light" } as const
const WIDTHS = [3840, 2560, 1920, 1280, 400, 360]

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
    /** True for the pages of the documentation. */
    isPage?: boolean
  }

  /** Expects no violation, and no sideways scrolling at any width. */
  async function check(of: Page, name: string, { isPage = false }: Look = {}): Promise<void> {
    expect.soft(await violationsOn(of), name).toEqual([])
    // Themes differ in colors only, so one of them shows how a page fits, and what its narrow form does.
    await checkWidths(of, name, { isPage, theme: "light" })
    expect.soft(await violationsOn(of), `${name}, narrow`).toEqual([])
    await of.setViewportSize(VIEWPORT)
    await checkDark(of, name, isPage)
  }

  async function checkDark(of: Page, name: string, isPage: boolean): Promise<void> {
    await of.emulateMedia({ colorScheme: "dark" })
    expect.soft(await violationsOn(of, CONTRAST), `${name}, dark`).toEqual([])
    if (folder !== undefined) await checkWidths(of, name, { isPage, theme: "dark" })
    await of.emulateMedia({ colorScheme: "light" })
    await of.setViewportSize(VIEWPORT)
  }

  async function checkWidths(
    of: Page,
    name: string,
    { isPage, theme }: { isPage: boolean; theme: "light" | "dark" },
  ): Promise<void> {
    const kept = watched ?? (isPage ? [1280] : [])
    for (const width of WIDTHS) {
      await expectFits(of, name, width)
      if (folder !== undefined && kept.includes(width))
        await of.screenshot({ path: `${folder}/${name}-${width}-${theme}.png`, fullPage: watched !== undefined })
    }
  }

  async function checkAll(
    { page: of }: Visit,
    scenes: readonly Scene[],
    look: Look & { in?: ProjectFixture } = {},
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

  browserNeeded.it("have no accessibility violation and fit their width", async () => {
    const visit = await site.signedIn("", LIGHT)
    await checkAll(visit, PAGES, { isPage: true })
    const ofPerson = await site.signedInAs("ada", "", LIGHT)
    await checkAll(ofPerson, PAGES_OF_PEOPLE, { isPage: true })
    expect([...visit.faults, ...ofPerson.faults]).toEqual([])
    await Promise.all([visit.page.close(), ofPerson.page.close()])
  })

  browserNeeded.it("have no accessibility violation in dialogs, forms, errors and empty lists", async () => {
    const ofPerson = await site.signedInAs("ada", "", LIGHT)
    await checkAll(ofPerson, STATES_OF_PEOPLE)
    const ofEmpty = await site.signedIn("", { ...LIGHT, of: empty })
    await checkAll(ofEmpty, EMPTY, { in: empty })
    expect([...ofPerson.faults, ...ofEmpty.faults]).toEqual([])
    const visit = await site.signedIn("", LIGHT)
    await checkAll(visit, STATES)
    await Promise.all([visit, ofPerson, ofEmpty].map((one) => one.page.close()))
  })

  browserNeeded.it("have no accessibility violation at the sign-in, and in its errors", async () => {
    const { page: of } = await site.open("/jobs", LIGHT)
    await of.getByLabel("API key", { exact: true }).waitFor()
    await check(of, "sign-in")
    await of.getByLabel("API key", { exact: true }).fill("bk_wrong")
    await of.getByRole("form").getByRole("button", { name: "Sign in" }).click()
    await of.getByRole("alert").waitFor()
    await check(of, "sign-in-wrong")
    await of.close()
    const stranger = await site.open("/jobs", LIGHT)
    await stranger.page.getByRole("region", { name: "Sign in as a person" }).getByRole("button").click()
    await stranger.page.getByLabel("Name").fill("stranger")
    await stranger.page.getByRole("button", { name: "Sign in" }).click()
    await stranger.page.getByRole("link", { name: "Choose another project" }).waitFor()
    await check(stranger.page, "no-access")
    await stranger.page.getByRole("link", { name: "Choose another project" }).click()
    await stranger.page.getByText("You are in no organization yet.").waitFor()
    await check(stranger.page, "no-projects")
    await stranger.page.close()
  })
})
