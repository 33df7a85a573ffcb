import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, expect } from "vitest"
import { installBase } from "../../dev/base.ts"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { cloudsOf, type Provider } from "../../src/clouds/provider.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { JobSpec, StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ensureSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { CONNECTIONS, JOBS, LAUNCHES, PROJECTS } from "../../src/core/kinds.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { events } from "../../src/core/kube/events.ts"
import { sealCredentials } from "../../src/core/sealing/credentials.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import type { Running } from "../../src/core/telemetry/program.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { startOperator } from "../../src/operator/main.ts"
import { eventually } from "../cloud/eventually.ts"
import { confirmedProject } from "../confirmed-project.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { clientOf, makeSystemNamespace } from "../facade/machine-users.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { offerOf } from "./builders.ts"
import { SimProvider } from "./sim-provider.ts"

const { it } = needing(missingTool("moto"))

/** The connection of a volume's bucket: found in S3 (moto), shown in the Job, stored in the Launch. */

const systemNamespace = testNamespace("volumes-system")
const namespace = testNamespace("volumes")
const project = `p-${randomBytes(4).toString("hex")}`
const admin = new KubeClient(kubeConfig())
const sealer = new Sealer(new KeyringEncryption(() => ensureSealingKeys(admin, systemNamespace)))
const sim = new SimProvider(systemClock)
const stop = new AbortController()
const VOLUMES_IMAGE = "registry.test/berth-volumes:1"
let moto: Moto
let client: KubeClient
let operator: Running

/** A provider with simulated VMs and identity, and with moto's buckets. Some keys can't read any bucket. */
const provider: Provider = {
  ...sim.provider,
  account: (fields) => ({
    verify: (signal) => sim.provider.account?.(fields).verify(signal) ?? Promise.reject(new Error("no account")),
    bucket: async (name, signal) =>
      fields["secret_access_key"]?.startsWith("denied")
        ? undefined
        : await awsAccounts({ endpoint: moto.url })(fields).bucket?.(name, signal),
  }),
}

beforeAll(async () => {
  moto = await startMoto()
  await installBase(admin, AbortSignal.timeout(120_000))
  await makeSystemNamespace(admin, systemNamespace)
  await confirmedProject(admin, { name: project, organization: "o", namespace })
  client = await clientOf("berth-operator")
  // The API server applies new rights after a delay.
  await eventually(() => client.list(LAUNCHES, { namespace: systemNamespace }))
  operator = await startOperator(
    { systemNamespace, watchNamespace: namespace, gatewayUrl: "https://gateway.test", volumesImage: VOLUMES_IMAGE },
    {
      client,
      clouds: cloudsOf({}),
      providers: { aws: provider },
      offers: fixedOffers([offerOf({ cloud: "aws", region: "eu-north-1" })]),
      ownAccounts: [],
      architectures: [],
      observeSeconds: 0.1,
      logger: createLogger({ level: "silent", name: "test" }),
    },
    stop.signal,
  )
})
afterAll(async () => {
  for (const { metadata } of (await admin.list(JOBS, { namespace })).items) await admin.delete(JOBS, metadata)
  await eventually(async () => expect((await admin.list(JOBS, { namespace })).items).toEqual([]))
  stop.abort()
  await operator.ended
  for (const { metadata, spec } of (await admin.list(LAUNCHES, { namespace: systemNamespace })).items)
    if (spec.job.namespace === namespace) await admin.delete(LAUNCHES, metadata)
  await admin.delete(PROJECTS, { name: project })
  await Promise.all([client.close(), admin.close(), moto.stop()])
})

/**
 * Resolves when the operator has verified the connection. Before, a job may get another message, which is an event of
 * its own.
 */
async function connect(name: string, secretPrefix: string): Promise<void> {
  const secret_access_key = `${secretPrefix}-${randomBytes(8).toString("hex")}`
  sim.issue("account", secret_access_key)
  const fields = { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key }
  const sealedCredentials = await sealCredentials(sealer, { type: "aws", fields }, { project, name })
  await admin.create(CONNECTIONS, {
    metadata: { name, namespace },
    spec: { type: "aws", sealedCredentials },
  } as StoredConnection)
  await eventually(async () => {
    const { status } = await admin.get(CONNECTIONS, { namespace, name })
    expect(findCondition(status?.conditions, "Ready")).toMatchObject({ status: "True" })
  })
}

async function submit(name: string, volumes: JobSpec["volumes"]): Promise<void> {
  await admin.create(JOBS, { metadata: { name, namespace }, spec: { image: "busybox", volumes } } as StoredJob)
}

async function launchOf(job: string): Promise<StoredLaunch | undefined> {
  const { items } = await admin.list(LAUNCHES, { namespace: systemNamespace })
  return items.find(({ spec }) => spec.job.namespace === namespace && spec.job.name === job)
}

async function makeBucket(name: string): Promise<void> {
  const authorization = "AWS4-HMAC-SHA256 Credential=root/20260101/us-east-1/s3/aws4_request, Signature=none"
  const made = await fetch(`${moto.url}/${name}`, { method: "PUT", headers: { authorization } })
  expect(made.status).toBe(200)
}

it("the operator keeps a job waiting for a connection with access to its bucket, reports the reason, and continues when one exists", async () => {
  await makeBucket("cargo")
  await connect("first", "denied")
  await submit("train", { data: { bucket: "cargo", mountPath: "/data" } })
  const message =
    "volume data: bucket cargo: no connection of the project has access (first: no such bucket, or no access to it); " +
    "correct the bucket or give a connection access to it"
  await eventually(async () => {
    const { status } = await admin.get(JOBS, { namespace, name: "train" })
    expect(status).toMatchObject({ phase: "queued", reason: "BucketNotReached", message })
    expect(findCondition(status?.conditions, "Placed")).toMatchObject({
      status: "False",
      reason: "BucketNotReached",
      message,
    })
    const reported = (await admin.list(events, { namespace })).items.filter(
      ({ reason }) => reason === "BucketNotReached",
    )
    expect(reported).toHaveLength(1)
  })

  await connect("second", "good")
  await eventually(async () => {
    const { status } = await admin.get(JOBS, { namespace, name: "train" })
    expect(status).toMatchObject({ phase: "booting", volumes: { data: { connection: "second", region: "us-east-1" } } })
  })
  const launch = await launchOf("train")
  expect(launch?.spec.run.volumes).toEqual({ data: { bucket: "cargo", mountPath: "/data", connection: "second" } })
  expect(launch?.spec.volumesImage).toBe(VOLUMES_IMAGE)
})

it("the operator lets only VMs of jobs with volumes pull the image for them", async () => {
  await submit("plain", undefined)
  const launch = await eventually(async () => (await launchOf("plain")) ?? expect.fail("no Launch yet"))
  expect(launch.spec.volumesImage).toBeUndefined()
})
