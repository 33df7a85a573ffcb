import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { beforeAll, describe, expect, test, vi } from "vitest"
import { CRD_KIND } from "../../dev/install.ts"
import { generatedFiles, staleFiles } from "../../scripts/generate.ts"
import { crdName } from "../../src/core/apis/crd.ts"
import { LIMITS } from "../../src/core/apis/field-limits.ts"
import { JOB } from "../../src/core/apis/job.ts"
import type { KindDefinition } from "../../src/core/apis/kind.ts"
import { KINDS } from "../../src/core/apis/kinds.ts"
import { LAUNCH } from "../../src/core/apis/launch.ts"
import { type StructuralSchema, structuralSchema } from "../../src/core/apis/structural.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { kubectl } from "../control-plane.ts"
import { type Corpus, entries, items } from "./corpus.ts"
import { JOBS } from "./job.ts"
import { LAUNCHES } from "./launch.ts"
import { API_KEYS, CONNECTIONS } from "./others.ts"
import { type AnyObject, installSpecLimits, refusalOf, validators } from "./server.ts"

const ROOT = join(import.meta.dirname, "../..")

interface Crd extends ApiObject {
  status: { conditions: { type: string; status: string }[] }
  spec: { versions: { schema: { openAPIV3Schema: StructuralSchema } }[] }
}

const CRDS = declareResource<Crd>(CRD_KIND)

/** A new value for each frozen field. The value differs from the corpus' case "everything" (or its base). */
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
      workdir: { sha256: "f".repeat(64) },
      resources: { cpu: 5 },
      cloud: ["azure"],
      region: [],
      maxRetries: 4,
      timeoutSeconds: 1,
      labels: { team: "b" },
      tags: ["other"],
      provisioning: "spot",
      maxHourlyPriceUsd: 2,
      maxCostUsd: 3,
      maxQueueSeconds: 1,
      maxPreemptions: 1,
      concurrencyGroup: { name: "other", limit: 2 },
      idleLimit: { seconds: 600 },
      reuse: { idleSeconds: 600 },
      debug: { keepSeconds: 600 },
      retryRules: [],
      maxLostVms: 1,
      after: [{ job: "other" }],
      maxMemory: "64Gi",
      fallbackAfter: 3,
      terminationGraceSeconds: 91,
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
      labels: { team: "other" },
      imageId: "other",
      hourlyPrices: { machineUsd: 1, diskUsd: 1, addressUsd: 1 },
      ceilingUsd: 1,
      reservedUsd: 1,
      organization: "other",
      cronJob: "other",
      concurrencyGroup: "other",
      cronJobName: "other",
      network: { publicAddress: true },
      disk: { sizeGib: 1 },
      agentImage: "other",
      volumesImage: "other",
      run: { env: { A: "2" } },
      gatewayUrl: "https://other.example.com",
      gatewayCa: "other",
      proxy: { url: "http://other.example.com:3128" },
      bootDeadlineSeconds: 1,
      startDeadlineSeconds: 1,
      lifetimeSeconds: 1,
      budgetSeconds: 1,
      takesOver: "other",
      root: "other",
      vmLifetimeSeconds: 2,
    },
  ],
  [
    API_KEYS,
    {
      keyId: "otherother",
      tokenHash: "0".repeat(64),
      oidc: { issuer: "https://ci.example.com", claims: { sub: "other" } },
    },
  ],
]

/** Field that no object has together with the fields that are undefined here. */
const APART: Record<string, Record<string, unknown>> = {
  reuse: { reuse: { idleSeconds: 60, key: "small" }, maxCostUsd: undefined },
}

/** Fields of a spec that may change, by kind. */
const MUTABLE: Record<string, readonly string[]> = {
  Job: ["cancelled", "debugEnded", "priority", "ttlSecondsAfterFinished"],
  Launch: ["ended"],
  ApiKey: ["expiresAt", "role"],
}

describe.each(FROZEN.map(([corpus, others]) => [corpus.kind.kind, corpus, others] as const))(
  "the frozen fields of a %s",
  (_, { kind, base, good }, others) => {
    const { client, namespace, object } = validators("frozen")
    const resource = declareResource<AnyObject>(kind)
    const schema = structuralSchema(kind.spec)
    const full = { ...base, ...good["everything"], ended: undefined }
    const patch = (name: string, spec: Record<string, unknown>) =>
      refusalOf(client.patch(resource, { namespace, name }, { merge: { spec } }, { dryRun: true }))

    beforeAll(() => installSpecLimits(client, namespace))

    test("has a new value in this test for every frozen field", () => {
      const mutable = MUTABLE[kind.kind] ?? []
      const frozen = Object.keys(schema.properties ?? {}).filter((field) => !mutable.includes(field))
      expect(Object.keys(others).sort()).toEqual(frozen.sort())
    })

    test.each(Object.entries(others))("rejects a change, removal or addition of %s", async (field, other) => {
      const name = `with-${field.toLowerCase()}`
      const spec: Record<string, unknown> = { ...full, ...APART[field] }
      await client.create(resource, object(kind, { metadata: { name }, spec }))
      expect(await patch(name, { [field]: other })).toContain(`${field} is immutable`)
      const isRequired = schema.required?.includes(field)
      // Removing a field with a default sets it to the default, which is a change too.
      expect(await patch(name, { [field]: null })).toContain(isRequired ? "Required value" : `${field} is immutable`)
      if (isRequired) return
      const without = `without-${field.toLowerCase()}`
      await client.create(
        resource,
        object(kind, { metadata: { name: without }, spec: { ...spec, [field]: undefined } }),
      )
      expect(await patch(without, { [field]: spec[field] })).toContain(`${field} is immutable`)
    })

    test("allows a write that changes no frozen field", async () => {
      const stored = await client.create(resource, object(kind, { metadata: { name: "unchanged" }, spec: full }))
      expect(
        await refusalOf(client.replace(resource, { ...stored, metadata: { ...stored.metadata, labels: { a: "b" } } })),
      ).toBe(undefined)
    })
  },
)

