import { CREDENTIALS_SECRET_TYPE } from "../../accounts/caches.ts"
import { CredentialsUnusable, type FoundCredentials, readCredentials } from "../../accounts/credentials.ts"
import type { Capabilities } from "../../clouds/account.ts"
import { ConnectionReason, type StoredConnection } from "../../core/apis/connection.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { isMetadataName } from "../../core/apis/names.ts"
import type { VmSettings } from "../../core/apis/vm-settings.ts"
import { SECRETS } from "../../core/kube/core.ts"
import { collectionPath } from "../../core/kube/resource.ts"
import { limitForExisting } from "../../core/quota/project-limits.ts"
import type { Cooldown } from "../../market/router/cooldown.ts"
import { connectionCooldown } from "./cooldown.ts"
import type { ConnectionControllerDependencies } from "./dependencies.ts"
import type { PriceState } from "./prices.ts"

/** Outcome of a verification. No message contains a part of the credentials. */
export type Outcome =
  | { is: "verified"; account: string; capabilities?: Capabilities }
  | { is: "refused"; message: string }
  | { is: "unreachable"; message: string }
  /** This version has no such provider. */
  | { is: "unsupported" }

/** The last verification by this process. */
export interface Attempt {
  /** Version of the credentials. */
  version: string
  /** Settings of VMs that were checked. */
  settings: VmSettings
  time: Date
  outcome: Outcome
  /** Number of such outcomes in a row, including this one. */
  count: number
  /** The last rejection of a launch that was known at the time (RFC 3339). */
  refusedTime?: string
  /** Request of a user that it answers. */
  request?: string
}

/** Facts that a decision on a Connection is based on, besides the object. */
export interface ConnectionObservation {
  credentials: FoundCredentials | CredentialsUnusable
  /** True if they are sealed under a former key. */
  isOutdated: boolean
  /** Absent until this process has verified these credentials. */
  attempt?: Attempt
  /** Time of a cloud's last rejection of a launch because of the credentials (RFC 3339). */
  refusedTime?: string
  /** Regions of the connection's Launches, as far as their records exist. */
  regions: readonly string[]
  /** The widest cooldown of the connection; absent if there is none. */
  cooldown?: Cooldown
  /** States of the prices of its cloud. Absent if Berth reads none. */
  prices?: readonly PriceState[]
}

/** Reads all facts that a decision on this Connection needs. @throws KubeError; SealingKeysMissing */
export async function gather(
  connection: StoredConnection,
  options: ConnectionControllerDependencies,
  lastAttempt: Attempt | undefined,
): Promise<ConnectionObservation> {
  const credentials = await findCredentials(connection, options)
  const { sealedCredentials } = connection.spec
  const isReadable = sealedCredentials !== undefined && !(credentials instanceof CredentialsUnusable)
  const isOutdated = isReadable && (await options.sealer.isOutdated(sealedCredentials))
  const isOfThese = !(credentials instanceof CredentialsUnusable) && lastAttempt?.version === credentials.version
  const launches = launchesOf(connection, options)
  const refusedTime = lastRefusal(launches)
  const version = credentials instanceof CredentialsUnusable ? undefined : credentials.version
  const cooldown = connectionCooldown(connection, launches, version, options.clock.now())
  return {
    credentials,
    isOutdated,
    ...(isOfThese && { attempt: lastAttempt }),
    ...defined({ refusedTime, cooldown }),
    ...(options.prices && { prices: options.prices.statesFor(connection) }),
    regions: [...new Set(launches.map(({ spec }) => spec.offer.region))],
  }
}

async function findCredentials(
  connection: StoredConnection,
  options: ConnectionControllerDependencies,
): Promise<FoundCredentials | CredentialsUnusable> {
  const limit = limitForExisting(options.quota, "connections", connection, options.connections.store)
  if (limit !== undefined) return new CredentialsUnusable(ConnectionReason.ProjectLimit, limit.message)
  try {
    return await readCredentials(connection, options)
  } catch (error) {
    if (!(error instanceof CredentialsUnusable)) throw error
    return error.reason === ConnectionReason.SecretNotFound ? await wrongTypeOr(error, connection, options) : error
  }
}

/** Returns the error for a Secret of another type, found by its metadata alone. Its content is never read. */
async function wrongTypeOr(
  missing: CredentialsUnusable,
  { metadata, spec }: StoredConnection,
  { client }: ConnectionControllerDependencies,
): Promise<CredentialsUnusable> {
  const name = spec.credentialsSecretRef?.name ?? ""
  if (!isMetadataName(name)) return missing
  const { items } = await client.request<{ items: unknown[] | null }>({
    method: "GET",
    path: collectionPath(SECRETS, metadata.namespace),
    query: { fieldSelector: `metadata.name=${name},type!=${CREDENTIALS_SECRET_TYPE}` },
    accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
  })
  // Go writes a list without items as null.
  if (items === null || items.length === 0) return missing
  const advice = "a Secret's type can't be changed, so delete it and create it with that type"
  const message = `the Secret ${name} is not of type ${CREDENTIALS_SECRET_TYPE}, so it is not read: ${advice}`
  return new CredentialsUnusable(ConnectionReason.WrongSecretType, message)
}

function launchesOf(
  { metadata, spec }: StoredConnection,
  { launches }: ConnectionControllerDependencies,
): StoredLaunch[] {
  const isOwn = ({ connection, job, offer }: StoredLaunch["spec"]) =>
    connection === metadata.name && job.namespace === metadata.namespace && offer.cloud === spec.type
  return launches.store.list().filter((launch) => isOwn(launch.spec))
}

function lastRefusal(launches: readonly StoredLaunch[]): string | undefined {
  return launches
    .filter(isCredentialsRefusal)
    .flatMap(({ status }) => status?.refusal?.time ?? [])
    .toSorted()
    .at(-1)
}

/** Returns true if the cloud rejected the Launch because of the credentials. */
function isCredentialsRefusal({ status }: Pick<StoredLaunch, "status">): boolean {
  return status?.refusal?.class === "Credentials"
}
