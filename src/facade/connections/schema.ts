import Type, { type Static, type TSchema } from "typebox"
import { CONNECTION_TYPES, type ConnectionType } from "../../apis/connection.ts"
import { CREDENTIALS, SECRET_FIELDS } from "../../apis/credentials.ts"
import { StringEnum } from "../../apis/schema.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { JobSubmissionSchema } from "../jobs/schema.ts"
import { NameOf } from "../names.ts"

/** The REST API's shapes of a connection, with the contract's property names to the letter. */

const NameSchema = NameOf("connection")

const { project_id, organization_id } = JobSubmissionSchema.properties

const TYPE = StringEnum(CONNECTION_TYPES, { description: "Provider of the account." })

/** Every kind's fields of credentials, each optional: which of them there must be is the kind's to say. */
const anyCredentials: Record<string, TSchema> = Object.fromEntries(
  Object.values(CREDENTIALS).flatMap(({ properties }) =>
    Object.entries(properties).map(([field, schema]) => [field, Type.Optional(schema)]),
  ),
)

/** What POST /connections takes, of whatever type. */
export const ConnectionCreationSchema = Type.Object({
  name: NameSchema,
  type: TYPE,
  ...anyCredentials,
  project_id,
  organization_id,
})

/**
 * What PATCH /connections/{name} takes: fields of credentials. What a record has beside them may come back with it,
 * unchanged, and so may null for whatever was redacted.
 */
export const ConnectionChangeSchema = Type.Object({
  id: Type.Optional(Type.String({ description: "May be repeated, but not changed." })),
  name: Type.Optional(Type.String({ description: "May be repeated, but not changed." })),
  type: Type.Optional(StringEnum(CONNECTION_TYPES, { description: "May be repeated, but not changed." })),
  created_at: Type.Optional(Type.String({ description: "May be repeated, but not changed." })),
  ...anyCredentials,
  project_id,
  organization_id,
})

/** What a checked change gives of what can't be changed. */
export type ConnectionRepetition = Pick<Static<typeof ConnectionChangeSchema>, "id" | "name" | "type" | "created_at">

/** A connection in the plain list. */
export const ConnectionSummarySchema = Type.Object({
  id: Type.String({ description: "UUID." }),
  name: Type.String(),
  type: TYPE,
  created_at: Type.String(),
})
export type ConnectionSummary = Static<typeof ConnectionSummarySchema>

/** The fields of credentials that the contract's record has, whatever its type. */
export const CONTRACT_CREDENTIALS = ["access_key_id", "secret_access_key", "gcp_project_id", "keyfile_json"] as const

const CREDENTIAL_RECORDS = Object.fromEntries(
  Object.entries(anyCredentials).map(([field]) => {
    const description = SECRET_FIELDS.includes(field)
      ? "Null unless an admin gets this one connection."
      : "Null unless the caller is an admin."
    const schema = Type.Unsafe<string | null>({ type: ["string", "null"], description })
    return [field, CONTRACT_CREDENTIALS.some((name) => name === field) ? schema : Type.Optional(schema)]
  }),
)

/** A connection as the REST API shows it: every field of the contract, then those of its type. */
export const ConnectionRecordSchema = Type.Object({ ...ConnectionSummarySchema.properties, ...CREDENTIAL_RECORDS })
export type ConnectionRecord = ConnectionSummary & Record<string, string | null>

/** Other types' fields may be there as a record has them: null. */
function othersFields(type: ConnectionType): Record<string, TSchema> {
  const others = Object.keys(anyCredentials).filter((field) => !Object.hasOwn(CREDENTIALS[type].properties, field))
  const schema = Type.Optional(Type.Null({ description: "Field of another type." }))
  return Object.fromEntries(others.map((field) => [field, schema]))
}

/** What POST takes for one type, for the reference: of others' fields there is nothing but null. */
export function creationSchemaOf(type: ConnectionType): TSchema {
  const own = CREDENTIALS[type].properties
  return Type.Object(
    { name: NameSchema, type: StringEnum([type]), ...own, ...othersFields(type), project_id, organization_id },
    { description: `New connection of type ${type}.` },
  )
}

/** What PATCH takes for one type, for the reference. */
export function changeSchemaOf(type: ConnectionType): TSchema {
  const own = Object.entries(CREDENTIALS[type].properties).map(([field, schema]) => [field, Type.Optional(schema)])
  const { id, name, created_at } = ConnectionChangeSchema.properties
  const repeated = { id, name, created_at, type: Type.Optional(StringEnum([type])) }
  return Type.Object(
    { ...repeated, ...Object.fromEntries(own), ...othersFields(type), project_id, organization_id },
    { description: `Change of a connection of type ${type}.` },
  )
}

/** What GET /connections answers. */
export type ConnectionList = PageOf<"connections", ConnectionRecord>
