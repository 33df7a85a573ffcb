import { fromMetadataName } from "../../../core/apis/names.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { listSchema, namedSchema } from "../../http/json-schema.ts"
import { filter } from "../../http/query.ts"
import { type AuthenticatedRequest, json, routeDeclarer } from "../../http/route.ts"
import type { Connections } from "../connections/connections.ts"
import {
  type Discovered,
  type DiscoveredItem,
  DiscoveredItemSchema,
  type Discoverer,
  type DiscoveryFailure,
  type DiscoverySort,
} from "./schema.ts"

export interface ResourceServices {
  connectionsOf: (principal: Principal) => Pick<Connections, "all" | "find">
  discover: Discoverer
}

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

const ITEM = namedSchema("DiscoveredItem", DiscoveredItemSchema)

/** Header that names the connections whose part of the response is missing or incomplete. */
const PARTIAL_RESULT = "Berth-Partial-Result"

/** Longest value of the header. HTTP clients and proxies reject 8 to 16 KiB of headers. */
const MOST_CHARACTERS = 4096
const MOST_MESSAGE = 200

const PARTIAL = {
  [PARTIAL_RESULT]: {
    description:
      "Present if the result of a connection is missing or incomplete: a list (RFC 9651) of these connections, each with the reason.",
    schema: { type: "string" },
    example: '"my-aws";reason="AccessDenied";message="ListBuckets in us-east-1: AccessDenied"',
  },
}

const route = routeDeclarer<Principal, ResourceServices>({ tag: "resources" })

/** Operation of discovery. */
interface Discovery {
  id: string
  summary: string
  sort: DiscoverySort
  /** Name of the list's schema, and the property that has the items. */
  list: string
  property: string
  example: object
}

function discovery(path: string, { id, summary, sort, list, property, example }: Discovery) {
  const content = listSchema(list, property, ITEM, { example: { [property]: [example] } })
  return route(`GET /resources/${path}`, {
    id,
    summary: `${summary} These requests have a separate rate limit.`,
    role: "viewer",
    query: { connection_id: filter("Id or name of one connection. Empty or null: all connections.") },
    responses: { 200: json(content, "Resources found.", { headers: PARTIAL }) },
    handle: async (call, { connectionsOf, discover }) => {
      const connections = connectionsOf(call.principal)
      const { connection_id: one } = call.query
      // In the contract, the filter is a string or null.
      const asked = one === undefined || one === "null" ? connections.all() : [await connections.find(one)]
      const discovered = await discover(sort, asked)
      reportFailures(call, discovered)
      return { body: { [property]: discovered.found.map(itemOf) } }
    },
  })
}

/** Operations of the contract on discovered resources. */
export const resourceRoutes = [
  discovery("storages", {
    id: "listStorages",
    summary: "List the buckets that the connections can access.",
    sort: "storages",
    list: "StorageList",
    property: "storages",
    example: BUCKET,
  }),
  discovery("repositories", {
    id: "listRepositories",
    summary: "List the repositories of container images that the connections can access.",
    sort: "repositories",
    list: "RepositoryList",
    property: "repositories",
    example: REPOSITORY,
  }),
  discovery("virtual-machine-pools", {
    id: "listVirtualMachinePools",
    summary: "List the accounts, projects and subscriptions in which the connections can create VMs.",
    sort: "virtualMachinePools",
    list: "VirtualMachinePoolList",
    property: "virtual_machine_pools",
    example: POOL,
  }),
]

/** Reports the failed connections in a header and in the log. The others' resources are returned all the same. */
function reportFailures({ req, res }: AuthenticatedRequest<Principal>, { failures }: Discovered): void {
  if (failures.length === 0) return
  res.set(PARTIAL_RESULT, partialResult(failures))
  for (const { connection, reason, message } of failures) {
    const name = fromMetadataName(connection.metadata.name)
    req.log.warn({ connection: name, type: connection.spec.type, reason, message }, "discovery by a connection failed")
  }
}

function itemOf({ connection, resource }: Discovered["found"][number]): DiscoveredItem {
  const { id, name, platform, type, metadata } = resource
  return {
    id,
    name,
    connection_id: connection.metadata.uid,
    connection_type: connection.spec.type,
    platform,
    type,
    metadata,
  }
}

/**
 * Returns the header's value: a list of the connections' names as strings, with the parameters `reason` and `message`
 * (RFC 9651). A value that is too long loses the messages first, then the last names. The log has all of them.
 */
function partialResult(failures: readonly DiscoveryFailure[]): string {
  const whole = failures.map(
    (failure) => `${withReason(failure)};message=${quoteString(failure.message.slice(0, MOST_MESSAGE))}`,
  )
  const value = whole.join(", ")
  return value.length <= MOST_CHARACTERS ? value : asManyAs(failures.map(withReason))
}

function withReason({ connection, reason }: DiscoveryFailure): string {
  return `${quoteString(fromMetadataName(connection.metadata.name))};reason=${quoteString(reason.slice(0, MOST_MESSAGE))}`
}

/** Returns a string of RFC 9651: printable ASCII, with two signs escaped. */
function quoteString(text: string): string {
  return `"${text.replace(/[^ -~]+/g, "?").replace(/["\\]/g, "\\$&")}"`
}

function asManyAs(members: readonly string[]): string {
  let value = members[0] ?? ""
  for (const member of members.slice(1)) {
    if (value.length + member.length > MOST_CHARACTERS) break
    value += `, ${member}`
  }
  return value
}
