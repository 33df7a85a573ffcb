import type { TObject } from "typebox"
import type { BootDisk, MaximumSize } from "../core/apis/disk.ts"
import type { FieldError } from "../core/apis/field-error.ts"
import type { CloudMachines, SoldMachine } from "./machines/family.ts"
import type { KnownRejection } from "./rejection.ts"

/**
 * Facts about a provider of accounts: data and pure functions, without its SDK. All programs read them, by
 * `definitions.ts`. What calls the provider is in the same folder, and `registry.ts` loads it.
 */
export interface ProviderDefinition {
  /** Name for people, such as AWS. */
  label: string
  credentials: CredentialsDefinition
  /** Its buckets; absent: it has none. */
  buckets?: BucketsDefinition
  /** Its images; absent: it has none. */
  images?: { platform: string }
  /** Its VMs; absent: it has none. */
  vms?: VmsDefinition
}

/** Credentials of an account. Fields have the names of the contract or of the provider. */
export interface CredentialsDefinition {
  /** Forms of credentials that are accepted. The first is the contract's. */
  forms: readonly [TObject, ...TObject[]]
  /** All fields of all forms, in the order in which people enter them. */
  fields: Readonly<Record<string, CredentialField>>
  /** Returns the form that the fields are meant to have. Absent: the first. @param has true for a field that is given */
  formFor?: (has: (field: string) => boolean) => TObject
  /** Returns further errors of the values. They contain no value. */
  errorsIn?: (fields: Readonly<Record<string, unknown>>) => FieldError[]
  federation?: FederationDefinition
}

/** Field of credentials, as people see it. */
export interface CredentialField {
  label: string
  /** Flag of the command line, such as `--account-id <id>`. Absent: the field is secret. */
  flag?: string
  /** Description of the flag. */
  help?: string
  /** Format of a long text, such as JSON. */
  format?: string
}

/** Credentials without a secret: the cloud trusts identity tokens that Berth issues for one connection of one project. */
export interface FederationDefinition {
  /** Returns true if the cloud must trust Berth's identity token, or its external id. */
  isUsed: (fields: GivenFields) => boolean
  /** Returns true if the cloud accepts the credentials only with an identity token of Berth. */
  needsToken: (fields: GivenFields) => boolean
  /** Returns the audience that the cloud expects in identity tokens. */
  audience: (fields: GivenFields) => string
  /** Secret field that an installation without tokens needs instead. */
  insteadOf: string
}

export type GivenFields = Readonly<Record<string, string>>

/** Prices of traffic from a bucket, USD a GB: to other regions of its cloud, and to anywhere else. */
export interface EgressPrices {
  sameMacroRegion: number
  otherMacroRegion: number
  internet: number
}

export interface BucketsDefinition {
  /** Service that holds the buckets, as discovery names it. */
  platform: string
  /** Prices by the macro-region of the bucket. `market/router/egress.ts` says how good they are. */
  egress: { default: EgressPrices } & Readonly<Partial<Record<string, EgressPrices>>>
}

/**
 * Operating systems of VMs: Amazon's ECS-optimized Linux 2023, Ubuntu, and Google's Container-Optimized OS. Ubuntu
 * includes the images that Azure and Google publish for GPUs. All have cloud-init, systemd, curl, and a Docker engine
 * or a package with one. `cloud-init.ts` has their differences.
 */
export type VmSystem = "ecs" | "ubuntu" | "cos"

export interface VmsDefinition {
  /** Name on the cloud's bills, for FOCUS. */
  billingName: string
  settings: SettingsDefinition
  machines: CloudMachines
  /** Returns the boot disk of a machine type. */
  bootDisk: (machine: SoldMachine) => BootDisk
  /** Prices of boot disks by the cloud's name of the type. docs/routing.md has the sources. */
  diskPrices: Readonly<Record<string, DiskPrice>>
  /** Price of a public IPv4 address in use by a VM, USD per hour, in every region. */
  addressUsd: { onDemand: number; spot: number }
  /** Operating systems that the cloud's folder boots, without and with GPUs. */
  systems: { cpu: VmSystem; gpu: VmSystem }
  /** Addresses of the cloud's own services on each of its VMs, outside of the link-local range. */
  serviceAddresses: readonly string[]
  spot: SpotDefinition
  /** Rejections that Berth knows. The first match holds, and `rejections.ts` has the meaning of all others. */
  rejections: readonly KnownRejection[]
  /** True if a late request can create a VM although an identical one was settled before. */
  createsLate: boolean
}

