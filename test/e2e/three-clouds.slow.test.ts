import { join } from "node:path"
import { afterAll, afterEach, beforeAll, expect, vi } from "vitest"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { openAws } from "../../src/clouds/aws/aws.ts"
import { openAzure } from "../../src/clouds/azure/azure.ts"
import { openGcp } from "../../src/clouds/gcp/gcp.ts"
import type { Provider, Providers, RegionOpener } from "../../src/clouds/provider.ts"
import { connect as clientFor } from "../../src/connect.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { ConnectionType } from "../../src/core/apis/connection.ts"
import type { CredentialFields } from "../../src/core/apis/credentials.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { CONNECTIONS } from "../../src/core/resources.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { ArmServer } from "../cloud/arm-server.ts"
import { Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { GceServer } from "../cloud/gce-server.ts"
import { kubeconfigPath, kubectl } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { Installation } from "../harness/installation.ts"
import { Programs } from "../harness/programs.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { CloudMachines } from "./cloud-machines.ts"

const { describe, it } = needing(missingTool("moto"))

const PROJECT = "berth-test"
/** Zones with and without capacity. */
const ZONES = { "us-central1": ["us-central1-a", "us-central1-b"], "europe-west1": ["europe-west1-b"] }

const offer = (cloud: string, region: string, instanceType: string, hourlyPriceUsd: number): Offer => ({
  cloud,
  region,
  instanceType,
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 2,
  memoryGib: 8,
  hourlyPriceUsd,
  minimumBilledSeconds: 60,
})
const OFFERS = [
  offer("aws", "eu-central-1", "t3.large", 0.01),
  offer("gcp", "us-central1", "e2-standard-2", 0.02),
  offer("azure", "westeurope", "Standard_D2s_v5", 0.03),
  offer("gcp", "europe-west1", "e2-standard-2", 0.04),
  { ...offer("gcp", "europe-west1", "e2-standard-2", 0.005), provisioning: "spot" as const },
  { ...offer("gcp", "us-central1", "e2-standard-2", 0.006), provisioning: "spot" as const },
]

const gce = new GceServer({ project: PROJECT, regions: ZONES })
const arm = new ArmServer()
let moto: Moto
let aws: Ec2Proxy
let berth: Installation
let machines: CloudMachines
let programs: Programs | undefined

beforeAll(async () => {
  const runtime = await containerRuntime()
  ;[moto] = await Promise.all([startMoto(), gce.start(), arm.start()])
  aws = await Ec2Proxy.start(moto)
  // AWS' SDK reads this variable in this process, which runs the operator.
  vi.stubEnv("AWS_ENDPOINT_URL", aws.url)
  berth = await Installation.create({ name: "clouds", kubeconfig: kubeconfigPath(), runtime })
  machines = new CloudMachines(join(berth.folder, "machines"), runtime)
  gce.machines.onBoot = machines.boot
  arm.machines.onBoot = machines.boot
  const { systemNamespace, namespace: watchNamespace, url: gatewayUrl } = berth
  programs = new Programs({
    ...{ systemNamespace, watchNamespace, clientOf: async () => clientFor({ kubeconfig: kubeconfigPath() }) },
    market: { offers: fixedOffers(OFFERS), providers: providers() },
  })
  await programs.startOperator({ gatewayUrl, agentImage: "berth:test" }, { observeSeconds: 0.5 })
  await connect("aws", { access_key_id: "AKIAEXAMPLE", secret_access_key: "secret" })
  await connect("gcp", { gcp_project_id: PROJECT, keyfile_json: gce.keyfile })
  await connect("azure", arm.credentials)
  await eventually(async () => {
    for (const name of ["aws", "gcp", "azure"]) {
      const { status } = await berth.client.get(CONNECTIONS, { namespace: berth.namespace, name })
      expect(status?.conditions, name).toContainEqual(expect.objectContaining({ type: "Ready", status: "True" }))
    }
  })
})
afterEach(async () => {
  // Nothing is left on any cloud, and no cloud saw an invalid request.
  await eventually(() => expect([...gce.instances(), ...arm.requested()]).toEqual([]))
  expect([...gce.violations, ...arm.violations, ...aws.breaches, ...machines.faults]).toEqual([])
})
afterAll(async () => {
  await programs?.stop()
  await machines?.close()
  await berth?.close()
  vi.unstubAllEnvs()
  await Promise.all([gce.close(), arm.close(), aws?.stop()])
  await moto?.stop()
})

/** Returns the three clouds with their own SDKs, each connected to its stand-in. */
function providers(): Providers {
  return {
    aws: { account: awsAccounts(), region: openAws({ clock: systemClock }) },
    gcp: verifiedBy(openGcp({ send: gce.send, consistencySeconds: 1 }), "us-central1"),
    azure: verifiedBy(openAzure({ send: arm.send, lookSeconds: 0.1, consistencySeconds: 1 }), "westeurope"),
  }
}

function verifiedBy(region: RegionOpener, name: string): Provider {
  return { region, account: (credentials) => ({ verify: () => region(credentials, name).verify() }) }
}

async function connect(type: ConnectionType, fields: CredentialFields): Promise<void> {
  const metadata = { name: type, namespace: berth.namespace }
  await kubectl(
    ["apply", "-f", "-"],
    JSON.stringify({ apiVersion: "v1", kind: "Secret", metadata, type: "berth.dev/connection", stringData: fields }),
  )
  const spec = { type, credentialsSecretRef: { name: type } }
  await kubectl(
    ["apply", "-f", "-"],
    JSON.stringify({ apiVersion: "berth.dev/v1alpha1", kind: "Connection", metadata, spec }),
  )
}

describe("Berth with connections of three clouds", { timeout: 200_000 }, () => {
  it("runs a job on Azure from queued to deleted", async () => {
    await berth.submit("azure", "echo from Azure", { cloud: ["azure"] })
    await berth.reached("succeeded", "azure")
    await berth.allOver()
    expect(await berth.log("azure")).toBe("from Azure\n")
    expect(berth.launchesOf("azure").at(-1)?.status?.vm?.id).toContain("/providers/microsoft.compute/virtualmachines/")
  })

  it("queues a job again when Google preempts its spot VM, and finishes it in another VM", async () => {
    await berth.submit("spot", "sleep 10; echo done", { cloud: ["gcp"], provisioning: "spot" })
    await berth.reached("running", "spot")
    const [, zone = "", , name = ""] = berth.launchesOf("spot")[0]?.status?.vm?.id?.split("/") ?? []
    gce.preempt(zone, name)
    await berth.reached("succeeded", "spot")
    await berth.allOver()
    expect(berth.launchesOf("spot")).toHaveLength(2)
    expect(berth.launchesOf("spot")[0]?.status?.loss?.reason).toBe("Preempted")
  })

  it("leaves nothing of a cancelled job on any cloud", async () => {
    await berth.submit("cancelled", "sleep 600", { cloud: ["azure"] })
    await berth.reached("running", "cancelled")
    await kubectl([
      "patch",
      "bj",
      "cancelled",
      "-n",
      berth.namespace,
      "--type",
      "merge",
      "-p",
      '{"spec":{"cancelled":true}}',
    ])
    await berth.reached("cancelled", "cancelled")
    await berth.allOver()
    expect(arm.requested()).toEqual([])
  })

  // This test comes last: clouds that reject an offer are in cooldown afterwards.
  it("tries the next cloud after each rejection, and kubectl describe lists the attempts", async () => {
    aws.faults.push({ action: "RunInstances", when: "before", code: "InsufficientInstanceCapacity", status: 500 })
    for (const zone of ZONES["us-central1"]) {
      gce.insertErrors.set(zone, { code: "ZONE_RESOURCE_POOL_EXHAUSTED", message: `no machines in ${zone}` })
    }
    arm.faults.add("launch", "quota")

    await berth.submit("traveller", "echo made it")
    await berth.reached("succeeded", "traveller")
    await berth.allOver()

    const tried = berth.job("traveller").status?.refusedOffers
    expect(tried?.map(({ cloud, region, reason }) => [cloud, region, reason])).toEqual([
      ["aws", "eu-central-1", "Capacity"],
      ["gcp", "us-central1", "Capacity"],
      ["azure", "westeurope", "Quota"],
    ])
    expect(berth.launchesOf("traveller").at(-1)?.spec.offer).toMatchObject({ cloud: "gcp", region: "europe-west1" })
    expect(await berth.log("traveller")).toBe("made it\n")

    const chapters = [
      /OfferRefused .* aws t3\.large in eu-central-1: Capacity: /,
      /OfferRefused .* gcp e2-standard-2 in us-central1: Capacity: .*no machines in us-central1-a/,
      /OfferRefused .* azure Standard_D2s_v5 in westeurope: Quota: /,
      /Placed .* VM .*zones\/europe-west1-b\/instances\/berth-.*, launch 4: gcp e2-standard-2 in europe-west1/,
      /Succeeded .* the container succeeded/,
    ]
    // Events are written after the objects.
    await eventually(async () => {
      const story = await kubectl(["describe", "bj", "traveller", "-n", berth.namespace])
      const lines = story.slice(story.indexOf("Events:")).split("\n")
      const places = chapters.map((chapter) => lines.findIndex((line) => chapter.test(line)))
      expect(places, story).not.toContain(-1)
      expect(places, story).toEqual([...places].sort((one, other) => one - other))
    })
  })
})
