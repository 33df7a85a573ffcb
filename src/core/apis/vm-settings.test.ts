import { describe, expect, it } from "vitest"
import { frozenSettings, vmSettingErrors } from "./vm-settings.ts"

describe("a connection's settings", () => {
  it.each<[string, object, string, string]>([
    ["aws", { network: "jobs" }, "/network", "network must be the id of a VPC, such as vpc-0a1b2c3d"],
    ["aws", { network: "vpc-0a1b2c3d" }, "/network", "network requires subnets"],
    [
      "aws",
      { subnets: { "eu-central-1": ["a"] } },
      "/subnets/eu-central-1/0",
      "ids of subnets, such as subnet-0a1b2c3d",
    ],
    [
      "aws",
      { subnets: { Frankfurt: ["subnet-0a1b2c3d"] } },
      "/subnets/Frankfurt",
      "names of regions as the cloud writes them",
    ],
    ["aws", { disk: { size: "100TB" } }, "/disk/size", "a whole number of Gi or Ti from 10Gi to 16Ti"],
    ["aws", { disk: { size: "17Ti" } }, "/disk/size", "from 10Gi to 16Ti, such as 200Gi"],
    ["aws", { disk: { type: "io2" } }, "/disk/type", "gp3"],
    ["gcp", { subnets: { "europe-west1": ["a"] } }, "/subnets", "subnets requires network"],
    ["gcp", { network: "projects/host/global/networks/a" }, "/network", "a VPC network in the connection's project"],
    ["azure", { publicAddress: false }, "/publicAddress", "Berth's own network on Azure has no NAT gateway"],
    ["azure", { subnets: { westeurope: ["a"] } }, "/subnets", "write RESOURCE-GROUP/NETWORK/SUBNET"],
    ["azure", { network: "../a", subnets: { westeurope: ["a"] } }, "/network", "RESOURCE-GROUP/NETWORK"],
    ["github", { publicAddress: false }, "/publicAddress", "only connections of type aws, gcp, azure, nebius have it"],
  ])("have errors of type %s: %j", (type, settings, pointer, words) => {
    expect(vmSettingErrors(type, { ...settings })).toEqual([
      expect.objectContaining({ pointer, detail: expect.stringContaining(words) }),
    ])
  })
})

describe("the settings that a Launch keeps", () => {
  const offer = { region: "eu-central-1" }

  it("are none for a connection without settings", () => {
    expect(frozenSettings({}, offer)).toEqual({})
  })

  it("are the subnets of its region, with a public address by default", () => {
    const subnets = { "eu-central-1": ["subnet-1"], "us-east-1": ["subnet-2"] }
    expect(frozenSettings({ subnets }, offer)).toEqual({ network: { subnets: ["subnet-1"], publicAddress: true } })
    expect(frozenSettings({ subnets }, { region: "eu-west-1" })).toBeUndefined()
  })

  it("have the disk of the connection and of the job", () => {
    const settings = { disk: { size: "2Ti", type: "gp2" } }
    const disk = { sizeGib: 2048, requiredGib: 100, type: "gp2" }
    expect(frozenSettings(settings, offer, { requiredGib: 100 })).toEqual({ disk })
  })
})
