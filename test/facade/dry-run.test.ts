import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type ArrayPlanRecord, ArrayPlanSchema, type ArrayRecord } from "../../src/api/resources/arrays/schema.ts"
import { type CronJobPlanRecord, CronJobPlanSchema } from "../../src/api/resources/cronjobs/schema.ts"
import { type JobPlanRecord, JobPlanSchema } from "../../src/api/resources/jobs/plan.ts"
import { valuesOf } from "../../src/client/arrays.ts"
import type { Clouds } from "../../src/clouds/cloud.ts"
import type { SpendCaps } from "../../src/core/apis/caps.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { JobReason, type StoredJob } from "../../src/core/apis/job.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { CONNECTIONS, CRON_JOBS, JOB_ARRAYS, JOBS, LAUNCHES, PROJECTS } from "../../src/core/resources.ts"
import { kubectl, testNamespace } from "../control-plane.ts"
import { accountWith } from "../discovery/accounts.ts"
import { BASE_DOMAIN, type Call, caller, created, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, shippedOffers } from "../harness/facade.ts"
import { jobsOf, projectFixture, removeJob } from "../harness/facade-project.ts"
import { clientOf, makeSystemNamespace, rightsArrive } from "../harness/machine-users.ts"
import { Programs } from "../harness/programs.ts"
import { SimCloud } from "../harness/sim-cloud.ts"

/**
 * A whole installation. `operator/main.ts` and `api/main.ts` construct operator and façade, with the rights of
 * manifests/base.
 */
const fixture = projectFixture("facade-dry-run")
const systemNamespace = testNamespace("facade-dry-run-system")
const cloud = new SimCloud(systemClock)
const programs = new Programs({
  ...{ systemNamespace, watchNamespace: fixture.namespace, clientOf },
  market: {
    offers: shippedOffers(),
    providers: { aws: { account: () => ({ ...accountWith(), bucket: async (name: string) => BUCKETS[name] }) } },
    ownAccounts: [
      { cloud: "aws", region: "us-east-1" },
      { cloud: "azure", region: "eastus" },
      { cloud: "gcp", region: "us-central1" },
    ],
  },
})
let folder: string
let port = 0
const call = caller(() => ({ port }) as Replica, fixture)

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-dry-run-"))
  await makeSystemNamespace(fixture.client, systemNamespace)
  await rightsArrive(systemNamespace)
  const clouds: Clouds = { open: (account) => cloud.open({ ...account, cloud: "sim" }) }
  await programs.startOperator({}, { clouds })
  const facade = await programs.startFacade(
    { baseDomain: BASE_DOMAIN, logsDir: folder },
    { clouds: ["aws", "azure", "gcp"] },
  )
  port = Number(new URL(facade.url).port)
  await eventually(async () => expect((await fetch(`${facade.url}/readyz`)).status).toBe(200))
})
beforeEach(clear)
afterAll(async () => {
  try {
    await clear()
  } finally {
    await programs.stop()
    await rm(folder, { recursive: true, force: true })
  }
})

/** Deletes all jobs; resolves when the operator has removed their finalizers. */
async function clear(): Promise<void> {
  for (const { metadata } of await jobsOf(fixture)) await removeJob(fixture, metadata)
  await eventually(async () => expect(await jobsOf(fixture)).toEqual([]))
}

async function planned(body: object | string, more: Call = {}): Promise<JobPlanRecord> {
  const response = await call("/1/jobs?dry_run=true", { body, ...more })
  const plan = (await response.json()) as JobPlanRecord
  expect([response.status, plan]).toEqual([200, expect.objectContaining({ dry_run: true })])
  expect(findErrors(JobPlanSchema, plan)).toEqual([])
  return plan
}

/** Submits a job; resolves with the job after the operator's decision. */
async function decided(body: object): Promise<StoredJob> {
  const { name } = await created(await call("/1/jobs", { body }))
  return eventually(async () => {
    const job = await fixture.client.get(JOBS, { namespace: fixture.namespace, name })
    const placed = findCondition(job.status?.conditions, "Placed")
    expect(placed).toBeDefined()
    // The reason is Queued while the operator still asks accounts.
    expect(placed?.reason).not.toBe(JobReason.Queued)
    return job
  })
}

