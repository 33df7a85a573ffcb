import Type, { type Static } from "typebox"
import { CONNECTION_TYPES, type StoredConnection } from "../../apis/connection.ts"
import { StringEnum } from "../../apis/schema.ts"

/** The REST API's shapes of what is discovered, with the contract's property names to the letter. */

const PLATFORMS = [
  "s3",
  "gcs",
  "azure-blob",
  "r2",
  "ecr",
  "artifact-registry",
  "acr",
  "dockerhub",
  "ghcr",
  "aws",
  "gcp",
  "azure",
] as const

const TYPES = ["bucket", "container", "repository", "account", "project", "subscription"] as const

export const DiscoveredItemSchema = Type.Object(
  {
    id: Type.String({ description: "Full name in the provider's own form." }),
    name: Type.String({ description: "Value of a job's bucket or image; for a pool its short name." }),
    connection_id: Type.String({ description: "Id of the connection that found it." }),
    connection_type: StringEnum(CONNECTION_TYPES),
    platform: Type.String({ examples: PLATFORMS, description: "Platform that holds it." }),
    type: Type.String({ examples: TYPES, description: "Type of the resource." }),
    metadata: Type.Record(Type.String(), Type.Union([Type.String(), Type.Number()]), {
      description: "Further properties of the provider: region, created, size (bytes) and others. Any may be missing.",
    }),
  },
  { description: "Resource in the account of a connection." },
)
export type DiscoveredItem = Static<typeof DiscoveredItemSchema>

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
 * Looks into the accounts of connections, all at the same time and each for a limited time; `operator.ts` and `api-server.ts` construct it. Does not
 * reject because of a connection. It opens the credentials by the program's own right: a viewer may see what there is, and
 * neither Connections nor Secrets.
 */
export type Discoverer = (sort: DiscoverySort, connections: readonly StoredConnection[]) => Promise<Discovered>
