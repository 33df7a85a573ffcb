import { randomUUID } from "node:crypto"
import { setTimeout as sleep } from "node:timers/promises"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { requestHash } from "../../src/api/idempotency.ts"
import type { JobList } from "../../src/api/resources/jobs/groups.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { ANNOTATIONS, LABELS } from "../../src/core/apis/meta.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { JobRecordSchema } from "../../src/core/records/job.ts"
import { JOBS } from "../../src/core/resources.ts"
import { caller, created, problemIn, recordIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { INSTALLATION_ID, type Replica, startReplica } from "../harness/facade.ts"
import { applyJob, jobsOf, projectFixture, removeJob, setStatus } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-jobs")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())
beforeEach(async () => {
  for (const { metadata } of await jobsOf(fixture)) await removeJob(fixture, metadata)
})

async function list(query = ""): Promise<JobList> {
  const response = await call(`/1/jobs${query}`)
  expect(response.status).toBe(200)
  return (await response.json()) as JobList
}

async function names(query = ""): Promise<string[]> {
  return (await list(query)).jobs.map(({ name }) => name)
}

describe("GET /1/jobs/{id}", () => {
  it("returns an ETag for a job, and 304 while it is unchanged, for GET and HEAD", async () => {
    const { job_id } = await created(await call("/1/jobs", { body: { name: "tagged", image: "a" } }))
    const path = `/1/jobs/${job_id}`
    const etag = (await call(path)).headers.get("etag") ?? ""
    expect(etag).toMatch(/^W\/"\d+"$/)
    const headers = { "If-None-Match": etag }
    for (const method of ["GET", "HEAD"]) {
      const response = await call(path, { method, headers })
      expect([response.status, await response.text(), response.headers.get("etag")]).toEqual([304, "", etag])
    }
    await setStatus(fixture, "tagged", { phase: "running" })
    await eventually(async () => expect((await call(path, { headers })).status).toBe(200))
  })
})

describe("POST /1/jobs", () => {
  it("returns 201 with Location and {job_id, name, status: queued, warnings}, and creates a Job", async () => {
    const response = await call("/1/jobs", { body: { name: "first", image: "alpine:3.20" } })
    const { job_id } = await created(response.clone())
    expect(await response.json()).toEqual({ job_id, name: "first", status: "queued", warnings: [expect.any(String)] })
    expect(response.headers.get("location")).toBe(`/1/jobs/${job_id}`)
    const [job, ...others] = await jobsOf(fixture)
    expect(others).toEqual([])
    expect(job?.metadata).toMatchObject({ uid: job_id, name: "first" })
    expect(job?.metadata.annotations?.[ANNOTATIONS.createdAt]).toMatch(/^\d{4}-.*\.\d{6}Z$/)
    expect(job?.metadata.annotations?.[ANNOTATIONS.submission]).toMatch(new RegExp(`^${INSTALLATION_ID}/`))
    expect(job?.metadata.finalizers).toEqual(["berth.dev/job"])
    expect(job?.spec).toMatchObject({ image: "alpine:3.20" })
  })

  it("accepts a job in YAML, and the record has every field that was sent", async () => {
    const body = `
namePrefix: train
image: ghcr.io/acme/train:1
command: [python, train.py]
args: ["--epochs", "3"]
env: {MODE: fast, PORT: "8080"}
volumes:
  data: {bucket: models, mountPath: /data, prefix: null, readOnly: true, cache: reads}
  state: {bucket: runs, mountPath: /state, checkpoint: true}
resources: {cpu: 0.5, memory: 2Gi, gpu: 24Gi, disk: 200Gi}
cloud: [aws, gcp]
region: eu
maxRetries: 2
labels: {team: a, "free form": "any: value"}
tags: [nightly, gpu]
timeoutSeconds: 60
provisioning: spotFirst
maxHourlyPriceUsd: 1.5
maxPreemptions: 5
retryRules:
  - {reasons: [OutOfMemory], exitCodes: [137], action: newVm, limit: 5}
  - {exitCodes: [75, 100-119], action: newVm}
  - {action: fail}
maxLostVms: 0
after: [{job: prepare}, {array: sweep, outcome: ended}]
maxMemory: 128Gi
idleLimit: {gpuPercent: 2.5}
reuse: {idleSeconds: 300}
debug: {keepSeconds: 3600}
fallbackAfter: 2
terminationGraceSeconds: 90
secretEnv: {TOKEN: {secret: s, key: k}}
ttlSecondsAfterFinished: 10
project_id: ${fixture.project}
organization_id: ${fixture.organization}
`
    const { job_id, name } = await created(await call("/1/jobs", { body, type: "application/yaml" }))
    expect(name).toMatch(/^train-[a-z0-9]{8}$/)
    const record = await recordIn(await call(`/1/jobs/${job_id}`))
    expect(record).toEqual({
      id: job_id,
      organization_id: fixture.organization,
      project_id: fixture.project,
      name,
      namePrefix: "train",
      status: "queued",
      credentials_status: "empty",
      vm_status: "nonassigned",
      image: "ghcr.io/acme/train:1",
      command: ["python", "train.py"],
      args: ["--epochs", "3"],
      env: { MODE: "fast", PORT: "8080" },
      volumes: [
        {
          ...{ name: "data", bucket: "models", mount_path: "/data" },
          ...{ connection: null, prefix: null, checkpoint: false, read_only: true, cache: "reads" },
        },
        {
          ...{ name: "state", bucket: "runs", mount_path: "/state" },
          ...{ connection: null, prefix: null, checkpoint: true, read_only: null, cache: null },
        },
      ],
      resources: { cpu: 0.5, memory: "2Gi", gpu: { vram: "24Gi", count: null, model: null }, disk: "200Gi" },
      cloud: ["aws", "gcp"],
      region: ["eu"],
      labels: { team: "a", "free form": "any: value" },
      tags: ["nightly", "gpu"],
      retry_count: 0,
      max_retries: 2,
      selected_provider: null,
      selected_region: null,
      selected_instance_type: null,
      placement_reason: null,
      vm_instance_id: null,
      ip_address: null,
      hourly_price_usd: null,
      estimated_cost: null,
      actual_cost: null,
      max_cost_usd: null,
      max_queue_seconds: null,
      accrued_cost: null,
      cost_breakdown: null,
      created_at: record.created_at,
      updated_at: record.created_at,
      last_heartbeat_at: null,
      started_at: null,
      ended_at: null,
      timeout_seconds: 60,
      error_message: null,
      reason: null,
      message: null,
      exit_code: null,
      provisioning: "spotFirst",
      max_hourly_price_usd: 1.5,
      max_preemptions: 5,
      priority: 0,
      queue_position: null,
      concurrency_group: null,
      after: [
        { job: "prepare", array: null, outcome: "succeeded" },
        { job: null, array: "sweep", outcome: "ended" },
      ],
      waits_for: [
        { job: "prepare", array: null, id: null, outcome: "succeeded" },
        { job: null, array: "sweep", id: null, outcome: "ended" },
      ],
      preemption_count: 0,
      retry_rules: [
        { reasons: ["OutOfMemory"], exit_codes: [137], action: "newVm", limit: 5 },
        { reasons: [], exit_codes: [75, "100-119"], action: "newVm", limit: null },
        { reasons: [], exit_codes: [], action: "fail", limit: null },
      ],
      idle_limit: { seconds: 1800, gpu_percent: 2.5, cpu_percent: null },
      reuse: { idle_seconds: 300, key: null },
      debug: { keep_seconds: 3600 },
      kept_until: null,
      usage: null,
      new_vm_retries: 0,
      max_lost_vms: 0,
      max_memory: "128Gi",
      fallback_after: 2,
      termination_grace_seconds: 90,
      secret_env: { TOKEN: { secret: "s", key: "k" } },
      ttl_seconds_after_finished: 10,
      workdir: null,
      cronjob_id: null,
      array_id: null,
      array_index: null,
    })
    expect(findErrors(JobRecordSchema, record)).toEqual([])
    const [job] = await jobsOf(fixture)
    expect(job?.metadata.labels).toEqual({ team: "a" })
  })

  it("fills the contract's defaults of a job: cpu 1, memory 4Gi, and the installation's finite timeout", async () => {
    const { name } = await created(await call("/1/jobs", { body: { image: "alpine" } }))
    expect(name).toMatch(/^[a-z]+-[a-z]+-[0-9]+$/)
    const record = await recordIn(await call(`/1/jobs/${name}`))
    expect(record.resources).toEqual({ cpu: 1, memory: "4Gi", gpu: null, disk: null })
    expect(record).toMatchObject({ timeout_seconds: 30 * 24 * 3600, max_retries: 0, command: [], env: {}, region: [] })
  })

  it("treats null fields of a job as omitted", async () => {
    const body = { name: "nulls", namePrefix: null, image: "alpine", env: null, region: null, resources: { gpu: null } }
    const { job_id } = await created(await call("/1/jobs", { body }))
    expect(await recordIn(await call(`/1/jobs/${job_id}`))).toMatchObject({ env: {}, region: [], namePrefix: null })
  })

  it("rejects retry rules and memory that mean nothing, each with its own sentence", async () => {
    const rules = [
      { exitCodes: ["119-100", 0] },
      { action: "fail", limit: 2 },
      { action: "newVm", reasons: ["SecretMissing"] },
    ]
    const body = { image: "a", retryRules: rules, maxMemory: "1Gi", resources: { memory: "2Gi" } }
    const { errors = [] } = await problemIn(await call("/1/jobs", { body }))
    expect(errors.map(({ detail }) => detail).sort()).toEqual([
      "maxMemory must be at least resources.memory",
      "retryRules[0].action is required",
      'retryRules[0].exitCodes[0] must have its lower exit code first, such as 100-119, not "119-100"',
      "retryRules[0].exitCodes[1] must be at least 1, not 0",
      "retryRules[1].limit is only for the action newVm",
      expect.stringContaining("retryRules[2].reasons[0] must be OutOfMemory, ContainerFailed, "),
    ])
  })

  it("rejects reuse with a highest cost, of a job and of an array's jobs", async () => {
    const job = { image: "a", reuse: { idleSeconds: 60 }, maxCostUsd: 1 }
    const detail =
      "reuse can't be combined with maxCostUsd: only the VM's own timer keeps a job within maxCostUsd, and a VM that waits for other jobs lives longer"
    const { errors } = await problemIn(await call("/1/jobs", { body: job }))
    expect(errors).toEqual([{ pointer: "/reuse", detail }])
    const ofArray = await problemIn(await call("/1/arrays", { body: { name: "sweep", job_definition: job, size: 2 } }))
    expect(ofArray.errors).toEqual([{ pointer: "/job_definition/reuse", detail: `job_definition.${detail}` }])
    expect(await jobsOf(fixture)).toEqual([])
  })

  it("rejects a job name that is taken with 409", async () => {
    await created(await call("/1/jobs", { body: { name: "taken", image: "a" } }))
    const response = await call("/1/jobs", { body: { name: "taken", image: "b" } })
    expect(response.status).toBe(409)
    expect(await problemIn(response)).toMatchObject({ errors: [{ pointer: "/name" }] })
    expect((await jobsOf(fixture)).map(({ spec }) => spec.image)).toEqual(["a"])
  })

  it("lists every error of a job with its pointer, and creates no job (design, section 8)", async () => {
    const body = {
      namePrefix: "x",
      name: "Bad_Name",
      image: 7,
      command: "echo",
      env: { A: 1, B: null },
      labels: { n: true },
      resources: { cpu: "2", memory: "24GB", gpu: { count: 2 } },
      cloud: ["aws", "moon"],
      maxRetries: -1,
      max_retries: 1,
      tags: [null],
      project_id: "another",
    }
    const response = await call("/1/jobs", { body })
    expect(response.status).toBe(400)
    const { errors } = await problemIn(response)
    const details = new Map(errors.map(({ pointer, detail }) => [pointer, detail]))
    expect([...details.keys()].sort()).toEqual(
      [
        "/namePrefix",
        "/name",
        "/image",
        "/command",
        "/env/A",
        "/env/B",
        "/labels/n",
        "/resources/cpu",
        "/resources/memory",
        "/resources/gpu/model",
        "/cloud/1",
        "/maxRetries",
        "/max_retries",
        "/tags/0",
        "/project_id",
      ].sort(),
    )
    expect(details.get("/resources/memory")).toMatch(/24Gi .*24G /)
    expect(details.get("/env/A")).toMatch(/quotes/)
    expect(details.get("/cloud/1")).toMatch(/aws, gcp, azure/)
    expect(details.get("/max_retries")).toMatch(/maxRetries\?/)
    expect(await jobsOf(fixture)).toEqual([])
  })

  it.each([
    ["an empty gpu", { image: "a", resources: { gpu: {} } }, "/resources/gpu"],
    ["a gpu size without a known unit", { image: "a", resources: { gpu: "24GB" } }, "/resources/gpu"],
    ["a size without a unit", { image: "a", resources: { memory: "4" } }, "/resources/memory"],
    ["no image", { name: "x" }, "/image"],
    ["an empty image", { image: "" }, "/image"],
    ["a name in the form of a UUID", { image: "a", name: "0b8ae3a4-8b5c-4d5e-9f61-0a1b2c3d4e5f" }, "/name"],
    ["a name of 129 characters", { image: "a", name: "a".repeat(129) }, "/name"],
    ["a prefix of 101 characters", { image: "a", namePrefix: "a".repeat(101) }, "/namePrefix"],
    ["cpu 0", { image: "a", resources: { cpu: 0 } }, "/resources/cpu"],
    ["a cpu of four decimals", { image: "a", resources: { cpu: 0.1234 } }, "/resources/cpu"],
    ["a timeout of 0", { image: "a", timeoutSeconds: 0 }, "/timeoutSeconds"],
    ["a cancelled job", { image: "a", cancelled: true }, "/cancelled"],
    ["another organization", { image: "a", organization_id: "x" }, "/organization_id"],
    ["a volume without a bucket", { image: "a", volumes: { d: { mountPath: "/d" } } }, "/volumes/d/bucket"],
    [
      "a read-only volume for checkpoints",
      { image: "a", volumes: { d: { bucket: "b", mountPath: "/d", readOnly: true, checkpoint: true } } },
      "/volumes/d/readOnly",
    ],
    ["a null volume", { image: "a", volumes: { d: null } }, "/volumes/d"],
    ["a list for a body", ["image"], ""],
  ])("rejects %s with 400 and creates no job", async (_what, body, pointer) => {
    const response = await call("/1/jobs", { body })
    expect(response.status).toBe(400)
    const { errors } = await problemIn(response)
    expect(new Set(errors.map((error) => error.pointer))).toEqual(new Set([pointer]))
    expect(await jobsOf(fixture)).toEqual([])
  })

  it.each([
    [{ model: "A100" }, { model: "A100", count: 1, vram: null }],
    [
      { model: "A100", count: 4 },
      { model: "A100", count: 4, vram: null },
    ],
    [
      { model: "A100", vram: "80Gi" },
      { model: "A100", count: null, vram: "80Gi" },
    ],
    [
      { model: "A100", vram: "80Gi", count: 2 },
      { model: "A100", count: 2, vram: "80Gi" },
    ],
    ["80G", { model: null, count: null, vram: "80G" }],
  ])("accepts gpu %j as the contract's GPU rules define it", async (gpu, expected) => {
    const { job_id } = await created(await call("/1/jobs", { body: { image: "a", resources: { gpu } } }))
    expect((await recordIn(await call(`/1/jobs/${job_id}`))).resources.gpu).toEqual(expected)
  })

  it("treats names like __proto__ and constructor as plain data", async () => {
    const body = '{"image":"a","env":{"__proto__":"x","constructor":"y"},"labels":{"__proto__":"z"}}'
    const { job_id } = await created(await call("/1/jobs", { body }))
    const text = await (await call(`/1/jobs/${job_id}`)).text()
    expect(text).toContain('"env":{"__proto__":"x","constructor":"y"}')
    expect(({} as Record<string, unknown>)["x"]).toBeUndefined()
  })
})

describe("Idempotency-Key (design, section 8)", () => {
  const body = { image: "alpine", labels: { a: "1", b: "2" } }

  it("returns 201 and the same body for a repeated Idempotency-Key, in any format and order of the body", async () => {
    const headers = { "Idempotency-Key": randomUUID() }
    const first = await call("/1/jobs", { body, headers })
    const yaml = 'labels: {b: "2", a: "1"}\nname: null\nimage: alpine\n'
    const second = await call("/1/jobs", { body: yaml, type: "application/yaml", headers })
    expect([first.status, second.status]).toEqual([201, 201])
    expect(second.headers.get("location")).toBe(first.headers.get("location"))
    expect(await second.json()).toEqual(await first.json())
    expect(await jobsOf(fixture)).toHaveLength(1)
  })

  it("returns the same job for a repeated Idempotency-Key after the catalogue has lost its region", async () => {
    const body = { image: "a", region: "mars" }
    const headers = { "Idempotency-Key": randomUUID() }
    expect((await problemIn(await call("/1/jobs", { body, headers }))).errors).toMatchObject([{ pointer: "/region" }])
    const annotations = {
      [ANNOTATIONS.idempotencyKey]: headers["Idempotency-Key"],
      [ANNOTATIONS.requestHash]: requestHash(body),
    }
    const job = await applyJob(fixture, "earlier", { region: ["mars"] }, annotations)
    expect((await created(await call("/1/jobs", { body, headers }))).job_id).toBe(job.metadata.uid)
    expect((await call("/1/jobs", { body: { ...body, tags: ["x"] }, headers })).status).toBe(422)
    expect((await call("/1/jobs", { body: { ...body, tags: [""] }, headers })).status).toBe(400)
  })

  it("returns the job of the request, not one of its copies by kubectl, on every replica", async () => {
    const headers = { "Idempotency-Key": randomUUID() }
    const { job_id, name } = await created(await call("/1/jobs", { body, headers }))
    const { metadata, spec } = await fixture.client.get(JOBS, { namespace: fixture.namespace, name })
    const { annotations, labels, creationTimestamp } = metadata
    // Kubernetes' times have seconds. Of two in the same one, the lower uid counts, for the operator too.
    const nextSecond = Date.parse(creationTimestamp) + 1000
    await sleep(Math.max(0, nextSecond - Date.now()))
    const recorded = { ...annotations, [ANNOTATIONS.recordedUid]: job_id }
    for (const [index, kept] of [annotations, annotations, recorded, recorded].entries())
      await fixture.client.create(JOBS, {
        metadata: { name: `a-copy-${index}`, namespace: fixture.namespace, annotations: kept, labels },
        spec,
      } as never)
    const other = await startReplica()
    try {
      for (const on of [call, caller(() => other, fixture)])
        expect((await created(await on("/1/jobs", { body, headers }))).job_id).toBe(job_id)
      // Once the original is deleted, the copies that Berth holds answer for nothing.
      for (const gone of [name, "a-copy-0", "a-copy-1"]) {
        const ref = { namespace: fixture.namespace, name: gone }
        await fixture.client.patch(JOBS, ref, { merge: { metadata: { finalizers: null } } }, {})
        await fixture.client.delete(JOBS, ref)
      }
      await eventually(async () => expect((await jobsOf(fixture)).map((job) => job.metadata.name)).not.toContain(name))
      expect((await created(await call("/1/jobs", { body, headers }))).job_id).not.toBe(job_id)
    } finally {
      await other.close()
    }
  })

  it("returns 422 for an Idempotency-Key with another body, even if that body has another name", async () => {
    const headers = { "Idempotency-Key": randomUUID() }
    await created(await call("/1/jobs", { body: { ...body, name: "one" }, headers }))
    for (const other of [{ ...body, name: "two" }, body, { ...body, namePrefix: "p" }]) {
      const response = await call("/1/jobs", { body: other, headers })
      expect(response.status).toBe(422)
      await problemIn(response)
    }
    expect((await jobsOf(fixture)).map(({ metadata }) => metadata.name)).toEqual(["one"])
  })

  it("creates one job for concurrent duplicates with one Idempotency-Key on two replicas", async () => {
    const other = await startReplica()
    try {
      const callOther = caller(() => other, fixture)
      const headers = { "Idempotency-Key": randomUUID() }
      const calls = Array.from({ length: 10 }, (_, index) =>
        (index % 2 ? call : callOther)("/1/jobs", { body, headers }),
      )
      const ids = await Promise.all(calls.map(async (each) => (await created(await each)).job_id))
      expect(new Set(ids).size).toBe(1)
      expect(await jobsOf(fixture)).toHaveLength(1)
    } finally {
      await other.close()
    }
  })

  it("creates one job for concurrent requests with one Idempotency-Key and different names", async () => {
    const headers = { "Idempotency-Key": randomUUID() }
    const calls = ["x", "y", "z"].map((name) => call("/1/jobs", { body: { ...body, name }, headers }))
    const statuses = (await Promise.all(calls)).map(({ status }) => status)
    expect(statuses.sort()).toEqual([201, 422, 422])
    expect(await jobsOf(fixture)).toHaveLength(1)
  })

  it("returns 409 for a taken name without an Idempotency-Key", async () => {
    await created(await call("/1/jobs", { body: { ...body, name: "clash" } }))
    const headers = { "Idempotency-Key": randomUUID() }
    expect((await call("/1/jobs", { body: { ...body, name: "clash" }, headers })).status).toBe(409)
  })

  it.each(["", "x".repeat(256)])("rejects the invalid Idempotency-Key %j", async (key) => {
    const response = await call("/1/jobs", { body, headers: { "Idempotency-Key": key } })
    expect(response.status).toBe(400)
    expect(await jobsOf(fixture)).toEqual([])
  })
})

describe("GET /1/jobs", () => {
  it("lists jobs newest first, one page at a time, with the total", async () => {
    for (const name of ["a", "b", "c", "d"]) await created(await call("/1/jobs", { body: { name, image: "i" } }))
    expect(await names()).toEqual(["d", "c", "b", "a"])
    const page = await list("?limit=2&offset=1")
    expect(page).toMatchObject({ total: 4, limit: 2, offset: 1 })
    expect(page.jobs.map(({ name }) => name)).toEqual(["c", "b"])
    expect(await list("?offset=9")).toEqual({ jobs: [], total: 4, limit: 50, offset: 9 })
  })

  it("filters jobs by status, tags AND labels, written key:value or key=value", async () => {
    const make = (name: string, more: object) => call("/1/jobs", { body: { name, image: "i", ...more } }).then(created)
    await make("one", { tags: ["x", "y"], labels: { team: "a", url: "http://h" } })
    await make("two", { tags: ["x"], labels: { team: "a" } })
    await make("three", { labels: { team: "b", empty: "" } })
    await setStatus(fixture, "two", { phase: "running" })
    await eventually(async () => expect(await names("?status=running")).toEqual(["two"]))
    expect(await names("?tag=x")).toEqual(["two", "one"])
    expect(await names("?tag=x&tag=y")).toEqual(["one"])
    expect(await names("?tag=&label=&status=")).toEqual(await names(""))
    expect(await names("?tag=&tag=y&label=")).toEqual(["one"])
    expect(await names("?label=team:a")).toEqual(["two", "one"])
    expect(await names("?label=team=b")).toEqual(["three"])
    expect(await names("?label=url:http://h")).toEqual(["one"])
    expect(await names("?label=empty:")).toEqual(["three"])
    expect(await names("?label=team:a&tag=x&status=queued")).toEqual(["one"])
    expect(await names("?label=team:a&label=team:b")).toEqual([])
    expect(await names("?label=toString:x")).toEqual([])
    expect(await names("?status=failed")).toEqual([])
  })

  it("filters jobs by the start of their names and the time of their creation, page by page", async () => {
    for (const name of ["train-1", "eval-1", "train-2", "train-3", "trail"])
      await created(await call("/1/jobs", { body: { name, image: "i" } }))
    expect(await names("?name_prefix=train-")).toEqual(["train-3", "train-2", "train-1"])
    expect(await list("?name_prefix=train-&limit=2&offset=2")).toMatchObject({ total: 3, jobs: [{ name: "train-1" }] })
    expect(await names("?name_prefix=Train")).toEqual([])
    const { jobs } = await list()
    const [trail = "", , second = ""] = jobs.map(({ created_at }) => created_at)
    expect(await names(`?created_after=${second}`)).toEqual(["trail", "train-3", "train-2"])
    expect(await names(`?created_before=${second}`)).toEqual(["eval-1", "train-1"])
    expect(await names(`?created_after=${second}&created_before=${trail}`)).toEqual(["train-3", "train-2"])
    const zoned = `${new Date(Date.parse(second) + 7_200_000).toISOString().slice(0, 19)}${second.slice(19, 26)}%2B02:00`
    expect(await names(`?created_after=${second.toLowerCase()}`)).toEqual(["trail", "train-3", "train-2"])
    expect(await names(`?created_after=${zoned}&name_prefix=train-`)).toEqual(["train-3", "train-2"])
    // A nanosecond later than the second one.
    expect(await list(`?created_after=${second.slice(0, 26)}001Z&limit=1&offset=1`)).toMatchObject({
      total: 2,
      jobs: [{ name: "train-3" }],
    })
    expect(await names("?name_prefix=&created_after=&created_before=&cronjob=")).toEqual(await names())
  })

  it("filters jobs by the time of their end, whenever they were created", async () => {
    const ends = {
      "ended-1": "2026-02-01T00:00:00Z",
      "ended-2": "2026-02-01T12:00:00Z",
      "ended-3": "2026-02-02T00:00:00Z",
    }
    for (const [name, completionTime] of Object.entries(ends)) {
      await created(await call("/1/jobs", { body: { name, image: "i" } }))
      await setStatus(fixture, name, { phase: name === "ended-2" ? "failed" : "succeeded", completionTime })
    }
    await created(await call("/1/jobs", { body: { name: "waits", image: "i" } }))
    await eventually(async () => expect(await names("?status=queued")).toEqual(["waits"]))
    expect(await names("?ended_after=2026-02-01T12:00:00Z")).toEqual(["ended-3", "ended-2"])
    expect(await names("?ended_after=2026-02-01T12:00:00.0000001Z")).toEqual(["ended-3"])
    expect(await names("?ended_before=2026-02-01T14:00:00%2B02:00")).toEqual(["ended-1"])
    expect(await list("?ended_after=2026-02-01T00:00:00Z&ended_before=2026-02-02T00:00:00Z&limit=1")).toMatchObject({
      total: 2,
      jobs: [{ name: "ended-2" }],
    })
    expect(await names("?ended_after=2026-01-01T00:00:00Z&status=failed")).toEqual(["ended-2"])
    expect(await names("?ended_after=&ended_before=")).toHaveLength(4)
  })

  it("filters jobs by the cronjob that created them, by its id or name", async () => {
    const definition = { image: "i" }
    const body = { name: "nightly-", cron_spec: "0 3 * * *", job_definition: definition, is_active: false }
    const cronJob = (await (await call("/1/cronjobs", { body })).json()) as { id: string }
    for (const name of ["of-cronjob", "other"]) {
      const labels = name === "other" ? {} : { [LABELS.cronJobUid]: cronJob.id }
      const metadata = { namespace: fixture.namespace, name, labels }
      await fixture.client.create(JOBS, { metadata, spec: definition } as StoredJob)
    }
    await eventually(async () => expect(await names()).toHaveLength(2))
    for (const cronjob of [cronJob.id, cronJob.id.toUpperCase(), "nightly-"])
      expect(await names(`?cronjob=${cronjob}`)).toEqual(["of-cronjob"])
    expect((await call("/1/jobs?cronjob=unknown")).status).toBe(404)
    await call("/1/cronjobs/nightly-?cascade=false", { method: "DELETE" })
    expect(await names(`?cronjob=${cronJob.id}`)).toEqual(["of-cronjob"])
  })

  it("lists a job that kubectl created, in its place between the others", async () => {
    await applyJob(fixture, "by-kubectl", { labels: { team: "k" } })
    await eventually(async () => expect(await names("?label=team:k")).toEqual(["by-kubectl"]))
  })

  it.each([
    "limit=0",
    "limit=201",
    "limit=-1",
    "limit=ten",
    "limit=1e2",
    "limit=",
    "limit=5.0",
    "limit=1&limit=2",
    "offset=-1",
    "offset=x",
    "offset=99999999999999999999",
    "status=done",
    "label=team",
    "label=:x",
    "created_after=2026-01-31",
    "created_after=2026-01-31T12:00:00",
    "created_before=2026-02-30T12:00:00Z",
    "created_before=2026-01-31T12:00:00+02:00",
    "ended_after=2026-01-31",
    "name_prefix=a&name_prefix=b",
    "page=2",
  ])("rejects a list of jobs with ?%s with 400, and never clamps a value", async (query) => {
    const response = await call(`/1/jobs?${query}`)
    expect(response.status).toBe(400)
    const name = query.split("=")[0] ?? ""
    expect((await problemIn(response)).errors[0]?.detail).toContain(`"${name}"`)
  })

  it("lists all faults of a query", async () => {
    const { errors } = await problemIn(await call("/1/jobs?limit=0&offset=x&status=y&label=z&page=1"))
    expect(errors).toHaveLength(5)
  })

  it("lists jobs of its own project only", async () => {
    await created(await call("/1/jobs", { body: { name: "mine", image: "i" } }))
    expect(await names()).toEqual(["mine"])
  })
})

describe("GET /1/jobs/{id|name}", () => {
  it("finds a job by id and by name at once, on every replica", async () => {
    const other = await startReplica()
    try {
      const callOther = caller(() => other, fixture)
      for (let round = 0; round < 5; round++) {
        const { job_id, name } = await created(await call("/1/jobs", { body: { image: "i" } }))
        const found = await Promise.all([
          callOther(`/1/jobs/${job_id}`),
          callOther(`/1/jobs/${name}`),
          call(`/1/jobs/${job_id}`),
        ])
        for (const response of found) expect((await recordIn(response)).id).toBe(job_id)
      }
    } finally {
      await other.close()
    }
  })

  it("shows the status that the controller writes", async () => {
    const { name } = await created(await call("/1/jobs", { body: { image: "i" } }))
    const time = "2026-01-02T03:04:05Z"
    await setStatus(fixture, name, {
      phase: "failed",
      reason: "ContainerFailed",
      message: "exit code 3",
      exitCode: 3,
      retryCount: 2,
      credentials: "revoked",
      vm: { state: "terminated", id: "i-1", ipAddress: "10.0.0.1" },
      cost: { estimatedUsd: 0.5, actualUsd: 0.25 },
      startTime: time,
      completionTime: time,
      lastHeartbeatTime: "2026-01-02T04:04:05+01:00",
      placement: {
        reason: "cheapest",
        offer: {
          cloud: "aws",
          region: "eu-north-1",
          instanceType: "m7g.large",
          architecture: "arm64",
          provisioning: "onDemand",
          cpu: 2,
          memoryGib: 8,
          hourlyPriceUsd: 0.08,
          minimumBilledSeconds: 60,
        },
      },
    })
    const expected = {
      status: "failed",
      error_message: "exit code 3",
      reason: "ContainerFailed",
      exit_code: 3,
      retry_count: 2,
      credentials_status: "revoked",
      vm_status: "terminated",
      vm_instance_id: "i-1",
      ip_address: "10.0.0.1",
      estimated_cost: 0.5,
      actual_cost: 0.25,
      started_at: time,
      ended_at: time,
      last_heartbeat_at: "2026-01-02T03:04:05.000Z",
      selected_provider: "aws",
      selected_region: "eu-north-1",
      selected_instance_type: "m7g.large",
      placement_reason: "cheapest",
    }
    await eventually(async () => expect(await recordIn(await call(`/1/jobs/${name}`))).toMatchObject(expected))
  })

  it("shows the newest managedFields time as updated_at, in lists and in single records", async () => {
    const { name } = await created(await call("/1/jobs", { body: { image: "i" } }))
    const before = await recordIn(await call(`/1/jobs/${name}`))
    // These times are in whole seconds, so only a time after the job's creation is proof.
    const newest = await eventually(async () => {
      const { metadata } = await setStatus(fixture, name, { phase: "queued", message: String(performance.now()) })
      const { managedFields = [] } = metadata as { managedFields?: { time: string }[] }
      const times = managedFields.map(({ time }) => time).sort()
      expect(Date.parse(times.at(-1) ?? "")).toBeGreaterThan(Date.parse(before.updated_at))
      return times.at(-1)
    })
    await eventually(async () => {
      const [listed] = (await list()).jobs
      expect(listed?.updated_at).toBe(newest)
      expect(listed?.created_at).toBe(before.created_at)
    })
    expect((await recordIn(await call(`/1/jobs/${name}`))).updated_at).toBe(newest)
  })

  it.each(["unknown", "0b8ae3a4-8b5c-4d5e-9f61-0a1b2c3d4e5f", "a%2Fb", "..%2F..%2Fsecrets", "Upper", "x".repeat(300)])(
    "returns 404 for the job %s",
    async (name) => {
      const response = await call(`/1/jobs/${name}`)
      expect(response.status).toBe(404)
      await problemIn(response)
    },
  )

  it("returns 404 for a job id of another project", async () => {
    const elsewhere = await fixture.client.create(JOBS, {
      apiVersion: "berth.dev/v1alpha1",
      kind: "Job",
      metadata: { name: "foreign", namespace: "default" },
      spec: { image: "i" },
    } as never)
    try {
      expect((await call(`/1/jobs/${elsewhere.metadata.uid}`)).status).toBe(404)
      expect((await call("/1/jobs/foreign")).status).toBe(404)
      expect((await call(`/1/jobs/${elsewhere.metadata.uid}/cancel`, { method: "POST" })).status).toBe(404)
    } finally {
      await fixture.client.delete(JOBS, { namespace: "default", name: "foreign" })
    }
  })
})

describe("PATCH /1/jobs/{id|name}", () => {
  const prioritize = (job: string, body: unknown) => call(`/1/jobs/${job}`, { method: "PATCH", body })
  const waits = { phase: "queued", reason: "CapReached", message: "the project's cap of 1 VMs is reached" } as const

  it("changes the priority, and with it the places of the jobs that wait for a cap", async () => {
    const [first, second] = await Promise.all(
      ["first", "second"].map(async (name) => created(await call("/1/jobs", { body: { name, image: "i" } }))),
    )
    for (const name of ["first", "second"]) await setStatus(fixture, name, waits)
    const places = async () =>
      Promise.all(
        [first, second].map(async (job) => (await recordIn(await call(`/1/jobs/${job?.name}`))).queue_position),
      )
    expect((await places()).sort()).toEqual([1, 2])
    const response = await prioritize("second", { priority: 50 })
    expect(await recordIn(response)).toMatchObject({ name: "second", priority: 50, queue_position: 1 })
    expect(await places()).toEqual([2, 1])
    expect((await jobsOf(fixture)).find(({ metadata }) => metadata.name === "second")?.spec.priority).toBe(50)
  })

  it("rejects other values and fields, and jobs that have ended, and changes nothing", async () => {
    const { name } = await created(await call("/1/jobs", { body: { image: "i" } }))
    for (const body of [{}, { priority: 101 }, { priority: "1" }, { priority: 1, image: "other" }])
      expect((await prioritize(name, body)).status).toBe(400)
    await setStatus(fixture, name, { phase: "succeeded" })
    expect((await prioritize(name, { priority: 1 })).status).toBe(409)
    expect((await jobsOf(fixture))[0]?.spec.priority).toBeUndefined()
  })
})

describe("POST /1/jobs/{id|name}/cancel", () => {
  const cancel = (job: string) => call(`/1/jobs/${job}/cancel`, { method: "POST" })

  it.each(["queued", "booting", "running"] as const)(
    "cancels a %s job; records and filters show it at once",
    async (phase) => {
      const { job_id, name } = await created(await call("/1/jobs", { body: { image: "i" } }))
      await setStatus(fixture, name, { phase })
      const record = await recordIn(await cancel(phase === "queued" ? name : job_id))
      const why = { reason: "Cancelled", message: "cancelled on request" }
      expect(record).toMatchObject({ id: job_id, status: "cancelled", ...why })
      expect(await names("?status=cancelled")).toEqual([name])
      expect(await names(`?status=${phase}`)).toEqual([])
      expect((await recordIn(await call(`/1/jobs/${name}`))).status).toBe("cancelled")
      expect((await jobsOf(fixture))[0]?.spec.cancelled).toBe(true)
    },
  )

  it("returns 200 for a cancelled job, before and after the controller has handled the cancel", async () => {
    const { name } = await created(await call("/1/jobs", { body: { image: "i" } }))
    expect((await cancel(name)).status).toBe(200)
    expect((await cancel(name)).status).toBe(200)
    await setStatus(fixture, name, { phase: "cancelled" })
    expect((await recordIn(await cancel(name))).status).toBe("cancelled")
  })

  it.each(["succeeded", "failed"] as const)(
    "returns 409 for the cancel of a %s job and changes nothing",
    async (phase) => {
      const { name } = await created(await call("/1/jobs", { body: { image: "i" } }))
      await setStatus(fixture, name, { phase })
      // The handler reads live, so the result must not depend on the cache.
      const response = await cancel(name)
      expect(response.status).toBe(409)
      await problemIn(response)
      const [job] = await jobsOf(fixture)
      expect(job?.spec.cancelled).not.toBe(true)
      expect(job?.status?.phase).toBe(phase)
    },
  )

  it("cancels a job only at the version of If-Match", async () => {
    const { name } = await created(await call("/1/jobs", { body: { image: "i" } }))
    const old = (await call(`/1/jobs/${name}`)).headers.get("etag") ?? ""
    await setStatus(fixture, name, { phase: "running" })
    const cancelAt = (tag: string) =>
      call(`/1/jobs/${name}/cancel`, { method: "POST", headers: { "If-Match": tag } }).then(({ status }) => status)
    expect(await cancelAt(old)).toBe(412)
    expect((await jobsOf(fixture))[0]?.spec.cancelled ?? false).toBe(false)
    const present = await fixture.client.get(JOBS, { namespace: fixture.namespace, name })
    expect(await cancelAt(`W/"${present.metadata.resourceVersion}"`)).toBe(200)
    await setStatus(fixture, name, { phase: "succeeded" })
    // The check that a job can be cancelled comes first (RFC 9110, 13.2.1).
    expect(await cancelAt(old)).toBe(409)
  })

  it("never cancels a job that ends at the same moment", async () => {
    for (let round = 0; round < 10; round++) {
      const { name } = await created(await call("/1/jobs", { body: { image: "i" } }))
      const [response] = await Promise.all([cancel(name), setStatus(fixture, name, { phase: "succeeded" })])
      const job = await fixture.client.get(JOBS, { namespace: fixture.namespace, name })
      expect(response.status).toBe(job.spec.cancelled ? 200 : 409)
    }
  })

  it("cancels a job whose status changes all the time", async () => {
    const { name } = await created(await call("/1/jobs", { body: { image: "i" } }))
    let cancelled = false
    const churn = async (): Promise<void> => {
      for (let count = 0; !cancelled; count++)
        await setStatus(fixture, name, { phase: "running", message: String(count) })
    }
    const churning = churn()
    const response = await cancel(name)
    cancelled = true
    await churning
    expect([200, 503]).toContain(response.status)
    expect((await jobsOf(fixture))[0]?.spec.cancelled ?? false).toBe(response.status === 200)
  })

  it("returns 404 for the cancel of an unknown job", async () => {
    expect((await cancel("unknown")).status).toBe(404)
    expect((await cancel("0b8ae3a4-8b5c-4d5e-9f61-0a1b2c3d4e5f")).status).toBe(404)
  })
})
