import type { ConnectionType } from "../apis/connection.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import type { AccountOpener, OpenAccount } from "./account.ts"
import type { BucketOpener } from "./bucket-access.ts"
import { CredentialsError } from "./errors.ts"
import type { PriceReaders } from "./prices.ts"
import type { Cloud, CloudAccount, Clouds } from "./provider.ts"
import type { RegistryOpener } from "./registry-access.ts"

/** Opens a provider's region with credentials in clear, which are used for nothing else; calls no host. */
export type RegionOpener = (credentials: CredentialFields, region: string) => Cloud

/** What Berth can do with one type of connection; what is absent it can't. */
export interface Provider {
  /** Verifies credentials and finds what they open. */
  account?: AccountOpener
  /** Makes VMs. */
  region?: RegionOpener
  /** Opens buckets for VMs; needs `account`. */
  buckets?: BucketOpener
  /** What its VMs cost now. */
  prices?: PriceReaders
  /** Signs in to registries of images. */
  registries?: RegistryOpener
}

/** The providers that an installation has, by the type of their connections. */
export type Providers = Readonly<Partial<Record<ConnectionType, Provider>>>

/** Returns a function that opens accounts by the type of their connection; undefined where the type has none. */
export function accountOpener(providers: Providers): OpenAccount {
  return (type, credentials) => providers[type]?.account?.(credentials)
}

/** Returns a function that finds the registries of a type of connection; undefined where the type has none. */
export function registriesOf(providers: Providers): (type: ConnectionType) => RegistryOpener | undefined {
  return (type) => providers[type]?.registries
}

/** Lists the types of connections that can make VMs. */
export function typesWithVms(providers: Providers): string[] {
  return Object.entries(providers).flatMap(([type, { region }]) => (region === undefined ? [] : [type]))
}

/** Opens one cloud's accounts. */
export type CloudOpener = (account: CloudAccount) => Promise<Cloud>

/** The clouds that an installation has, by name. An account of any other cloud is refused. */
export function cloudsOf(openers: Readonly<Record<string, CloudOpener>>): Clouds {
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
