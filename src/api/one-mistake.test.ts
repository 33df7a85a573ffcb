import { describe, expect, it } from "vitest"
import { escapePointer, toFieldPath } from "../core/apis/field-error.ts"
import { ORGANIZATION_ROLES } from "../core/apis/organization.ts"
import type { FieldError } from "../core/apis/validate.ts"
import { checked } from "./http/checked.ts"
import { MemberRoleSchema, OrganizationCreationSchema } from "./resources/accounts/schema.ts"
import { checkCreation as checkArray } from "./resources/arrays/translate.ts"
import { checkCreation as checkCronJob } from "./resources/cronjobs/translate.ts"
import { checkSubmission } from "./resources/jobs/submission.ts"
import { checkKey } from "./resources/keys/translate.ts"

const CONTEXT = { organizationId: "acme", projectId: "reports", catalogueErrors: () => [] }

const DEFINITION = {
  image: "alpine:3.20",
  command: ["sh", "-c"],
  args: ["true"],
  env: { MODE: "fast" },
  secretEnv: { TOKEN: { secret: "hub", key: "token" } },
  volumes: { data: { bucket: "training-data", mountPath: "/data", prefix: "v1" } },
  resources: { cpu: 2, memory: "4Gi", gpu: { model: "L4", count: 1 }, disk: "20Gi" },
  provisioning: "spot",
  maxRetries: 2,
  timeoutSeconds: 600,
  terminationGraceSeconds: 10,
  maxHourlyPriceUsd: 2,
  labels: { team: "vision" },
  tags: ["night"],
}

const plain = (schema: Parameters<typeof checked>[1]["schema"]) => (body: unknown) =>
  checked(body, { schema, rules: [], context: undefined })

const BODIES: [string, object, (body: unknown) => { errors: FieldError[] } | object][] = [
  ["a job", { name: "train", ...DEFINITION, cloud: ["aws"], region: ["eu"] }, (body) => checkSubmission(body, CONTEXT)],
  [
    "a cronjob",
    { name: "nightly", cron_spec: "@daily", is_active: true, job_definition: DEFINITION },
    (body) => checkCronJob(body, CONTEXT),
  ],
  [
    "an array",
    { name: "sweep", size: 3, parallelism: 2, job_definition: DEFINITION },
    (body) => checkArray(body, CONTEXT),
  ],
  [
    "a key",
    { name: "ci-key", role: "viewer", expires_at: "2999-01-01T00:00:00Z" },
    (body) => checkKey(body, new Date("2026-01-01T00:00:00Z")),
  ],
  ["an organization", { name: "Acme", category: "company" }, plain(OrganizationCreationSchema)],
  ["a member", { role: ORGANIZATION_ROLES[0] }, plain(MemberRoleSchema)],
]

/** Values of which most are wrong at any place. */
const BAD = [
  true,
  -1,
  1.5,
  1.00001,
  // JSON's 1e400.
  Number.POSITIVE_INFINITY,
  1e21,
  "",
  " ",
  "\0",
  "a\nb",
  "Ä-Ö",
  "x".repeat(400),
  `X${"é".repeat(40_000)}`,
  "24GB",
  "2027-01-01",
  "2027-02-30T00:00:00Z",
  "0001-01-01T00:00:00Z",
  "32ed5a2e-7d6c-4b10-8f5a-6f5e6a7c2b1d",
]

/** Returns the pointers to the values below a value. */
function placesIn(value: unknown, pointer = ""): string[] {
  if (typeof value !== "object" || value === null) return [pointer]
  const inside = Object.entries(value).flatMap(([name, part]) => placesIn(part, `${pointer}/${escapePointer(name)}`))
  return pointer === "" ? inside : [pointer, ...inside]
}

/** Returns the body with another value at a place. */
function withValue(body: object, pointer: string, value: unknown): object {
  const copy = structuredClone(body)
  const names = pointer.split("/").slice(1)
  const last = names.pop() ?? ""
  const parent = names.reduce(
    (object, name) => object[name] as Record<string, unknown>,
    copy as Record<string, unknown>,
  )
  parent[last] = value
  return copy
}

/** Expects one error about a place, in words. An empty object in place of a full one lacks each required field. */
function expectOne(errors: FieldError[], place: string, bad: unknown): void {
  const about = `${place} = ${JSON.stringify(bad).slice(0, 60)}: ${errors.map(({ detail }) => detail).join(" | ")}`
  if (!errors.every(({ detail }) => detail.endsWith(" is required"))) expect(errors, about).toHaveLength(1)
  for (const { pointer, detail } of errors) {
    expect(`${pointer}/`, about).toContain(place)
    expect(detail, about).toContain(toFieldPath(pointer))
    expect(detail, about).not.toMatch(/undefined|Infinity|\^|: :/)
  }
}

describe("one mistake", () => {
  it.each(BODIES)("has one error in the body of %s, which names its field", (_, body, check) => {
    expect(check(body)).not.toHaveProperty("errors")
    let refused = 0
    const wrong = placesIn(body).flatMap((place) => [...BAD, {}, []].map((bad) => ({ place, bad })))
    for (const { place, bad } of wrong) {
      const result = check(withValue(body, place, bad))
      if (!("errors" in result)) continue
      refused++
      expectOne(result.errors, place, bad)
    }
    expect(refused).toBeGreaterThan(10)
  })
})

describe("a name of another tool", () => {
  it.each([
    [{ backoffLimit: 3 }, "backoffLimit is an unknown field: Berth has maxRetries"],
    [{ activeDeadlineSeconds: 3 }, "activeDeadlineSeconds is an unknown field: Berth has timeoutSeconds"],
    [{ environment: {} }, "environment is an unknown field: Berth has env"],
    [{ gpus: 1 }, "gpus is an unknown field: Berth has resources.gpu"],
    [{ resources: { "nvidia.com/gpu": 1 } }, 'resources["nvidia.com/gpu"] is an unknown field: Berth has gpu'],
    [
      { resources: { limits: { cpu: 1 } } },
      "resources.limits is an unknown field: Berth has cpu, memory, gpu and disk in their place",
    ],
    [{ env: [{ name: "A", value: "1" }] }, "env must be an object, not a list: write each entry as NAME: value"],
  ])("gets a hint in %j", (fields, detail) => {
    const result = checkSubmission({ image: "alpine", ...fields }, CONTEXT)
    expect(result).toMatchObject({ errors: [{ detail }] })
  })
})
