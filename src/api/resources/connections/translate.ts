import {
  type CloudIdentity,
  CONNECTION,
  CONNECTION_TYPES,
  type Connection,
  ConnectionReason,
  type ConnectionType,
  type StoredConnection,
} from "../../../core/apis/connection.ts"
import { creationTimeOf } from "../../../core/apis/creation-times.ts"
import {
  type CredentialFields,
  credentialErrors,
  credentialFieldsOf,
  formsOf,
  SECRET_FIELDS,
} from "../../../core/apis/credentials.ts"
import { ANNOTATIONS, API_VERSION } from "../../../core/apis/meta.ts"
import { fromMetadataName } from "../../../core/apis/names.ts"
import { withoutNulls } from "../../../core/apis/nulls.ts"
import { connectionFieldInRest } from "../../../core/apis/rest-names.ts"
import { type FieldError, findErrors } from "../../../core/apis/validate.ts"
import { toVmSettings, VM_SETTING_FIELDS, type VmSettings, vmSettingErrors } from "../../../core/apis/vm-settings.ts"
import { toConditionRecords } from "../../../core/records/conditions.ts"
import { inUtc } from "../../../core/records/job.ts"
import type { Owner } from "../../../core/records/owner.ts"
import { idempotencyMarks } from "../../idempotency-marks.ts"
import { OWNER } from "../../owner.ts"
import { repetitionErrors } from "../../repetition.ts"
import {
  CONTRACT_CREDENTIALS,
  ConnectionChangeSchema,
  type ConnectionCheck,
  ConnectionCreationSchema,
  type ConnectionRecord,
  type ConnectionRepetition,
  type ConnectionSummary,
  type IdentityRecord,
} from "./schema.ts"

/** Connection to create. */
export interface ConnectionCreation {
  name: string
  type: ConnectionType
  fields: CredentialFields
  /** Absent without any. */
  settings?: VmSettings
}

/** Change of a connection. The connection's type is only known after a read. */
export interface ConnectionChange {
  fields: CredentialFields
  /** Settings of VMs; null: removed. Absent: unchanged. */
  settings: SettingsChange
  repeated: ConnectionRepetition
}

type SettingsChange = { [Field in keyof VmSettings]?: VmSettings[Field] | null }

const NOT_CREDENTIALS = [
  "id",
  "name",
  "type",
  "created_at",
  "capabilities",
  "conditions",
  "identity",
  "project_id",
  "organization_id",
]

type Body = Readonly<Record<string, unknown>>

/** Checks the parsed body of POST /connections. */
export function checkConnection(value: unknown, owner: Owner): { body: ConnectionCreation } | { errors: FieldError[] } {
  const body = withoutNulls(ConnectionCreationSchema, value, "fields")
  const errors = findErrors(ConnectionCreationSchema, body)
  if (typeof body !== "object" || body === null) return { errors }
  const { name, type, ...rest } = body as Body
  errors.push(...(OWNER.errors?.(rest, owner) ?? []))
  const fields = credentialsIn(rest)
  const settings = settingsIn(rest)
  if (isConnectionType(type)) {
    errors.push(...newErrors(errors, [...errorsOfCredentials(type, fields), ...errorsOfSettings(type, settings)]))
  }
  if (errors.length > 0) return { errors }
  const isSet = Object.keys(settings).length > 0
  return { body: { name, type, fields, ...(isSet && { settings }) } as ConnectionCreation }
}

/** Checks the parsed body of PATCH /connections/{name} as far as possible without the connection. */
export function checkConnectionChange(
  value: unknown,
  owner: Owner,
): { body: ConnectionChange } | { errors: FieldError[] } {
  const body = withoutNulls(ConnectionChangeSchema, value, "fields")
  const errors = findErrors(ConnectionChangeSchema, body)
  if (typeof body !== "object" || body === null) return { errors }
  errors.push(...(OWNER.errors?.(body as Body, owner) ?? []))
  if (errors.length > 0) return { errors }
  // Null means a redacted credential, but a setting to remove.
  const removed = Object.entries(settingsIn(value as Body)).filter(([, setting]) => setting === null)
  const settings = { ...settingsIn(body as Body), ...Object.fromEntries(removed) } as SettingsChange
  return { body: { fields: credentialsIn(body as Body) as CredentialFields, settings, repeated: body } }
}

