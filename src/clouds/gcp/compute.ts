import type {
  FirewallsClient,
  GlobalOperationsClient,
  InstancesClient,
  ProjectsClient,
  RegionsClient,
  ZoneOperationsClient,
} from "@google-cloud/compute"
import type { OAuth2Client } from "google-auth-library"
import type { protobuf } from "google-gax"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { type Fetch, guardedFetch } from "../../core/outbound/guarded-fetch.ts"
import type { IdentityTokens } from "../identity-tokens.ts"
import { selectServices } from "./description.ts"
import { callError, type Effect, tokenError } from "./errors.ts"
import { authClient, parseKey } from "./google.ts"

export interface Clients {
  instances: InstancesClient
  zoneOperations: ZoneOperationsClient
  globalOperations: GlobalOperationsClient
  regions: RegionsClient
  firewalls: FirewallsClient
  projects: ProjectsClient
}

export interface ComputeOptions {
  /** Sends the requests, whose hosts are checked before. Default: Node.js' own fetch. */
  send?: Fetch
  /** Timeout of one call, seconds. Default 60. */
  callSeconds?: number
  /** Absent: only service accounts with a key file. */
  tokens?: IdentityTokens
}

/** Options of each SDK call. */
export interface CallOptions {
  timeout: number
  /** No retries by the SDK: the controllers retry, and handle the consequences. */
  retry: { retryCodes: number[] }
}

const SCOPE = "https://www.googleapis.com/auth/compute"
const CALL_SECONDS = 60
const HOSTS = ["compute.googleapis.com", "oauth2.googleapis.com", "sts.googleapis.com", "iamcredentials.googleapis.com"]

/** One project's Compute Engine, called only as one service account. */
export class Compute {
  readonly project: string
  readonly #credentials: CredentialFields
  readonly #options: ComputeOptions
  #clients: Promise<{ clients: Clients; auth: OAuth2Client }> | undefined

  /** Makes no calls. @throws CredentialsError if the key file is malformed */
  constructor(credentials: CredentialFields, options: ComputeOptions) {
    this.project = credentials["gcp_project_id"] ?? ""
    if (credentials["workload_identity_provider"] === undefined) parseKey(credentials)
    this.#credentials = credentials
    this.#options = options
  }

  /**
   * Makes one call. @param fence called right before it is sent; its error is passed on
   * @throws CloudError, classified by the call's effect
   */
  async call<T>(
    effect: Effect,
    make: (clients: Clients, options: CallOptions) => Promise<T>,
    fence: () => void = () => undefined,
  ): Promise<T> {
    const { clients, auth } = await this.#load()
    // Separate from the call: an error to get a token proves that the call was not made.
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

  #load(): Promise<{ clients: Clients; auth: OAuth2Client }> {
    this.#clients ??= load(this.project, this.#credentials, this.#options)
    return this.#clients
  }
}

/**
 * Loads the SDK's clients one by one, when the first account is opened. The whole SDK takes seconds and 200 MB, which
 * an installation without Google Cloud must not pay.
 */
async function load(
  projectId: string,
  credentials: CredentialFields,
  { send, tokens }: ComputeOptions,
): Promise<{ clients: Clients; auth: OAuth2Client }> {
  const [
    gax,
    { default: instances },
    { default: zoneOperations },
    { default: globalOperations },
    { default: regions },
    { default: firewalls },
    { default: projects },
  ] = await Promise.all([
    restTransport(),
    import("@google-cloud/compute/build/src/v1/instances_client.js"),
    import("@google-cloud/compute/build/src/v1/zone_operations_client.js"),
    import("@google-cloud/compute/build/src/v1/global_operations_client.js"),
    import("@google-cloud/compute/build/src/v1/regions_client.js"),
    import("@google-cloud/compute/build/src/v1/firewalls_client.js"),
    import("@google-cloud/compute/build/src/v1/projects_client.js"),
  ])
  // An explicit client: without one the SDK would find the operator's own credentials. It calls Google's own token
  // endpoint, whatever address a key file names.
  const isOwn = (host: string) => HOSTS.includes(host)
  const fetchImplementation = guardedFetch({ isOwn, signal: new AbortController().signal, send })
  const auth = await authClient(credentials, { scopes: [SCOPE], tokens, fetchImplementation })
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

/** Services of Compute Engine that Berth calls, one for each client. */
export const SERVICES = ["Instances", "ZoneOperations", "GlobalOperations", "Regions", "Firewalls", "Projects"] as const

/** Parsed API descriptions, by the JSON that they come from. */
const parsed = new WeakMap<object, protobuf.Root>()

/**
 * Returns the SDK's own transport over HTTP/JSON, with another cache of parsed API descriptions. The SDK's cache hashes
 * all 5 MB again for each client. That blocked the event loop for half a second per account. Only the services that Berth
 * calls are parsed.
 */
async function restTransport() {
  const { default: gax } = await import("google-gax/fallback")
  class GrpcClient extends gax.GrpcClient {
    override loadProtoJSON(json: object) {
      const root = parsed.get(json) ?? gax.protobuf.Root.fromJSON(selectServices(json, SERVICES))
      parsed.set(json, root)
      return root
    }
  }
  return { ...gax, GrpcClient, fallback: { ...gax, GrpcClient } }
}
