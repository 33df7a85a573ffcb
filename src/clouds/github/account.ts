import type { CredentialFields } from "../../core/apis/credentials.ts"
import { CredentialsError, TransientError } from "../../core/outbound/errors.ts"
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
import { merged } from "../pages.ts"
import { type Answer, ask, textIn } from "../registries/http.ts"
import type { RegistryOpener, RegistryOptions } from "../registry-access.ts"
import { github } from "./definition.ts"

const HOST = "api.github.com"
const ITEMS_A_PAGE = 100

/** Scopes that let a token read packages. One of them is enough. */
const PACKAGE_SCOPES = ["read:packages", "write:packages"]

/**
 * Opens GitHub's container registry with a classic personal access token, the only kind that can read packages
 * (https://docs.github.com/packages/working-with-a-github-packages-registry/working-with-the-container-registry).
 */
export function githubAccounts(options: RegistryOptions = {}): AccountOpener {
  return (credentials) => new GithubAccount(credentials, options)
}

/** Signs in to GitHub's container registry. Its registry token is the personal access token in another form. */
export const githubRegistry: RegistryOpener = {
  serves: (registry) => registry === "ghcr.io",
  login: ({ username = "", token: password = "" }) => Promise.resolve({ username, password }),
}

class GithubAccount implements ExternalAccount {
  readonly #credentials: CredentialFields
  readonly #send: Fetch | undefined

  constructor(credentials: CredentialFields, { send }: RegistryOptions) {
    this.#credentials = credentials
    this.#send = send
  }

  async verify(signal: AbortSignal): Promise<Identity> {
    const { token = "", username = "" } = this.#credentials
    if (token.startsWith("github_pat_")) {
      const message = "a fine-grained token can't read packages: create a classic one with read:packages"
      throw new CredentialsError("FineGrainedToken", message)
    }
    const { body, headers } = await this.#get("/user", signal)
    const login = textIn(body, "login")
    if (login?.toLowerCase() !== username.toLowerCase()) {
      throw new CredentialsError("OtherUser", `the token is that of the user ${login}, not of ${username}`)
    }
    const scopes = scopesIn(headers)
    if (scopes !== undefined && !PACKAGE_SCOPES.some((scope) => scopes.includes(scope))) {
      const message = `the token has the scopes ${scopes.join(", ") || "(none)"}: create one with read:packages`
      throw new CredentialsError("MissingScope", message)
    }
    return { account: login }
  }

  async capabilities(_: CapabilityQuestion, signal: AbortSignal): Promise<Capabilities> {
    return { repositories: await listable("image repositories", (ended) => this.repositories(ended), signal) }
  }

  /** Yields the container packages of the user and of the organizations that the token shows. */
  async *repositories(signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    yield* this.#packages("/user/packages", signal)
    for await (const organizations of this.#organizations(signal)) {
      yield* merged(
        organizations.map((login) => ({
          place: `organization ${login}`,
          pages: this.#packages(`/orgs/${encodeURIComponent(login)}/packages`, signal),
        })),
      )
    }
  }

  async *#organizations(signal: AbortSignal): AsyncGenerator<string[]> {
    try {
      for await (const items of this.#pages("/user/orgs", {}, signal)) {
        yield items.map((item) => textIn(item, "login")).filter((login) => login !== undefined)
      }
    } catch (error) {
      if (!(error instanceof CredentialsError)) throw error
      const message = "the packages of organizations are not listed: the token lacks read:org"
      throw new CredentialsError("MissingScope", message, { cause: error })
    }
  }

  async *#packages(path: string, signal: AbortSignal): AsyncGenerator<DiscoveredResource[]> {
    for await (const items of this.#pages(path, { package_type: "container" }, signal)) yield items.map(resourceOf)
  }

  async *#pages(path: string, query: Record<string, string>, signal: AbortSignal): AsyncGenerator<unknown[]> {
    // Pages by number: the next page's address from the API could have any host.
    for (let page = 1, isMore = true; isMore; page++) {
      const parameters = new URLSearchParams({ ...query, per_page: String(ITEMS_A_PAGE), page: String(page) })
      const { body, headers } = await this.#get(`${path}?${parameters}`, signal)
      if (!Array.isArray(body)) throw new TransientError("UnexpectedAnswer", `${HOST} answers ${path} without a list`)
      yield body
      isMore = /;\s*rel="?next"?/.test(headers.get("link") ?? "") && body.length > 0
    }
  }

  #get(path: string, signal: AbortSignal): Promise<Answer> {
    const fetch = guardedFetch({ isOwn: (host) => host === HOST, signal, send: this.#send })
    const headers = {
      accept: "application/vnd.github+json",
      authorization: `Bearer ${this.#credentials["token"]}`,
      "user-agent": "berth",
      "x-github-api-version": "2022-11-28",
    }
    return ask(fetch, `https://${HOST}${path}`, { headers }, signal)
  }
}

/** Returns the scopes of a classic token; undefined for tokens without scopes. */
function scopesIn(headers: Headers): string[] | undefined {
  const header = headers.get("x-oauth-scopes")
  if (header === null) return undefined
  return header
    .split(",")
    .map((scope) => scope.trim())
    .filter((scope) => scope !== "")
}

function resourceOf(item: unknown): DiscoveredResource {
  const owner = textIn((item as { owner?: unknown } | null)?.owner, "login") ?? ""
  const image = `ghcr.io/${owner}/${textIn(item, "name") ?? ""}`.toLowerCase()
  return {
    id: image,
    name: image,
    platform: github.images.platform,
    type: "repository",
    metadata: definedMetadata({ created: textIn(item, "created_at"), visibility: textIn(item, "visibility") }),
  }
}
