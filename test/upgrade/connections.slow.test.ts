import { readFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, expect, vi } from "vitest"
import { installBase } from "../../dev/base.ts"
import { systemClock } from "../../src/apis/clock.ts"
import { findCondition } from "../../src/apis/conditions.ts"
import type { StoredConnection } from "../../src/apis/connection.ts"
import type { CredentialFields } from "../../src/apis/credentials.ts"
import type { StoredJob } from "../../src/apis/job.ts"
import { fixedOffers } from "../../src/catalogue/offers.ts"
import { awsAccounts } from "../../src/cloud/aws/account.ts"
import { openAws } from "../../src/cloud/aws/aws.ts"
import { azureAccounts } from "../../src/cloud/azure/account.ts"
import { openAzure } from "../../src/cloud/azure/azure.ts"
import { gcpAccounts } from "../../src/cloud/gcp/account.ts"
import { openGcp } from "../../src/cloud/gcp/gcp.ts"
import { cloudsOf } from "../../src/cloud/provider.ts"
import { CONNECTIONS } from "../../src/controllers/connection/options.ts"
import { ensureInstallation } from "../../src/identity/installation.ts"
import { ensureSealingKeys } from "../../src/identity/sealing-keys.ts"
import { KubeClient } from "../../src/kube/client.ts"
import { NAMESPACES, SECRETS, type Secret } from "../../src/kube/core.ts"
import { startOperator } from "../../src/operator.ts"
import type { Running } from "../../src/program.ts"
import { openCredentials } from "../../src/sealing/credentials.ts"
import { Sealer } from "../../src/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/sealing/keys.ts"
import { createLogger } from "../../src/telemetry/logger.ts"
import { ArmServer } from "../cloud/arm-server.ts"
import { Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { eventually } from "../cloud/eventually.ts"
import { GceServer } from "../cloud/gce-server.ts"
import { confirmedProject } from "../confirmed-project.ts"
import { kubeConfig } from "../control-plane.ts"
import { offerOf } from "../controllers/builders.ts"
import { JOBS, LAUNCHES } from "../controllers/harness.ts"
import { clientOf, makeSystemNamespace } from "../facade/machine-users.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"

const { describe, it } = needing(missingTool("moto"))

/**
 * Connections and the Secret of the sealing keys that the operator of commit c8e8f42 (November 2026) wrote. That is before
 * Berth checked what an account can do. Each connection had started a VM. Only the day in the times is changed.
 * `rights` are those of that commit's pages. Azure's have the reads without which that commit could start no VM.
 */
interface FormerData {
  connections: StoredConnection[]
  secrets: Secret[]
  rights: Record<"aws" | "gcp" | "azure", string[]>
}
const FORMER = JSON.parse(readFileSync(join(import.meta.dirname, "former-connections.json"), "utf8")) as FormerData
/** The credentials are sealed for this project. */
const PROJECT = "former"
const [systemNamespace, namespace] = ["former-system", "former-team"]
const TYPES = ["aws", "gcp", "azure"] as const

/** Capability `vms` after the first check. Google's fails, and Azure's needs a right that the former role lacks. */
const AFTER_CHECK = { aws: "True", gcp: "Unknown", azure: "Unknown" }

const admin = new KubeClient(kubeConfig())
const gce = new GceServer({ project: "berth-test", regions: { "us-central1": ["us-central1-a"] } })
const arm = new ArmServer()
const stop = new AbortController()
let moto: Moto
let proxy: Ec2Proxy
let client: KubeClient
let operator: Running

beforeAll(async () => {
  ;[moto] = await Promise.all([startMoto(), gce.start(), arm.start()])
  proxy = await Ec2Proxy.start(moto)
  // AWS' SDK reads this variable in this process, which runs the operator.
  vi.stubEnv("AWS_ENDPOINT_URL", proxy.url)
  await installBase(admin, AbortSignal.timeout(120_000))
  for (const name of [systemNamespace, namespace]) await admin.apply(NAMESPACES, { metadata: { name } })
  await makeSystemNamespace(admin, systemNamespace)
  for (const secret of FORMER.secrets) await admin.create(SECRETS, secret)
  await ensureInstallation(admin, systemNamespace)
  await confirmedProject(admin, { name: PROJECT, organization: "o", namespace })
  for (const { status, ...connection } of FORMER.connections) {
    const { metadata } = await admin.create(CONNECTIONS, connection)
    await admin.patch(CONNECTIONS, metadata, { merge: { status } }, { subresource: "status" })
  }
  await letCloudsKnow()
  client = await clientOf("berth-operator")
  // The API server applies new rights after a delay.
  await eventually(() => client.list(LAUNCHES, { namespace: systemNamespace }))
  operator = await startOperator(
    { systemNamespace, watchNamespace: namespace, gatewayUrl: "https://gateway.test", agentImage: "berth:test" },
    {
      client,
      clouds: cloudsOf({}),
      providers: {
        aws: { account: awsAccounts(), region: openAws({ clock: systemClock }) },
        gcp: { account: gcpAccounts({ send: gce.send }), region: openGcp({ send: gce.send, consistencySeconds: 1 }) },
        azure: {
          account: azureAccounts({ send: arm.send }),
          region: openAzure({ send: arm.send, lookSeconds: 0.1, consistencySeconds: 1 }),
        },
      },
      offers: fixedOffers([
        offerOf({ cloud: "aws", region: "eu-central-1", instanceType: "t3.large" }),
        offerOf({ cloud: "gcp", region: "us-central1", instanceType: "e2-standard-2" }),
        offerOf({ cloud: "azure", region: "westeurope", instanceType: "Standard_D2s_v5" }),
      ]),
      ownAccounts: [],
      architectures: [],
      observeSeconds: 0.5,
      logger: createLogger({ level: "silent", name: "operator" }),
    },
    stop.signal,
  )
})
afterAll(async () => {
  for (const { metadata } of (await admin.list(JOBS, { namespace })).items) await admin.delete(JOBS, metadata)
  await eventually(async () => expect((await admin.list(JOBS, { namespace })).items).toEqual([]))
  stop.abort()
  await operator?.ended
  vi.unstubAllEnvs()
  await Promise.all([client?.close(), admin.close(), gce.close(), arm.close(), proxy?.stop()])
  await moto?.stop()
})

/** Gives the stand-ins the credentials and rights of the former version's users. */
async function letCloudsKnow(): Promise<void> {
  const sealer = new Sealer(new KeyringEncryption(() => ensureSealingKeys(admin, systemNamespace)))
  const fields: Record<string, CredentialFields> = {}
  for (const { metadata, spec } of FORMER.connections) {
    const sealed = { type: spec.type, sealedCredentials: spec.sealedCredentials ?? "" }
    fields[spec.type] = (await openCredentials(sealer, sealed, { project: PROJECT, name: metadata.name })).fields
  }
  proxy.policies.set(fields["aws"]?.["access_key_id"] ?? "", FORMER.rights.aws)
  gce.accept(fields["gcp"]?.["keyfile_json"] ?? "")
  gce.permissions = new Set(FORMER.rights.gcp)
  // A check of the project does not show this right, and the VMs of the binding's condition may be created.
  gce.conditional.add("compute.instances.create")
  Object.assign(arm.credentials, fields["azure"])
  arm.actions = FORMER.rights.azure
}

async function statusOf(name: string) {
  return (await admin.get(CONNECTIONS, { namespace, name })).status ?? {}
}

describe("connections that worked in the former version", { timeout: 120_000 }, () => {
  it.each(TYPES)("stay Ready, without a break: %s", async (type) => {
    const former = FORMER.connections.find(({ spec }) => spec.type === type)?.status
    const status = await eventually(async () => {
      const now = await statusOf(type)
      expect(now.capabilities).toBeDefined()
      expect(now.lastVerifiedTime).not.toBe(former?.lastVerifiedTime)
      return now
    })
    const { conditions, account, regions, verifiedCredentials } = status
    const before = findCondition(former?.conditions, "Ready")
    // The time of the transition would change with each change of the status.
    expect(findCondition(conditions, "Ready")).toMatchObject({
      status: "True",
      lastTransitionTime: before?.lastTransitionTime,
    })
    expect({ account, regions, verifiedCredentials }).toEqual({
      account: former?.account,
      regions: former?.regions,
      verifiedCredentials: former?.verifiedCredentials,
    })
    const { vms } = status.capabilities ?? {}
    expect(vms?.status, vms?.message).toBe(AFTER_CHECK[type])
  })

  it.each(TYPES)("start VMs with the rights of the former version: %s", async (type) => {
    await admin.create(JOBS, {
      metadata: { name: type, namespace },
      spec: { image: "busybox", cloud: [type] },
    } as StoredJob)
    await eventually(async () => {
      const { items } = await admin.list(LAUNCHES, { namespace: systemNamespace })
      const own = items.filter(({ spec }) => spec.job.name === type)
      expect(own.map(({ status }) => status?.refusal?.message ?? status?.vm?.id)).toEqual([expect.any(String)])
      expect(own[0]?.status?.vm?.id).toBeDefined()
    })
    expect([...gce.violations, ...arm.violations, ...proxy.breaches]).toEqual([])
  })
})
