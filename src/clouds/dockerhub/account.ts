import type { CredentialFields } from "../../core/apis/credentials.ts"
import { DOCKER_HUB } from "../../core/apis/image.ts"
import { TransientError } from "../../core/outbound/errors.ts"
import { type Fetch, guardedFetch } from "../../core/outbound/guarded-fetch.ts"
import {
  type AccountOpener,
  type Capabilities,
  type CapabilityQuestion,
  type DiscoveredResource,
  definedMetadata,
  type ExternalAccount,
} from "../account.ts"
import { listable } from "../capabilities.ts"
import type { Identity } from "../cloud.ts"
import { ask, numberIn, textIn } from "../registries/http.ts"
import type { RegistryOpener, RegistryOptions } from "../registry-access.ts"
import { dockerhub } from "./definition.ts"

const HOST = "hub.docker.com"
/** Largest page of the API. */
const REPOSITORIES_A_PAGE = 100

/** Opens Docker Hub by an access token (https://docs.docker.com/reference/api/hub/latest/). */
export function dockerHubAccounts(options: RegistryOptions = {}): AccountOpener {
  return (credentials) => new DockerHubAccount(credentials, options)
}

/** Signs in to Docker Hub's registry, whose tokens are valid for five minutes. */
export const dockerHubRegistry: RegistryOpener = {
  serves: (registry) => registry === DOCKER_HUB,
  login: ({ username = "", token: password = "" }) => Promise.resolve({ username, password }),
}

class DockerHubAccount implements ExternalAccount {
  readonly #credentials: CredentialFields
  readonly #send: Fetch | undefined

  constructor(credentials: CredentialFields, { send }: RegistryOptions) {
    this.#credentials = credentials
    this.#send = send
  }

  async verify(signal: AbortSignal): Promise<Identity> {
    await this.#signIn(this.#fetch(signal), signal)
    return { account: this.#namespace }
  }

  async capabilities(_: CapabilityQuestion, signal: AbortSignal): Promise<Capabilities> {
    return { repositories: await listable("image repositories", (ended) => this.repositories(ended), signal) }
  }

  /** Yields the repositories of the user's, or the organization's, own namespace. */
  async *repositories(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    const fetch = this.#fetch(signal)
    const authorization = `Bearer ${await this.#signIn(fetch, signal)}`
    // Pages by number: the next page's address from the API could have any host.
    for (let page = 1, isMore = true; isMore; page++) {
      const url = `https://${HOST}/v2/namespaces/${this.#namespace}/repositories?page=${page}&page_size=${REPOSITORIES_A_PAGE}`
      const { body } = await ask(fetch, url, { headers: { authorization } }, signal)
      const { results, next } = body as { results?: unknown; next?: unknown }
      if (!Array.isArray(results)) throw new TransientError("UnexpectedAnswer", `${HOST} lists no repositories`)
      yield results.map((repository) => resourceOf(repository, this.#namespace))
      isMore = typeof next === "string" && next !== "" && results.length > 0
    }
  }

  /** Docker ids are in lower case, whatever case the user types. */
  get #namespace(): string {
    return (this.#credentials["username"] ?? "").toLowerCase()
  }

  #fetch(signal: AbortSignal): Fetch {
    return guardedFetch({ isOwn: (host) => host === HOST, signal, send: this.#send })
  }

  /** Returns a token for the API, which is valid for some minutes. */
  async #signIn(fetch: Fetch, signal: AbortSignal): Promise<string> {
    const { username: identifier, token: secret } = this.#credentials
    const init = {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ identifier, secret }),
    }
    const { body } = await ask(fetch, `https://${HOST}/v2/auth/token`, init, signal)
    const token = textIn(body, "access_token")
    if (token === undefined) throw new TransientError("UnexpectedAnswer", `${HOST} returned no token`)
    return token
  }
}

function resourceOf(repository: unknown, namespace: string): DiscoveredResource {
  const name = textIn(repository, "name") ?? ""
  const isPrivate = (repository as { is_private?: unknown } | null)?.is_private === true
  return {
    id: `docker.io/${namespace}/${name}`,
    name: `docker.io/${namespace}/${name}`,
    platform: dockerhub.images.platform,
    type: "repository",
    metadata: definedMetadata({
      created: textIn(repository, "date_registered"),
      size: numberIn(repository, "storage_size"),
      visibility: isPrivate ? "private" : "public",
    }),
  }
}
