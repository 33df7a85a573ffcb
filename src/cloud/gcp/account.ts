import type { CallOptions } from "google-gax"
import type { CredentialFields } from "../../apis/credentials.ts"
import { type AccountOpener, type DiscoveredResource, type ExternalAccount, metadataOf } from "../account.ts"
import { merged } from "../pages.ts"
import type { Identity } from "../provider.ts"
import { bucketPages, reachedBucket, regionOf } from "./gcs.ts"
import { type GoogleOptions, googleAs, googleError, proveKey } from "./google.ts"

/** The largest pages that the two APIs give. */
const REPOSITORIES_A_PAGE = 1000
const PROJECTS_A_PAGE = 500

const CALL: CallOptions & { autoPaginate: false } = {
  autoPaginate: false,
  timeout: 30_000,
  // A page that fails is a failure of the connection, which the caller asks again when it likes.
  retry: { retryCodes: [] } as unknown as NonNullable<CallOptions["retry"]>,
}

/** Opens Google Cloud projects by the key of a service account. */
export function gcpAccounts(options: GoogleOptions = {}): AccountOpener {
  return (credentials) => new GcpAccount(credentials, options)
}

class GcpAccount implements ExternalAccount {
  readonly #credentials: CredentialFields
  readonly #options: GoogleOptions
  readonly #project: string

  constructor(credentials: CredentialFields, options: GoogleOptions) {
    this.#credentials = credentials
    this.#options = options
    this.#project = credentials["gcp_project_id"] ?? ""
  }

  async verify(signal: AbortSignal): Promise<Identity> {
    await proveKey(await this.#google(signal), signal)
    return { account: this.#project }
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
        platform: "gcs",
        type: "bucket",
        metadata: metadataOf({ region: regionOf(location), created: timeCreated }),
      }))
    }
  }

  async *#repositories(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const [{ ArtifactRegistryClient }, authClient] = await Promise.all([
      import("@google-cloud/artifact-registry"),
      this.#google(signal),
    ])
    const client = new ArtifactRegistryClient({ ...REST, authClient, projectId: this.#project })
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

  /** The projects that the key sees: those where somebody gave it a role that shows them. */
  async *#projects(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const [{ ProjectsClient }, authClient] = await Promise.all([
      import("@google-cloud/resource-manager"),
      this.#google(signal),
    ])
    // Its version of the library that signs in is another one, of the same interface.
    const options = { ...REST, authClient, projectId: this.#project } as unknown as ProjectsClientOptions
    const client = new ProjectsClient(options)
    const request = { query: "state:ACTIVE", pageSize: PROJECTS_A_PAGE }
    for await (const projects of pagesOf((page) => client.searchProjects({ ...request, ...page }, CALL))) {
      yield projects.map(({ name, projectId, displayName, createTime }) => ({
        id: `//cloudresourcemanager.googleapis.com/${name}`,
        name: projectId ?? "",
        platform: "gcp",
        type: "project",
        metadata: metadataOf({ display_name: displayName ?? undefined, created: timeOf(createTime) }),
      }))
    }
  }

  #google(signal: AbortSignal) {
    return googleAs(this.#credentials, this.#options, signal)
  }
}

/** Over HTTP/JSON by the library that signs in, and so by our own fetch; the default would be gRPC. */
const REST = { fallback: true } as const

type ProjectsClientOptions = ConstructorParameters<typeof import("@google-cloud/resource-manager").ProjectsClient>[0]
type RegistryClient = InstanceType<typeof import("@google-cloud/artifact-registry").ArtifactRegistryClient>

async function* repositoriesIn(client: RegistryClient, parent: string): AsyncGenerator<DiscoveredResource[]> {
  const request = { parent, pageSize: REPOSITORIES_A_PAGE }
  for await (const found of pagesOf((page) => client.listRepositories({ ...request, ...page }, CALL))) {
    yield found.filter(({ format }) => format === "DOCKER").map(resourceOf)
  }
}

/** What asks for a page; none for the first. */
interface Page {
  pageToken?: string
}

type Answer<T> = [T[], { pageToken?: string | null } | null, ...unknown[]]

/** All pages of a list: an answer comes with the request for the next one, while there is one. */
async function* pagesOf<T>(list: (page: Page) => Promise<Answer<T>>): AsyncGenerator<T[]> {
  let page: Page | undefined = {}
  while (page !== undefined) {
    const [items, next]: Answer<T> = await list(page)
    yield items
    page = next?.pageToken ? { pageToken: next.pageToken } : undefined
  }
}

/** What images in a repository begin with is `<location>-docker.pkg.dev/<project>/<repository>`. */
function resourceOf(repository: Repository): DiscoveredResource {
  const name = repository.name ?? ""
  const [, project = "", , region = "", , id = ""] = name.split("/")
  // A project of a domain is "domain.com:project", and so written in an image's name as a folder.
  const image = repository.registryUri || `${region}-docker.pkg.dev/${project.replace(":", "/")}/${id}`
  return {
    id: `//artifactregistry.googleapis.com/${name}`,
    name: image,
    platform: "artifact-registry",
    type: "repository",
    metadata: metadataOf({ region, created: timeOf(repository.createTime), size: sizeOf(repository.sizeBytes) }),
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

/** A protobuf's Timestamp as RFC 3339. */
function timeOf(time: Timestamp | null | undefined): string | undefined {
  const seconds = Number(String(time?.seconds ?? ""))
  return seconds > 0 ? new Date(seconds * 1000).toISOString() : undefined
}

/** A protobuf's int64, which comes as text; 0 is what an API says that does not tell it. */
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
