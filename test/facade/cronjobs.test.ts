import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { requestHash } from "../../src/api/idempotency.ts"
import { type CronJobList, type CronJobRecord, CronJobRecordSchema } from "../../src/api/resources/cronjobs/schema.ts"
import {
  CANCEL_JOBS_FINALIZER,
  CRON_JOB_ANNOTATIONS,
  type CronJobSpec,
  type StoredCronJob,
} from "../../src/core/apis/cronjob.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../src/core/apis/meta.ts"
import { SCHEDULE_ALIASES } from "../../src/core/apis/schedule.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { CRON_JOBS } from "../../src/core/resources.ts"
import { type Call, caller, created, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { jobsOf, projectFixture, setStatus } from "../harness/facade-project.ts"

/** Tests of each rule in the API's document (the "contract"): "Cronjobs", "Cronjob record" and "Limits". */
const fixture = projectFixture("facade-cronjobs")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())
beforeEach(async () => {
  for (const { metadata } of await stored()) await fixture.client.delete(CRON_JOBS, metadata)
})

async function stored(): Promise<StoredCronJob[]> {
  return (await fixture.client.list(CRON_JOBS, { namespace: fixture.namespace })).items
}

/** Creates a CronJob like kubectl does. */
function apply(
  name: string,
  spec: Partial<CronJobSpec> = {},
  annotations: Record<string, string> = {},
): Promise<StoredCronJob> {
  const metadata = { name, namespace: fixture.namespace, annotations }
  const whole = { schedule: "0 3 * * *", jobDefinition: { image: "alpine" }, ...spec }
  return fixture.client.create(CRON_JOBS, {
    apiVersion: API_VERSION,
    kind: "CronJob",
    metadata,
    spec: whole,
  } as StoredCronJob)
}

const LEAST = { name: "nightly", cron_spec: "0 3 * * *", job_definition: { image: "alpine" } }

async function record(path: string, options: Call = {}, status = 200): Promise<CronJobRecord> {
  const response = await call(path, options)
  if (response.status !== status) throw new Error(`${response.status}: ${await response.text()}`)
  return (await response.json()) as CronJobRecord
}

const create = (body: object = LEAST): Promise<CronJobRecord> => record("/1/cronjobs", { body }, 201)
const patch = (name: string, body: object): Promise<CronJobRecord> =>
  record(`/1/cronjobs/${name}`, { method: "PATCH", body })

async function list(query = ""): Promise<CronJobList> {
  const response = await call(`/1/cronjobs${query}`)
  expect(response.status).toBe(200)
  return (await response.json()) as CronJobList
}

async function said(path: string, options: Call, status: number): Promise<string> {
  const response = await call(path, options)
  const { detail, errors } = await problemIn(response)
  expect(response.status, detail).toBe(status)
  return [detail, ...errors.map((error) => `${error.pointer} ${error.detail}`)].join("\n")
}

