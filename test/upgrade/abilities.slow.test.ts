import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest"
import { ANNOTATIONS, API_VERSION } from "../../src/core/apis/meta.ts"
import { ABILITIES_POLICY, OPERATOR_ABILITIES, OPERATOR_LEASE } from "../../src/core/identity/installation.ts"
import { LeaderElector, type Lease, leases } from "../../src/core/kube/lease.ts"
import { JOBS } from "../../src/core/resources.ts"
import { kubectl, testNamespace } from "../control-plane.ts"
import { BINDINGS, bindAbilities } from "../harness/abilities.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture, removeJob } from "../harness/facade-project.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"

/** The policy of manifests/base, asked for the Lease of this suite. */
const fixture = projectFixture("abilities")
const systemNamespace = testNamespace("abilities-system")
const ref = { namespace: systemNamespace, name: OPERATOR_LEASE }
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
  await bindAbilities(fixture.client, { namespace: fixture.namespace, systemNamespace })
})
afterAll(() => replica.close())
afterEach(async () => {
  for (const { metadata } of (await fixture.client.list(JOBS, { namespace: fixture.namespace })).items)
    await removeJob(fixture, metadata)
  await kubectl(["-n", fixture.namespace, "delete", "jobarrays.berth.dev", "--all"])
})

const AFTER = { after: [{ job: "prepare" }] }

/** Returns the manifest of a Job. */
function job(name: string, spec: object = {}, annotations: Record<string, string> = {}): string {
  const metadata = { name, namespace: fixture.namespace, annotations }
  return JSON.stringify({ apiVersion: API_VERSION, kind: "Job", metadata, spec: { image: "a", ...spec } })
}

/** Returns the manifest of a JobArray. */
function array(name: string, spec: object = {}, annotations: Record<string, string> = {}): string {
  const metadata = { name, namespace: fixture.namespace, annotations }
  const definition = { jobDefinition: { image: "a" }, size: 2 }
  return JSON.stringify({ apiVersion: API_VERSION, kind: "JobArray", metadata, spec: { ...definition, ...spec } })
}

const create = (manifest: string) => kubectl(["create", "-f", "-"], manifest)
const apply = (manifest: string) => kubectl(["apply", "--server-side", "-f", "-"], manifest)

/** Replaces the spec of the Lease, and its text about abilities; undefined: like 0.1.0, which keeps what it finds. */
async function writeLease(spec: Lease["spec"], abilities?: string): Promise<void> {
  const found = await fixture.client.get(leases, ref)
  const annotations = {
    ...found.metadata.annotations,
    ...(abilities !== undefined && { [ANNOTATIONS.abilities]: abilities }),
  }
  await fixture.client.replace(leases, { ...found, metadata: { ...found.metadata, annotations }, spec })
}

/** Resolves when the API server's copy of the Lease leads to this answer for a Job. */
async function untilSaid(message: string | undefined): Promise<void> {
  const dryRun = () => kubectl(["create", "--dry-run=server", "-f", "-"], job("probe", AFTER))
  const said = () =>
    dryRun().then(
      () => undefined,
      ({ message }: Error) => message,
    )
  await eventually(async () => {
    if (message === undefined) expect(await said()).toBeUndefined()
    else expect(await said()).toContain(message)
  })
}

/** Expects that kubectl and REST reject what has `after`, with this message, and accept what has none. */
async function expectRejected(message: string): Promise<void> {
  await untilSaid(message)
  for (const attempt of [create, apply]) {
    await expect(attempt(job("dependent", AFTER))).rejects.toThrow(message)
    await expect(attempt(array("dependents", AFTER))).rejects.toThrow(message)
  }
  for (const path of ["/1/jobs", "/1/jobs?dry_run=true"]) {
    const response = await call(path, { body: { name: "dependent", image: "a", ...AFTER } })
    expect([response.status, response.headers.get("retry-after")], path).toEqual([503, "5"])
    const { type, detail } = await problemIn(response)
    expect(type).toContain("unavailable")
    expect(detail).toMatch(new RegExp(`^${message}`))
  }
  await create(job("free", { after: [] }))
  await create(array("frees"))
  expect((await call("/1/jobs", { body: { name: "other", image: "a" } })).status).toBe(201)
}