export interface SpotDefinition {
  notice: SpotNotice
  /** Time from the creation of a VM in which its machine is free if the cloud preempts it, seconds. Absent: none. */
  freeSeconds?: number
  /**
   * Largest discount, of clouds that can't end a VM whose price rises above a ceiling. It bounds an on-demand price that is
   * not known.
   */
  largestDiscount?: number
}

/** Announcement of a preemption on the VM itself. */
export type SpotNotice = MetadataNotice | ShutdownNotice

/** The cloud shuts the VM down some time before it stops it: the system sends SIGTERM to the agent. */
export interface ShutdownNotice {
  by: "shutdown"
  /** Seconds from the signal for the container: without the time for uploads and the last report. */
  containerSeconds: number
}

/** Announcement by the metadata service. The agent polls it. */
export interface MetadataNotice {
  by: "metadata"
  /** Seconds from the notice for the container: without the time for uploads and the last report, and between two polls. */
  containerSeconds: number
  path: string
  headers: Readonly<Record<string, string>>
  /** Token that each request must have. Absent: none. */
  token?: { path: string; lifetimeHeader: string; header: string; lifetimeSeconds: number }
  /** Returns true if an answer announces a preemption. @param text undefined for 404 */
  isIn: (text: string | undefined) => boolean
}

/** Form of a cloud's names. The patterns allow nothing that another part of a URL could have. */
export interface Form {
  pattern: string
  /** Description of what the pattern allows. */
  allowed: string
}

/** Settings of a connection for its VMs: network, address and disk. Their words are the same for each cloud. */
export interface SettingsDefinition {
  network: Form
  subnet: Form
  /** Types of boot disks that work without further parameters, the default first. */
  disks: readonly [string, ...string[]]
  /** Size of the largest disk from which a VM boots. */
  largest: MaximumSize
  /** Rules on several settings. Clouds share a rule by having the same object. */
  rules: readonly SettingRule[]
}

/** Settings that rules look at. */
interface GivenSettings {
  network?: string
  subnets?: Readonly<Record<string, readonly string[]>>
  publicAddress?: boolean
}

/** Rule on several settings: as a CEL expression, as JSON Schema for the REST API's document, and as a function. */
export interface SettingRule {
  field: "network" | "subnets" | "publicAddress"
  cel: string
  /** Conditions of which one must be met. */
  anyOf: readonly object[]
  isMet: (settings: GivenSettings) => boolean
  message: string
}

/** Returns the keywords of JSON Schema for an object that has this field, and not null. */
export function given(field: string): object {
  return { required: [field], properties: { [field]: { not: { type: "null" } } } }
}

/** Rule of clouds whose networks are in one region. */
export const REGIONAL_NETWORK: SettingRule = {
  field: "network",
  cel: "!has(self.network) || has(self.subnets)",
  anyOf: [{ not: given("network") }, given("subnets")],
  isMet: ({ network, subnets }) => network === undefined || subnets !== undefined,
  message: "network requires subnets. A network of this cloud is in one region: name its region and its subnets",
}

/** Prices of a GiB, USD a month, each with its regions, separated by spaces. */
type GibPrices = readonly (readonly [gibUsd: number, regions: string])[]

/** Price of a disk type, USD a month. */
export interface DiskPrice {
  byPrice: GibPrices
  /**
   * Prices of a GiB in other regions, by macro-region: the highest known one there. A macro-region without one has the
   * highest of all. Absent: `sizes` has the prices.
   */
  elsewhere?: Readonly<Record<string, number>>
  /** Disks are billed as the next larger of these sizes, GiB, at this price each. Absent: each GiB is billed. */
  sizes?: readonly (readonly [gib: number, usd: number])[]
  /** Regions whose price is published, separated by spaces. Absent: those of `byPrice`. */
  published?: string
  /** Factor between a price that is not published and the most that strict limits count for it. Default 1. */
  mostTimes?: number
  /** Throughput that the price of the capacity includes, MiB/s. Absent: throughput has no price of its own. */
  includedMibps?: number
}