describe("POST /1/cronjobs", () => {
  it("returns 201 with Location and the whole record; is_active is true by default (contract, Cronjob record)", async () => {
    const response = await call("/1/cronjobs", { body: LEAST })
    expect(response.status).toBe(201)
    const made = (await response.json()) as CronJobRecord
    expect(response.headers.get("location")).toBe(`/1/cronjobs/${made.id}`)
    expect(made).toEqual({
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      organization_id: fixture.organization,
      project_id: fixture.project,
      name: "nightly",
      cron_spec: "0 3 * * *",
      job_definition: { image: "alpine", maxRetries: 0, provisioning: "onDemand" },
      is_active: true,
      starting_deadline_seconds: null,
      concurrency_policy: "Allow",
      successful_jobs_history_limit: null,
      failed_jobs_history_limit: null,
      reason: null,
      message: null,
      last_triggered_at: null,
      created_at: expect.stringMatching(/^\d{4}-.*Z$/),
      updated_at: expect.stringMatching(/^\d{4}-.*Z$/),
    })
    const [cronJob, ...others] = await stored()
    expect(others).toEqual([])
    expect(cronJob?.metadata).toMatchObject({ uid: made.id, name: "nightly" })
    expect(cronJob?.spec).toMatchObject({ schedule: "0 3 * * *", jobDefinition: { image: "alpine" }, active: true })
    expect(cronJob?.metadata.annotations?.[ANNOTATIONS.createdAt]).toMatch(/\.\d{6}Z$/)
  })

  it("stores and shows a whole definition, extensions included; cloud and region are single strings (contract, Notes)", async () => {
    const job_definition = {
      image: "ghcr.io/acme/train:1",
      command: ["python", "train.py"],
      args: ["--epochs", "3"],
      env: { MODE: "fast" },
      volumes: { data: { bucket: "models", mountPath: "/data", prefix: "a/" } },
      resources: { cpu: 0.5, memory: "2Gi", gpu: { model: "A100", count: 2 } },
      cloud: "aws",
      region: "eu",
      maxRetries: 2,
      labels: { team: "a", "free form": "any: value" },
      tags: ["nightly"],
      timeoutSeconds: 1,
      provisioning: "spotFirst",
      maxHourlyPriceUsd: 1.5,
      secretEnv: { TOKEN: { secret: "s", key: "k" } },
      ttlSecondsAfterFinished: 10,
    }
    const made = await create({ ...LEAST, is_active: false, job_definition })
    expect(made.job_definition).toEqual(job_definition)
    expect(made.is_active).toBe(false)
    const [cronJob] = await stored()
    expect(cronJob?.spec.jobDefinition).toMatchObject({ cloud: ["aws"], region: ["eu"], resources: { cpu: "500m" } })
  })

  it("accepts a cronjob in YAML", async () => {
    const body = 'name: nightly\ncron_spec: "@hourly"\njob_definition:\n  image: alpine\n  env: {PORT: "8080"}\n'
    const made = await record("/1/cronjobs", { body, type: "application/yaml" }, 201)
    expect(made).toMatchObject({ name: "nightly", cron_spec: "@hourly", job_definition: { env: { PORT: "8080" } } })
  })

  it("expands the shorthand of gpu, and a model alone to one card (contract, GPU object rules)", async () => {
    const gpuOf = async (name: string, gpu: unknown) =>
      (await create({ ...LEAST, name, job_definition: { image: "a", resources: { gpu } } })).job_definition.resources
        ?.gpu
    expect(await gpuOf("short", "24Gi")).toEqual({ vram: "24Gi" })
    expect(await gpuOf("model", { model: "L4" })).toEqual({ model: "L4", count: 1 })
  })

  it.each(["abc", "abc-", "a".repeat(100), "1-2", "a--b-"])(
    "accepts the cronjob name %s (contract, Limits)",
    async (name) => {
      const made = await create({ ...LEAST, name })
      expect(made.name).toBe(name)
      expect((await record(`/1/cronjobs/${name}`)).id).toBe(made.id)
    },
  )

  it.each([...Object.keys(SCHEDULE_ALIASES), "*/5 0-23/2 1,15 JAN-MAR mon-fri"])(
    "accepts the schedule %s",
    async (cron_spec) => {
      expect((await create({ ...LEAST, cron_spec })).cron_spec).toBe(cron_spec)
    },
  )

  it("accepts null for optional fields, and the caller's own project and organization", async () => {
    const owners = { project_id: fixture.project, organization_id: fixture.organization }
    const made = await create({
      ...LEAST,
      ...owners,
      is_active: null,
      job_definition: { image: "a", cloud: null, env: null, name: null, namePrefix: null, project_id: null },
    })
    expect(made).toMatchObject({ is_active: true, job_definition: { image: "a" } })
    for (const field of ["cloud", "name", "project_id"]) expect(made.job_definition).not.toHaveProperty(field)
    const changed = await patch("nightly", { job_definition: { image: "b", name: null, organization_id: null } })
    expect(changed.job_definition).toMatchObject({ image: "b" })
  })

  it.each<[string, object, RegExp]>([
    ["no name", { name: undefined }, /\/name name is required/],
    ["a null name", { name: null }, /\/name name is required/],
    ["a name of two characters", { name: "ab" }, /\/name .*at least 3/],
    ["a name of 101 characters", { name: "a".repeat(101) }, /\/name .*at most 100/],
    ["a name with a capital", { name: "Abc" }, /\/name .*a-z, 0-9 and -/],
    ["a name that starts with a dash", { name: "-abc" }, /\/name .*letter or digit first/],
    ["a name with an underscore", { name: "a_bc" }, /\/name/],
    ["a name with a newline", { name: "abc\n" }, /\/name/],
    ["a name in the form of a UUID", { name: "123e4567-e89b-12d3-a456-426614174000" }, /\/name .*UUID/],
    ["a name that is a number", { name: 123 }, /\/name .*string/],
    ["no schedule", { cron_spec: undefined }, /cron_spec is required/],
    ["an empty schedule", { cron_spec: "" }, /\/cron_spec/],
    ["a schedule of spaces", { cron_spec: "  " }, /\/cron_spec .*five fields/],
    ["four fields", { cron_spec: "* * * *" }, /\/cron_spec .*five fields.*has 4/],
    ["six fields", { cron_spec: "0 * * * * *" }, /\/cron_spec .*seconds and years are not supported/],
    ["a schedule with H", { cron_spec: "H * * * *" }, /\/cron_spec .*Jenkins/],
    ["an unknown alias", { cron_spec: "@reboot" }, /\/cron_spec .*@hourly/],
    ["a schedule of a date that doesn't exist", { cron_spec: "0 0 31 2 *" }, /\/cron_spec .*never occurs/],
    ["an hour of 24", { cron_spec: "0 24 * * *" }, /\/cron_spec .*hour.*0 to 23/],
    ["a time zone", { cron_spec: "TZ=Europe/Berlin 0 3 * * *" }, /\/cron_spec .*UTC/],
    ["a schedule that is too long", { cron_spec: `${"1,".repeat(200)}1 * * * *` }, /\/cron_spec .*256/],
    ["a schedule that is a list", { cron_spec: ["0 3 * * *"] }, /\/cron_spec .*string/],
    ["no definition", { job_definition: undefined }, /job_definition is required/],
    ["a null definition", { job_definition: null }, /job_definition is required/],
    ["a definition that is a string", { job_definition: "alpine" }, /\/job_definition .*object/],
    ["a definition without image", { job_definition: {} }, /\/job_definition\/image job_definition.image is required/],
    [
      "a definition with a name",
      { job_definition: { image: "a", name: "x" } },
      /\/job_definition\/name .*must not contain name.*UTC timestamp/,
    ],
    [
      "a definition with a prefix",
      { job_definition: { image: "a", namePrefix: "x" } },
      /\/job_definition\/namePrefix .*must not contain/,
    ],
    ["a timeout of 0", { job_definition: { image: "a", timeoutSeconds: 0 } }, /timeoutSeconds must be at least 1/],
    ["a timeout of half a second", { job_definition: { image: "a", timeoutSeconds: 0.5 } }, /timeoutSeconds/],
    ["an unknown cloud in a list", { job_definition: { image: "a", cloud: ["ibm"] } }, /"ibm" is unknown/],
    ["an unknown region in a list", { job_definition: { image: "a", region: ["mars"] } }, /"mars" is unknown/],
    [
      "an unknown cloud",
      { job_definition: { image: "a", cloud: "ibm" } },
      /job_definition.cloud "ibm" is unknown; known clouds: aws/,
    ],
    ["a size with a foreign unit", { job_definition: { image: "a", resources: { memory: "24GB" } } }, /write 24Gi/],
    [
      "a cpu of four decimals",
      { job_definition: { image: "a", resources: { cpu: 0.0001 } } },
      /\/job_definition\/resources\/cpu/,
    ],
    ["an empty gpu", { job_definition: { image: "a", resources: { gpu: {} } } }, /gpu/],
    ["a null in env", { job_definition: { image: "a", env: { A: null } } }, /\/job_definition\/env\/A/],
    ["a cancelled definition", { job_definition: { image: "a", cancelled: true } }, /cancelled is an unknown field/],
    ["a misspelt field in it", { job_definition: { image: "a", max_retries: 1 } }, /did you mean maxRetries/],
    ["is_active as a string", { is_active: "yes" }, /\/is_active .*true or false/],
    ["another project", { project_id: "elsewhere" }, /\/project_id .*omitted or/],
    ["another organization", { organization_id: "elsewhere" }, /\/organization_id/],
    ["an unknown field", { schedule: "0 3 * * *" }, /schedule is an unknown field/],
    ["a field of the record", { id: "x" }, /id is an unknown field/],
  ])("rejects %s with 400, and creates no cronjob", async (_what, change, expected) => {
    expect(await said("/1/cronjobs", { body: { ...LEAST, ...change } }, 400)).toMatch(expected)
    expect(await stored()).toEqual([])
  })

  it("lists every error of a cronjob in one problem", async () => {
    const body = { name: "A", cron_spec: "* * *", job_definition: { name: "x", cloud: "ibm" }, is_active: 1 }
    const { errors } = await problemIn(await call("/1/cronjobs", { body }))
    expect(errors.map(({ pointer }) => pointer).toSorted()).toEqual([
      "/cron_spec",
      "/is_active",
      "/job_definition/cloud",
      "/job_definition/image",
      "/job_definition/name",
      "/name",
    ])
  })

  it.each<[string, Call, number]>([
    ["form data", { body: "name=nightly", type: "application/x-www-form-urlencoded" }, 415],
    ["broken YAML", { body: "name: [nightly", type: "application/yaml" }, 400],
    ["ambiguous YAML", { body: "name: 010\ncron_spec: @hourly", type: "application/yaml" }, 400],
    ["text", { body: "{}", type: "text/plain" }, 415],
    ["broken JSON", { body: "{" }, 400],
    ["an empty body", { body: "", method: "POST" }, 400],
    ["a list", { body: [LEAST] }, 400],
    ["null", { body: "null" }, 400],
    ["5 MB", { body: { ...LEAST, job_definition: { image: "x".repeat(5_000_000) } } }, 413],
  ])("rejects a cronjob as %s", async (_what, options, status) => {
    await said("/1/cronjobs", options, status)
    expect(await stored()).toEqual([])
  })

  it("returns 409 for a cronjob name that REST or kubectl has used, and changes nothing (contract, Errors)", async () => {
    await create()
    await apply("other")
    for (const name of ["nightly", "other"]) {
      const body = { ...LEAST, name, cron_spec: "@hourly" }
      expect(await said("/1/cronjobs", { body }, 409)).toMatch(new RegExp(`"${name}" exists.*PATCH`))
    }
    expect((await stored()).map(({ spec }) => spec.schedule)).toEqual(["0 3 * * *", "0 3 * * *"])
  })

  it("creates one cronjob for many concurrent requests with one name", async () => {
    const answers = await Promise.all(Array.from({ length: 5 }, () => call("/1/cronjobs", { body: LEAST })))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([201, 409, 409, 409, 409])
  })

  it("creates one cronjob per Idempotency-Key, and returns 422 for another body", async () => {
    const headers = { "Idempotency-Key": "k1" }
    const first = await record("/1/cronjobs", { body: LEAST, headers }, 201)
    expect(await record("/1/cronjobs", { body: LEAST, headers }, 201)).toEqual(first)
    await said("/1/cronjobs", { body: { ...LEAST, name: "another" }, headers }, 422)
    await said("/1/cronjobs", { body: { ...LEAST, is_active: false }, headers }, 422)
    expect(await stored()).toHaveLength(1)
  })

  it("returns the same cronjob for a repeated Idempotency-Key after the catalogue has lost its region", async () => {
    const body = { ...LEAST, job_definition: { image: "a", region: "mars" } }
    const annotations = { [ANNOTATIONS.idempotencyKey]: "k1", [ANNOTATIONS.requestHash]: requestHash(body) }
    const cronJob = await apply("nightly", { jobDefinition: { image: "a", region: ["mars"] } }, annotations)
    expect((await record("/1/cronjobs", { body, headers: { "Idempotency-Key": "k1" } }, 201)).id).toBe(
      cronJob.metadata.uid,
    )
    await said("/1/cronjobs", { body, headers: { "Idempotency-Key": "k2" } }, 400)
    await said("/1/cronjobs", { body }, 400)
  })
})

