import "./toy.ts"

import { describe, expect, it } from "vitest"
import { generatedFiles } from "../../scripts/generate.ts"
import { openApiDocument } from "../../src/api/document.ts"
import { VM_CLOUDS } from "../../src/clouds/definitions.ts"
import { largestDiskGib } from "../../src/clouds/machines/disk.ts"
import { bootDeadlineOf, LONGEST_BOOT_SECONDS, quotaOf } from "../../src/clouds/machines/machines.ts"
import { crdObjects } from "../../src/core/apis/crd.ts"
import { credentialErrors, SECRET_FIELDS } from "../../src/core/apis/credentials.ts"
import { vmSettingErrors } from "../../src/core/apis/vm-settings.ts"
import { partPrices } from "../../src/market/catalogue/parts.ts"
import { egressUsd } from "../../src/market/router/egress.ts"

describe("a cloud that is one definition and one line in the list", () => {
  const type = "toy" as never

  it("is a type of the kind Connection, with rules for its settings", () => {
    const connection = JSON.stringify(crdObjects().find(({ metadata }) => metadata.name.startsWith("connections.")))
    expect(connection).toContain('"github","toy"]')
    expect(connection).toContain("network must be the id of a network, such as net-1")
  })

  it("has its own bodies in the document of the REST API, and can be named by jobs", () => {
    const { components, paths } = openApiDocument(VM_CLOUDS) as Record<string, Record<string, object>>
    expect(components?.["schemas"]).toHaveProperty("ToyConnectionCreation.properties.toy_key")
    expect(JSON.stringify(paths?.["/offers"])).toContain('["aws","gcp","azure","toy"]')
  })

  it("has checked credentials and settings", () => {
    expect(credentialErrors(type, { toy_account: "a", toy_key: "k" })).toEqual([])
    expect(credentialErrors(type, { toy_account: "a" })).toMatchObject([{ pointer: "/toy_key" }])
    expect(vmSettingErrors("toy", { network: "net-1", disk: { type: "brick" } })).toEqual([])
    expect(vmSettingErrors("toy", { network: "vpc-1" })).toMatchObject([{ pointer: "/network" }])
  })

  it("has secrets that no log shows", () => {
    expect(SECRET_FIELDS).toContain("toy_key")
    expect(SECRET_FIELDS).not.toContain("toy_account")
  })

  it("has machines, disks and prices for the router", () => {
    const machine = { cloud: "toy", instanceType: "t1", architecture: "amd64", cpu: 1 } as const
    expect(bootDeadlineOf(machine)?.seconds).toBe(5000)
    expect(LONGEST_BOOT_SECONDS).toBe(5000)
    expect(quotaOf("toy", "t1")).toBe("all toys")
    expect(largestDiskGib("toy")).toBe(16_384)
    const region = { cloud: "toy", name: "toyland", groups: ["eu"] } as never
    const disk = { type: "brick", sizeGib: 1000 }
    expect(partPrices().diskUsd(region, disk, false)).toBeCloseTo(1)
    expect(partPrices().addressUsd(region, "spot")).toBe(0.01)
    const bucket = { cloud: "toy", region: "toyland", gib: 10 }
    expect(egressUsd(bucket, { cloud: "local", region: "here" })).toBe(5)
  })

  it("is known to command line and console, with its flag and its form", async () => {
    const files = await generatedFiles()
    const providers = files.get("src/client/providers.ts") ?? ""
    expect(providers).toContain('"label": "Toy Cloud"')
    expect(providers).toContain('"flag": "--toy-account <id>"')
    expect(files.get("src/client/schema.d.ts")).toContain('type: "toy"')
  })
})
