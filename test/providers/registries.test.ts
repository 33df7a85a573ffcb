import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { dockerHubAccounts } from "../../src/clouds/dockerhub/account.ts"
import { githubAccounts } from "../../src/clouds/github/account.ts"
import { CredentialsError, InvalidRequestError, TransientError } from "../../src/core/outbound/errors.ts"
import { type ApiServer, collect, type Operation, startApiServer, unending } from "./api-server.ts"

const TOKEN = "dckr_pat_of-a-test"
const PAT = "ghp_ofATest0000000000000000000000000000"

/** References: https://docs.docker.com/reference/api/hub/latest/: AuthCreateAccessToken, listNamespaceRepositories. */
const DOCKER_HUB: Operation[] = [
  {
    method: "POST",
    host: "hub.docker.com",
    path: /^[/]v2[/]auth[/]token$/,
    headers: { "content-type": /^application[/]json$/ },
    body: /^\{"identifier":"[^"]+","secret":"[^"]+"\}$/,
    answer: ({ body }) => {
      if (JSON.parse(body).secret !== TOKEN) return { status: 401, json: { message: "incorrect credentials" } }
      return { json: { access_token: "jwt.of.docker" } }
    },
  },
  {
    method: "GET",
    host: "hub.docker.com",
    path: /^[/]v2[/]namespaces[/]([a-z0-9_-]+)[/]repositories$/,
    query: { "?page": /^[1-9][0-9]*$/, "?page_size": /^([1-9]|[1-9][0-9]|100)$/ },
    headers: { authorization: /^Bearer jwt\.of\.docker$/ },
    answer: ({ query }, match) => {
      const page = Number(query.get("page"))
      const repository = (name: string) => ({
        name,
        namespace: match[1],
        is_private: page === 2,
        date_registered: "2026-01-02T03:04:05Z",
        storage_size: 1000 * page,
      })
      // An address that the client must not follow.
      const next = page === 1 ? "https://attacker.example/v2/next" : null
      return {
        json: {
          count: 3,
          next,
          previous: null,
          results: page === 1 ? [repository("a"), repository("b")] : [repository("c")],
        },
      }
    },
  },
]

const GITHUB_HEADERS = {
  accept: /^application[/]vnd\.github\+json$/,
  authorization: new RegExp(`^Bearer ${PAT}$`),
  "user-agent": /./,
  "x-github-api-version": /^2022-11-28$/,
}
const PAGES = { "?per_page": /^([1-9]|[1-9][0-9]|100)$/, "?page": /^[1-9][0-9]*$/ }

const container = (owner: string, name: string) => ({
  id: 1,
  name,
  package_type: "container",
  owner: { login: owner },
  visibility: "private",
  created_at: "2026-01-02T03:04:05Z",
})

/** References: https://docs.github.com/rest: users, orgs, packages. */
const GITHUB: Operation[] = [
  {
    method: "GET",
    host: "api.github.com",
    path: /^[/]user$/,
    headers: GITHUB_HEADERS,
    answer: () => ({ json: { login: "Octo" }, headers: { "x-oauth-scopes": "read:packages, read:org" } }),
  },
  {
    method: "GET",
    host: "api.github.com",
    path: /^[/]user[/]packages$/,
    headers: GITHUB_HEADERS,
    query: { package_type: /^container$/, ...PAGES },
    answer: ({ query }) => {
      const link = '<https://attacker.example/next>; rel="next", <https://attacker.example/last>; rel="last"'
      return query.get("page") === "1"
        ? { json: [container("Octo", "App")], headers: { link } }
        : { json: [container("Octo", "tools/lint")], headers: { link: '<https://x.example>; rel="prev"' } }
    },
  },
  {
    method: "GET",
    host: "api.github.com",
    path: /^[/]user[/]orgs$/,
    headers: GITHUB_HEADERS,
    query: PAGES,
    answer: () => ({ json: [{ login: "crew" }, { login: "closed" }] }),
  },
  {
    method: "GET",
    host: "api.github.com",
    path: /^[/]orgs[/]([A-Za-z0-9-]+)[/]packages$/,
    headers: GITHUB_HEADERS,
    query: { package_type: /^container$/, ...PAGES },
    answer: (_, match) =>
      match[1] === "closed"
        ? { status: 403, json: { message: "Resource protected by organization SAML enforcement." } }
        : { json: [container("crew", "web")] },
  },
]

let api: ApiServer
beforeAll(async () => {
  api = await startApiServer([...DOCKER_HUB, ...GITHUB])
})
afterAll(() => api.stop())
beforeEach(() => {
  api.requests.length = 0
})
afterEach(() => {
  expect(api.faults.splice(0)).toEqual([])
})

/** Changes a response until the test has ended. */
async function answering<T>(path: RegExp, answer: Operation["answer"], work: () => Promise<T>): Promise<T> {
  api.override(path, answer)
  try {
    return await work()
  } finally {
    api.override(path, undefined)
  }
}