describe("GET /1/cronjobs", () => {
  it("lists cronjobs newest first, active and inactive, 50 by default (contract, Cronjobs)", async () => {
    for (let i = 0; i < 52; i++) await create({ ...LEAST, name: `job-${i}`, is_active: i % 2 === 0 })
    const { cronjobs, ...rest } = await list()
    expect(rest).toEqual({ total: 52, offset: 0, limit: 50 })
    expect(cronjobs.map(({ name }) => name)).toEqual(Array.from({ length: 50 }, (_, i) => `job-${51 - i}`))
    expect(new Set(cronjobs.map(({ is_active }) => is_active)).size).toBe(2)
    const second = await list("?offset=50&limit=200")
    expect(second).toMatchObject({ total: 52, offset: 50, limit: 200 })
    expect(second.cronjobs.map(({ name }) => name)).toEqual(["job-1", "job-0"])
    expect((await list("?offset=100")).cronjobs).toEqual([])
  })

  it.each(["limit=0", "limit=201", "limit=-1", "limit=x", "offset=-1", "limit=1&limit=2", "name=a", "status=queued"])(
    "rejects a list of cronjobs with ?%s with 400: values out of range are never clamped (contract, Limits)",
    async (query) => {
      expect(await said(`/1/cronjobs?${query}`, {}, 400)).toMatch(query.split("=")[0] ?? "")
    },
  )

  it("lists no cronjob of another project", async () => {
    const metadata = { name: "elsewhere", namespace: "default" }
    const spec = { schedule: "0 3 * * *", jobDefinition: { image: "a" } }
    const { metadata: made } = await fixture.client.create(CRON_JOBS, { metadata, spec } as StoredCronJob)
    try {
      await eventually(async () => expect(await list()).toMatchObject({ cronjobs: [], total: 0 }))
      for (const path of ["elsewhere", made.uid]) await said(`/1/cronjobs/${path}`, {}, 404)
      await said("/1/cronjobs/elsewhere", { method: "DELETE" }, 404)
    } finally {
      await fixture.client.delete(CRON_JOBS, metadata)
    }
  })
})