/** Sets the project's caps; resolves when the operator applies them. */
async function setCaps(caps: SpendCaps | null): Promise<void> {
  const ref = { name: fixture.project }
  const { metadata } = await fixture.client.patch(PROJECTS, ref, { merge: { spec: { caps } } })
  await eventually(async () => {
    const { status } = await fixture.client.get(PROJECTS, ref)
    expect(status?.observedGeneration).toBeGreaterThanOrEqual(metadata.generation)
  })
}

/** Checks the parts of a plan that the job's own status must repeat exactly. */
function expectSame(plan: JobPlanRecord, { status }: StoredJob): void {
  const placed = findCondition(status?.conditions, "Placed")
  expect([placed?.reason, status?.placement?.reason ?? placed?.message]).toEqual([plan.reason, plan.message])
  const [first] = plan.placements
  const offer = status?.placement?.offer
  if (plan.verdict !== "placeable") {
    expect(offer).toBeUndefined()
    return
  }
  expect([first?.provider, first?.region, first?.instance_type, first?.provisioning, first?.hourly_price_usd]).toEqual([
    offer?.cloud,
    offer?.region,
    offer?.instanceType,
    offer?.provisioning,
    offer?.hourlyPriceUsd,
  ])
  expect(first?.price_date).toMatch(/^\d{4}-\d\d-\d\d$/)
  expect(first?.price_date).toBe(offer?.priceDate)
  expect(plan.estimated_cost).toBe(status?.cost?.estimatedUsd)
}

/** Returns everything that a submission could create, with its version. */
async function traces(): Promise<string[]> {
  const { client, namespace } = fixture
  const found = [
    ...(await client.list(JOBS, { namespace })).items,
    ...(await client.list(CRON_JOBS, { namespace })).items,
    ...(await client.list(LAUNCHES, { namespace: systemNamespace })).items,
  ]
  const vms = cloud.vms.map(({ vm }) => `${vm.id} ${vm.state}`)
  return [...found.map(({ metadata }) => `${metadata.name} ${metadata.uid}`), ...vms].toSorted()
}

/** Buckets that the project's connection can access. */
const BUCKETS: Record<string, { region: string }> = { "near-dublin": { region: "eu-west-1" } }

const GPU_JOB = { image: "a", resources: { cpu: 4, memory: "16Gi", gpu: { model: "T4", count: 1 } }, region: "us" }

