import Type from "typebox"
import type { BootDisk } from "../../core/apis/disk.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"
import { SENSITIVE } from "../../core/apis/schema.ts"
import { Identifier } from "../credential-fields.ts"
import { type ProviderDefinition, REGIONAL_NETWORK } from "../definition.ts"
import type { SoldMachine } from "../machines/family.ts"
import { imageKey, NEBIUS } from "./machines.ts"

const ACCOUNT = {
  service_account_id: Identifier(
    "^serviceaccount-[a-z0-9]+$",
    "Id of the service account.",
    "serviceaccount- with letters and digits",
  ),
  projects: Identifier(
    "^project-[a-z0-9]+(, ?project-[a-z0-9]+)*$",
    "Ids of the projects for VMs, separated by commas. Each is in one region.",
    "ids of projects, such as project-e00abc, separated by commas",
  ),
}

const BY_KEY = Type.Object({
  ...ACCOUNT,
  public_key_id: Identifier("^publickey-[a-z0-9]+$", "Id of the authorized key.", "publickey- with letters and digits"),
  private_key: Type.String({
    minLength: 1,
    maxLength: LIMITS.keyfile,
    description: "Private key of the authorized key, in PEM form.",
    [SENSITIVE]: true,
  }),
})
const BY_TOKEN = Type.Object(ACCOUNT)

/** Returns the boot disk of a machine. */
export function bootDisk(machine: Pick<SoldMachine, "gpu">): BootDisk {
  const image = imageKey(machine)
  const { leastDiskGib } = NEBIUS.images[image]
  return { leastGib: NEBIUS.diskGib[image], imageGib: leastDiskGib, types: ["NETWORK_SSD"], performance: {} }
}

export const nebius = {
  label: "Nebius",
  credentials: {
    forms: [BY_KEY, BY_TOKEN],
    fields: {
      service_account_id: {
        label: "Service account id",
        flag: "--service-account-id <id>",
        help: "service account; without a key, Berth signs in by its own tokens",
      },
      projects: { label: "Project ids", flag: "--projects <ids>", help: "projects, one for each region" },
      public_key_id: { label: "Public key id", flag: "--public-key-id <id>", help: "id of the authorized key" },
      private_key: { label: "Private key", format: "PEM" },
    },
    formFor: (has) => (has("public_key_id") || has("private_key") ? BY_KEY : BY_TOKEN),
    federation: {
      isUsed: (fields) => !Object.hasOwn(fields, "public_key_id"),
      needsToken: (fields) => !Object.hasOwn(fields, "public_key_id"),
      // Federated credentials name an issuer and a subject, and no audience (nebius/iam/v1/federated_credentials.proto).
      audience: () => "https://tokens.iam.api.nebius.cloud",
      insteadOf: "private_key",
    },
  },
  vms: {
    billingName: "Nebius",
    settings: {
      network: { pattern: "vpcnetwork-[a-z0-9]+", allowed: "the id of a network, such as vpcnetwork-e00abc" },
      subnet: { pattern: "vpcsubnet-[a-z0-9]+", allowed: "ids of subnets, such as vpcsubnet-e00abc" },
      // https://docs.nebius.com/compute/storage/types: the other types have sizes of their own.
      disks: ["NETWORK_SSD"],
      largest: "16Ti",
      rules: [REGIONAL_NETWORK],
    },
    machines: NEBIUS,
    bootDisk,
    // https://docs.nebius.com/compute/resources/pricing, for 730 hours, in every region.
    diskPrices: {
      NETWORK_SSD: { byPrice: [[0.071, "eu-north1 eu-west1 us-central1"]], elsewhere: { eu: 0.071, us: 0.071 } },
    },
    // No source of its own: the other clouds' price.
    addressUsd: { onDemand: 0.005, spot: 0.005 },
    systems: { cpu: "ubuntu", gpu: "ubuntu" },
    serviceAddresses: [],
    spot: {
      // Of 60 s, 10 may pass until the agent has SIGTERM, and 20 are for uploads
      // (https://docs.nebius.com/compute/virtual-machines/preemptible).
      notice: { by: "shutdown", containerSeconds: 30 },
      // As of October 2026 the largest is 55 %, and prices move.
      largestDiscount: 0.8,
    },
    rejections: [
      {
        class: "Credentials",
        says: /PermissionDenied/i,
        remedy: "add the service account to a group with the role `editor` in the project: docs/nebius.md",
      },
      { class: "Quota", says: /public|ipv4|disk/i, scope: ["region"] },
    ],
    // The API says nothing of how long it keeps idempotency keys.
    createsLate: true,
  },
} as const satisfies ProviderDefinition
