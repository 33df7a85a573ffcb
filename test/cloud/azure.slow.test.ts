import { execFile } from "node:child_process"
import { randomUUID } from "node:crypto"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { azureAccounts } from "../../src/clouds/azure/account.ts"
import { openAzure } from "../../src/clouds/azure/azure.ts"
import { LAUNCH_ACTIONS, missingActions } from "../../src/clouds/azure/permissions.ts"
import { DELETE_SCRIPT, withDeletion } from "../../src/clouds/azure/user-data.ts"
import type { Cloud, LaunchSpec } from "../../src/clouds/cloud.ts"
import { seriesOf } from "../../src/clouds/machines/machines.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import {
  CapacityError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  RegionError,
  RestrictedError,
} from "../../src/core/outbound/errors.ts"
import { eventually } from "../harness/eventually.ts"
import { ArmServer } from "./arm-server.ts"
import { documentedRoles } from "./azure-roles.ts"
import { type CloudWithFaults, describeCloud, describeFaults } from "./conformance.ts"
import { failingAfter, LOOK_FAULTS } from "./faults.ts"

const REGION = "westeurope"
const OFFER: Offer = {
  cloud: "azure",
  region: REGION,
  instanceType: "Standard_D2s_v5",
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 2,
  memoryGib: 8,
  hourlyPriceUsd: 0.115,
  minimumBilledSeconds: 60,
}

/** Checks the capabilities of a connection that has had VMs in a region. */
async function capabilitiesAt({ send, credentials }: ArmServer) {
  const account = azureAccounts({ send })(credentials)
  return await account.capabilities?.({ regions: [REGION] }, AbortSignal.timeout(30_000))
}

function openAt(
  server: ArmServer,
  { secret, callSeconds = 30 }: { secret?: string; callSeconds?: number } = {},
): Cloud {
  const open = openAzure({ send: server.send, callSeconds, settleSeconds: 30, lookSeconds: 0.02 })
  return open({ ...server.credentials, ...(secret !== undefined && { client_secret: secret }) }, REGION)
}

async function underTest(callSeconds: number): Promise<CloudWithFaults> {
  const server = new ArmServer()
  await server.start()
  const group = `/subscriptions/${server.credentials.subscription_id}/resourceGroups/berth-i-${REGION}`
  return {
    offer: OFFER,
    userData: "#cloud-config\n{}",
    remembers: "nothing",
    neverWas: (launch) => ({
      id: `${group}/providers/Microsoft.Compute/virtualMachines/berth-${launch}`,
      launch,
      region: REGION,
    }),
    open: async () => openAt(server, { callSeconds }),
    countBoots: (launch) =>
      eventually(() => {
        const boots = server.machines.boots.filter((name) => name === `berth-${launch}`)
        expect(boots).not.toEqual([])
        return boots.length
      }),
    powerOff: async (vm) => server.powerOff(vm.id),
    fail: (act, fault) => server.faults.add(act, fault),
    mend: () => server.faults.clear(),
    limitPages(size) {
      server.pageSize = size
    },
    openRefused: async () => openAt(server, { secret: "wrong" }),
    violations: () => server.violations,
    close: () => server.close(),
  }
}

describeCloud("azure", () => underTest(30))
describeFaults("azure", () => underTest(6))

