import type { CallOptions } from "google-gax"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { defined } from "../../core/apis/defined.ts"
import {
  type AccountOpener,
  type Capabilities,
  type CapabilityQuestion,
  type DiscoveredResource,
  definedMetadata,
  type ExternalAccount,
} from "../account.ts"
import type { Identity } from "../cloud.ts"
import { merged } from "../pages.ts"
import { COMPUTE_SCOPES, gcpCapabilities, PRICE_SCOPES } from "./capabilities.ts"
import { gcp } from "./definition.ts"
import { bucketPages, parseRegion, reachedBucket } from "./gcs.ts"
import { type GoogleOptions, googleAs, googleError, proveKey } from "./google.ts"

/** Maximum page sizes of the two APIs. */
const REPOSITORIES_A_PAGE = 1000
const PROJECTS_A_PAGE = 500

/** Google creates this network in each new project. */
const DEFAULT_NETWORK = "default"

const CALL: CallOptions & { autoPaginate: false } = {
  autoPaginate: false,
  timeout: 30_000,
  // No retries by the SDK: the caller decides when to call again.
  retry: { retryCodes: [] } as unknown as NonNullable<CallOptions["retry"]>,
}

export interface GcpAccountOptions extends GoogleOptions {
  /** Configured networks of VMs, by region. */
  networks?: Readonly<Record<string, { network?: string }>>
}

/** Opens Google Cloud projects by the key of a service account. */
export function gcpAccounts(options: GcpAccountOptions = {}): AccountOpener {
  return (credentials) => new GcpAccount(credentials, options)
}

class GcpAccount implements ExternalAccount {
  readonly #credentials: CredentialFields
  readonly #options: GcpAccountOptions
  readonly #project: string

  constructor(credentials: CredentialFields, options: GcpAccountOptions) {
    this.#credentials = credentials
    this.#options = options
    this.#project = credentials["gcp_project_id"] ?? ""
  }

