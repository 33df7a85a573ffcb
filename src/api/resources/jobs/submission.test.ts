import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { SAMPLE_CATALOGUE } from "../../../../test/facade/sample-catalogue.ts"
import { JOB, type JobStatus, type StoredJob } from "../../../core/apis/job.ts"
import { ANNOTATIONS, GATEWAY_FIELD_MANAGER, LABELS, type ObjectMeta } from "../../../core/apis/meta.ts"
import { UUID } from "../../../core/apis/names.ts"
import { withoutNulls } from "../../../core/apis/nulls.ts"
import { errorsOfObject, findErrors } from "../../../core/apis/validate.ts"
import { errorFromAnswer } from "../../../core/kube/errors.ts"
import { JobRecordSchema, recordStatus, toRecord } from "../../../core/records/job.ts"
import { keepUpdateTime, updateTimeOf } from "../../../core/records/update-time.ts"
import { createCatalogue } from "../../../market/router/catalogue.ts"
import { errorsOfRefusal } from "../../collection.ts"
import { requestHash } from "../../idempotency.ts"
import { type JobSubmission, JobSubmissionSchema } from "./schema.ts"
import { catalogueCheck, checkSubmission, generatedName, toJob } from "./submission.ts"

const context = {
  projectId: "p",
  organizationId: "o",
  catalogueErrors: catalogueCheck(() => SAMPLE_CATALOGUE, SAMPLE_CATALOGUE.clouds),
}

const text = fc.string({ maxLength: 30 })
const size = fc
  .tuple(fc.integer({ min: 1, max: 9999 }), fc.constantFrom("Mi", "Gi", "G", "T"))
  .map((parts) => parts.join(""))
const map = <Value>(key: fc.Arbitrary<string>, value: fc.Arbitrary<Value>) => fc.dictionary(key, value, { maxKeys: 4 })
const envName = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,10}$/)
const model = fc.constantFrom("A100", "H100", "L4")
const count = fc.integer({ min: 1, max: 8 })

const gpu = fc.oneof(
  size,
  fc.record({ vram: size }),
  fc.record({ model }),
  fc.record({ model, count }),
  fc.record({ model, vram: size }),
  fc.record({ model, vram: size, count }),
)

/** Valid submissions, with any of the optional fields. */
const submissions: fc.Arbitrary<JobSubmission> = fc.record(
  {
    image: fc.stringMatching(/^([a-z]{1,9}[.:/])?[a-z0-9]{1,20}$/),
    command: fc.array(text, { maxLength: 3 }),
    args: fc.array(text, { maxLength: 3 }),
    env: map(
      envName.filter((name) => !name.startsWith("SECRET_")),
      text,
    ),
    volumes: map(
      fc.stringMatching(/^[a-z]{1,10}$/),
      fc.record(
        {
          bucket: fc.stringMatching(/^[a-z]{3,10}$/),
          mountPath: fc.uuid().map((id) => `/data/${id}`),
          prefix: text,
          connection: envName,
        },
        { requiredKeys: ["bucket", "mountPath"] },
      ),
    ),
    resources: fc.record(
      { cpu: fc.integer({ min: 1, max: 128_000 }).map((milli) => milli / 1000), memory: size, gpu },
      { requiredKeys: [] },
    ),
    cloud: fc.uniqueArray(fc.constantFrom("aws", "gcp", "azure")),
    region: fc.oneof(fc.constantFrom("us", "eu"), fc.array(fc.constantFrom("us", "eu"), { maxLength: 3 })),
    maxRetries: fc.integer({ min: 0, max: 100 }),
    labels: map(fc.string({ minLength: 1, maxLength: 20 }), text),
    tags: fc.array(fc.string({ minLength: 1, maxLength: 20 }), { maxLength: 4 }),
    timeoutSeconds: fc.integer({ min: 1, max: 1000 }),
    provisioning: fc.constantFrom("onDemand", "spot", "spotFirst"),
    maxHourlyPriceUsd: fc.double({ min: 0, max: 1000, noNaN: true }),
    maxCostUsd: fc.double({ min: 0, max: 1000, noNaN: true }),
    secretEnv: map(
      envName.map((name) => `SECRET_${name}`),
      fc.record({ secret: fc.stringMatching(/^[a-z0-9]{1,10}$/), key: fc.stringMatching(/^[-._a-zA-Z0-9]{1,10}$/) }),
    ),
    ttlSecondsAfterFinished: fc.integer({ min: 0, max: 1000 }),
    namePrefix: fc.stringMatching(/^[a-z][a-z0-9-]{0,20}$/),
  },
  { requiredKeys: ["image"] },
)

