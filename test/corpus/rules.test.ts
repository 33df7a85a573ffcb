import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { describe, expect, test, vi } from "vitest"
import { generatedFiles, staleFiles } from "../../scripts/generate.ts"
import { crdName } from "../../src/apis/crd.ts"
import { JOB } from "../../src/apis/job.ts"
import type { KindDefinition } from "../../src/apis/kind.ts"
import { KINDS } from "../../src/apis/kinds.ts"
import { LAUNCH } from "../../src/apis/launch.ts"
import { LIMITS } from "../../src/apis/limits.ts"
import { type StructuralSchema, structuralSchema } from "../../src/apis/structural.ts"
import { type ApiObject, resourceOf } from "../../src/kube/resource.ts"
import { kubectl } from "../control-plane.ts"
import { type Corpus, entries, items } from "./corpus.ts"
import { JOBS } from "./job.ts"
import { LAUNCHES } from "./launch.ts"
import { API_KEYS, CONNECTIONS } from "./others.ts"
import { type AnyObject, judges, refusalOf } from "./server.ts"

const ROOT = join(import.meta.dirname, "../..")

interface Crd extends ApiObject {
  status: { conditions: { type: string; status: string }[] }
  spec: { versions: { schema: { openAPIV3Schema: StructuralSchema } }[] }
}

const CRDS = resourceOf<Crd>({
  group: "apiextensions.k8s.io",
  version: "v1",
  kind: "CustomResourceDefinition",
  plural: "customresourcedefinitions",
  namespaced: false,
})

/** For each frozen field: another value than the corpus' case "everything" has (or its base). */
const FROZEN: [Corpus, Record<string, unknown>][] = [
  [
    JOBS,
    {
      image: "other",
      command: ["other"],
      args: [],
      env: { GREETING: "bye" },
      secretEnv: { TOKEN: { secret: "tokens", key: "other" } },
      volumes: { in: { bucket: "data", mountPath: "/other" } },
      resources: { cpu: 5 },
      cloud: ["azure"],
      region: [],
      maxRetries: 4,
      timeoutSeconds: 1,
      labels: { team: "b" },
      tags: ["other"],
      provisioning: "spot",
      maxHourlyPriceUsd: 2,
    },
  ],
  [
    LAUNCHES,
    {
      job: { uid: "other" },
      number: 2,
      installation: "other",
      offer: { hourlyPriceUsd: 1 },
      project: "other",
      connection: "other",
      account: "other",
      sealedCredentials: "other",
      imageId: "other",
      agentImage: "other",
      run: { env: { A: "2" } },
      gatewayUrl: "https://other.example.com",
      gatewayCa: "other",
      bootDeadlineSeconds: 1,
      lifetimeSeconds: 1,
    },
  ],
  [API_KEYS, { keyId: "otherother", tokenHash: "0".repeat(64) }],
]

describe.each(FROZEN.map(([corpus, others]) => [corpus.kind.kind, corpus, others] as const))(
  "the frozen fields of a %s",
  (_, { kind, base, good }, others) => {
    const { client, namespace, object } = judges("frozen")
    const resource = resourceOf<AnyObject>(kind)
    const schema = structuralSchema(kind.spec)
    const full = { ...base, ...good["everything"], ended: undefined }
    const patch = (name: string, spec: Record<string, unknown>) =>
      refusalOf(client.patch(resource, { namespace, name }, { merge: { spec } }, { dryRun: true }))

    test("are all tried here", () => {
      const rules = schema["x-kubernetes-validations"] ?? []
      const frozen = rules
        .filter((rule) => rule.message.includes("is immutable"))
        .map((rule) => rule.fieldPath?.slice(1))
      expect(Object.keys(others).sort()).toEqual(frozen.sort())
    })

    test.each(Object.entries(others))("%s can't be changed, removed or added", async (field, other) => {
      const name = `with-${field.toLowerCase()}`
      await client.create(resource, object(kind, { metadata: { name }, spec: full }))
      expect(await patch(name, { [field]: other })).toContain(`${field} is immutable`)
      const isRequired = schema.required?.includes(field)
      // Removing a field that has a default sets it to that: a change, too.
      expect(await patch(name, { [field]: null })).toContain(isRequired ? "Required value" : `${field} is immutable`)
      if (isRequired) return
      const without = `without-${field.toLowerCase()}`
      await client.create(
        resource,
        object(kind, { metadata: { name: without }, spec: { ...full, [field]: undefined } }),
      )
      const added = (full as Record<string, unknown>)[field]
      expect(await patch(without, { [field]: added })).toContain(`${field} is immutable`)
    })

    test("do not hinder a write that changes none of them", async () => {
      const stored = await client.create(resource, object(kind, { metadata: { name: "unchanged" }, spec: full }))
      expect(
        await refusalOf(client.replace(resource, { ...stored, metadata: { ...stored.metadata, labels: { a: "b" } } })),
      ).toBe(undefined)
    })
  },
)

