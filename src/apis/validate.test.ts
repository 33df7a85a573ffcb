import Type from "typebox"
import { describe, expect, test } from "vitest"
import { CRON_JOB } from "./cronjob.ts"
import { JOB, JobSpecSchema } from "./job.ts"
import { LIMITS } from "./limits.ts"
import { API_VERSION } from "./meta.ts"
import { faultsOf, faultsOfObject } from "./validate.ts"

const SECRET = "hunter2"

function faultsOfSpec(spec: Record<string, unknown>) {
  return faultsOf(JobSpecSchema, { image: "alpine", ...spec })
}

describe("faultsOf", () => {
  test("finds nothing wrong with what is right", () => {
    expect(faultsOfSpec({ env: { A: "1" }, resources: { cpu: "500m", gpu: { model: "A100" } } })).toEqual([])
  })

  test("reports all faults, each with its pointer", () => {
    expect(faultsOf(JobSpecSchema, { maxRetries: -1, tags: [""], volumes: { "a/b~": { bucket: "b" } } })).toEqual(
      expect.arrayContaining([
        { pointer: "/image", detail: "image is required" },
        { pointer: "/maxRetries", detail: "maxRetries must be at least 0, not -1" },
        { pointer: "/tags/0", detail: "tags[0] must not be empty" },
        { pointer: "/volumes/a~1b~0/mountPath", detail: 'volumes["a/b~"].mountPath is required' },
      ]),
    )
  })

  test.each<[Record<string, unknown>, string, string]>([
    [{ imge: "x" }, "/imge", "imge is an unknown field: did you mean image?"],
    [{ max_retries: 1 }, "/max_retries", "max_retries is an unknown field: did you mean maxRetries?"],
    [
      { resources: { disk: 1 } },
      "/resources/disk",
      "resources.disk is an unknown field; known fields: cpu, memory, gpu",
    ],
    [
      { resources: { memory: "24GB" } },
      "/resources/memory",
      'resources.memory must be a size with a unit (Ki, Mi, Gi, Ti, k, M, G or T) such as 4Gi, not "24GB"',
    ],
    [
      { resources: { cpu: 0.5 } },
      "/resources/cpu",
      'resources.cpu must be a number of vCPUs such as 2, "0.5" or "500m", not 0.5',
    ],
    [{ maxRetries: 1.5 }, "/maxRetries", "maxRetries must be a whole number, not 1.5"],
    [{ maxRetries: "1" }, "/maxRetries", "maxRetries must be a whole number, not a string"],
    [{ provisioning: "Spot" }, "/provisioning", 'provisioning must be onDemand, spot or spotFirst, not "Spot"'],
    [{ command: "echo" }, "/command", "command must be a list, not a string"],
    [{ env: { A: 1 } }, "/env/A", "env.A must be a string, not a number: put it in quotes"],
    [
      { env: { "A=B": "x" } },
      "/env/A=B",
      'env["A=B"] is not allowed as a key: keys must be names of variables: 1 to 256 characters, without = and NUL',
    ],
    [{ resources: { gpu: {} } }, "/resources/gpu", "resources.gpu must not be empty"],
    [{ resources: { gpu: { count: 1 } } }, "/resources/gpu/model", "resources.gpu.count requires resources.gpu.model"],
    [{ tags: Array(65).fill("t") }, "/tags", "tags must have at most 64 items, not 65"],
    [{ image: "🚢".repeat(513) }, "/image", "image must have at most 512 characters, not 513"],
  ])("%j", (spec, pointer, detail) => {
    expect(faultsOfSpec(spec)).toContainEqual({ pointer, detail })
  })

  test("reports one fault of a value of the wrong type, not its bounds too", () => {
    expect(faultsOfSpec({ resources: { cpu: 0.5 }, env: { "": 1 } })).toHaveLength(3)
  })

  test("shows no value that may be secret", () => {
    const long = SECRET.repeat(LIMITS.envValue)
    const specs = [{ env: { A: long } }, { args: [long] }, { command: [{ a: SECRET }] }, { env: { A: { a: SECRET } } }]
    for (const spec of specs) {
      const faults = faultsOfSpec(spec)
      expect(faults).not.toEqual([])
      expect(JSON.stringify(faults)).not.toContain(SECRET)
    }
    const key = Type.Object({ key: Type.String({ pattern: "^a", "x-berth-sensitive": true }) })
    expect(faultsOf(key, { key: SECRET })).toEqual([{ pointer: "/key", detail: "key must be what ^a matches" }])
  })

  test("speaks of the value where the whole is wrong", () => {
    expect(faultsOf(JobSpecSchema, [])).toEqual([{ pointer: "", detail: "the value must be an object, not a list" }])
    expect(faultsOf(JobSpecSchema, null)).toEqual([{ pointer: "", detail: "the value must be an object, not null" }])
  })

  test("takes unions of types, of which each has its own keywords", () => {
    const Body = Type.Object({
      gpu: Type.Unsafe({ type: ["string", "object"], pattern: "Gi$", properties: { vram: { type: "string" } } }),
    })
    expect(faultsOf(Body, { gpu: "24Gi" })).toEqual([])
    expect(faultsOf(Body, { gpu: { vram: "24Gi" } })).toEqual([])
    expect(faultsOf(Body, { gpu: { vran: "24Gi" } })).toHaveLength(1)
    expect(faultsOf(Body, { gpu: 24 })).toEqual([
      { pointer: "/gpu", detail: "gpu must be a string or an object, not a number" },
    ])
  })

  test("leaves open what the schema leaves open", () => {
    const Open = Type.Object({ a: Type.String() }, { additionalProperties: true })
    expect(faultsOf(Open, { a: "a", b: "b" })).toEqual([])
  })

  test("stops at fifty", () => {
    expect(faultsOfSpec(Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`unknown${i}`, 1])))).toHaveLength(50)
  })
})

describe("faultsOfObject", () => {
  const object = { apiVersion: API_VERSION, kind: "Job", metadata: { name: "a" }, spec: { image: "alpine" } }

  test("judges the whole object, and leaves metadata to Kubernetes", () => {
    expect(faultsOfObject(JOB, { ...object, metadata: { name: "a", anything: 1 } })).toEqual([])
    expect(faultsOfObject(CRON_JOB, object).map((fault) => fault.pointer)).toEqual(
      expect.arrayContaining(["/kind", "/spec/schedule", "/spec/image"]),
    )
    expect(faultsOfObject(JOB, { ...object, spec: null })).toEqual([{ pointer: "/spec", detail: "spec is required" }])
  })
})
