import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { AdviceList } from "../../src/api/resources/advice/schema.ts"
import type { JobPlanRecord } from "../../src/api/resources/jobs/plan.ts"
import type { JobCreated } from "../../src/api/resources/jobs/schema.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { ADVISED_OFFERS, measuredJob, measuredRuns } from "../console/sample.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-advice")
let replica: Replica
let cronJobId: string
const call = caller(() => replica, fixture)
const market = {
  offers: fixedOffers(ADVISED_OFFERS),
  launchAccounts: { of: () => [{ cloud: "aws", connection: "main" }] },
}

beforeAll(async () => {
  replica = await startReplica({ market })
  cronJobId = await measuredRuns({ fixture, call }, "etl")
  const program = { image: "ghcr.io/acme/fit:1", command: ["fit", "--all"], resources: { cpu: 2 } }
  for (const run of [1, 2, 3]) await measuredJob({ fixture, call }, `fit-${run}`, { ...program, args: [String(run)] })
  for (const run of [1, 2]) await measuredJob({ fixture, call }, `rare-${run}`, { ...program, command: ["other"] })
  // Measured, but it asks for little.
  for (const run of [1, 2, 3])
    await measuredJob({ fixture, call }, `fine-${run}`, { image: "b", resources: { cpu: 0.4, memory: "3.5Gi" } })
})
afterAll(() => replica.close())

async function advice(query = ""): Promise<AdviceList> {
  const response = await call(`/1/advice${query}`)
  const text = await response.text()
  expect(response.status, text).toBe(200)
  return JSON.parse(text) as AdviceList
}

describe("GET /advice", () => {
  it("has the machines, the prices and the saving of each group, the largest saving first", async () => {
    await eventually(async () => expect((await advice()).total).toBe(2))
    const { advice: all, ...page } = await advice()
    expect(page).toEqual({ total: 2, limit: 50, offset: 0 })
    const [machine, advised] = [
      { cloud: "aws", region: "us-east-1", instance_type: "m7g.xlarge", provisioning: "onDemand" },
      { cloud: "aws", region: "us-east-1", instance_type: "t4g.medium", provisioning: "onDemand" },
    ]
    expect(all[0]).toEqual({
      kind: "cronjob",
      id: cronJobId,
      name: "etl",
      latest_job: "etl-4",
      runs: 4,
      reason:
        "peak 0.3 of 4 vCPUs and 2.7 of 15.5 GiB in 4 runs: with cpu 0.4 and memory 3.5Gi t4g.medium instead of m7g.xlarge, " +
        "$0.045 instead of $0.17/h, about $4 a month. Peaks shorter than 5 s are unseen.",
      current: {
        ...{ ...machine, hourly_price_usd: 0.17, total_usd_per_hour: 0.17 },
        resources: { cpu: 4, memory: "12Gi", gpu: null, disk: null },
      },
      advised: {
        ...{ ...advised, hourly_price_usd: 0.045, total_usd_per_hour: 0.045 },
        resources: { cpu: 0.4, memory: "3.5Gi", gpu: null, disk: null },
      },
      saving_usd_per_month: 4,
      saving_percent: 73.5,
    })
    expect(all[1]).toMatchObject({
      ...{ kind: "image", name: "ghcr.io/acme/fit:1 fit --all", latest_job: "fit-3", runs: 3, saving_usd_per_month: 3 },
      id: expect.stringMatching(/^[0-9a-f]{64}$/),
    })
  })

  it("has pages, and finds the advice about one cronjob", async () => {
    expect((await advice("?limit=1&offset=1")).advice.map(({ kind }) => kind)).toEqual(["image"])
    for (const cronjob of ["etl", cronJobId]) {
      const { advice: found, total } = await advice(`?cronjob=${cronjob}`)
      expect([total, found[0]?.name]).toEqual([1, "etl"])
    }
    expect((await problemIn(await call("/1/advice?array=none"))).status).toBe(404)
  })

  it("forgets advice that was followed, without another run", async () => {
    const definition = { image: "ghcr.io/acme/etl:1", resources: { cpu: 0.4, memory: "3.5Gi" } }
    await call("/1/cronjobs/etl", { method: "PATCH", body: { job_definition: definition } })
    await eventually(async () => expect((await advice("?cronjob=etl")).total).toBe(0))
  })
})

describe("a job without a limit", () => {
  const WARNING =
    "This job has no timeoutSeconds: it may run for 30 days and cost up to $32.40. Set timeoutSeconds, maxCostUsd or idleLimit."
  const small = { image: "a", resources: { cpu: 0.4, memory: "3.5Gi" } }

  it("gets a warning of its cost in the plan and in the answer to its creation", async () => {
    const plan = (await (await call("/1/jobs?dry_run=true", { body: small })).json()) as JobPlanRecord
    expect(plan.warnings).toEqual([WARNING])
    const headers = { "Idempotency-Key": "unlimited" }
    for (const _ of ["first", "replayed"]) {
      const created = (await (await call("/1/jobs", { body: small, headers })).json()) as JobCreated
      expect(created.warnings).toEqual([WARNING])
    }
  })

  it("gets it in the plan of an array or a cronjob", async () => {
    for (const [path, more] of [
      ["/1/arrays", { size: 2 }],
      ["/1/cronjobs", { cron_spec: "0 3 * * *" }],
    ] as const) {
      const response = await call(`${path}?dry_run=true`, { body: { name: "warned", job_definition: small, ...more } })
      const planned = (await response.json()) as { job: JobPlanRecord }
      expect(planned).toMatchObject({ job: { warnings: [WARNING] } })
    }
  })

  it.each([{ timeoutSeconds: 60 }, { maxCostUsd: 1 }, { idleLimit: { seconds: 600 } }])(
    "gets no warning once it has %o",
    async (limit) => {
      for (const path of ["/1/jobs?dry_run=true", "/1/jobs"]) {
        const { warnings } = (await (await call(path, { body: { ...small, ...limit } })).json()) as JobCreated
        expect(warnings).toEqual([])
      }
    },
  )
})