describe("a dry run predicts the operator's decision", () => {
  it.each([
    ["a small job", { image: "a" }],
    ["a job with a timeout", { image: "a", timeoutSeconds: 30 }],
    ["a GPU job", GPU_JOB],
    ["spot in eu", { image: "a", provisioning: "spot", region: "eu", resources: { cpu: 16 } }],
  ])("plans %s with the machine, reason and cost that the operator chooses", async (_, body) => {
    const plan = await planned(body)
    expect(plan).toMatchObject({ verdict: "placeable", reason: "Placed" })
    expect(plan.placements.length).toBeGreaterThan(1)
    for (const { why, provider } of plan.placements) expect(why).toContain(provider)
    expectSame(plan, await decided(body))
  })

  it("plans a job with volumes near their bucket with the cost of traffic, and reports a bucket without access", async () => {
    const connection = { name: "My_Buckets", type: "aws", access_key_id: "AKIAXYZ", secret_access_key: "s3cret" }
    expect((await call("/1/connections", { body: connection })).status).toBe(201)
    // The operator knows the connection, so it doesn't report that the project has none.
    await eventually(async () => {
      const [made] = (await fixture.client.list(CONNECTIONS, { namespace: fixture.namespace })).items
      expect(findCondition(made?.status?.conditions, "Ready")).toMatchObject({ status: "True" })
    })
    const withBucket = (bucket: string) => ({ image: "a", volumes: { data: { bucket, mountPath: "/data" } } })
    const [near, anywhere] = [await planned(withBucket("near-dublin")), await planned({ image: "a" })]
    expect(near.placements[0]?.region).toBe("eu-west-1")
    expect(near.placements[0]?.region).not.toBe(anywhere.placements[0]?.region)
    expectSame(near, await decided(withBucket("near-dublin")))
    const lost = await planned(withBucket("nowhere"))
    expect(lost).toMatchObject({ verdict: "waits", reason: "BucketNotReached" })
    // Without the bucket's place, the traffic is not in the price.
    expect(lost.placements).toEqual(anywhere.placements)
    expect(lost.message).toContain("My_Buckets: no such bucket, or no access to it")
    expectSame(lost, await decided(withBucket("nowhere")))
  })

  it("plans a job that waits for others, or for itself through others, in the operator's words", async () => {
    const missing = { name: "prepare", image: "a", after: [{ job: "never" }] }
    const plan = await planned(missing)
    expect(plan).toMatchObject({ verdict: "waits", reason: "JobMissing" })
    expect(plan.placements).toEqual((await planned({ image: "a" })).placements)
    expectSame(plan, await decided(missing))
    const waiting = { name: "train", image: "a", after: [{ job: "prepare", outcome: "ended" }] }
    const train = await eventually(async () => {
      const seen = await planned(waiting)
      expect(seen.message).toBe("waits for prepare (queued: JobMissing)")
      return seen
    })
    expectSame(train, await decided(waiting))
    const circle = { name: "never", image: "a", after: [{ job: "train" }] }
    const never = await planned(circle)
    expect(never).toMatchObject({ verdict: "waits", reason: "DependencyCycle" })
    expectSame(never, await decided(circle))
    await call("/1/jobs/prepare/cancel", { method: "POST" })
    const failing = { name: "report", image: "a", after: [{ job: "prepare" }] }
    const report = await eventually(async () => {
      const seen = await planned(failing)
      expect(seen).toMatchObject({ verdict: "noOffer", reason: "DependencyFailed" })
      return seen
    })
    expectSame(report, await decided(failing))
  })

  it("plans the next machine after a rejection for lack of capacity", async () => {
    const [refusing] = (await planned(GPU_JOB)).placements
    cloud.faults.push({ fault: "capacity", instanceType: refusing?.instance_type ?? "" })
    const { name } = await created(await call("/1/jobs", { body: GPU_JOB }))
    await eventually(async () => {
      const { status } = await fixture.client.get(JOBS, { namespace: fixture.namespace, name })
      expect(status?.launches?.count).toBe(2)
    })
    const placeOf = (placement = refusing) => [placement?.provider, placement?.region, placement?.instance_type]
    // The façade sees the rejection through a watch of its own.
    const plan = await eventually(async () => {
      const plan = await planned(GPU_JOB)
      expect(placeOf(plan.placements[0])).not.toEqual(placeOf())
      return plan
    })
    expectSame(plan, await decided(GPU_JOB))
  })

  it("returns noOffer with the reason and the nearest miss when no offer matches", async () => {
    const body = { ...GPU_JOB, resources: { gpu: { model: "H100", count: 64 } }, region: "eu" }
    const plan = await planned(body)
    expect(plan).toMatchObject({ verdict: "noOffer", reason: "NoOffer", estimated_cost: null, placements: [] })
    expect(plan.message).toMatch(/^no offer has 64 × H100, .* in eu; .*H100.*excludes \d/)
    const job = await decided(body)
    expect(job.status?.phase).toBe("failed")
    expectSame(plan, job)
  })

  it("returns waits with CapReached when a cap of the project is reached", async () => {
    await decided({ image: "a" })
    await setCaps({ maxVms: 1 })
    try {
      const plan = await eventually(async () => {
        const plan = await planned({ image: "a" })
        expect(plan).toMatchObject({ verdict: "waits", reason: "CapReached" })
        return plan
      })
      expect(plan.message).toBe("the project's cap of 1 VMs is reached: it has 1; 1st in line")
      expect(plan.placements[0]?.estimated_cost_usd).toBe(plan.estimated_cost)
      expectSame(plan, await decided({ image: "a" }))
    } finally {
      await setCaps(null)
    }
  })
})