/** Expects that kubectl and REST accept what has `after`. */
async function expectAccepted(): Promise<void> {
  await untilSaid(undefined)
  await create(job("created", AFTER))
  await apply(job("applied", AFTER))
  await create(array("created", AFTER))
  expect((await call("/1/jobs", { body: { name: "posted", image: "a", ...AFTER } })).status).toBe(201)
}

/** Runs `check` while an operator's elector with these abilities leads. It releases the Lease at its end. */
async function whileLeading(abilities: readonly string[], check: () => Promise<void>): Promise<void> {
  const stop = new AbortController()
  const { client } = fixture
  const elector = new LeaderElector({ client, lease: ref, identity: "of-now", abilities, logger: silentLogger })
  await elector.run(() => check().finally(() => stop.abort()), stop.signal)
}

/** Returns the manifest of a CronJob, or of its change. */
function cronJob(name: string, definition: object): string {
  const metadata = { name, namespace: fixture.namespace }
  const spec = { schedule: "0 0 1 1 *", jobDefinition: { image: "a", ...definition } }
  return JSON.stringify({ apiVersion: API_VERSION, kind: "CronJob", metadata, spec })
}

const OLDER = "The leading operator is older than version 0.2.0"
const NO_LEADER = "No operator leads now"

describe("`after`", () => {
  it("is rejected while no operator leads", () => expectRejected(NO_LEADER))

  it("is accepted while an operator of this version leads, and rejected after it has released the Lease", async () => {
    await whileLeading(OPERATOR_ABILITIES, expectAccepted)
    expect((await fixture.client.get(leases, ref)).metadata.annotations).toBeDefined()
    await expectRejected(NO_LEADER)
  })

  it("is rejected while an operator leads that announces other abilities only", () =>
    whileLeading(["afterwards", "before"], () => expectRejected(OLDER)))

  it("is rejected while an operator leads that took the Lease from an able one, and kept its text", async () => {
    await writeLease({ holderIdentity: "of-now" }, "of-now=after")
    await untilSaid(undefined)
    await writeLease({ holderIdentity: "of-0.1.0" })
    await expectRejected(OLDER)
    await writeLease({ holderIdentity: "of-now-2" })
    await untilSaid(OLDER)
  })

  it("is accepted among other abilities of the leader", async () => {
    await writeLease({ holderIdentity: "later" }, "later=more,after,most")
    await expectAccepted()
  })

  it("is accepted in a restored object, which never starts", async () => {
    await writeLease({ holderIdentity: "" }, "")
    await untilSaid(NO_LEADER)
    const restored = { [ANNOTATIONS.recordedUid]: "5d3c5a0e-3f36-4a3a-9d3c-0c6d0c8f2f10" }
    expect(await create(job("restored", AFTER, restored))).toContain("created")
    expect(await create(array("restored", AFTER, restored))).toContain("created")
  })

  it("is accepted or rejected by the Lease in the system namespace, where no suite has one", async () => {
    const { spec } = await fixture.client.get(BINDINGS, { name: ABILITIES_POLICY })
    const paramRef = { name: OPERATOR_LEASE, namespace: SYSTEM_NAMESPACE, parameterNotFoundAction: "Allow" }
    expect(spec).toMatchObject({ policyName: ABILITIES_POLICY, paramRef, validationActions: ["Deny"] })
  })

  it("is accepted before any operator has led", async () => {
    await fixture.client.delete(leases, ref)
    await untilSaid(undefined)
  })
})

