import { CONNECTION_TYPES, type ConnectionType, type StoredConnection } from "../../../core/apis/connection.ts"
import { credentialSchemasOf } from "../../../core/apis/credentials.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import { vmSettingKeywords } from "../../../core/apis/vm-settings.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { toOwner } from "../../../core/records/owner.ts"
import {
  bodySchema,
  type DocumentSchema,
  inFormat,
  namedSchema,
  pageSchema,
  referenceTo,
} from "../../http/json-schema.ts"
import { Problem } from "../../http/problem.ts"
import { choice, filter, paging } from "../../http/query.ts"
import {
  type AuthenticatedRequest,
  type BodyDeclaration,
  created,
  json,
  noContent,
  record,
  routeDeclarer,
} from "../../http/route.ts"
import { OWNER } from "../../owner.ts"
import { SORTING, sorted } from "../../sorting.ts"
import type { Connections } from "./connections.ts"
import {
  type ConnectionCheck,
  ConnectionCheckSchema,
  type ConnectionList,
  type ConnectionRecord,
  ConnectionRecordSchema,
  type ConnectionSummary,
  ConnectionSummarySchema,
  changeSchema,
  creationSchema,
} from "./schema.ts"
import {
  type ConnectionChange,
  type ConnectionCreation,
  checkConnection,
  checkConnectionChange,
  toConnectionRecord,
  toConnectionSummary,
  toRestrictedRecord,
  withoutSecrets,
} from "./translate.ts"

export interface ConnectionServices {
  connectionsOf: (principal: Principal) => Connections
}

const SHOWN = {
  id: "5ea07726-efd2-42ec-a095-6d7674666e31",
  name: "my-aws",
  type: "aws",
  created_at: "2026-01-02T10:00:00Z",
}

const CONNECTION = namedSchema("ConnectionRecord", ConnectionRecordSchema, {
  ...SHOWN,
  access_key_id: "AKIAIOSFODNN7EXAMPLE",
  secret_access_key: null,
  gcp_project_id: null,
  keyfile_json: null,
}) as DocumentSchema<ConnectionRecord>
const SUMMARY = namedSchema("ConnectionSummary", ConnectionSummarySchema)
const CHECK = namedSchema("ConnectionCheck", ConnectionCheckSchema, {
  name: SHOWN.name,
  result: "incomplete",
  reason: "Verified",
  message: "the credentials open aws 123456789012",
  checked_at: "2026-01-02T10:00:01Z",
  missing_permissions: ["ec2:RunInstances"],
  capabilities: {
    vms: {
      status: "False",
      reason: "PermissionsMissing",
      message: "no VM is started with this connection: AWS denies RunInstances in us-east-1",
      missing: ["ec2:RunInstances"],
    },
  },
} satisfies ConnectionCheck)
const PAGE = pageSchema("ConnectionList", "connections", CONNECTION)
const LIST: DocumentSchema<ConnectionList | ConnectionSummary[]> = {
  name: "ConnectionList",
  json: {
    description: "A page, or the plain array for view=summary.",
    oneOf: [PAGE.json, { type: "array", items: referenceTo(SUMMARY) }],
  },
  parts: [CONNECTION, SUMMARY],
}

/** Returns the schema of one type's body, with a name such as AwsConnectionCreation. */
function typeSchema(type: ConnectionType, what: "Creation" | "Change"): DocumentSchema {
  const schema = what === "Creation" ? creationSchema(type) : changeSchema(type)
  const keyfile = { "/properties/keyfile_json": inFormat("service-account-key") }
  // A change is checked together with the settings that stay, which no schema of a body describes.
  const rules = what === "Creation" ? { "": vmSettingKeywords(type) } : {}
  const additions = [
    OWNER.keywords ?? {},
    rules,
    ...(Object.hasOwn(credentialSchemasOf(type), "keyfile_json") ? [keyfile] : []),
  ]
  return {
    name: `${type.charAt(0).toUpperCase()}${type.slice(1)}Connection${what}`,
    json: bodySchema(schema, additions),
  }
}

const CREATIONS = CONNECTION_TYPES.map((type) => typeSchema(type, "Creation"))
const CHANGES = CONNECTION_TYPES.map((type) => typeSchema(type, "Change"))

const CREATION: BodyDeclaration<ConnectionCreation, Principal> = {
  what: "The connection",
  content: {
    name: "ConnectionCreation",
    json: {
      description: "New connection, with all fields of its type.",
      oneOf: CREATIONS.map(referenceTo),
      discriminator: {
        propertyName: "type",
        mapping: Object.fromEntries(
          CONNECTION_TYPES.map((type, i) => [type, `#/components/schemas/${CREATIONS[i]?.name}`]),
        ),
      },
    },
    parts: CREATIONS,
    // The key is AWS's own example from its documentation, and gives no access.
    example: {
      name: "my-aws",
      type: "aws",
      access_key_id: "AKIAIOSFODNN7EXAMPLE",
      secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    },
  },
  check: (value, { principal }) => checkConnection(value, toOwner(principal.project)),
}