describe("GET /1/cronjobs/{name}", () => {
  it("finds a cronjob by name, and by id in upper or lower case, also one just created elsewhere", async () => {
    const made = await create()
    for (const path of ["nightly", made.id, made.id.toUpperCase()])
      expect(await record(`/1/cronjobs/${path}`)).toEqual(made)
    const { metadata } = await apply("by-kubectl")
    expect((await record("/1/cronjobs/by-kubectl")).id).toBe(metadata.uid)
    expect((await record(`/1/cronjobs/${(await apply("another")).metadata.uid}`)).name).toBe("another")
  })

  it.each(["unknown", "123e4567-e89b-12d3-a456-426614174000", "..%2Fjobs", "%00", "abc-x.x0", "a%20b"])(
    "returns 404 for the cronjob %s",
    async (path) => {
      await create({ ...LEAST, name: "abc-" })
      expect(await said(`/1/cronjobs/${path}`, {}, 404)).toMatch(/no cronjob with the id or name/)
    },
  )

  it("rejects query parameters", async () => {
    await create()
    await said("/1/cronjobs/nightly?view=full", {}, 400)
  })

  it("shows a well-formed record of every CronJob that kubectl created", async () => {
    await apply("wild", {
      schedule: "0 0 30 2 *",
      active: false,
      concurrencyPolicy: "Forbid",
      jobDefinition: { image: "a", cloud: ["aws", "gcp"], region: [], resources: { cpu: 2, gpu: { vram: "24Gi" } } },
    })
    const shown = await record("/1/cronjobs/wild")
    expect(findErrors(CronJobRecordSchema, shown)).toEqual([])
    expect(shown).toMatchObject({
      cron_spec: "0 0 30 2 *",
      is_active: false,
      job_definition: { cloud: ["aws", "gcp"], resources: { cpu: 2 } },
    })
    expect(shown.job_definition).not.toHaveProperty("region")
  })

  it("shows the time of the last trigger in UTC", async () => {
    await create()
    const status = { lastTriggeredTime: "2026-01-31T12:00:00+02:00" }
    await fixture.client.patchStatus(
      CRON_JOBS,
      { namespace: fixture.namespace, name: "nightly" },
      { merge: { status } },
    )
    await eventually(async () =>
      expect((await record("/1/cronjobs/nightly")).last_triggered_at).toBe("2026-01-31T10:00:00.000Z"),
    )
  })
})

