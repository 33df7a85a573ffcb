import Type from "typebox"
import type { ProviderDefinition } from "../../../src/clouds/definition.ts"

const boot = { seconds: 5000, source: "https://toy.example/boot" }

/** All that a cloud says about itself, in the smallest form. */
export const toy = {
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
    spot: {
      notice: { by: "metadata", containerSeconds: 20, path: "/notice", headers: {}, isIn: (text) => text === "yes" },
    },
    rejections: [],
    createsLate: false,
  },
} as const satisfies ProviderDefinition