const CHANGE: BodyDeclaration<ConnectionChange, Principal> = {
  what: "The change",
  content: {
    name: "ConnectionChange",
    json: {
      description: "Changes of a connection: fields of its type. Null removes a setting of VMs.",
      anyOf: CHANGES.map(referenceTo),
    },
    parts: CHANGES,
    example: { secret_access_key: "the-new-key" },
  },
  check: (value, { principal }) => checkConnectionChange(value, toOwner(principal.project)),
}

const route = routeDeclarer<Principal, ConnectionServices>({ tag: "connections" })

/** Operations of the contract on connections. */
export const connectionRoutes = [
  route("POST /connections", {
    id: "createConnection",
    summary: "Create a connection. Its credentials are stored encrypted.",
    role: "admin",
    body: CREATION,
    idempotent: true,
    responses: {
      201: created(CONNECTION, "Created.", {
        links: {
          getConnection: { name: "$response.body#/id" },
          changeConnection: { name: "$response.body#/name" },
          deleteConnection: { name: "$response.body#/name" },
        },
      }),
    },
    creates: true,
    problems: ["credentials-unreadable"],
    handle: async (call, { connectionsOf }) => {
      const connections = connectionsOf(call.principal)
      const made = await connections.create(call.body, call.idempotencyKey)
      const location = `/connections/${encodeURIComponent(fromMetadataName(made.metadata.name))}`
      return { of: made, body: await redactRecord(call, connections, made), location }
    },
  }),
  route("GET /connections", {
    id: "listConnections",
    summary: "List connections, always without secrets.",
    role: "viewer",
    query: {
      name: filter("Only the connection with exactly this name. Empty: all."),
      view: choice(["full", "summary"], "full"),
      ...SORTING,
      ...paging(),
    },
    responses: { 200: json(LIST, "Connections.") },
    handle: async (call, { connectionsOf }) => {
      const { name, view, offset, limit, ...sorting } = call.query
      const connections = connectionsOf(call.principal)
      const all = connections
        .all()
        .filter(({ metadata }) => name === undefined || fromMetadataName(metadata.name) === name)
      const shown = sorted(all, sorting).slice(offset, offset + limit)
      if (view === "summary") return { body: shown.map(toConnectionSummary) }
      const records = await Promise.all(shown.map((connection) => redactRecord(call, connections, connection)))
      return { body: { connections: records, total: all.length, limit, offset } }
    },
  }),
  route("GET /connections/{name}", {
    id: "getConnection",
    summary: "Get a connection. Only admins see its secrets.",
    role: "viewer",
    responses: { 200: record(CONNECTION, "The connection.") },
    problems: ["credentials-unreadable"],
    handle: async ({ path, principal }, { connectionsOf }) => {
      const connections = connectionsOf(principal)
      const connection = await connections.find(path.name)
      if (principal.role !== "admin") return { of: connection, body: toRestrictedRecord(connection) }
      return {
        of: connection,
        body: toConnectionRecord(connection, (await connections.credentialsOf(connection)) ?? {}),
        view: "clear",
        // The record has secrets: no cache may keep it.
        headers: { "Cache-Control": "no-store" },
      }
    },
  }),
  route("PATCH /connections/{name}", {
    id: "changeConnection",
    summary: "Change credentials, or settings of VMs.",
    role: "admin",
    body: CHANGE,
    ifMatch: true,
    responses: { 200: record(CONNECTION, "The changed connection, without secrets.") },
    problems: ["credentials-in-secret", "credentials-unreadable"],
    handle: async (call, { connectionsOf }) => {
      const connections = connectionsOf(call.principal)
      const changed = await connections.change(call.path.name, call.body, call.precondition)
      return { of: changed, body: await redactRecord(call, connections, changed) }
    },
  }),
  route("DELETE /connections/{name}", {
    id: "deleteConnection",
    summary: "Delete a connection. Berth still terminates the VMs that use it.",
    role: "admin",
    ifMatch: true,
    responses: { 204: noContent("Deleted.") },
    handle: ({ path, precondition, principal }, { connectionsOf }) =>
      connectionsOf(principal).remove(path.name, precondition),
  }),
]

/** Operations that ask a provider. They have a limit of their own. */
export const connectionCheckRoutes = [
  route("POST /connections/{name}/check", {
    id: "checkConnection",
    summary: "Check a connection with its provider now, and return the result.",
    role: "admin",
    responses: { 200: json(CHECK, "The result.") },
    handle: async ({ path, principal, closed }, { connectionsOf }) => ({
      body: await connectionsOf(principal).check(path.name, closed),
    }),
  }),
]

/** Returns the record without secrets. Only admins see decrypted fields, even those that aren't secrets. */
async function redactRecord(
  call: AuthenticatedRequest<Principal>,
  connections: Connections,
  connection: StoredConnection,
): Promise<ConnectionRecord> {
  if (call.principal.role !== "admin") return toRestrictedRecord(connection)
  try {
    return toConnectionRecord(connection, withoutSecrets((await connections.credentialsOf(connection)) ?? {}))
  } catch (error) {
    // One unreadable connection must not break the list of the others. A GET of it returns the error.
    if (!(error instanceof Problem)) throw error
    call.req.log.warn(
      { connection: connection.metadata.name, err: error },
      "cannot decrypt the credentials of a connection",
    )
    return toConnectionRecord(connection, {})
  }
}
