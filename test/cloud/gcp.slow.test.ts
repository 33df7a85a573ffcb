import { randomUUID } from "node:crypto"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { load } from "js-yaml"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { Offer } from "../../src/apis/offer.ts"
import {
  CapacityError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
} from "../../src/cloud/errors.ts"
import { openGcp } from "../../src/cloud/gcp/gcp.ts"
import type { Cloud, LaunchSpec, Vm } from "../../src/cloud/provider.ts"
import { type CloudWithFaults, describeCloud, describeFaults } from "./conformance.ts"
import { eventually } from "./eventually.ts"
import { failingAfter, LOOK_FAULTS } from "./faults.ts"
import { deletedKeyfile, GceServer } from "./gce-server.ts"

const REGION = "us-central1"
const ZONES = ["us-central1-a", "us-central1-b", "us-central1-c"]
const OFFER: Offer = {
  cloud: "gcp",
  region: REGION,
  instanceType: "e2-standard-2",
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 2,
  memoryGib: 8,
  hourlyPriceUsd: 0.067,
  minimumBilledSeconds: 60,
}

const world = (more: object = {}) => ({ project: "berth-test", regions: { [REGION]: ZONES }, ...more })

function openAt(server: GceServer, keyfile = server.keyfile, callSeconds = 30): Cloud {
  const open = openGcp({ send: server.send, callSeconds, settings: { network: "jobs" } })
  return open({ gcp_project_id: "berth-test", keyfile_json: keyfile }, REGION)
}

async function underTest(callSeconds: number): Promise<CloudWithFaults> {
  const server = new GceServer(world())
  await server.start()
  return {
    offer: OFFER,
    userData: "#cloud-config\n{}",
    remembers: "launch",
    neverWas: (launch) => ({ id: `zones/${ZONES[0]}/instances/berth-0-${launch}`, launch, region: REGION }),
    open: async () => openAt(server, server.keyfile, callSeconds),
    countBoots: (launch) =>
      eventually(() => {
        const boots = server.machines.boots.filter((name) => name.endsWith(`-${launch}`))
        expect(boots).not.toEqual([])
        return boots.length
      }),
    async powerOff(vm) {
      const [, zone = "", , name = ""] = vm.id.split("/")
      server.powerOff(zone, name)
    },
    fail: (act, fault) => server.faults.add(act, fault),
    mend: () => server.faults.clear(),
    limitPages(size) {
      server.pageSize = size
    },
    openRefused: async () => openAt(server, deletedKeyfile("berth-test"), callSeconds),
    violations: () => server.violations,
    close: () => server.close(),
  }
}

describeCloud("gcp", () => underTest(30))
describeFaults("gcp", () => underTest(6))

