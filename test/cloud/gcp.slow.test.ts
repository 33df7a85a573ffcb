import { randomUUID } from "node:crypto"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { load } from "js-yaml"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { Cloud, LaunchSpec, Vm } from "../../src/clouds/cloud.ts"
import { gcpAccounts } from "../../src/clouds/gcp/account.ts"
import { openGcp } from "../../src/clouds/gcp/gcp.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import {
  CapacityError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  RegionError,
} from "../../src/core/outbound/errors.ts"
import { eventually } from "../harness/eventually.ts"
import { type CloudWithFaults, describeCloud, describeFaults } from "./conformance.ts"
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

  it("requests the offer's VM, labelled, with a lifetime limit and without inbound traffic", async () => {
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

  it("uses the configured network of its region, and blocks inbound traffic there too", async () => {
    const networks = { [REGION]: { network: "yard", subnetwork: "yard-europe" } }
    const open = openGcp({ send: server.send, settings: { network: "jobs" }, networks })
    await open({ gcp_project_id: "berth-test", keyfile_json: server.keyfile }, REGION).launch(spec())
    const [made] = server.instances()
    expect(made).toHaveProperty("networkInterfaces.0.network", expect.stringMatching(/networks[/]yard$/))
    const subnetwork = expect.stringMatching(new RegExp(`regions/${REGION}/subnetworks/yard-europe$`))
    expect(made).toHaveProperty("networkInterfaces.0.subnetwork", subnetwork)
    expect(server.firewalls.get("berth-no-inbound-yard")).toMatchObject({ direction: "INGRESS" })
  })

  it("uses the connection's network, address and disk, and no setting of the installation", async () => {
    const networks = { jobs: {}, team: { custom: true, subnets: { [REGION]: ["team-a", "team-b"] } } }
    const roomy = new GceServer(world({ networks }))
    await roomy.start()
    const role = ["compute.subnetworks.useExternalIp"]
    roomy.permissions = { has: (each: string) => !role.includes(each) } as ReadonlySet<string>
    const network = { network: "team", subnets: ["team-a", "team-b"], publicAddress: false }
    const disk = { sizeGib: 60, requiredGib: 300, type: "pd-ssd" }
    const asked = Array.from({ length: 16 }, () => spec({}, { network, disk }))
    const vms = await Promise.all(asked.map((each) => openAt(roomy).launch(each)))
    expect(vms.map(({ ipAddress }) => ipAddress)).toEqual(asked.map(() => undefined))
    const made = roomy.instances()
    const interfaces = made.map((instance) => (instance["networkInterfaces"] as Record<string, unknown>[])[0] ?? {})
    expect(new Set(interfaces.map(({ network: name }) => name))).toEqual(new Set(["global/networks/team"]))
    const subnets = ["team-a", "team-b"].map((name) => `regions/${REGION}/subnetworks/${name}`)
    expect(new Set(interfaces.map(({ subnetwork }) => subnetwork))).toEqual(new Set(subnets))
    for (const each of interfaces) expect(each).not.toHaveProperty("accessConfigs")
    for (const instance of made) {
      const parameters = { diskSizeGb: "300", diskType: expect.stringMatching(/diskTypes[/]pd-ssd$/) }
      expect(instance).toMatchObject({ disks: [{ initializeParams: parameters }] })
    }
    expect([...roomy.firewalls.keys()]).toEqual(["berth-no-inbound-team"])
    // The connection has changed since: the launch still finds its VM.
    const again = await openAt(roomy).launch(asked[0] as LaunchSpec)
    expect(again.id).toBe(vms[0]?.id)
    expect(roomy.violations).toEqual([])
    await roomy.close()
  })

  it.each([
    ["a network", { network: "gone" }, /`network` gone does not exist in its project: create it/],
    ["a subnet", { network: "team", subnets: ["gone"] }, /`subnets` gone in us-central1, does not exist/],
    [
      "a subnet of a custom network",
      { network: "team" },
      /team creates no subnets by itself: name one for us-central1/,
    ],
  ])("names the field and the remedy for %s that does not exist", async (_, named, words) => {
    const networks = { team: { custom: true, subnets: { [REGION]: ["team-a"] } } }
    const sparse = new GceServer(world({ networks }))
    await sparse.start()
    const asked = spec({}, { network: { ...named, publicAddress: true } })
    const refusal = await openAt(sparse)
      .launch(asked)
      .catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(RegionError)
    expect(refusal).toMatchObject({ message: expect.stringMatching(words) })
    await sparse.close()
  })

  it("never has a smaller disk than its image, and Google's words say so of one that is", async () => {
    const gpu = { model: "T4", count: 1, vramGib: 16 }
    const withGpu = { instanceType: "n1-standard-8_1xnvidia-tesla-t4", gpu }
    for (const offer of [{}, withGpu]) await cloud.launch(spec(offer, { disk: { sizeGib: 10 } }))
    server.imageDisksGb["cos-cloud"] = 80
    const refused = cloud.launch(spec())
    await expect(refused).rejects.toBeInstanceOf(InvalidRequestError)
    await expect(refused).rejects.toThrow("Requested disk size cannot be smaller than the image size (80 GB)")
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

  it("tries the next zone after a stockout, and finds that VM again from any zone", async () => {
    // Each launch has its own order of zones.
    const specs = Array.from({ length: 5 }, () => spec())
    allOut("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", ZONES.slice(0, 2))
    const vms = await Promise.all(specs.map((each) => cloud.launch(each)))
    expect(new Set(vms.map((vm) => partsOf(vm).zone))).toEqual(new Set([ZONES[2]]))
    // All zones have capacity again, and the ids of the earlier requests are forgotten: only the VMs remain.
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

  it("throws a capacity error when every zone is out, with the message of each", async () => {
    const asked = spec()
    allOut("ZONE_RESOURCE_POOL_EXHAUSTED")
    const refusal = await cloud.launch(asked).catch((error: unknown) => error as CapacityError)
    expect(refusal).toBeInstanceOf(CapacityError)
    expect(refusal).toMatchObject({ code: "ZONE_RESOURCE_POOL_EXHAUSTED" })
    for (const zone of ZONES) expect((refusal as CapacityError).message).toContain(zone)
    expect(server.instances()).toEqual([])
  })

  it("tries no other zone when the quota is used up, which holds for the region", async () => {
    allOut("QUOTA_EXCEEDED")
    await expect(cloud.launch(spec())).rejects.toBeInstanceOf(QuotaError)
    expect(server.calls.filter((call) => call === "Instances.Insert")).toHaveLength(1)
  })

  it.each([
    ["INTERNAL_ERROR", CapacityError],
    ["PERMISSIONS_ERROR", CredentialsError],
  ] as const)("an operation that ends with %s leaves no VM", async (code, expected) => {
    const asked = spec()
    allOut(code)
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(expected)
    // The identical request returns that operation: it may never create a VM.
    server.insertErrors.clear()
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(expected)
    expect(server.machines.boots).toEqual([])
  })

  it("lists, finds and terminates VMs in AI zones, and creates VMs there only if the offer names one", async () => {
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
    // Finds a launch that an older version made in any zone of the region.
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

  it("skips zones that don't sell the machine type", async () => {
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
    "throws an unknown outcome for a VM that was requested and a look did not show: %s %s",
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
    "lists all VMs, and a stopped VM that can't be deleted as billed: %s",
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

  it("shows a VM's console while the VM exists, and not without the permission", async () => {
    const vm = await cloud.launch(spec())
    server.consoles.set(partsOf(vm).name, "first\r\nlast\r\n")
    expect(await cloud.consoleOf?.(vm)).toBe("first\r\nlast\r\n")
    server.permissions = new Set(["compute.instances.delete"])
    await expect(cloud.consoleOf?.(vm)).rejects.toThrow(CredentialsError)
    await cloud.terminate(vm)
    server.permissions = undefined
    await eventually(async () => expect(await cloud.consoleOf?.(vm)).toBeUndefined())
  })

  it("continues to wait for an operation after the earlier call timed out", async () => {
    const asked = spec()
    server.operationMs = Number.POSITIVE_INFINITY
    await expect(openAt(server, server.keyfile, 3).launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
    // The VM exists whatever another request returned; its prerequisites were created.
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

  it("shows a preempted spot VM, which Google has deleted", async () => {
    const asked = spec({ provisioning: "spot" })
    const { zone, name } = partsOf(await cloud.launch(asked))
    const other = await cloud.launch(spec({ provisioning: "spot" }, { installation: "j" }))
    server.preempt(zone, name)
    server.preempt(partsOf(other).zone, partsOf(other).name)
    expect(await list()).toEqual([
      expect.objectContaining({ launch: asked.name, state: "terminated", preempted: true, region: REGION }),
    ])
  })

  it("lets Google delete VMs at the end of their lifetime", async () => {
    await cloud.launch(spec({}, { lifetimeSeconds: 600 }))
    server.elapse(599)
    expect(await list()).toHaveLength(1)
    server.elapse(2)
    expect(await list()).toEqual([])
  })

  it("rejects names, types and ids with characters that Compute Engine could interpret", async () => {
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

it("Berth uses exactly the permissions of docs/roles/gcp.yaml", async () => {
  const file = await readFile(join(import.meta.dirname, "..", "..", "docs", "roles", "gcp.yaml"), "utf8")
  const role = load(file) as { includedPermissions: string[] }
  const server = new GceServer(world())
  await server.start()
  server.permissions = new Set(role.includedPermissions)
  // Waiting for a slow operation needs a permission of its own.
  server.firewallMs = 10
  const cloud = openAt(server)
  const spec: LaunchSpec = { name: "a-1", installation: "i", tags: {}, offer: OFFER, userData: "", lifetimeSeconds: 60 }
  await cloud.verify()
  const key = { gcp_project_id: "berth-test", keyfile_json: server.keyfile }
  const account = gcpAccounts({ send: server.send })(key)
  const capabilities = account.capabilities?.({ regions: [REGION] }, AbortSignal.timeout(30_000))
  expect(await capabilities).toMatchObject({ vms: { is: "granted" } })
  const vm = await cloud.launch(spec)
  await cloud.launch(spec)
  await cloud.list({ installation: "i", region: REGION })
  await cloud.consoleOf?.(vm)
  await cloud.terminate(vm)
  expect([...server.usedPermissions].sort()).toEqual(role.includedPermissions)
  await server.close()
})

describe("validation of a Google Cloud key", () => {
  let server: GceServer
  beforeAll(async () => {
    server = new GceServer(world())
    await server.start()
  })
  afterAll(() => server.close())

  it("opens an account only with a service account's key file", () => {
    expect(() => openAt(server, "{")).toThrow(CredentialsError)
    expect(() => openAt(server, '{"type":"authorized_user"}')).toThrow(CredentialsError)
  })

  it("rejects an invalid private key without a part of it in the error", async () => {
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
