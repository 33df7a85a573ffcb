import { readFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { Capabilities } from "../../src/clouds/account.ts"
import { azureAccounts } from "../../src/clouds/azure/account.ts"
import { LAUNCH_ACTIONS } from "../../src/clouds/azure/permissions.ts"
import { gcpAccounts } from "../../src/clouds/gcp/account.ts"
import type { VmSettings } from "../../src/core/apis/vm-settings.ts"
import { ArmServer } from "./arm-server.ts"
import { GceServer } from "./gce-server.ts"

const never = (): AbortSignal => new AbortController().signal

describe("capabilities of an Azure subscription", () => {
  let arm: ArmServer

  beforeEach(async () => {
    arm = new ArmServer()
    await arm.start()
  })
  afterEach(async () => {
    expect(arm.violations).toEqual([])
    await arm.close()
  })

  const check = async (regions: string[] = [], settings: VmSettings = {}): Promise<Capabilities> =>
    (await azureAccounts({ send: arm.send })(arm.credentials).capabilities?.({ regions, settings }, never())) ?? {}
  const without = (...actions: string[]) => arm.actions.filter((action) => !actions.includes(action))

  it("are True for VMs with the role of docs/azure.md, by calls that only read", async () => {
    expect(await check(["westeurope"])).toMatchObject({
      vms: { is: "granted" },
      buckets: { is: "unknown" },
      repositories: { is: "unknown" },
      prices: { is: "granted" },
    })
    expect(arm.calls.filter((action) => !action.endsWith("/read"))).toEqual([])
  })

  it("name each action that VMs need and the role lacks", async () => {
    for (const action of LAUNCH_ACTIONS) {
      arm.actions = without(action)
      const { vms } = await check()
      expect(vms, action).toMatchObject({ is: "denied", reason: "PermissionsMissing", missing: [action] })
      expect(vms?.message).toContain(`lacks the actions ${action}: add`)
      arm.actions = [...arm.actions, action]
    }
  })

  it("name a provider that is not registered, which also rejects a VM, and the command that registers it", async () => {
    arm.unregistered.add("Microsoft.Network")
    const { vms } = await check()
    expect(vms).toMatchObject({ is: "denied", reason: "ServiceDisabled" })
    expect(vms?.message).toContain("az provider register --namespace Microsoft.Network")
  })

  it("stay True for a role of a former version, which can't read providers and quotas", async () => {
    arm.unregistered.add("Microsoft.Network")
    arm.actions = without("Microsoft.Resources/subscriptions/providers/read", "Microsoft.Compute/locations/usages/read")
    expect(await check(["westeurope"])).toMatchObject({ vms: { is: "granted" } })
  })

  it("are False for a disabled subscription", async () => {
    arm.state = "Disabled"
    expect(await check()).toMatchObject({ vms: { is: "denied", reason: "AccountDisabled" } })
  })

  it("mention a spot quota of zero in a region in use", async () => {
    arm.quotas["lowPriorityCores"] = 0
    const { vms } = await check(["westeurope"])
    expect(vms).toMatchObject({ is: "granted", message: expect.stringContaining("spot vCPUs in westeurope is 0") })
  })

  it("are False if none of the named subnets can be used, and mention one of several", async () => {
    const subnets = { westeurope: ["jobs-network/jobs/vms"], eastus: ["jobs-network/east/vms"] }
    const none = await check([], { subnets })
    expect(none.vms).toMatchObject({ is: "denied", reason: "NetworkMissing" })
    expect(none.vms?.message).toContain("need the virtual network jobs-network/jobs, which does not exist: create it")
    arm.addNetwork("jobs-network", "jobs", { location: "westeurope", subnets: ["vms"] })
    const one = await check([], { subnets })
    expect(one.vms?.is).toBe("granted")
    expect(one.vms?.message).toContain("for eastus need the virtual network jobs-network/east")
    arm.addNetwork("jobs-network", "east", { location: "eastus", subnets: ["other"] })
    expect((await check([], { subnets })).vms?.message).toContain("has no subnet vms")
  })

  it("need no right to create networks or addresses if VMs get neither", async () => {
    arm.addNetwork("jobs-network", "jobs", { location: "westeurope", subnets: ["vms"] })
    arm.actions = without(
      "Microsoft.Network/virtualNetworks/write",
      "Microsoft.Network/publicIPAddresses/write",
      "Microsoft.Network/publicIPAddresses/join/action",
    )
    expect(await check()).toMatchObject({ vms: { is: "denied", reason: "PermissionsMissing" } })
    const subnets = { westeurope: ["jobs-network/jobs/vms"] }
    expect(await check([], { subnets, publicAddress: false })).toMatchObject({ vms: { is: "granted" } })
  })

  it("are Unknown if the role may not read its permissions", async () => {
    arm.actions = without("Microsoft.Authorization/permissions/read")
    expect(await check()).toMatchObject({ vms: { is: "unknown" }, buckets: { is: "unknown" } })
  })
})

describe("capabilities of a Google Cloud project", () => {
  let gce: GceServer

  beforeAll(async () => {
    gce = new GceServer({ project: "yard-1", regions: { "europe-west1": ["europe-west1-b"] } })
    await gce.start()
  })
  afterEach(() => {
    expect(gce.violations).toEqual([])
    gce.permissions = undefined
    gce.disabled.clear()
    gce.networks.add("default")
    gce.firewalls.clear()
    for (const quota of Object.keys(gce.quotas)) delete gce.quotas[quota]
    gce.calls.length = 0
  })
  afterAll(() => gce.close())

  const check = async (
    networks: Record<string, { network?: string }> = {},
    regions: string[] = [],
    settings: VmSettings = {},
  ) => {
    const key = { gcp_project_id: "yard-1", keyfile_json: gce.keyfile }
    return (await gcpAccounts({ send: gce.send, networks })(key).capabilities?.({ regions, settings }, never())) ?? {}
  }
  const documented = (): string[] => {
    const role = readFileSync(join(import.meta.dirname, "..", "..", "docs", "roles", "gcp.yaml"), "utf8")
    return [...role.matchAll(/^ {2}- (compute[.a-zA-Z]+)$/gm)].map(([, permission = ""]) => permission)
  }

  it("are True for VMs with the role of docs/gcp.md, by calls that only read", async () => {
    gce.permissions = new Set(documented())
    expect(await check()).toMatchObject({
      vms: { is: "granted", message: "the service account has all permissions that VMs need" },
      buckets: { is: "unknown" },
      repositories: { is: "unknown" },
      prices: { is: "granted" },
    })
    expect(gce.calls.filter((call) => !call.endsWith(".Get"))).toEqual([])
  })

  it("name a permission that the role lacks", async () => {
    gce.permissions = new Set(documented().filter((permission) => permission !== "compute.instances.setTags"))
    const { vms } = await check()
    const missing = ["compute.instances.setTags"]
    expect(vms).toMatchObject({ is: "denied", reason: "PermissionsMissing", missing })
    expect(vms?.message).toContain("lacks the permissions compute.instances.setTags: add")
  })

  it("mention the permission to read consoles if it is missing, and VMs start without it", async () => {
    const rest = documented().filter((permission) => permission !== "compute.instances.getSerialPortOutput")
    gce.permissions = new Set(rest)
    const { vms } = await check()
    expect(vms?.is).toBe("granted")
    expect(vms?.message).toContain("can't say why: add the permission compute.instances.getSerialPortOutput")
  })

  it("need the permission to create the firewall rule only while the rule is missing", async () => {
    gce.permissions = new Set(documented().filter((permission) => permission !== "compute.firewalls.create"))
    expect((await check()).vms?.message).toContain("the firewall rule berth-no-inbound-default is missing")
    gce.firewalls.set("berth-no-inbound-default", { name: "berth-no-inbound-default" })
    expect(await check()).toMatchObject({ vms: { is: "granted" } })
  })

  it("are Unknown if only a subnetwork may grant its use", async () => {
    gce.permissions = new Set(documented().filter((permission) => permission !== "compute.subnetworks.use"))
    expect(await check()).toMatchObject({ vms: { is: "unknown" } })
  })

  it("are False without a network, and name the command that creates it", async () => {
    gce.networks.delete("default")
    const { vms } = await check()
    expect(vms).toMatchObject({ is: "denied", reason: "NetworkMissing" })
    expect(vms?.message).toContain("gcloud compute networks create default --subnet-mode auto --project yard-1")
    gce.networks.add("yard")
    const named = await check({ "europe-west1": { network: "yard" } }, ["europe-west1"])
    expect(named).toMatchObject({ vms: { is: "granted" } })
  })

  it("are about the network of the connection, without the network default", async () => {
    gce.networks.delete("default")
    const settings = { network: "jobs", subnets: { "europe-west1": ["jobs-eu"] } }
    const { vms } = await check({}, ["europe-west1"], settings)
    expect(vms).toMatchObject({ is: "denied", reason: "NetworkMissing" })
    expect(vms?.message).toContain("the connection's `network` jobs does not exist in its project: create it")
    gce.networks.add("jobs")
    expect(await check({}, ["europe-west1"], settings)).toMatchObject({ vms: { is: "granted" } })
    gce.networks.delete("jobs")
  })

  it("need no right to public addresses if VMs get none", async () => {
    gce.permissions = new Set(documented().filter((permission) => !permission.endsWith(".useExternalIp")))
    expect(await check()).toMatchObject({ vms: { is: "unknown" } })
    expect(await check({}, [], { publicAddress: false })).toMatchObject({ vms: { is: "granted" } })
  })

  it("name an API that is not enabled, and the command that enables it", async () => {
    gce.disabled.add("compute.googleapis.com")
    gce.disabled.add("cloudbilling.googleapis.com")
    const { vms, prices } = await check()
    expect(vms).toMatchObject({ is: "denied", reason: "ServiceDisabled" })
    expect(vms?.message).toContain("gcloud services enable compute.googleapis.com --project yard-1")
    expect(prices?.message).toContain("gcloud services enable cloudbilling.googleapis.com --project yard-1")
    gce.disabled.clear()
    gce.disabled.add("cloudresourcemanager.googleapis.com")
    const unread = await check()
    expect(unread).toMatchObject({ vms: { is: "unknown" }, buckets: { is: "unknown" } })
    expect(unread.vms?.message).toContain("gcloud services enable cloudresourcemanager.googleapis.com")
  })

  it("mention a GPU quota of zero, and are False with a CPU quota of zero", async () => {
    gce.quotas["GPUS_ALL_REGIONS"] = 0
    expect((await check()).vms).toMatchObject({
      is: "granted",
      message: expect.stringContaining("GPUS_ALL_REGIONS is 0"),
    })
    gce.quotas["CPUS_ALL_REGIONS"] = 0
    expect(await check()).toMatchObject({ vms: { is: "denied", reason: "QuotaMissing" } })
  })
})
