import { randomUUID } from "node:crypto"
import { CHECK_REQUEST, openCheck, type StoredConnection } from "../../../core/apis/connection.ts"
import type { CreationTimes } from "../../../core/apis/creation-times.ts"
import {
  type CredentialFields,
  credentialErrors,
  identityTokenErrors,
  isFederated,
  isWholeForm,
} from "../../../core/apis/credentials.ts"
import { ANNOTATIONS, keyOf } from "../../../core/apis/meta.ts"
import { fromMetadataName, toMetadataName } from "../../../core/apis/names.ts"
import { SealingKeysMissing } from "../../../core/identity/sealing-keys.ts"
import type { Store } from "../../../core/kube/store.ts"
import { openCredentials, type SealedCredentials, sealCredentials } from "../../../core/sealing/credentials.ts"
import type { Sealer, SealingContext } from "../../../core/sealing/envelope.ts"
import { SealingError } from "../../../core/sealing/keys.ts"
import { waitWithTimeout } from "../../caches.ts"
import type { Collection } from "../../collection.ts"
import type { Precondition } from "../../http/entity-tags.ts"
import { invalidRequest, Problem, unavailable } from "../../http/problem.ts"
import { keyReused, requestHash } from "../../idempotency.ts"
import type { ConnectionCheck } from "./schema.ts"
import {
  type ConnectionChange,
  type ConnectionCreation,
  changedSettings,
  errorsForConnection,
  toConnection,
  toConnectionCheck,
} from "./translate.ts"

/** Longest wait for a check. The operator gives up after 30 s, and pauses at most 10 s before it begins. */
export const CHECK_WAIT_SECONDS = 45

export interface ConnectionsOptions {
  collection: Collection<StoredConnection>
  /** Cache of the connections. */
  store: Store<StoredConnection>
  /** Longest wait for a check. */
  checkSeconds: number
  sealer: Sealer
  /** Id of the project, and the namespace of its objects. */
  project: { id: string; namespace: string }
  creationTimes: CreationTimes
  /** True if this installation issues identity tokens, which credentials without a secret need. */
  issuesTokens: boolean
}

/** Connections of one project with their credentials. Writes have the caller's rights. */
export class Connections {
  readonly #options: ConnectionsOptions

  constructor(options: ConnectionsOptions) {
    this.#options = options
  }

  all(): StoredConnection[] {
    return this.#options.collection.all()
  }

  /** @throws Problem 404 */
  find(idOrName: string): Promise<StoredConnection> {
    return this.#options.collection.find(idOrName)
  }

  /** @throws Problem 404, 412 */
  remove(idOrName: string, precondition?: Precondition): Promise<void> {
    return this.#options.collection.remove(idOrName, precondition)
  }

