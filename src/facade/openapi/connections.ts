import { CONNECTION_TYPES, type ConnectionType } from "../../apis/connection.ts"
import {
  ConnectionRecordSchema,
  ConnectionSummarySchema,
  changeSchemaOf,
  creationSchemaOf,
} from "../connections/schema.ts"
import { SORTING } from "../sorting.ts"
import {
  bodySchema,
  createdResponse,
  IDEMPOTENCY_KEY,
  IF_MATCH,
  IF_NONE_MATCH,
  type Json,
  json,
  jsonOrYaml,
  links,
  operation,
  pageParameters,
  pageSchema,
  pathParameter,
  published,
  queryParameter,
  recordResponse,
  recordResponses,
  schemaRef,
} from "./parts.ts"
import { type Additions, inFormat } from "../../http/json-schema.ts"
import { OWNER_RULES } from "./rules.ts"

const TAGS = ["connections"]

/** The provider's own example of a key, from its documentation: it opens nothing. */
const CREATION = {
  name: "my-aws",
  type: "aws",
  access_key_id: "AKIAIOSFODNN7EXAMPLE",
  secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}

const SUMMARY = {
  id: "5ea07726-efd2-42ec-a095-6d7674666e31",
  name: "my-aws",
  type: "aws",
  created_at: "2026-01-02T10:00:00Z",
}

const REDACTED = {
  ...SUMMARY,
  access_key_id: "AKIAIOSFODNN7EXAMPLE",
  secret_access_key: null,
  gcp_project_id: null,
  keyfile_json: null,
}

const typeName = (type: ConnectionType): string => `${type.charAt(0).toUpperCase()}${type.slice(1)}`
const creationName = (type: ConnectionType): string => `${typeName(type)}ConnectionCreation`
const changeName = (type: ConnectionType): string => `${typeName(type)}ConnectionChange`

function rulesOf(type: ConnectionType): Additions {
  const keyfile = { "/properties/keyfile_json": inFormat("service-account-key") }
  return { ...OWNER_RULES, ...(type === "gcp" && keyfile) }
}

/** The schemas that `connectionPaths` refers to. */
export function connectionSchemas(): Json {
  const creations = CONNECTION_TYPES.map((type) => {
    return [creationName(type), bodySchema(creationSchemaOf(type), rulesOf(type))]
  })
  const changes = CONNECTION_TYPES.map((type) => [changeName(type), bodySchema(changeSchemaOf(type), rulesOf(type))])
  const mapping = CONNECTION_TYPES.map((type) => [type, `#/components/schemas/${creationName(type)}`])
  return {
    ...Object.fromEntries(creations),
    ConnectionCreation: {
      description: "A connection to be made: the fields of its type, all of them.",
      oneOf: CONNECTION_TYPES.map((type) => schemaRef(creationName(type))),
      discriminator: { propertyName: "type", mapping: Object.fromEntries(mapping) },
    },
    ...Object.fromEntries(changes),
    ConnectionChange: {
      description: "What is to be changed of a connection: fields of its type.",
      anyOf: CONNECTION_TYPES.map((type) => schemaRef(changeName(type))),
    },
    ConnectionRecord: published(ConnectionRecordSchema),
    ConnectionSummary: published(ConnectionSummarySchema),
    ConnectionList: {
      description: "A page, or the plain array for view=summary.",
      oneOf: [pageSchema("connections", "ConnectionRecord"), { type: "array", items: schemaRef("ConnectionSummary") }],
    },
  }
}

const NEXT = links({
  getConnection: { name: "$response.body#/id" },
  changeConnection: { name: "$response.body#/name" },
  deleteConnection: { name: "$response.body#/name" },
})

/** The contract's connection endpoints. */
export function connectionPaths(): Json {
  return { "/connections": collectionPath(), "/connections/{name}": connectionPath() }
}

function collectionPath(): Json {
  return {
    post: operation("createConnection", "Make a connection; its credentials are kept encrypted (admin).", {
      tags: TAGS,
      parameters: [IDEMPOTENCY_KEY],
      requestBody: { required: true, content: jsonOrYaml("ConnectionCreation", CREATION) },
      responses: { "201": { ...createdResponse("Made.", json("ConnectionRecord", REDACTED)), ...NEXT } },
      problems: [409, 422],
    }),
    get: operation("listConnections", "List connections, always redacted (viewer or higher).", {
      tags: TAGS,
      parameters: [
        queryParameter("name", {
          type: "string",
          description: "Only the connection of exactly this name; empty: all.",
        }),
        queryParameter("view", { type: "string", enum: ["full", "summary"], default: "full" }),
        ...Object.entries(SORTING).map(([name, { schema }]) => queryParameter(name, schema)),
        ...pageParameters(),
      ],
      responses: { "200": { description: "Connections.", content: json("ConnectionList") } },
    }),
  }
}

function connectionPath(): Json {
  const connection = pathParameter("name")
  return {
    get: operation("getConnection", "A connection (viewer or higher); its values in clear for admins only.", {
      tags: TAGS,
      parameters: [connection, IF_NONE_MATCH],
      responses: recordResponses("The connection.", json("ConnectionRecord")),
      problems: [404, 409],
    }),
    patch: operation("changeConnection", "Change credentials, which are encrypted anew (admin).", {
      tags: TAGS,
      parameters: [connection, IF_MATCH],
      requestBody: { required: true, content: jsonOrYaml("ConnectionChange", { secret_access_key: "the-new-key" }) },
      responses: { "200": recordResponse("The changed connection, redacted.", json("ConnectionRecord", REDACTED)) },
      problems: [404, 409, 412],
    }),
    delete: operation("deleteConnection", "Delete a connection; VMs that run in it are still ended (admin).", {
      tags: TAGS,
      parameters: [connection, IF_MATCH],
      responses: { "204": { description: "Deleted." } },
      problems: [404, 412],
    }),
  }
}
