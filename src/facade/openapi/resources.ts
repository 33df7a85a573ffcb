import { PARTIAL_RESULT } from "../resources/partial-result.ts"
import { DiscoveredItemSchema } from "../resources/schema.ts"
import { type Json, json, operation, published, queryParameter, schemaRef } from "./parts.ts"

const TAGS = ["resources"]

const BUCKET = {
  id: "arn:aws:s3:::training-data",
  name: "training-data",
  connection_id: "5ea07726-efd2-42ec-a095-6d7674666e31",
  connection_type: "aws",
  platform: "s3",
  type: "bucket",
  metadata: { region: "eu-west-1", created: "2026-01-02T10:00:00.000Z" },
}

const REPOSITORY = {
  ...BUCKET,
  id: "arn:aws:ecr:eu-west-1:123456789012:repository/train",
  name: "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train",
  platform: "ecr",
  type: "repository",
}

const POOL = {
  ...BUCKET,
  id: "arn:aws:iam::123456789012:root",
  name: "123456789012",
  platform: "aws",
  type: "account",
  metadata: {},
}

/** The schemas that `resourcePaths` refers to. */
export function resourceSchemas(): Json {
  const listOf = (property: string): Json => ({
    type: "object",
    required: [property],
    properties: { [property]: { type: "array", items: schemaRef("DiscoveredItem") } },
    additionalProperties: false,
  })
  return {
    DiscoveredItem: published(DiscoveredItemSchema),
    StorageList: listOf("storages"),
    RepositoryList: listOf("repositories"),
    VirtualMachinePoolList: listOf("virtual_machine_pools"),
  }
}

/** The contract's discovery endpoints. */
export function resourcePaths(): Json {
  return {
    "/resources/storages": {
      get: discovery(
        "listStorages",
        "Buckets that the connections reach.",
        json("StorageList", { storages: [BUCKET] }),
      ),
    },
    "/resources/repositories": {
      get: discovery(
        "listRepositories",
        "Repositories of container images that the connections reach.",
        json("RepositoryList", { repositories: [REPOSITORY] }),
      ),
    },
    "/resources/virtual-machine-pools": {
      get: discovery(
        "listVirtualMachinePools",
        "Accounts, projects and subscriptions in which the connections can make VMs.",
        json("VirtualMachinePoolList", { virtual_machine_pools: [POOL] }),
      ),
    },
  }
}

function discovery(operationId: string, summary: string, content: Json): Json {
  const headers = {
    [PARTIAL_RESULT]: {
      description:
        "Only there when a connection's part is missing or not whole: a list (RFC 9651) of connections, each with the reason.",
      schema: { type: "string" },
      example: '"my-aws";reason="AccessDenied";message="ListBuckets in us-east-1: AccessDenied"',
    },
  }
  return operation(operationId, `${summary} (viewer or higher, with a rate limit of its own)`, {
    tags: TAGS,
    parameters: [
      queryParameter("connection_id", {
        type: "string",
        description: "Id or name: only by this one. Empty or null: by all.",
      }),
    ],
    responses: { "200": { description: "What was found.", headers, content } },
    problems: [404],
  })
}