describe("a dry run rejects what a submission rejects", () => {
  const faults: [string, object, string, RegExp][] = [
    ["an unknown region", { region: "mars" }, "/region", /"mars" is unknown.*; allowed: .*eu/],
    ["an unknown cloud", { cloud: ["ibm"] }, "/cloud/0", /"ibm" is unknown; known clouds: aws, azure, gcp/],
    ["another cloud's region", { cloud: ["gcp"], region: "us-east-1" }, "/region", /is in aws/],
    [
      "an unknown GPU model",
      { resources: { gpu: { model: "H1000" } } },
      "/resources/gpu/model",
      /"H1000" is unknown.*known models: .*A100/,
    ],
    ["memory with an invalid unit", { resources: { memory: "24GB" } }, "/resources/memory", /24Gi/],
  ]

  it.each(faults)("rejects %s, in the dry run and in the submission", async (_, more, pointer, detail) => {
    const before = await traces()
    const body = { image: "a", ...more }
    const [dry, real] = [await call("/1/jobs?dry_run=true", { body }), await call("/1/jobs", { body })]
    const problem = await problemIn(dry)
    expect(problem).toMatchObject({ status: 400, errors: [{ pointer, detail: expect.stringMatching(detail) }] })
    expect(await problemIn(real)).toEqual({ ...problem, instance: expect.any(String) })
    expect(await traces()).toEqual(before)
  })

  it("rejects a cronjob's definition with unknown region and GPU model, with a pointer to each", async () => {
    const job_definition = { image: "a", cloud: "gcp", region: "mars", resources: { gpu: { model: "H1000" } } }
    const response = await call("/1/cronjobs", { body: { name: "nightly", cron_spec: "@daily", job_definition } })
    const { errors } = await problemIn(response)
    expect(errors.map(({ pointer }) => pointer)).toEqual([
      "/job_definition/region",
      "/job_definition/resources/gpu/model",
    ])
  })

  it("returns 409 for a dry run with a name that is taken", async () => {
    const body = { image: "a", name: "taken" }
    await decided(body)
    await eventually(() => expect(cloud.alive).toHaveLength(1))
    const before = await traces()
    const problem = await problemIn(await call("/1/jobs?dry_run=true", { body }))
    expect(problem).toMatchObject({ status: 409, errors: [{ pointer: "/name" }] })
    expect(await problemIn(await call("/1/jobs", { body }))).toEqual({ ...problem, instance: expect.any(String) })
    expect(await traces()).toEqual(before)
  })

  it("returns 403 for a viewer's dry run", async () => {
    const viewers = await call("/1/jobs?dry_run=true", { body: { image: "a" }, key: fixture.keys.viewer })
    expect(await problemIn(viewers)).toMatchObject({ status: 403, detail: expect.stringContaining("developer") })
    await planned({ image: "a" }, { key: fixture.keys.developer })
  })

  it.each(["", "yes", "1", "True", "true&dry_run=true"])("rejects dry_run=%s with 400", async (value) => {
    const { status, errors } = await problemIn(await call(`/1/jobs?dry_run=${value}`, { body: { image: "a" } }))
    expect([status, errors]).toEqual([400, [{ pointer: "", detail: expect.stringContaining('"dry_run"') }]])
    expect(await jobsOf(fixture)).toEqual([])
  })
})

