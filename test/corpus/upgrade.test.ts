import { KubeConfig } from "@kubernetes/client-node"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { CRD_KIND, INSTALLER, installKinds } from "../../dev/install.ts"
import { CONNECTION } from "../../src/apis/connection.ts"
import { crdObjects } from "../../src/apis/crd.ts"
import { CRON_JOB } from "../../src/apis/cronjob.ts"
import { JOB, JOB_FINALIZER } from "../../src/apis/job.ts"
import { LAUNCH } from "../../src/apis/launch.ts"
import { KubeClient } from "../../src/kube/client.ts"
import { ifFound } from "../../src/kube/errors.ts"
import { type ApiObject, resourceOf, type ServerMeta } from "../../src/kube/resource.ts"
import { eventually } from "../cloud/eventually.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { LAUNCHES } from "./launch.ts"
import { type AnyObject, installSpecLimits, refusalOf } from "./server.ts"

/**
 * Objects that the previous version stored and the present rules reject. The API server must still accept changes from
 * controllers and users (Kubernetes' validation ratcheting). The suite has a control plane of its own, because it
 * installs the former kinds for some time.
 */

const CRDS = resourceOf<ApiObject & { spec: unknown }>(CRD_KIND)

const RESOURCES = {
  job: resourceOf<AnyObject>(JOB),
  cronJob: resourceOf<AnyObject>(CRON_JOB),
  connection: resourceOf<AnyObject>(CONNECTION),
  launch: resourceOf<AnyObject>(LAUNCH),
}

const RUN = { image: "alpine", secretEnv: { A: { secret: "../../beta/secrets/envs", key: "a/b" } } }

const namespace = "default"
let controlPlane: ControlPlane
let client: KubeClient

beforeAll(async () => {
  controlPlane = await startPrivateControlPlane()
  const kubeConfig = new KubeConfig()
  kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
  client = new KubeClient(kubeConfig)
  for (const crd of crdObjects()) await client.apply(CRDS, formerKind(crd), INSTALLER)
  await installed(formerKinds)
  for (const name of ["run", "cancel", "delete"]) await client.create(RESOURCES.job, object("job", name, RUN))
  await client.create(RESOURCES.cronJob, object("cronJob", "tick", { schedule: "@hourly", jobDefinition: RUN }))
  const secretRef = { type: "aws", credentialsSecretRef: { name: "Aws/1" } }
  await client.create(RESOURCES.connection, object("connection", "aws", secretRef))
  await writeTogether(client, 1)
  await installKinds(client, AbortSignal.timeout(60_000))
  await installed(presentKinds)
  await installSpecLimits(client, namespace)
})
afterAll(async () => {
  await client?.close()
  await controlPlane?.stop()
})

/** Returns a former kind: before names of Secrets and their keys had a pattern, and before fields of Berth were atomic. */
function formerKind(crd: ReturnType<typeof crdObjects>[number]) {
  const json = JSON.stringify(crd, (key, value: unknown) => {
    if (key === "x-kubernetes-map-type") return undefined
    const isSecret = typeof value === "object" && value !== null && "pattern" in value && "description" in value
    if (!isSecret || !/^(Name of the|Key in the) Secret/.test(String(value.description))) return value
    const { pattern: _, ...rest } = value
    return rest
  })
  return JSON.parse(json) as typeof crd
}

const OWNED = { namespace, name: "owned" }

/**
 * Writes a Job and its Launch like everyone who writes them: two tools by server-side apply, which agree on a part of the
 * spec and have a condition each, and Berth's controllers. @param round another one changes the values
 */
