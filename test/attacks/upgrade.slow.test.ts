import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { KubeConfig } from "@kubernetes/client-node"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { parse } from "yaml"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { CRD_KIND, INSTALLER, installKinds } from "../../dev/install.ts"
import { CronJobReason, type StoredCronJob } from "../../src/apis/cronjob.ts"
import { JOB, JOB_FINALIZER, type StoredJob } from "../../src/apis/job.ts"
import { LAUNCH } from "../../src/apis/launch.ts"
import { ORGANIZATION } from "../../src/apis/organization.ts"
import { errorsOfObject } from "../../src/apis/validate.ts"
import { decide } from "../../src/controllers/cronjob/decide.ts"
import { CACHE_OPTIONS, CRON_JOBS, JOBS } from "../../src/facade/caches.ts"
import { Changes } from "../../src/facade/changes.ts"
import { Collection } from "../../src/facade/collection.ts"
import { changedSpec, cronJobRecordOf, errorsOfResumption } from "../../src/facade/cronjobs/translate.ts"
import { KeyedMutex } from "../../src/facade/idempotency.ts"
import { Jobs } from "../../src/facade/jobs/jobs.ts"
import { recordOf } from "../../src/facade/jobs/record.ts"
import { KubeClient } from "../../src/kube/client.ts"
import { ifFound } from "../../src/kube/errors.ts"
import { Reflector } from "../../src/kube/reflector.ts"
import { type ApiObject, resourceOf } from "../../src/kube/resource.ts"
import { createLogger } from "../../src/telemetry/logger.ts"
import { eventually } from "../cloud/eventually.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { entries, items } from "../corpus/corpus.ts"
import { LAUNCHES as LAUNCH_CASES } from "../corpus/launch.ts"
import { type AnyObject, refusalOf } from "../corpus/server.ts"
import { plainClient } from "../facade/harness.ts"

/**
 * The worst objects that the version before the rules of this one accepted. `former-crds/` has its kinds. The suite has
 * a control plane of its own, because it installs these kinds for some time.
 */

const CRDS = resourceOf<ApiObject & { spec: unknown }>(CRD_KIND)
const ANY_JOB = resourceOf<AnyObject>(JOB)
const ORGANIZATIONS = resourceOf<AnyObject>(ORGANIZATION)
const LAUNCHES = resourceOf<AnyObject>(LAUNCH)

const VOLUME = { bucket: "data", mountPath: "/data" }
const SECRET = { secret: "s", key: "k" }

/** Specs of Jobs that the present rules reject, by name. */
const WORST: Record<string, Record<string, unknown>> = {
  "nul-in-command": { image: "alpine", command: ["a\u0000b"] },
  "nul-in-args": { image: "alpine", args: ["\u0000"] },
  "nul-in-env": { image: "alpine", env: { A: "\u0000" } },
  "upper-image": { image: "UPPER" },
  "image-without-tag": { image: "alpine:" },
  "image-url": { image: "http://x/y" },
  "image-digest": { image: "a@sha256:zz" },
  "root-mount": { image: "alpine", volumes: { a: { ...VOLUME, mountPath: "/" } } },
  "dotted-mount": { image: "alpine", volumes: { a: { ...VOLUME, mountPath: "/a/../b" } } },
  "one-mount": { image: "alpine", volumes: { a: VOLUME, b: VOLUME } },
  "nul-in-prefix": { image: "alpine", volumes: { a: { ...VOLUME, prefix: "\u0000" } } },
  "env-twice": { image: "alpine", env: { A: "1" }, secretEnv: { A: SECRET } },
  "large-command": { image: "alpine", command: items(256, "x".repeat(1000)) },
  "large-secret-env": { image: "alpine", secretEnv: entries(64, { secret: "s".repeat(253), key: "k".repeat(253) }) },
  "large-volumes": { image: "alpine", volumes: entries(16, { ...VOLUME, prefix: "p".repeat(1024) }) },
  "large-labels": { image: "alpine", labels: entries(64, "v".repeat(1024)) },
  "large-tags": { image: "alpine", tags: items(64, "t".repeat(256)) },
  // Near etcd's limit of 1.5 MiB.
  largest: { image: "UPPER", env: entries(40, "x".repeat(32_768)), args: items(50, "y\u0000".repeat(100)) },
  everything: {
    image: "UPPER",
    command: ["\u0000"],
    env: { A: "\u0000".repeat(20_000) },
    secretEnv: { A: SECRET },
    volumes: { a: { ...VOLUME, mountPath: "/" }, b: { ...VOLUME, mountPath: "/" } },
    tags: items(64, "t".repeat(256)),
  },
}
const NAMES = Object.keys(WORST)