describe("a field that may change only in one direction, or never", () => {
  const { client, namespace, object } = validators("oneway")
  beforeAll(() => installSpecLimits(client, namespace))

  test.each([
    [JOB, JOBS, "cancelled"],
    [JOB, JOBS, "debugEnded"],
    [LAUNCH, LAUNCHES, "ended"],
  ] as const)("allows or rejects the change %o", async (kind, corpus, field) => {
    const resource = declareResource<AnyObject>(kind as KindDefinition)
    const ref = { namespace, name: `oneway-${field.toLowerCase()}` }
    await client.create(resource, object(kind as KindDefinition, { metadata: ref, spec: corpus.base }))
    const set = (value: unknown) => refusalOf(client.patch(resource, ref, { merge: { spec: { [field]: value } } }))
    expect(await set(false)).toBeUndefined()
    expect(await set(true)).toBeUndefined()
    expect(await set(false)).toContain(`${field} cannot be set back to false`)
    expect(await set(null)).toContain(`${field} cannot be set back to false`)
    expect((await client.get(resource, ref)).spec?.[field]).toBe(true)
  })

  test("keeps a Connection's type, and allows new credentials", async () => {
    const resource = declareResource<AnyObject>(CONNECTIONS.kind)
    const ref = { namespace, name: "typed" }
    await client.create(resource, object(CONNECTIONS.kind, { metadata: ref, spec: CONNECTIONS.base }))
    const patch = (spec: object) => refusalOf(client.patch(resource, ref, { merge: { spec } }))
    expect(await patch({ type: "gcp" })).toContain("type is immutable")
    expect(await patch({ credentialsSecretRef: null, sealedCredentials: "AAAA" })).toBeUndefined()
    expect(await patch({ sealedCredentials: null })).toContain("exactly one of")
  })

  test("names all changed fields that are immutable, and no value", async () => {
    const resource = declareResource<AnyObject>(JOB)
    const ref = { namespace, name: "named" }
    await client.create(resource, object(JOBS.kind, { metadata: ref, spec: { ...JOBS.base, env: { A: "secret-1" } } }))
    const refusal = await refusalOf(
      client.patch(resource, ref, {
        merge: { spec: { image: "secret-2", env: { A: "secret-3" }, ttlSecondsAfterFinished: 1 } },
      }),
    )
    expect(refusal).toMatch(/spec\.image is immutable; .*delete the object and create it again with the other value$/)
    expect(refusal).toContain("spec.env is immutable; ")
    expect(refusal).not.toMatch(/secret-|ttlSeconds/)
  })

  test("allows to cancel a Job of the largest size, which has about 64 KiB: the rules are cheap enough", async () => {
    const jobs = declareResource<AnyObject>(JOB)
    const ref = { namespace, name: "large" }
    const full = (bytes: number, count: number) => items(count, "x".repeat(bytes / count))
    const spec = {
      ...JOBS.base,
      command: full(LIMITS.commandBytes, LIMITS.commandItems),
      args: full(LIMITS.commandBytes, LIMITS.commandItems),
      env: entries(LIMITS.envItems, "x".repeat(60)),
      labels: entries(LIMITS.labels, "x".repeat(61)),
      tags: full(LIMITS.tagBytes, LIMITS.tags),
      volumes: { a: { bucket: "b", mountPath: "/a", prefix: "p".repeat(LIMITS.prefix) } },
    }
    const stored = await client.create(jobs, object(JOB, { metadata: ref, spec }))
    expect(JSON.stringify(stored.spec).length).toBeGreaterThan(55_000)
    expect(JSON.stringify(stored.spec).length).toBeLessThan(80_000)
    expect(await refusalOf(client.patch(jobs, ref, { merge: { spec: { cancelled: true } } }))).toBeUndefined()
  })

  test("accepts numbers with a fraction or an exponent, as JSON allows", async () => {
    const { spec: _, ...head } = object(JOB, { metadata: { name: "numbers" }, spec: {} })
    const spec = '{"image":"a","maxRetries":1.0,"timeoutSeconds":1e1,"resources":{"cpu":2.0}}'
    const created = await kubectl(
      ["create", "--dry-run=server", "-o", "jsonpath={.spec}", "-f", "-"],
      `${JSON.stringify(head).slice(0, -1)},"spec":${spec}}`,
    )
    expect(JSON.parse(created)).toMatchObject({ maxRetries: 1, timeoutSeconds: 10, resources: { cpu: 2 } })
  })

  test("stores a Job with its defaults", async () => {
    const stored = await client.create(
      declareResource<AnyObject>(JOB),
      object(JOB, { metadata: { name: "least" }, spec: JOBS.base }),
    )
    expect(stored.spec).toEqual({ ...JOBS.base, maxRetries: 0, provisioning: "onDemand", cancelled: false })
  })
})