async function writeTogether(by: KubeClient, round: number): Promise<void> {
  const { job, launch } = RESOURCES
  const resources = { cpu: 1 }
  const [gitOps, policy] = [{ fieldManager: "gitops" }, { fieldManager: "policy" }]
  const labels = { team: `team-${round}` }
  const spec = { image: "alpine", env: { A: "1", B: "2" }, resources }
  await by.apply(job, { metadata: { ...OWNED, labels }, spec }, gitOps)
  const annotations = { audited: `round-${round}` }
  const part = { env: { A: "1" }, resources, ttlSecondsAfterFinished: round }
  await by.apply(job, { metadata: { ...OWNED, annotations }, spec: part }, policy)
  const { status: before, ...stored } = await by.get(job, OWNED)
  const conditions = ((before?.["conditions"] ?? []) as { type: string }[]).filter(({ type }) => type !== "Placed")
  const placement = {
    offer: { ...(LAUNCHES.base["offer"] as object), hourlyPriceUsd: round },
    reason: `round ${round}`,
  }
  // The next round has no address: a PUT removes it.
  const vm = { state: "booting", id: "vm-1", ...(round === 1 && { ipAddress: "192.0.2.1" }) }
  const status = { phase: "booting", placement, vm, conditions: [...conditions, condition("Placed", round)] }
  await by.replaceStatus(job, { ...stored, status }, { fieldManager: "berth-job-controller" })
  for (const tool of [gitOps, policy]) {
    const told = { status: { conditions: [condition(tool.fieldManager, round)] } }
    await by.applyStatus(job, { metadata: OWNED, ...told }, tool)
  }
  const running = { phase: "created", vm: { state: "booting", id: `vm-${round}` } }
  const agent = { ...{ signingKey: "{}", encryptionKey: "{}", registrationTime: TIME }, sequence: round, retryCount: 0 }
  if (round === 1) await by.create(launch, { metadata: OWNED, spec: LAUNCHES.base } as AnyObject)
  await by.patchStatus(launch, OWNED, { merge: { status: running } }, { fieldManager: "berth-launch-controller" })
  await by.patchStatus(launch, OWNED, { merge: { status: { agent } } }, { fieldManager: "berth-gateway" })
}

const TIME = "2026-01-01T00:00:00Z"

function condition(type: string, round: number) {
  return { type, status: "True", lastTransitionTime: TIME, reason: "Told", message: `round ${round}` }
}

function object(kind: keyof typeof RESOURCES, name: string, spec: Record<string, unknown>): AnyObject {
  const finalizers = kind === "launch" ? [] : [JOB_FINALIZER]
  return { metadata: { namespace, name, finalizers }, spec }
}

async function refuses(kind: "job" | "connection" | "cronJob", spec: Record<string, unknown>): Promise<boolean> {
  return (await refusalOf(client.create(RESOURCES[kind], object(kind, "probe", spec), { dryRun: true }))) !== undefined
}

async function formerKinds(): Promise<boolean> {
  return !(await refuses("job", RUN)) && !(await refuses("cronJob", { schedule: "@daily", jobDefinition: RUN }))
}

async function presentKinds(): Promise<boolean> {
  const connection = { type: "aws", credentialsSecretRef: { name: "Aws/1" } }
  const cronJob = { schedule: "@daily", jobDefinition: RUN }
  return (await refuses("job", RUN)) && (await refuses("cronJob", cronJob)) && (await refuses("connection", connection))
}

/** The API server serves a changed kind after a delay. */
async function installed(serves: () => Promise<boolean>): Promise<void> {
  await eventually(async () => expect(await serves().catch(() => false)).toBe(true))
}

describe("an object that several write", () => {
  it("accepts the writes of all of them as before, by server-side apply and otherwise", async () => {
    for (const round of [2, 3]) await writeTogether(client, round)
    const { metadata, spec, status } = await client.get(RESOURCES.job, OWNED)
    expect(metadata).toMatchObject({ labels: { team: "team-3" }, annotations: { audited: "round-3" } })
    expect(spec).toMatchObject({ env: { A: "1", B: "2" }, ttlSecondsAfterFinished: 3 })
    expect(status).toMatchObject({ placement: { reason: "round 3", offer: { hourlyPriceUsd: 3 } } })
    expect(status?.["vm"]).toEqual({ state: "booting", id: "vm-1" })
    const conditions = status?.["conditions"] as ReturnType<typeof condition>[]
    expect(conditions.map(({ type, message }) => `${type}: ${message}`).toSorted()).toEqual([
      "Placed: round 3",
      "gitops: round 3",
      "policy: round 3",
    ])
    const launch = await client.get(RESOURCES.launch, OWNED)
    expect(launch.status).toMatchObject({ vm: { id: "vm-3" }, agent: { sequence: 3, registrationTime: TIME } })
  })

  it("names each field of the status once in managedFields, and each condition", async () => {
    const { metadata } = await client.get(RESOURCES.job, OWNED)
    const entry = (metadata as ServerMeta).managedFields?.find(({ manager }) => manager === "berth-job-controller")
    const { "f:status": fields } = (entry?.fieldsV1 ?? {}) as { "f:status"?: Record<string, object> }
    expect([fields?.["f:placement"], fields?.["f:vm"]]).toEqual([{}, {}])
    expect(Object.keys(fields?.["f:conditions"] ?? {})).toContain('k:{"type":"Placed"}')
  })

  it("names the spec of a Launch once in managedFields, and ends a stored Launch of a former kind", async () => {
    const fieldManager = "berth-job-controller"
    const spec = { ...LAUNCHES.base, ended: false }
    const created = await client.create(RESOURCES.launch, object("launch", "named", spec), { fieldManager })
    const [entry] = (created.metadata as ServerMeta).managedFields ?? []
    expect(entry?.fieldsV1).toEqual({ "f:spec": {} })
    const { spec: stored } = await client.get(RESOURCES.launch, OWNED)
    const ended = { merge: { spec: { ended: true } } }
    const written = await client.patch(RESOURCES.launch, OWNED, ended, { fieldManager })
    expect(written.spec).toEqual({ ...stored, ended: true })
  })
})