/** Fields whose values are the same in the record: name in the submission, name in the record, and default. */
const SAME_FIELDS = [
  ["image", "image", undefined],
  ["namePrefix", "namePrefix", null],
  ["command", "command", []],
  ["args", "args", []],
  ["env", "env", {}],
  ["cloud", "cloud", []],
  ["labels", "labels", {}],
  ["tags", "tags", []],
  ["maxRetries", "max_retries", 0],
  ["timeoutSeconds", "timeout_seconds", 2_592_000],
  ["provisioning", "provisioning", "onDemand"],
  ["maxHourlyPriceUsd", "max_hourly_price_usd", null],
  ["maxCostUsd", "max_cost_usd", null],
  ["secretEnv", "secret_env", {}],
  ["ttlSecondsAfterFinished", "ttl_seconds_after_finished", null],
] as const

const identity = { namespace: "ns", name: "name", createdAt: "2026-01-02T03:04:05.000006Z" }

function stored(submission: JobSubmission, status?: JobStatus): StoredJob {
  const job = toJob(submission, identity)
  const metadata = {
    ...job.metadata,
    uid: "u",
    resourceVersion: "1",
    generation: 1,
    creationTimestamp: "2026-01-02T03:04:05Z",
  }
  return { ...job, metadata, ...(status && { status }) }
}

describe("a valid submission", () => {
  it("is accepted, and becomes a Job that the kind's own schema accepts", () => {
    fc.assert(
      fc.property(submissions, (submission) => {
        expect(checkSubmission(submission, context)).toEqual({ submission })
        expect(errorsOfObject(JOB, toJob(submission, identity))).toEqual([])
      }),
    )
  })

  it("has its values in the record, with defaults for omitted fields", () => {
    fc.assert(
      fc.property(submissions, (submission) => {
        const record = toRecord(stored(submission), context)
        expect(findErrors(JobRecordSchema, record)).toEqual([])
        for (const [field, recordField, otherwise] of SAME_FIELDS) {
          expect(record[recordField], field).toEqual(submission[field] ?? otherwise)
        }
        expect(record.region).toEqual([submission.region ?? []].flat())
        const { resources = {}, volumes = {} } = submission
        expect(record.resources.cpu).toBeCloseTo(resources.cpu ?? 1, 9)
        expect(record.resources.memory).toBe(resources.memory ?? "4Gi")
        const { gpu: asked } = resources
        const vram = typeof asked === "string" ? asked : asked?.vram
        expect(record.resources.gpu?.vram ?? undefined).toBe(vram)
        expect(record.volumes.map(({ name }) => name)).toEqual(Object.keys(volumes))
        for (const { name, mount_path: mountPath, ...volume } of record.volumes)
          expect({ ...volume, mountPath }).toMatchObject({ ...volumes[name] })
      }),
    )
  })

  it("means the same with null for every omitted field", () => {
    const fields = Object.keys(JobSubmissionSchema.properties)
    fc.assert(
      fc.property(submissions, (submission) => {
        const nulls = Object.fromEntries(fields.map((field) => [field, null]))
        expect(checkSubmission({ ...nulls, ...submission }, context)).toEqual({ submission })
      }),
    )
  })

  it("has a hash that depends on its values, not on the order of keys", () => {
    fc.assert(
      fc.property(submissions, (submission) => {
        const reversed = Object.fromEntries(Object.entries(submission).reverse())
        expect(requestHash(reversed)).toBe(requestHash(submission))
        expect(requestHash({ ...submission, image: `${submission.image}x` })).not.toBe(requestHash(submission))
      }),
    )
  })
})

it("the check of a body never throws: the result is a submission or a list of errors", () => {
  const field = fc.oneof(fc.anything(), fc.jsonValue())
  const fields = fc.dictionary(fc.constantFrom(...Object.keys(JobSubmissionSchema.properties)), field)
  fc.assert(
    fc.property(fc.oneof(fc.jsonValue(), fields), (body) => {
      const checked = checkSubmission(body, context)
      if ("submission" in checked) expect(errorsOfObject(JOB, toJob(checked.submission, identity))).toEqual([])
      else expect(checked.errors.length).toBeGreaterThan(0)
    }),
    { numRuns: 1000 },
  )
})

describe("withoutNulls", () => {
  it("keeps nulls in maps, in arrays and in unknown fields", () => {
    const value = {
      image: null,
      env: { A: null },
      tags: [null],
      unknown: null,
      volumes: { v: { prefix: null }, w: null },
    }
    expect(withoutNulls(JobSubmissionSchema, value, "fields")).toEqual({
      env: { A: null },
      tags: [null],
      unknown: null,
      volumes: { v: {}, w: null },
    })
  })
})