describe("gcp", () => {
  let server: GceServer
  let cloud: Cloud

  beforeEach(async () => {
    server = new GceServer(world())
    await server.start()
    cloud = openAt(server)
    return async () => {
      expect(server.violations).toEqual([])
      await server.close()
    }
  })

  const spec = (offer: Partial<Offer> = {}, overrides: Partial<LaunchSpec> = {}): LaunchSpec => ({
    name: `${randomUUID()}-1`,
    installation: "i",
    tags: { project: "Team_A", job: "train" },
    offer: { ...OFFER, ...offer },
    userData: "#cloud-config\n{}",
    lifetimeSeconds: 3600,
    ...overrides,
  })
  const list = () => cloud.list({ installation: "i", region: REGION })
  const partsOf = (vm: Vm) => {
    const [, zone = "", , name = ""] = vm.id.split("/")
    return { zone, name }
  }
  const allOut = (code: string, zones = ZONES) => {
    for (const zone of zones) server.insertErrors.set(zone, { code, message: `${code} in ${zone}` })
  }

  it("asks for what the offer says, labelled, that ends itself and lets nothing in", async () => {
    await cloud.launch(spec({ provisioning: "spot" }, { lifetimeSeconds: 7200 }))
    expect(server.instances()).toEqual([
      expect.objectContaining({
        labels: expect.objectContaining({ "berth-installation": "i", "berth-project": "team_a", "berth-job": "train" }),
        scheduling: expect.objectContaining({
          provisioningModel: "SPOT",
          instanceTerminationAction: "DELETE",
          maxRunDuration: { seconds: "7200" },
          automaticRestart: false,
        }),
        tags: { items: ["berth"] },
        disks: [expect.objectContaining({ autoDelete: true })],
      }),
    ])
    expect(server.instances()[0]).not.toHaveProperty("serviceAccounts.0")
    expect(server.firewalls.get("berth-no-inbound-jobs")).toMatchObject({
      priority: 0,
      direction: "INGRESS",
      denied: [{ IPProtocol: "all" }],
      targetTags: ["berth"],
    })
  })

  it("is in the network that its region was given, and nothing gets into that one either", async () => {
    const networks = { [REGION]: { network: "yard", subnetwork: "yard-europe" } }
    const open = openGcp({ send: server.send, settings: { network: "jobs" }, networks })
    await open({ gcp_project_id: "berth-test", keyfile_json: server.keyfile }, REGION).launch(spec())
    const [made] = server.instances()
    expect(made).toHaveProperty("networkInterfaces.0.network", expect.stringMatching(/networks[/]yard$/))
    const subnetwork = expect.stringMatching(new RegExp(`regions/${REGION}/subnetworks/yard-europe$`))
    expect(made).toHaveProperty("networkInterfaces.0.subnetwork", subnetwork)
    expect(server.firewalls.get("berth-no-inbound-yard")).toMatchObject({ direction: "INGRESS" })
  })

  it("attaches GPUs as the catalogue names them, with an image that has their driver", async () => {
    const gpu = { model: "T4", count: 2, vramGib: 16 }
    const vm = await cloud.launch(spec({ instanceType: "n1-standard-8_2xnvidia-tesla-t4", gpu }))
    const { zone } = partsOf(vm)
    expect(server.instances()[0]).toMatchObject({
      machineType: `zones/${zone}/machineTypes/n1-standard-8`,
      guestAccelerators: [{ acceleratorType: `zones/${zone}/acceleratorTypes/nvidia-tesla-t4`, acceleratorCount: 2 }],
      scheduling: { onHostMaintenance: "TERMINATE" },
      shieldedInstanceConfig: { enableSecureBoot: false },
      disks: [{ initializeParams: { sourceImage: expect.stringContaining("deeplearning-platform-release") } }],
    })
  })

  it("goes on in the next zone when one is out of machines, and finds that VM again from whatever zone", async () => {
    // Each has an order of zones of its own.
    const specs = Array.from({ length: 5 }, () => spec())
    allOut("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", ZONES.slice(0, 2))
    const vms = await Promise.all(specs.map((each) => cloud.launch(each)))
    expect(new Set(vms.map((vm) => partsOf(vm).zone))).toEqual(new Set([ZONES[2]]))
    // There are machines everywhere again, and nobody knows of the earlier requests: only the VMs themselves tell.
    server.insertErrors.clear()
    server.forgetRequests()
    server.hidesSince = 0
    const restarted = openAt(server)
    const again = await Promise.all(specs.map((each) => restarted.launch(each)))
    expect(again.map(({ id }) => id)).toEqual(vms.map(({ id }) => id))
    expect(server.machines.boots).toHaveLength(5)
  })

  it("finds the VM of an earlier zone when the answer of a later one was lost", async () => {
    const asked = spec()
    server.faults.add("launch", "capacity")
    server.faults.add("launch", "lost")
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
    server.hidesSince = 0
    await openAt(server).launch(asked)
    await eventually(() => expect(server.machines.boots).toHaveLength(1))
    expect(server.instances()).toHaveLength(1)
  })

  it("refuses for capacity when every zone is out, with what each has said", async () => {
    const asked = spec()
    allOut("ZONE_RESOURCE_POOL_EXHAUSTED")
    const refusal = await cloud.launch(asked).catch((error: unknown) => error as CapacityError)
    expect(refusal).toBeInstanceOf(CapacityError)
    expect(refusal).toMatchObject({ code: "ZONE_RESOURCE_POOL_EXHAUSTED" })
    for (const zone of ZONES) expect((refusal as CapacityError).message).toContain(zone)
    expect(server.instances()).toEqual([])
  })

  it("asks no other zone when the quota is used up: it holds for the region", async () => {
    allOut("QUOTA_EXCEEDED")
    await expect(cloud.launch(spec())).rejects.toBeInstanceOf(QuotaError)
    expect(server.calls.filter((call) => call === "Instances.Insert")).toHaveLength(1)
  })

  it.each([
    ["INTERNAL_ERROR", CapacityError],
    ["PERMISSIONS_ERROR", CredentialsError],
  ] as const)("an operation that ends with %s has left nothing", async (code, expected) => {
    const asked = spec()
    allOut(code)
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(expected)
    // The operation is what the identical request is answered with: it may never make a VM after all.
    server.insertErrors.clear()
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(expected)
    expect(server.machines.boots).toEqual([])
  })

  it("lists, finds and ends VMs in AI zones, and makes none there unless the offer names one", async () => {
    const aiZone = `${REGION}-ai1a`
    const roomy = new GceServer(world({ regions: { [REGION]: [...ZONES, aiZone] } }))
    await roomy.start()
    const opened = openAt(roomy)
    const asked = Array.from({ length: 12 }, () => spec())
    const vms = await Promise.all(asked.map((each) => opened.launch(each)))
    expect(vms.map((vm) => partsOf(vm).zone)).not.toContain(aiZone)
    const named = spec({ zone: aiZone })
    const vm = await opened.launch(named)
    expect(partsOf(vm).zone).toBe(aiZone)
    // A launch that an older version made in any zone of the region is found there.
    const { zone: _, ...anywhere } = named.offer
    await expect(opened.launch({ ...named, offer: anywhere })).rejects.toMatchObject({ code: "LaunchNameTaken" })
    const listed = await opened.list({ installation: named.installation, region: REGION })
    expect(listed.find(({ id }) => id === vm.id)).toMatchObject({ region: REGION, launch: named.name })
    roomy.preempt(aiZone, partsOf(vm).name)
    await eventually(async () => {
      const list = await opened.list({ installation: named.installation, region: REGION })
      expect(list.find(({ id }) => id === vm.id)).toMatchObject({ preempted: true })
    })
    await opened.terminate(vm)
    expect(roomy.violations).toEqual([])
    await roomy.close()
  }, 60_000)

  it("passes over zones that don't sell the machine", async () => {
    const [first = "", ...others] = ZONES
    const picky = new GceServer(
      world({ machineTypes: Object.fromEntries(others.map((zone) => [zone, ["n2-standard-2"]])) }),
    )
    await picky.start()
    const vm = await openAt(picky).launch(spec())
    expect(partsOf(vm).zone).toBe(first)
    await expect(openAt(picky).launch(spec({ zone: ZONES[1] as string }))).rejects.toBeInstanceOf(CapacityError)
    await picky.close()
  })

  it.each(LOOK_FAULTS.flatMap((status) => ["wait", "instances/"].map((look) => [look, status] as const)))(
    "leaves open what became of a VM that was asked for and a look did not show: %s %s",
    async (look, status) => {
      const answer = status && Response.json({ error: { code: status, message: "no" } }, { status })
      const found = { act: /^POST .*[/]instances([?]|$)/, look: new RegExp(look), answer }
      const send = failingAfter(server.send, found)
      const flaky = openGcp({ send, settings: { network: "jobs" } })(
        { gcp_project_id: "berth-test", keyfile_json: server.keyfile },
        REGION,
      )
      const asked = spec()
      await expect(flaky.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
      await flaky.launch(asked)
      await eventually(() => expect(server.machines.boots).toHaveLength(1))
    },
  )

  it.each(["forbidden", "rateLimit"] as const)(
    "lists all VMs, one that has stopped and can't be ended as billed: %s",
    async (fault) => {
      const vms = [await cloud.launch(spec()), await cloud.launch(spec())] as const
      const { zone, name } = partsOf(vms[0])
      server.powerOff(zone, name)
      server.faults.add("terminate", fault)
      const billed = vms.map(({ id }) => expect.objectContaining({ id, state: "running" }))
      const listed = await list()
      expect(listed).toHaveLength(2)
      expect(listed).toEqual(expect.arrayContaining(billed))
      await eventually(async () => expect(await list()).toEqual([billed[1]]))
    },
  )

  it("goes on waiting for an operation that an earlier call gave up", async () => {
    const asked = spec()
    server.operationMs = Number.POSITIVE_INFINITY
    await expect(openAt(server, server.keyfile, 3).launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
    // Whatever is said of another request, the VM is there; what had to be made before it, was.
    server.faults.add("launch", "quota")
    server.permissions = { has: (each: string) => !each.startsWith("compute.firewalls.") } as ReadonlySet<string>
    await expect(openAt(server).launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
    server.calls.length = 0
    const launch = openAt(server).launch(asked)
    await eventually(() => expect(server.calls).toContain("ZoneOperations.Wait"))
    server.finish()
    expect((await launch).state).toBe("running")
    expect(server.machines.boots).toHaveLength(1)
  })

  it("shows a spot VM that was taken back, which is gone by then", async () => {
    const asked = spec({ provisioning: "spot" })
    const { zone, name } = partsOf(await cloud.launch(asked))
    const other = await cloud.launch(spec({ provisioning: "spot" }, { installation: "j" }))
    server.preempt(zone, name)
    server.preempt(partsOf(other).zone, partsOf(other).name)
    expect(await list()).toEqual([
      expect.objectContaining({ launch: asked.name, state: "terminated", preempted: true, region: REGION }),
    ])
  })

  it("has VMs ended by the cloud itself when their lifetime is over", async () => {
    await cloud.launch(spec({}, { lifetimeSeconds: 600 }))
    server.elapse(599)
    expect(await list()).toHaveLength(1)
    server.elapse(2)
    expect(await list()).toEqual([])
  })

  it("refuses names, types and ids that Compute Engine could take for something else", async () => {
    const wrong = [
      spec({}, { name: "A" }),
      spec({}, { name: "a".repeat(49) }),
      spec({}, { installation: "I" }),
      spec({ instanceType: "../x" }),
      spec({ region: "europe-west1" }),
    ]
    for (const each of wrong) await expect(cloud.launch(each)).rejects.toBeInstanceOf(InvalidRequestError)
    for (const id of [
      "x",
      "zones/us-central1-a/instances/other",
      "zones/a/b/instances/berth-1",
      `${ZONES[0]}/berth-1`,
    ]) {
      const ref = { id, launch: "x", region: REGION }
      await expect(cloud.terminate(ref)).rejects.toBeInstanceOf(InvalidRequestError)
    }
  })
})

it("calls just what the role in docs/gcp.md allows", async () => {
  const page = await readFile(join(import.meta.dirname, "..", "..", "docs", "gcp.md"), "utf8")
  const role = load(/```yaml\n([\s\S]*?)```/.exec(page)?.[1] ?? "") as { includedPermissions: string[] }
  const server = new GceServer(world())
  await server.start()
  server.permissions = new Set(role.includedPermissions)
  // What takes a while is waited for, which needs a right of its own.
  server.firewallMs = 10
  const cloud = openAt(server)
  const spec: LaunchSpec = { name: "a-1", installation: "i", tags: {}, offer: OFFER, userData: "", lifetimeSeconds: 60 }
  await cloud.verify()
  const vm = await cloud.launch(spec)
  await cloud.launch(spec)
  await cloud.list({ installation: "i", region: REGION })
  await cloud.terminate(vm)
  expect([...server.usedPermissions].sort()).toEqual(role.includedPermissions)
  await server.close()
})

describe("what a key of Google Cloud must be", () => {
  let server: GceServer
  beforeAll(async () => {
    server = new GceServer(world())
    await server.start()
  })
  afterAll(() => server.close())

  it("no file but a service account's key opens an account", () => {
    expect(() => openAt(server, "{")).toThrow(CredentialsError)
    expect(() => openAt(server, '{"type":"authorized_user"}')).toThrow(CredentialsError)
  })

  it("a private key that is none is refused without a word of it", async () => {
    const broken = JSON.stringify({
      ...JSON.parse(server.keyfile),
      private_key: "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n",
    })
    const refusal = await openAt(server, broken)
      .verify()
      .catch((error: unknown) => error as CredentialsError)
    expect(refusal).toBeInstanceOf(CredentialsError)
    expect((refusal as Error).message).not.toContain("c2VjcmV0")
    expect(server.calls).toEqual([])
  })
})
