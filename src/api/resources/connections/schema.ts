import Type, { type Static, type TSchema } from "typebox"
import {
  CAPABILITIES,
  type CapabilityName,
  CONNECTION_TYPES,
  type ConnectionType,
} from "../../../core/apis/connection.ts"
import { credentialSchemasOf, formsOf, SECRET_FIELDS } from "../../../core/apis/credentials.ts"
import { connectionFieldInRest } from "../../../core/apis/rest-names.ts"
import { StringEnum } from "../../../core/apis/schema.ts"
import { settingFieldsFor, vmSettingFields } from "../../../core/apis/vm-settings.ts"
import { type ConditionRecord, conditionsField, ignoredConditions } from "../../../core/records/conditions.ts"
import { nullable } from "../../../core/records/nullable.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { nameSchema } from "../../names.ts"
import { JobSubmissionSchema } from "../jobs/schema.ts"

/** Schemas of a connection. The property names are exactly those of the contract. */

const NameSchema = nameSchema("connection")

const { project_id, organization_id } = JobSubmissionSchema.properties

const TYPE = StringEnum(CONNECTION_TYPES, { description: "Provider of the account." })

/** Credential fields of all types, each optional. The connection's type decides which ones are required. */
const anyCredentials: Record<string, TSchema> = Object.fromEntries(
  CONNECTION_TYPES.flatMap((type) =>
    Object.entries(credentialSchemasOf(type)).map(([field, schema]) => [field, Type.Optional(schema)]),
  ),
)

/** Returns the schemas of settings of VMs by their names in REST. */
function inRest(fields: Record<string, TSchema>): Record<string, TSchema> {
  return Object.fromEntries(Object.entries(fields).map(([field, schema]) => [connectionFieldInRest(field), schema]))
}

/** Settings of VMs of any type. */
const anySettings = inRest(vmSettingFields)

/** Body of POST /connections, for any type. */
export const ConnectionCreationSchema = Type.Object({
  name: NameSchema,
  type: TYPE,
  ...anyCredentials,
  ...anySettings,
  project_id,
  organization_id,
})

/** Schema of what Berth itself puts into a record, in a change. A client's copy of it is ignored. */
function IgnoredObject() {
  return Type.Optional(Type.Unsafe<unknown>({ type: ["object", "null"], description: "Ignored." }))
}

/**
 * Body of PATCH /connections/{name}: credential fields and settings of VMs. The body may repeat the record's other
 * fields unchanged, and have null for redacted fields. Null removes a setting.
 */
export const ConnectionChangeSchema = Type.Object({
  id: Type.Optional(Type.String({ description: "Read-only: send the same value, or leave it out." })),
  name: Type.Optional(Type.String({ description: "Read-only: send the same value, or leave it out." })),
  type: Type.Optional(
    StringEnum(CONNECTION_TYPES, { description: "Read-only: send the same value, or leave it out." }),
  ),
  created_at: Type.Optional(Type.String({ description: "Read-only: send the same value, or leave it out." })),
  capabilities: IgnoredObject(),
  conditions: ignoredConditions(),
  identity: IgnoredObject(),
  ...anyCredentials,
  ...anySettings,
  project_id,
  organization_id,
})

/** Fields of a checked change that can't be changed, only repeated. */
export type ConnectionRepetition = Pick<Static<typeof ConnectionChangeSchema>, "id" | "name" | "type" | "created_at">

/** Connection in the plain list. */
export const ConnectionSummarySchema = Type.Object({
  id: Type.String({ description: "UUID." }),
  name: Type.String(),
  type: TYPE,
  created_at: Type.String(),
})
export type ConnectionSummary = Static<typeof ConnectionSummarySchema>

/** Credential fields that the contract's record has for every type. */
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

const CapabilityRecordSchema = Type.Object({
  status: StringEnum(["True", "False", "Unknown"]),
  reason: Type.String(),
  message: Type.Optional(Type.String({ description: "Only for admins, because it may name parts of the account." })),
  missing: Type.Optional(
    Type.Array(Type.String(), {
      description: "Permissions that are missing, by the provider's names. Only for admins.",
    }),
  ),
})

const capabilityOf: Record<CapabilityName, string> = {
  vms: "Ability to start VMs. False: no job runs with this connection.",
  buckets: "Ability to list buckets.",
  repositories: "Ability to list image repositories.",
  prices: "Ability to read current prices.",
}

const CapabilityRecordsSchema = Type.Object(
  Object.fromEntries(
    CAPABILITIES.map((name) => {
      const description = capabilityOf[name]
      return [name, Type.Optional(Type.Object(CapabilityRecordSchema.properties, { description }))]
    }),
  ),
  { description: "Uses of the account that the credentials allow. Absent before the first check." },
)
export type CapabilityRecords = Partial<Record<CapabilityName, Static<typeof CapabilityRecordSchema>>>

