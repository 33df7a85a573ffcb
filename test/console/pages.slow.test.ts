import type { Page } from "playwright-core"
import { beforeAll, expect } from "vitest"
import type { Discoverer } from "../../src/facade/resources/schema.ts"
import { browserNeeded } from "../browser.ts"
import { bucket } from "../discovery/accounts.ts"
import { caller, type Fixture, testFixture } from "../facade/harness.ts"
import { isNightly } from "../nightly.ts"
import { consoleSite, goTo, type Visit } from "./browser.ts"
import { expectFits, violationsOn } from "./look.ts"
import { people } from "./people.ts"
import { fillProject, SHOWN_AFTER_MINUTES, spend } from "./sample.ts"

/** Page, or state of a page. */
interface Scene {
  name: string
  path: string
  /** Text that the page has once it is complete. */
  shown: string
  /** Brings the page into the state. */
  prepare?: (page: Page) => Promise<unknown>
}

const page = (name: string, path: string, shown: string): Scene => ({ name, path, shown })

/** Every page, as a key of an admin sees it. */
const PAGES: readonly Scene[] = [
  page("overview", "", "Why jobs wait"),
  page("jobs", "/jobs", "fine-tune"),
  page("jobs-grouped", "/jobs?group=origin", "6 succeeded"),
  page("job-log", "/jobs/fine-tune?tab=log", "gradient norm"),
  page("job-story", "/jobs/fine-tune?tab=story", "Offers that the cloud refused"),
  page("job-spec", "/jobs/fine-tune?tab=spec", "ghcr.io/acme/train:3.2"),
  page("new-job", "/new?from=fine-tune", "Its price per hour"),
  page("cronjobs", "/cronjobs", "nightly-train"),
  page("cronjob", "/cronjobs/nightly-train", "Next ticks"),
  page("arrays", "/arrays", "lr-sweep"),
  page("array", "/arrays/lr-sweep", "All its jobs"),
  page("offers", "/offers?gpu=L4", "g2-standard-4"),
  page("connections", "/connections", "aws-prod"),
  page("webhooks", "/webhooks", "ci-server"),
  page("keys", "/keys", "yours"),
]
/** Pages that people see in another form. */
const PAGES_OF_PEOPLE: readonly Scene[] = [
  page("costs", "/costs", "Change the project's caps"),
  page("members", "/members", "you"),
]

const press = (name: string | RegExp) => (of: Page) => of.getByRole("button", { name }).first().click()

