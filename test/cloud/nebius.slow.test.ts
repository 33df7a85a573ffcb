import { randomUUID } from "node:crypto"
import { exportJWK, generateKeyPair, SignJWT } from "jose"
import { beforeEach, describe, expect, it } from "vitest"
import type { Cloud, LaunchSpec } from "../../src/clouds/cloud.ts"
import { clientsOf } from "../../src/clouds/nebius/client.ts"
import { openNebius } from "../../src/clouds/nebius/nebius.ts"
import type { SendRpc } from "../../src/clouds/nebius/rpc.ts"
import type { CredentialFields } from "../../src/core/apis/credentials.ts"
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
import type { NebiusProject } from "./nebius-creation.ts"
import { refusalOf } from "./nebius-description.ts"
import { NebiusServer } from "./nebius-server.ts"

const REGION = "eu-north1"
const HOME: NebiusProject = { id: "project-e00home", region: REGION }
const AWAY: NebiusProject = { id: "project-u00away", region: "us-central1", platforms: ["gpu-h200-sxm"] }
const OFFER: Offer = {
  cloud: "nebius",
  region: REGION,
  instanceType: "cpu-d3_4vcpu-16gb",
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 4,
  memoryGib: 16,
  hourlyPriceUsd: 0.0992,
  minimumBilledSeconds: 60,
}
const GPU = { model: "H100", count: 1, vramGib: 80 }
const SPOT: Partial<Offer> = { instanceType: "gpu-h100-sxm_1gpu-16vcpu-200gb", provisioning: "spot", gpu: GPU }

interface Opening {
  credentials?: CredentialFields
  send?: SendRpc
  callSeconds?: number
  followSeconds?: number
}

function openAt(server: NebiusServer, opening: Opening = {}): Cloud {
  const { credentials = server.credentials, send = server.send, callSeconds = 30, followSeconds = 30 } = opening
  return openNebius(clientsOf({ send, callSeconds }), { followSeconds, lookSeconds: 0.02 })(credentials, REGION)
}

async function underTest(callSeconds: number, behave: Partial<NebiusServer> = {}): Promise<CloudWithFaults> {
  const server = Object.assign(new NebiusServer([HOME, AWAY]), behave)
  await server.start()
  return {
    offer: OFFER,
    userData: "#cloud-config\n{}",
    remembers: "launch",
    neverWas: (launch) => ({ id: "computeinstance-e00never", launch, region: REGION }),
    open: async () => openAt(server, { callSeconds }),
    countBoots: (launch) =>
      eventually(() => {
        const boots = server.machines.boots.filter((name) => name.endsWith(launch))
        expect(boots).not.toEqual([])
        return boots.length
      }),
    powerOff: async ({ id }) => server.powerOff(id),
    fail: (act, fault) => server.faults.add(act, fault),
    mend: () => server.faults.clear(),
    limitPages(size) {
      server.pageSize = size
    },
    openRefused: async () => {
      const credentials = { ...server.credentials, public_key_id: "publickey-e00deleted" }
      return openAt(server, { credentials, callSeconds })
    },
    violations: () => server.violations,
    close: () => server.close(),
  }
}

describeCloud("nebius", () => underTest(30))
describeCloud("nebius whose operations abort others, and whose keys hide changes", () =>
  underTest(30, { conflicts: "abort", changedRequest: "ignore", firstState: "CREATING" }),
)
describeFaults("nebius", () => underTest(6))

