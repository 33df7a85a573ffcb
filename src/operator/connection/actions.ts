import type { Capabilities } from "../../clouds/account.ts"
import { unlessAborted } from "../../core/apis/abort.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import {
  CAPABILITIES,
  type ConnectionStatus,
  type ConnectionType,
  type StoredConnection,
} from "../../core/apis/connection.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import type { VmSettings } from "../../core/apis/vm-settings.ts"
import { AccountError, CloudError, CredentialsError, InvalidRequestError } from "../../core/outbound/errors.ts"
import { CONNECTIONS } from "../../core/resources.ts"
import type { ReconcileContext } from "../../core/runtime/controller.ts"
import { scrub, scrubError } from "../../core/sealing/scrub.ts"
import { type Writer, writeStatus } from "../writes.ts"
import type { ConnectionControllerDependencies } from "./dependencies.ts"
import type { Outcome } from "./gather.ts"

/** Owner of the fields that the connection controller writes. */
const FIELD_MANAGER = "berth-connection-controller"

/** Maximum characters of a provider's error. The condition's message has other text around it. */
const MESSAGE_CHARACTERS = 1024

/** Credentials to verify. */
export interface Verification {
  type: ConnectionType
  fields: CredentialFields
  /** Regions in which the connection created VMs. */
  regions: readonly string[]
  /** The connection's settings of VMs. */
  settings: VmSettings
  /** Timeout, seconds. */
  seconds: number
  /** Aborted when no caller needs the outcome; its reason is thrown. */
  signal: AbortSignal
}

/**
 * Asks the provider to which account the credentials belong, and what they can do there. No part of the credentials is in
 * the outcome.
 */
export async function verify(
  { type, fields, regions, settings, seconds, signal }: Verification,
  { openAccount, clock, logger }: Pick<ConnectionControllerDependencies, "openAccount" | "clock" | "logger">,
): Promise<Outcome> {
  const timeout = new AbortController()
  const unchecked = (error: unknown): undefined => {
    signal.throwIfAborted()
    logger.debug({ err: scrubError(error, fields), type }, "the uses of the account were not checked")
  }
  const cancel = clock.setTimer(seconds, () => timeout.abort(new Error(`no answer within ${seconds} seconds`)))
  try {
    const account = openAccount(type, fields)
    if (account === undefined) return { is: "unsupported" }
    const ended = AbortSignal.any([signal, timeout.signal])
    const { account: id } = await unlessAborted(account.verify(ended), ended)
    const check = account.capabilities?.({ regions, settings }, ended)
    const found = check && (await unlessAborted(check, ended).catch(unchecked))
    return {
      is: "verified",
      account: id,
      ...(found !== undefined && { capabilities: redactCapabilities(found, fields) }),
    }
  } catch (error) {
    signal.throwIfAborted()
    const err = scrubError(error, fields)
    logger.debug({ err, type }, "credentials were not verified")
    return failureOf(err)
  } finally {
    cancel()
  }
}

function redactCapabilities(capabilities: Capabilities, fields: CredentialFields): Capabilities {
  const entries = Object.entries(capabilities).map(([name, capability]) => [
    name,
    { ...capability, message: scrub(capability.message, fields) },
  ])
  return Object.fromEntries(entries) as Capabilities
}

function failureOf(error: unknown): Outcome {
  const { message } = error instanceof Error ? error : new Error(String(error))
  const text = cutTo(error instanceof CloudError ? `${error.code}: ${message}` : message, MESSAGE_CHARACTERS)
  const isRejection =
    error instanceof CredentialsError || error instanceof InvalidRequestError || error instanceof AccountError
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
  options: ConnectionControllerDependencies,
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
const UNVERIFIED = { account: null, lastVerifiedTime: null, verifiedCredentials: null, capabilities: null }

const UNCHECKED = Object.fromEntries(CAPABILITIES.map((name) => [name, null]))

/** Writes the status, if the Connection is still the version that the decision was based on. @throws KubeError Conflict */
export function writeOwnStatus(
  connection: StoredConnection,
  status: ConnectionStatus,
  options: ConnectionControllerDependencies,
  context: ReconcileContext,
): Promise<StoredConnection> {
  const found = Object.entries(status.capabilities ?? {}).map(([name, use]) => [name, { missing: null, ...use }])
  const capabilities = status.capabilities && { ...UNCHECKED, ...Object.fromEntries(found) }
  const whole = { ...UNVERIFIED, ...status, ...(capabilities && { capabilities }) } as ConnectionStatus
  return writeStatus(connection, whole, connectionWriter(options), context)
}

function connectionWriter({ client, connections }: ConnectionControllerDependencies): Writer<StoredConnection> {
  return { client, resource: CONNECTIONS, store: connections.store, fieldManager: FIELD_MANAGER }
}
