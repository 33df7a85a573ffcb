import {
  CONNECTION,
  CONNECTION_TYPES,
  type Connection,
  type ConnectionType,
  type StoredConnection,
} from "../../apis/connection.ts"
import { type CredentialFields, credentialFaults, credentialFieldsOf, SECRET_FIELDS } from "../../apis/credentials.ts"
import { ANNOTATIONS, API_VERSION } from "../../apis/meta.ts"
import { fromMetadataName } from "../../apis/names.ts"
import { withoutNulls } from "../../apis/nulls.ts"
import { type Fault, faultsOf } from "../../apis/validate.ts"
import { OWNER, type Owner } from "../owner.ts"
import {
  CONTRACT_CREDENTIALS,
  ConnectionChangeSchema,
  ConnectionCreationSchema,
  type ConnectionRecord,
  type ConnectionRepetition,
  type ConnectionSummary,
} from "./schema.ts"

/** A connection to be made. */
export interface ConnectionCreation {
  name: string
  type: ConnectionType
  fields: CredentialFields
}

/** What is to be changed of a connection, whose type is only known when it is read. */
export interface ConnectionChange {
  fields: CredentialFields
  repeated: ConnectionRepetition
}

const NOT_CREDENTIALS = ["id", "name", "type", "created_at", "project_id", "organization_id"]

type Body = Readonly<Record<string, unknown>>

/** Checks the parsed body of POST /connections. */
export function checkConnection(value: unknown, owner: Owner): { body: ConnectionCreation } | { faults: Fault[] } {
  const body = withoutNulls(ConnectionCreationSchema, value, "fields")
  const faults = faultsOf(ConnectionCreationSchema, body)
  if (typeof body !== "object" || body === null) return { faults }
  const { name, type, ...rest } = body as Body
  faults.push(...(OWNER.faults?.(rest, owner) ?? []))
  const fields = credentialsIn(rest)
  if (isConnectionType(type)) faults.push(...newFaults(faults, faultsOfCredentials(type, fields)))
  if (faults.length > 0) return { faults }
  return { body: { name, type, fields } as ConnectionCreation }
}

/** Checks the parsed body of PATCH /connections/{name}, as far as that can be done without the connection. */
export function checkConnectionChange(value: unknown, owner: Owner): { body: ConnectionChange } | { faults: Fault[] } {
  const body = withoutNulls(ConnectionChangeSchema, value, "fields")
  const faults = faultsOf(ConnectionChangeSchema, body)
  if (typeof body !== "object" || body === null) return { faults }
  faults.push(...(OWNER.faults?.(body as Body, owner) ?? []))
  if (faults.length > 0) return { faults }
  return { body: { fields: credentialsIn(body as Body) as CredentialFields, repeated: body } }
}

/** What is wrong with a change for this very connection. */
export function faultsForConnection(connection: StoredConnection, { fields, repeated }: ConnectionChange): Fault[] {
  const present = connectionSummaryOf(connection)
  const { type } = present
  const unlike = (["id", "name", "type", "created_at"] as const).flatMap((field) => {
    if (repeated[field] === undefined || repeated[field] === present[field]) return []
    const detail = `${field} cannot be changed: it is ${JSON.stringify(present[field])}; delete the connection and create another`
    return [{ pointer: `/${field}`, detail }]
  })
  // A change of some fields is no fault for the others that it leaves as they are.
  const credentials = faultsOfCredentials(type, fields).filter(({ pointer }) => Object.hasOwn(fields, pointer.slice(1)))
  return [...unlike, ...credentials]
}

function isConnectionType(type: unknown): type is ConnectionType {
  return CONNECTION_TYPES.some((known) => known === type)
}

/** Fields of credentials, of whatever type. */
function credentialsIn(body: Body): Body {
  return Object.fromEntries(Object.entries(body).filter(([field]) => !NOT_CREDENTIALS.includes(field)))
}

/** In the words of a body, whose fields may be another type's. */
function faultsOfCredentials(type: ConnectionType, fields: Body): Fault[] {
  const own = credentialFieldsOf(type)
  const foreign = Object.keys(fields).filter((field) => !own.includes(field) && isCredential(field))
  const kind = `type ${type}, which has the fields ${own.join(", ")}`
  const known = Object.fromEntries(Object.entries(fields).filter(([field]) => own.includes(field)))
  return [
    ...foreign.map((field) => ({ pointer: `/${field}`, detail: `${field} is not a field of a connection of ${kind}` })),
    ...credentialFaults(type, known).map((fault) => withType(fault, kind)),
  ]
}

/** Others are no fields of anything, which the body's own schema says. */
function isCredential(field: string): boolean {
  return Object.hasOwn(ConnectionCreationSchema.properties, field)
}

function withType(fault: Fault, kind: string): Fault {
  return fault.detail.endsWith(" is required")
    ? { ...fault, detail: `${fault.detail} for a connection of ${kind}` }
    : fault
}

/** The faults that are not among the known ones already. */
function newFaults(known: readonly Fault[], faults: readonly Fault[]): Fault[] {
  return faults.filter(({ pointer, detail }) => !known.some((one) => one.pointer === pointer && one.detail === detail))
}

/** What makes a Connection out of checked and sealed credentials. */
export interface ConnectionIdentity {
  namespace: string
  metadataName: string
  /** RFC 3339 with microseconds. */
  createdAt: string
  idempotencyKey?: string | undefined
}

/** The Connection with these sealed credentials. */
export function connectionOf(
  type: ConnectionType,
  sealedCredentials: string,
  identity: ConnectionIdentity,
): Connection {
  const { namespace, metadataName, createdAt, idempotencyKey } = identity
  return {
    apiVersion: API_VERSION,
    kind: CONNECTION.kind,
    metadata: {
      name: metadataName,
      namespace,
      annotations: {
        [ANNOTATIONS.createdAt]: createdAt,
        ...(idempotencyKey !== undefined && { [ANNOTATIONS.idempotencyKey]: idempotencyKey }),
      },
    },
    spec: { type, sealedCredentials },
  }
}

/** A Connection in the plain list. */
export function connectionSummaryOf({ metadata, spec }: StoredConnection): ConnectionSummary {
  return {
    id: metadata.uid,
    name: fromMetadataName(metadata.name),
    type: spec.type,
    created_at: metadata.creationTimestamp,
  }
}

/** A Connection as the REST API shows it, with those of its credentials that may be seen, and null for the others. */
export function connectionRecordOf(connection: StoredConnection, visible: CredentialFields = {}): ConnectionRecord {
  const fields = [...new Set([...CONTRACT_CREDENTIALS, ...credentialFieldsOf(connection.spec.type)])]
  const credentials = Object.fromEntries(fields.map((field) => [field, visible[field] ?? null]))
  return { ...connectionSummaryOf(connection), ...credentials }
}

/** Without what opens the account. */
export function withoutSecrets(fields: CredentialFields): CredentialFields {
  return Object.fromEntries(Object.entries(fields).filter(([field]) => !SECRET_FIELDS.includes(field)))
}
