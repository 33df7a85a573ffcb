import { createHash } from "node:crypto"
import { describe, expect, it } from "vitest"
import { runInstancesInput } from "../../src/clouds/aws/request.ts"
import { buildMachine } from "../../src/clouds/azure/machine.ts"
import type { LaunchSpec } from "../../src/clouds/cloud.ts"
import { buildInstance } from "../../src/clouds/gcp/machine.ts"
import { specDigest } from "../../src/clouds/spec-digest.ts"
import type { Offer } from "../../src/core/apis/offer.ts"

const OFFER: Offer = {
  cloud: "aws",
  region: "eu-central-1",
  instanceType: "m7i.large",
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 2,
  memoryGib: 8,
  hourlyPriceUsd: 0.12,
  minimumBilledSeconds: 60,
}

function specFor(offer: Partial<Offer>, more: Partial<LaunchSpec> = {}): LaunchSpec {
  return {
    name: "9a1b-1",
    installation: "i-earlier",
    tags: { project: "team", job: "train" },
    offer: { ...OFFER, ...offer },
    userData: "#cloud-config\n",
    lifetimeSeconds: 3600,
    ...more,
  }
}

const AWS = specFor({}, { imageId: "ami-0123456789abcdef0" })
const GCP = specFor({ cloud: "gcp", region: "us-central1", instanceType: "e2-standard-2" })
const AZURE = specFor({ cloud: "azure", region: "westeurope", instanceType: "Standard_D2s_v5" })
const PLACE = { subnetId: "/subnets/berth", securityGroupId: "/groups/berth" }

const hash = (request: unknown) => createHash("sha256").update(JSON.stringify(request)).digest("hex").slice(0, 16)

describe("the request of a launch without settings of its connection", () => {
  it("is the same to the last byte as in earlier versions", () => {
    const fields = { SubnetId: "subnet-1", SecurityGroupIds: ["sg-1"] }
    expect({
      aws: hash(runInstancesInput(AWS, fields)),
      gcp: hash(buildInstance(GCP, "us-central1-a", { network: "jobs", subnetwork: "jobs-us" })),
      gcpByDefault: hash(buildInstance(GCP, "us-central1-a", {})),
      azure: hash(buildMachine(AZURE, PLACE, {})),
      digest: specDigest(AWS).slice(0, 16),
    }).toEqual({
      aws: "df3c100b30dbbe84",
      gcp: "fa4dc79a3cd4ae8c",
      gcpByDefault: "05feea161462ab29",
      azure: "f31886e3bb78a28e",
      digest: "7e4c9293da6923b1",
    })
  })
})

describe("the request of a machine that shares its cores", () => {
  it.each([
    ["t4g.medium", "onDemand"],
    ["t4g.medium", "spot"],
    ["t2.micro", "onDemand"],
    ["t3a.2xlarge", "onDemand"],
  ] as const)("asks for no charged credits: %s, %s", (instanceType, provisioning) => {
    const spec = specFor({ instanceType, provisioning }, { imageId: "ami-0123456789abcdef0" })
    expect(runInstancesInput(spec, {}).CreditSpecification).toEqual({ CpuCredits: "standard" })
  })

  it("has no such field for another type, where EC2 rejects it", () => {
    expect(runInstancesInput(AWS, {})).not.toHaveProperty("CreditSpecification")
  })
})

describe("the request of a spot VM", () => {
  const spot = (spec: LaunchSpec, ceilingUsd?: number): LaunchSpec => ({
    ...spec,
    offer: { ...spec.offer, provisioning: "spot" },
    ...(ceilingUsd !== undefined && { ceilingUsd }),
  })
  const aws = (spec: LaunchSpec) => runInstancesInput(spec, { SubnetId: "subnet-1", SecurityGroupIds: ["sg-1"] })
  const azure = (spec: LaunchSpec) => buildMachine(spec, PLACE, {})

  it("has a price ceiling only under a limit", () => {
    const limits = (spec: LaunchSpec) => aws(spec).InstanceMarketOptions?.SpotOptions?.MaxPrice
    expect([limits(spot(AWS)), limits(spot(AWS, 0.00551))]).toEqual([undefined, "0.00551"])
    expect(azure(spot(AZURE)).billingProfile).toEqual({ maxPrice: -1 })
    expect(azure(spot(AZURE, 0.0123)).billingProfile).toEqual({ maxPrice: 0.0123 })
    expect(buildInstance(spot(GCP, 0.3), "us-central1-a", {})).toEqual(buildInstance(spot(GCP), "us-central1-a", {}))
  })

  it("is the same otherwise, also for the VM's identity", () => {
    const { InstanceMarketOptions: _, ...withCeiling } = aws(spot(AWS, 0.1))
    const { InstanceMarketOptions: __, ...without } = aws(spot(AWS))
    expect(withCeiling).toEqual(without)
    expect(specDigest(spot(AWS, 0.1))).toBe(specDigest(spot(AWS)))
  })
})
