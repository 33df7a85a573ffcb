import { readFileSync } from "node:fs"
import { join } from "node:path"
import { expect, test } from "vitest"
import type { JobRecord } from "../client/client.ts"
import { type JobField, recordField } from "../client/job-fields.ts"
import { differences, isSame, readDocuments, requireNamespace } from "./documents.ts"

/** Beginning of an object of Kubernetes. */
const OBJECT = "apiVersion: berth.dev/v1alpha1\nmetadata: {name: a}\nkind: "

const inFile = (text: string) => readDocuments({ name: "job.yaml", text })

test("bodies of the REST API and objects of Kubernetes become the same body", async () => {
  const body = { name: "train", image: "a", resources: { cpu: 0.5, memory: "1Gi" }, region: ["eu"] }
  expect(await inFile(JSON.stringify(body))).toEqual([{ kind: "job", body }])
  expect(
    await inFile(`
apiVersion: berth.dev/v1alpha1
kind: Job
metadata: { name: train, namespace: any }
spec: { image: a, resources: { cpu: 500m, memory: 1Gi }, region: [eu] }`),
  ).toEqual([{ kind: "job", body, namespace: "any", inFile: expect.any(Function) }])
})

test("a file may have several documents", async () => {
  const documents = await inFile(`
name: nightly
cron_spec: "0 3 * * *"
job_definition: { image: a }
---
name: aws
type: aws
role_arn: arn:aws:iam::123456789012:role/berth
---
name: build-bot
url: https://ci.example.com
events: [job.failed]
---
apiVersion: berth.dev/v1alpha1
kind: CronJob
metadata: { name: hourly }
spec: { schedule: "0 * * * *", jobDefinition: { image: b } }
---
`)
  expect(documents.map(({ kind, body }) => [kind, body.name])).toEqual([
    ["cronjob", "nightly"],
    ["connection", "aws"],
    ["webhook", "build-bot"],
    ["cronjob", "hourly"],
  ])
  expect(documents[3]?.body).toMatchObject({ cron_spec: "0 * * * *", job_definition: { image: "b" } })
})

test("an object of Kubernetes is for the project of its namespace only", async () => {
  const documents = await inFile(
    "apiVersion: berth.dev/v1alpha1\nkind: Job\nmetadata: {name: a, namespace: train}\nspec: {image: a}",
  )
  await requireNamespace(documents, async () => "train")
  await expect(requireNamespace(documents, async () => "other")).rejects.toThrow(
    "job/a is for the namespace train, and this project has other.",
  )
  await requireNamespace(await inFile("image: a"), () => Promise.reject(new Error("not asked")))
})

test.each([
  ["", "has no document"],
  ["a: [", "is no YAML"],
  ["just text", "must be an object"],
  ["name: x", "is not a job (with image)"],
  ["apiVersion: v1\nkind: Secret", "is a Secret of v1: use kubectl"],
  ["apiVersion: berth.dev/v1alpha1\nkind: Project", "is a Project: use kubectl"],
  [
    "apiVersion: berth.dev/v9\nkind: Job\nmetadata: {name: a}\nspec: {image: a}",
    "has the apiVersion berth.dev/v9, and Berth knows berth.dev/v1alpha1",
  ],
  [
    "apiVersion: berth.dev/v1alpha1\nkind: Job\nmetadata: {name: a, labels: {x: z}}\nspec: {image: a}",
    "metadata.labels is set, which berth apply can't keep",
  ],
  [
    "apiVersion: berth.dev/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec: {image: a}\nimage: b",
    "image is an unknown field",
  ],
  ["apiVersion: berth.dev/v1alpha1\nkind: Webhook", "is a Webhook: use kubectl for it, or the body of the REST API"],
  [
    "apiVersion: berth.dev/v1alpha1\nkind: CronJob\nmetadata: {name: a}\nspec: {schedule: '* * * * *', concurrency_policy: Forbid, jobDefinition: {image: a}}",
    "spec.concurrency_policy is the name in REST: write concurrencyPolicy in a Kubernetes object",
  ],
  ["timeoutSeconds: 0600\nimage: a", "timeoutSeconds: 0600 is 384 for kubectl (YAML 1.1) and 600 in YAML 1.2"],
  [
    `${OBJECT}CronJob\nspec: {cron_spec: x}`,
    "spec.cron_spec is the name in REST: write schedule in a Kubernetes object",
  ],
  [`${OBJECT}Job\nspec: {image: a, maxretries: 1}`, "spec.maxretries is an unknown field: did you mean maxRetries?"],
  [`${OBJECT}Job\nspec: {image: a}\nstatus: {phase: running}`, "status is set, which berth apply can't keep"],
  [`${OBJECT}Job\nspec: {image: a, cancelled: true}`, "spec.cancelled is set, which berth apply can't keep"],
  [`${OBJECT}JobArray\nspec: {size: 2, jobDefinition: {image: 1}}`, "spec.jobDefinition.image must be a string"],
  ["kind: List\napiVersion: v1\nitems: [{image: a}, {name: b}]", "job.yaml, item 2 is not a job"],
])("%j is rejected: %s", async (text, message) => {
  await expect(inFile(text)).rejects.toThrow(message)
})