  /** Encrypts and creates. @throws Problem 409 name in use, 422 Idempotency-Key used with another body, 503 */
  async create(creation: ConnectionCreation, idempotencyKey?: string): Promise<StoredConnection> {
    const { collection, project, creationTimes } = this.#options
    const { name, type, fields } = creation
    this.#requireUsable(creation)
    // Every valid name has a metadata.name. Names like a UUID have none, but the schema has rejected them.
    const metadataName = toMetadataName(name) ?? name
    const hash = idempotencyKey === undefined ? undefined : requestHash(creation)
    const sealed = await this.#seal({ type, fields, requestHash: hash }, metadataName)
    const identity = { namespace: project.namespace, metadataName, createdAt: creationTimes.next(), idempotencyKey }
    const connection = toConnection(creation, sealed, identity) as StoredConnection
    if (idempotencyKey === undefined) return collection.create(connection, name)
    const accept = async (earlier: StoredConnection): Promise<StoredConnection> => {
      if ((await this.#open(earlier))?.requestHash === hash) return earlier
      throw keyReused(idempotencyKey)
    }
    return collection.create(connection, name, { key: idempotencyKey, accept })
  }

  /**
   * Changes settings of VMs. Changes credentials and encrypts them again. Equal values change nothing.
   * @throws Problem 404, 412, 400 for a field that can't be changed, 409 if the credentials are in a Secret or can't be
   * decrypted
   */
  change(idOrName: string, change: ConnectionChange, precondition?: Precondition): Promise<StoredConnection> {
    return this.#options.collection.change(idOrName, (present) => this.#changed(present, change), precondition)
  }

  /**
   * Asks the operator to check the connection with its provider now, and waits for the result. A request that is still
   * open is everyone's: so callers together ask a provider no more often than the operator allows.
   * @param signal ends the wait
   * @throws Problem 404
   */
  async check(idOrName: string, signal: AbortSignal): Promise<ConnectionCheck> {
    const { collection, store, checkSeconds } = this.#options
    const { metadata } = await collection.change(idOrName, (present) => {
      if (openCheck(present) !== undefined) return undefined
      const annotations = { ...present.metadata.annotations, [ANNOTATIONS.checkRequested]: randomUUID() }
      return { ...present, metadata: { ...present.metadata, annotations } }
    })
    const request = metadata.annotations?.[ANNOTATIONS.checkRequested]?.slice(0, CHECK_REQUEST) ?? ""
    const latest = (): StoredConnection | undefined => store.getByUid(metadata.uid)
    const isDone = (): boolean => latest()?.status?.lastCheck?.request === request
    await waitWithTimeout(checkSeconds * 1000, (timeout) =>
      store.waitUntil(isDone, AbortSignal.any([timeout, signal]), { key: keyOf({ metadata }) }),
    ).catch((error: unknown) => {
      if (!signal.aborted) throw error
    })
    return toConnectionCheck(latest() ?? (await collection.find(metadata.uid)), request)
  }

  async #changed(present: StoredConnection, change: ConnectionChange): Promise<StoredConnection | undefined> {
    const errors = errorsForConnection(present, change)
    if (errors.length > 0) throw invalidRequest(errors, "The change")
    const settings = changedSettings(present, change.settings)
    const { type, credentialsSecretRef, sealedCredentials: sealed } = present.spec
    const source = credentialsSecretRef === undefined ? { sealedCredentials: sealed } : { credentialsSecretRef }
    const kept = { ...present, spec: { type, ...source, ...settings } } as StoredConnection
    const unchanged = requestHash(kept.spec) === requestHash(present.spec) ? undefined : kept
    if (Object.keys(change.fields).length === 0) return unchanged
    if (credentialsSecretRef !== undefined) throw keptElsewhere(present.metadata.name, credentialsSecretRef.name)
    const isWhole = isWholeForm(type, change.fields)
    const known = await this.#openUnless(isWhole, present)
    const merged = { ...known?.fields, ...change.fields }
    // All fields of another form replace the present form.
    const fields = isWhole && credentialErrors(type, merged).length > 0 ? change.fields : merged
    if (isFederated(type, fields))
      this.#requireUsable({ type, fields }, ", together with the connection's other fields")
    if (known !== undefined && requestHash(fields) === requestHash(known.fields)) return unchanged
    const sealedCredentials = await this.#seal({ ...known, type, fields }, present.metadata.name)
    return { ...present, spec: { type, sealedCredentials, ...settings } }
  }

  /** @throws Problem 400 */
  #requireUsable({ type, fields }: Pick<ConnectionCreation, "type" | "fields">, where = ""): void {
    const errors = credentialErrors(type, fields)
    if (!this.#options.issuesTokens) errors.push(...identityTokenErrors(type, fields))
    if (errors.length === 0) return
    const explained = errors.map(({ pointer, detail }) => ({ pointer, detail: `${detail}${where}` }))
    throw invalidRequest(explained, "The connection")
  }

  /** Decrypts the credentials. If all of them are replaced, unreadable ones aren't errors. */
  async #openUnless(isReplaced: boolean, connection: StoredConnection): Promise<SealedCredentials | undefined> {
    try {
      return await this.#open(connection)
    } catch (error) {
      if (isReplaced && error instanceof Problem && error.status === 409) return undefined
      throw error
    }
  }

  /**
   * Returns the decrypted credentials. Undefined if a Secret has them, because REST does not show Secrets.
   * @throws Problem 409 if they can't be decrypted, 503 without the sealing keys
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
      throw explainError(error, metadata.name)
    }
  }

  async #seal(credentials: SealedCredentials, metadataName: string): Promise<string> {
    try {
      return await sealCredentials(this.#options.sealer, credentials, this.#contextOf(metadataName))
    } catch (error) {
      throw explainError(error, metadataName)
    }
  }

  #contextOf(name: string): SealingContext {
    return { project: this.#options.project.id, name }
  }
}

function explainError(error: unknown, metadataName: string): unknown {
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