describe("what may be changed only in one direction, or not at all", () => {
  const { client, namespace, object } = judges("oneway")

  test.each([
    [JOB, JOBS, "cancelled"],
    [LAUNCH, LAUNCHES, "ended"],
  ] as const)("%o", async (kind, corpus, field) => {
    const resource = resourceOf<AnyObject>(kind as KindDefinition)
    const ref = { namespace, name: `oneway-${field}` }
    await client.create(resource, object(kind as KindDefinition, { metadata: ref, spec: corpus.base }))
    const set = (value: unknown) => refusalOf(client.patch(resource, ref, { merge: { spec: { [field]: value } } }))
    expect(await set(false)).toBeUndefined()
    expect(await set(true)).toBeUndefined()
    expect(await set(false)).toContain(`${field} cannot be set back to false`)
    expect(await set(null)).toContain(`${field} cannot be set back to false`)
    expect((await client.get(resource, ref)).spec?.[field]).toBe(true)
  })

  test("a Connection keeps its type, and may change its credentials", async () => {
    const resource = resourceOf<AnyObject>(CONNECTIONS.kind)
    const ref = { namespace, name: "typed" }
    await client.create(resource, object(CONNECTIONS.kind, { metadata: ref, spec: CONNECTIONS.base }))
    const patch = (spec: object) => refusalOf(client.patch(resource, ref, { merge: { spec } }))
    expect(await patch({ type: "gcp" })).toContain("type is immutable")
    expect(await patch({ credentialsSecretRef: null, sealedCredentials: "AAAA" })).toBeUndefined()
    expect(await patch({ sealedCredentials: null })).toContain("exactly one of")
  })

  test("a Job as large as etcd takes it can still be cancelled: the rules are cheap enough", async () => {
    const jobs = resourceOf<AnyObject>(JOB)
    const ref = { namespace, name: "large" }
    const spec = { ...JOBS.base, env: entries(40, "x".repeat(LIMITS.envValue)), args: items(256, "y".repeat(400)) }
    const stored = await client.create(jobs, object(JOB, { metadata: ref, spec }))
    expect(JSON.stringify(stored).length).toBeGreaterThan(1.3 * 1024 ** 2)
    expect(await refusalOf(client.patch(jobs, ref, { merge: { spec: { cancelled: true } } }))).toBeUndefined()
  })

  test("numbers may be written with a fraction or an exponent, as JSON allows", async () => {
    const { spec: _, ...head } = object(JOB, { metadata: { name: "numbers" }, spec: {} })
    const spec = '{"image":"a","maxRetries":1.0,"timeoutSeconds":1e1,"resources":{"cpu":2.0}}'
    const created = await kubectl(
      ["create", "--dry-run=server", "-o", "jsonpath={.spec}", "-f", "-"],
      `${JSON.stringify(head).slice(0, -1)},"spec":${spec}}`,
    )
    expect(JSON.parse(created)).toMatchObject({ maxRetries: 1, timeoutSeconds: 10, resources: { cpu: 2 } })
  })

  test("defaults are written into a Job", async () => {
    const stored = await client.create(
      resourceOf<AnyObject>(JOB),
      object(JOB, { metadata: { name: "least" }, spec: JOBS.base }),
    )
    expect(stored.spec).toEqual({ ...JOBS.base, maxRetries: 0, provisioning: "onDemand", cancelled: false })
  })
})

