import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { SAMPLE_CATALOGUE } from "../../../../test/facade/sample-catalogue.ts"
import { CRON_JOB, type CronJobSpec, type StoredCronJob } from "../../../core/apis/cronjob.ts"
import { API_VERSION } from "../../../core/apis/meta.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import { CRON_JOB_FIELDS } from "../../../core/apis/rest-names.ts"
import { errorsOfObject, findErrors } from "../../../core/apis/validate.ts"
import { errorFromAnswer } from "../../../core/kube/errors.ts"
import { errorsOfRefusal } from "../../collection.ts"
import type { JobDefinition } from "../jobs/definition.ts"
import { catalogueCheck } from "../jobs/submission.ts"
import { type CronJobCreation, CronJobRecordSchema } from "./schema.ts"
import { changedSpec, checkChange, checkCreation, toCronJob, toCronJobRecord } from "./translate.ts"

const catalogueErrors = catalogueCheck(() => SAMPLE_CATALOGUE, SAMPLE_CATALOGUE.clouds)
const context = { projectId: "p", organizationId: "o", catalogueErrors }
const identity = { namespace: "ns", createdAt: "2026-01-02T03:04:05.000006Z" }

const text = fc.string({ maxLength: 20 })
const size = fc.constantFrom("512Mi", "4Gi", "1.5T")
const place = fc.constantFrom("us", "eu")
const env = fc.dictionary(fc.stringMatching(/^[A-Za-z_]{1,10}$/), text, { maxKeys: 3 })
const cores = fc.integer({ min: 1, max: 64 })
const gpu = fc.record({ model: fc.constantFrom("A100", "L4"), count: cores })

const definitions: fc.Arbitrary<JobDefinition> = fc.record(
  {
    image: fc.stringMatching(/^([a-z]{1,9}[.:/])?[a-z0-9]{1,20}$/),
    command: fc.array(text, { maxLength: 3 }),
    args: fc.array(text, { maxLength: 3 }),
    env,
    volumes: fc.constant({ data: { bucket: "models", mountPath: "/data" } }),
    resources: fc.record(
      {
        cpu: fc.oneof(
          cores,
          cores.map((half) => half / 2),
        ),
        memory: size,
        gpu,
      },
      { requiredKeys: [] },
    ),
    cloud: fc.constantFrom("aws", "gcp"),
    region: place,
    maxRetries: fc.integer({ min: 0, max: 100 }),
    labels: env,
    tags: fc.array(fc.string({ minLength: 1, maxLength: 20 }), { maxLength: 3 }),
    timeoutSeconds: fc.integer({ min: 1, max: 1000 }),
    provisioning: fc.constantFrom("onDemand", "spot", "spotFirst"),
    maxHourlyPriceUsd: fc.double({ min: 0, max: 1000, noNaN: true }),
    secretEnv: fc.constant({ TOKEN: { secret: "s", key: "k" } }),
    ttlSecondsAfterFinished: fc.integer({ min: 0, max: 1000 }),
  },
  { requiredKeys: ["image"] },
)

const limit = fc.integer({ min: 0, max: 10_000 })
/** Settings that a CronJob has under the names of Kubernetes, too. */
const settings = {
  starting_deadline_seconds: limit,
  concurrency_policy: fc.constantFrom("Allow", "Forbid", "Replace"),
  successful_jobs_history_limit: limit,
  failed_jobs_history_limit: limit,
} as const
const DEFAULTS = {
  starting_deadline_seconds: null,
  concurrency_policy: "Allow",
  successful_jobs_history_limit: null,
  failed_jobs_history_limit: null,
} as const

const creations: fc.Arbitrary<CronJobCreation> = fc.record(
  {
    name: fc.stringMatching(/^[a-z0-9][a-z0-9-]{2,30}$/),
    cron_spec: fc.constantFrom("@hourly", "*/5 * * * *", "0 3 * * MON-FRI"),
    job_definition: definitions,
    is_active: fc.boolean(),
    ...settings,
  },
  { requiredKeys: ["name", "cron_spec", "job_definition"] },
)

function stored(name: string, spec: CronJobSpec): StoredCronJob {
  const server = { uid: "u", resourceVersion: "1", generation: 1, creationTimestamp: "2026-01-02T03:04:05Z" }
  return { apiVersion: API_VERSION, kind: "CronJob", metadata: { name, namespace: "ns", ...server }, spec }
}

