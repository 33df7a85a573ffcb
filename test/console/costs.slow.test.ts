import { readFile } from "node:fs/promises"
import type { Page } from "playwright-core"
import { beforeAll, expect } from "vitest"
import { monthOf } from "../../src/core/apis/statement.ts"
import { ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { browserNeeded } from "../browser.ts"
import { caller } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { consoleSite } from "./browser.ts"
import { people } from "./people.ts"
import { ADVISED_OFFERS, measuredRuns, spend } from "./sample.ts"

/** Costs, budgets and members, as their readers see and change them. */
browserNeeded.describe("the console", () => {
  const fixture = projectFixture("console-costs")
  const team = people(fixture)
  const market = { offers: fixedOffers(ADVISED_OFFERS), launchAccounts: { of: () => [{ cloud: "aws" }] } }
  const site = consoleSite(fixture, () => ({ ...team.replicaOptions(), market, caps: { maxMonthlyUsd: 5000 } }))
  const call = caller(() => site.replica, fixture)
  let byCloud: Record<string, number>

  beforeAll(async () => {
    const spent = await spend({ fixture })
    byCloud = spent.byCloud
    await team.makeOrganization("Acme", { ada: "owner", bea: "admin", cem: "member" })
    await eventually(async () => {
      const report = (await (await call("/1/costs")).json()) as { total_usd: number; budgets: object[] }
      expect(report.total_usd).toBeCloseTo(spent.spentUsd, 4)
      expect(report.budgets).toHaveLength(2)
    })
  })

  const cells = async (page: Page, table: string): Promise<string[][]> => {
    const rows = page.getByRole("group", { name: table }).locator("tbody tr")
    return Promise.all((await rows.all()).map((row) => row.locator("td").allTextContents()))
  }

  browserNeeded.it("shows the costs of a month by day, cloud and label, and saves them as CSV", async () => {
    const { page, faults } = await site.signedIn("/costs")
    await page.getByRole("group", { name: "Costs by cloud" }).waitFor()
    const shown = await cells(page, "Costs by cloud")
    const sorted = Object.entries(byCloud).sort(([, a], [, b]) => b - a)
    expect(shown.map(([cloud, usd]) => [cloud, usd])).toEqual(
      sorted.map(([cloud, usd]) => [cloud, `$${usd.toFixed(2)}`]),
    )
    const days = page.locator(".days .hover title")
    expect(await days.nth(0).textContent()).toMatch(/^1 \w+: \$\d+\.\d\d\n(\w+ \$[\d.]+\n?){2,3}$/)
    await page.getByText("Numbers of each day").click()
    expect(await cells(page, "Costs of each day")).toHaveLength(new Date().getUTCDate())
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "CSV" }).click()])
    expect(file.suggestedFilename()).toBe(`costs-${fixture.project}-${monthOf(new Date())}.csv`)
    const csv = `cloud,cost_usd\n${sorted.map(([cloud, usd]) => `${cloud},${usd}\n`).join("")}`
    expect(await readFile(await file.path(), "utf8")).toBe(csv)
    const [focus] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "FOCUS" }).click(),
    ])
    const [header, ...rows] = (await readFile(await focus.path(), "utf8")).trimEnd().split("\r\n")
    expect(header).toMatch(/^AvailabilityZone,BilledCost,/)
    const billed = rows.map((row) => Number(row.split(",")[1]))
    const spent = Object.values(byCloud).reduce((sum, usd) => sum + usd, 0)
    expect(billed.reduce((sum, usd) => sum + usd, 0)).toBeCloseTo(spent, 4)
    await page.getByLabel("Split by").selectOption("Label")
    await page.getByText("Which label?").waitFor()
    await page.getByLabel("Key of the label").fill("team")
    await page.getByLabel("Key of the label").press("Enter")
    await page.getByRole("group", { name: "Costs by label" }).waitFor()
    expect((await cells(page, "Costs by label")).map(([value, , share]) => [value, share])).toEqual([
      ["vision", "55%"],
      ["speech", "30%"],
      ["jobs without the label team", "15%"],
    ])
    await page.getByLabel("Month (UTC)").selectOption({ index: 1 })
    await page.getByText(/^Nothing was spent in/).waitFor()
    expect(page.url()).toMatch(/\/costs\?month=\d{4}-\d\d&by=label%3Ateam$/)
    expect(faults).toEqual([])
  })

  browserNeeded.it("shows the month against its budgets, and why a key can't change them", async () => {
    const { page, faults } = await site.signedIn("")
    await page.getByRole("link", { name: /^This month/ }).click()
    const meter = page.getByRole("meter", { name: "Month of this project" })
    expect(await meter.getAttribute("aria-valuetext")).toMatch(/^\$\d+\.\d\d of \$250\.00 spent$/)
    expect(await page.getByRole("meter", { name: "Month of the installation" }).getAttribute("aria-valuemax")).toBe(
      "5000",
    )
    await page.getByText("An API key can't change caps.").waitFor()
    expect(await page.getByRole("button", { name: "Change the project's caps" }).count()).toBe(0)
    expect(faults).toEqual([])
  })

  browserNeeded.it("shows advice with the change to make, and from when on there is some", async () => {
    const { page, faults } = await site.signedIn("/costs")
    await page.getByText("There is advice after three measured runs that succeeded", { exact: false }).waitFor()
    await measuredRuns({ fixture, call }, "etl")
    await eventually(async () => {
      expect(await (await call("/1/advice")).json()).toMatchObject({ total: 1 })
    })
    await page.reload()
    const advice = page.getByRole("article", { name: "Advice about etl" })
    await advice.getByText("saves $4.00 a month").waitFor()
    await advice.getByRole("link", { name: "etl" }).click()
    await page.getByRole("heading", { name: "etl", level: 1 }).waitFor()
    await advice
      .getByText(/^peak 0\.3 of 4 vCPUs .* t4g\.medium instead of m7g\.xlarge, .* about \$4 a month\./)
      .waitFor()
    await advice.getByText("resources: {cpu: 0.4, memory: 3.5Gi}").waitFor()
    await page.goto(page.url().replace(/cronjobs\/etl$/, "new"))
    await page.getByLabel("Image").fill("busybox")
    await page.getByText("it may run for 30 days and cost up to $122.40.", { exact: false }).waitFor()
    expect(faults).toEqual([])
  })

  browserNeeded.it("lets an admin of the organization set and remove caps", async () => {
    const capsOf = async () => (await fixture.client.get(PROJECTS, { name: fixture.project })).spec.caps
    const { page, faults } = await site.signedInAs("bea", "/costs")
    await page.getByRole("button", { name: "Change the project's caps" }).click()
    const form = page.getByRole("form", { name: "Caps of this project" })
    expect(await form.getByLabel("USD in a calendar month").inputValue()).toBe("250")
    await form.getByLabel("USD in a calendar month").fill("90.5")
    await form.getByLabel("Machines at a time").fill("")
    await form.getByLabel("When the month is spent").selectOption("cancel running jobs")
    await form.getByRole("button", { name: "Set the caps" }).click()
    await page.getByText("New jobs wait for the next month. Running jobs are cancelled.").waitFor()
    const meter = page.getByRole("meter", { name: "Month of this project" })
    await expect.poll(() => meter.getAttribute("aria-valuemax")).toBe("90.5")
    expect(await capsOf()).toEqual({ maxMonthlyUsd: 90.5, onExceeded: "cancel" })
    expect(faults).toEqual([])
  })

  browserNeeded.it("shows members their organization, and lets admins give roles", async () => {
    const rolesOf = async () => {
      const { spec } = await fixture.client.get(ORGANIZATIONS, { name: fixture.organization })
      return Object.fromEntries((spec.members ?? []).map(({ userId, role }) => [userId.split("#")[1], role]))
    }
    const asMember = await site.signedInAs("cem", "/members")
    await asMember.page.getByText("Owners and admins of Acme change these roles.").waitFor()
    expect(await asMember.page.locator("tbody tr").count()).toBe(3)
    expect(await asMember.page.getByRole("button", { name: /Change|New member/ }).count()).toBe(0)
    await asMember.page.getByRole("link", { name: "Costs" }).click()
    await asMember.page.getByText("Only admins of Acme can change caps. You are a member of it.").waitFor()
    await asMember.page.close()
    const { page, faults } = await site.signedInAs("bea", "/members")
    await page.getByRole("button", { name: "New member" }).click()
    await page.getByLabel("User ID").fill("no-user")
    await page.getByRole("button", { name: "Add the member" }).click()
    await page.getByRole("alert").waitFor()
    await page.getByLabel("User ID").fill(team.userId("dan"))
    await page.getByRole("button", { name: "Add the member" }).click()
    await page.getByRole("button", { name: "Change the role of", exact: false }).nth(2).waitFor()
    await page.getByRole("button", { name: /Change the role of .*dan$/ }).click()
    await page.getByRole("dialog").getByRole("combobox").selectOption("admin")
    await page.getByRole("button", { name: "Set the role" }).click()
    await page.getByRole("row", { name: /#dan/ }).getByText("admin").first().waitFor()
    expect(await rolesOf()).toEqual({ ada: "owner", bea: "admin", cem: "member", dan: "admin" })
    // An admin may not change an owner.
    expect(await page.getByRole("row", { name: /#ada/ }).getByRole("button").count()).toBe(0)
    expect(faults.filter((fault) => !/status of 400/.test(fault))).toEqual([])
  })
})
