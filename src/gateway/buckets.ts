import type { BucketAccess, Buckets } from "../agent/protocol.ts"
import type { StoredConnection } from "../apis/connection.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import type { Volume } from "../apis/job.ts"
import { fromMetadataName } from "../apis/names.ts"
import { scrubbed, scrubbedError } from "../sealing/scrub.ts"
import { byAge, isTemporary } from "./candidates.ts"

/** What a run's buckets are opened for. */
export interface BucketsRequest {
  /** The project's namespace. */
  namespace: string
  /** Name of the Launch, for the providers' own records. */
  launch: string
  /** How long its VM lives at most. */
  lifetimeSeconds: number
  volumes: Readonly<Record<string, Volume>>
}

/**
 * Opens a run's buckets: access for each volume, by its name, scoped and short-lived where the provider can. Rejects
 * with BucketAccessError when that can't be, whoever tries again.
 */
export type BucketCredentials = (request: BucketsRequest) => Promise<Buckets>

/** A volume's bucket can't be opened; the message says which, why and what to do, never a credential. */
export class BucketAccessError extends Error {
  override readonly name = "BucketAccessError"
}

/** A bucket, and what of it a volume needs. */
export interface BucketScope {
  bucket: string
  /** A folder without slashes at its ends; empty: the whole bucket. */
  prefix: string
  /** Name of the Launch. */
  launch: string
  lifetimeSeconds: number
}

/** What can be done with a connection of one type. Both reject with the errors of the clouds. */
export interface BucketProvider {
  /** Whether the bucket can be read, and where it is; undefined: there is none, or no access. */
  find: (credentials: CredentialFields, bucket: string, signal: AbortSignal) => Promise<{ region?: string } | undefined>
  access: (
    credentials: CredentialFields,
    scope: BucketScope & { region?: string },
    signal: AbortSignal,
  ) => Promise<BucketAccess>
}

export interface BucketCredentialsOptions {
  /** The connections of a namespace. */
  connections: (namespace: string) => Promise<readonly StoredConnection[]>
  /** A connection's credentials, in clear. */
  credentials: (connection: StoredConnection) => Promise<CredentialFields>
  /** By type of connection; the others have no buckets. */
  providers: Readonly<Record<string, BucketProvider>>
}

/** For all that is asked of providers for one run, seconds. */
const CALL_SECONDS = 20

/** Opens buckets by the project's connections: the one that a volume names, else the oldest that reaches the bucket. */
export function connectedBuckets(options: BucketCredentialsOptions): BucketCredentials {
  return async ({ namespace, launch, lifetimeSeconds, volumes }) => {
    const signal = AbortSignal.timeout(CALL_SECONDS * 1000)
    const connections = byAge(await options.connections(namespace)).filter(({ spec }) => spec.type in options.providers)
    const opened = Object.entries(volumes).map(async ([name, volume]): Promise<[string, BucketAccess]> => {
      const prefix = (volume.prefix ?? "").replace(/^\/+|\/+$/g, "")
      const scope = { bucket: volume.bucket, prefix, launch, lifetimeSeconds }
      const candidates = connections.filter(({ metadata }) => (volume.connection ?? metadata.name) === metadata.name)
      return [name, await firstAccess(name, { ...options, candidates, scope, named: volume.connection }, signal)]
    })
    return Object.fromEntries(await Promise.all(opened))
  }
}

interface Search extends BucketCredentialsOptions {
  candidates: readonly StoredConnection[]
  scope: BucketScope
  /** The connection that the volume names. */
  named: string | undefined
}

async function firstAccess(name: string, search: Search, signal: AbortSignal): Promise<BucketAccess> {
  const { candidates, scope, named, providers } = search
  const failures: string[] = []
  for (const connection of candidates) {
    const provider = providers[connection.spec.type]
    if (provider === undefined) continue
    let credentials: CredentialFields = {}
    try {
      credentials = await search.credentials(connection)
      const found = await provider.find(credentials, scope.bucket, signal)
      if (found !== undefined) return await provider.access(credentials, { ...scope, ...found }, signal)
      failures.push(`${shownName(connection)} has no access`)
    } catch (error) {
      // A provider that can't be asked now may be the very one.
      if (isTemporary(error)) throw scrubbedError(error, credentials)
      const message = scrubbed(error instanceof Error ? error.message : String(error), credentials)
      failures.push(`${shownName(connection)}: ${message}`)
    }
  }
  const what =
    named === undefined
      ? "no connection of the project opens it"
      : `connection ${fromMetadataName(named)} does not open it`
  const why = failures.length === 0 ? "there is no such connection" : failures.join("; ")
  throw new BucketAccessError(`volume ${name}: bucket ${scope.bucket}: ${what} (${why})`)
}

/** As the operator's texts about buckets have it. */
function shownName({ metadata }: StoredConnection): string {
  return fromMetadataName(metadata.name)
}
