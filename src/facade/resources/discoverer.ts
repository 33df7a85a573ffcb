import type { StoredConnection } from "../../apis/connection.ts"
import type { DiscoveredItem } from "./schema.ts"

/** What can be discovered. */
export type DiscoverySort = "storages" | "repositories" | "virtualMachinePools"

/** What connections gave. */
export interface Discovered {
  found: readonly { connection: StoredConnection; resource: DiscoveredResource }[]
  /** Connections whose part is missing or not whole, and why. */
  failures: readonly DiscoveryFailure[]
}

/** A connection's failure, in words that show none of its credentials. */
export interface DiscoveryFailure {
  connection: StoredConnection
  /** One word, the provider's own where it has one. */
  reason: string
  message: string
}

type DiscoveredResource = Pick<DiscoveredItem, "id" | "name" | "platform" | "type" | "metadata">

/**
 * Looks into the accounts of connections, all at the same time and each for a limited time; `wire.ts` gives it. Does not
 * reject because of a connection. It opens the credentials by the program's own right: a viewer may see what there is, and
 * neither Connections nor Secrets.
 */
export type Discoverer = (sort: DiscoverySort, connections: readonly StoredConnection[]) => Promise<Discovered>
