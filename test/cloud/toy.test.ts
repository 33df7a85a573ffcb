import Type from "typebox"
import { beforeAll, describe, expect, it, vi } from "vitest"
import type { ProviderDefinition } from "../../src/clouds/definition.ts"

const boot = { seconds: 5000, source: "https://toy.example/boot" }

/** All that a cloud says about itself, in the smallest form. */
const toy: ProviderDefinition = {
  label: "Toy Cloud",
  credentials: {
    forms: [Type.Object({ toy_account: Type.String({ minLength: 1 }), toy_key: Type.String({ minLength: 1 }) })],
    fields: {
      toy_account: { label: "Account", flag: "--toy-account <id>", help: "account" },
      toy_key: { label: "Key" },
    },
  },
  buckets: { platform: "toybox", egress: { default: { sameMacroRegion: 0, otherMacroRegion: 0, internet: 0.5 } } },
  vms: {
    billingName: "Toys Inc.",
    settings: {
      network: { pattern: "net-[0-9]+", allowed: "the id of a network, such as net-1" },
      subnet: { pattern: "sub-[0-9]+", allowed: "ids of subnets, such as sub-1" },
      disks: ["brick"],
      largest: "16Ti",
      rules: [],
    },
    machines: {
      images: {},
      families: [],
      exclusions: [],
      bootDeadlines: { cpu: boot, gpu: boot, eightGpus: boot },
      burstable: [],
      diskPerformance: {},
      fastDisk: { types: /^$/ },
      diskGib: { cpu: 20, gpu: 20 },
      seriesOf: (type) => type.charAt(0),
      quotaOf: () => "all toys",
    },
    bootDisk: () => ({ leastGib: 20, imageGib: 10, types: ["brick"], performance: {} }),
    diskPrices: { brick: { byPrice: [[0.73, "toyland"]], elsewhere: { eu: 0.73 } } },
    addressUsd: { onDemand: 0.01, spot: 0.01 },
    systems: { cpu: "ubuntu", gpu: "ubuntu" },
    serviceAddresses: [],
    spot: { notice: { containerSeconds: 20, path: "/notice", headers: {}, isIn: (text) => text === "yes" } },
    reusesNames: false,
  },
}

/** Loads the modules that read the definitions, with one line more in their list. */
async function withToy() {
  vi.resetModules()
  const { DEFINITIONS, VM_CLOUDS } = await import("../../src/clouds/definitions.ts")
  Object.assign(DEFINITIONS, { toy })
  ;(VM_CLOUDS as string[]).push("toy")
  return {
    ...(await import("../../src/core/apis/crd.ts")),
    ...(await import("../../src/core/apis/credentials.ts")),
    ...(await import("../../src/core/apis/vm-settings.ts")),
    ...(await import("../../src/api/document.ts")),
    ...(await import("../../src/clouds/machines/disk.ts")),
    ...(await import("../../src/clouds/machines/machines.ts")),
    ...(await import("../../src/market/catalogue/parts.ts")),
    ...(await import("../../src/market/router/egress.ts")),
    ...(await import("../../scripts/generate.ts")),
    VM_CLOUDS,
  }
}

describe("a cloud that is one definition and one line in the list", () => {
  const type = "toy" as never
  let berth: Awaited<ReturnType<typeof withToy>>
  beforeAll(async () => {
    berth = await withToy()
  })

  it("is a type of the kind Connection, with rules for its settings", () => {
    const connection = JSON.stringify(
      berth.crdObjects().find(({ metadata }) => metadata.name.startsWith("connections.")),
    )
    expect(connection).toContain('"github","toy"]')
    expect(connection).toContain("network must be the id of a network, such as net-1")
  })

  it("has its own bodies in the document of the REST API, and can be named by jobs", () => {
    const { components, paths } = berth.openApiDocument(berth.VM_CLOUDS) as Record<string, Record<string, object>>
    expect(components?.["schemas"]).toHaveProperty("ToyConnectionCreation.properties.toy_key")
    expect(JSON.stringify(paths?.["/offers"])).toContain('["aws","gcp","azure","toy"]')
  })

  it("has checked credentials and settings", () => {
    expect(berth.credentialErrors(type, { toy_account: "a", toy_key: "k" })).toEqual([])
    expect(berth.credentialErrors(type, { toy_account: "a" })).toMatchObject([{ pointer: "/toy_key" }])
    expect(berth.vmSettingErrors("toy", { network: "net-1", disk: { type: "brick" } })).toEqual([])
    expect(berth.vmSettingErrors("toy", { network: "vpc-1" })).toMatchObject([{ pointer: "/network" }])
  })

  it("has secrets that no log shows", () => {
    expect(berth.SECRET_FIELDS).toContain("toy_key")
    expect(berth.SECRET_FIELDS).not.toContain("toy_account")
  })

  it("has machines, disks and prices for the router", () => {
    const machine = { cloud: "toy", instanceType: "t1", architecture: "amd64", cpu: 1 } as const
    expect(berth.bootDeadlineOf(machine)?.seconds).toBe(5000)
    expect(berth.LONGEST_BOOT_SECONDS).toBe(5000)
    expect(berth.quotaOf("toy", "t1")).toBe("all toys")
    expect(berth.largestDiskGib("toy")).toBe(16_384)
    const region = { cloud: "toy", name: "toyland", groups: ["eu"] } as never
    const disk = { type: "brick", sizeGib: 1000 }
    expect(berth.partPrices().diskUsd(region, disk, false)).toBeCloseTo(1)
    expect(berth.partPrices().addressUsd(region, "spot")).toBe(0.01)
    const bucket = { cloud: "toy", region: "toyland", gib: 10 }
    expect(berth.egressUsd(bucket, { cloud: "local", region: "here" })).toBe(5)
  })

  it("is known to command line and console, with its flag and its form", async () => {
    const files = await berth.generatedFiles()
    const providers = files.get("src/client/providers.ts") ?? ""
    expect(providers).toContain('"label": "Toy Cloud"')
    expect(providers).toContain('"flag": "--toy-account <id>"')
    expect(files.get("src/client/schema.d.ts")).toContain('type: "toy"')
  })
})
