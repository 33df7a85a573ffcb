import { execFile } from "node:child_process"
import { randomUUID } from "node:crypto"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { Offer } from "../../src/apis/offer.ts"
import { azureAccounts } from "../../src/cloud/azure/account.ts"
import { openAzure } from "../../src/cloud/azure/azure.ts"
import { LAUNCH_ACTIONS, missingActions } from "../../src/cloud/azure/permissions.ts"
import { DELETE_SCRIPT, withDeletion } from "../../src/cloud/azure/user-data.ts"
import {
  CapacityError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  RegionError,
} from "../../src/cloud/errors.ts"
import type { Cloud, LaunchSpec } from "../../src/cloud/provider.ts"
import { ArmServer } from "./arm-server.ts"
import { documentedRoles } from "./azure-roles.ts"
import { type CloudWithFaults, describeCloud, describeFaults } from "./conformance.ts"
import { eventually } from "./eventually.ts"
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

  it("asks for a VM whose interface, address and disk go with it, tagged, which lets nothing in", async () => {
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

  it("gives the VM the right to delete itself, and only that VM", async () => {
    const vm = await cloud.launch(spec())
    expect([...server.assignments]).toEqual([
      [vm.id.toLowerCase(), expect.objectContaining({ roleDefinitionId: expect.stringContaining("roleDefinitions") })],
    ])
  })

  it("makes no VM that could not delete itself: without the role, or the right to assign it", async () => {
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
  ] as const)("removes a VM that can't be provisioned: %s", async (code, message, expected) => {
    server.failure = { code, message }
    await expect(cloud.launch(spec())).rejects.toBeInstanceOf(expected)
    await eventually(async () => expect(await list()).toEqual([]))
    expect(server.machines.boots).toEqual([])
  })

  it("knows what is not allowed from what is too much", async () => {
    server.failure = { code: "OperationNotAllowed", message: "this size can't have that disk" }
    await expect(cloud.launch(spec())).rejects.toBeInstanceOf(InvalidRequestError)
  })

  it.each(LOOK_FAULTS)(
    "leaves open what became of a VM that Azure has accepted and a look did not show: %s",
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

  it("leaves open what becomes of a VM that can't be provisioned, nor removed now", async () => {
    server.failure = { code: "AllocationFailed", message: "no capacity" }
    const asked = spec()
    server.faults.add("terminate", "rateLimit")
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
    expect(server.requested()).toHaveLength(1)
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(CapacityError)
    await eventually(() => expect(server.requested()).toEqual([]))
  })

  it("leaves open what becomes of a VM that may not delete itself, and can't be removed now", async () => {
    server.actions = server.actions.filter((action) => !action.endsWith("roleAssignments/write"))
    const asked = spec()
    server.faults.add("terminate", "rateLimit")
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(CredentialsError)
    await eventually(() => expect(server.requested()).toEqual([]))
  })

  it("takes a subscription that has no room for one more role assignment for one with a used up quota", async () => {
    const error = { code: "RoleAssignmentLimitExceeded", message: "No more role assignments can be created" }
    const [act, look] = [/^PUT [^?]*[/]virtualMachines[/][^/?]+[?]/, /^PUT [^?]*[/]roleAssignments[/]/]
    const send = failingAfter(server.send, { act, look, answer: Response.json({ error }, { status: 400 }) })
    const launch = openAzure({ send, settleSeconds: 30, lookSeconds: 0.02 })(server.credentials, REGION).launch(spec())
    await expect(launch).rejects.toBeInstanceOf(QuotaError)
    await eventually(() => expect(server.requested()).toEqual([]))
  })

  it.each(["forbidden", "rateLimit"] as const)(
    "lists all VMs, one that has stopped and can't be ended as billed: %s",
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

  it("takes a policy that denies a machine for a refusal of this machine, not of the key", async () => {
    server.denied = /virtualMachines\/write$/
    const refusal = await cloud.launch(spec()).catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(InvalidRequestError)
    expect(refusal).toMatchObject({ code: "RequestDisallowedByPolicy" })
  })

  it.each(["resourceGroups", "networkSecurityGroups"])(
    "takes a policy that denies %s for a refusal of the region",
    async (kind) => {
      server.denied = new RegExp(`${kind}/write$`)
      await expect(cloud.launch(spec())).rejects.toBeInstanceOf(RegionError)
      server.denied = undefined
      await cloud.launch(spec())
    },
  )

  it("knows an image that the region doesn't have from a resource group that is gone", async () => {
    server.missingImage = "server"
    const refusal = await cloud.launch(spec()).catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(InvalidRequestError)
    expect(refusal).toMatchObject({ code: "PlatformImageNotFound" })
  })

  it("takes a VM that is being provisioned for long as accepted", async () => {
    server.operationMs = Number.POSITIVE_INFINITY
    const open = openAzure({ send: server.send, settleSeconds: 0.1, lookSeconds: 0.05 })
    const vm = await open(server.credentials, REGION).launch(spec())
    expect(vm.state).toBe("booting")
    server.finish()
    await eventually(async () =>
      expect(await list()).toEqual([expect.objectContaining({ id: vm.id, state: "running" })]),
    )
  })

  it("asks once for all launches that wait for whether there is a machine for them", async () => {
    // Few looks in that time, so that a slow machine, which takes longer, has not looked too often.
    server.operationMs = 500
    const waiting = openAzure({ send: server.send, settleSeconds: 60, lookSeconds: 0.05 })(server.credentials, REGION)
    await waiting.launch(spec())
    server.calls.length = 0
    await Promise.all(Array.from({ length: 20 }, () => waiting.launch(spec())))
    const calls = server.calls.filter((call) => call === "Microsoft.Compute/virtualMachines/read").length
    // Two of each launch, and the looks of all together; a look of each launch alone would make them ten times as many.
    expect(calls).toBeLessThan(20 * 8)
  })

  it("makes its resource group anew when somebody has deleted it", async () => {
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

  it("refuses names and ids that Azure could take for something else", async () => {
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
  /** Runs the VM's script with stand-ins for what it calls, and tells what it asked of the network. */
  async function shutDown(jobs: string): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), "berth-azure-"))
    const answers = [
      `case "$*" in`,
      `*identity/oauth2/token*) echo '{"access_token":"a.b-c","expires_in":"86400"}';;`,
      `*compute/resourceId*) printf /subscriptions/s/virtualMachines/berth-1;;`,
      `*DELETE*) echo "$* $(cat)" > "${folder}/asked";;`,
      "esac",
    ]
    const programs = { curl: answers.join("\n"), systemctl: `echo '${jobs}'` }
    for (const [name, text] of Object.entries(programs)) {
      await writeFile(join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 })
    }
    const env = { PATH: `${folder}:${process.env["PATH"]}` }
    await promisify(execFile)("/bin/sh", ["-c", DELETE_SCRIPT], { env })
    const asked = await readFile(join(folder, "asked"), "utf8").catch(() => "")
    await rm(folder, { recursive: true })
    return asked
  }

  it("is deleted by its own identity, whose token stands in no process' arguments", async () => {
    const asked = await shutDown("12 poweroff.target start waiting")
    expect(asked).toContain(
      "-X DELETE https://management.azure.com/subscriptions/s/virtualMachines/berth-1?api-version=",
    )
    expect(asked).toContain('header = "Authorization: Bearer a.b-c"')
    expect(asked.split("header =")[0]).not.toContain("a.b-c")
  })

  it("is kept when it only reboots", async () => {
    expect(await shutDown("12 reboot.target start waiting")).toBe("")
  })

  it("gets what has it deleted before its own user data, which stays as it is", () => {
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
  const verify = () => azureAccounts({ send: server.send })(server.credentials).verify(AbortSignal.timeout(30_000))

  it("are all in the documented role", () => {
    expect(LAUNCH_ACTIONS.filter((action) => !documented.includes(action))).toEqual([])
  })

  it.each(LAUNCH_ACTIONS)("let no VM start and end without %s, which verifying names", async (action) => {
    server.actions = documented.filter((each) => each !== action)
    const cloud = openAt(server)
    const asked = spec()
    const refusal = await cloud
      .launch(asked)
      .then((vm) => cloud.terminate(vm))
      .catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(CredentialsError)
    expect(refusal).toMatchObject({ message: expect.stringMatching(new RegExp(`'${action}'.*docs/azure.md`)) })
    expect(await verify()).toEqual({
      account: server.credentials.subscription_id,
      launch: { is: "denied", message: expect.stringContaining(`may not do ${action}: add them to its role`) },
    })
  })

  it("are unknown where the role may not list them, which is no refusal", async () => {
    server.actions = documented.filter((each) => !each.endsWith("permissions/read"))
    expect(await verify()).toMatchObject({
      launch: { is: "unknown", message: expect.stringContaining("docs/azure.md") },
    })
  })

  it("are those of any role: patterns, without what it takes away, from several roles together", () => {
    expect(missingActions([{ actions: ["*"] }])).toEqual([])
    expect(missingActions([{ actions: ["*/read"] }])).not.toContain("Microsoft.Network/virtualNetworks/read")
    const contributor = { actions: ["*"], notActions: ["microsoft.authorization/*/Write"] }
    expect(missingActions([contributor])).toEqual(["Microsoft.Authorization/roleAssignments/write"])
    const assigner = { actions: ["Microsoft.Authorization/roleAssignments/write"] }
    expect(missingActions([contributor, assigner])).toEqual([])
    expect(missingActions([])).toEqual(LAUNCH_ACTIONS)
  })
})

it("calls just what the role in docs/azure.md allows, and a VM may do no more than delete itself", async () => {
  const { vm: vmRole, berth } = documentedRoles()
  const server = new ArmServer()
  await server.start()
  const cloud = openAt(server)
  const spec: LaunchSpec = { name: "a-1", installation: "i", tags: {}, offer: OFFER, userData: "", lifetimeSeconds: 60 }
  await cloud.verify()
  const account = azureAccounts({ send: server.send })(server.credentials)
  expect(await account.verify(AbortSignal.timeout(30_000))).toMatchObject({ launch: { is: "granted" } })
  const vm = await cloud.launch(spec)
  await cloud.list({ installation: "i", region: REGION })
  await cloud.terminate(vm)
  expect([...server.usedActions].sort()).toEqual(berth.Actions)
  expect(vmRole.Name).toBe("Berth VM")
  expect(vmRole.Actions).toEqual([...server.actionsToDelete].sort())
  await server.close()
})
