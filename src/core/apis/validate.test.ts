import Type from "typebox"
import { describe, expect, test } from "vitest"
import { CRON_JOB } from "./cronjob.ts"
import { LIMITS } from "./field-limits.ts"
import { JOB, JobSpecSchema } from "./job.ts"
import { API_VERSION } from "./meta.ts"
import { errorsOfObject, findErrors } from "./validate.ts"

const SECRET = "hunter2"

function errorsOfSpec(spec: Record<string, unknown>) {
  return findErrors(JobSpecSchema, { image: "alpine", ...spec })
}

describe("errorsOf", () => {
  test("finds nothing wrong with what is right", () => {
    expect(errorsOfSpec({ env: { A: "1" }, resources: { cpu: "500m", gpu: { model: "A100" } } })).toEqual([])
  })

  test("reports all errors, each with its pointer", () => {
    expect(findErrors(JobSpecSchema, { maxRetries: -1, tags: [""], volumes: { "a/b~": { bucket: "b" } } })).toEqual(
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
    [{ timeout: 1 }, "/timeout", "timeout is an unknown field: did you mean timeoutSeconds?"],
    [{ retries: 1 }, "/retries", "retries is an unknown field: did you mean maxRetries?"],
    [
      { maxHourlyPriceUsd: Infinity },
      "/maxHourlyPriceUsd",
      "maxHourlyPriceUsd is too large: a number has at most 1.8e308",
    ],
    [{ args: ["a\0"] }, "/args/0", "args[0] must be a text without NUL characters"],
    [{ args: ["ä".repeat(9000)] }, "/args", "args must have at most 16384 bytes in total, not 18000"],
    [
      { volumes: { a: { bucket: "b", mountPath: "/a" }, "b/": { bucket: "b", mountPath: "/a/" } } },
      "/volumes/b~1/mountPath",
      'volumes.a and volumes["b/"] have the same mountPath: give each one its own',
    ],
    [
      { volumes: { a: { bucket: "b", mountPath: "/a", readOnly: true, checkpoint: true } } },
      "/volumes/a/readOnly",
      "volumes.a.readOnly must not be true with checkpoint: remove one of them",
    ],
    [
      { env: { A: "1" }, secretEnv: { A: { secret: "s", key: "k" } } },
      "/secretEnv/A",
      "env.A and secretEnv.A have the same name: keep one of them",
    ],
    [{ max_retries: 1 }, "/max_retries", "max_retries is an unknown field: did you mean maxRetries?"],
    [{ retries: 1 }, "/retries", "retries is an unknown field: did you mean maxRetries?"],
    [{ timeout: 1 }, "/timeout", "timeout is an unknown field: did you mean timeoutSeconds?"],
    [{ image: "" }, "/image", "image must not be empty"],
    [{ maxRetries: Infinity }, "/maxRetries", "maxRetries is too large: a number has at most 1.8e308"],
    [{ resources: { storage: 1 } }, "/resources/storage", "resources.storage is an unknown field: Berth has disk"],
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
  ])("explains the error of %j", (spec, pointer, detail) => {
    expect(errorsOfSpec(spec)).toContainEqual({ pointer, detail })
  })

  test("reports one error of a value of the wrong type, not its bounds too", () => {
    expect(errorsOfSpec({ resources: { cpu: 0.5 }, env: { "": 1 } })).toHaveLength(3)
  })

  test.each(["image", "resources.memory"])("reports one error of an empty text: %s", (field) => {
    expect(errorsOfSpec(field === "image" ? { image: "" } : { resources: { memory: "" } })).toHaveLength(1)
  })

  test("finds the errors of long texts in time that grows with their length", () => {
    const long = "a".repeat(200_000)
    const texts = [`${long}!`, `${"a-".repeat(100_000)}!`, `${"a.".repeat(100_000)}!`, `${"a/".repeat(100_000)}!`]
    for (const image of texts) expect(errorsOfSpec({ image })).not.toEqual([])
    const mountPath = `${"/a".repeat(100_000)}/..`
    expect(errorsOfSpec({ volumes: { a: { bucket: "b", mountPath } } })).not.toEqual([])
  })

  test("shows no value that may be secret", () => {
    const long = SECRET.repeat(LIMITS.envValue)
    const specs = [{ env: { A: long } }, { args: [long] }, { command: [{ a: SECRET }] }, { env: { A: { a: SECRET } } }]
    for (const spec of specs) {
      const errors = errorsOfSpec(spec)
      expect(errors).not.toEqual([])
      expect(JSON.stringify(errors)).not.toContain(SECRET)
    }
    const key = Type.Object({ key: Type.String({ pattern: "^a", "x-berth-sensitive": true }) })
    expect(findErrors(key, { key: SECRET })).toEqual([{ pointer: "/key", detail: "key must be what ^a matches" }])
  })

  test("speaks of the value where the whole is wrong", () => {
    expect(findErrors(JobSpecSchema, [])).toEqual([{ pointer: "", detail: "the value must be an object, not a list" }])
    expect(findErrors(JobSpecSchema, null)).toEqual([{ pointer: "", detail: "the value must be an object, not null" }])
  })

  test("takes unions of types, of which each has its own keywords", () => {
    const Body = Type.Object({
      gpu: Type.Unsafe({ type: ["string", "object"], pattern: "Gi$", properties: { vram: { type: "string" } } }),
    })
    expect(findErrors(Body, { gpu: "24Gi" })).toEqual([])
    expect(findErrors(Body, { gpu: { vram: "24Gi" } })).toEqual([])
    expect(findErrors(Body, { gpu: { vran: "24Gi" } })).toHaveLength(1)
    expect(findErrors(Body, { gpu: 24 })).toEqual([
      { pointer: "/gpu", detail: "gpu must be a string or an object, not a number" },
    ])
  })

  test("leaves open what the schema leaves open", () => {
    const Open = Type.Object({ a: Type.String() }, { additionalProperties: true })
    expect(findErrors(Open, { a: "a", b: "b" })).toEqual([])
  })

  test("stops at twenty", () => {
    expect(errorsOfSpec(Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`unknown${i}`, 1])))).toHaveLength(20)
  })

  test("counts the items of a list before it looks at them, and still finds the errors elsewhere", () => {
    const wrong = Array(80_000).fill(1)
    expect(errorsOfSpec({ command: wrong, cloud: wrong, maxRetries: -1 })).toEqual([
      { pointer: "/command", detail: "command must have at most 256 items, not 80000" },
      { pointer: "/cloud", detail: "cloud must have at most 8 items, not 80000" },
      { pointer: "/maxRetries", detail: "maxRetries must be at least 0, not -1" },
    ])
  })

  test("counts the entries of a map before it looks at them", () => {
    const env = Object.fromEntries(Array.from({ length: 30_000 }, (_, i) => [`=${i}`, 1]))
    const volumes = { data: { bucket: "b", mountPath: "/data", ...env } }
    const errors = errorsOfSpec({ env, volumes })
    expect(errors).toHaveLength(20)
    expect(errors[0]).toEqual({ pointer: "/env", detail: "env must have at most 256 entries, not 30000" })
    expect(errors.slice(1).every(({ pointer }) => pointer.startsWith("/volumes/data/="))).toBe(true)
  })

  test("repeats at most 80 characters of a name", () => {
    const [error] = errorsOfSpec({ ["k".repeat(100_000)]: 1 })
    expect(error?.pointer).toBe("")
    expect(error?.detail).toContain(`["${"k".repeat(80)}…"] is an unknown field`)
    expect(error?.detail.length).toBeLessThan(400)
  })
})

describe("errorsOfObject", () => {
  const object = { apiVersion: API_VERSION, kind: "Job", metadata: { name: "a" }, spec: { image: "alpine" } }

  test("judges the whole object, and leaves metadata to Kubernetes", () => {
    expect(errorsOfObject(JOB, { ...object, metadata: { name: "a", anything: 1 } })).toEqual([])
    expect(errorsOfObject(CRON_JOB, object).map((error) => error.pointer)).toEqual(
      expect.arrayContaining(["/kind", "/spec/schedule", "/spec/image"]),
    )
    expect(errorsOfObject(JOB, { ...object, spec: null })).toEqual([{ pointer: "/spec", detail: "spec is required" }])
  })
})