describe("a dry run creates nothing", () => {
  it("creates no job, launch or VM for a dry run, and the name stays free", async () => {
    const before = await traces()
    const body = { name: "free", image: "a" }
    expect((await planned(body)).name).toBe("free")
    expect((await planned({ image: "a", namePrefix: "train" })).name).toMatch(/^train-[a-z0-9]{8}$/)
    expect((await planned({ image: "a" })).name).toMatch(/^[a-z]+-[a-z]+-\d+$/)
    await planned("image: a", { type: "application/yaml" })
    expect(await traces()).toEqual(before)
    await created(await call("/1/jobs?dry_run=false", { body }))
    expect((await jobsOf(fixture)).map(({ metadata }) => metadata.name)).toEqual(["free"])
  })

  it("leaves an Idempotency-Key unused, and returns the job of a used one", async () => {
    const headers = { "Idempotency-Key": "k" }
    await planned({ image: "a" }, { headers })
    const { name } = await created(await call("/1/jobs", { body: { image: "b" }, headers }))
    expect((await planned({ image: "b" }, { headers })).name).toBe(name)
    const other = await call("/1/jobs?dry_run=true", { body: { image: "a" }, headers })
    expect((await problemIn(other)).status).toBe(422)
  })

  it("creates no Job for kubectl apply --dry-run=server", async () => {
    const manifest = (spec: object): string =>
      JSON.stringify({ apiVersion: "berth.dev/v1alpha1", kind: "Job", metadata: { name: "dry" }, spec })
    const apply = (spec: object): Promise<string> =>
      kubectl(["apply", "--dry-run=server", "-n", fixture.namespace, "-f", "-"], manifest(spec))
    expect(await apply({ image: "a" })).toBe("job.berth.dev/dry created (server dry run)\n")
    await expect(apply({ image: "a", resources: { gpu: { count: 2 } } })).rejects.toThrow(/gpu.*model/)
    expect(await jobsOf(fixture)).toEqual([])
  })
})

describe("the plan of an array", () => {
  const SHAPES: [string, object, object][] = [
    ["a size", { size: 5, parallelism: 2 }, { image: "a", timeoutSeconds: 36_000, resources: { gpu: "24Gi" } }],
    [
      "a matrix with a budget of each job",
      { matrix: { LR: ["0.1", "0.01"], SEED: ["1", "2", "3"] } },
      { image: "a", resources: { cpu: 8, memory: "30Gi", disk: "500Gi" }, maxCostUsd: 1.5, provisioning: "spot" },
    ],
    ["jobs that wait", { size: 3 }, { image: "a", maxHourlyPriceUsd: 0.000_01 }],
    ["jobs that nothing fits", { size: 3 }, { image: "a", resources: { cpu: 9000 } }],
  ]

  it.each(SHAPES)("has the sum of each index's own plan, and creates nothing: %s", async (_, shape, definition) => {
    const response = await call("/1/arrays?dry_run=true", {
      body: { name: "sweep", job_definition: definition, ...shape },
    })
    const plan = (await response.json()) as ArrayPlanRecord
    expect([response.status, findErrors(ArrayPlanSchema, plan)]).toEqual([200, []])
    const array = { matrix: (shape as Partial<ArrayRecord>).matrix ?? null }
    const indexes = Array.from({ length: plan.size }, (_none, index) => index)
    const own = await Promise.all(
      indexes.map((index) => planned({ ...definition, env: Object.fromEntries(valuesOf(array, index)) })),
    )
    const sum = own.every(({ estimated_cost }) => estimated_cost !== null)
      ? own.reduce((total, { estimated_cost }) => total + (estimated_cost ?? 0), 0)
      : null
    if (sum === null) expect(plan.estimated_cost).toBeNull()
    else expect(plan.estimated_cost).toBeCloseTo(sum, 5)
    const most = (definition as { maxCostUsd?: number }).maxCostUsd
    expect(plan.max_cost_usd).toBe(most === undefined ? null : most * own.length)
    const { parallelism = 10 } = shape as { parallelism?: number }
    const hourly = own.slice(0, parallelism).map(({ placements: [first] }) => first?.cost_breakdown.total_usd_per_hour)
    if (hourly[0] === undefined) expect(plan.hourly_usd).toBeNull()
    else
      expect(plan.hourly_usd).toBeCloseTo(
        hourly.reduce<number>((total, one = 0) => total + one, 0),
        5,
      )
    for (const { name: _name, ...job } of own) expect(plan.job).toMatchObject(job)
    const arrays = await fixture.client.list(JOB_ARRAYS, { namespace: fixture.namespace })
    expect([arrays.items, await jobsOf(fixture)]).toEqual([[], []])
  })

  it("leaves an Idempotency-Key unused, and plans the array of a used one", async () => {
    const body = { name: "kept", job_definition: { image: "a" }, size: 2 }
    const headers = { "Idempotency-Key": "kept" }
    const plan = (more: Call) => call("/1/arrays?dry_run=true", { body, ...more })
    expect((await plan({ headers })).status).toBe(200)
    expect((await call("/1/arrays", { body, headers })).status).toBe(201)
    const again = await plan({ headers })
    expect([again.status, await again.json()]).toEqual([200, expect.objectContaining({ name: "kept", size: 2 })])
    expect((await plan({ headers, body: { ...body, size: 3 } })).status).toBe(422)
    expect((await problemIn(await plan({}))).type).toContain("name-taken")
    await fixture.client.delete(JOB_ARRAYS, { namespace: fixture.namespace, name: "kept" })
  })
})