describe("a stored object that the present rules refuse", () => {
  it("allows writes of a Job's status, and of its run into a Launch, for a stored invalid Job", async () => {
    const ref = { namespace, name: "run" }
    const job = await client.get(RESOURCES.job, ref)
    await client.replaceStatus(RESOURCES.job, { ...job, status: { phase: "queued" } })
    await client.patchStatus(RESOURCES.job, ref, { merge: { status: { phase: "booting" } } })
    await client.patch(RESOURCES.job, ref, { merge: { metadata: { annotations: { a: "b" }, labels: { c: "d" } } } })
    const spec = { ...LAUNCHES.base, run: job.spec?.["secretEnv"] === undefined ? {} : RUN }
    await client.create(RESOURCES.launch, object("launch", "run-1", spec))
    expect((await client.get(RESOURCES.job, ref)).status).toMatchObject({ phase: "booting" })
  })

  it("allows to cancel a stored invalid Job, and keeps its immutable fields", async () => {
    const ref = { namespace, name: "cancel" }
    await client.patch(RESOURCES.job, ref, { merge: { spec: { cancelled: true } } })
    const other = { spec: { secretEnv: { A: { key: "c/d" } } } }
    expect(await refusalOf(client.patch(RESOURCES.job, ref, { merge: other }))).toMatch(/secretEnv/)
    const mended = { spec: { secretEnv: { A: { secret: "envs", key: "k" } } } }
    expect(await refusalOf(client.patch(RESOURCES.job, ref, { merge: mended }))).toMatch(/secretEnv is immutable/)
    const back = { spec: { cancelled: false } }
    expect(await refusalOf(client.patch(RESOURCES.job, ref, { merge: back }))).toMatch(/cannot be set back/)
    expect((await client.get(RESOURCES.job, ref)).spec).toEqual({
      ...RUN,
      cancelled: true,
      maxRetries: 0,
      provisioning: "onDemand",
    })
  })

  it("allows to pause a stored invalid CronJob and to change its other fields", async () => {
    const ref = { namespace, name: "tick" }
    await client.patch(RESOURCES.cronJob, ref, { merge: { spec: { active: false } } })
    const cronJob = await client.get(RESOURCES.cronJob, ref)
    await client.replace(RESOURCES.cronJob, { ...cronJob, spec: { ...cronJob.spec, schedule: "@daily" } })
    await client.patchStatus(RESOURCES.cronJob, ref, { merge: { status: { observedGeneration: 2 } } })
    expect((await client.get(RESOURCES.cronJob, ref)).spec).toMatchObject({ active: false, schedule: "@daily" })
    const mended = { spec: { jobDefinition: { secretEnv: { A: { secret: "envs", key: "k" } } } } }
    await client.patch(RESOURCES.cronJob, ref, { merge: mended })
    const broken = { spec: { jobDefinition: { secretEnv: { A: { secret: "Envs" } } } } }
    expect(await refusalOf(client.patch(RESOURCES.cronJob, ref, { merge: broken }))).toMatch(/secretEnv/)
  })

  it("allows writes of a stored invalid Connection's status", async () => {
    const ref = { namespace, name: "aws" }
    await client.patchStatus(RESOURCES.connection, ref, { merge: { status: { observedGeneration: 1 } } })
    expect((await client.get(RESOURCES.connection, ref)).status).toMatchObject({ observedGeneration: 1 })
  })

  it.each([
    ["job", "delete"],
    ["cronJob", "tick"],
    ["connection", "aws"],
  ] as const)("allows to delete a stored invalid object and to remove its finalizer: %s", async (kind, name) => {
    const ref = { namespace, name }
    await client.delete(RESOURCES[kind], ref)
    const held = await client.get(RESOURCES[kind], ref)
    await client.replace(RESOURCES[kind], { ...held, metadata: { ...held.metadata, finalizers: [] } })
    expect(await ifFound(client.get(RESOURCES[kind], ref))).toBeUndefined()
  })
})
