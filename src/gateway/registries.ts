import type { RegistryAccess } from "../agent/protocol.ts"
import { type Clock, timestamp } from "../apis/clock.ts"
import type { StoredConnection } from "../apis/connection.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import { type ImageName, parseImage } from "../apis/image.ts"
import { fromMetadataName } from "../apis/names.ts"
import { scrubbed } from "../sealing/scrub.ts"
import { byAge, isTemporary } from "./candidates.ts"

/** What a run's image is to be pulled for. */
export interface PullRequest {
  /** The project's namespace. */
  namespace: string
  /** Name of the Launch, for the providers' own records. */
  launch: string
  image: string
}

/**
 * Finds what a run's image is pulled with. Where no connection of the project opens it, the answer says why, and the image
 * may be a public one; that answer ends at once where asking again may help. Rejects when Kubernetes can't be asked.
 */
export type PullCredentials = (request: PullRequest) => Promise<RegistryAccess>

/** What can be done with a connection of one type. */
export interface RegistryProvider {
  /** Whether images of the registry can be such an account's. */
  serves: (registry: string) => boolean
  /** Undefined: the account may not pull the image, or there is none. Rejects with the errors of the clouds. */
  access: (
    credentials: CredentialFields,
    scope: ImageName & { launch: string },
    signal: AbortSignal,
  ) => Promise<Omit<RegistryAccess, "registry" | "why"> | undefined>
}

export interface PullCredentialsOptions {
  /** The connections of a namespace. */
  connections: (namespace: string) => Promise<readonly StoredConnection[]>
  /** A connection's credentials, in clear. */
  credentials: (connection: StoredConnection) => Promise<CredentialFields>
  /** By type of connection; the others have no registries. */
  providers: Readonly<Record<string, RegistryProvider>>
  clock: Clock
}

/** For all that is asked of providers for one image, seconds. */
const CALL_SECONDS = 20

/** Opens images by the project's connections: the oldest one whose account may pull. */
export function connectedRegistries(options: PullCredentialsOptions): PullCredentials {
  return async ({ namespace, launch, image }) => {
    const scope = { ...parseImage(image), launch }
    const { registry } = scope
    const signal = AbortSignal.timeout(CALL_SECONDS * 1000)
    const refusals: Refusal[] = []
    for (const connection of byAge(await options.connections(namespace))) {
      const provider = options.providers[connection.spec.type]
      if (provider === undefined || !provider.serves(registry)) continue
      const opened = await accessBy(connection, { ...options, provider, scope }, signal)
      if (!("why" in opened)) return { registry, ...opened }
      refusals.push(opened)
    }
    const whys = refusals.map(({ why }) => why).join("; ") || "no connection of the project is for it"
    const answer = { registry, why: `registry ${registry}: ${whys}` }
    const isFinal = refusals.every((refusal) => refusal.isFinal)
    return isFinal ? answer : { ...answer, expiration: timestamp(options.clock.now()) }
  }
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
    const message = scrubbed(error instanceof Error ? error.message : String(error), credentials)
    // A provider that can't be asked now may be the very one.
    return { why: `connection ${name}: ${message}`, isFinal: !isTemporary(error) }
  }
}