/** Returns the errors of a change that depend on the connection. */
export function errorsForConnection(
  connection: StoredConnection,
  { fields, settings, repeated }: ConnectionChange,
): FieldError[] {
  const { id, name, type, created_at } = toConnectionSummary(connection)
  const unlike = repetitionErrors("connection", repeated, { id, name, type, created_at })
  // A change may omit fields, so only the errors of its own fields count.
  const credentials = errorsOfCredentials(type, fields).filter(({ pointer }) => Object.hasOwn(fields, pointer.slice(1)))
  const isUnchanged = Object.keys(settings).length === 0
  return [
    ...unlike,
    ...credentials,
    ...(isUnchanged ? [] : errorsOfSettings(type, changedSettings(connection, settings))),
  ]
}

/** Returns the settings of a connection after a change. */
export function changedSettings({ spec }: StoredConnection, change: SettingsChange): VmSettings {
  const all = { ...toVmSettings(spec), ...change }
  return Object.fromEntries(Object.entries(all).filter(([, setting]) => setting !== null))
}

/** Names in REST of the settings of VMs. */
const SETTINGS_IN_REST = VM_SETTING_FIELDS.map(connectionFieldInRest)

/** Returns the settings of VMs in a body, by their names in the Connection. */
function settingsIn(body: Body): Body {
  return Object.fromEntries(
    VM_SETTING_FIELDS.flatMap((field) => {
      const name = connectionFieldInRest(field)
      return Object.hasOwn(body, name) ? [[field, body[name]]] : []
    }),
  )
}

/** Returns every error of the settings of a connection, in the words of REST. */
function errorsOfSettings(type: ConnectionType, settings: Body): FieldError[] {
  return vmSettingErrors(type, settings).map(({ pointer, detail }) => {
    const [, field = "", ...inner] = pointer.split("/")
    const name = connectionFieldInRest(field)
    return { pointer: ["", name, ...inner].join("/"), detail: detail.replace(field, name) }
  })
}

function isConnectionType(type: unknown): type is ConnectionType {
  return CONNECTION_TYPES.some((known) => known === type)
}

/** Returns the credential fields of any type. */
function credentialsIn(body: Body): Body {
  const others: readonly string[] = [...NOT_CREDENTIALS, ...SETTINGS_IN_REST]
  return Object.fromEntries(Object.entries(body).filter(([field]) => !others.includes(field)))
}

/** Returns the errors of credential fields, also of those of another type. */
function errorsOfCredentials(type: ConnectionType, fields: Body): FieldError[] {
  const own = credentialFieldsOf(type)
  const foreign = Object.keys(fields).filter((field) => !own.includes(field) && isCredential(field))
  const kind = `type ${type}, which has the fields ${own.join(", ")}`
  const known = Object.fromEntries(Object.entries(fields).filter(([field]) => own.includes(field)))
  return [
    ...foreign.map((field) => ({ pointer: `/${field}`, detail: `${field} is not a field of a connection of ${kind}` })),
    ...credentialErrors(type, known).map((error) => withType(error, kind)),
  ]
}

/** True for a field of any type. The body's schema rejects all other fields. */
function isCredential(field: string): boolean {
  return Object.hasOwn(ConnectionCreationSchema.properties, field)
}

function withType(error: FieldError, kind: string): FieldError {
  return error.detail.endsWith(" is required")
    ? { ...error, detail: `${error.detail} for a connection of ${kind}` }
    : error
}

/** Returns the errors that are not known yet. */
function newErrors(known: readonly FieldError[], errors: readonly FieldError[]): FieldError[] {
  return errors.filter(({ pointer, detail }) => !known.some((one) => one.pointer === pointer && one.detail === detail))
}

/** Metadata of a Connection to create. */
export interface ConnectionIdentity {
  namespace: string
  metadataName: string
  /** RFC 3339 with microseconds. */
  createdAt: string
  idempotencyKey?: string | undefined
}

/** Returns the Connection to create with these sealed credentials. */
export function toConnection(
  { type, settings = {} }: Pick<ConnectionCreation, "type" | "settings">,
  sealedCredentials: string,
  identity: ConnectionIdentity,
): Connection {
  const { namespace, metadataName, createdAt, idempotencyKey } = identity
  const { labels, annotations } = idempotencyMarks(idempotencyKey === undefined ? undefined : { key: idempotencyKey })
  return {
    apiVersion: API_VERSION,
    kind: CONNECTION.kind,
    metadata: {
      name: metadataName,
      namespace,
      labels,
      annotations: { [ANNOTATIONS.createdAt]: createdAt, ...annotations },
    },
    spec: { type, sealedCredentials, ...settings },
  }
}

