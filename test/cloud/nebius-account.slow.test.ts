import { beforeEach, describe, expect, it } from "vitest"
import { nebiusAccounts } from "../../src/clouds/nebius/account.ts"
import { clientsOf } from "../../src/clouds/nebius/client.ts"
import { nebiusPrices } from "../../src/clouds/nebius/prices.ts"
import type { PricedMachine, QuotedPrices } from "../../src/clouds/prices.ts"
import { CredentialsError } from "../../src/core/outbound/errors.ts"
import { NebiusServer } from "./nebius-server.ts"

const HOME = { id: "project-e00home", region: "eu-north1" }
const AWAY = { id: "project-u00away", region: "us-central1", platforms: ["gpu-h200-sxm"] }
const H100 = "gpu-h100-sxm_1gpu-16vcpu-200gb"
const CPU = "cpu-d3_4vcpu-16gb"

let server: NebiusServer

beforeEach(async () => {
  server = new NebiusServer([HOME, AWAY])
  await server.start()
  return async () => {
    expect(server.violations).toEqual([])
    await server.close()
  }
})

describe("an account of Nebius", () => {
  const open = (credentials = server.credentials) => nebiusAccounts(clientsOf({ send: server.send }))(credentials)
  const capabilities = (settings = {}) => open().capabilities?.({ regions: [], settings }, AbortSignal.timeout(30_000))

  it("is its tenant, and a deleted key opens none", async () => {
    const signal = AbortSignal.timeout(30_000)
    expect(await open().verify(signal)).toEqual({ account: server.tenant })
    const refused = open({ ...server.credentials, public_key_id: "publickey-e00deleted" }).verify(signal)
    await expect(refused).rejects.toBeInstanceOf(CredentialsError)
    await expect(refused).rejects.toThrow("Nebius refused the key publickey-e00deleted")
  })

  it("starts VMs if it reads those of its projects, and names cards of which it has none", async () => {
    server.quotas.push({ name: "compute.instance.gpu.h100", region: HOME.region, limit: 0 })
    const { vms } = (await capabilities()) ?? {}
    expect(vms).toMatchObject({ is: "granted", message: expect.stringContaining("eu-north1, us-central1") })
    expect(vms?.message).toContain("quota 0 in eu-north1: compute.instance.gpu.h100")
  })

  it("starts none without the rights, or without a subnet in the network that the connection names", async () => {
    const missing = await capabilities({ network: "vpcnetwork-e00other" })
    expect(missing?.vms).toMatchObject({ is: "denied", reason: "NetworkMissing" })
    server.permissions = new Map()
    await expect(capabilities()).rejects.toBeInstanceOf(CredentialsError)
  })

  it("stops to wait when its caller does", async () => {
    const ended = AbortSignal.abort()
    await expect(open().verify(ended)).rejects.toMatchObject({ code: "Aborted" })
  })
})

describe("Nebius' prices", () => {
  const machines: PricedMachine[] = [
    { instanceType: CPU, cpu: 4, memoryGib: 16 },
    { instanceType: H100, cpu: 16, memoryGib: 200, gpu: { model: "H100", count: 1, vramGib: 80 } },
    { instanceType: "cpu-d3_8vcpu-32gb", cpu: 8, memoryGib: 32 },
  ]

  async function read(regions: string[]): Promise<[string, string, [string, number][]][]> {
    const { list } = nebiusPrices(clientsOf({ send: server.send }))
    const question = { credentials: server.credentials, regions, machines, onCall: () => undefined }
    const found: QuotedPrices[] = []
    for await (const part of list({ ...question, signal: AbortSignal.timeout(60_000) })) found.push(part)
    return found.map(({ region, provisioning, prices }) => [region, provisioning, [...prices]])
  }

  it("are those of the calculator, without disk, for machines that the region sells", async () => {
    server.prices.machines[CPU] = { onDemand: 0.132 }
    server.prices.machines[H100] = { onDemand: 4.5, preemptible: 2.15 }
    server.prices.disksPerGib["NETWORK_SSD"] = 0.0001
    expect(await read([HOME.region])).toEqual([
      [
        HOME.region,
        "onDemand",
        [
          [CPU, 0.132],
          [H100, 4.5],
        ],
      ],
      [HOME.region, "spot", [[H100, 2.15]]],
    ])
    expect(await read(["me-west1"])).toEqual([])
  })
})
