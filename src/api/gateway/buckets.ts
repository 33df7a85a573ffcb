import type { StoredConnection } from "../../core/apis/connection.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import type { Volume } from "../../core/apis/job.ts"
import { fromMetadataName } from "../../core/apis/names.ts"
import type { BucketAccess, Buckets } from "../../core/protocol/protocol.ts"
import { scrub, scrubError } from "../../core/sealing/scrub.ts"
import { byAge, type ConnectionsReader, isTemporary } from "./candidates.ts"

/** Request for access to a run's buckets. */
export interface BucketsRequest {
  /** Namespace of the project. */
  namespace: string
  /** Name of the Launch, for the providers' own records. */
  launch: string
  /** Maximum lifetime of the VM. */
  lifetimeSeconds: number
  volumes: Readonly<Record<string, Volume>>
}

/**
 * Opens a run's buckets: access for each volume, by its name. The access is scoped and short-lived if the provider
 * supports it. Rejects with BucketAccessError if a retry would not help.
 */
export type BucketCredentials = (request: BucketsRequest) => Promise<Buckets>

/** A volume's bucket can't be opened. The message has the bucket, the reason and the remedy, and never a credential. */
export class BucketAccessError extends Error {
  override readonly name = "BucketAccessError"
}

/** Bucket, and the part of it that a volume needs. */
export interface BucketScope {
  bucket: string
  /** Folder without slashes at its ends; empty: the whole bucket. */
  prefix: string
  launch: string
  lifetimeSeconds: number
  /** True for access that can't write, if the provider supports it. */
  readOnly?: boolean | undefined
}

/** Operations on buckets with a connection of one type. Both reject with the errors of the clouds. */
export interface BucketProvider {
  /** Returns the bucket's location if the bucket can be read; undefined if there is no such bucket, or no access. */
  find: (credentials: CredentialFields, bucket: string, signal: AbortSignal) => Promise<{ region?: string } | undefined>
  access: (
    credentials: CredentialFields,
    scope: BucketScope & { region?: string },
    signal: AbortSignal,
  ) => Promise<BucketAccess>
}

export interface BucketCredentialsOptions {
  connections: ConnectionsReader
  /** Returns a connection's credentials, decrypted. */
  credentials: (connection: StoredConnection) => Promise<CredentialFields>
  /** Providers by type of connection. Other types have no buckets. */
  providers: Readonly<Record<string, BucketProvider>>
}

/** Timeout for all calls to providers for one run, seconds. */
const CALL_SECONDS = 20

/**
 * Opens buckets with the project's connections: the one that a volume names, or else the oldest with access. If the cached
 * connections don't open them, the connections are read live: one may have been created a moment ago.
 */
export function connectedBuckets(options: BucketCredentialsOptions): BucketCredentials {
  return async (request) => {
    const { cached, live } = options.connections
    const known = cached(request.namespace)
    if (known !== undefined) {
      try {
        return await openAll(request, known, options)
      } catch (error) {
        if (!(error instanceof BucketAccessError)) throw error
      }
    }
    return await openAll(request, await live(request.namespace), options)
  }
}

async function openAll(
  { launch, lifetimeSeconds, volumes }: BucketsRequest,
  all: readonly StoredConnection[],
  options: BucketCredentialsOptions,
): Promise<Buckets> {
  const signal = AbortSignal.timeout(CALL_SECONDS * 1000)
  const connections = byAge(all).filter(({ spec }) => spec.type in options.providers)
  const opened = Object.entries(volumes).map(async ([name, volume]): Promise<[string, BucketAccess]> => {
    const prefix = (volume.prefix ?? "").replace(/^\/+|\/+$/g, "")
    const scope = { bucket: volume.bucket, prefix, launch, lifetimeSeconds, readOnly: volume.readOnly }
    const candidates = connections.filter(({ metadata }) => (volume.connection ?? metadata.name) === metadata.name)
    return [name, await firstAccess(name, { ...options, candidates, scope, named: volume.connection }, signal)]
  })
  return Object.fromEntries(await Promise.all(opened))
}

interface Search extends BucketCredentialsOptions {
  candidates: readonly StoredConnection[]
  scope: BucketScope
  /** Connection that the volume names. */
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
      // If a provider can't answer now, its connection may be the right one.
      if (isTemporary(error)) throw scrubError(error, credentials)
      const message = scrub(error instanceof Error ? error.message : String(error), credentials)
      failures.push(`${shownName(connection)}: ${message}`)
    }
  }
  const what =
    named === undefined
      ? "no connection of the project opens it"
      : `connection ${fromMetadataName(named)} does not open it`
  const why = failures.length === 0 ? "there is no such connection" : failures.join("; ")
  throw new BucketAccessError(
    `volume ${name}: bucket ${scope.bucket}: ${what} (${why}); correct the bucket or give a connection access to it`,
  )
}

/** Returns the name in the form that the operator's messages about buckets use. */
function shownName({ metadata }: StoredConnection): string {
  return fromMetadataName(metadata.name)
}