describe("PATCH /1/cronjobs/{name}", () => {
  it("pauses and resumes a cronjob; omitted and null fields stay unchanged (contract, Cronjob activity)", async () => {
    const made = await create()
    const paused = await patch("nightly", { is_active: false, cron_spec: null, job_definition: null, project_id: null })
    expect(paused).toEqual({ ...made, is_active: false, updated_at: paused.updated_at })
    expect(await record("/1/cronjobs/nightly")).toEqual(paused)
    expect((await patch(made.id, { is_active: true })).is_active).toBe(true)
    expect((await stored())[0]?.spec.active).toBe(true)
  })

  it("shows why a schedule from kubectl fires not, and rejects to resume it as it is", async () => {
    // The pattern of the kind doesn't show that this date never comes.
    const cronJob = await apply("never", { schedule: "0 0 30 2 *", active: false })
    const message = 'schedule "0 0 30 2 *" names a date that never occurs, such as 31 February'
    const lastTransitionTime = "2026-01-01T00:00:00Z"
    const ready = { type: "Ready", status: "False", reason: "InvalidSchedule", message, lastTransitionTime }
    await fixture.client.patchStatus(CRON_JOBS, cronJob.metadata, {
      merge: { status: { observedGeneration: 1, conditions: [ready] } },
    })
    const shown = () => record("/1/cronjobs/never")
    await eventually(async () => expect(await shown()).toMatchObject({ reason: "InvalidSchedule", message }))
    const resume = { method: "PATCH", body: { is_active: true } }
    expect(await said("/1/cronjobs/never", resume, 400)).toMatch(/\/is_active .*30 2.*send a valid cron_spec with it/)
    expect((await patch("never", { is_active: false })).is_active).toBe(false)
    const resumed = await patch("never", { is_active: true, cron_spec: "@daily" })
    expect(resumed).toMatchObject({ is_active: true, cron_spec: "@daily", reason: null, message: null })
  })

  it("changes the schedule alone, and replaces the definition as a whole (contract: replaces the template)", async () => {
    await create({ ...LEAST, job_definition: { image: "a", env: { A: "1", B: "2" }, tags: ["x"], cloud: "aws" } })
    const changed = await patch("nightly", { cron_spec: "@hourly" })
    expect(changed).toMatchObject({ cron_spec: "@hourly", job_definition: { env: { A: "1", B: "2" }, cloud: "aws" } })
    const replaced = await patch("nightly", { job_definition: { image: "b", env: { C: "3" } } })
    expect(replaced.job_definition).toEqual({ image: "b", env: { C: "3" }, maxRetries: 0, provisioning: "onDemand" })
    expect(replaced.cron_spec).toBe("@hourly")
  })

  it("keeps the fields of a cronjob that only kubectl can set", async () => {
    await apply("by-kubectl", { concurrencyPolicy: "Forbid", failedJobsHistoryLimit: 3 })
    await patch("by-kubectl", { cron_spec: "@daily" })
    expect((await stored())[0]?.spec).toMatchObject({ concurrencyPolicy: "Forbid", failedJobsHistoryLimit: 3 })
  })

  it("accepts the definition of a cronjob's own record", async () => {
    const made = await create({ ...LEAST, job_definition: { image: "a", resources: { gpu: "24Gi" }, region: "eu" } })
    const again = await patch("nightly", { job_definition: made.job_definition })
    expect(again.job_definition).toEqual(made.job_definition)
  })

  it("sets the policy, the deadline and the limits of kept jobs, which the CronJob has under Kubernetes' names", async () => {
    const first = { concurrency_policy: "Forbid", starting_deadline_seconds: 60, failed_jobs_history_limit: 0 }
    expect(await create({ ...LEAST, ...first })).toMatchObject({ ...first, successful_jobs_history_limit: null })
    const then = { concurrency_policy: "Replace", successful_jobs_history_limit: 3, starting_deadline_seconds: null }
    const changed = { ...first, ...then, starting_deadline_seconds: 60 }
    expect(await patch("nightly", then)).toMatchObject(changed)
    expect(await record("/1/cronjobs/nightly")).toMatchObject(changed)
    expect((await stored())[0]?.spec).toMatchObject({
      concurrencyPolicy: "Replace",
      startingDeadlineSeconds: 60,
      successfulJobsHistoryLimit: 3,
      failedJobsHistoryLimit: 0,
    })
  })

  it("changes nothing for an empty PATCH of a cronjob", async () => {
    await create()
    const before = (await stored())[0]?.metadata.resourceVersion
    await patch("nightly", {})
    await patch("nightly", { is_active: null, project_id: fixture.project })
    expect((await stored())[0]?.metadata.resourceVersion).toBe(before)
  })

  it.each<[object, RegExp]>([
    [{ cron_spec: "* * * *" }, /\/cron_spec/],
    [{ cron_spec: "" }, /\/cron_spec/],
    [{ job_definition: {} }, /job_definition.image is required/],
    [{ job_definition: { image: "a", name: "x" } }, /must not contain name/],
    [{ job_definition: { image: "a", timeoutSeconds: 0 } }, /at least 1/],
    [{ is_active: 0 }, /true or false/],
    [{ concurrency_policy: "forbid" }, /"Allow", "Forbid" or "Replace"|Allow, Forbid/],
    [{ starting_deadline_seconds: -1 }, /at least 0/],
    [{ successful_jobs_history_limit: 10_001 }, /at most 10000/],
    [{ failed_jobs_history_limit: 1.5 }, /whole number|integer/],
    [{ name: "other" }, /name cannot be changed/],
    [{ project_id: "elsewhere" }, /\/project_id/],
    [{ active: false }, /did you mean is_active|active is an unknown field/],
  ])("rejects a change of a cronjob to %j with 400, and changes nothing", async (body, expected) => {
    await create()
    const [before] = await stored()
    expect(await said("/1/cronjobs/nightly", { method: "PATCH", body }, 400)).toMatch(expected)
    expect(await stored()).toEqual([before])
  })

  it("returns 404 for a change of an unknown cronjob, and 415 for another media type", async () => {
    await said("/1/cronjobs/unknown", { method: "PATCH", body: {} }, 404)
    await said("/1/cronjobs/unknown", { method: "PATCH", body: "{}", type: "application/json-patch+json" }, 415)
    await said("/1/cronjobs", { method: "POST", body: "{}", type: "application/merge-patch+json" }, 415)
  })

  it("accepts a merge patch by its own media type", async () => {
    await create()
    const request = { method: "PATCH", body: '{"is_active":false}', type: "application/merge-patch+json" }
    expect((await record("/1/cronjobs/nightly", request)).is_active).toBe(false)
  })

  it("accepts the record that it has returned, with a changed field", async () => {
    const made = await create()
    await apply("triggered")
    const changed = await patch("nightly", { ...made, last_triggered_at: null, updated_at: "then", is_active: false })
    expect(changed).toMatchObject({ id: made.id, name: "nightly", is_active: false })
    const fields = { id: "other", name: "other", created_at: "2026-01-01T00:00:00Z" }
    const response = await call("/1/cronjobs/nightly", { method: "PATCH", body: { ...made, ...fields } })
    const { errors } = await problemIn(response)
    expect(errors.map(({ pointer }) => pointer)).toEqual(["/id", "/name", "/created_at"])
    expect(errors[1]?.detail).toContain('name cannot be changed: it is "nightly"')
  })

  it("keeps all of many concurrent changes of a cronjob", async () => {
    await create()
    const changes = [{ cron_spec: "@daily" }, { is_active: false }, { job_definition: { image: "new" } }]
    await Promise.all(changes.map((body) => patch("nightly", body)))
    expect((await stored())[0]?.spec).toMatchObject({
      schedule: "@daily",
      active: false,
      jobDefinition: { image: "new" },
    })
  })

  it("returns 200 for each of 20 parallel changes of one cronjob without If-Match", async () => {
    await create()
    const schedules = Array.from({ length: 20 }, (_, minute) => `${minute} 3 * * *`)
    const shown = await Promise.all(schedules.map((cron_spec) => patch("nightly", { cron_spec })))
    expect(shown.map(({ cron_spec }) => cron_spec)).toEqual(schedules)
  })

  it("lets one of 20 parallel changes with the same If-Match pass, and returns 412 for the others", async () => {
    await create()
    const tag = (await call("/1/cronjobs/nightly")).headers.get("etag") ?? ""
    const change = (minute: number) =>
      call("/1/cronjobs/nightly", {
        method: "PATCH",
        body: { cron_spec: `${minute} 4 * * *` },
        headers: { "If-Match": tag },
      })
    const statuses = (await Promise.all(Array.from({ length: 20 }, (_, i) => change(i)))).map(({ status }) => status)
    expect(statuses.toSorted()).toEqual([200, ...Array(19).fill(412)])
  })
})