describe("checkSubmission", () => {
  const errors = (body: object): Record<string, string> => {
    const checked = checkSubmission({ image: "a", ...body }, context)
    return "errors" in checked ? Object.fromEntries(checked.errors.map(({ pointer, detail }) => [pointer, detail])) : {}
  }

  it.each([
    ["24GB", "24Gi", "24G"],
    ["24gb", "24Gi", "24G"],
    ["1.5 TB", "1.5Ti", "1.5T"],
    ["512MiB", "512Mi", "512M"],
    ["4gi", "4Gi", "4G"],
    ["64K", "64Ki", "64k"],
  ])("suggests for %s to write %s or %s", (written, binary, decimal) => {
    for (const [body, pointer] of [
      [{ resources: { memory: written } }, "/resources/memory"],
      [{ resources: { gpu: written } }, "/resources/gpu"],
      [{ resources: { gpu: { vram: written } } }, "/resources/gpu/vram"],
    ] as const) {
      expect(errors(body)[pointer]).toMatch(new RegExp(`write ${binary} .* or ${decimal} `))
    }
  })

  it("suggests no unit for a size of zero, which has a unit", () => {
    const said = errors({ resources: { memory: "0Gi" } })["/resources/memory"]
    expect(said).toMatch(/not "0Gi"; it must be more than 0$/)
  })

  it("lists the known values for each unknown cloud, region and GPU model", () => {
    expect(errors({ cloud: ["AWS", "gcp"], region: "mars", resources: { gpu: { model: "H1000" } } })).toEqual({
      "/cloud/0": 'cloud "AWS" is unknown (did you mean aws?); known clouds: aws, azure, gcp',
      "/region": expect.stringMatching(/^region "mars" is unknown.*; allowed: .*eu/),
      "/resources/gpu/model": expect.stringMatching(/^resources.gpu.model "H1000" is unknown.*; known models: .*A100/),
    })
  })

  it("does not look up values that the schema rejects, and checks the others", () => {
    const odd = { cloud: ["", "ibm"], region: [7], resources: { gpu: { model: "" } } }
    for (const detail of Object.values(errors(odd))) expect(detail).not.toMatch(/is unknown/)
    expect(Object.keys(errors({ ...odd, region: "mars" }))).toEqual(
      expect.arrayContaining(["/cloud/0", "/region", "/resources/gpu/model"]),
    )
  })

  it("does not check regions and models against an empty catalogue", () => {
    const body = { image: "a", cloud: ["ibm"], region: "mars", resources: { gpu: { model: "H1000" } } }
    const checked = checkSubmission(body, {
      ...context,
      catalogueErrors: catalogueCheck(() => createCatalogue([]), ["aws"]),
    })
    expect(checked).toEqual({
      errors: [{ pointer: "/cloud/0", detail: 'cloud "ibm" is unknown; known clouds: aws' }],
      once: body,
    })
    expect(checkSubmission({ ...body, tags: [1] }, context)).not.toHaveProperty("once")
  })

  it("accepts owners that match the host's, and keeps them out of the Job", () => {
    expect(errors({ project_id: "p", organization_id: "o" })).toEqual({})
    const job = toJob({ image: "a", project_id: "p" }, identity)
    expect(JSON.stringify(job)).not.toContain("project_id")
  })
})

describe("statusOf", () => {
  it("shows a cancel at once, but keeps the status of a job that has ended", () => {
    const job = (phase: JobStatus["phase"], cancelled: boolean): StoredJob => {
      const made = stored({ image: "a" }, phase && { phase })
      return { ...made, spec: { ...made.spec, cancelled } }
    }
    expect(recordStatus(job(undefined, false))).toBe("queued")
    expect(recordStatus(job(undefined, true))).toBe("cancelled")
    expect(recordStatus(job("running", true))).toBe("cancelled")
    expect(recordStatus(job("succeeded", true))).toBe("succeeded")
    expect(recordStatus(job("failed", true))).toBe("failed")
  })
})

describe("generatedName", () => {
  const name = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/
  it("is a valid job name, the same for the same seed, and no UUID", () => {
    fc.assert(
      fc.property(fc.string(), (seed) => {
        expect(generatedName(seed)).toMatch(/^[a-z]+-[a-z]+-\d+$/)
        expect(generatedName(seed)).toBe(generatedName(seed))
        const prefixed = generatedName(seed, "0b8ae3a4-8b5c-4d5e-9f61")
        expect(prefixed).toMatch(name)
        expect(prefixed).not.toMatch(UUID)
        expect(generatedName(seed, "train")).toMatch(/^train-[a-z0-9]{8}$/)
        expect(generatedName(seed, "train-")).toMatch(/^train-[a-z0-9]{8}$/)
        expect(generatedName(seed, "train--")).toMatch(/^train-[a-z0-9]{8}$/)
      }),
    )
  })

  it("rarely gives the same name for two seeds", () => {
    const made = new Set(Array.from({ length: 10_000 }, (_, seed) => generatedName(String(seed))))
    expect(made.size).toBeGreaterThan(9_990)
  })
})