const SCHEDULES = { ninety: "99 0 * * *", six: "0 0 0 * * *", quartz: "0 0 L * *", never: "0 0 30 2 *" }

const namespace = "default"
const owner = { projectId: "p", organizationId: "o" }
let controlPlane: ControlPlane
let client: KubeClient
let jobs: Jobs
let cronJobs: Collection<StoredCronJob>
const running = new AbortController()
let loops: Promise<unknown>[] = []

function object(name: string, spec: Record<string, unknown>): AnyObject {
  return { metadata: { namespace, name, finalizers: [JOB_FINALIZER] }, spec }
}

function cronJob(name: string, spec: Record<string, unknown>): StoredCronJob {
  return { metadata: { namespace, name }, spec } as unknown as StoredCronJob
}

beforeAll(async () => {
  controlPlane = await startPrivateControlPlane()
  const kubeConfig = new KubeConfig()
  kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
  client = new KubeClient(kubeConfig)
  await installKinds(client, AbortSignal.timeout(60_000))
  await installFormerKinds()
  for (const [name, spec] of Object.entries(WORST)) {
    await client.create(ANY_JOB, object(name, spec))
    await client.create(CRON_JOBS, cronJob(name, { schedule: "@hourly", jobDefinition: spec, active: true }))
  }
  for (const [name, schedule] of Object.entries(SCHEDULES))
    await client.create(CRON_JOBS, cronJob(name, { schedule, jobDefinition: { image: "alpine" } }))
  await client.create(ORGANIZATIONS, { metadata: { name: "blank" }, spec: { displayName: " \u0000" } })
  await installKinds(client, AbortSignal.timeout(60_000))
  await eventually(async () => expect(await isRefused("upper-image")).toBe(true))
  await startFacadesParts()
})
afterAll(async () => {
  running.abort()
  await Promise.all(loops)
  await client?.close()
  await controlPlane?.stop()
})

async function installFormerKinds(): Promise<void> {
  const folder = join(import.meta.dirname, "former-crds")
  for (const file of await readdir(folder))
    await client.apply(CRDS, parse(await readFile(join(folder, file), "utf8")), INSTALLER)
  await eventually(async () => expect(await isRefused("upper-image")).toBe(false))
}

async function startFacadesParts(): Promise<void> {
  const logger = createLogger({ level: "silent", name: "test" })
  const jobCache = new Reflector<StoredJob>({ client, logger, ...CACHE_OPTIONS.jobs })
  const cronJobCache = new Reflector<StoredCronJob>({ client, logger, ...CACHE_OPTIONS.cronJobs })
  loops = [jobCache, cronJobCache].map((cache) => cache.run(running.signal))
  await jobCache.whenSynced(AbortSignal.timeout(60_000))
  await cronJobCache.whenSynced(AbortSignal.timeout(60_000))
  const rights = plainClient(client)
  jobs = new Jobs(rights, jobCache.store, namespace)
  const kind = {
    noun: "cronjob",
    resource: CRON_JOBS,
    store: cronJobCache.store,
    mutexes: { creations: new KeyedMutex(), changes: new Changes() },
  }
  cronJobs = new Collection({ ...kind, namespace, reader: client, writer: rights })
}

/** True if the API server rejects a new Job and a new CronJob. Both kinds are served after a delay. */
async function isRefused(name: string): Promise<boolean> {
  const spec = WORST[name] ?? {}
  const job = await refusalOf(client.create(ANY_JOB, object("probe", spec), { dryRun: true }))
  const definition = { schedule: "@hourly", jobDefinition: spec }
  const other = await refusalOf(client.create(CRON_JOBS, cronJob("probe", definition), { dryRun: true }))
  if ((job === undefined) !== (other === undefined)) throw new Error("one of the kinds is not served yet")
  return job !== undefined
}