describe("the plan of a cronjob", () => {
  it.each<[string, number, object]>([
    ["30 3 * * *", 30.42, { image: "a", timeoutSeconds: 36_000, resources: { gpu: "24Gi" } }],
    ["@hourly", 730, { image: "a", maxHourlyPriceUsd: 0.000_01 }],
    ["0 0 1 * *", 1, { image: "a", resources: { cpu: 9000 } }],
  ])(
    "has for %s the plan of a run and the price of %d runs a month, and creates nothing",
    async (cron, runs, definition) => {
      const body = { name: "nightly", cron_spec: cron, job_definition: definition }
      const response = await call("/1/cronjobs?dry_run=true", { body })
      const plan = (await response.json()) as CronJobPlanRecord
      expect([response.status, findErrors(CronJobPlanSchema, plan)]).toEqual([200, []])
      const { name: _name, ...own } = await planned(definition)
      expect(plan).toMatchObject({
        name: "nightly",
        runs_per_month: runs,
        estimated_cost: own.estimated_cost,
        job: own,
      })
      if (own.estimated_cost === null) expect(plan.estimated_monthly_cost).toBeNull()
      else expect(plan.estimated_monthly_cost).toBeCloseTo(runs * own.estimated_cost, 5)
      const cronJobs = await fixture.client.list(CRON_JOBS, { namespace: fixture.namespace })
      expect([cronJobs.items, await jobsOf(fixture)]).toEqual([[], []])
    },
  )

  it("names every wrong field at once, a name in use, and the cronjob of a used Idempotency-Key", async () => {
    const plan = (body: object, more: Call = {}) => call("/1/cronjobs?dry_run=true", { body, ...more })
    const wrong = { name: "X", cron_spec: "61 * * * *", job_definition: { image: "a", resources: { cpu: -1 } } }
    const { status, errors = [] } = await problemIn(await plan({ ...wrong, starting_deadline_seconds: -1 }))
    const pointers = ["/name", "/cron_spec", "/job_definition/resources/cpu", "/starting_deadline_seconds"]
    expect([status, errors.map(({ pointer }) => pointer).sort()]).toEqual([400, pointers.sort()])
    const body = { name: "kept", cron_spec: "@daily", job_definition: { image: "a" } }
    const headers = { "Idempotency-Key": "kept-cronjob" }
    expect((await plan(body, { headers })).status).toBe(200)
    expect((await call("/1/cronjobs", { body, headers })).status).toBe(201)
    expect((await plan(body, { headers })).status).toBe(200)
    expect((await plan({ ...body, cron_spec: "@hourly" }, { headers })).status).toBe(422)
    expect((await problemIn(await plan(body))).type).toContain("name-taken")
    await fixture.client.delete(CRON_JOBS, { namespace: fixture.namespace, name: "kept" })
  })
})