test("a list of objects, empty documents and a byte order mark are read as kubectl does", async () => {
  const items =
    "items:\n- {image: a}\n- {apiVersion: berth.dev/v1alpha1, kind: Job, metadata: {name: b}, spec: {image: b}}"
  const documents = await inFile(`\uFEFF---\n# none\n---\napiVersion: v1\nkind: List\n${items}\n---\n`)
  expect(documents.map(({ body }) => body)).toEqual([{ image: "a" }, { name: "b", image: "b" }])
})

test("an error of REST is about the field in the file", async () => {
  const [document] = await inFile(
    `${OBJECT}CronJob\nspec: {schedule: '@daily', jobDefinition: {image: a, region: [mars]}}`,
  )
  const inManifest = document?.inFile ?? expect.fail()
  const detail = 'job_definition.region "mars" is unknown'
  expect(inManifest({ pointer: "/job_definition/region", detail })).toEqual({
    pointer: "/spec/jobDefinition/region",
    detail: 'spec.jobDefinition.region "mars" is unknown',
  })
  expect(inManifest({ pointer: "/name", detail: "name is too long" }).detail).toBe("metadata.name is too long")
  expect(inManifest({ pointer: "/cron_spec", detail: "it never occurs" }).detail).toBe("spec.schedule: it never occurs")
})

test("each field of a submission is a field of the record, under its name there", () => {
  const text = readFileSync(join(import.meta.dirname, "..", "..", "test", "facade", "golden", "openapi.json"), "utf8")
  const { schemas } = (JSON.parse(text) as { components: { schemas: Record<string, { properties: object }> } })
    .components
  const record = Object.keys(schemas["JobRecord"]?.properties ?? {})
  const submitted = Object.keys(schemas["JobSubmission"]?.properties ?? {})
  expect(submitted.length).toBeGreaterThan(20)
  expect(submitted.filter((field) => !record.includes(recordField(field as JobField)))).toEqual([])
})

test("a job is unchanged if the record has all that the body sets", () => {
  const record = {
    image: "a",
    command: ["run"],
    env: { A: "1" },
    region: ["eu"],
    labels: {},
    max_retries: 2,
    resources: { cpu: 2, memory: "4Gi", disk: null, gpu: { model: "L4", count: 1, vram: null } },
    volumes: [{ name: "data", bucket: "b", mount_path: "/data", connection: null, prefix: null, read_only: null }],
  } as unknown as JobRecord
  const body = {
    name: "train",
    image: "a",
    command: ["run"],
    env: { A: "1" },
    region: "eu",
    maxRetries: 2,
    resources: { cpu: 2, gpu: { model: "L4" } },
    volumes: { data: { bucket: "b", mountPath: "/data", readOnly: false } },
  }
  expect(differences(body, record)).toEqual([])
  expect([isSame(["eu"], "eu"), isSame([], undefined), isSame({}, null)]).toEqual([true, true, true])
  expect([isSame(["eu", "us"], "eu"), isSame(["eu"], undefined)]).toEqual([false, false])
  expect(differences({ ...body, image: "b", maxRetries: 1 }, record)).toEqual(["image", "maxRetries"])
  expect(differences({ ...body, command: ["run", "fast"] }, record)).toEqual(["command"])
  expect(differences({ ...body, env: {} }, record)).toEqual(["env"])
  expect(differences({ ...body, labels: { a: "b" } }, record)).toEqual(["labels"])
  expect(differences({ ...body, resources: { gpu: { model: "H100" } } }, record)).toEqual(["resources"])
})
