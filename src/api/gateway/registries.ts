import { type Clock, timestamp } from "../../core/apis/clock.ts"
import type { StoredConnection } from "../../core/apis/connection.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { type ImageName, parseImage } from "../../core/apis/image.ts"
import { fromMetadataName } from "../../core/apis/names.ts"
import type { RegistryAccess } from "../../core/protocol/protocol.ts"
import { scrub } from "../../core/sealing/scrub.ts"
import { byAge, type ConnectionsReader, isTemporary } from "./candidates.ts"

/** Request for the credentials to pull a run's image. */
export interface PullRequest {
  /** Namespace of the project. */
  namespace: string
  /** Name of the Launch, for the providers' own records. */
  launch: string
  image: string
  /** True for the first request of a Launch, which cached connections may answer. */
  isFirst: boolean
}

/**
 * Finds the credentials to pull a run's image. If no connection of the project has access, the answer says why, and the
 * image may be public. That answer expires at once if a retry may help. Rejects if the Kubernetes API is unavailable.
 */
export type PullCredentials = (request: PullRequest) => Promise<RegistryAccess>

/** Operations on registries with a connection of one type. */
export interface RegistryProvider {
  /** Returns true if such an account can have images in the registry. */
  serves: (registry: string) => boolean
  /**
   * Returns undefined if the account may not pull the image, or there is no such image. Rejects with the errors of the
   * clouds.
   */
  access: (
    credentials: CredentialFields,
    scope: ImageName & { launch: string },
    signal: AbortSignal,
  ) => Promise<Omit<RegistryAccess, "registry" | "why"> | undefined>
}

export interface PullCredentialsOptions {
  connections: ConnectionsReader
  /** Returns a connection's credentials, decrypted. */
  credentials: (connection: StoredConnection) => Promise<CredentialFields>
  /** Providers by type of connection. Other types have no registries. */
  providers: Readonly<Record<string, RegistryProvider>>
  clock: Clock
}

/** Timeout for all calls to providers for one image, seconds. */
const CALL_SECONDS = 20

/**
 * Opens images with the project's connections: the oldest one whose account may pull. The cache may lack a connection
 * that was created a moment ago. So if no cached one may pull, the answer expires at once: an agent whose pull is
 * rejected asks again, and the connections are read live.
 */
export function connectedRegistries(options: PullCredentialsOptions): PullCredentials {
  return async ({ namespace, launch, image, isFirst }) => {
    const scope = { ...parseImage(image), launch }
    const { registry } = scope
    const signal = AbortSignal.timeout(CALL_SECONDS * 1000)
    const refusals: Refusal[] = []
    const cached = isFirst ? options.connections.cached(namespace) : undefined
    const connections = cached ?? (await options.connections.live(namespace))
    for (const { connection, provider } of servedBy(registry, connections, options.providers)) {
      const opened = await accessBy(connection, { ...options, provider, scope }, signal)
      if (!("why" in opened)) return { registry, ...opened }
      refusals.push(opened)
    }
    const whys = refusals.map(({ why }) => why).join("; ") || "no connection of the project is for it"
    const answer = { registry, why: `registry ${registry}: ${whys}` }
    const isFinal = cached === undefined && refusals.every((refusal) => refusal.isFinal)
    return isFinal ? answer : { ...answer, expiration: timestamp(options.clock.now()) }
  }
}

/** Returns the connections for the registry with their providers, the oldest first. */
function servedBy(
  registry: string,
  connections: readonly StoredConnection[],
  providers: PullCredentialsOptions["providers"],
) {
  return byAge(connections).flatMap((connection) => {
    const provider = providers[connection.spec.type]
    return provider?.serves(registry) ? [{ connection, provider }] : []
  })
}

type Access = NonNullable<Awaited<ReturnType<RegistryProvider["access"]>>>

interface Refusal {
  why: string
  isFinal: boolean
}

interface Asked extends PullCredentialsOptions {
  provider: RegistryProvider
  scope: ImageName & { launch: string }
}

async function accessBy(
  connection: StoredConnection,
  { provider, scope, ...options }: Asked,
  signal: AbortSignal,
): Promise<Access | Refusal> {
  const name = fromMetadataName(connection.metadata.name)
  let credentials: CredentialFields = {}
  try {
    credentials = await options.credentials(connection)
    const refused = { why: `connection ${name} may not pull it, or there is no such image`, isFinal: true }
    return (await provider.access(credentials, scope, signal)) ?? refused
  } catch (error) {
    const message = scrub(error instanceof Error ? error.message : String(error), credentials)
    // If a provider can't answer now, its connection may be the right one.
    return { why: `connection ${name}: ${message}`, isFinal: !isTemporary(error) }
  }
}
