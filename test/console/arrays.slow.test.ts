import { readFile } from "node:fs/promises"
import { expect } from "vitest"
import type { JobStatus } from "../../src/core/apis/job.ts"
import { combinationAt, type JobArrayStatus, type StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import { JOB_ARRAYS, JOBS } from "../../src/core/resources.ts"
import { browserNeeded } from "../browser.ts"
import { caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { projectFixture, setStatus } from "../harness/facade-project.ts"
import { consoleSite, tabTo } from "./browser.ts"

const MATRIX = { LEARNING_RATE: ["0.1", "0.01", "0.001"], SEED: ["1", "2", "3", "4"] }
const NONE = { pending: 0, queued: 0, booting: 0, running: 0, succeeded: 0, failed: 0, cancelled: 0 }

/** Status of an array of 12 that has run for a while. */
const HALF: JobArrayStatus = {
  phase: "running",
  size: 12,
  counts: { ...NONE, pending: 3, running: 2, succeeded: 5, failed: 2 },
  activeIndexes: "6,8",
  succeededIndexes: "0-4",
  failedIndexes: "5,7",
  attempts: [{ attempt: 2, indexes: "7" }],
}

browserNeeded.describe("the arrays in the console", () => {
  const fixture = projectFixture("console-arrays")
  const site = consoleSite(fixture)
  const call = caller(() => site.replica, fixture)
  const arrayOf = (name: string) => fixture.client.get(JOB_ARRAYS, { namespace: fixture.namespace, name })

  async function setArrayStatus(name: string, status: JobArrayStatus): Promise<void> {
    const { generation = 1 } = (await arrayOf(name)).metadata
    const merge = { status: { observedGeneration: generation, ...status } } as Partial<StoredJobArray>
    await fixture.client.patchStatus(JOB_ARRAYS, { namespace: fixture.namespace, name }, { merge })
  }

  async function make(name: string, body: object, status?: JobArrayStatus): Promise<void> {
    const definition = { image: "ghcr.io/acme/train:3" }
    await created(await call("/1/arrays", { body: { name, job_definition: definition, ...body } }))
    if (status !== undefined) await setArrayStatus(name, status)
  }

  browserNeeded.it("show the state and the values of each index, and lead to its job, by keyboard too", async () => {
    await make("grid", { matrix: MATRIX }, HALF)
    await created(await call("/1/jobs", { body: { name: "grid-7-2", image: "alpine" } }))
    const { page, faults } = await site.signedIn("/arrays")
    const row = page.getByRole("row").filter({ hasText: "grid" })
    await row.waitFor()
    expect((await row.getByRole("cell").allTextContents()).slice(1, 7)).toEqual([
      "running",
      "12",
      "2",
      "5",
      "2",
      "$0.00",
    ])
    await row.getByRole("link", { name: "grid" }).click()
    const cells = page.getByRole("list", { name: "Indexes" }).getByRole("listitem")
    await cells.nth(11).waitFor()
    const states = [..."sssssfrfrppp"]
    const words: Record<string, string> = { s: "succeeded", f: "failed", r: "running", p: "pending" }
    expect(await cells.allTextContents()).toEqual(
      states.map((state, index) => {
        const { LEARNING_RATE: rate, SEED: seed } = combinationAt(MATRIX, index)
        const values = state === "p" ? "" : `, LEARNING_RATE=${rate}, SEED=${seed}`
        return `${index}: ${words[state]}${values}`
      }),
    )
    expect(await page.locator(".legend li").allTextContents()).toEqual([
      " 5 succeeded",
      " 2 failed",
      " 2 with an unfinished job",
      " 3 without a job so far",
    ])
    await tabTo(page, ".indexes a")
    await page.keyboard.press("End")
    await page.keyboard.press("ArrowLeft")
    await page.getByText("7: failed, LEARNING_RATE=0.01, SEED=4", { exact: true }).last().waitFor()
    // The grid is one stop of the Tab key, wherever the reader is in it.
    await page.keyboard.press("Tab")
    expect(await page.evaluate("document.activeElement.closest('.indexes')")).toBeNull()
    await page.keyboard.press("Shift+Tab")
    await page.keyboard.press("Enter")
    await page.getByRole("heading", { name: "grid-7-2" }).waitFor()
    expect(faults).toEqual([])
  })

  browserNeeded.it("run failed indexes again, and change while they are looked at", async () => {
    await make("again", { matrix: MATRIX }, HALF)
    const { page, faults } = await site.signedIn("/arrays/again")
    const button = page.getByRole("button", { name: "Run 2 failed again" })
    await button.click()
    await eventually(async () => expect((await arrayOf("again")).spec.retry).toEqual({ number: 1, indexes: "5,7" }))
    const counts = { ...NONE, pending: 3, running: 4, succeeded: 5 }
    await setArrayStatus("again", { ...HALF, counts, failedIndexes: "", activeIndexes: "5-8" })
    await page.getByRole("link", { name: /^5: running/ }).waitFor()
    expect(await button.count()).toBe(0)
    expect(faults).toEqual([])
  })

  browserNeeded.it("are cancelled after a question", async () => {
    await make("doomed", { matrix: MATRIX }, HALF)
    const { page, faults } = await site.signedIn("/arrays/doomed")
    await page.getByRole("button", { name: "Cancel", exact: true }).click()
    await page.getByRole("dialog").getByText("5 of its jobs have not ended.").waitFor()
    expect((await arrayOf("doomed")).spec.cancelled).toBe(false)
    await page.getByRole("button", { name: "Cancel the array" }).click()
    await eventually(async () => expect((await arrayOf("doomed")).spec.cancelled).toBe(true))
    await page.locator(".facts .status.cancelled").waitFor()
    expect(await page.getByRole("button", { name: /Cancel|again/ }).count()).toBe(0)
    expect(faults).toEqual([])
  })

  browserNeeded.it("show 1,000 indexes at a time", async () => {
    await make("large", { size: 2400 })
    const { page } = await site.signedIn("/arrays/large")
    const cells = page.getByRole("list", { name: "Indexes" }).getByRole("listitem")
    await page.getByText("0–999 of 0–2,399").waitFor()
    const higher = page
      .getByRole("navigation", { name: "Pages of the indexes" })
      .getByRole("button", { name: "Higher" })
    for (const text of ["1,000–1,999", "2,000–2,399"]) {
      await higher.click()
      await page.getByText(`${text} of 0–2,399`).waitFor()
    }
    expect([await cells.count(), await cells.last().textContent()]).toEqual([400, "2399: pending"])
    expect(await higher.isDisabled()).toBe(true)
    const table = page.getByRole("region", { name: "Values and results" })
    await table.getByRole("button", { name: "Higher" }).click()
    await table.getByText("51–100 of 2,400").waitFor()
    // The rows of before stay until the next ones are read.
    await expect.poll(() => table.getByRole("row").nth(1).textContent()).toMatch(/^50pending/)
  })

  browserNeeded.it(
    "have a table of values and results: failed first, by status, as CSV; and run one index again",
    async () => {
      await make("table", { matrix: MATRIX }, HALF)
      const { uid } = (await arrayOf("table")).metadata
      const { client, namespace } = fixture
      const ended = { startTime: "2026-11-24T10:00:00Z", completionTime: "2026-11-24T10:01:30Z" }
      const failed: JobStatus = { ...ended, phase: "failed", reason: "ContainerFailed", exitCode: 137 }
      for (const [index, status] of [
        [0, { ...ended, phase: "succeeded", exitCode: 0, cost: { actualUsd: 0.25 } }],
        [5, { ...failed, cost: { actualUsd: 1.5 } }],
        [6, { phase: "running", startTime: ended.startTime }],
      ] as [number, JobStatus][]) {
        const labels = { [LABELS.arrayUid]: uid, [LABELS.arrayIndex]: String(index) }
        await client.create(JOBS, {
          metadata: { name: `table-${index}`, namespace, labels },
          spec: { image: "a" },
        } as never)
        await setStatus(fixture, `table-${index}`, status)
      }
      const { page, faults } = await site.signedIn("/arrays/table")
      const table = page.getByRole("region", { name: "Values and results" })
      const rows = async () =>
        Promise.all(
          (await table.getByRole("row").all()).map(async (row) =>
            (await row.getByRole("cell").allTextContents()).slice(0, 7),
          ),
        )
      const row0 = ["0", "0.1", "1", "succeeded", "0", "1 min 30 s", "$0.25"]
      await table.getByText("$1.50").waitFor()
      expect((await rows()).slice(1, 3)).toEqual([row0, ["1", "0.1", "2", "succeeded", "", "", ""]])
      await table.getByLabel("Order").selectOption("failed first")
      await expect
        .poll(async () => (await rows()).slice(1, 4))
        .toEqual([
          ["5", "0.01", "2", "failedContainerFailed", "137", "1 min 30 s", "$1.50"],
          ["7", "0.01", "4", "failedits job is deleted", "", "", ""],
          ["6", "0.01", "3", "running", "", expect.stringMatching(/^\d+ [a-z]/), ""],
        ])
      await table.getByLabel("Show").selectOption("failed")
      await expect.poll(async () => (await rows()).length).toBe(3)
      const [download] = await Promise.all([
        page.waitForEvent("download"),
        table.getByRole("button", { name: "CSV" }).click(),
      ])
      expect(download.suggestedFilename()).toBe("table.csv")
      expect((await readFile(await download.path(), "utf8")).split("\n")).toEqual([
        "index,LEARNING_RATE,SEED,status,job,exit_code,duration_seconds,cost_usd,reason,message",
        "5,0.01,2,failed,table-5,137,90,1.5,ContainerFailed,",
        "7,0.01,4,failed,,,,,,",
        "",
      ])
      await table.getByRole("button", { name: "Run again 7" }).click()
      await eventually(async () => expect((await arrayOf("table")).spec.retry).toEqual({ number: 1, indexes: "7" }))
      await table.getByRole("link", { name: "5", exact: true }).click()
      await page.getByRole("heading", { name: "table-5" }).waitFor()
      expect(faults).toEqual([])
    },
  )

  browserNeeded.it("show no button to viewers", async () => {
    await make("seen", { matrix: { A: ["a", "b"] } }, { ...HALF, size: 2 })
    const { page, faults } = await site.open("/arrays/seen")
    await page.getByRole("textbox", { name: "API key" }).fill(fixture.keys.viewer)
    await page.getByRole("button", { name: "Sign in" }).click()
    await page.getByRole("list", { name: "Indexes" }).getByRole("link").first().waitFor()
    expect(await page.getByRole("button", { name: /Cancel|again/ }).count()).toBe(0)
    expect(faults).toEqual([])
  })
})
