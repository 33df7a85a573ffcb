import { createHash } from "node:crypto"
import { findCondition } from "../core/apis/conditions.ts"
import { type CloudIdentity, ConnectionReason, type StoredConnection } from "../core/apis/connection.ts"
import {
  audienceOf,
  type CredentialFields,
  credentialErrors,
  type Federation,
  identityTokenErrors,
  isFederated,
} from "../core/apis/credentials.ts"
import { isMetadataName } from "../core/apis/names.ts"
import type { StoredProject } from "../core/apis/project.ts"
import { projectScope } from "../core/identity/projects.ts"
import { SealingKeysMissing } from "../core/identity/sealing-keys.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { SECRETS, type Secret } from "../core/kube/core.ts"
import { ifFound, KubeError } from "../core/kube/errors.ts"
import type { Store } from "../core/kube/store.ts"
import { IndexedStore } from "../core/kube/store.ts"
import { CredentialsError, TransientError } from "../core/outbound/errors.ts"
import { openCredentials } from "../core/sealing/credentials.ts"
import type { Sealer } from "../core/sealing/envelope.ts"
import { parseCredentialId } from "../core/sealing/envelope.ts"
import { SealingError, type SealingErrorReason } from "../core/sealing/keys.ts"
import { CREDENTIALS_SECRET_TYPE } from "./caches.ts"

/** Sources of the credentials of a connection. */
export interface CredentialSources {
  /** Has the options CREDENTIALS_SECRET_CACHE. */
  secrets: { store: Store<Secret> }
  projects: { store: Store<StoredProject> }
  sealer: Sealer
  /** Issuer of identity tokens, which credentials without a secret need. Absent: this installation issues none. */
  identityIssuer?: string | undefined
}

/** A connection's credentials, in clear. */
export interface FoundCredentials {
  fields: CredentialFields
  /** Changes with the credentials, and reveals no part of them. */
  version: string
  /** Id of the project that they are sealed for. */
  project: string
  /** Identity that the cloud must trust. Absent: the credentials are enough. */
  identity?: CloudIdentity
}

/** Credentials that are missing or invalid. Only a change of an object, which requeues the connection, can help. */
export class CredentialsUnusable extends Error {
  override readonly name = "CredentialsUnusable"
  readonly reason: ConnectionReason

  constructor(reason: ConnectionReason, message: string) {
    super(message)
    this.reason = reason
  }
}

/**
 * Returns the credentials of a connection, sealed in it or from the Secret that it names, after validation.
 * @throws CredentialsUnusable; SealingKeysMissing or KubeError if the sealing keys can't be read
 */
export async function readCredentials(
  connection: StoredConnection,
  sources: CredentialSources,
): Promise<FoundCredentials> {
  const { namespace = "" } = connection.metadata
  const found = projectIn(namespace, sources)
  if (found === undefined) {
    const message = `namespace ${namespace} belongs to no Project, so its connections can't be used`
    throw new CredentialsUnusable(ConnectionReason.NoProject, message)
  }
  const project = found.metadata.name
  const version = credentialsVersion(connection, sources)
  if (version === undefined) throw secretMissing(connection)
  const fields = await fieldsOf(connection, project, sources)
  const { type } = connection.spec
  const errors = credentialErrors(type, fields)
  if (errors.length === 0 && sources.identityIssuer === undefined) errors.push(...identityTokenErrors(type, fields))
  if (errors.length === 0) {
    if (!isFederated(type, fields)) return { fields, version, project }
    const federation = createFederation(found, connection.metadata.name)
    const identity = identityOf(federation, audienceOf(type, fields), sources.identityIssuer)
    return { fields: { ...fields, ...federation }, version, project, identity }
  }
  throw new CredentialsUnusable(ConnectionReason.InvalidCredentials, errors.map(({ detail }) => detail).join("; "))
}

function identityOf(
  { identity_subject: subject, external_id: externalId }: Federation,
  audience: string | undefined,
  issuer: string | undefined,
): CloudIdentity {
  return { ...(audience !== undefined && issuer !== undefined && { issuer, audience }), subject, externalId }
}

/** Google accepts at most 127 bytes (https://cloud.google.com/iam/docs/workload-identity-federation). */
const MOST_SUBJECT = 127
const EXTERNAL_ID_CHARACTERS = 16

/**
 * Returns the identity of a connection for clouds. The external id depends on the project's uid: a later project of the
 * same name can't use what trusted this one. Pure.
 */
export function createFederation({ metadata }: Pick<StoredProject, "metadata">, connection: string): Federation {
  const hash = createHash("sha256").update(`${metadata.uid}/${connection}`).digest("hex")
  const external_id = hash.slice(0, EXTERNAL_ID_CHARACTERS)
  const most = Math.floor((MOST_SUBJECT - EXTERNAL_ID_CHARACTERS - 2) / 2)
  const names = `${metadata.name}:${connection}`
  const isLong = names.length + 1 + EXTERNAL_ID_CHARACTERS > MOST_SUBJECT
  const shown = isLong ? `${metadata.name.slice(0, most)}:${connection.slice(0, most)}` : names
  return { identity_subject: `${shown}:${external_id}`, external_id }
}

async function fieldsOf(
  connection: StoredConnection,
  project: string,
  sources: CredentialSources,
): Promise<CredentialFields> {
  const { type, sealedCredentials } = connection.spec
  if (sealedCredentials === undefined) return fieldsIn(secretOf(connection, sources) ?? {})
  const context = { project, name: connection.metadata.name }
  try {
    return (await openCredentials(sources.sealer, { type, sealedCredentials }, context)).fields
  } catch (error) {
    throw error instanceof SealingError ? unusable(error) : error
  }
}