/** A field of jobs and of definitions, another value of it, and what a leader without the ability is said to do. */
const FIELDS = [
  {
    ability: "reuse",
    field: { reuse: { idleSeconds: 60 } },
    other: { reuse: { idleSeconds: 90 } },
    harm: "would not let another job have the VM",
    unknown: "whether the next one knows reuse",
  },
  {
    ability: "group",
    field: { concurrencyGroup: { name: "db", limit: 1 } },
    other: { concurrencyGroup: { name: "db", limit: 2 } },
    harm: "would run more jobs of the concurrencyGroup than its limit",
    unknown: "whether the next one knows concurrencyGroup",
  },
  {
    ability: "readOnly",
    field: { volumes: { data: { bucket: "data", mountPath: "/data", readOnly: true } } },
    other: { volumes: { data: { bucket: "data", mountPath: "/elsewhere", readOnly: true } } },
    harm: "would mount a volume with readOnly writable",
    unknown: "whether the next one knows readOnly of volumes",
  },
  {
    ability: "nebius",
    field: { cloud: ["nebius", "aws"] },
    other: { cloud: ["nebius"] },
    harm: "does not know the cloud nebius",
    unknown: "whether the next one knows the cloud nebius",
  },
  {
    ability: "own",
    field: { cloud: ["own"] },
    other: { cloud: ["aws", "own"] },
    harm: "does not know the cloud own",
    unknown: "whether the next one knows the cloud own",
  },
]

describe.each(FIELDS)("`$ability`", ({ ability, field, other, harm, unknown }) => {
  const ARRAY = { jobDefinition: { image: "a", ...field } }
  const named = (name: string) => `${name}-${ability.toLowerCase()}`
  const patch = (name: string, change: object) =>
    kubectl([
      "-n",
      fixture.namespace,
      "patch",
      "cronjobs.berth.dev",
      name,
      "--type=merge",
      "-p",
      JSON.stringify(change),
    ])

  beforeAll(async () => {
    const metadata = { name: ref.name, namespace: ref.namespace }
    await fixture.client.create(leases, { metadata, spec: { holderIdentity: "old" } } as Lease)
  })
  afterAll(async () => {
    await kubectl(["-n", fixture.namespace, "delete", "cronjobs.berth.dev", "--all"])
    await fixture.client.delete(leases, ref)
  })

  it("is accepted in jobs, arrays and cronjobs while the leader has the ability", async () => {
    await writeLease({ holderIdentity: "able" }, `able=after,${ability}`)
    await untilSaid(undefined)
    await create(job(named("reuses"), field))
    await create(array(named("reuses"), ARRAY))
    await create(cronJob(named("reuses"), field))
  })

  it("is rejected while an operator leads that knows only `after`", async () => {
    await writeLease({ holderIdentity: "older" }, "older=after")
    await eventually(() => expect(create(job(named("probe"), field))).rejects.toThrow(harm))
    await create(job(named("waits"), AFTER))
    for (const manifest of [array(named("rejected"), ARRAY), cronJob(named("rejected"), field)])
      await expect(create(manifest)).rejects.toThrow(OLDER)
    const response = await call("/1/jobs", { body: { name: named("rejected"), image: "a", ...field } })
    expect([response.status, (await problemIn(response)).detail]).toEqual([503, expect.stringContaining(OLDER)])
  })

  it("is rejected in a change of a cronjob that has none, and does not keep others from changes", async () => {
    await create(cronJob(named("plain"), {}))
    await expect(patch(named("plain"), { spec: { jobDefinition: field } })).rejects.toThrow(OLDER)
    await patch(named("plain"), { spec: { active: false } })
    await patch(named("reuses"), { spec: { active: false } })
    await patch(named("reuses"), { spec: { jobDefinition: other } })
  })

  it("is rejected while no operator leads", async () => {
    await writeLease({ holderIdentity: "" }, "")
    await eventually(() => expect(create(job(named("probe"), field))).rejects.toThrow(unknown))
  })
})