describe("DELETE /1/cronjobs/{name}", () => {
  it("returns 204 without a body for a cronjob by name or id, and the next list omits it", async () => {
    const made = await create()
    await create({ ...LEAST, name: "other" })
    const response = await call(`/1/cronjobs/${made.id}`, { method: "DELETE" })
    expect([response.status, await response.text()]).toEqual([204, ""])
    expect((await list()).cronjobs.map(({ name }) => name)).toEqual(["other"])
    expect((await call("/1/cronjobs/other", { method: "DELETE" })).status).toBe(204)
    expect(await stored()).toEqual([])
    await said("/1/cronjobs/other", { method: "DELETE" }, 404)
    expect((await create()).id).not.toBe(made.id)
  })

  it("requests the end of the cronjob's jobs for cascade=true, in one step with the deletion", async () => {
    const first = { body: LEAST, headers: { "Idempotency-Key": "k1" } }
    await record("/1/cronjobs", first, 201)
    const remove = (query: string, options: Call = {}) =>
      call(`/1/cronjobs/nightly${query}`, { method: "DELETE", ...options })
    expect((await remove("?cascade=true")).status).toBe(204)
    const [held] = await stored()
    expect(held?.metadata).toMatchObject({
      deletionTimestamp: expect.any(String),
      finalizers: [CANCEL_JOBS_FINALIZER],
    })
    // The cronjob counts as deleted, though its object stays until its jobs have ended.
    expect(await list()).toMatchObject({ cronjobs: [], total: 0 })
    expect(await said("/1/cronjobs", first, 409)).toMatch(/this Idempotency-Key created is being deleted/)
    const taken = await said("/1/cronjobs", { body: LEAST }, 409)
    expect(taken).toMatch(/"nightly" is being deleted: choose another name, or wait/)
    expect(taken).not.toContain("PATCH")
    // A second deletion, while the first is pending.
    expect((await remove("?cascade=true")).status).toBe(204)
    await fixture.client.patch(
      CRON_JOBS,
      { ...LEAST, namespace: fixture.namespace },
      { merge: { metadata: { finalizers: [] } } },
    )
    await said("/1/cronjobs/nightly", { method: "DELETE" }, 404)
  })

  it("keeps the manifest's choice about jobs unless cascade changes it, and respects If-Match", async () => {
    const metadata = { name: "nightly", namespace: fixture.namespace, finalizers: [CANCEL_JOBS_FINALIZER] }
    const spec = { schedule: "0 3 * * *", jobDefinition: { image: "alpine" } }
    const kept = await fixture.client.create(CRON_JOBS, {
      apiVersion: API_VERSION,
      kind: "CronJob",
      metadata,
      spec,
    } as StoredCronJob)
    const path = "/1/cronjobs/nightly?cascade=false"
    await said(path, { method: "DELETE", headers: { "If-Match": 'W/"1"' } }, 412)
    expect((await stored())[0]?.metadata.finalizers).toEqual([CANCEL_JOBS_FINALIZER])
    const tag = `W/"${kept.metadata.resourceVersion}"`
    expect((await call(path, { method: "DELETE", headers: { "If-Match": tag } })).status).toBe(204)
    expect(await stored()).toEqual([])
    expect(await said("/1/cronjobs/nightly?cascade=yes", { method: "DELETE" }, 400)).toContain("cascade")
  })
})