const STATES: readonly Scene[] = [
  {
    ...page("job-log-line", "/jobs/fine-tune?tab=log&line=12-14", "gradient norm"),
    prepare: async (of) => {
      await of.getByLabel("Times", { exact: true }).last().check()
      await of.locator(".log-time").first().waitFor()
      await of.locator(".log-line.linked").first().waitFor()
    },
  },
  page("jobs-between", "/jobs?submitted=between&ended_before=2099-01-01T00:00:00Z&sort_by=cost", "nightly-7"),
  { ...page("job-cancel", "/jobs/fine-tune?tab=log", "gradient norm"), prepare: press("Cancel") },
  {
    ...page("jobs-cancel", "/jobs?label=team%3Dspeech", "sweep-1"),
    prepare: async (of) => {
      await press("Cancel all that match")(of)
      await of.getByText("Cancel 3 jobs?").waitFor()
    },
  },
  {
    ...page("new-array", "/new?as=array", "Jobs at the same time"),
    prepare: async (of) => {
      await of.getByLabel("Values", { exact: true }).fill("LEARNING_RATE=0.1,0.01\nSEED=1..15")
      await of.getByLabel("Image", { exact: true }).fill("ghcr.io/acme/train:3.2")
      await of.getByText("30 jobs: about").waitFor()
    },
  },
  {
    ...page("new-cronjob", "/new?as=cronjob", "Schedule (UTC)"),
    prepare: async (of) => {
      await of.getByLabel("Schedule (UTC)", { exact: true }).fill("30 3 * * MON-FRI")
      await of.getByLabel("Image", { exact: true }).fill("ghcr.io/acme/report:1")
      await of.getByText("runs a month").waitFor()
    },
  },
  {
    ...page("new-job-wrong", "/new?as=array", "Jobs at the same time"),
    prepare: async (of) => {
      await of.getByLabel("vCPU", { exact: true }).fill("many")
      await of.getByLabel("Memory", { exact: true }).fill("lots")
      await of.getByText("Correct vCPU, Memory").waitFor()
    },
  },
  { ...page("new-key", "/keys", "yours"), prepare: press("New key") },
  { ...page("key-revoke", "/keys", "yours"), prepare: press(/^Revoke/) },
  { ...page("new-connection", "/connections", "aws-prod"), prepare: press("New connection") },
  { ...page("connection-rotate", "/connections", "aws-prod"), prepare: press("Rotate aws-prod") },
  {
    ...page("connection-buckets", "/connections", "aws-prod"),
    prepare: async (of) => {
      await press("Buckets of aws-prod")(of)
      await of.getByRole("cell", { name: "training-data" }).waitFor()
    },
  },
  { ...page("connection-delete", "/connections", "aws-prod"), prepare: press("Delete aws-prod") },
  {
    ...page("array-cancel", "/arrays/lr-sweep", "All its jobs"),
    prepare: async (of) => {
      await of.getByRole("link", { name: /^12: failed/ }).focus()
      await press("Cancel")(of)
    },
  },
  { ...page("new-webhook", "/webhooks", "ci-server"), prepare: press("New webhook") },
  {
    ...page("webhook-wrong", "/webhooks", "ci-server"),
    prepare: async (of) => {
      await press("New webhook")(of)
      await of.getByLabel("Name").fill("a")
      await of.getByLabel("Address of the receiver").fill("ci.example.com")
      await of.getByLabel("job.* each end").uncheck()
      await press("Add the webhook")(of)
      await of.getByText("correct the marked fields").waitFor()
    },
  },
  {
    ...page("webhook-secret", "/webhooks", "ci-server"),
    prepare: async (of) => {
      await press("Rotate ci-server")(of)
      await press("Create a new secret")(of)
      await of.getByLabel("Signing secret", { exact: true }).waitFor()
    },
  },
  { ...page("webhook-rotate", "/webhooks", "ci-server"), prepare: press("Rotate ci-server") },
  { ...page("webhook-delete", "/webhooks", "ci-server"), prepare: press("Delete ci-server") },
  { ...page("menu", "/offers?gpu=L4", "g2-standard-4"), prepare: (of) => of.locator(".menu summary").click() },
  page("costs-by-key", "/costs?by=label%3Ateam", "An API key can't change caps."),
  page("members-by-key", "/members", "An API key belongs to a project"),
  page("no-such-job", "/jobs/none", "none"),
  page("no-such-page", "/nothing", "The console has no such page."),
  {
    ...page("offline", "/jobs", "Offline"),
    prepare: (of) => of.getByRole("alert").first().waitFor(),
  },
]
const STATES_OF_PEOPLE: readonly Scene[] = [
  { ...page("caps", "/costs", "Change the project's caps"), prepare: press("Change the project's caps") },
  { ...page("new-member", "/members", "you"), prepare: press("New member") },
  { ...page("member-role", "/members", "you"), prepare: press(/^Change the role of .*cem/) },
]
/** Pages of a project without anything. */
const EMPTY: readonly Scene[] = [
  page("empty-overview", "", "Nothing ran here yet."),
  page("empty-jobs", "/jobs", "This project has no jobs yet."),
  page("empty-cronjobs", "/cronjobs", "This project has no cronjobs."),
  page("empty-arrays", "/arrays", "This project has no arrays."),
  page("empty-webhooks", "/webhooks", "No webhook sends events."),
  page("empty-connections", "/connections", "No cloud account is connected."),
  page("empty-costs", "/costs", "Nothing was spent"),
  page("no-offer", "/offers?cpu=4000", "4000"),
]

/** Folder for screenshots; undefined: none are made. `npm run screenshots` sets it. */
const folder = process.env["BERTH_SCREENSHOTS"]
/** Widths at which every state is kept, such as `360,3840`, to look at them. Default: the pages of the documentation. */
const watched = process.env["BERTH_SCREENSHOT_WIDTHS"]?.split(",").map(Number)
const WIDTHS = isNightly ? [3840, 2560, 1920, 1280, 400, 360] : [2560, 1280, 360]

browserNeeded.describe("the pages of the console", () => {
  const fixture = testFixture("console-pages")
  const empty = testFixture("console-empty")
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

  async function checkAll({ page: of }: Visit, scenes: readonly Scene[], look: Look & { in?: Fixture }): Promise<void> {
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
    "have none in dialogs, forms, errors and empty lists: %s",
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

  browserNeeded.it.each(themes)("have none at the sign-in, and in its errors: %s", async (colorScheme) => {
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
  })
})