describe("after an upgrade", () => {
  it.each(NAMES)("a new object like it is rejected, by the API server and by the validator: %s", async (name) => {
    expect(await isRefused(name)).toBe(true)
    const { apiVersion, kind, metadata, spec } = await client.get(JOBS, { namespace, name })
    expect(errorsOfObject(JOB, { apiVersion, kind, metadata, spec })).not.toEqual([])
  })

  it.each(NAMES)("a stored Job still runs: its status, metadata and Launch are written: %s", async (name) => {
    const ref = { namespace, name }
    await client.patchStatus(ANY_JOB, ref, { merge: { status: { phase: "booting" } } })
    await client.patch(ANY_JOB, ref, { merge: { metadata: { annotations: { a: "b" } } } })
    const { cloud: _, labels: __, tags: ___, maxRetries = 0, ...run } = WORST[name] ?? {}
    const spec = { ...LAUNCH_CASES.base, run: { ...run, maxRetries } }
    const launch = { metadata: { namespace, name: `${name}-1` }, spec }
    expect(await refusalOf(client.create(LAUNCHES, launch, { dryRun: true }))).toBeUndefined()
    const job = await client.get(JOBS, ref)
    expect(job.status?.phase).toBe("booting")
    expect(recordOf(job, owner)).toMatchObject({ name, image: WORST[name]?.["image"] })
  })

  it.each(NAMES)("a stored Job can be cancelled by the REST API, and deleted: %s", async (name) => {
    const ref = { namespace, name }
    expect((await jobs.cancel(name)).spec.cancelled).toBe(true)
    await client.delete(ANY_JOB, ref)
    const held = await client.get(ANY_JOB, ref)
    await client.replace(ANY_JOB, { ...held, metadata: { ...held.metadata, finalizers: [] } })
    expect(await ifFound(client.get(ANY_JOB, ref))).toBeUndefined()
  })

  it.each([...NAMES, ...Object.keys(SCHEDULES)])(
    "a stored CronJob says what to change, and can be paused and deleted by the REST API: %s",
    async (name) => {
      const stored = await client.get(CRON_JOBS, { namespace, name })
      const { status } = decide(stored, { jobs: [], changedAt: undefined }, new Date())
      expect(status?.conditions?.[0]).toMatchObject({
        reason: NAMES.includes(name) ? CronJobReason.InvalidDefinition : CronJobReason.InvalidSchedule,
        message: expect.stringMatching(NAMES.includes(name) ? /jobDefinition\./ : /^schedule /),
      })
      if (status !== undefined) await client.replaceStatus(CRON_JOBS, { ...stored, status })
      const change = (body: Parameters<typeof changedSpec>[1]) =>
        cronJobs.change(name, (present) => {
          const spec = changedSpec(present.spec, body)
          return spec && { ...present, spec }
        })
      const paused = await change({ is_active: false })
      expect(cronJobRecordOf(paused, owner).is_active).toBe(false)
      expect(errorsOfResumption(paused.spec, { is_active: true })).toEqual([
        { pointer: "/is_active", detail: expect.stringContaining("send a valid") },
      ])
      const mended = await change({ job_definition: { image: "alpine" }, cron_spec: "@daily", is_active: true })
      expect(mended.spec).toMatchObject({ schedule: "@daily", active: true, jobDefinition: { image: "alpine" } })
      await cronJobs.remove(name)
      expect(await ifFound(client.get(CRON_JOBS, { namespace, name }))).toBeUndefined()
    },
  )

  it("a stored Organization with a blank name can be changed and deleted", async () => {
    const ref = { name: "blank" }
    await client.patch(ORGANIZATIONS, ref, { merge: { spec: { category: "other" } } })
    await client.patchStatus(ORGANIZATIONS, ref, { merge: { status: { observedGeneration: 1 } } })
    await client.delete(ORGANIZATIONS, ref)
    expect(await ifFound(client.get(ORGANIZATIONS, ref))).toBeUndefined()
  })
})