describe("roles (contract, Cronjobs: admin, developer; viewer or higher)", () => {
  it.each<["viewer" | "developer" | "admin", number[]]>([
    ["viewer", [200, 200, 403, 403, 403]],
    ["developer", [200, 200, 201, 200, 204]],
    ["admin", [200, 200, 201, 200, 204]],
  ])("allows the role %s what the contract allows for cronjobs", async (role, expected) => {
    await create()
    const key = fixture.keys[role]
    const statuses = []
    statuses.push((await call("/1/cronjobs", { key })).status)
    statuses.push((await call("/1/cronjobs/nightly", { key })).status)
    statuses.push((await call("/1/cronjobs", { key, body: { ...LEAST, name: "another" } })).status)
    statuses.push((await call("/1/cronjobs/nightly", { key, method: "PATCH", body: { is_active: false } })).status)
    statuses.push((await call("/1/cronjobs/nightly", { key, method: "DELETE" })).status)
    expect(statuses).toEqual(expected)
  })

  it("returns 405 with Allow for other methods", async () => {
    const response = await call("/1/cronjobs/nightly", { method: "PUT", body: {} })
    expect([response.status, response.headers.get("allow")]).toEqual([405, "GET, HEAD, PATCH, DELETE, OPTIONS"])
  })
})

