import type { Registry } from "@azure/arm-containerregistry"
import type { StorageAccount } from "@azure/arm-storage"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { CredentialsError } from "../../core/outbound/errors.ts"
import type { ReachedBucket } from "../account.ts"
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
import { blobEndpoint, blobService, containerIn } from "./blobs.ts"
import { azureCapabilities } from "./capabilities.ts"
import { azure } from "./definition.ts"
import { type AzureAccountOptions, azureError, type SignedIn, signedIn } from "./signed-in.ts"

const CONTAINERS_A_PAGE = 5000

/** Audience of the tokens that registries accept (https://learn.microsoft.com/azure/container-registry). */
const REGISTRY_AUDIENCE = "https://management.azure.com"

/** Opens Azure subscriptions by a service principal. */
export function azureAccounts(options: AzureAccountOptions = {}): AccountOpener {
  return (credentials) => new AzureAccount(credentials, options)
}

class AzureAccount implements ExternalAccount {
  readonly #credentials: CredentialFields
  readonly #options: AzureAccountOptions
  readonly #subscription: string

  constructor(credentials: CredentialFields, options: AzureAccountOptions) {
    this.#credentials = credentials
    this.#options = options
    this.#subscription = credentials["subscription_id"] ?? ""
  }

  async verify(signal: AbortSignal): Promise<Identity> {
    const { credential, clientOptions } = await this.#signIn(signal)
    const { SubscriptionClient } = await import("@azure/arm-resources-subscriptions")
    try {
      const client = new SubscriptionClient(credential, clientOptions)
      await client.subscriptions.get(this.#subscription)
    } catch (error) {
      const { statusCode } = error as { statusCode?: number }
      if (statusCode !== 403 && statusCode !== 404) throw azureError(error, signal)
      const message = `the service principal can't see subscription ${this.#subscription}: give it a role there`
      throw new CredentialsError("SubscriptionNotFound", message, { cause: error })
    }
    return { account: this.#subscription }
  }

  async capabilities(question: CapabilityQuestion, signal: AbortSignal): Promise<Capabilities> {
    return await azureCapabilities(await this.#signIn(signal), this.#subscription, question)
  }

  storages(signal: AbortSignal): AsyncIterable<DiscoveredResource[]> {
    return explained(this.#storages(signal), signal)
  }

  repositories(signal: AbortSignal): AsyncIterable<DiscoveredResource[]> {
    return explained(this.#repositories(signal), signal)
  }

  virtualMachinePools(signal: AbortSignal): AsyncIterable<DiscoveredResource[]> {
    return explained(this.#subscriptions(signal), signal)
  }

  async bucket(name: string, signal: AbortSignal): Promise<ReachedBucket | undefined> {
    const { account, container } = containerIn(name) ?? {}
    if (account === undefined || container === undefined) return undefined
    try {
      const service = await blobService(blobEndpoint(account), await this.#signIn(signal))
      const pages = service
        .getContainerClient(container)
        .listBlobsFlat({ abortSignal: signal })
        .byPage({ maxPageSize: 1 })
      await pages.next()
    } catch (error) {
      if (isRefusal(error) || isUnknownHost(error)) return undefined
      throw azureError(error, signal)
    }
    return {}
  }

  async *#storages(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const session = await this.#signIn(signal)
    const { StorageManagementClient } = await import("@azure/arm-storage")
    const client = new StorageManagementClient(session.credential, this.#subscription, session.clientOptions)
    for await (const accounts of client.storageAccounts.list().byPage()) {
      yield* merged(
        accounts.map((account) => ({
          place: `storage account ${account.name}`,
          pages: explained(containersOf(account, session, signal), signal),
        })),
      )
    }
  }

  async *#repositories(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const session = await this.#signIn(signal)
    const { ContainerRegistryManagementClient } = await import("@azure/arm-containerregistry")
    const client = new ContainerRegistryManagementClient(session.credential, this.#subscription, session.clientOptions)
    for await (const registries of client.registries.list().byPage()) {
      yield* merged(
        registries.map((registry) => ({
          place: `registry ${registry.name}`,
          pages: explained(repositoriesOf(registry, session, signal), signal),
        })),
      )
    }
  }

  async *#subscriptions(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const { credential, clientOptions } = await this.#signIn(signal)
    const { SubscriptionClient } = await import("@azure/arm-resources-subscriptions")
    const client = new SubscriptionClient(credential, clientOptions)
    for await (const subscriptions of client.subscriptions.list().byPage()) {
      yield subscriptions.map(({ subscriptionId = "", displayName, state }) => ({
        id: `/subscriptions/${subscriptionId}`,
        name: subscriptionId,
        platform: "azure",
        type: "subscription",
        metadata: definedMetadata({ display_name: displayName, state }),
      }))
    }
  }

  #signIn(signal: AbortSignal): Promise<SignedIn> {
    return signedIn(this.#credentials, this.#options, signal)
  }
}

/**
 * Yields the containers of one storage account from its data endpoint. A job could not read a container that the
 * service principal can't list there. The list needs a data role, such as Storage Blob Data Reader.
 */
async function* containersOf(
  { id = "", name = "", location, primaryEndpoints, properties }: StorageAccount & { properties?: Endpoints },
  session: SignedIn,
  signal: AbortSignal,
): AsyncGenerator<DiscoveredResource[]> {
  const endpoint = primaryEndpoints?.blob ?? properties?.primaryEndpoints?.blob
  // An account for files, tables or queues only.
  if (endpoint === undefined) return
  const service = await blobService(endpoint, session)
  const pages = service.listContainers({ abortSignal: signal }).byPage({ maxPageSize: CONTAINERS_A_PAGE })
  for await (const { containerItems } of pages) {
    yield containerItems.map((container) => ({
      id: `${id}/blobServices/default/containers/${container.name}`,
      name: `${name}/${container.name}`,
      platform: azure.buckets.platform,
      type: "container",
      metadata: definedMetadata({ region: location, modified: container.properties.lastModified?.toISOString() }),
    }))
  }
}

interface Endpoints {
  primaryEndpoints?: { blob?: string }
}

async function* repositoriesOf(
  { id = "", location, loginServer, properties }: Registry & { properties?: { loginServer?: string } },
  { credential, clientOptions }: SignedIn,
  signal: AbortSignal,
): AsyncGenerator<DiscoveredResource[]> {
  const host = loginServer ?? properties?.loginServer
  if (host === undefined) return
  const { ContainerRegistryClient } = await import("@azure/container-registry")
  const client = new ContainerRegistryClient(`https://${host}`, credential, {
    ...clientOptions,
    audience: REGISTRY_AUDIENCE,
  })
  for await (const names of client.listRepositoryNames({ abortSignal: signal }).byPage()) {
    yield names.map((name) => ({
      id: `${id}/repositories/${name}`,
      name: `${host}/${name}`,
      platform: azure.images.platform,
      type: "repository",
      metadata: definedMetadata({ region: location }),
    }))
  }
}

function isRefusal(error: unknown): boolean {
  const { statusCode, name } = error as { statusCode?: number; name?: string }
  return name !== "AuthenticationError" && statusCode !== undefined && [400, 403, 404, 409].includes(statusCode)
}

/** No storage account has that name: its host name does not exist. */
function isUnknownHost(error: unknown): boolean {
  for (let inner = error; inner instanceof Error; inner = inner.cause)
    if ((inner as { code?: unknown }).code === "ENOTFOUND") return true
  return false
}

async function* explained<T>(pages: AsyncIterable<T>, signal: AbortSignal): AsyncGenerator<T> {
  try {
    yield* pages
  } catch (error) {
    throw azureError(error, signal)
  }
}