describe("azure", () => {
  let server: ArmServer
  let cloud: Cloud

  beforeEach(async () => {
    server = new ArmServer()
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
    tags: { project: "team-a", job: "train" },
    offer: { ...OFFER, ...offer },
    userData: "#cloud-config\n{}",
    lifetimeSeconds: 3600,
    ...overrides,
  })
  const list = () => cloud.list({ installation: "i", region: REGION })

  it("requests a tagged VM whose interface, address and disk are deleted with it, without inbound traffic", async () => {
    const asked = spec({ provisioning: "spot" })
    await cloud.launch(asked)
    const tags = {
      "berth-installation": "i",
      "berth-launch": asked.name,
      "berth-project": "team-a",
      "berth-job": "train",
    }
    const [interfaces] = [expect.objectContaining({ properties: expect.objectContaining({ deleteOption: "Delete" }) })]
    expect(server.requested()).toEqual([
      expect.objectContaining({
        tags: expect.objectContaining(tags),
        properties: expect.objectContaining({
          priority: "Spot",
          evictionPolicy: "Delete",
          storageProfile: expect.objectContaining({ osDisk: expect.objectContaining({ deleteOption: "Delete" }) }),
          networkProfile: expect.objectContaining({ networkInterfaceConfigurations: [interfaces] }),
        }),
      }),
    ])
    const address = JSON.stringify(server.requested()[0]).match(
      /"publicIPAddressConfiguration":\{.*?"deleteOption":"(\w+)"/,
    )
    expect(address?.[1]).toBe("Delete")
    expect(server.securityGroups.get(`berth-i-${REGION}`)).toMatchObject({
      properties: {
        securityRules: [{ properties: { direction: "Inbound", access: "Deny", sourceAddressPrefix: "*" } }],
      },
    })
  })

  describe("an Azure VM in the network of its connection", () => {
    const jobs = { location: REGION, subnets: ["a", "b"] }
    const idOf = (subnet: string) =>
      `/subscriptions/${server.credentials.subscription_id}/resourceGroups/net-rg/providers/Microsoft.Network/virtualNetworks/jobs/subnets/${subnet}`
    const disk = { sizeGib: 80, requiredGib: 300, type: "Premium_LRS" }

    it("has the subnet, address and disk of the connection, and Berth's own security group", async () => {
      server.addNetwork("net-rg", "jobs", jobs)
      server.actions = server.actions.filter(
        (action) => !action.startsWith("Microsoft.Network/publicIPAddresses/write"),
      )
      const network = { network: "net-rg/jobs", subnets: ["a", "b"], publicAddress: false }
      const asked = Array.from({ length: 8 }, () => spec({}, { network, disk }))
      await Promise.all(asked.map((each) => cloud.launch(each)))
      const text = server.requested().map((body) => JSON.stringify(body))
      const subnets = text.map((each) => /"subnet":\{"id":"([^"]+)"/.exec(each)?.[1])
      expect(new Set(subnets)).toEqual(new Set([idOf("a"), idOf("b")]))
      for (const each of text) {
        expect(each).not.toContain("publicIPAddressConfiguration")
        expect(each).toContain(`resourceGroups/berth-i-${REGION}/providers/Microsoft.Network/networkSecurityGroups/`)
        expect(each).toMatch(/"diskSizeGB":300,"managedDisk":\{"storageAccountType":"Premium_LRS"\}/)
      }
      // The installation's own network is not created.
      expect(server.calls).not.toContain("Microsoft.Network/virtualNetworks/write")
      await eventually(async () => expect((await list()).map(({ state }) => state)).toEqual(asked.map(() => "running")))
      expect((await list()).map(({ ipAddress }) => ipAddress)).toEqual(asked.map(() => undefined))
    })

    it("accepts a subnet with its network, or by its resource id", async () => {
      server.addNetwork("net-rg", "jobs", jobs)
      for (const subnet of ["net-rg/jobs/a", idOf("b")]) {
        await cloud.launch(spec({}, { network: { subnets: [subnet], publicAddress: true } }))
      }
      const text = JSON.stringify(server.requested())
      for (const subnet of ["a", "b"]) expect(text).toContain(idOf(subnet))
      expect(text.match(/publicIPAddressConfiguration/g)).toHaveLength(2)
    })

    it("has a standard disk on a size without Premium storage", async () => {
      await cloud.launch(spec({ instanceType: "Standard_D2_v5" }, { disk }))
      expect(JSON.stringify(server.requested())).toContain('"storageAccountType":"StandardSSD_LRS"')
    })

    it.each([
      [
        "network",
        "net-rg/other",
        "a",
        /`subnets` for westeurope need the virtual network net-rg\/other, which does not exist/,
      ],
      [
        "subnet",
        "net-rg/jobs",
        "c",
        /net-rg\/jobs has no subnet c, which .* `subnets` name for westeurope: it has a, b/,
      ],
      ["network of the region", "net-rg/far", "a", /is in northeurope: name a network in westeurope/],
    ])("names the field and the remedy if the %s does not exist", async (_, network, subnet, words) => {
      server.addNetwork("net-rg", "jobs", jobs)
      server.addNetwork("net-rg", "far", { ...jobs, location: "northeurope" })
      const asked = spec({}, { network: { network, subnets: [subnet], publicAddress: true } })
      const refusal = await cloud.launch(asked).catch((error: unknown) => error)
      expect(refusal).toBeInstanceOf(RegionError)
      expect(refusal).toMatchObject({ message: expect.stringMatching(words) })
      expect(server.requested()).toEqual([])
    })

    it("looks for the network again after it was deleted, and finds a VM whose network is deleted", async () => {
      server.addNetwork("net-rg", "jobs", jobs)
      const network = { network: "net-rg/jobs", subnets: ["a"], publicAddress: true }
      const made = spec({}, { network })
      const { id } = await cloud.launch(made)
      server.removeNetwork("net-rg", "jobs")
      expect((await openAt(server).launch(made)).id).toBe(id)
      await expect(cloud.launch(spec({}, { network }))).rejects.toBeInstanceOf(InvalidRequestError)
      await expect(cloud.launch(spec({}, { network }))).rejects.toThrow(/need the virtual network net-rg\/jobs/)
      server.addNetwork("net-rg", "jobs", jobs)
      await cloud.launch(spec({}, { network }))
    })
  })

  it("gives the VM the right to delete itself, and no other VM", async () => {
    const vm = await cloud.launch(spec())
    expect([...server.assignments]).toEqual([
      [vm.id.toLowerCase(), expect.objectContaining({ roleDefinitionId: expect.stringContaining("roleDefinitions") })],
    ])
  })

  it("completes the launch of a VM whose creator died before it could delete itself, and creates none", async () => {
    const asked = spec()
    const { id } = await cloud.launch(asked)
    server.assignments.clear()
    const next = openAt(server)
    for (let time = 0; time < 2; time++) await next.completeLaunch?.(asked)
    expect([...server.assignments.keys()]).toEqual([id.toLowerCase()])
    server.evict(id)
    await next.completeLaunch?.(asked)
    expect(server.requested()).toEqual([])
  })

  it("creates no VM that could not delete itself: without the role, or without the right to assign it", async () => {
    server.roleName = "another"
    await expect(cloud.launch(spec())).rejects.toThrow(/Berth VM.*docs\/azure\.md/)
    server.roleName = "Berth VM"
    server.actions = server.actions.filter((action) => !action.endsWith("roleAssignments/write"))
    await expect(cloud.launch(spec())).rejects.toBeInstanceOf(CredentialsError)
    await eventually(async () => expect(await list()).toEqual([]))
  })

  it.each([
    ["AllocationFailed", "no capacity", CapacityError],
    ["ZonalAllocationFailed", "no capacity in zone 1", CapacityError],
    ["OverconstrainedAllocationRequest", "too many constraints", CapacityError],
    ["OperationNotAllowed", "exceeding approved standardDSv5Family Cores quota", QuotaError],
  ] as const)("deletes a VM whose provisioning fails: %s", async (code, message, expected) => {
    server.failure = { code, message }
    await expect(cloud.launch(spec())).rejects.toBeInstanceOf(expected)
    await eventually(async () => expect(await list()).toEqual([]))
    expect(server.machines.boots).toEqual([])
  })

  it("never has a smaller disk than its image, and Azure's words say so of one that is", async () => {
    const withGpu = { instanceType: "Standard_NC4as_T4_v3", gpu: { model: "T4", count: 1, vramGib: 16 } }
    for (const offer of [{}, withGpu]) await cloud.launch(spec(offer, { disk: { sizeGib: 10 } }))
    server.imageDisksGb["ubuntu-24_04-lts"] = 80
    const refused = cloud.launch(spec())
    await expect(refused).rejects.toBeInstanceOf(InvalidRequestError)
    await expect(refused).rejects.toThrow("The specified disk size 64 GB is smaller")
  })

  it("distinguishes missing permissions from exceeded quotas", async () => {
    server.failure = { code: "OperationNotAllowed", message: "this size can't have that disk" }
    await expect(cloud.launch(spec())).rejects.toBeInstanceOf(InvalidRequestError)
  })

  it.each(LOOK_FAULTS)(
    "throws an unknown outcome for a VM that Azure has accepted and a look did not show: %s",
    async (status) => {
      const answer = status && Response.json({ error: { code: `HTTP${status}`, message: "no" } }, { status })
      const [act, look] = [/^PUT [^?]*[/]virtualMachines[/][^/?]+[?]/, /^GET [^?]*[/]virtualMachines[/][^/?]+[?]/]
      const send = failingAfter(server.send, { act, look, answer })
      const flaky = openAzure({ send, settleSeconds: 30, lookSeconds: 0.02 })(server.credentials, REGION)
      const asked = spec()
      await expect(flaky.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
      await flaky.launch(asked)
      await eventually(() => expect(server.machines.boots).toHaveLength(1))
    },
  )

  it("throws an unknown outcome for a VM whose provisioning and deletion fail", async () => {
    server.failure = { code: "AllocationFailed", message: "no capacity" }
    const asked = spec()
    server.faults.add("terminate", "rateLimit")
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
    expect(server.requested()).toHaveLength(1)
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(CapacityError)
    await eventually(() => expect(server.requested()).toEqual([]))
  })

  it("throws an unknown outcome for a VM that may not delete itself and can't be deleted", async () => {
    server.actions = server.actions.filter((action) => !action.endsWith("roleAssignments/write"))
    const asked = spec()
    server.faults.add("terminate", "rateLimit")
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(CredentialsError)
    await eventually(() => expect(server.requested()).toEqual([]))
  })

  it("classifies a subscription at its limit of role assignments as a used up quota", async () => {
    const error = { code: "RoleAssignmentLimitExceeded", message: "No more role assignments can be created" }
    const [act, look] = [/^PUT [^?]*[/]virtualMachines[/][^/?]+[?]/, /^PUT [^?]*[/]roleAssignments[/]/]
    const send = failingAfter(server.send, { act, look, answer: Response.json({ error }, { status: 400 }) })
    const launch = openAzure({ send, settleSeconds: 30, lookSeconds: 0.02 })(server.credentials, REGION).launch(spec())
    await expect(launch).rejects.toBeInstanceOf(QuotaError)
    await eventually(() => expect(server.requested()).toEqual([]))
  })

  it.each(["forbidden", "rateLimit"] as const)(
    "lists all VMs, and a stopped VM that can't be deleted as billed: %s",
    async (fault) => {
      const vms = [await cloud.launch(spec()), await cloud.launch(spec())] as const
      await eventually(async () => expect((await list()).map(({ state }) => state)).toEqual(["running", "running"]))
      server.powerOff(vms[0].id)
      server.faults.add("terminate", fault)
      const billed = vms.map(({ id }) => expect.objectContaining({ id, state: "running" }))
      expect(await list()).toEqual(billed)
      expect(server.requested()).toHaveLength(2)
      await eventually(async () => expect(await list()).toEqual([billed[1]]))
    },
  )

  it("classifies a policy that denies a machine size as an error of this size, not of the key", async () => {
    server.denied = /virtualMachines\/write$/
    const refusal = await cloud.launch(spec()).catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(InvalidRequestError)
    expect(refusal).toMatchObject({ code: "RequestDisallowedByPolicy" })
  })

  it.each(["resourceGroups", "networkSecurityGroups"])(
    "classifies a policy that denies %s as an error of the region",
    async (kind) => {
      server.denied = new RegExp(`${kind}/write$`)
      await expect(cloud.launch(spec())).rejects.toBeInstanceOf(RegionError)
      server.denied = undefined
      await cloud.launch(spec())
    },
  )

  it("distinguishes a missing image of the region from a deleted resource group", async () => {
    server.missingImage = "server"
    const refusal = await cloud.launch(spec()).catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(InvalidRequestError)
    expect(refusal).toMatchObject({ code: "PlatformImageNotFound" })
  })

  it("returns a VM whose provisioning takes long as accepted", async () => {
    server.operationMs = Number.POSITIVE_INFINITY
    const open = openAzure({ send: server.send, settleSeconds: 0.1, lookSeconds: 0.05 })
    const vm = await open(server.credentials, REGION).launch(spec())
    expect(vm.state).toBe("booting")
    server.finish()
    await eventually(async () =>
      expect(await list()).toEqual([expect.objectContaining({ id: vm.id, state: "running" })]),
    )
  })

  it("polls once for all launches that wait for a machine", async () => {
    // The operation takes half a second, so that even a slow machine polls only a few times.
    server.operationMs = 500
    const waiting = openAzure({ send: server.send, settleSeconds: 60, lookSeconds: 0.05 })(server.credentials, REGION)
    await waiting.launch(spec())
    server.calls.length = 0
    await Promise.all(Array.from({ length: 20 }, () => waiting.launch(spec())))
    const calls = server.calls.filter((call) => call === "Microsoft.Compute/virtualMachines/read").length
    // Two calls of each launch, and the common polls. A poll for each launch alone would make ten times as many.
    expect(calls).toBeLessThan(20 * 8)
  })

  it("creates its resource group again after it was deleted", async () => {
    await cloud.launch(spec())
    server.deleteGroup(`berth-i-${REGION}`)
    const asked = spec()
    await eventually(() => cloud.launch(asked))
    await eventually(async () => expect(await list()).toEqual([expect.objectContaining({ launch: asked.name })]))
  })

  it("picks images by architecture, generation and GPUs", async () => {
    const gpu = { model: "A100", count: 1, vramGib: 80 }
    await cloud.launch(spec({ architecture: "arm64", instanceType: "Standard_D2ps_v5" }))
    await cloud.launch(spec({ instanceType: "Standard_A2_v2" }))
    await cloud.launch(spec({ instanceType: "Standard_NC24ads_A100_v4", gpu }))
    const skus = JSON.stringify(server.requested()).match(/"sku":"[a-z0-9-]+","version"/g)
    expect(skus?.map((each) => each.split('"')[3])).toEqual(["server-arm64", "server-gen1", "2204"])
  })

  it("rejects names and ids with characters that Azure could interpret", async () => {
    const wrong = [spec({}, { name: "A/b" }), spec({}, { name: "a".repeat(58) }), spec({}, { installation: "../x" })]
    for (const each of wrong) await expect(cloud.launch(each)).rejects.toBeInstanceOf(InvalidRequestError)
    const group = "resourceGroups/berth-i-westeurope/providers/Microsoft.Compute/virtualMachines"
    for (const id of [
      `/subscriptions/${randomUUID()}/${group}/berth-1`,
      "berth-1",
      `/subscriptions/x/${group}/other`,
    ]) {
      await expect(cloud.terminate({ id, launch: "x", region: REGION })).rejects.toBeInstanceOf(InvalidRequestError)
    }
  })
})

describe("an Azure VM that shuts down", () => {
  /**
   * Runs the VM's script with stand-ins for its programs, and returns its accepted request. Azure refuses the deletion until
   * the script has slept for `refusedSeconds`.
   */
  async function shutDown(jobs: string, refusedSeconds = 0): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), "berth-azure-"))
    const answers = [
      `case "$*" in`,
      `*identity/oauth2/token*) echo '{"access_token":"a.b-c","expires_in":"86400"}';;`,
      `*compute/resourceId*) printf /subscriptions/s/virtualMachines/berth-1;;`,
      `*DELETE*) [ $(($(tr '\\n' + < "${folder}/slept") 0)) -ge ${refusedSeconds} ] || exit 22`,
      `echo "$* $(cat)" > "${folder}/asked";;`,
      "esac",
    ]
    const programs = {
      curl: answers.join("\n"),
      systemctl: `echo '${jobs}'`,
      sleep: `echo "$1" >> "${folder}/slept"`,
    }
    await writeFile(join(folder, "slept"), "")
    for (const [name, text] of Object.entries(programs)) {
      await writeFile(join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 })
    }
    const env = { PATH: `${folder}:${process.env["PATH"]}` }
    await promisify(execFile)("/bin/sh", ["-c", DELETE_SCRIPT], { env })
    const asked = await readFile(join(folder, "asked"), "utf8").catch(() => "")
    await rm(folder, { recursive: true })
    return asked
  }

  it("deletes the VM by its own identity, and no process has the token in its arguments", async () => {
    const asked = await shutDown("12 poweroff.target start waiting")
    expect(asked).toContain(
      "-X DELETE https://management.azure.com/subscriptions/s/virtualMachines/berth-1?api-version=",
    )
    expect(asked).toContain('header = "Authorization: Bearer a.b-c"')
    expect(asked.split("header =")[0]).not.toContain("a.b-c")
  })

  it("repeats its request until a role assignment is in effect after 20 minutes", async () => {
    expect(await shutDown("12 poweroff.target start waiting", 1200)).toContain(
      "-X DELETE https://management.azure.com/",
    )
  })

  it("keeps the VM on a reboot", async () => {
    expect(await shutDown("12 reboot.target start waiting")).toBe("")
  })

  it("installs the deletion service before the VM's own user data, which stays unchanged", () => {
    const text = withDeletion("#cloud-config\nruncmd: []\n")
    expect(text.indexOf("#cloud-boothook")).toBeLessThan(text.indexOf("#cloud-config"))
    expect(text).toContain("\n\n#cloud-config\nruncmd: []\n\n--")
    expect(text).toContain(DELETE_SCRIPT)
  })
})