/** Returns the record of a Connection in the plain list. */
export function toConnectionSummary(connection: StoredConnection): ConnectionSummary {
  const { metadata, spec } = connection
  return {
    id: metadata.uid,
    name: fromMetadataName(metadata.name),
    type: spec.type,
    created_at: creationTimeOf(connection),
  }
}

/** Returns the record of a Connection for an admin, with the visible credential fields, and null for the others. */
export function toConnectionRecord(connection: StoredConnection, visible: CredentialFields = {}): ConnectionRecord {
  const { type } = connection.spec
  const others = credentialFieldsOf(type).filter((field) => Object.hasOwn(visible, field))
  // The other forms' fields are an extension: a record of the contract's form is as the contract has it.
  const fields = [...new Set([...CONTRACT_CREDENTIALS, ...Object.keys(formsOf(type)[0].properties), ...others])]
  const credentials = Object.fromEntries(fields.map((field) => [field, visible[field] ?? null]))
  const { capabilities, identity } = connection.status ?? {}
  return {
    ...toConnectionSummary(connection),
    ...credentials,
    ...settingFields(connection.spec),
    ...(capabilities && { capabilities }),
    ...toConditionRecords(connection),
    ...(identity && { identity: identityRecordOf(identity) }),
  }
}

function settingFields(spec: StoredConnection["spec"]): Body {
  return Object.fromEntries(
    Object.entries(toVmSettings(spec)).map(([field, setting]) => [connectionFieldInRest(field), setting]),
  )
}

function identityRecordOf({ externalId: external_id, ...identity }: CloudIdentity): IdentityRecord {
  return { ...identity, external_id }
}

/** Returns the record of a Connection for others than admins, without any fact about the account. */
export function toRestrictedRecord(connection: StoredConnection): ConnectionRecord {
  const { capabilities = {}, conditions, identity: _, ...shown } = toConnectionRecord(connection)
  const record = Object.fromEntries(Object.entries(shown).filter(([field]) => !SETTINGS_IN_REST.includes(field)))
  const entries = Object.entries(capabilities).map(([name, { status, reason }]) => [name, { status, reason }])
  return {
    ...record,
    ...(entries.length > 0 && { capabilities: Object.fromEntries(entries) }),
    ...(conditions && { conditions: conditions.map(({ message: _message, ...rest }) => rest) }),
  } as ConnectionRecord
}

/** Results by the reason of a check. Any other reason is about credentials that can't be used. */
const RESULTS: Readonly<Record<string, ConnectionCheck["result"]>> = {
  [ConnectionReason.Verified]: "passed",
  [ConnectionReason.CredentialsRefused]: "refused",
  [ConnectionReason.ProviderUnreachable]: "unreachable",
}

/** Returns the result of a check. @param request that asked for it */
export function toConnectionCheck({ metadata, status = {} }: StoredConnection, request: string): ConnectionCheck {
  const name = fromMetadataName(metadata.name)
  const { lastCheck, capabilities = {} } = status
  if (lastCheck?.request !== request) {
    const message = "the check is not finished; it continues, and the connection shows its result"
    return {
      name,
      result: "unfinished",
      reason: null,
      message,
      checked_at: null,
      missing_permissions: [],
      capabilities: {},
    }
  }
  const { reason, message, time } = lastCheck
  const result = RESULTS[reason] ?? "unusable"
  if (result !== "passed")
    return { name, result, reason, message, checked_at: inUtc(time), missing_permissions: [], capabilities: {} }
  const uses = Object.values(capabilities)
  const checked = {
    ...{ name, result, reason, message },
    checked_at: inUtc(time),
    missing_permissions: [...new Set(uses.flatMap(({ missing }) => missing ?? []))],
    capabilities,
  }
  if (uses.some((use) => use.status === "False")) return { ...checked, result: "incomplete" }
  // Other uses say for themselves what was not answered. Without this one, no job gets a VM.
  const { vms } = capabilities
  if (vms?.reason !== ConnectionReason.Unanswered) return checked
  const why = `${message}, but the provider did not answer whether they may start VMs: ${vms.message}`
  return { ...checked, result: "unreachable", reason: vms.reason, message: why }
}

/** Removes the fields that give access to the account. */
export function withoutSecrets(fields: CredentialFields): CredentialFields {
  return Object.fromEntries(Object.entries(fields).filter(([field]) => !SECRET_FIELDS.includes(field)))
}