describe("Docker Hub", () => {
  const account = (fields = { username: "Captain", token: TOKEN }) => dockerHubAccounts({ send: api.send })(fields)

  it("verifies a Docker Hub token", async () => {
    expect(await account().verify(unending())).toEqual({ account: "captain" })
    const wrong = account({ username: "captain", token: "dckr_pat_wrong" }).verify(unending())
    await expect(wrong).rejects.toThrow(CredentialsError)
    await expect(wrong).rejects.toThrow("hub.docker.com: incorrect credentials")
    expect(account().storages).toBeUndefined()
  })

  it("lists all pages of a Docker Hub namespace by their numbers", async () => {
    const { items, error } = await collect(account().repositories?.(unending()))
    expect(error).toBeUndefined()
    expect(items.map(({ name }) => name)).toEqual(["docker.io/captain/a", "docker.io/captain/b", "docker.io/captain/c"])
    expect(items[2]).toEqual({
      id: "docker.io/captain/c",
      name: "docker.io/captain/c",
      platform: "dockerhub",
      type: "repository",
      metadata: { created: "2026-01-02T03:04:05Z", size: 2000, visibility: "private" },
    })
  })

  it("keeps the Docker Hub pages before a failing one", async () => {
    const second: Operation["answer"] = ({ query }) =>
      query.get("page") === "1"
        ? { json: { next: "more", results: [{ name: "a" }] } }
        : { status: 503, text: "<html>sorry</html>" }
    const { items, error } = await answering(/repositories/, second, () =>
      collect(account().repositories?.(unending())),
    )
    expect(items.map(({ name }) => name)).toEqual(["docker.io/captain/a"])
    expect(error).toBeInstanceOf(TransientError)
  })

  it("calls no other host, whatever a response names", async () => {
    const redirect: Operation["answer"] = () => ({
      status: 307,
      text: "",
      headers: { location: "http://169.254.169.254/" },
    })
    await answering(/auth[/]token/, redirect, async () => {
      await expect(account().verify(unending())).rejects.toThrow(InvalidRequestError)
    })
    expect(api.requests).toHaveLength(1)
  })

  it.each([
    ["that is truncated", "reset" as const],
    ["in another form", { status: 200, text: "<html>" }],
    ["without a token", { status: 200, json: {} }],
    ["for too many requests", { status: 429, json: { detail: "slow down" } }],
  ])("treats a response %s as a temporary error, not one of the credentials", async (_, answer) => {
    await answering(
      /auth[/]token/,
      () => answer,
      async () => {
        await expect(account().verify(unending())).rejects.toThrow(TransientError)
      },
    )
  })

  it("ends a request to Docker Hub when it is aborted", async () => {
    const giveUp = new AbortController()
    const hang: Operation["answer"] = () => {
      giveUp.abort()
      return "hang"
    }
    await answering(/auth[/]token/, hang, async () => {
      await expect(account().verify(giveUp.signal)).rejects.toMatchObject({ code: "Aborted" })
    })
  })
})

describe("GitHub", () => {
  const account = (fields = { username: "octo", token: PAT }) => githubAccounts({ send: api.send })(fields)

  it("verifies a classic token of the named user with the right to read packages", async () => {
    expect(await account().verify(unending())).toEqual({ account: "Octo" })
    const other = account({ username: "somebody", token: PAT }).verify(unending())
    await expect(other).rejects.toThrow("the token is that of the user Octo, not of somebody")
    const fine = account({ username: "octo", token: "github_pat_11AAAA" }).verify(unending())
    await expect(fine).rejects.toThrow("create a classic one with read:packages")
    const scopes: Operation["answer"] = () => ({ json: { login: "Octo" }, headers: { "x-oauth-scopes": "repo" } })
    await answering(/user$/, scopes, async () => {
      await expect(account().verify(unending())).rejects.toThrow("the scopes repo: create one with read:packages")
    })
    await answering(
      /user$/,
      () => ({ status: 401, json: { message: "Bad credentials" } }),
      async () => {
        await expect(account().verify(unending())).rejects.toThrow(CredentialsError)
      },
    )
  })

  it("lists all pages of the user and of the organizations, and names the rejected one", async () => {
    const { items, error } = await collect(account().repositories?.(unending()))
    expect(items.map(({ name }) => name)).toEqual(["ghcr.io/octo/app", "ghcr.io/octo/tools/lint", "ghcr.io/crew/web"])
    expect(items[0]?.metadata).toEqual({ created: "2026-01-02T03:04:05Z", visibility: "private" })
    expect(error).toBeInstanceOf(CredentialsError)
    expect((error as Error).message).toMatch(/^organization closed: api[.]github[.]com: Resource protected/)
  })

  it("keeps the user's packages without the right to list organizations", async () => {
    const refused: Operation["answer"] = () => ({ status: 403, json: { message: "You need at least read:org scope" } })
    const { items, error } = await answering(/user[/]orgs/, refused, () =>
      collect(account().repositories?.(unending())),
    )
    expect(items).toHaveLength(2)
    expect((error as Error).message).toContain("lacks read:org")
  })

  it("reports an exhausted rate limit as a temporary error", async () => {
    const limited: Operation["answer"] = () => ({
      status: 403,
      json: { message: "API rate limit exceeded" },
      headers: { "x-ratelimit-remaining": "0" },
    })
    await answering(/user$/, limited, async () => {
      await expect(account().verify(unending())).rejects.toThrow(TransientError)
    })
  })
})
