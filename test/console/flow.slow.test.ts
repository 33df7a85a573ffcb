import { readFile } from "node:fs/promises"
import { load } from "js-yaml"
import { expect } from "vitest"
import { usd } from "../../src/console/format.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { CONNECTIONS, CRON_JOBS, JOB_ARRAYS, JOBS } from "../../src/core/resources.ts"
import { browserNeeded } from "../browser.ts"
import { offerOf } from "../harness/builders.ts"
import { caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { projectFixture, setStatus } from "../harness/facade-project.ts"
import { consoleSite, goTo, tabTo } from "./browser.ts"
import { writeLog } from "./sample.ts"
import { tqdmBar } from "./tqdm.ts"

const oneLine = (text: string): string => text.replace(/\s+/g, " ").trim()

/** The main flow of the console, as people and attackers use it. */
browserNeeded.describe("the console", () => {
  const fixture = projectFixture("console")
  const site = consoleSite(fixture)
  const call = caller(() => site.replica, fixture)
  const sample = () => ({ fixture, call, replica: site.replica })
  const jobOf = (name: string) => fixture.client.get(JOBS, { namespace: fixture.namespace, name })
  const submit = async (name: string, body: object = {}): Promise<string> =>
    (await created(await call("/1/jobs", { body: { name, image: "alpine", ...body } }))).job_id

  browserNeeded.it(
    "submits a job by its plan, shows its log while it is written, cancels it and runs it again",
    async () => {
      const { page, faults } = await site.signedIn("/jobs")
      await page.getByText("This project has no jobs yet.").waitFor()
      await page.getByRole("link", { name: "New job" }).click()
      await page.getByLabel("Image").fill("ghcr.io/acme/train:3")
      await page.getByLabel("Name", { exact: true }).fill("first")
      await page.getByLabel("Arguments").fill('--note "two words"')
      await page.getByLabel("GPU", { exact: true }).fill("L4")
      const plan = page.getByRole("complementary", { name: "Plan" })
      await plan.getByText("1×L4").first().waitFor()
      expect(await plan.textContent()).toMatch(/Its price per hour is \$0\.\d+ for the machine/)
      await page.getByRole("button", { name: "Submit the job" }).click()
      await page.getByRole("heading", { name: "first" }).waitFor()
      const { metadata, spec } = await jobOf("first")
      expect(spec).toMatchObject({ args: ["--note", "two words"], resources: { gpu: { model: "L4" } } })
      await setStatus(fixture, "first", { phase: "running", startTime: "2026-11-24T10:00:00Z" })
      await page.locator(".state .status.running").waitFor()
      await page.getByRole("link", { name: "Log" }).click()
      const lines = page.getByRole("region", { name: "Lines of the log" })
      const text = "epoch 1\n\x1b[31mERROR\x1b[0m in epoch 2\n"
      await writeLog(sample(), metadata.uid, text)
      await lines.getByText("epoch 1").waitFor()
      expect(await lines.locator(".fg-1").textContent()).toBe("ERROR")
      await writeLog(sample(), metadata.uid, "epoch 3 finds an error\n", text.length)
      await lines.getByText("epoch 3 finds an error").waitFor()
      await page.getByLabel("Find in the log").last().fill("error")
      await page.getByText("1 of 2").waitFor()
      expect(await lines.locator("mark").allTextContents()).toEqual(["ERROR", "error"])
      await page.getByRole("button", { name: "Cancel" }).click()
      await page.getByRole("button", { name: "Cancel the job" }).click()
      await eventually(async () => expect((await jobOf("first")).spec.cancelled).toBe(true))
      await page.getByRole("link", { name: "Run again" }).click()
      await plan.getByText("1×L4").first().waitFor()
      await page.getByLabel("Name", { exact: true }).fill("second")
      await page.getByText("YAML").click()
      expect(await page.getByLabel("Body of POST /jobs").inputValue()).toContain('args: ["--note", "two words"]')
      await page.getByRole("button", { name: "Submit the job" }).click()
      await page.getByRole("heading", { name: "second" }).waitFor()
      expect((await jobOf("second")).spec).toMatchObject({
        image: "ghcr.io/acme/train:3",
        args: ["--note", "two words"],
      })
      expect(faults).toEqual([])
    },
  )

  browserNeeded.it("shows a bar of 10,000 steps, the times of lines, and links to lines in another tab", async () => {
    const uid = await submit("bar")
    await setStatus(fixture, "bar", { phase: "running", startTime: "2026-11-24T10:00:00Z" })
    const context = { timezoneId: "Europe/Berlin", permissions: ["clipboard-read", "clipboard-write"] }
    const { page, faults } = await site.signedIn("/jobs/bar?tab=log", context)
    const lines = page.getByRole("region", { name: "Lines of the log" })
    let length = 0
    const write = async (text: string, time: string) => {
      await writeLog(sample(), uid, text, length, time)
      length += Buffer.byteLength(text)
    }
    await write("start\n", "2026-11-24T10:00:00Z")
    const steps = [...tqdmBar(10_000)]
    const bar = lines.locator(".log-line").nth(1).locator(".log-text")
    for (const [from, to, shown] of [
      [0, 301, /^train: +3%.* 300\/10000 /],
      [301, 6001, /^train: +60%.* 6000\/10000 /],
      [6001, 10_002, /^train: 100%.* 10000\/10000 /],
    ] as const) {
      await write(steps.slice(from, to).join(""), "2026-11-24T10:00:02.500Z")
      await expect.poll(() => bar.textContent()).toMatch(shown)
    }
    expect(await bar.evaluate((element) => (element as unknown as { offsetHeight: number }).offsetHeight)).toBe(20)
    const many = Array.from({ length: 3000 }, (_, index) => `line ${index + 3} ${"x".repeat(index % 200)}\n`)
    await write(many.join(""), "2026-11-24T10:07:00Z")
    // Everything by the keyboard.
    await tabTo(page, "input[placeholder=Line]")
    await page.keyboard.type("1500")
    await page.keyboard.press("Enter")
    await lines
      .locator(".log-line.linked")
      .getByText(/^line 1500 /)
      .waitFor()
    expect(new URL(page.url()).search).toBe("?tab=log&line=1500")
    await tabTo(page, ".log-bar input[type=checkbox]")
    for (const label of ["Wrap", "Times"]) {
      await page.keyboard.press("Tab")
      expect(await page.evaluate("document.activeElement.parentElement.textContent")).toBe(label)
      await page.keyboard.press("Space")
    }
    const linked = lines.locator(".log-line.linked")
    await linked.getByText("11-24 11:07:00").waitFor()
    expect(await linked.locator("time").getAttribute("dateTime")).toBe("2026-11-24T10:07:00.000Z")
    expect(await linked.isVisible()).toBe(true)
    await lines.getByText("1503", { exact: true }).click({ modifiers: ["Shift"] })
    await expect.poll(() => linked.count()).toBe(4)
    await page.getByRole("button", { name: "Copy link" }).click()
    await page.getByText("Copied").waitFor()
    const link = (await page.evaluate("navigator.clipboard.readText()")) as string
    expect(link).toBe(`${site.origin}/console/projects/${fixture.project}/jobs/bar?tab=log&line=1500-1503`)
    await page.reload()
    expect(await page.evaluate("localStorage.getItem('log-times')")).toBe("true")
    // The link survives a sign-in in another tab.
    const { page: other, faults: otherFaults } = await site.open(link.slice(link.indexOf("/jobs/")), context)
    await other.getByLabel("API key", { exact: true }).fill(fixture.keys.viewer)
    await other.getByRole("form").getByRole("button", { name: "Sign in" }).click()
    const there = other.locator(".log-line.linked")
    await expect.poll(() => there.locator(".log-number").allTextContents()).toEqual(["1500", "1501", "1502", "1503"])
    expect(await there.first().isVisible()).toBe(true)
    const times = other.getByRole("checkbox", { name: "Times" })
    await times.check()
    await there.first().getByText("11-24 11:07:00").waitFor()
    await setStatus(fixture, "bar", {
      phase: "succeeded",
      completionTime: "2026-11-24T10:08:00Z",
      vm: { state: "terminated" },
    })
    await other.getByLabel("Go to line").fill("4000")
    await other.getByLabel("Go to line").press("Enter")
    await other.getByText("The log has 3,002 lines.").waitFor()
    const download = other.waitForEvent("download")
    await other.getByRole("button", { name: "Download" }).click()
    const saved = await readFile(await (await download).path(), "utf8")
    expect(saved).toBe(["start\n", ...steps, ...many].join(""))
    expect([...faults, ...otherFaults]).toEqual([])
  })

  browserNeeded.it("sends the YAML text as it is, and shows what the API says of it", async () => {
    const { page } = await site.signedIn("/new")
    await page.getByText("YAML").click()
    const text = page.getByLabel("Body of POST /jobs")
    const plan = page.getByRole("complementary", { name: "Plan" })
    await text.fill("image: alpine:3.22\nname: in-yaml\ntimeoutSeconds: 0600\n")
    await plan.getByText("timeoutSeconds: 0600 is 384 for kubectl (YAML 1.1) and 600 in YAML 1.2").waitFor()
    expect(await page.getByLabel("Form").isDisabled()).toBe(true)
    await text.fill("image: alpine:3.22\nname: in-yaml\ntimeoutSeconds: 600\nenv: { A: 'yes' }\n")
    await plan.getByRole("table").first().waitFor()
    await page.getByLabel("Form").click()
    expect(await page.getByLabel("Timeout").inputValue()).toBe("10m")
    await page.getByText("YAML").click()
    await page.getByRole("button", { name: "Submit the job" }).click()
    await page.getByRole("heading", { name: "in-yaml" }).waitFor()
    expect((await jobOf("in-yaml")).spec).toMatchObject({ timeoutSeconds: 600, env: { A: "yes" } })
  })

  browserNeeded.it(
    "makes a sweep of 30 with its sum and a schedule with its price, and loses nothing between them",
    async () => {
      const { page, faults } = await site.signedIn("/new")
      const field = (label: string) => page.getByLabel(label, { exact: true })
      const plan = page.getByRole("complementary", { name: "Plan" })
      await plan.getByText("Fill in Image to see machines and prices.").waitFor()
      await field("YAML").check()
      await field("Form").check()
      // Each wrong field says so, whether the form or the API finds it, also while others are empty.
      await field("vCPU").fill("many")
      await field("Memory").fill("lots")
      await field("Timeout").fill("soon")
      await plan.getByText("Correct vCPU, Memory, Timeout to see").waitFor()
      const wrong = page.locator(".field.wrong")
      expect(await wrong.locator(".field-label").allTextContents()).toEqual(["vCPU", "Memory", "Timeout"])
      expect(await wrong.first().textContent()).toContain("many is not a number.")
      await plan.getByText("Fill in Image").waitFor()
      for (const [label, text] of Object.entries({
        vCPU: "2",
        Memory: "",
        Timeout: "1h",
        Image: "ghcr.io/acme/train:3",
      }))
        await field(label).fill(text)
      await plan.getByText("Its price per hour").waitFor()
      expect(await wrong.count()).toBe(0)

      await field("Repeat with values").check()
      await field("Values").fill("LEARNING_RATE=0.1, 0.01\nSEED=1..15,")
      await field("Jobs at the same time").fill("0")
      await wrong.getByText("parallelism must be at least 1").waitFor()
      await field("Values").fill("LEARNING_RATE=0.1, 0.01\nSEED=1..15")
      await field("Jobs at the same time").fill("5")
      await field("Name").fill("sweep-30")
      await plan.getByText("30 jobs: about").waitFor()
      const body = { image: "ghcr.io/acme/train:3", resources: { cpu: 2 }, timeoutSeconds: 3600 }
      const price = async (): Promise<number> => {
        const answer = await call("/1/jobs?dry_run=true", { body })
        return ((await answer.json()) as { estimated_cost: number }).estimated_cost
      }
      const each = await price()
      await plan.getByText(`30 jobs: about ${usd(30 * each)} in total, ${usd(each)} each.`).waitFor()
      await plan.getByText("At most 5 at the same time: $").waitFor()

      await field("On a schedule").check()
      await plan.getByText("Fill in Schedule (UTC)").waitFor()
      await field("Schedule (UTC)").fill("30 3 * *")
      await wrong.getByText("cron_spec must have five fields").waitFor()
      await field("Schedule (UTC)").fill("30 3 * * *")
      await plan.getByText(`about 30.4 runs a month: about ${usd(30.42 * each)} a month. This is an estimate`).waitFor()
      expect(await page.getByLabel("Next runs").getByRole("listitem").allTextContents()).toEqual(
        Array.from({ length: 3 }, () => expect.stringContaining("03:30 UTC")),
      )
      await page.getByLabel("If the earlier job still runs").selectOption("wait for its end")
      await field("Name").fill("each-night")
      // The YAML follows the shape, and each shape has kept its fields.
      await field("YAML").check()
      const text = page.getByLabel("Body of POST /cronjobs")
      expect(load(await text.inputValue())).toEqual({
        ...{ name: "each-night", cron_spec: "30 3 * * *", concurrency_policy: "Forbid" },
        job_definition: body,
      })
      await page.getByRole("radio", { name: "Repeat with values", disabled: false }).check()
      const seeds = Array.from({ length: 15 }, (_, index) => String(index + 1))
      const array = { matrix: { LEARNING_RATE: ["0.1", "0.01"], SEED: seeds }, parallelism: 5, job_definition: body }
      expect(load(await page.getByLabel("Body of POST /arrays").inputValue())).toEqual({ name: "each-night", ...array })
      await page.getByRole("radio", { name: "On a schedule", disabled: false }).check()
      await page.getByRole("radio", { name: "Form", disabled: false }).check()
      await page.getByRole("button", { name: "Create the cronjob" }).click()
      await page.getByRole("heading", { name: "each-night" }).waitFor()
      const ref = { namespace: fixture.namespace, name: "each-night" }
      expect((await fixture.client.get(CRON_JOBS, ref)).spec).toMatchObject({
        ...{ schedule: "30 3 * * *", concurrencyPolicy: "Forbid", jobDefinition: { ...body, resources: { cpu: "2" } } },
      })

      await goTo(page, fixture, "/new?as=array")
      await field("Values").fill("LEARNING_RATE=0.1,0.01 SEED=1..15")
      await field("Image").fill("ghcr.io/acme/train:3")
      await field("Name").fill("each-night")
      // A second click after a failure is the same intent: it creates nothing twice.
      const keys: (string | undefined)[] = []
      await page.route(/\/1\/arrays$/, (route) => {
        keys.push(route.request().headers()["idempotency-key"])
        return keys.length === 1 ? route.fulfill({ status: 500 }) : route.continue()
      })
      await page.getByRole("button", { name: "Submit 30 jobs" }).click()
      await plan.getByRole("alert").waitFor()
      await page.getByRole("button", { name: "Submit 30 jobs" }).click()
      await page.getByRole("heading", { name: "each-night" }).waitFor()
      expect(keys).toEqual([expect.stringMatching(/./), keys[0]])
      const { spec } = await fixture.client.get(JOB_ARRAYS, ref)
      expect(spec).toMatchObject({ matrix: { LEARNING_RATE: ["0.1", "0.01"], SEED: seeds } })
      await page.getByRole("list", { name: "Indexes" }).getByRole("listitem").nth(29).waitFor()
      await goTo(page, fixture, "/new?as=array")
      // The same name again: the API's error stands at its field.
      await field("Values").fill("2")
      await field("Image").fill("alpine")
      await field("Name").fill("each-night")
      await wrong.getByText('name "each-night" is in use').waitFor()
      expect(faults.filter((fault) => !/status of (400|409|500)/.test(fault))).toEqual([])
    },
  )

  browserNeeded.it("runs a cronjob now, links to its job, and says why it does not", async () => {
    const body = { name: "by-hand", cron_spec: "0 3 * * *", job_definition: { image: "alpine" } }
    expect((await call("/1/cronjobs", { body })).status).toBe(201)
    const ref = { namespace: fixture.namespace, name: "by-hand" }
    await fixture.client.patch(CRON_JOBS, ref, { merge: { spec: { concurrencyPolicy: "Forbid" } } })
    const { page } = await site.signedIn("/cronjobs/by-hand")
    await page.getByRole("button", { name: "Run now" }).click()
    const link = page.getByRole("status").getByRole("link", { name: /^by-hand-/ })
    await link.waitFor()
    const name = (await link.textContent()) ?? ""
    await page.getByLabel("Last runs of by-hand").getByText(`${name}: queued`).waitFor({ state: "attached" })
    await page.getByRole("button", { name: "Run now" }).click()
    await page.getByRole("alert").getByText(`its job ${name} has not ended`).waitFor()
    expect(await link.count()).toBe(0)
  })

  browserNeeded.it("works with the keyboard alone", async () => {
    const { page, faults } = await site.open("/jobs")
    await page.getByRole("textbox", { name: "API key" }).waitFor()
    await tabTo(page, "input[type=password]")
    await page.keyboard.type(fixture.keys.developer)
    await page.keyboard.press("Enter")
    await page.getByRole("heading", { name: "Jobs" }).waitFor()
    await tabTo(page, "main a.button")
    await page.keyboard.press("Enter")
    await page.getByRole("heading", { name: "New job" }).waitFor()
    await tabTo(page, "input[name=image]")
    await page.keyboard.type("alpine")
    await tabTo(page, "input[name=name]")
    await page.keyboard.type("by-keys")
    await page.getByText("Its price per hour").waitFor()
    await page.keyboard.press("Enter")
    await page.getByRole("heading", { name: "by-keys" }).waitFor()
    await tabTo(page, "button.danger")
    await page.keyboard.press("Enter")
    await page.getByRole("dialog").waitFor()
    await tabTo(page, "dialog button.danger")
    await page.keyboard.press("Enter")
    await eventually(async () => expect((await jobOf("by-keys")).spec.cancelled).toBe(true))
    expect(faults).toEqual([])
  })

  browserNeeded.it("shows changes after its connection was cut", async () => {
    const { page } = await site.signedIn("/jobs")
    await submit("before-cut")
    await page.getByRole("link", { name: "before-cut" }).waitFor()
    site.network.cut()
    await page.getByText("Offline", { exact: true }).waitFor()
    await page.getByText("Berth can't be reached.").waitFor()
    await submit("while-cut")
    site.network.restore()
    await page.getByRole("link", { name: "while-cut" }).waitFor()
    await page.getByText("Live", { exact: true }).waitFor()
    await submit("after-cut")
    await page.getByRole("link", { name: "after-cut" }).waitFor()
    expect(await page.getByRole("link", { name: /-cut$/ }).allTextContents()).toEqual([
      "after-cut",
      "while-cut",
      "before-cut",
    ])
  })

  browserNeeded.it("keeps filters in the address, and cancels all jobs that match them", async () => {
    for (const name of ["sweep-1", "sweep-2", "other"])
      await submit(name, { labels: { sweep: name === "other" ? "no" : "yes" } })
    const { page, faults } = await site.signedIn("/jobs?label=sweep%3Dyes")
    await page.getByRole("link", { name: "sweep-2" }).waitFor()
    expect(await page.getByRole("link", { name: "other" }).count()).toBe(0)
    await page.getByLabel("Name contains").fill("sweep-1")
    await expect.poll(() => page.getByRole("link", { name: "sweep-2" }).count()).toBe(0)
    expect(page.url()).toMatch(/\?name=sweep-1&label=sweep%3Dyes$/)
    await page.getByLabel("Name contains").fill("")
    await page.getByRole("button", { name: "Cancel all that match" }).click()
    await page.getByText("Cancel 2 jobs?").waitFor()
    await page.getByRole("button", { name: "Cancel them" }).click()
    const cancelled = async (name: string) => (await jobOf(name)).spec.cancelled === true
    await eventually(async () =>
      expect(await Promise.all(["sweep-1", "sweep-2", "other"].map(cancelled))).toEqual([true, true, false]),
    )
    expect(faults).toEqual([])
  })

  browserNeeded.it("lets a job wait for others, shows both sides live, and cancels all that waits", async () => {
    await submit("prepare")
    const { page, faults } = await site.signedIn("/new")
    await page.getByLabel("Image").fill("alpine")
    await page.getByLabel("Name", { exact: true }).fill("train")
    const after = page.getByLabel("After", { exact: true })
    await after.fill("prep")
    await page.locator('#after-names option[value="prepare"]').waitFor({ state: "attached" })
    await after.fill("prepare:done")
    await page.locator(".field.wrong").getByText("prepare:done must name jobs or arrays").waitFor()
    const plan = page.getByRole("complementary", { name: "Plan" })
    await after.fill("prepare")
    await plan.getByText("The job would wait (WaitsForJob): waits for prepare (queued)").waitFor()
    await after.fill("prepare, array/sweep:ended")
    await plan.getByText("The job would wait (JobMissing): array/sweep is not there yet").waitFor()
    await page.getByRole("button", { name: "Submit the job" }).click()
    await page.getByRole("heading", { name: "train" }).waitFor()
    expect((await jobOf("train")).spec.after).toMatchObject([{ job: "prepare" }, { array: "sweep", outcome: "ended" }])

    const waitsFor = page.getByRole("region", { name: "Waits for" }).getByRole("listitem")
    const rows = (list: typeof waitsFor) => expect.poll(async () => (await list.allInnerTexts()).map(oneLine))
    await rows(waitsFor).toEqual(["prepare queued success needed", "array/sweep doesn't exist yet any end counts"])
    await setStatus(fixture, "prepare", { phase: "running", startTime: "2026-11-24T10:00:00Z" })
    const definition = { image: "alpine" }
    const sweep = { name: "sweep", size: 2, job_definition: definition, after: [{ job: "prepare" }] }
    await created(await call("/1/arrays", { body: sweep }))
    await rows(waitsFor).toEqual(["prepare running success needed", "array/sweep queued any end counts"])

    await page.getByRole("link", { name: "array/sweep" }).click()
    await page.getByRole("heading", { name: "sweep" }).waitFor()
    await rows(waitsFor).toEqual(["prepare running success needed"])
    const waitedForBy = page.getByRole("region", { name: "Waited for by" }).getByRole("listitem")
    await rows(waitedForBy).toEqual(["train queued"])
    const dialog = page.getByRole("dialog")
    await page.getByRole("button", { name: "Cancel", exact: true }).click()
    await dialog.getByText("train waits for it. Unless it is cancelled too, it fails.").waitFor()
    await dialog.getByRole("button", { name: "Back" }).click()

    // A circle needs its user, wherever it is shown.
    const circle = "each of these waits for the next one: train → other → train. Cancel one of them"
    await setStatus(fixture, "train", { phase: "queued", reason: "DependencyCycle", message: circle })
    await rows(waitedForBy).toEqual(["train queued needs you DependencyCycle"])
    await page.getByRole("link", { name: "train" }).click()
    await page.locator(".note.trouble").getByText(circle).waitFor()
    await goTo(page, fixture, "")
    await page.locator(".reasons li").first().getByText("needs you").waitFor()

    await goTo(page, fixture, "/jobs/prepare")
    await rows(waitedForBy).toEqual(["train queued needs you DependencyCycle", "array/sweep queued"])
    // What can't be counted is no reason not to cancel, and says so.
    const denied = { status: 403, contentType: "application/problem+json", body: '{"status":403,"detail":"not now"}' }
    await page.route("**/dependents*", (route) => route.fulfill(denied))
    await page.getByRole("button", { name: "Cancel", exact: true }).click()
    await dialog.getByText("What waits for it can't be counted").waitFor()
    expect(await dialog.getByRole("button", { name: "Cancel the job" }).isEnabled()).toBe(true)
    await dialog.getByRole("button", { name: "Back" }).click()
    await page.unroute("**/dependents*")
    await page.getByRole("button", { name: "Cancel", exact: true }).click()
    await dialog.getByText("2 jobs and arrays wait for it: array/sweep, train.").waitFor()
    await dialog.getByRole("checkbox", { name: "Cancel these 2 too" }).check()
    await dialog.getByRole("button", { name: "Cancel the job" }).click()
    await rows(waitedForBy).toEqual(["train cancelled", "array/sweep cancelled"])
    expect((await jobOf("prepare")).spec.cancelled).toBe(true)
    expect(faults.filter((fault) => !/status of 40[34]/.test(fault))).toEqual([])
  })

  browserNeeded.it("moves nothing for readers who want less motion", async () => {
    await submit("moving")
    await setStatus(fixture, "moving", { phase: "running", startTime: "2026-11-24T10:00:00Z" })
    const { page } = await site.signedIn("/jobs/moving", { reducedMotion: "no-preference" })
    const animations = () => page.evaluate("document.getAnimations().length")
    await page.locator(".state .status.running").waitFor()
    expect(await animations()).toBeGreaterThan(0)
    await page.emulateMedia({ reducedMotion: "reduce" })
    await expect.poll(animations).toBe(0)
  })

  browserNeeded.it("makes a key, shows its value once, and revokes it", async () => {
    const { page, faults } = await site.signedIn("/keys")
    await page.getByRole("button", { name: "New key" }).click()
    await page.getByLabel("Name").fill("x")
    await page.getByRole("button", { name: "Create the key" }).click()
    await page
      .locator(".field.wrong")
      .getByText(/^name must /)
      .waitFor()
    await page.locator("input[aria-invalid]:focus").waitFor()
    await page.getByLabel("Name").fill("build-machine")
    await page.getByLabel("Role").selectOption("viewer")
    await page.getByRole("button", { name: "Create the key" }).click()
    const value = await page.getByLabel("Value of the key").textContent()
    await eventually(async () => expect((await call("/1/whoami", { key: value?.trim() })).status).toBe(200))
    await page.getByRole("button", { name: "I have copied it" }).click()
    await page.getByRole("button", { name: "Revoke build-machine" }).click()
    expect(await page.content()).not.toContain(value)
    await page.getByRole("button", { name: "Revoke the key" }).click()
    await eventually(async () => expect((await call("/1/whoami", { key: value?.trim() })).status).toBe(401))
    expect(faults).toEqual([expect.stringMatching(/status of 400/)])
  })

  browserNeeded.it("adds a connection, shows no secret of it, and deletes it", async () => {
    const { page, faults } = await site.signedIn("/connections")
    await page.getByText("No cloud account is connected.").waitFor()
    await page.getByRole("button", { name: "New connection" }).click()
    const form = page.getByRole("form", { name: "New connection" })
    await form.getByLabel("Name of the connection").fill("aws-lab")
    await form.getByLabel("Access key id").fill("AKIAEXAMPLE")
    await form.getByRole("button", { name: "Add the connection" }).click()
    // The API says which field is missing, and the form stays.
    await form.locator(".field.wrong").getByText("secret_access_key").waitFor()
    await form.getByLabel("Secret access key").fill("very-secret-value")
    await form.getByRole("button", { name: "Add the connection" }).click()
    const panel = page.getByRole("article").filter({ has: page.getByRole("heading", { name: "aws-lab" }) })
    await panel.getByText("AKIAEXAMPLE").waitFor()
    expect(await page.content()).not.toContain("very-secret-value")
    const stored = () => ifFound(fixture.client.get(CONNECTIONS, { namespace: fixture.namespace, name: "aws-lab" }))
    expect(JSON.stringify(await stored())).not.toContain("very-secret-value")
    expect((await stored())?.spec.type).toBe("aws")
    await panel.getByRole("button", { name: "Delete aws-lab" }).click()
    await page.getByRole("button", { name: "Delete the connection" }).click()
    await page.getByText("No cloud account is connected.").waitFor()
    await eventually(async () => expect(await stored()).toBeUndefined())
    expect(faults).toEqual([expect.stringMatching(/status of 400/)])
  })

  browserNeeded.it("counts jobs that failed in the last 24 hours by their end", async () => {
    const hoursAgo = (hours: number): string => timestamp(new Date(Date.now() - hours * 3_600_000))
    for (const [name, hours] of [
      ["failed-now", 1],
      ["failed-before", 25],
    ] as const) {
      await submit(name)
      await setStatus(fixture, name, { phase: "failed", reason: "ContainerFailed", completionTime: hoursAgo(hours) })
    }
    const { page, faults } = await site.signedIn("")
    await page.getByRole("heading", { name: "Failed in the last 24 hours" }).waitFor()
    await page.getByRole("link", { name: /^Failed in 24 h\s*1$/ }).click()
    await page.getByRole("link", { name: "failed-now" }).waitFor()
    expect(await page.getByRole("link", { name: "failed-before" }).count()).toBe(0)
    await page
      .locator("label.field")
      .filter({ hasText: /^Ended/ })
      .locator("select")
      .selectOption("any time")
    await page.getByRole("link", { name: "failed-before" }).waitFor()
    expect(faults).toEqual([])
  })

  browserNeeded.it("shows a failed job's last line, and the end of its log near it", async () => {
    await submit("fails")
    const { metadata } = await jobOf("fails")
    await writeLog(sample(), metadata.uid, "0%\r100%\n\x1b[31mValueError\x1b[0m: no <data>\n")
    const failed = { phase: "failed", reason: "ContainerFailed", message: "exit code 1", exitCode: 1 } as const
    const time = timestamp(new Date())
    await setStatus(fixture, "fails", {
      ...failed,
      startTime: time,
      completionTime: time,
      lastLine: "ValueError: no <data>",
    })
    const { page, faults } = await site.signedIn("/jobs/fails?tab=spec")
    await page.getByText("exit code 1: ValueError: no <data>").waitFor()
    const tail = page.getByRole("region", { name: "End of its log" }).locator("pre")
    expect(await tail.textContent()).toBe("100%\nValueError: no <data>")
    expect(faults).toEqual([])
  })

  browserNeeded.it("draws what a job used against its machine, and says why nothing is known", async () => {
    await submit("used")
    const placement = { offer: offerOf({ cpu: 8, memoryGib: 32 }), reason: "cheapest" }
    const usage = { seconds: 120, cpuMean: 2, cpuPeak: 3, memoryPeakMib: 8192 }
    const time = timestamp(new Date())
    await setStatus(fixture, "used", { phase: "succeeded", placement, startTime: time, completionTime: time, usage })
    const points = [1, 3].map((cpu, minute) => {
      return { time: Date.parse("2026-01-01T10:00:00Z") + minute * 60_000, seconds: 60, cpu, memoryMib: 4096 * cpu }
    })
    const { metadata } = await jobOf("used")
    await sample().replica.usageStore.add({ namespace: fixture.namespace, uid: metadata.uid }, 1, points)
    const { page, faults } = await site.signedIn("/jobs/used?tab=usage")
    const region = page.getByRole("region", { name: "Use" })
    await region.getByText("CPU: at most 3/8 vCPU").waitFor()
    await region.getByText("Memory: at most 12/32 GiB").waitFor()
    expect(await region.getByText("GPU").count()).toBe(0)
    const lines = await region.locator("svg .line-1").evaluateAll((all) => all.map((line) => line.getAttribute("d")))
    expect(lines[0]).toBe("M0.0 175.0H480.0L480.0 125.0H960.0")
    await submit("unused")
    await page.goto(page.url().replace("/used?", "/unused?"))
    await page.getByText("The container has not started.").waitFor()
    expect(faults).toEqual([])
  })

  browserNeeded.it("shows the present page in the menu of a small screen", async () => {
    const { page } = await site.signedIn("/members", { viewport: { width: 360, height: 700 } })
    const box = () => page.getByRole("navigation", { name: "Pages" }).getByText("Members").boundingBox()
    await expect.poll(async () => (await box())?.x ?? 0).toBeLessThan(300)
  })
})
