import { beforeAll, expect } from "vitest"
import { CRON_JOB_ANNOTATIONS } from "../../src/core/apis/cronjob.ts"
import type { JobStatus, StoredJob } from "../../src/core/apis/job.ts"
import { API_VERSION, LABELS } from "../../src/core/apis/meta.ts"
import { JOBS } from "../../src/core/resources.ts"
import { browserNeeded } from "../browser.ts"
import { makeKey } from "../harness/api-keys.ts"
import { caller, created } from "../harness/caller.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { eventually } from "../harness/eventually.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { consoleSite, goTo, tabTo } from "./browser.ts"
import { people } from "./people.ts"
import { writeLog } from "./sample.ts"

/** One more than a page of the console has. */
const MANY = 51
/** One more than a page of the API has. */
const MANY_PROJECTS = 101

/** Lists that are longer than a page. */
browserNeeded.describe("the console", () => {
  const fixture = projectFixture("console-lists")
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

  browserNeeded.it("shows all that waits for a job", async () => {
    await created(await call("/1/jobs", { body: { name: "awaited", image: "alpine" } }))
    const names = Array.from({ length: MANY }, (_, number) => `late-${number}`)
    const after = [{ job: "awaited" }]
    for (const name of names)
      await created(await call("/1/arrays", { body: { name, size: 2, job_definition: definition, after } }))
    const { page, faults } = await site.signedIn("/jobs/awaited")
    const list = page.getByRole("region", { name: "Waited for by" })
    const shown = () => list.getByRole("link").allTextContents()
    await list.getByText(`1–50 of ${MANY}`).waitFor()
    const first = await shown()
    await list.getByRole("button", { name: "Older" }).click()
    await list.getByText(`51–51 of ${MANY}`).waitFor()
    expect([...first, ...(await shown())].sort()).toEqual(names.map((name) => `array/${name}`).sort())
    expect(faults).toEqual([])
  })

  browserNeeded.describe("the console of a project with a sweep and a schedule", () => {
    const work = projectFixture("console-work")
    const own = caller(() => site.replica, work)
    const minutesAgo = (minutes: number): string => new Date(Date.now() - minutes * 60_000).toISOString()
    /** Times of the jobs, milliseconds: the test counts those that ran at the same time. */
    const runs: [start: number, end: number][] = []

    /** Creates a job like a controller does, that ran for some seconds. Returns its uid. */
    async function ran(name: string, marks: object, ago: number, seconds: number, more: JobStatus): Promise<string> {
      const startTime = minutesAgo(ago)
      const end = Date.parse(startTime) + seconds * 1000
      const metadata = { name, namespace: work.namespace, ...marks }
      const { metadata: stored } = await work.client.create(JOBS, {
        metadata,
        spec: { image: "alpine" },
      } as StoredJob)
      const status = { startTime, completionTime: new Date(end).toISOString(), ...more }
      await work.client.patchStatus(JOBS, metadata, { merge: { status } })
      runs.push([Date.parse(startTime), end])
      return stored.uid ?? ""
    }

    const failed = (exitCode: number): JobStatus => ({ phase: "failed", reason: "ContainerFailed", exitCode })
    const succeeded: JobStatus = { phase: "succeeded", reason: "Succeeded", cost: { actualUsd: 0.25 } }

    beforeAll(async () => {
      const sweep = (await (
        await own("/1/arrays", { body: { name: "lr-sweep", size: 30, job_definition: definition } })
      ).json()) as { id: string }
      const cronJob = (await (
        await own("/1/cronjobs", { body: { name: "nightly", cron_spec: "0 3 * * *", job_definition: definition } })
      ).json()) as { id: string }
      const log = (uid: string, text: string) =>
        writeLog({ fixture: work, replica: site.replica, call: own }, uid, text)
      for (let index = 0; index < 30; index++) {
        const labels = {
          [LABELS.array]: "lr-sweep",
          [LABELS.arrayUid]: sweep.id,
          [LABELS.arrayIndex]: String(index),
        }
        const isFailed = index === 7 || index === 9
        const uid = await ran(`lr-sweep-${index}`, { labels }, 200 - index, 90, isFailed ? failed(1) : succeeded)
        if (isFailed) await log(uid, `epoch 1\n\x1b[31mRuntimeError: ${index}\x1b[0m\n\n`)
      }
      const marks = {
        labels: { [LABELS.cronJobUid]: cronJob.id },
        annotations: { [CRON_JOB_ANNOTATIONS.name]: "nightly" },
      }
      await ran("nightly-1", marks, 2 * 24 * 60, 60, succeeded)
      await ran("nightly-2", marks, 600, 60, succeeded)
      await log(await ran("eval", {}, 30, 1, failed(3)), "0 %\r50 %\rAssertionError: 4 != 5")
      await ran("silent", {}, 20, 1, failed(9))
      // The list is not older than the jobs.
      await eventually(async () => {
        const list = (await (await own("/1/jobs?status=failed")).json()) as { total: number }
        expect(list.total).toBe(4)
      })
    })

    browserNeeded.it("shows the last runs, the failures with their last lines, and a chart that is true", async () => {
      const { page, faults } = await site.signedIn("", { of: work })
      const rows = page.getByRole("group", { name: "Jobs by array and cronjob" }).locator("tbody tr")
      await rows.filter({ hasText: "lr-sweep" }).waitFor()
      const texts = (await rows.allTextContents()).map((text) => text.replace(/\s+/g, " "))
      expect(texts).toHaveLength(4)
      expect(texts.find((text) => text.startsWith("lr-sweep"))).toMatch(
        /array · 30 jobs.*28 succeeded.*2 failed.*\$7\.00/,
      )
      expect(texts.find((text) => text.startsWith("nightly"))).toMatch(/cronjob · 2 jobs.*2 succeeded.*\$0\.50/)

      const failures = page.locator(".failures li")
      await failures.nth(2).waitFor()
      await page.getByText("AssertionError: 4 != 5", { exact: true }).waitFor()
      await page.getByText("It wrote nothing.").waitFor()
      const found = await failures.allInnerTexts()
      expect(found.map((text) => text.split(/\s/)[0])).toEqual(["silent", "eval", expect.stringMatching(/^lr-sweep-/)])
      expect(found[1]).toContain("exit code 3")
      expect(found[2]).toMatch(/and 1 more of lr-sweep\s+RuntimeError: [79]$/)

      const since = Date.now() - 86_400_000
      const counted = runs.map(([start]) =>
        start < since ? 0 : runs.filter(([from, to]) => from <= start && start < to).length,
      )
      await page.getByText(`running jobs, at most ${Math.max(...counted)} at the same time`).waitFor()

      // A failure's output that can't be read is an error that says why, and can be tried again.
      const denied = { status: 403, contentType: "application/problem+json", body: '{"status":403,"detail":"not now"}' }
      await page.route("**/logs*", (route) => route.fulfill(denied))
      await goTo(page, work, "/jobs")
      await goTo(page, work, "")
      await failures.getByText("can't be read").nth(2).waitFor()
      await page.unroute("**/logs*")
      await failures.nth(1).getByRole("button", { name: "Try again" }).click()
      await page.getByText("AssertionError: 4 != 5", { exact: true }).waitFor()

      await page.getByRole("link", { name: "and 1 more of lr-sweep" }).click()
      await page.getByText("2 in all").waitFor()
      await page.getByRole("button", { name: "Array lr-sweep" }).waitFor()
      expect(faults.filter((fault) => !fault.includes("status of 403"))).toEqual([])
    })

    browserNeeded.it("groups, searches, sorts and filters jobs by keyboard, all in the address", async () => {
      const { page, faults } = await site.signedIn("/jobs", { of: work, viewport: { width: 1280, height: 900 } })
      const names = async () =>
        (await page.locator("tbody .row-name > :first-child").allTextContents()).map((text) => text.trim())
      /** Reaches a field from the page's title, and types into it. */
      const choose = async (label: string, text: string): Promise<void> => {
        const title = page.getByText(label, { exact: true })
        const field = page.locator("label.field").filter({ has: title }).locator("select, input")
        const focused = field.and(page.locator(":focus"))
        await page.locator("h1").focus()
        for (let presses = 0; presses < 40 && (await focused.count()) === 0; presses++) await page.keyboard.press("Tab")
        await page.keyboard.type(text)
      }
      await page.getByText("34 in all").waitFor()
      await choose("Group by", "array")
      await page.getByText("4 in all").waitFor()
      expect(page.url()).toContain("/jobs?group=origin")
      expect((await names()).sort()).toEqual(["eval", "lr-sweep", "nightly", "silent"])

      // The title of a column sorts, and sorts in the other direction.
      await tabTo(page, "th:first-child .sort")
      await page.keyboard.press("Enter")
      await expect.poll(names).toEqual(["eval", "lr-sweep", "nightly", "silent"])
      expect(await page.locator("th").first().getAttribute("aria-sort")).toBe("ascending")
      await page.keyboard.press("Enter")
      await expect.poll(names).toEqual(["silent", "nightly", "lr-sweep", "eval"])
      expect(page.url()).toContain("sort_by=name&group=origin")
      await choose("Sort", "highest")
      await expect.poll(async () => (await names()).slice(0, 2)).toEqual(["lr-sweep", "nightly"])

      // A count leads to its jobs, with the filters.
      await page.getByRole("link", { name: "2 failed" }).focus()
      await page.keyboard.press("Enter")
      await page.getByText("2 in all").waitFor()
      expect((await names()).sort()).toEqual(["lr-sweep-7", "lr-sweep-9"])

      await goTo(page, work, "/jobs")
      await page.getByText("34 in all").waitFor()
      await choose("Name contains", "sweep-2")
      await page.getByText("11 in all").waitFor()
      expect(page.url()).toMatch(/\/jobs\?name=sweep-2$/)
      await goTo(page, work, "/jobs?ended=1h&sort_by=ended_at")
      await expect.poll(names).toEqual(["silent", "eval"])
      await choose("Ended", "between")
      await page.getByText("34 in all").waitFor()
      await page.getByLabel("Ended before").fill(minutesAgo(24 * 60).slice(0, 16))
      await page.getByText("1 in all").waitFor()
      expect(await names()).toEqual(["nightly-1"])
      // The address alone shows the same.
      const address = page.url()
      await goTo(page, work, "/jobs?name=none")
      await page.getByText("No job matches the filters.").waitFor()
      await goTo(page, work, address.slice(address.indexOf("/jobs?")))
      await expect.poll(names).toEqual(["nightly-1"])

      await goTo(page, work, "/arrays?name=grid")
      await page.getByText("No array has this in its name.").waitFor()
      await choose("Name contains", "")
      await page.keyboard.press("Control+A")
      await page.keyboard.type("sweep")
      await expect.poll(names).toEqual(["lr-sweep"])
      await goTo(page, work, "/cronjobs?name=night&sort=name")
      await expect.poll(names).toEqual(["nightly"])
      expect(faults).toEqual([])
    })
  })
})
