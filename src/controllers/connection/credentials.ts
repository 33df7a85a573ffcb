import { findCondition } from "../../apis/conditions.ts"
import { ConnectionReason, type StoredConnection } from "../../apis/connection.ts"
import { type CredentialFields, credentialFaults } from "../../apis/credentials.ts"
import { scopeOf } from "../../identity/projects.ts"
import type { Secret } from "../../kube/core.ts"
import { openCredentials } from "../../sealing/credentials.ts"
import { credentialIdOf } from "../../sealing/envelope.ts"
import { SealingError, type SealingFault } from "../../sealing/keys.ts"
import type { CredentialSources } from "./dependencies.ts"

/** A connection's credentials, in clear. */
export interface FoundCredentials {
  fields: CredentialFields
  /** Another one for other credentials; tells nothing of them. */
  version: string
  /** Id of the project that they are sealed for. */
  project: string
}

/** A connection's credentials can't be had as things are; whatever changes that, another object changes with it. */
export class CredentialsUnusable extends Error {
  override readonly name = "CredentialsUnusable"
  readonly reason: ConnectionReason

  constructor(reason: ConnectionReason, message: string) {
    super(message)
    this.reason = reason
  }
}

/**
 * The credentials of a connection, from what is sealed in it or from the Secret that it names, checked.
 * @throws CredentialsUnusable; what the keeper of the sealing keys throws when it can't be asked
 */
export async function credentialsOf(
  connection: StoredConnection,
  sources: CredentialSources,
): Promise<FoundCredentials> {
  const { namespace = "" } = connection.metadata
  const project = projectOf(namespace, sources)
  if (project === undefined) {
    const message = `namespace ${namespace} belongs to no Project, so nobody can use its connections`
    throw new CredentialsUnusable(ConnectionReason.NoProject, message)
  }
  const version = versionOf(connection, sources)
  if (version === undefined) throw secretMissing(connection)
  const fields = await fieldsOf(connection, project, sources)
  const faults = credentialFaults(connection.spec.type, fields)
  if (faults.length === 0) return { fields, version, project }
  throw new CredentialsUnusable(ConnectionReason.InvalidCredentials, faults.map(({ detail }) => detail).join("; "))
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

const REASON_OF_FAULT: Record<SealingFault, ConnectionReason> = {
  malformed: ConnectionReason.InvalidCredentials,
  unknownVersion: ConnectionReason.InvalidCredentials,
  unknownKey: ConnectionReason.UnknownKey,
  tampered: ConnectionReason.Tampered,
}

function unusable({ fault, message }: SealingError): CredentialsUnusable {
  const advice = "send the credentials anew"
  return new CredentialsUnusable(REASON_OF_FAULT[fault], `sealedCredentials can't be opened: ${message}; ${advice}`)
}

/** Which credentials a connection has at this moment; undefined when the Secret that it names is not there. */
export function versionOf(
  connection: StoredConnection,
  sources: Pick<CredentialSources, "secrets">,
): string | undefined {
  const { sealedCredentials } = connection.spec
  if (sealedCredentials !== undefined) return sealedVersion(sealedCredentials)
  const secret = secretOf(connection, sources)
  return secret && `secret/${secret.metadata.uid}/${secret.metadata.resourceVersion}`
}

/** Sealed under another key they are the same credentials. What is no sealed text is of no version that was ever verified. */
function sealedVersion(sealedCredentials: string): string {
  try {
    return `sealed/${credentialIdOf(sealedCredentials)}`
  } catch {
    return "unreadable"
  }
}

/** The Secret that a connection names. The cache has none of another type, and a Connection can't name a namespace. */
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
  return Object.fromEntries(Object.entries(data).map(([field, value]) => [field, textOf(field, value)]))
}

function textOf(field: string, base64: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.from(base64, "base64"))
  } catch {
    throw new CredentialsUnusable(ConnectionReason.InvalidCredentials, `${field} is not UTF-8 text`)
  }
}

/** Id of the project whose namespace it is. */
export function projectOf(namespace: string, { projects }: Pick<CredentialSources, "projects">): string | undefined {
  return projects.store.list().find((project) => scopeOf(project)?.namespace === namespace)?.metadata.name
}

/** Whether a connection's present credentials are the ones that were seen to work. `sources`: where Secrets are known. */
export function isVerified(connection: StoredConnection, sources?: Pick<CredentialSources, "secrets">): boolean {
  const { metadata, spec, status } = connection
  const ready = findCondition(status?.conditions, "Ready")
  if (ready?.status !== "True" || metadata.deletionTimestamp !== undefined) return false
  if (spec.sealedCredentials !== undefined) return status?.verifiedCredentials === sealedVersion(spec.sealedCredentials)
  if (ready.observedGeneration !== metadata.generation) return false
  return sources === undefined || status?.verifiedCredentials === versionOf(connection, sources)
}