describe("the permissions of a service principal", () => {
  const server = new ArmServer()
  beforeAll(() => server.start())
  afterAll(() => server.close())
  const { Actions: documented } = documentedRoles().berth
  const spec = (): LaunchSpec => ({
    name: `${randomUUID()}-1`,
    installation: randomUUID().slice(0, 8),
    ...{ tags: {}, offer: OFFER, userData: "", lifetimeSeconds: 60 },
  })
  const check = () => capabilitiesAt(server)

  it("permissions are complete in the documented role", () => {
    expect(LAUNCH_ACTIONS.filter((action) => !documented.includes(action))).toEqual([])
  })

  it.each(LAUNCH_ACTIONS)("permissions are incomplete without %s, which the verification names", async (action) => {
    server.actions = documented.filter((each) => each !== action)
    const cloud = openAt(server)
    const asked = spec()
    const refusal = await cloud
      .launch(asked)
      .then((vm) => cloud.terminate(vm))
      .catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(CredentialsError)
    expect(refusal).toMatchObject({ message: expect.stringMatching(new RegExp(`'${action}'.*docs/azure.md`)) })
    const message = expect.stringContaining(`lacks the actions ${action}: add them to its role`)
    expect(await check()).toMatchObject({ vms: { is: "denied", message } })
  })

  it("permissions are unknown if the role may not list them, which is not an error", async () => {
    server.actions = documented.filter((each) => !each.endsWith("permissions/read"))
    expect(await check()).toMatchObject({
      vms: { is: "unknown", message: expect.stringContaining("docs/azure.md") },
    })
  })

  it("permissions follow from any roles: with patterns, exclusions, and several roles together", () => {
    expect(missingActions([{ actions: ["*"] }])).toEqual([])
    expect(missingActions([{ actions: ["*/read"] }])).not.toContain("Microsoft.Network/virtualNetworks/read")
    const contributor = { actions: ["*"], notActions: ["microsoft.authorization/*/Write"] }
    expect(missingActions([contributor])).toEqual(["Microsoft.Authorization/roleAssignments/write"])
    const assigner = { actions: ["Microsoft.Authorization/roleAssignments/write"] }
    expect(missingActions([contributor, assigner])).toEqual([])
    expect(missingActions([])).toEqual(LAUNCH_ACTIONS)
  })
})

