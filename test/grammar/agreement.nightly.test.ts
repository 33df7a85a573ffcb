import { execFileSync } from "node:child_process"
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { isDeepStrictEqual } from "node:util"
import { afterAll, beforeAll, expect, it } from "vitest"
import type { JobSpec } from "../../src/core/apis/job.ts"
import { KINDS } from "../../src/core/apis/kinds.ts"
import { parseCpu } from "../../src/core/apis/quantity.ts"
import type { ApiObject } from "../../src/core/kube/resource.ts"
import { run } from "../cli/command.ts"
import { kubectl } from "../control-plane.ts"
import { SEED } from "../faults/effort.ts"
import { caller } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { randomFrom } from "../random.ts"
import { generated } from "./generated.ts"

const ROOT = join(import.meta.dirname, "..", "..")
const COUNT = 1000

const fixture = projectFixture("grammar")
let replica: Replica
let folder: string
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica({ settings: { defaultProject: fixture.project, requestsPerMinute: 0 } })
  folder = await mkdtemp(join(tmpdir(), "berth-grammar-"))
  // kubectl discovers new kinds a moment after they are served.
  const kinds = KINDS.map(({ plural }) => `${plural}.berth.dev`).join(",")
  await eventually(() => kubectl(["get", kinds, "-n", fixture.namespace]))
})
afterAll(async () => {
  await replica.close()
  await rm(folder, { recursive: true })
})

const berth = (input: string) =>
  run(
    ["apply", "-y", "-f", "-"],
    { BERTH_URL: `http://127.0.0.1:${replica.port}`, BERTH_API_KEY: fixture.keys.admin },
    input,
  )

const PATHS = { Job: "/1/jobs", CronJob: "/1/cronjobs", JobArray: "/1/arrays" }

/** Refusals of values that kubectl takes: they mean something else to other programs. */
const ON_PURPOSE =
  /kubectl \(YAML 1\.1\)|a key must be a string|must be a string, not null|duplicated mapping key|missed comma between/

it(`${COUNT} documents are the same object by berth apply, POST and kubectl, or are refused (seed ${SEED})`, async () => {
  const random = randomFrom(SEED)
  const documents = Array.from({ length: COUNT }, () => generated(random))
  const replies: { posted: string; ours: string[] }[] = []
  for (const [index, { kind, manifest, body }] of documents.entries()) {
    await writeFile(join(folder, `${index}.yaml`), manifest(`kubectl-${index}`))
    const posted = await call(PATHS[kind], { body: body(`posted-${index}`), type: "application/yaml" })
    const ours = [await berth(manifest(`object-${index}`)), await berth(body(`body-${index}`))]
    replies.push({ posted: `${posted.status} ${await posted.text()}`, ours: ours.map(({ out, err }) => out + err) })
  }
  const apply = () => kubectl(["apply", "--validate=strict", "-n", fixture.namespace, "-f", folder])
  const output = (await apply().catch((error: Error & { stderr: string }) => error)) as
    | string
    | (Error & { stderr: string })
  const refusals = typeof output === "string" ? "" : output.stderr
  const list = await kubectl(["get", "bj,bcj,bja", "-n", fixture.namespace, "-o", "json"])
  const objects = new Map((JSON.parse(list) as { items: ApiObject[] }).items.map((one) => [one.metadata.name, one]))
  const outcomes = documents.map(({ manifest }, index) => {
    const specs = ["object", "body", "posted", "kubectl"].map((way) => specOf(objects.get(`${way}-${index}`)))
    return {
      specs,
      isSame: verdict(specs, JSON.stringify(replies[index])),
      manifest: manifest("name"),
      said: replies[index],
    }
  })
  const differing = outcomes.filter(({ isSame }) => !isSame)
  expect(
    differing.map((one) => one),
    refusals.slice(0, 2000),
  ).toEqual([])
  const made = outcomes.filter(({ specs }) => specs.every((spec) => spec !== undefined)).length
  const refused = outcomes.filter(({ specs }) => specs.every((spec) => spec === undefined)).length
  expect(Math.min(made, refused)).toBeGreaterThan(COUNT / 10)

  for (const [index, { specs }] of outcomes.entries()) {
    if (specs.some((spec) => spec === undefined)) continue
    const { manifest = () => "", body = () => "" } = documents[index] ?? {}
    for (const text of [manifest(`object-${index}`), body(`body-${index}`)])
      expect(await berth(text), text).toEqual({ code: 0, out: expect.stringMatching(/ unchanged\n$/), err: "" })
  }
}, 1_800_000)

/** True if all have the object, all refuse, or only kubectl takes a value that means something else to others. */
function verdict([object, body, posted, ofKubectl]: (object | undefined)[], said: string): boolean {
  if (!isDeepStrictEqual(object, body) || !isDeepStrictEqual(body, posted)) return false
  return isDeepStrictEqual(object, ofKubectl) || (object === undefined && ON_PURPOSE.test(said))
}