const CONDITION_REASONS: Record<SealingErrorReason, ConnectionReason> = {
  malformed: ConnectionReason.InvalidCredentials,
  unknownVersion: ConnectionReason.InvalidCredentials,
  unknownKey: ConnectionReason.UnknownKey,
  tampered: ConnectionReason.Tampered,
}

function unusable({ reason, message }: SealingError): CredentialsUnusable {
  const advice = "send the credentials again"
  return new CredentialsUnusable(CONDITION_REASONS[reason], `sealedCredentials can't be opened: ${message}; ${advice}`)
}

/** Returns the version of a connection's current credentials. Undefined if the Secret that it names is missing. */
export function credentialsVersion(
  connection: StoredConnection,
  sources: Pick<CredentialSources, "secrets">,
): string | undefined {
  const { sealedCredentials } = connection.spec
  if (sealedCredentials !== undefined) return sealedVersion(sealedCredentials)
  const secret = secretOf(connection, sources)
  return secret && `secret/${secret.metadata.uid}/${secret.metadata.resourceVersion}`
}

/** The version stays the same under another sealing key. A malformed text has a version that is never verified. */
function sealedVersion(sealedCredentials: string): string {
  try {
    return `sealed/${parseCredentialId(sealedCredentials)}`
  } catch {
    return "unreadable"
  }
}

/** Returns the Secret that a connection names. The cache has no other type, and a Connection can't name a namespace. */
function secretOf({ metadata, spec }: StoredConnection, { secrets }: Pick<CredentialSources, "secrets">) {
  const { credentialsSecretRef } = spec
  if (credentialsSecretRef === undefined) return undefined
  return secrets.store.get({ namespace: metadata.namespace, name: credentialsSecretRef.name })
}

function secretMissing({ spec }: StoredConnection): CredentialsUnusable {
  const name = spec.credentialsSecretRef?.name ?? ""
  const message = `there is no Secret ${name} of type berth.dev/connection in this namespace: create it`
  return new CredentialsUnusable(ConnectionReason.SecretNotFound, message)
}

function fieldsIn({ data = {} }: Pick<Secret, "data">): CredentialFields {
  return Object.fromEntries(Object.entries(data).map(([field, value]) => [field, decodeText(field, value)]))
}

function decodeText(field: string, base64: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(base64, "base64"))
  } catch {
    throw new CredentialsUnusable(ConnectionReason.InvalidCredentials, `${field} is not UTF-8 text`)
  }
}

/** Returns the id of the namespace's project. */
export function projectOf(namespace: string, sources: Pick<CredentialSources, "projects">): string | undefined {
  return projectIn(namespace, sources)?.metadata.name
}

function projectIn(namespace: string, { projects }: Pick<CredentialSources, "projects">): StoredProject | undefined {
  return projects.store.list().find((project) => projectScope(project)?.namespace === namespace)
}

/** Returns true if the current credentials are the verified ones. Without `sources`, a Secret's version isn't compared. */
export function isVerified(connection: StoredConnection, sources?: Pick<CredentialSources, "secrets">): boolean {
  const { metadata, spec, status } = connection
  const ready = findCondition(status?.conditions, "Ready")
  if (ready?.status !== "True" || metadata.deletionTimestamp !== undefined) return false
  if (spec.sealedCredentials !== undefined) return status?.verifiedCredentials === sealedVersion(spec.sealedCredentials)
  if (ready.observedGeneration !== metadata.generation) return false
  return sources === undefined || status?.verifiedCredentials === credentialsVersion(connection, sources)
}

/** Reads a connection's credentials in clear. @throws CloudError with the cause, without a part of the credentials */
export type ReadCredentials = (connection: StoredConnection) => Promise<CredentialFields>

/** Reads credentials from caches, which have the Secrets of connections. */
export function cachedCredentials(sources: CredentialSources): ReadCredentials {
  return (connection) => explainSealing(async () => (await readCredentials(connection, sources)).fields)
}

/**
 * Reads credentials without a cache of Secrets: it gets the Secret that the connection names, by this program's own right.
 * A Secret of another type counts as missing.
 */
export function liveCredentials(
  client: Pick<KubeClient, "get">,
  sources: Omit<CredentialSources, "secrets">,
): ReadCredentials {
  return (connection) =>
    explainSealing(async () => {
      const store = new IndexedStore<Secret>()
      const secret = await liveSecretOf(client, connection)
      if (secret?.type === CREDENTIALS_SECRET_TYPE) store.put(secret)
      return (await readCredentials(connection, { ...sources, secrets: { store } })).fields
    })
}

async function liveSecretOf(
  client: Pick<KubeClient, "get">,
  { metadata, spec }: StoredConnection,
): Promise<Secret | undefined> {
  const name = spec.credentialsSecretRef?.name
  if (name === undefined || !isMetadataName(name)) return undefined
  return ifFound(client.get(SECRETS, { namespace: metadata.namespace, name }))
}

async function explainSealing(read: () => Promise<CredentialFields>): Promise<CredentialFields> {
  try {
    return await read()
  } catch (error) {
    if (error instanceof CredentialsUnusable) throw new CredentialsError(error.reason, error.message, { cause: error })
    if (error instanceof SealingKeysMissing || error instanceof KubeError)
      throw new TransientError("CredentialsNotRead", "the credentials could not be read; retry later", {
        cause: error,
      })
    throw error
  }
}