describe("a cronjob", () => {
  it("has its values in the record, and becomes a CronJob that the kind's own schema accepts", () => {
    fc.assert(
      fc.property(creations, (creation) => {
        expect(checkCreation(creation, context)).toEqual({ body: creation })
        const cronJob = toCronJob(creation, identity)
        expect(errorsOfObject(CRON_JOB, cronJob)).toEqual([])
        const record = toCronJobRecord(stored(cronJob.metadata.name, cronJob.spec), context)
        const { name, job_definition, ...others } = creation
        expect(record).toMatchObject({ is_active: true, ...DEFAULTS, ...others, project_id: "p", organization_id: "o" })
        const own = Object.values(CRON_JOB_FIELDS).filter((field) => creation[field] !== undefined)
        expect(new Set(Object.keys(cronJob.spec).map((field) => CRON_JOB_FIELDS[field as keyof CronJobSpec]))).toEqual(
          new Set([...own, "is_active"]),
        )
        expect(record.job_definition).toEqual(job_definition)
        expect(fromMetadataName(cronJob.metadata.name)).toBe(name)
      }),
    )
  })

  it("has a valid record for any CronJob from kubectl", () => {
    const specs: fc.Arbitrary<CronJobSpec> = fc.record(
      {
        schedule: fc.string({ minLength: 1 }),
        jobDefinition: fc.record(
          {
            image: fc.constant("alpine"),
            cloud: fc.array(fc.string({ minLength: 1, maxLength: 32 }), { maxLength: 3 }),
            region: fc.array(fc.string({ minLength: 1, maxLength: 64 }), { maxLength: 3 }),
            resources: fc.record(
              { cpu: fc.oneof(cores, fc.constantFrom("500m", "2", "0.25")), memory: size, gpu },
              { requiredKeys: [] },
            ),
          },
          { requiredKeys: ["image"] },
        ),
        active: fc.boolean(),
        concurrencyPolicy: fc.constantFrom("Allow", "Forbid"),
      },
      { requiredKeys: ["schedule", "jobDefinition"] },
    )
    fc.assert(
      fc.property(specs, (spec) => {
        const record = toCronJobRecord(stored("abc-x.x0", spec), context)
        expect(findErrors(CronJobRecordSchema, JSON.parse(JSON.stringify(record)))).toEqual([])
        expect(record.name).toBe("abc-")
        const { cloud } = record.job_definition
        expect([cloud ?? []].flat()).toEqual(spec.jobDefinition.cloud ?? [])
      }),
    )
  })
})

describe("a change", () => {
  it("sets its fields, and leaves omitted and null fields unchanged", () => {
    const change = fc.record(
      {
        cron_spec: fc.option(fc.constant("@daily")),
        job_definition: fc.option(definitions),
        is_active: fc.option(fc.boolean()),
        starting_deadline_seconds: fc.option(limit),
        concurrency_policy: fc.option(settings.concurrency_policy),
        successful_jobs_history_limit: fc.option(limit),
        failed_jobs_history_limit: fc.option(limit),
        project_id: fc.constant(null),
      },
      { requiredKeys: [] },
    )
    fc.assert(
      fc.property(creations, change, (creation, body) => {
        const checked = checkChange(body, context)
        if ("errors" in checked) throw new Error(JSON.stringify(checked.errors))
        const before = toCronJob(creation, identity).spec
        const after = changedSpec(before, checked.body) ?? before
        const [was, is] = [before, after].map((spec) => toCronJobRecord(stored("name", spec), context))
        for (const field of Object.values(CRON_JOB_FIELDS)) expect(is?.[field]).toEqual(body[field] ?? was?.[field])
      }),
    )
  })

  it("is checked without an exception for any JSON, and rejects unknown fields", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const object = typeof value === "object" && value !== null && !Array.isArray(value)
        const checked = checkChange(value, context)
        if ("body" in checked) expect(object).toBe(true)
        expect(checkCreation({ name: "abc", cron_spec: value, job_definition: value }, context)).toHaveProperty(
          "errors",
        )
        expect(checkCreation(object ? { ...value, x: 1 } : value, context)).toHaveProperty("errors")
      }),
    )
  })
})

it("an error of the API server names fields as REST does", () => {
  const fields = ["spec.schedule", "spec.jobDefinition.env[a/b]", "spec.active", "metadata.name", "spec"]
  const body = {
    kind: "Status",
    message: "no",
    details: { causes: fields.map((field) => ({ field, message: "bad" })) },
  }
  const error = errorFromAnswer({ method: "POST", path: "/x", code: 422, body, retryAfter: undefined })
  expect(errorsOfRefusal(error, CRON_JOB_FIELDS).map(({ pointer }) => pointer)).toEqual([
    "/cron_spec",
    "/job_definition/env/a~1b",
    "/is_active",
    "/name",
    "",
  ])
})
