import type { ConnectionType } from "../core/apis/connection.ts"
import type { CredentialFields } from "../core/apis/credentials.ts"
import { CredentialsError } from "../core/outbound/errors.ts"
import type { AccountOpener, OpenAccount } from "./account.ts"
import type { BucketOpener } from "./bucket-access.ts"
import type { Cloud, CloudAccount, Clouds } from "./cloud.ts"
import type { PriceReaders } from "./prices.ts"
import type { RegistryOpener } from "./registry-access.ts"

/** Opens a provider's region with plaintext credentials, which are used for nothing else. Makes no calls. */
export type RegionOpener = (credentials: CredentialFields, region: string) => Cloud

/** Functions that Berth has for one type of connection. Absent ones are not supported. */
export interface Provider {
  /** Verifies credentials and finds the resources that they open. */
  account?: AccountOpener
  /** Creates VMs. */
  region?: RegionOpener
  /** Opens buckets for VMs; needs `account`. */
  buckets?: BucketOpener
  /** Current prices of its VMs. */
  prices?: PriceReaders
  /** Signs in to image registries. */
  registries?: RegistryOpener
}

/** The providers of an installation, by the type of their connections. */
export type Providers = Readonly<Partial<Record<ConnectionType, Provider>>>

/**
 * Returns a function that opens accounts by the type of their connection. It returns undefined if the type has none.
 */
export function accountOpener(providers: Providers): OpenAccount {
  return (type, credentials) => providers[type]?.account?.(credentials)
}

/** Returns a function that finds the registries of a type of connection. It returns undefined if the type has none. */
export function createRegistries(providers: Providers): (type: ConnectionType) => RegistryOpener | undefined {
  return (type) => providers[type]?.registries
}

/** Lists the types of connections that can create VMs. */
export function typesWithVms(providers: Providers): string[] {
  return Object.entries(providers).flatMap(([type, { region }]) => (region === undefined ? [] : [type]))
}

export type CloudOpener = (account: CloudAccount) => Promise<Cloud>

/** The clouds of an installation, by name. An account of any other cloud is rejected. */
export function createClouds(openers: Readonly<Record<string, CloudOpener>>): Clouds {
  const names = Object.keys(openers)
  return {
    async open(account) {
      const open = Object.hasOwn(openers, account.cloud) ? openers[account.cloud] : undefined
      if (open !== undefined) return await open(account)
      const message = `no cloud "${account.cloud}" in this installation: it has ${names.join(", ") || "none"}`
      throw new CredentialsError("UnknownCloud", message)
    },
  }
}