describe("entity tags", () => {
  const get = (headers: Record<string, string>) => call("/1/cronjobs/nightly", { headers })

  it("returns 304 for a cronjob's present ETag, and 200 after a change", async () => {
    await create()
    const first = await get({})
    const etag = first.headers.get("etag") ?? ""
    expect(etag).toMatch(/^W\/"\d+"$/)
    expect(first.headers.get("cache-control")).toBe("private, no-cache")
    expect(first.headers.get("vary")).toContain("X-Service-Api-Key")
    const again = await get({ "If-None-Match": `"x", ${etag}` })
    expect([again.status, await again.text()]).toEqual([304, ""])
    await patch("nightly", { is_active: false })
    expect((await get({ "If-None-Match": etag })).status).toBe(200)
  })

  it("changes and deletes a cronjob only at the version in If-Match", async () => {
    await create()
    const old = (await get({})).headers.get("etag") ?? ""
    const change = (etag: string, is_active: boolean) =>
      call("/1/cronjobs/nightly", { method: "PATCH", body: { is_active }, headers: { "If-Match": etag } })
    const changed = await change(old, false)
    expect(changed.status).toBe(200)
    expect((await problemIn(await change(old, true))).status).toBe(412)
    expect((await stored())[0]?.spec.active).toBe(false)
    const remove = (etag: string) => call("/1/cronjobs/nightly", { method: "DELETE", headers: { "If-Match": etag } })
    expect((await remove(old)).status).toBe(412)
    expect((await problemIn(await remove("123"))).status).toBe(400)
    expect(await stored()).toHaveLength(1)
    expect((await change("*", true)).status).toBe(200)
    // The request would fail without If-Match too, so the header doesn't count (RFC 9110, 13.2.1).
    const unknown = { method: "PATCH", body: {}, headers: { "If-Match": "*" } }
    expect((await problemIn(await call("/1/cronjobs/unknown", unknown))).status).toBe(404)
    expect((await remove((await get({})).headers.get("etag") ?? "")).status).toBe(204)
  })
})

describe("POST /1/cronjobs/{name}/run", () => {
  const runsOf = async (name: string): Promise<StoredJob[]> =>
    (await jobsOf(fixture)).filter(({ metadata }) => metadata.annotations?.[CRON_JOB_ANNOTATIONS.name] === name)
  const run = (name: string, key?: string) =>
    call(`/1/cronjobs/${name}/run`, { method: "POST", headers: key === undefined ? {} : { "Idempotency-Key": key } })

  it("creates a job of the cronjob's definition, which belongs to the cronjob", async () => {
    const cronJob = await apply("by-hand", { jobDefinition: { image: "alpine", cloud: ["aws", "gcp"] }, active: false })
    const response = await run("by-hand")
    const { job_id, name } = await created(response)
    expect(response.headers.get("location")).toBe(`/1/jobs/${job_id}`)
    const [job] = await runsOf("by-hand")
    expect(job).toMatchObject({
      metadata: {
        name,
        labels: { [LABELS.cronJobUid]: cronJob.metadata.uid },
        annotations: { [CRON_JOB_ANNOTATIONS.instantiate]: "manual" },
      },
      spec: { image: "alpine", cloud: ["aws", "gcp"] },
    })
    const shown = (await (await call("/1/jobs?cronjob=by-hand")).json()) as { jobs: object[] }
    expect(shown.jobs).toEqual([expect.objectContaining({ id: job_id, cronjob_id: cronJob.metadata.uid })])
  })

  it("creates a job with a valid name for the longest names of cronjobs", async () => {
    for (const length of [3, 100, 101, 102, 103, 104]) {
      const name = "n".repeat(length)
      await apply(name)
      expect((await created(await run(name))).name).toMatch(new RegExp(`^${name}-[a-z0-9]{8}$`))
    }
  })

  it("creates one job for a repeated request, and no second one beside an unfinished one under Forbid", async () => {
    await apply("single", { concurrencyPolicy: "Forbid" })
    const answers = await Promise.all(["a", "b", "c"].map((key) => run("single", key)))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([201, 409, 409])
    const [job] = await runsOf("single")
    const name = job?.metadata.name ?? ""
    for (const answer of answers.filter(({ status }) => status !== 201)) {
      const problem = await problemIn(answer)
      expect(problem).toMatchObject({ status: 409, type: "https://berth.dev/problems/run-in-progress" })
      expect(problem.detail).toContain(`its job ${name} has not ended`)
    }
    const repeated = await Promise.all(["a", "b", "c"].map((key) => run("single", key)))
    expect(repeated.map(({ status }) => status).toSorted()).toEqual([201, 409, 409])
    expect(await runsOf("single")).toHaveLength(1)
    await setStatus(fixture, name, { phase: "succeeded" })
    await created(await run("single", "d"))
  })

  it("cancels the unfinished job under Replace", async () => {
    await apply("replaced", { concurrencyPolicy: "Replace" })
    const { name } = await created(await run("replaced"))
    const { name: second } = await created(await run("replaced"))
    const cancelled = (await runsOf("replaced")).map(({ metadata, spec }) => [metadata.name, spec.cancelled === true])
    expect(Object.fromEntries(cancelled)).toEqual({ [name]: true, [second]: false })
  })
})