describe("sizes that an Azure subscription may not use", () => {
  let server: ArmServer
  let cloud: Cloud
  const spec = (instanceType: string, zone?: string): LaunchSpec => ({
    ...{ name: `${randomUUID()}-1`, installation: "i", tags: {}, userData: "", lifetimeSeconds: 60 },
    offer: { ...OFFER, instanceType, ...(zone !== undefined && { zone }) },
  })

  beforeEach(async () => {
    server = new ArmServer()
    await server.start()
    cloud = openAt(server)
    server.pageSize = 2
    server.skus.push(
      { name: "Standard_D2s_v5", isRestricted: true },
      { name: "Standard_D4s_v5", isRestricted: true },
      { name: "Standard_E2s_v5" },
      { name: "Standard_E4s_v5", isRestricted: true },
      { name: "Standard_F2s_v2", zones: ["2"] },
    )
    return async () => {
      expect(server.violations).toEqual([])
      await server.close()
    }
  })

  it("are rejected from Azure's list, which is read once, before anything is created", async () => {
    const error = await cloud.launch(spec("Standard_D2s_v5")).catch((thrown: unknown) => thrown)
    expect(error).toBeInstanceOf(RestrictedError)
    expect(error).toMatchObject({
      code: "SkuNotAvailable",
      message: expect.stringContaining("size Standard_D2s_v5 is not available in"),
      // The series D as a whole, and one size of the series E.
      machines: ["Standard_D2s_v5", seriesOf("azure", "Standard_D2s_v5"), "Standard_E4s_v5"],
    })
    await expect(cloud.launch(spec("Standard_E4s_v5"))).rejects.toThrow(RestrictedError)
    expect(server.usedActions).not.toContain("Microsoft.Resources/subscriptions/resourceGroups/write")
    expect(server.requested()).toEqual([])
    await cloud.launch(spec("Standard_E2s_v5"))
    // A size that the list lacks, such as a new one, is tried.
    await cloud.launch(spec("Standard_L8s_v3"))
    expect(server.requested()).toHaveLength(2)
    expect(server.skuLists).toBe(1)
  })

  it("are rejected in a restricted zone only", async () => {
    await expect(cloud.launch(spec("Standard_F2s_v2", "westeurope-2"))).rejects.toThrow("in zone 2 of")
    await cloud.launch(spec("Standard_F2s_v2", "westeurope-1"))
    await cloud.launch(spec("Standard_F2s_v2"))
  })

  it("are found by launches if the role does not allow to read the list, and the check says so", async () => {
    server.actions = documentedRoles().berth.Actions.filter((action) => action !== "Microsoft.Compute/skus/read")
    await cloud.launch(spec("Standard_D2s_v5"))
    expect(server.requested()).toHaveLength(1)
    expect((await capabilitiesAt(server))?.vms).toMatchObject({
      is: "granted",
      message: expect.stringContaining("add Microsoft.Compute/skus/read"),
    })
  })
})

it("Berth uses exactly the permissions of docs/roles/azure.json, and a VM can only delete itself", async () => {
  const { vm: vmRole, berth } = documentedRoles()
  const server = new ArmServer()
  await server.start()
  const cloud = openAt(server)
  const spec: LaunchSpec = { name: "a-1", installation: "i", tags: {}, offer: OFFER, userData: "", lifetimeSeconds: 60 }
  await cloud.verify()
  expect(await capabilitiesAt(server)).toMatchObject({ vms: { is: "granted" } })
  const vm = await cloud.launch(spec)
  await cloud.list({ installation: "i", region: REGION })
  await cloud.terminate(vm)
  expect([...server.usedActions].sort()).toEqual(berth.Actions)
  expect(vmRole.Name).toBe("Berth VM")
  expect(vmRole.Actions).toEqual([...server.actionsToDelete].sort())
  await server.close()
})
