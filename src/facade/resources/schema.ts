import Type, { type Static } from "typebox"
import { CONNECTION_TYPES } from "../../apis/connection.ts"
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
    id: Type.String({ description: "The provider's own full name of it." }),
    name: Type.String({ description: "What a job's bucket or image says; of a pool its short name." }),
    connection_id: Type.String({ description: "Id of the connection that found it." }),
    connection_type: StringEnum(CONNECTION_TYPES),
    platform: Type.String({ examples: PLATFORMS, description: "Where it is kept." }),
    type: Type.String({ examples: TYPES, description: "What it is." }),
    metadata: Type.Record(Type.String(), Type.Union([Type.String(), Type.Number()]), {
      description:
        "What the provider tells along with it: region, created, size (bytes) and others. Any may be missing.",
    }),
  },
  { description: "Something in an account that a connection opens." },
)
export type DiscoveredItem = Static<typeof DiscoveredItemSchema>