describe("jobOf", () => {
  it("writes gpu as an object, with one card for a model alone (contract, GPU object)", () => {
    const gpuOf = (gpu: NonNullable<JobSubmission["resources"]>["gpu"]) =>
      toJob({ image: "a", resources: { ...(gpu !== undefined && { gpu }) } }, identity).spec.resources?.gpu
    expect(gpuOf("24Gi")).toEqual({ vram: "24Gi" })
    expect(gpuOf({ model: "A100" })).toEqual({ model: "A100", count: 1 })
    expect(gpuOf({ model: "A100", vram: "80Gi" })).toEqual({ model: "A100", vram: "80Gi" })
    expect(gpuOf({ model: "A100", count: 2, vram: "80Gi" })).toEqual({ model: "A100", count: 2, vram: "80Gi" })
    expect(gpuOf(undefined)).toBeUndefined()
  })

  it("mirrors the labels that Kubernetes accepts, and writes the annotations that the façade reads", () => {
    const labels = { team: "a", "kubernetes.io/x": "no", "two words": "no" }
    const idempotency = { key: "k", requestHash: "h" }
    const { metadata } = toJob({ image: "a", labels, namePrefix: "p" }, { ...identity, idempotency })
    expect(metadata.labels).toEqual({ team: "a", [LABELS.idempotencyKey]: expect.stringMatching(/^[0-9a-f]{40}$/) })
    expect(metadata.annotations).toEqual({
      [ANNOTATIONS.createdAt]: identity.createdAt,
      [ANNOTATIONS.namePrefix]: "p",
      [ANNOTATIONS.idempotencyKey]: "k",
      [ANNOTATIONS.requestHash]: "h",
    })
  })
})

describe("errorsOfRefusal", () => {
  const refused = (causes: object[]) =>
    errorsOfRefusal(
      errorFromAnswer({
        method: "POST",
        path: "/apis/x",
        code: 422,
        retryAfter: undefined,
        body: { kind: "Status", reason: "Invalid", message: "Job is invalid", details: { causes } },
      }),
    )

  it("has pointers to the body's fields", () => {
    expect(
      refused([
        { field: "spec.volumes[data].bucket", message: "m1" },
        { field: "spec.region[0]", message: "m2" },
        { field: "spec.env[a/b~c.d]", message: "m3" },
        { field: "metadata.name", message: "m4" },
        { field: "metadata.labels", message: "m5" },
        { message: "m6" },
      ]),
    ).toEqual([
      { pointer: "/volumes/data/bucket", detail: "volumes.data.bucket: m1" },
      { pointer: "/region/0", detail: "region[0]: m2" },
      { pointer: "/env/a~1b~0c.d", detail: 'env["a/b~c.d"]: m3' },
      { pointer: "/name", detail: "name: m4" },
      { pointer: "", detail: "m5" },
      { pointer: "", detail: "m6" },
    ])
  })

  it("has the API server's message without method and path if the API server names no field", () => {
    expect(refused([])).toEqual([{ pointer: "", detail: "Job is invalid" }])
  })
})

describe("the time of the last update", () => {
  const managedFields = [
    { manager: "a", time: "2026-01-01T00:00:01Z" },
    { manager: "b", time: "2026-01-01T00:00:03Z" },
    { manager: GATEWAY_FIELD_MANAGER, time: "2026-01-01T00:00:09Z" },
    { manager: "c" },
  ]

  it("is the newest that is not an agent's, and is kept when managedFields is stripped", () => {
    const object = { metadata: { name: "x", managedFields } }
    expect(updateTimeOf(object)).toBe("2026-01-01T00:00:03Z")
    const kept = keepUpdateTime(object)
    delete (kept.metadata as { managedFields?: unknown }).managedFields
    expect(updateTimeOf(kept)).toBe("2026-01-01T00:00:03Z")
    expect(JSON.stringify(kept)).toBe('{"metadata":{"name":"x"}}')
  })

  it("is that of Berth's annotation once managedFields is cleared, unless a tool has written since", () => {
    const annotations = { [ANNOTATIONS.updatedAt]: "2026-01-01T00:00:02Z" }
    const cleared = keepUpdateTime({ metadata: { name: "x", annotations } })
    expect(updateTimeOf(cleared)).toBe("2026-01-01T00:00:02Z")
    expect(updateTimeOf({ metadata: { name: "x", annotations, managedFields } as ObjectMeta })).toBe(
      "2026-01-01T00:00:03Z",
    )
    const changed = { [ANNOTATIONS.updatedAt]: "yesterday" }
    expect(updateTimeOf({ metadata: { name: "x", annotations: changed } })).toBeUndefined()
  })

  it("is unknown without managedFields", () => {
    expect(updateTimeOf({ metadata: { name: "x" } })).toBeUndefined()
  })
})
