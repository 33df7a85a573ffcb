import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, expect } from "vitest"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import type { Provider } from "../../src/clouds/provider.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { events } from "../../src/core/kube/events.ts"
import { CONNECTIONS } from "../../src/core/resources.ts"
import { eventually } from "../harness/eventually.ts"
import { ProjectHarness } from "../harness/project.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"

const { it } = needing(missingTool("moto"))

/** The connection of a volume's bucket: found in S3 (moto), shown in the Job, stored in the Launch. */

const VOLUMES_IMAGE = "registry.test/berth-volumes:1"
let moto: Moto
afterAll(() => moto?.stop())
const berth = new ProjectHarness("volumes")
const { admin, namespace } = berth
const sim = berth.accounts.provider

/** A provider with simulated VMs and identity, and with moto's buckets. Some keys can't read any bucket. */
const provider: Provider = {
  ...sim,
  account: (fields) => ({
    verify: (signal) => sim.account?.(fields).verify(signal) ?? Promise.reject(new Error("no account")),
    bucket: async (name, signal) =>
      fields["secret_access_key"]?.startsWith("denied")
        ? undefined
        : await awsAccounts({ endpoint: moto.url })(fields).bucket?.(name, signal),
  }),
}

beforeAll(async () => {
  moto = await startMoto()
  await berth.programs.startOperator({ volumesImage: VOLUMES_IMAGE }, { providers: { aws: provider } })
})

/**
 * Resolves when the operator has verified the connection. Before, a job may get another message, which is an event of
 * its own.
 */
async function connect(name: string, secretPrefix: string): Promise<void> {
  const secret_access_key = `${secretPrefix}-${randomBytes(8).toString("hex")}`
  berth.accounts.issue("account", secret_access_key)
  const sealedCredentials = await berth.seal(name, { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key })
  await berth.createConnection(name, { type: "aws", sealedCredentials })
  await eventually(async () => {
    const { status } = await admin.get(CONNECTIONS, { namespace, name })
    expect(findCondition(status?.conditions, "Ready")).toMatchObject({ status: "True" })
  })
}

async function makeBucket(name: string): Promise<void> {
  const authorization = "AWS4-HMAC-SHA256 Credential=root/20260101/us-east-1/s3/aws4_request, Signature=none"
  const made = await fetch(`${moto.url}/${name}`, { method: "PUT", headers: { authorization } })
  expect(made.status).toBe(200)
}

it("the operator keeps a job waiting for a connection with access to its bucket, reports the reason, and continues when one exists", async () => {
  await makeBucket("cargo")
  await connect("first", "denied")
  await berth.submit("train", { volumes: { data: { bucket: "cargo", mountPath: "/data" } } })
  const message =
    "volume data: bucket cargo: no connection of the project has access (first: no such bucket, or no access to it); " +
    "correct the bucket or give a connection access to it"
  await eventually(async () => {
    const { status } = await berth.job("train")
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
    const { status } = await berth.job("train")
    expect(status).toMatchObject({ phase: "booting", volumes: { data: { connection: "second", region: "us-east-1" } } })
  })
  const launch = await berth.launchOf("train")
  expect(launch?.spec.run.volumes).toEqual({ data: { bucket: "cargo", mountPath: "/data", connection: "second" } })
  expect(launch?.spec.volumesImage).toBe(VOLUMES_IMAGE)
})

it("the operator lets only VMs of jobs with volumes pull the image for them", async () => {
  await berth.submit("plain")
  const launch = await eventually(async () => (await berth.launchOf("plain")) ?? expect.fail("no Launch yet"))
  expect(launch.spec.volumesImage).toBeUndefined()
})
