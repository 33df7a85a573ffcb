import Type, { type Static } from "typebox"
import type { ProviderDefinition } from "../../../clouds/definition.ts"
import { DEFINITIONS, VM_CLOUDS } from "../../../clouds/definitions.ts"
import { CONNECTION_TYPES, type StoredConnection } from "../../../core/apis/connection.ts"
import { MapOf, StringEnum } from "../../../core/apis/schema.ts"

/** Schemas of discovered resources. The property names are exactly those of the contract. */

const PROVIDERS: readonly ProviderDefinition[] = Object.values(DEFINITIONS)
const PLATFORMS = [
  ...PROVIDERS.flatMap(({ buckets }) => buckets?.platform ?? []),
  ...PROVIDERS.flatMap(({ images }) => images?.platform ?? []),
  ...VM_CLOUDS,
]

const TYPES = ["bucket", "container", "repository", "account", "project", "subscription"] as const

export const DiscoveredItemSchema = Type.Object(
  {
    id: Type.String({ description: "Full name in the provider's own form." }),
    name: Type.String({ description: "Value of a job's bucket or image; for a pool its short name." }),
    connection_id: Type.String({ description: "Id of the connection that found the resource." }),
    connection_type: StringEnum(CONNECTION_TYPES),
    platform: Type.String({ examples: PLATFORMS, description: "Platform of the resource." }),
    type: Type.String({ examples: TYPES, description: "Type of the resource." }),
    metadata: MapOf(Type.Union([Type.String(), Type.Number()]), {
      description: "More properties, such as region, created or size (bytes). Any may be missing.",
    }),
  },
  { description: "Resource in the account of a connection." },
)
export type DiscoveredItem = Static<typeof DiscoveredItemSchema>

/** Kind of resources that can be discovered. */
export type DiscoverySort = "storages" | "repositories" | "virtualMachinePools"

/** Resources that the connections found, and the failures. */
export interface Discovered {
  found: readonly { connection: StoredConnection; resource: DiscoveredResource }[]
  /** Connections whose part is missing or incomplete, with the reason. */
  failures: readonly DiscoveryFailure[]
}

/** Failure of a connection. Its texts show no credentials. */
export interface DiscoveryFailure {
  connection: StoredConnection
  /** One word, from the provider if possible. */
  reason: string
  message: string
}

type DiscoveredResource = Pick<DiscoveredItem, "id" | "name" | "platform" | "type" | "metadata">

/**
 * Lists the resources in the accounts of connections, concurrently and each with a timeout. A failed connection does
 * not reject the promise. The program decrypts the credentials with its own rights: a viewer may see the resources,
 * but neither Connections nor Secrets. `operator/main.ts` and `api/main.ts` construct the function.
 */
export type Discoverer = (sort: DiscoverySort, connections: readonly StoredConnection[]) => Promise<Discovered>