describe("a Job's status", () => {
  const { client, namespace, object } = validators("status")
  const jobs = declareResource<AnyObject>(JOB)

  test("changes only through its subresource, which changes nothing else", async () => {
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

  test("is in kubectl's columns, and kubectl selects by it", async () => {
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
  const { client, namespace, object } = validators("rules-keys")

  test("shows its expiry in kubectl, past or future", async () => {
    const times = { past: "2020-01-01T00:00:00Z", future: "2099-01-01T00:00:00Z" }
    for (const [name, expiresAt] of Object.entries(times)) {
      const spec = { ...API_KEYS.base, expiresAt }
      await client.create(
        declareResource<AnyObject>(API_KEYS.kind),
        object(API_KEYS.kind, { metadata: { name }, spec }),
      )
    }
    const [head = "", ...rows] = (await kubectl(["get", "bkey", "-n", namespace])).trim().split("\n")
    const column = head.indexOf("EXPIRES")
    const shown = rows.map((row) => [row.split(" ")[0], row.slice(column).split(" ")[0]])
    expect(Object.fromEntries(shown)).toEqual(times)
  })
})

describe("the CRDs", () => {
  const { client } = validators("crds")

  test("are committed as they are generated", async () => {
    for (const [path, content] of await generatedFiles()) {
      expect(await readFile(join(ROOT, path), "utf8"), `${path}: run npm run generate`).toBe(content)
    }
    expect(await staleFiles()).toEqual([])
    expect(await readdir(join(ROOT, "crds"))).toHaveLength(KINDS.length + 1)
  })

  test("are applied by kubectl without a warning, equal to the kinds installed without YAML", async () => {
    const generation = async (kind: KindDefinition) =>
      (await client.get(CRDS, { name: crdName(kind) })).metadata.generation
    const before = await Promise.all(KINDS.map(generation))
    await kubectl(["apply", "--server-side", "--force-conflicts", "--warnings-as-errors", "-k", join(ROOT, "crds")])
    expect(await Promise.all(KINDS.map(generation))).toEqual(before)
  })

  test.each(KINDS.map((kind) => [kind.kind, kind] as const))(
    "are structural where they are served: %s",
    async (_, kind) => {
      const { status, spec } = await client.get(CRDS, { name: crdName(kind) })
      expect(status.conditions.map((condition) => [condition.type, condition.status]).sort()).toEqual([
        ["Established", "True"],
        ["NamesAccepted", "True"],
      ])
      const root = spec.versions[0]?.schema.openAPIV3Schema
      expect(root?.required).toEqual(["spec"])
      expect(JSON.stringify(root)).not.toContain("x-berth-")
    },
  )

  test.each(KINDS.map((kind) => [kind.kind, kind] as const))("describe each field of the spec of %s", (_, kind) => {
    const undescribed = Object.entries(kind.spec.properties).filter(([, field]) => !("description" in field))
    expect(undescribed.map(([name]) => name)).toEqual([])
  })

  test("are explained by kubectl", async () => {
    // kubectl reads the API server's OpenAPI document, which shows new CRDs after a delay.
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

describe("the API server's message", () => {
  const judge = validators("messages")

  test.each<[Record<string, unknown>, RegExp]>([
    [{ resources: { cpu: 0.5 } }, /"number": spec.resources.cpu in body must be of type integer,string: "number"/],
    [{ resources: { cpu: "half" } }, /spec.resources.cpu: .* must be a number of vCPUs such as 2, "0.5" or "500m"$/],
    [{ resources: { cpu: 10_000 } }, /spec.resources.cpu: .* must be a number of vCPUs such as 2, "0.5" or "500m"$/],
    [{ resources: { memory: "24GB" } }, /spec.resources.memory: .* must be a size with a unit .* such as 4Gi$/],
    [{ image: "UPPER" }, /spec.image: .* with the name in lower case, such as alpine:3.20$/],
    [{ args: ["a\u0000"] }, /spec.args\[0\]: .* must be a text without NUL characters$/],
    [{ args: ["x".repeat(10_000), "x".repeat(10_000)] }, /spec.args: .* must have at most 16384 bytes in total$/],
  ])("says once what to write for %j", async (fields, message) => {
    const said = await judge.server(JOB, { spec: { ...JOBS.base, ...fields } })
    expect(said).toMatch(message)
    expect(said?.match(/Invalid value: (?!null)/g)).toHaveLength(1)
  })
})
