import { cutTo } from "../../apis/conditions.ts"
import type { ConnectionStatus, ConnectionType, StoredConnection } from "../../apis/connection.ts"
import type { CredentialFields } from "../../apis/credentials.ts"
import type { ExternalAccount, VerifiedIdentity } from "../../cloud/account.ts"
import { CloudError, CredentialsError, InvalidRequestError } from "../../cloud/errors.ts"
import type { ReconcileContext } from "../../runtime/controller.ts"
import { scrubbedError } from "../../sealing/scrub.ts"
import { writeStatus } from "../writes.ts"
import type { Outcome } from "./gather.ts"
import { type ConnectionControllerOptions, connectionWriter } from "./options.ts"

/** Maximum characters of a provider's error. A condition's message has words of ours around it. */
const MESSAGE_CHARACTERS = 1024

/** Credentials to verify. */
export interface Verification {
  type: ConnectionType
  fields: CredentialFields
  /** Timeout, seconds. */
  seconds: number
  /** Aborted when no caller needs the outcome; its reason is thrown. */
  signal: AbortSignal
}

/** Asks the provider to which account the credentials belong. No part of the credentials is in the outcome. */
export async function verify(
  { type, fields, seconds, signal }: Verification,
  { openAccount, clock, logger }: Pick<ConnectionControllerOptions, "openAccount" | "clock" | "logger">,
): Promise<Outcome> {
  const timeout = new AbortController()
  const cancel = clock.setTimer(seconds, () => timeout.abort(new Error(`no answer within ${seconds} seconds`)))
  try {
    const account = openAccount(type, fields)
    if (account === undefined) return { is: "unsupported" }
    const { account: id, launch } = await ask(account, AbortSignal.any([signal, timeout.signal]))
    return { is: "verified", account: id, ...(launch !== undefined && { launch }) }
  } catch (error) {
    signal.throwIfAborted()
    const err = scrubbedError(error, fields)
    logger.debug({ err, type }, "credentials were not verified")
    return failureOf(err)
  } finally {
    cancel()
  }
}

/** Rejects as soon as the signal is aborted, even if a provider's SDK ignores it. */
async function ask(account: ExternalAccount, signal: AbortSignal): Promise<VerifiedIdentity> {
  const { promise, reject } = Promise.withResolvers<never>()
  const end = (): void => reject(signal.reason as Error)
  signal.throwIfAborted()
  signal.addEventListener("abort", end, { once: true })
  try {
    return await Promise.race([account.verify(signal), promise])
  } finally {
    signal.removeEventListener("abort", end)
  }
}

function failureOf(error: unknown): Outcome {
  const { message } = error instanceof Error ? error : new Error(String(error))
  const text = cutTo(error instanceof CloudError ? `${error.code}: ${message}` : message, MESSAGE_CHARACTERS)
  const isRejection = error instanceof CredentialsError || error instanceof InvalidRequestError
  return { is: isRejection ? "refused" : "unreachable", message: text }
}

/**
 * Seals the credentials of the version that was read under the primary key.
 * @param project id of the project that they are sealed for
 * @throws KubeError Conflict
 */
export async function reseal(
  connection: StoredConnection,
  project: string,
  options: ConnectionControllerOptions,
  context: ReconcileContext,
): Promise<void> {
  const { client, resource, store, fieldManager } = connectionWriter(options)
  const { namespace, name, resourceVersion } = connection.metadata
  const { sealedCredentials = "" } = connection.spec
  const sealed = await options.sealer.reseal(sealedCredentials, { project, name })
  const merge = { metadata: { resourceVersion }, spec: { sealedCredentials: sealed } }
  context.wrote(store, await client.patch(resource, { namespace, name }, { merge }, { fieldManager }))
  options.logger.info({ namespace, connection: name }, "sealed the credentials again under the primary key")
}

/** Fields that describe verified credentials. A merge patch removes a field only by null. */
const UNVERIFIED = { account: null, lastVerifiedTime: null, verifiedCredentials: null }

/** Writes the status, if the Connection is still the version that the decision was based on. @throws KubeError Conflict */
export function writeOwnStatus(
  connection: StoredConnection,
  status: ConnectionStatus,
  options: ConnectionControllerOptions,
  context: ReconcileContext,
): Promise<StoredConnection> {
  const whole = { ...UNVERIFIED, ...status } as ConnectionStatus
  return writeStatus(connection, whole, connectionWriter(options), context)
}