describe("a Job's status", () => {
  const { client, namespace, object } = judges("status")
  const jobs = resourceOf<AnyObject>(JOB)

  test("is written by its subresource alone, which writes nothing else", async () => {
    const ref = { namespace, name: "a" }
    const created = await client.create(
      jobs,
      object(JOB, { metadata: ref, spec: JOBS.base, status: { phase: "failed" } }),
    )
    expect(created.status).toEqual({ observedGeneration: 0 })
    await client.patchStatus(jobs, ref, { merge: { spec: { cancelled: true }, status: { phase: "running" } } })
    const changed = await client.patch(jobs, ref, { merge: { status: { phase: "failed" } } })
    expect(changed.status).toEqual({ observedGeneration: 0, phase: "running" })
    expect(changed.spec?.["cancelled"]).toBe(false)
    expect(changed.metadata.generation).toBe(1)
  })

  test("is shown in columns, and selected by", async () => {
    const ref = { namespace, name: "shown" }
    await client.create(jobs, object(JOB, { metadata: ref, spec: JOBS.base }))
    const status = { ...JOBS.status?.good["everything"], phase: "booting" }
    await client.patchStatus(jobs, ref, { merge: { status } })
    const [head = "", ...rows] = (await kubectl(["get", "bj", "-n", namespace])).trim().split("\n")
    expect(head.split(/\s{2,}/).map((name) => name.trim())).toEqual([
      "NAME",
      "PHASE",
      "REASON",
      "CLOUD",
      "TYPE",
      "USD/H",
      "COST",
      "AGE",
    ])
    expect(rows.find((row) => row.startsWith("shown "))).toMatch(
      /^shown\s+booting\s+Started\s+aws\s+m7g.large\s+0.0432\s+0\s/,
    )
    const selected = (selector: string) =>
      kubectl(["get", "bj", "-n", namespace, "-o", "name", "--field-selector", selector])
    expect(await selected("status.phase=booting")).toBe("job.berth.dev/shown\n")
    expect(await selected("status.phase=succeeded")).toBe("")
    expect(await selected("status.placement.offer.cloud=aws,status.placement.connection=my-aws")).toBe(
      "job.berth.dev/shown\n",
    )
    expect(await kubectl(["get", "berth", "-n", namespace, "-o", "name"])).toContain("job.berth.dev/shown")
  })
})

describe("an ApiKey", () => {
  const { client, namespace, object } = judges("rules-keys")

  test("is shown with the time of its expiry, past or to come", async () => {
    const times = { past: "2020-01-01T00:00:00Z", future: "2099-01-01T00:00:00Z" }
    for (const [name, expiresAt] of Object.entries(times)) {
      const spec = { ...API_KEYS.base, expiresAt }
      await client.create(resourceOf<AnyObject>(API_KEYS.kind), object(API_KEYS.kind, { metadata: { name }, spec }))
    }
    const [head = "", ...rows] = (await kubectl(["get", "bkey", "-n", namespace])).trim().split("\n")
    const column = head.indexOf("EXPIRES")
    const shown = rows.map((row) => [row.split(" ")[0], row.slice(column).split(" ")[0]])
    expect(Object.fromEntries(shown)).toEqual(times)
  })
})

describe("the CRDs", () => {
  const { client } = judges("crds")

  test("are committed as they are generated", async () => {
    for (const [path, content] of generatedFiles()) {
      expect(await readFile(join(ROOT, path), "utf8"), `${path}: run npm run generate`).toBe(content)
    }
    expect(await staleFiles()).toEqual([])
    expect(await readdir(join(ROOT, "crds"))).toHaveLength(KINDS.length + 1)
  })

  test("are applied by kubectl without a warning, and say the same as what is installed without YAML", async () => {
    const generation = async (kind: KindDefinition) =>
      (await client.get(CRDS, { name: crdName(kind) })).metadata.generation
    const before = await Promise.all(KINDS.map(generation))
    await kubectl(["apply", "--server-side", "--force-conflicts", "--warnings-as-errors", "-k", join(ROOT, "crds")])
    expect(await Promise.all(KINDS.map(generation))).toEqual(before)
  })

  test.each(KINDS.map((kind) => [kind.kind, kind] as const))("%s is structural and served", async (_, kind) => {
    const { status, spec } = await client.get(CRDS, { name: crdName(kind) })
    expect(status.conditions.map((condition) => [condition.type, condition.status]).sort()).toEqual([
      ["Established", "True"],
      ["NamesAccepted", "True"],
    ])
    const root = spec.versions[0]?.schema.openAPIV3Schema
    expect(root?.required).toEqual(["spec"])
    expect(JSON.stringify(root)).not.toContain("x-berth-")
  })

  test.each(KINDS.map((kind) => [kind.kind, kind] as const))("%s says what each field of its spec means", (_, kind) => {
    const undescribed = Object.entries(kind.spec.properties).filter(([, field]) => !("description" in field))
    expect(undescribed.map(([name]) => name)).toEqual([])
  })

  test("are explained by kubectl", async () => {
    // kubectl reads the API server's OpenAPI, which follows the CRDs by a moment.
    await vi.waitFor(
      async () => {
        const explained = await kubectl(["explain", "bj.spec"])
        expect(explained).toContain("GROUP:      berth.dev")
        expect(explained).toContain("Container image reference.")
        expect(await kubectl(["explain", "bj.spec.resources.gpu"])).toContain("A model alone means one")
        expect(await kubectl(["explain", "bj.status.phase"])).toContain("ENUM:")
      },
      { timeout: 100_000, interval: 500 },
    )
  })
})
