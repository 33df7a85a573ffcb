import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { CostReport } from "../../src/api/resources/costs/schema.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { monthOf, STATEMENT, type StoredStatement, statementName } from "../../src/core/apis/statement.ts"
import { LAUNCHES, PROJECTS, STATEMENTS } from "../../src/core/resources.ts"
import { jobOf, launchOf, offerOf } from "../harness/builders.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"

const fixture = projectFixture("facade-costs")
let replica: Replica
const call = caller(() => replica, fixture)
const now = new Date()
const month = monthOf(now)

beforeAll(async () => {
  replica = await startReplica({ caps: { maxMonthlyUsd: 1e6 } })
  const { client, namespace, project } = fixture
  const metadata = { namespace: SYSTEM_NAMESPACE, name: statementName(namespace, month) }
  const statement = {
    ...{ apiVersion: "berth.dev/v1alpha1", kind: STATEMENT.kind, metadata },
    spec: { namespace, month },
  }
  const made = await client.create(STATEMENTS, statement as unknown as StoredStatement)
  const part = { day: 1, cloud: "aws", provisioning: "spot", machineUsd: 2, diskUsd: 1, addressUsd: 0 }
  const byLabel = [{ key: "team", value: "vision", usd: 3 }]
  await client.replaceStatus(STATEMENTS, {
    ...made,
    status: { spentUsd: 3, byCloud: { aws: 3 }, byLabel, daily: [part] },
  })
  const job = jobOf({ metadata: { namespace } })
  const { spec, metadata: own } = launchOf(job, 1, { spec: { offer: offerOf({ cloud: "gcp" }), reservedUsd: 9 } })
  const launch = { metadata: { name: own.name, namespace: SYSTEM_NAMESPACE }, spec }
  const live = await client.create(LAUNCHES, launch as unknown as StoredLaunch)
  const vm = { state: "running" as const, createTime: timestamp(now) }
  await client.replaceStatus(LAUNCHES, { ...live, status: { phase: "running", vm } })
  await client.patch(PROJECTS, { name: project }, { merge: { spec: { caps: { maxMonthlyUsd: 20 } } } })
})
afterAll(() => replica.close())

async function report(query: string): Promise<CostReport> {
  const response = await call(`/1/costs${query}`)
  const text = await response.text()
  expect(response.status, text).toBe(200)
  return JSON.parse(text) as CostReport
}

describe("GET /costs", () => {
  it("returns the costs of Statements and live VMs, and the budgets of each level", async () => {
    await eventually(async () => {
      const { total_usd, rows, budgets, by, from } = await report("?by=cloud")
      expect([by, from]).toEqual(["cloud", `${month}-01`])
      expect(total_usd).toBeGreaterThan(3)
      expect(total_usd).toBeLessThan(4)
      expect(rows.map(({ key }) => key)).toEqual(["aws", "gcp"])
      expect(budgets.map(({ level, max_monthly_usd }) => [level, max_monthly_usd])).toEqual([
        ["project", 20],
        ["installation", 1e6],
      ])
      const [project] = budgets
      expect(project?.spent_usd).toBeCloseTo(total_usd, 1)
      expect(project?.left_usd).toBeCloseTo(20 - 3 - 9, 1)
      expect(project).toMatchObject({ vms: 1, on_exceeded: "wait", reserve: "expected" })
    })
  })

  it.each([["label:team"], ["cronjob"], ["job"], ["day"], ["provisioning"]])("groups by %s", async (by) => {
    const { rows, total_usd } = await report(`?by=${by}`)
    expect(rows.reduce((total, { cost_usd }) => total + cost_usd, 0)).toBeCloseTo(total_usd, 5)
    if (by === "label:team") expect(rows[0]).toEqual({ key: "vision", cost_usd: 3 })
  })

  it("has the parts of a day by cloud and purchase option", async () => {
    const { rows } = await report("?by=day")
    const [first] = rows
    expect(first).toMatchObject({ key: `${month}-01`, by_cloud: { aws: 3 }, by_provisioning: { spot: 3 } })
    for (const { cost_usd, by_cloud = {} } of rows)
      expect(Object.values(by_cloud).reduce((total, usd) => total + usd, 0)).toBeCloseTo(cost_usd, 5)
    expect((await report("?by=cloud")).rows[0]).not.toHaveProperty("by_cloud")
  })

  it.each([
    ["?by=color", /must be one of day, cloud/],
    ["?from=2026-02-30", /must be a day/],
    ["?from=9999-12-01", /must be a day \(UTC\) from 1000-01-01 to 2999-12-31/],
    ["?to=0001-01-01", /must be a day/],
    ["?from=2026-02-02&to=2026-02-02", /must be before/],
    ["?by=label:team&from=2026-02-02&to=2026-02-20", /needs whole months/],
    ["?format=xml", /must be one of json, focus/],
  ])("rejects %s", async (query, detail) => {
    const problem = await problemIn(await call(`/1/costs${query}`))
    expect(problem).toMatchObject({ status: 400, errors: [{ detail: expect.stringMatching(detail) }] })
  })

  it("exports CSV in the columns of FOCUS", async () => {
    const response = await call("/1/costs?format=focus")
    expect(response.headers.get("content-type")).toBe("text/csv; charset=utf-8")
    const [header, ...rows] = (await response.text()).trimEnd().split("\r\n")
    expect(header).toMatch(/^AvailabilityZone,BilledCost,BillingAccountId/)
    expect(rows.filter((row) => row.includes("Amazon Web Services"))).toHaveLength(2)
  })
})