/** Returns a spec with one spelling of vCPUs and of a GPU model alone, which the API server keeps as they are sent. */
function specOf(object: ApiObject | undefined): object | undefined {
  if (object === undefined) return undefined
  const { spec } = object as unknown as { spec: JobSpec & { jobDefinition?: JobSpec } }
  return { ...inOneSpelling(spec), ...(spec.jobDefinition && { jobDefinition: inOneSpelling(spec.jobDefinition) }) }
}

function inOneSpelling(spec: JobSpec): object {
  const { cpu, gpu } = spec.resources ?? {}
  const count = gpu?.model !== undefined && gpu.vram === undefined ? { count: gpu.count ?? 1 } : {}
  const resources = {
    ...spec.resources,
    ...(cpu !== undefined && { cpu: parseCpu(cpu) }),
    ...(gpu !== undefined && { gpu: { ...gpu, ...count } }),
  }
  return { ...spec, ...(spec.resources !== undefined && { resources }) }
}

/** Kinds whose objects aren't a body of REST, with the reason. `berth apply` refuses them. */
const KUBECTL_ONLY = {
  Organization: "administrators of the installation create it",
  Project: "administrators of the installation create it",
  ApiKey: "REST creates the key itself, and shows it once",
  Connection: "its credentials are in a Secret, and REST takes them in the body",
  Machine: "REST answers with the token by which its host joins, once",
  Webhook: "its signing secret is in a Secret, and REST takes it in the body",
  Launch: "only Berth creates it",
  Statement: "only Berth creates it",
}

it("every manifest of the documents and samples is applied by berth and by kubectl", async () => {
  const texts = [...(await blocks()), ...(await samples())]
  const ours = texts.filter(({ text }) => /^apiVersion: berth\.dev/m.test(text))
  expect(ours.length).toBeGreaterThan(10)
  for (const { place, text } of ours) {
    const inNamespace = text.replace(/\b(namespace: )[-a-z0-9]+/g, `$1${fixture.namespace}`)
    const out = await kubectl(
      ["apply", "--dry-run=server", "--validate=strict", "-n", fixture.namespace, "-f", "-"],
      inNamespace
        .split(/^---$/m)
        .filter((one) => /^apiVersion: (berth\.dev|v1)\b/m.test(one))
        .join("\n---\n"),
    )
    expect(out, place).toContain("(server dry run)")
    for (const document of inNamespace.split(/^---$/m)) {
      const kind = /^kind: (\w+)$/m.exec(document)?.[1] ?? ""
      if (kind === "") continue
      const { code, err } = await berth(document)
      if (Object.hasOwn(PATHS, kind)) expect([code, err], `${place}: ${document}`).toEqual([0, ""])
      else expect([code, err], `${place}: ${document}`).toEqual([2, expect.stringContaining(": use kubectl for it")])
    }
  }
  const kinds = new Set(ours.flatMap(({ text }) => [...text.matchAll(/^kind: (\w+)$/gm)].map(([, kind]) => kind)))
  expect(KINDS.filter(({ kind }) => kinds.has(kind)).length).toBeGreaterThan(5)
  expect([...Object.keys(PATHS), ...Object.keys(KUBECTL_ONLY)].toSorted()).toEqual(
    KINDS.map(({ kind }) => kind).toSorted(),
  )
})

it("every body of REST in the documents and samples is applied by berth", async () => {
  const bodies = [...(await blocks()), ...(await samples())].filter(({ text }) => isBody(text))
  expect(bodies.length).toBeGreaterThan(1)
  for (const [index, { place, text }] of bodies.entries()) {
    const outcome = await berth(text.replace(/^name: (\S+)/m, `name: $1-${index}`))
    expect([outcome.code, outcome.err], place).toEqual([0, ""])
  }
})

/** True for a job, a cronjob or an array. Some blocks show a part of an output, which isn't YAML. */
function isBody(text: string): boolean {
  return !/^apiVersion:/m.test(text) && /^(image|job_definition):/m.test(text)
}

interface Text {
  place: string
  text: string
}

/** Returns the blocks of YAML in the documents for users. */
async function blocks(): Promise<Text[]> {
  const found = await Promise.all(
    execFileSync("git", ["ls-files", "README.md", "docs/*.md"], { cwd: ROOT, encoding: "utf8" })
      .trim()
      .split("\n")
      .map(async (path) =>
        [...(await readFile(join(ROOT, path), "utf8")).matchAll(/^```ya?ml\n([\s\S]*?)^```/gm)].map(
          ([, text = ""], index) => ({ place: `${path}, block ${index + 1}`, text }),
        ),
      ),
  )
  return found.flat()
}

async function samples(): Promise<Text[]> {
  const path = join(ROOT, "manifests", "samples")
  const names = (await readdir(path, { recursive: true })).filter((name) => /\.yaml$/.test(name))
  return Promise.all(names.map(async (name) => ({ place: name, text: await readFile(join(path, name), "utf8") })))
}
