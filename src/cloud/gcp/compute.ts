import type {
  FirewallsClient,
  GlobalOperationsClient,
  InstancesClient,
  ProjectsClient,
  RegionsClient,
  ZoneOperationsClient,
} from "@google-cloud/compute"
import type { JWT } from "google-auth-library"
import type { protobuf } from "google-gax"
import type { CredentialFields } from "../../apis/credentials.ts"
import { type Fetch, guardedFetch } from "../guarded-fetch.ts"
import { callError, type Effect, tokenError } from "./errors.ts"
import { type Key, keyOf } from "./google.ts"

/** The parts of Compute Engine's API that are used. */
export interface Clients {
  instances: InstancesClient
  zoneOperations: ZoneOperationsClient
  globalOperations: GlobalOperationsClient
  regions: RegionsClient
  firewalls: FirewallsClient
  projects: ProjectsClient
}

export interface ComputeOptions {
  /** What sends requests, whose hosts were checked. Default: Node.js' own fetch. */
  send?: Fetch
  /** Seconds that one call may take. Default 60. */
  callSeconds?: number
}

/** What the SDK is told of a call. */
export interface CallOptions {
  timeout: number
  /** The controllers try again themselves, and know what that means. */
  retry: { retryCodes: number[] }
}

const SCOPE = "https://www.googleapis.com/auth/compute"
const CALL_SECONDS = 60
const HOSTS = ["compute.googleapis.com", "oauth2.googleapis.com"]

/** One project's Compute Engine, called with one service account's key and with nothing else. */
export class Compute {
  readonly project: string
  readonly #key: Key
  readonly #options: ComputeOptions
  #clients: Promise<{ clients: Clients; auth: JWT }> | undefined

  /** Calls no host. @throws CredentialsError when the key file is none */
  constructor(credentials: CredentialFields, options: ComputeOptions) {
    this.project = credentials["gcp_project_id"] ?? ""
    this.#key = keyOf(credentials)
    this.#options = options
  }

  /**
   * Makes one call. @param fence called right before it is sent; what it throws is passed on
   * @throws CloudError by what its failure means, for a call with such an effect
   */
  async call<T>(
    effect: Effect,
    make: (clients: Clients, options: CallOptions) => Promise<T>,
    fence: () => void = () => undefined,
  ): Promise<T> {
    const { clients, auth } = await this.#load()
    // Apart from the call, as a token that can't be had says that the call was not made.
    await auth.getAccessToken().catch((error: unknown) => {
      throw tokenError(error)
    })
    fence()
    try {
      const timeout = (this.#options.callSeconds ?? CALL_SECONDS) * 1000
      return await make(clients, { timeout, retry: { retryCodes: [] } })
    } catch (error) {
      throw callError(error, effect)
    }
  }

  #load(): Promise<{ clients: Clients; auth: JWT }> {
    this.#clients ??= load(this.project, this.#key, this.#options)
    return this.#clients
  }
}

/**
 * The SDK as a whole takes seconds and 200 MB to load. So its clients are loaded one by one, when the first account is
 * opened: an installation without Google Cloud never pays for it.
 */
async function load(projectId: string, key: Key, { send }: ComputeOptions): Promise<{ clients: Clients; auth: JWT }> {
  const [{ JWT }, gax, instances, zoneOperations, globalOperations, regions, firewalls, projects] = await Promise.all([
    import("google-auth-library"),
    restTransport(),
    import("@google-cloud/compute/build/src/v1/instances_client.js"),
    import("@google-cloud/compute/build/src/v1/zone_operations_client.js"),
    import("@google-cloud/compute/build/src/v1/global_operations_client.js"),
    import("@google-cloud/compute/build/src/v1/regions_client.js"),
    import("@google-cloud/compute/build/src/v1/firewalls_client.js"),
    import("@google-cloud/compute/build/src/v1/projects_client.js"),
  ])
  // An explicit client: without one the SDK would find the operator's own credentials. It asks Google's own token
  // endpoint, whatever address a key file names.
  const isOwn = (host: string) => HOSTS.includes(host)
  const fetchImplementation = guardedFetch({ isOwn, signal: new AbortController().signal, send })
  const auth = new JWT({ ...key, scopes: [SCOPE], transporterOptions: { fetchImplementation } })
  const options = { fallback: true, projectId, authClient: auth } as const
  const clients: Clients = {
    instances: new instances.InstancesClient(options, gax),
    zoneOperations: new zoneOperations.ZoneOperationsClient(options, gax),
    globalOperations: new globalOperations.GlobalOperationsClient(options, gax),
    regions: new regions.RegionsClient(options, gax),
    firewalls: new firewalls.FirewallsClient(options, gax),
    projects: new projects.ProjectsClient(options, gax),
  }
  return { clients, auth }
}

/** API descriptions that were parsed, by the JSON that they were parsed from. */
const parsed = new WeakMap<object, protobuf.Root>()

/**
 * The SDK's own transport over HTTP/JSON, with one change: its memory of the descriptions that it has parsed looks them up
 * by a hash of all their 5 MB, for each client anew, which held up everything else for half a second an account.
 */
async function restTransport() {
  const { default: gax } = await import("google-gax/fallback")
  class GrpcClient extends gax.GrpcClient {
    override loadProtoJSON(json: object) {
      const root = parsed.get(json) ?? gax.protobuf.Root.fromJSON(json)
      parsed.set(json, root)
      return root
    }
  }
  return { ...gax, GrpcClient, fallback: { ...gax, GrpcClient } }
}
