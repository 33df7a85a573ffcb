import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { JOB, type JobSpec, PROVISIONINGS } from "../../src/core/apis/job.ts"
import { SEED } from "../faults/effort.ts"
import { validators } from "./server.ts"

const text = (maxLength: number) =>
  fc.string({ unit: "grapheme", maxLength: Math.min(maxLength, 40) }).filter((one) => !one.includes("\0"))
const name = fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).filter((key) => !/[=\0]/.test(key))
const size = fc
  .tuple(fc.integer({ min: 1, max: 99_999 }), fc.constantFrom("", ".5", ".25", ".001"))
  .chain(([whole, fraction]) =>
    fc.constantFrom("Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T").map((unit) => `${whole}${fraction}${unit}`),
  )
const cpu = fc.oneof(
  fc.integer({ min: 1, max: 9999 }),
  fc.integer({ min: 1, max: 9_999_999 }).map((millicores) => `${millicores}m`),
  fc.integer({ min: 1, max: 9999 }).map(String),
)
const gpu = fc.oneof(
  fc.record({ vram: size }),
  fc.record({ model: fc.constantFrom("A100", "RTX 6000"), count: fc.integer({ min: 1, max: 64 }) }),
  fc.record({ model: fc.constant("H100"), vram: size }),
)
const volume = fc.record(
  {
    bucket: fc.stringMatching(/^[a-z0-9-]{3,20}$/),
    mountPath: text(100)
      .filter((path) => !/^[/.]*$|(^|[/])[.]{1,2}([/]|$)/.test(path))
      .map((path) => `/${path}`),
    connection: fc.stringMatching(/^[a-z]{1,10}$/),
    prefix: text(100),
  },
  { requiredKeys: ["bucket", "mountPath"] },
)

/** Job specs that are valid by construction. */
const jobSpec: fc.Arbitrary<JobSpec> = fc.record(
  {
    image: fc.stringMatching(
      /^([a-z0-9]{1,8}[.][a-z]{2,3}(:[0-9]{1,5})?[/])?[a-z0-9]{1,9}([-._/][a-z0-9]{1,9})?(:[\w][\w.-]{0,9})?$/,
    ),
    command: fc.array(text(100), { maxLength: 4 }),
    args: fc.array(text(100), { maxLength: 4 }),
    env: fc.dictionary(
      name.filter((one) => !one.startsWith("secret ")),
      text(100),
      { maxKeys: 4 },
    ),
    secretEnv: fc.dictionary(
      name.map((one) => `secret ${one}`),
      fc.record({
        secret: fc.stringMatching(/^[a-z0-9]{1,10}(\.[a-z0-9]{1,5})?$/),
        key: fc.stringMatching(/^[-._a-zA-Z0-9]{1,20}$/),
      }),
      { maxKeys: 2 },
    ),
    volumes: fc
      .dictionary(fc.stringMatching(/^[a-zA-Z0-9]{1,10}$/), volume, { maxKeys: 2 })
      .map((volumes) =>
        Object.fromEntries(
          Object.entries(volumes).map(([key, one]) => [key, { ...one, mountPath: `/${key}${one.mountPath}` }]),
        ),
      ),
    maxRetries: fc.integer({ min: 0, max: 100 }),
    timeoutSeconds: fc.integer({ min: 1, max: 2_592_000 }),
    resources: fc.record({ cpu, memory: size, gpu }, { requiredKeys: [] }),
    cloud: fc.array(fc.constantFrom("aws", "gcp", "azure"), { maxLength: 3 }),
    region: fc.array(fc.constantFrom("eu", "us-east-1"), { maxLength: 3 }),
    provisioning: fc.constantFrom(...PROVISIONINGS),
    maxHourlyPriceUsd: fc.double({ min: 0, max: 100_000, noNaN: true }),
    labels: fc.dictionary(name, text(100), { maxKeys: 4 }),
    tags: fc.array(name, { maxLength: 3 }),
    ttlSecondsAfterFinished: fc.integer({ min: 0, max: 315_360_000 }),
    cancelled: fc.boolean(),
  },
  { requiredKeys: ["image"] },
)

type Path = (string | number)[]

function pathsIn(value: unknown, path: Path = []): Path[] {
  if (typeof value !== "object" || value === null) return [path]
  const keys: Path = Array.isArray(value) ? [...value.keys()] : Object.keys(value)
  return [path, ...keys.flatMap((key) => pathsIn((value as Record<string | number, unknown>)[key], [...path, key]))]
}

/** One change at one place: `change` gets the present value and returns the new one (undefined: none). */
function changed(value: unknown, [key, ...rest]: Path, change: (old: unknown) => unknown): unknown {
  if (key === undefined) return change(value)
  if (Array.isArray(value)) return value.map((item, i) => (i === key ? (changed(item, rest, change) ?? null) : item))
  const fields = Object.entries(value as object)
  return Object.fromEntries(fields.map(([name, field]) => [name, name === key ? changed(field, rest, change) : field]))
}

const anything = fc.oneof(
  fc.constantFrom(null, true, "", "1", "-1", "4gi", "24GB", " ", 0, -1, 0.5, 1e30, 2 ** 53),
  fc.integer(),
  fc.string({ unit: "binary", maxLength: 5 }),
  fc.constantFrom([], {}, [null], { a: null }, ["a"], { "": "a" }, { count: 1 }),
)

const change: fc.Arbitrary<(old: unknown) => unknown> = fc.oneof(
  anything.map((value) => () => value),
  fc.constant(() => undefined),
  anything.map((value) => (old: unknown) => (isMap(old) ? { ...old, unknown: value } : [old])),
  anything.map((value) => (old: unknown) => (typeof old === "string" ? `${old}${String(value)}` : value)),
  fc
    .double({ noNaN: true, noDefaultInfinity: true })
    .map((factor) => (old: unknown) => (typeof old === "number" ? old * factor : factor)),
)

function isMap(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value)
}

const changedSpec = fc.tuple(jobSpec, fc.nat(), change).map(([spec, at, how]) => {
  const [, ...paths] = pathsIn(spec)
  return changed(spec, paths[at % paths.length] ?? [], how) as Record<string, unknown>
})

describe("generated Jobs", () => {
  const judge = validators("generated")

  test("are accepted by the API server and by the validator if they are valid", async () => {
    await fc.assert(
      fc.asyncProperty(jobSpec, async (spec) => {
        expect(judge.validator(JOB, { spec })).toBeUndefined()
        expect(await judge.server(JOB, { spec })).toBeUndefined()
      }),
      { numRuns: 150, seed: SEED },
    )
  })

  test("get the same verdict from the API server and from the validator after one change", async () => {
    await fc.assert(
      fc.asyncProperty(changedSpec, async (spec) => {
        const server = await judge.server(JOB, { spec })
        const validator = judge.validator(JOB, { spec })
        expect({ server, validator }).toEqual({
          server: validator === undefined ? undefined : expect.any(String),
          validator,
        })
      }),
      { numRuns: 400, seed: SEED },
    )
  })
})
