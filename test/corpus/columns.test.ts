import { afterAll, expect, it } from "vitest"
import { KINDS } from "../../src/core/apis/kinds.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { kubectl, testNamespace } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"
import { sharedClient } from "../harness/namespace.ts"

/** Widths of kubectl's tables, with values as long as people have them. */

/** Width of a terminal for a plain table, and for `-o wide`. */
const MOST = { plain: 120, wide: 160 }

const TIME = "2026-11-27T10:00:00Z"
const UID = "5cbd7f6e-93a4-4b0c-8a55-1f0e3a8e0a10"
const IMAGE = "ghcr.io/acme-research/train-resnet:2026-11-27"
const NAME = "retrain-20261127t100000z"
const AZURE = { cloud: "azure", region: "germanywestcentral", instanceType: "Standard_NC24ads_A100_v4" }
const OFFER = {
  ...{ ...AZURE, architecture: "amd64", provisioning: "onDemand", cpu: 24, memoryGib: 220 },
  ...{ hourlyPriceUsd: 4.7758, minimumBilledSeconds: 60, gpu: { model: "A100", count: 1, vramGib: 80 } },
}
const PRICES = { machineUsd: 4.7758, diskUsd: 0.0123, addressUsd: 0.005 }

function ready(reason: string, message = "a message that kubectl describe shows in full") {
  const rest = { observedGeneration: 1, lastTransitionTime: TIME, reason, message }
  return [{ type: "Ready", status: "False", ...rest }]
}

interface Sample {
  name?: string
  spec: object
  status: object
}

/** An object of each kind. */
const SAMPLES: Record<string, Sample> = {
  Job: {
    spec: { image: IMAGE },
    status: {
      ...{ phase: "succeeded", reason: "DeadlineExceeded", retryCount: 12 },
      placement: { offer: OFFER, reason: "cheapest of 412 matching offers" },
      cost: { endedUsd: 1234.5678, actualUsd: 1234.5678 },
    },
  },
  Launch: {
    name: `${UID}-12`,
    spec: {
      ...{ job: { namespace: "vision-research", name: NAME, uid: UID }, number: 12, installation: UID, offer: OFFER },
      ...{ hourlyPrices: PRICES, run: { image: IMAGE }, gatewayUrl: "https://berth.example.com" },
      ...{ bootDeadlineSeconds: 600, startDeadlineSeconds: 1800, lifetimeSeconds: 90_000 },
    },
    status: { phase: "terminating", vm: { id: `berth-${UID}-12`, state: "running" } },
  },
  Statement: { spec: { namespace: "vision-research", month: "2026-11" }, status: { spentUsd: 12_345.678901 } },
  ApiKey: {
    name: "nightly-builds-of-the-vision-team",
    spec: { role: "developer", keyId: "abcdefgh1234", tokenHash: "0".repeat(64), expiresAt: TIME },
    status: { conditions: ready("MachineUserNameTaken") },
  },
  Organization: {
    name: "o-ca0c6e28f1d24f5f",
    spec: { displayName: "Acme Research and Development" },
    status: { conditions: ready("Reconciling") },
  },
  Project: {
    name: "vision-research-ca0c6e28",
    spec: { displayName: "Vision of the research department", organization: "o-ca0c6e28f1d24f5f" },
    status: { namespace: "vision-research-ca0c6e28", conditions: ready("NamespaceTaken") },
  },
  CronJob: {
    name: "retrain-every-weekday-morning",
    spec: { schedule: "*/15 6-18 * * 1-5", jobDefinition: { image: IMAGE } },
    status: { lastTriggeredTime: TIME, nextTriggerTime: TIME, conditions: ready("InvalidDefinition") },
  },
  JobArray: {
    spec: { size: 10_000, jobDefinition: { image: IMAGE } },
    status: {
      ...{ phase: "running", size: 10_000, costUsd: 1234.5678, conditions: ready("InvalidDefinition") },
      counts: { pending: 0, queued: 0, booting: 0, running: 1000, succeeded: 8000, failed: 1000, cancelled: 0 },
    },
  },
  Connection: {
    name: "azure-of-the-vision-team",
    spec: { type: "azure", credentialsSecretRef: { name: "azure" } },
    status: { account: UID, lastVerifiedTime: TIME, conditions: ready("ProviderUnreachable") },
  },
  Machine: {
    name: "workstation-of-the-vision-team",
    spec: { hourlyPriceUsd: 1.25, region: "office-of-vision" },
    status: {
      host: {
        ...{ joinNumber: 1, joinTime: TIME, signingKey: "{}", encryptionKey: "{}", version: "0.2.0", sequence: 1 },
        ...{ lastHeartbeatTime: TIME, leaseSeconds: 900, running: `${UID}-12` },
        facts: {
          ...{ cpu: 128, memoryGib: 1007.5, diskGib: 3500, architecture: "amd64" },
          gpu: { model: "NVIDIA A100-SXM4-80GB", count: 8, vramGib: 80 },
        },
      },
      conditions: ready("Unschedulable"),
    },
  },
  Webhook: {
    name: "ci-of-the-vision-team",
    spec: { url: "https://ci.example.com/hooks/berth/vision-research", events: ["job.*"], secretRef: { name: "s" } },
    status: { pendingCount: 1000, missedCount: 1000, lastSuccessTime: TIME, conditions: ready("DeliveriesFail") },
  },
}

const namespace = testNamespace("columns")
const client = sharedClient()
/** Objects that no namespace takes along. */
const left: ApiObject[] = []

afterAll(async () => {
  for (const object of left) await client.delete(declareResource(kindOf(object.kind ?? "")), object.metadata)
})

function kindOf(name: string) {
  const kind = KINDS.find((one) => one.kind === name)
  if (kind === undefined) throw new Error(`no kind ${name}`)
  return kind
}

it.each(KINDS.map(({ kind }) => kind))("the tables of kubectl for the kind %s fit a terminal", async (name) => {
  const kind = kindOf(name)
  const { name: objectName = NAME, spec, status } = SAMPLES[name] as Sample
  const place = kind.namespaced ? { namespace } : {}
  const metadata = { name: objectName, ...place }
  const object = { apiVersion: API_VERSION, kind: name, metadata, spec } as ApiObject
  if (!kind.namespaced) left.push(object)
  await client.create(declareResource(kind), object)
  await client.patchStatus(declareResource(kind), metadata, { merge: { status } as never })
  const get = ["get", `${kind.plural}.berth.dev`, objectName, ...(kind.namespaced ? ["-n", namespace] : [])]
  const widthOf = (table: string) => Math.max(...table.split("\n").map((line) => line.trimEnd().length))
  // kubectl discovers new kinds a moment after they are served.
  const [plain, wide] = await eventually(
    async () => [await kubectl(get), await kubectl([...get, "-o", "wide"])] as const,
  )
  expect(widthOf(plain), plain).toBeLessThanOrEqual(MOST.plain)
  expect(widthOf(wide), wide).toBeLessThanOrEqual(MOST.wide)
  // Each column has a value: a sample that lacks one would hide its width.
  const columns = kind.printerColumns.length + 1
  expect(wide.split("\n")[1]?.trim().split(/ {2,}/).length, wide).toBeGreaterThanOrEqual(columns - 1)
})