const IdentityRecordSchema = Type.Object(
  {
    issuer: Type.Optional(Type.String({ description: "Issuer of the identity tokens." })),
    subject: Type.String({ description: "Subject of the identity tokens." }),
    audience: Type.Optional(Type.String({ description: "Audience of the identity tokens." })),
    external_id: Type.String({ description: "External id, for a key that assumes a role of AWS." }),
  },
  {
    description:
      "Identity that the cloud must trust, for connections without a secret or with a role. Only for admins.",
  },
)
export type IdentityRecord = Static<typeof IdentityRecordSchema>

/** Record of a connection: every field of the contract, then those of its type, then the extensions. */
export const ConnectionRecordSchema = Type.Object({
  ...ConnectionSummarySchema.properties,
  ...CREDENTIAL_RECORDS,
  capabilities: Type.Optional(CapabilityRecordsSchema),
  conditions: conditionsField(),
  identity: Type.Optional(IdentityRecordSchema),
  ...anySettings,
})
export type ConnectionRecord = ConnectionSummary & {
  capabilities?: CapabilityRecords
  conditions?: ConditionRecord[]
  identity?: IdentityRecord
} & Record<string, unknown>

/** Returns the fields of the other types, which may only be null, as in a record. */
function othersFields(type: ConnectionType): Record<string, TSchema> {
  const own = { ...credentialSchemasOf(type), ...inRest(settingFieldsFor(type)) }
  const others = Object.keys({ ...anyCredentials, ...anySettings }).filter((field) => !Object.hasOwn(own, field))
  const schema = Type.Optional(Type.Null({ description: "Field of another type." }))
  return Object.fromEntries(others.map((field) => [field, schema]))
}

/** Returns the schema of credentials with the fields of one form, and null or nothing for those of the others. */
function onlyForm(type: ConnectionType, required: readonly string[]): object {
  const fields = Object.keys(credentialSchemasOf(type)).map((field) => [
    field,
    required.includes(field) ? { not: { type: "null" } } : { type: "null" },
  ])
  return { required, properties: Object.fromEntries(fields) }
}

/** Returns the body of POST for one type, for the reference. Fields of other types may only be null. */
export function creationSchema(type: ConnectionType): TSchema {
  const forms = formsOf(type).map(({ properties }) => Object.keys(properties))
  const own = Object.entries(credentialSchemasOf(type)).map(([field, schema]) => [
    field,
    forms.every((form) => form.includes(field)) ? schema : Type.Optional(schema),
  ])
  return Type.Object(
    {
      name: NameSchema,
      type: StringEnum([type]),
      ...Object.fromEntries(own),
      ...inRest(settingFieldsFor(type)),
      ...othersFields(type),
      project_id,
      organization_id,
    },
    {
      description: `New connection of type ${type}.`,
      ...(forms.length > 1 && { anyOf: forms.map((form) => onlyForm(type, form)) }),
    },
  )
}

/** Returns the body of PATCH for one type, for the reference. */
export function changeSchema(type: ConnectionType): TSchema {
  const own = Object.entries(credentialSchemasOf(type)).map(([field, schema]) => [field, Type.Optional(schema)])
  const settings = inRest(settingFieldsFor(type))
  const { id, name, created_at, capabilities, conditions, identity } = ConnectionChangeSchema.properties
  const repeated = { id, name, created_at, capabilities, conditions, identity, type: Type.Optional(StringEnum([type])) }
  return Type.Object(
    { ...repeated, ...Object.fromEntries(own), ...settings, ...othersFields(type), project_id, organization_id },
    { description: `Change of a connection of type ${type}.` },
  )
}

/** Results of a check that a caller has asked for. */
export const CHECK_RESULTS = ["passed", "incomplete", "refused", "unreachable", "unusable", "unfinished"] as const

/** Response of POST /connections/{name}/check. */
export const ConnectionCheckSchema = Type.Object(
  {
    name: Type.String({ description: "Name of the connection." }),
    result: StringEnum(CHECK_RESULTS, {
      description:
        "passed: the account answers, and nothing that it needs is missing. incomplete: it answers, and a use is not " +
        "possible. refused: the provider rejects the credentials. unreachable: the provider did not answer, or not " +
        "whether VMs may be started. unusable: there are no credentials to check with. unfinished: the check takes " +
        "longer than the response; it continues.",
    }),
    reason: nullable<string>("string", "Reason of the result, one word. Null: the check is unfinished."),
    message: Type.String({ description: "Result for people." }),
    checked_at: nullable<string>("string", "Time of the check. Null: it is unfinished."),
    missing_permissions: Type.Array(Type.String(), {
      description: "Permissions that the account lacks for its uses, by the provider's names.",
    }),
    capabilities: CapabilityRecordsSchema,
  },
  { description: "Result of a check." },
)
export type ConnectionCheck = Static<typeof ConnectionCheckSchema>

/** Response of GET /connections. */
export type ConnectionList = PageOf<"connections", ConnectionRecord>