  async verify(signal: AbortSignal): Promise<Identity> {
    await proveKey(await this.#google(signal), signal)
    return { account: this.#project }
  }

  async capabilities({ regions, settings = {} }: CapabilityQuestion, signal: AbortSignal): Promise<Capabilities> {
    const as = (scopes?: readonly string[]) =>
      googleAs(this.#credentials, { ...this.#options, ...defined({ scopes }) }, signal)
    const [reads, compute, prices] = await Promise.all([as(), as(COMPUTE_SCOPES), as(PRICE_SCOPES)])
    const networks = settings.network === undefined ? this.#networksIn(regions) : [settings.network]
    const google = { reads, compute, prices }
    return await gcpCapabilities({ project: this.#project, networks, settings, google, signal })
  }

  /** Returns the networks of the VMs of these regions. For a new connection, those of all regions. */
  #networksIn(regions: readonly string[]): string[] {
    const { networks = {} } = this.#options
    const used = regions.length > 0 ? regions : ["", ...Object.keys(networks)]
    return [...new Set(used.map((region) => networks[region]?.network ?? DEFAULT_NETWORK))]
  }

  storages(signal: AbortSignal): AsyncIterable<DiscoveredResource[]> {
    return explained(this.#storages(signal), signal)
  }

  repositories(signal: AbortSignal): AsyncIterable<DiscoveredResource[]> {
    return explained(this.#repositories(signal), signal)
  }

  virtualMachinePools(signal: AbortSignal): AsyncIterable<DiscoveredResource[]> {
    return explained(this.#projects(signal), signal)
  }

  async bucket(name: string, signal: AbortSignal) {
    try {
      return await reachedBucket(await this.#google(signal), name)
    } catch (error) {
      throw googleError(error, signal)
    }
  }

  async *#storages(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    for await (const buckets of bucketPages(await this.#google(signal), this.#project)) {
      yield buckets.map(({ name, location, timeCreated }) => ({
        id: `//storage.googleapis.com/projects/_/buckets/${name}`,
        name,
        platform: gcp.buckets.platform,
        type: "bucket",
        metadata: definedMetadata({ region: parseRegion(location), created: timeCreated }),
      }))
    }
  }

  async *#repositories(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const [{ default: sdk }, authClient] = await Promise.all([
      import("@google-cloud/artifact-registry"),
      this.#google(signal),
    ])
    const options = { ...REST, authClient, projectId: this.#project } as unknown as RegistryClientOptions
    const client = new sdk.ArtifactRegistryClient(options)
    const parent = `projects/${this.#project}`
    const locations: string[] = []
    const list = (page: Page) => client.locationsClient.listLocations({ name: parent, ...page }, CALL)
    for await (const found of pagesOf(list)) locations.push(...found.map(({ name }) => name ?? ""))
    const listed = locations.map((location) => ({
      place: `Artifact Registry in ${location.split("/").at(-1)}`,
      pages: explained(repositoriesIn(client, location), signal),
    }))
    yield* merged(listed)
  }

  /** Yields the projects that the key can see: those in which it has a role that shows them. */
  async *#projects(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const [{ default: sdk }, authClient] = await Promise.all([
      import("@google-cloud/resource-manager"),
      this.#google(signal),
    ])
    // The sign-in library has another version there, with the same interface.
    const options = { ...REST, authClient, projectId: this.#project } as unknown as ProjectsClientOptions
    const client = new sdk.ProjectsClient(options)
    const request = { query: "state:ACTIVE", pageSize: PROJECTS_A_PAGE }
    for await (const projects of pagesOf((page) => client.searchProjects({ ...request, ...page }, CALL))) {
      yield projects.map(({ name, projectId, displayName, createTime }) => ({
        id: `//cloudresourcemanager.googleapis.com/${name}`,
        name: projectId ?? "",
        platform: "gcp",
        type: "project",
        metadata: definedMetadata({ display_name: displayName ?? undefined, created: timeOf(createTime) }),
      }))
    }
  }

  #google(signal: AbortSignal) {
    return googleAs(this.#credentials, this.#options, signal)
  }
}

/** Uses HTTP/JSON by the sign-in library, and so Berth's own fetch. The default would be gRPC. */
const REST = { fallback: true } as const

type ProjectsClientOptions = ConstructorParameters<typeof import("@google-cloud/resource-manager").ProjectsClient>[0]
type RegistryClientOptions = ConstructorParameters<
  typeof import("@google-cloud/artifact-registry").ArtifactRegistryClient
>[0]
type RegistryClient = InstanceType<typeof import("@google-cloud/artifact-registry").ArtifactRegistryClient>

async function* repositoriesIn(client: RegistryClient, parent: string): AsyncGenerator<DiscoveredResource[]> {
  const request = { parent, pageSize: REPOSITORIES_A_PAGE }
  for await (const found of pagesOf((page) => client.listRepositories({ ...request, ...page }, CALL))) {
    yield found.filter(({ format }) => format === "DOCKER").map(resourceOf)
  }
}

/** Request for a page; empty for the first. */
interface Page {
  pageToken?: string
}

type Answer<T> = [T[], { pageToken?: string | null } | null, ...unknown[]]

/** Yields all pages of a list. Each answer includes the request for the next page, if there is one. */
async function* pagesOf<T>(list: (page: Page) => Promise<Answer<T>>): AsyncGenerator<T[]> {
  let page: Page | undefined = {}
  while (page !== undefined) {
    const [items, next]: Answer<T> = await list(page)
    yield items
    page = next?.pageToken ? { pageToken: next.pageToken } : undefined
  }
}

/** Image names in a repository begin with `<location>-docker.pkg.dev/<project>/<repository>`. */
function resourceOf(repository: Repository): DiscoveredResource {
  const name = repository.name ?? ""
  const [, project = "", , region = "", , id = ""] = name.split("/")
  // A project of a domain is "domain.com:project"; an image name has it as a folder.
  const image = repository.registryUri || `${region}-docker.pkg.dev/${project.replace(":", "/")}/${id}`
  return {
    id: `//artifactregistry.googleapis.com/${name}`,
    name: image,
    platform: gcp.images.platform,
    type: "repository",
    metadata: definedMetadata({ region, created: timeOf(repository.createTime), size: sizeOf(repository.sizeBytes) }),
  }
}

interface Repository {
  name?: string | null
  registryUri?: string | null
  createTime?: Timestamp | null
  sizeBytes?: unknown
}

interface Timestamp {
  seconds?: unknown
}

/** Converts a protobuf Timestamp to RFC 3339. */
function timeOf(time: Timestamp | null | undefined): string | undefined {
  const seconds = Number(String(time?.seconds ?? ""))
  return seconds > 0 ? new Date(seconds * 1000).toISOString() : undefined
}

/** Converts a protobuf int64, which arrives as text. An API that does not know the size returns 0. */
function sizeOf(bytes: unknown): number | undefined {
  return Number(String(bytes ?? 0)) || undefined
}

async function* explained<T>(pages: AsyncIterable<T>, signal: AbortSignal): AsyncGenerator<T> {
  try {
    yield* pages
  } catch (error) {
    throw googleError(error, signal)
  }
}
