import { beforeAll, expect } from "vitest"
import type { StoredJob } from "../../src/apis/job.ts"
import { API_VERSION } from "../../src/apis/meta.ts"
import { JOBS } from "../../src/facade/caches.ts"
import { browserNeeded } from "../browser.ts"
import { confirmedProject } from "../confirmed-project.ts"
import { caller, created, makeKey, testFixture } from "../facade/harness.ts"
import { consoleSite } from "./browser.ts"
import { people } from "./people.ts"

/** One more than a page of the console has. */
const MANY = 51
/** One more than a page of the API has. */
const MANY_PROJECTS = 101

/** Lists that are longer than a page. */
browserNeeded.describe("the console", () => {
  const fixture = testFixture("console-lists")
  const team = people(fixture)
  const site = consoleSite(fixture, team.replicaOptions)
  const call = caller(() => site.replica, fixture)
  const definition = { image: "alpine" }

  const LISTS = {
    cronjobs: (name: string) =>
      call("/1/cronjobs", { body: { name, cron_spec: "0 4 * * *", job_definition: definition } }).then(created),
    arrays: (name: string) => call("/1/arrays", { body: { name, size: 2, job_definition: definition } }).then(created),
    keys: (name: string) => makeKey(fixture.client, fixture.namespace, "viewer", { name }),
  }

  beforeAll(() => team.makeOrganization("Acme", { ada: "owner" }))

  browserNeeded.it.each(Object.entries(LISTS))("shows %s beyond the first page", async (path, make) => {
    const names = Array.from({ length: MANY }, (_, number) => `many-${number}`)
    for (const name of names) await make(name)
    const { page, faults } = await site.signedIn(`/${path}`)
    const shown = async () =>
      (await page.locator("tbody tr > :first-child").allTextContents()).map((text) => text.trim())
    await page.getByText(/^1–50 of 5\d$/).waitFor()
    const first = await shown()
    expect(first).toHaveLength(50)
    await page.getByRole("button", { name: "Older" }).click()
    await page.getByText(/^51–5\d of 5\d$/).waitFor()
    const second = await shown()
    // Keys of the fixture are among them.
    expect([...first, ...second].filter((name) => name.startsWith("many-")).sort()).toEqual(names.sort())
    expect(page.url()).toContain("offset=50")
    await page.getByRole("button", { name: "Newer" }).click()
    await page.getByText(/^1–50 of 5\d$/).waitFor()
    expect(await shown()).toEqual(first)
    expect(faults).toEqual([])
  })

  browserNeeded.it("shows every job where the API cuts a page by its bytes", async () => {
    // Each has 190 KiB as JSON, and a page has at most 4 MiB.
    const texts = ["\u0001".repeat(16_000)]
    const names = Array.from({ length: 24 }, (_, number) => `large-${number}`)
    for (const name of names) {
      const metadata = { name, namespace: fixture.namespace }
      const job = {
        apiVersion: API_VERSION,
        kind: "Job",
        metadata,
        spec: { image: "alpine", command: texts, args: texts },
      }
      await fixture.client.create(JOBS, job as StoredJob)
    }
    const { page, faults } = await site.signedIn("/jobs")
    const shown = () => page.locator("tbody tr a").allTextContents()
    await page.getByText(/^1–\d+ of 24$/).waitFor()
    const first = await shown()
    expect(first.length).toBeLessThan(24)
    await page.getByRole("button", { name: "Older" }).click()
    await page.getByText(new RegExp(`^${first.length + 1}–24 of 24$`)).waitFor()
    expect([...first, ...(await shown())].sort()).toEqual(names.sort())
    expect(faults).toEqual([])
  })

  browserNeeded.it("shows all projects of an organization", async () => {
    const ids = Array.from({ length: MANY_PROJECTS }, (_, number) => `${fixture.project}-${number}`)
    const { client, organization } = fixture
    for (const name of ids) await confirmedProject(client, { name, organization, namespace: name })
    const { page, faults } = await site.signedInAs("ada", "/members")
    await page.goto(`${site.origin}/console`)
    const list = page.getByRole("listitem")
    await list.filter({ hasText: ids.at(-1) ?? "" }).waitFor()
    expect(await list.count()).toBeGreaterThanOrEqual(MANY_PROJECTS)
    expect(faults).toEqual([])
  })
})