describe("nebius", () => {
  let server: NebiusServer
  let cloud: Cloud

  beforeEach(async () => {
    server = new NebiusServer([HOME, AWAY])
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
    tags: { "berth.dev/project": "Team_A", "berth.dev/job": "train" },
    offer: { ...OFFER, ...offer },
    userData: "#cloud-config\n{}",
    lifetimeSeconds: 3600,
    ...overrides,
  })
  const list = () => cloud.list({ installation: "i", region: REGION })
  /** Waits until no VM and no disk is billed, while the caller lists. */
  const nothingBilled = () =>
    eventually(async () => {
      await list()
      expect([...server.disks()]).toEqual([])
    })

  it("requests the offer's VM: labelled, without rights, for good, and without inbound traffic", async () => {
    await cloud.launch(spec(SPOT))
    const [made] = server.instances()
    expect(made?.spec).toMatchObject({
      resources: { platform: "gpu-h100-sxm", preset: "1gpu-16vcpu-200gb" },
      recoveryPolicy: "FAIL",
      reservationPolicy: { policy: "FORBID" },
      preemptible: { onPreemption: "STOP" },
    })
    expect(made?.spec).not.toHaveProperty("serviceAccountId")
    const labels = { "berth-installation": "i", "berth-project": "team_a", "berth-job": "train" }
    expect(made?.metadata.labels).toMatchObject(labels)
    const [group] = made?.spec.networkInterfaces[0]?.securityGroups ?? []
    expect(server.network.groups.get(group?.id ?? "")).not.toHaveProperty("status.default")
    const rules = [...server.network.rules.values()].filter(({ metadata }) => metadata.parentId === group?.id)
    expect(rules.map(({ spec: rule }) => rule)).toEqual([{ access: "ALLOW", protocol: "ANY", egress: {} }])
  })

  it("shows the public address without its mask", async () => {
    expect((await cloud.launch(spec())).ipAddress).toMatch(/^203\.0\.113\.\d+$/)
    const hidden = await cloud.launch(spec({}, { network: { publicAddress: false } }))
    expect(hidden.ipAddress).toBeUndefined()
  })

  it("is stopped by its own power-off, without a second boot, a bill and a disk", async () => {
    const vm = await cloud.launch(spec())
    server.powerOff(vm.id)
    const billed = server.billed(Date.now()).get(vm.id)
    await nothingBilled()
    expect(server.machines.boots).toHaveLength(1)
    expect(server.billed(Date.now() + 3600_000).get(vm.id)).toBe(billed)
  })

  it("shows a preempted VM as preempted, and deletes it", async () => {
    const { id } = await cloud.launch(spec(SPOT))
    server.preempt(id)
    expect(await list()).toEqual([expect.objectContaining({ id, preempted: true })])
    await nothingBilled()
  })

  it.each(["refuse", "abort"] as const)(
    "neither ends nor forgets a VM that is STOPPED because it is being created: %s",
    async (conflicts) => {
      server.conflicts = conflicts
      server.operationMs = Number.POSITIVE_INFINITY
      const asked = spec()
      await expect(openAt(server, { followSeconds: 0.1 }).launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
      expect(await list()).toEqual([expect.objectContaining({ launch: asked.name, state: "booting" })])
      const again = openAt(server).launch(asked)
      await eventually(() => expect(server.calls.at(-1)).toBe("common.v1.OperationService/Get"))
      server.finish()
      expect((await again).state).toBe("running")
      expect(server.machines.boots).toHaveLength(1)
    },
  )

  it.each([
    ["capacity", CapacityError],
    ["quota", QuotaError],
  ] as const)("an operation that ends for lack of %s leaves no VM and no disk", async (fault, expected) => {
    for (const left of ["stopped", "error", "nothing"] as const) {
      server.afterFailure = left
      server.createErrors.set(OFFER.instanceType, refusalOf(fault))
      const asked = spec()
      await expect(cloud.launch(asked)).rejects.toBeInstanceOf(expected)
      await nothingBilled()
      // The identical request returns that operation: it may never create a VM.
      server.createErrors.clear()
      await expect(cloud.launch(asked)).rejects.toBeInstanceOf(expected)
    }
    expect(server.machines.boots).toEqual([])
  })

  it.each([
    ["left stopped", async () => undefined],
    ["being deleted", () => list()],
    ["deleted", () => nothingBilled()],
  ])("throws the error of a creation whose answer was lost, and whose VM is %s", async (_state, meanwhile) => {
    const asked = spec()
    server.createErrors.set(OFFER.instanceType, refusalOf("capacity"))
    server.faults.add("launch", "lost")
    await expect(cloud.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
    await eventually(() => expect(server.instances().map(({ operation }) => operation)).toEqual([undefined]))
    await meanwhile()
    await expect(openAt(server).launch(asked)).rejects.toBeInstanceOf(CapacityError)
    await nothingBilled()
  })

  it("finds its VM by name once Nebius has forgotten the request", async () => {
    const asked = spec()
    const { id } = await cloud.launch(asked)
    server.forgetOperations()
    server.hidesSince = 0
    expect(await openAt(server).launch(asked)).toMatchObject({ id, state: "running" })
    await expect(cloud.launch({ ...asked, lifetimeSeconds: 1 })).rejects.toBeInstanceOf(InvalidRequestError)
    expect(server.machines.boots).toHaveLength(1)
  })

  it("waits for a security group whose operation is at the network's own host", async () => {
    server.networkMs = 50
    expect((await cloud.launch(spec())).state).toBe("running")
  })

  it.each(["forbidden", "rateLimit"] as const)(
    "lists a stopped VM that can't be deleted as billed: %s",
    async (fault) => {
      const vms = [await cloud.launch(spec()), await cloud.launch(spec())] as const
      server.powerOff(vms[0].id)
      server.faults.add("terminate", fault)
      const billed = vms.map(({ id }) => expect.objectContaining({ id, state: "running" }))
      expect(await list()).toEqual(expect.arrayContaining(billed))
      await eventually(async () => expect(await list()).toEqual([billed[1]]))
    },
  )

  it("signs in again after its token has expired", async () => {
    const vm = await cloud.launch(spec())
    server.identity.expireTokens()
    await eventually(async () => expect((await list()).map(({ id }) => id)).toEqual([vm.id]))
  })

  it("signs in by an identity token of the subject that the service account trusts, and no other", async () => {
    const { publicKey, privateKey } = await generateKeyPair("RS256")
    const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: "1", alg: "RS256" }] }
    const issuer = "https://berth.example"
    const { service_account_id = "", projects = "" } = server.credentials
    server.identity.federations.set(service_account_id, { issuer, subject: "acme:main:1", jwks })
    const token = (subject: string, audience: string) =>
      new SignJWT()
        .setProtectedHeader({ alg: "RS256", kid: "1" })
        .setIssuer(issuer)
        .setSubject(subject)
        .setAudience(audience)
        .setIssuedAt()
        .setExpirationTime("10 minutes")
        .sign(privateKey)
    const open = openNebius(clientsOf({ send: server.send, tokens: { token } }))
    const as = (identity_subject: string) => open({ service_account_id, projects, identity_subject }, REGION)
    expect(await as("acme:main:1").verify()).toEqual({ account: server.tenant })
    const refused = as("evil:main:1").verify()
    await expect(refused).rejects.toBeInstanceOf(CredentialsError)
    await expect(refused).rejects.toThrow("evil:main:1")
  })

  it("needs the role editor to launch, and viewer to list", async () => {
    server.permissions = new Map([[HOME.id, "viewer"]])
    const alone = { ...server.credentials, projects: HOME.id }
    const viewer = openAt(server, { credentials: alone })
    expect(await viewer.list({ installation: "i", region: REGION })).toEqual([])
    await expect(viewer.launch(spec())).rejects.toBeInstanceOf(CredentialsError)
    server.permissions = new Map([[HOME.id, "editor"]])
    expect((await viewer.launch(spec())).state).toBe("running")
  })

  it("names the field and the remedy for a subnet that does not exist", async () => {
    const refused = cloud.launch(spec({}, { network: { subnets: ["vpcsubnet-e00gone"], publicAddress: true } }))
    await expect(refused).rejects.toBeInstanceOf(RegionError)
    await expect(refused).rejects.toThrow(/vpcsubnet-e00gone.*correct `network` and `subnets`/)
  })

  it("makes the security group again after it was deleted", async () => {
    const groups = () => server.instances().map((vm) => vm.spec.networkInterfaces[0]?.securityGroups?.[0]?.id ?? "")
    await cloud.launch(spec())
    const [deleted = ""] = groups()
    server.network.groups.delete(deleted)
    await expect(cloud.launch(spec())).rejects.toThrow(deleted)
    expect((await cloud.launch(spec())).state).toBe("running")
    expect([...server.network.groups.keys()]).toEqual(expect.arrayContaining([groups()[1]]))
  })

  it("boots the newest image of its family, with a disk that holds it", async () => {
    server.images.push({
      id: "computeimage-e00newest",
      family: "ubuntu24.04-driverless",
      region: REGION,
      minDiskGib: 10,
    })
    expect(await cloud.imageFor?.(OFFER)).toBe("computeimage-e00newest")
    const asked = [spec({}, { disk: { sizeGib: 1 } }), spec(SPOT, { disk: { sizeGib: 1 } })]
    for (const each of asked) expect((await cloud.launch(each)).state).toBe("running")
  })

  it("rejects names, types and ids that are none of Nebius'", async () => {
    for (const each of [spec({}, { name: "A" }), spec({ instanceType: "../x" }), spec({ region: "us-central1" })])
      await expect(cloud.launch(each)).rejects.toBeInstanceOf(InvalidRequestError)
    const ref = { id: "../x", launch: "x", region: REGION }
    await expect(cloud.terminate(ref)).rejects.toBeInstanceOf(InvalidRequestError)
    expect(server.calls).not.toContain("compute.v1.InstanceService/Create")
  })
})
