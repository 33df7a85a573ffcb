import type { StoredConnection } from "../../apis/connection.ts"
import type { CreationTimes } from "../../apis/creation-times.ts"
import { type CredentialFields, credentialFieldsOf } from "../../apis/credentials.ts"
import { fromMetadataName, toMetadataName } from "../../apis/names.ts"
import type { Precondition } from "../../http/entity-tags.ts"
import { invalidRequest, Problem, unavailable } from "../../http/problem.ts"
import { SealingKeysMissing } from "../../identity/sealing-keys.ts"
import { openCredentials, type SealedCredentials, sealCredentials } from "../../sealing/credentials.ts"
import type { Sealer, SealingContext } from "../../sealing/envelope.ts"
import { SealingError } from "../../sealing/keys.ts"
import type { Collection } from "../collection.ts"
import { keyReused, requestHash } from "../idempotency.ts"
import { type ConnectionChange, type ConnectionCreation, connectionOf, faultsForConnection } from "./translate.ts"

export interface ConnectionsOptions {
  collection: Collection<StoredConnection>
  sealer: Sealer
  /** Id of the project, and where its objects live. */
  project: { id: string; namespace: string }
  creationTimes: CreationTimes
}

/** The Connections of one project and the credentials in them, on a caller's behalf. */
export class Connections {
  readonly #options: ConnectionsOptions

  constructor(options: ConnectionsOptions) {
    this.#options = options
  }

  all(): StoredConnection[] {
    return this.#options.collection.all()
  }

  /** By id or name. @throws Problem 404 */
  find(idOrName: string): Promise<StoredConnection> {
    return this.#options.collection.find(idOrName)
  }

  /** @throws Problem 404, 412 */
  remove(idOrName: string, precondition?: Precondition): Promise<void> {
    return this.#options.collection.remove(idOrName, precondition)
  }

  /** Seals and creates. @throws Problem 409 name taken, 422 Idempotency-Key used for another body, 503 */
  async create(creation: ConnectionCreation, idempotencyKey?: string): Promise<StoredConnection> {
    const { collection, project, creationTimes } = this.#options
    const { name, type, fields } = creation
    // Every name that the contract allows has one, but for those like a UUID, which were refused.
    const metadataName = toMetadataName(name) ?? name
    const hash = idempotencyKey === undefined ? undefined : requestHash(creation)
    const sealed = await this.#seal({ type, fields, requestHash: hash }, metadataName)
    const identity = { namespace: project.namespace, metadataName, createdAt: creationTimes.next(), idempotencyKey }
    const connection = connectionOf(type, sealed, identity) as StoredConnection
    if (idempotencyKey === undefined) return collection.create(connection, name)
    const accept = async (earlier: StoredConnection): Promise<StoredConnection> => {
      if ((await this.#open(earlier))?.requestHash === hash) return earlier
      throw keyReused(idempotencyKey)
    }
    return collection.create(connection, name, { key: idempotencyKey, accept })
  }

  /**
   * Changes credentials, sealed anew; those that are the same already change nothing.
   * @throws Problem 404, 412, 400 what can't be changed, 409 when the credentials are a Secret's or can't be opened
   */
  change(idOrName: string, change: ConnectionChange, precondition?: Precondition): Promise<StoredConnection> {
    return this.#options.collection.change(idOrName, (present) => this.#changed(present, change), precondition)
  }

  async #changed(present: StoredConnection, change: ConnectionChange): Promise<StoredConnection | undefined> {
    const faults = faultsForConnection(present, change)
    if (faults.length > 0) throw invalidRequest(faults, "The change")
    if (Object.keys(change.fields).length === 0) return undefined
    const { type, credentialsSecretRef } = present.spec
    if (credentialsSecretRef !== undefined) throw keptElsewhere(present.metadata.name, credentialsSecretRef.name)
    const isWhole = credentialFieldsOf(type).every((field) => Object.hasOwn(change.fields, field))
    const known = await this.#openUnless(isWhole, present)
    const fields = { ...known?.fields, ...change.fields }
    if (known !== undefined && requestHash(fields) === requestHash(known.fields)) return undefined
    const sealedCredentials = await this.#seal({ ...known, type, fields }, present.metadata.name)
    return { ...present, spec: { type, sealedCredentials } }
  }

  /** What can't be opened is no obstacle where all of it is replaced. */
  async #openUnless(isReplaced: boolean, connection: StoredConnection): Promise<SealedCredentials | undefined> {
    try {
      return await this.#open(connection)
    } catch (error) {
      if (isReplaced && error instanceof Problem && error.status === 409) return undefined
      throw error
    }
  }

  /**
   * The credentials in clear; undefined when a Secret has them, which REST does not show.
   * @throws Problem 409 when they can't be opened, 503 without the keys
   */
  async credentialsOf(connection: StoredConnection): Promise<CredentialFields | undefined> {
    return (await this.#open(connection))?.fields
  }

  async #open({ metadata, spec }: StoredConnection): Promise<SealedCredentials | undefined> {
    const { type, sealedCredentials } = spec
    if (sealedCredentials === undefined) return undefined
    try {
      return await openCredentials(this.#options.sealer, { type, sealedCredentials }, this.#contextOf(metadata.name))
    } catch (error) {
      throw explained(error, metadata.name)
    }
  }

  async #seal(credentials: SealedCredentials, metadataName: string): Promise<string> {
    try {
      return await sealCredentials(this.#options.sealer, credentials, this.#contextOf(metadataName))
    } catch (error) {
      throw explained(error, metadataName)
    }
  }

  #contextOf(name: string): SealingContext {
    return { project: this.#options.project.id, name }
  }
}

function explained(error: unknown, metadataName: string): unknown {
  if (error instanceof SealingKeysMissing)
    return unavailable("Credentials cannot be encrypted or decrypted yet: try again.", 5, error)
  if (!(error instanceof SealingError)) return error
  const name = fromMetadataName(metadataName)
  const detail = `The credentials of the connection ${name} cannot be decrypted: ${error.message}. Send all of them by PATCH, or delete the connection.`
  return new Problem({ type: "credentials-unreadable", status: 409, detail, cause: error })
}

function keptElsewhere(metadataName: string, secret: string): Problem {
  const detail = `The credentials of the connection ${fromMetadataName(metadataName)} are in the Secret ${secret}: change them there.`
  return new Problem({ type: "credentials-in-secret", status: 409, detail })
}
