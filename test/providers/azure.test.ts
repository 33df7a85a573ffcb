import { Agent, fetch as dispatchedFetch } from "undici"
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest"
import { azureAccounts } from "../../src/clouds/azure/account.ts"
import { CredentialsError, InvalidRequestError, TransientError } from "../../src/core/outbound/errors.ts"
import type { Fetch } from "../../src/core/outbound/guarded-fetch.ts"
import { type Azurite, startAzurite } from "../azurite.ts"
import { type ApiServer, collect, type Operation, startApiServer, unending } from "./api-server.ts"

const TENANT = "11111111-2222-3333-4444-555555555555"
const SUBSCRIPTION = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
const FIELDS = {
  tenant_id: TENANT,
  client_id: "99999999-8888-7777-6666-555555555555",
  client_secret: "a~Secret-of.a_test",
  subscription_id: SUBSCRIPTION,
}

/** Returns a token in Microsoft's format. azurite, as configured here, ignores its signature. */
function token(audience: string): string {
  const now = Math.floor(Date.now() / 1000)
  const claims = { aud: audience, iss: `https://sts.windows.net/${TENANT}/`, iat: now, nbf: now - 60, exp: now + 3600 }
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url")
  return `${part({ alg: "none", typ: "JWT" })}.${part(claims)}.none`
}

const MANAGEMENT = { authorization: /^Bearer ey/ }
const ARM = "management.azure.com"
const group = `/subscriptions/${SUBSCRIPTION}/resourceGroups/yard/providers`
const nextPage = (path: string) => `https://${ARM}${path}&%24skiptoken=2`

/**
 * References: https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow,
 * https://learn.microsoft.com/rest/api/resources/subscriptions, …/storagerp/storage-accounts/list,
 * …/containerregistry/registries/list, and the data plane of registries,
 * https://learn.microsoft.com/rest/api/containerregistry/.
 */
const AZURE: Operation[] = [
  {
    method: "GET",
    host: "login.microsoftonline.com",
    path: new RegExp(`^[/]${TENANT}[/]v2\\.0[/]\\.well-known[/]openid-configuration$`),
    answer: () => ({
      json: {
        issuer: `https://login.microsoftonline.com/${TENANT}/v2.0`,
        authorization_endpoint: `https://login.microsoftonline.com/${TENANT}/oauth2/v2.0/authorize`,
        token_endpoint: `https://login.microsoftonline.com/${TENANT}/oauth2/v2.0/token`,
        jwks_uri: `https://login.microsoftonline.com/${TENANT}/discovery/v2.0/keys`,
      },
    }),
  },
  {
    method: "POST",
    host: "login.microsoftonline.com",
    path: new RegExp(`^[/]${TENANT}[/]oauth2[/]v2\\.0[/]token$`),
    query: { "?client-request-id": /./ },
    body: /grant_type=client_credentials/,
    answer: ({ body }) => {
      const form = new URLSearchParams(body)
      if (form.get("client_secret") !== FIELDS.client_secret) {
        const error_description = "AADSTS7000215: Invalid client secret provided.\r\nTrace ID: 1\r\nTimestamp: 2"
        return { status: 401, json: { error: "invalid_client", error_description, error_codes: [7000215] } }
      }
      const audience = (form.get("scope") ?? "").split(" ")[0]?.replace(/[/][.]default$/, "") ?? ""
      return { json: { token_type: "Bearer", expires_in: 3599, access_token: token(audience) } }
    },
  },
  {
    method: "GET",
    host: ARM,
    path: new RegExp(`^[/]subscriptions[/]${SUBSCRIPTION}$`),
    query: { "api-version": /^20\d\d-\d\d-\d\d$/ },
    headers: MANAGEMENT,
    answer: () => ({ json: { id: `/subscriptions/${SUBSCRIPTION}`, subscriptionId: SUBSCRIPTION, state: "Enabled" } }),
  },
  {
    method: "GET",
    host: ARM,
    path: new RegExp(`^[/]subscriptions[/]${SUBSCRIPTION}[/]providers[/]Microsoft[.]Authorization[/]permissions$`),
    query: { "api-version": /^2022-04-01$/, "?$skiptoken": /^2$/ },
    headers: MANAGEMENT,
    answer: ({ path, query }) =>
      query.get("$skiptoken") === null
        ? {
            json: {
              value: [{ actions: ["*/read"], notActions: [] }],
              nextLink: nextPage(`${path}?api-version=2022-04-01`),
            },
          }
        : { json: { value: [{ actions: ["Microsoft.Compute/*", "Microsoft.Network/*"], notActions: [] }] } },
  },
  {
    method: "GET",
    host: ARM,
    path: new RegExp(`^[/]subscriptions[/]${SUBSCRIPTION}[/]providers[/]Microsoft[.](Compute|Network)$`),
    query: { "api-version": /^2021-04-01$/ },
    headers: MANAGEMENT,
    answer: () => ({ json: { registrationState: "Registered" } }),
  },
  {
    method: "GET",
    host: ARM,
    path: /^[/]subscriptions$/,
    query: { "api-version": /^20\d\d-\d\d-\d\d$/, "?$skiptoken": /^2$/ },
    headers: MANAGEMENT,
    answer: ({ query }) => {
      const subscription = (subscriptionId: string) => ({ subscriptionId, displayName: "Yard", state: "Enabled" })
      const version = query.get("api-version")
      return query.get("$skiptoken") === null
        ? { json: { value: [subscription(SUBSCRIPTION)], nextLink: nextPage(`/subscriptions?api-version=${version}`) } }
        : { json: { value: [subscription("bbbb")] } }
    },
  },
  {
    method: "GET",
    host: ARM,
    path: new RegExp(`^[/]subscriptions[/]${SUBSCRIPTION}[/]providers[/]Microsoft[.]Storage[/]storageAccounts$`),
    query: { "api-version": /^20\d\d-\d\d-\d\d$/, "?$skiptoken": /^2$/ },
    headers: MANAGEMENT,
    answer: ({ path, query }) => {
      const account = (name: string, blob: string | undefined = `https://${name}.blob.core.windows.net/`) => ({
        id: `${group}/Microsoft.Storage/storageAccounts/${name}`,
        name,
        location: "westeurope",
        kind: "StorageV2",
        properties: { primaryEndpoints: { blob, file: `https://${name}.file.core.windows.net/` } },
      })
      const filesOnly = {
        ...account("files"),
        properties: { primaryEndpoints: { file: "https://x.file.core.windows.net/" } },
      }
      return query.get("$skiptoken") === null
        ? {
            json: {
              value: [account("shipstore"), filesOnly],
              nextLink: nextPage(`${path}?api-version=${query.get("api-version")}`),
            },
          }
        : { json: { value: [account("otherstore")] } }
    },
  },
  {
    method: "GET",
    host: ARM,
    path: new RegExp(`^[/]subscriptions[/]${SUBSCRIPTION}[/]providers[/]Microsoft[.]ContainerRegistry[/]registries$`),
    query: { "api-version": /^20\d\d-\d\d-\d\d(-preview)?$/ },
    headers: MANAGEMENT,
    answer: () => ({
      json: {
        value: [
          {
            id: `${group}/Microsoft.ContainerRegistry/registries/yard`,
            name: "yard",
            location: "westeurope",
            sku: { name: "Basic", tier: "Basic" },
            properties: { loginServer: "yard.azurecr.io" },
          },
        ],
      },
    }),
  },
  {
    method: "GET",
    host: "yard.azurecr.io",
    path: /^[/]acr[/]v1[/]_catalog$/,
    query: { "?last": /./, "?n": /^[0-9]+$/, "?api-version": /^20\d\d-\d\d-\d\d$/ },
    answer: ({ headers, query }) => {
      if (headers.authorization !== "Bearer acr-access") {
        const challenge =
          'Bearer realm="https://yard.azurecr.io/oauth2/token",service="yard.azurecr.io",scope="registry:catalog:*"'
        return { status: 401, json: { errors: [{ code: "UNAUTHORIZED" }] }, headers: { "www-authenticate": challenge } }
      }
      return query.get("last") === null
        ? { json: { repositories: ["app", "base"] }, headers: { link: '</acr/v1/_catalog?last=base&n=2>; rel="next"' } }
        : { json: { repositories: ["tools/lint"] } }
    },
  },
  {
    method: "POST",
    host: "yard.azurecr.io",
    path: /^[/]oauth2[/]exchange$/,
    query: { "?api-version": /./ },
    body: /grant_type=access_token.*access_token=ey/,
    answer: () => ({ json: { refresh_token: `${token("yard.azurecr.io")}` } }),
  },
  {
    method: "POST",
    host: "yard.azurecr.io",
    path: /^[/]oauth2[/]token$/,
    query: { "?api-version": /./ },
    body: /scope=registry%3Acatalog%3A/,
    answer: () => ({ json: { access_token: "acr-access" } }),
  },
]

let azure: ApiServer
let azurite: Azurite
let agent: Agent
let send: Fetch

beforeAll(async () => {
  ;[azure, azurite] = await Promise.all([startApiServer(AZURE), startAzurite(["shipstore", "otherstore"])])
  const { ca, port } = azurite
  agent = new Agent({
    connect: { ca, lookup: (_host, _options, done) => done(null, [{ address: "127.0.0.1", family: 4 }]) },
  })
  const toBlobs = (input: string, init: RequestInit | undefined) => {
    const url = new URL(input)
    url.port = String(port)
    return dispatchedFetch(url, { ...(init as object), dispatcher: agent }) as unknown as Promise<Response>
  }
  send = (input, init) => {
    const url = String(input instanceof Request ? input.url : input)
    return new URL(url).host.endsWith(".blob.core.windows.net") ? toBlobs(url, init) : azure.send(input, init)
  }
  const containers = { shipstore: ["cargo", "logs"], otherstore: ["models"] }
  for (const [account, names] of Object.entries(containers)) {
    for (const name of names) {
      const headers = { authorization: `Bearer ${token("https://storage.azure.com")}`, "x-ms-version": "2021-10-04" }
      const url = `https://${account}.blob.core.windows.net/${name}?restype=container`
      const made = await send(url, { method: "PUT", headers })
      expect(made.status, await made.text()).toBe(201)
    }
  }
})
afterAll(async () => {
  await Promise.all([azure.stop(), azurite.stop(), agent.close()])
})
afterEach(() => {
  vi.unstubAllEnvs()
  azure.requests.length = 0
  expect(azure.faults.splice(0)).toEqual([])
})

const account = (changes: Partial<typeof FIELDS> = {}) => azureAccounts({ send })({ ...FIELDS, ...changes })

async function answering<T>(path: RegExp, answer: Operation["answer"], work: () => Promise<T>): Promise<T> {
  azure.override(path, answer)
  try {
    return await work()
  } finally {
    azure.override(path, undefined)
  }
}

describe("Azure", () => {
  it("verifies the service principal and its subscription", async () => {
    expect(await account().verify(unending())).toEqual({ account: SUBSCRIPTION })
    const refused = account({ client_secret: "another" }).verify(unending())
    await expect(refused).rejects.toThrow(CredentialsError)
    await expect(refused).rejects.toMatchObject({
      code: "AADSTS7000215",
      message: expect.not.stringContaining("Trace"),
    })
    const hidden: Operation["answer"] = () => ({
      status: 404,
      json: { error: { code: "SubscriptionNotFound", message: "no" } },
    })
    await answering(new RegExp(`[/]subscriptions[/]${SUBSCRIPTION}$`), hidden, async () => {
      await expect(account().verify(unending())).rejects.toThrow("give it a role there")
    })
  })

  it("names required VM actions that no role allows, on all pages of roles", async () => {
    const lacking =
      "Microsoft.Authorization/roleAssignments/write, Microsoft.Resources/subscriptions/resourceGroups/write"
    expect(await account().capabilities?.({ regions: [] }, unending())).toMatchObject({
      vms: { is: "denied", message: expect.stringContaining(`lacks the actions ${lacking}: add them`) },
      buckets: { is: "granted" },
      repositories: { is: "granted" },
    })
  })

  it("makes no statement about VMs if Azure does not return the permissions", async () => {
    await answering(
      /permissions$/,
      () => ({ status: 503, json: {} }),
      async () =>
        expect(await account().capabilities?.({ regions: [] }, unending())).toMatchObject({
          vms: { is: "unanswered", message: expect.stringContaining("HTTP 503") },
          buckets: { is: "unanswered" },
        }),
    )
  })

  it("lists the containers of all pages of storage accounts, on a real blob server", async () => {
    const { items, error } = await collect(account().storages?.(unending()))
    expect(error).toBeUndefined()
    expect(items.map(({ name }) => name).sort()).toEqual(["otherstore/models", "shipstore/cargo", "shipstore/logs"])
    expect(items.find(({ name }) => name === "shipstore/cargo")).toEqual({
      id: `${group}/Microsoft.Storage/storageAccounts/shipstore/blobServices/default/containers/cargo`,
      name: "shipstore/cargo",
      platform: "azure-blob",
      type: "container",
      metadata: { region: "westeurope", modified: expect.stringMatching(/^20.*Z$/) },
    })
  })

  it("finds a container by the name of its account and its own", async () => {
    expect(await account().bucket?.("shipstore/cargo", unending())).toEqual({})
    for (const name of ["shipstore/nothing", "cargo", "shipstore/../x", "evil.example/cargo", "ship.store/cargo"])
      expect(await account().bucket?.(name, unending()), name).toBeUndefined()
  })

  it("lists all pages of a registry's repositories after the registry's sign-in", async () => {
    const { items, error } = await collect(account().repositories?.(unending()))
    expect(error).toBeUndefined()
    expect(items.map(({ name }) => name)).toEqual(
      ["app", "base", "tools/lint"].map((name) => `yard.azurecr.io/${name}`),
    )
    expect(items[0]).toMatchObject({ platform: "acr", type: "repository", metadata: { region: "westeurope" } })
  })

  it("lists all pages of subscriptions", async () => {
    const { items } = await collect(account().virtualMachinePools?.(unending()))
    expect(items).toEqual([
      {
        id: `/subscriptions/${SUBSCRIPTION}`,
        name: SUBSCRIPTION,
        platform: "azure",
        type: "subscription",
        metadata: { display_name: "Yard", state: "Enabled" },
      },
      {
        id: "/subscriptions/bbbb",
        name: "bbbb",
        platform: "azure",
        type: "subscription",
        metadata: { display_name: "Yard", state: "Enabled" },
      },
    ])
  })

  it("keeps the pages before a failing one, and reports the error in Azure's words", async () => {
    const second: Operation["answer"] = ({ query }) =>
      query.get("$skiptoken") === null
        ? { json: { value: [{ subscriptionId: "aaaa" }], nextLink: nextPage("/subscriptions?api-version=2022-12-01") } }
        : { status: 403, json: { error: { code: "AuthorizationFailed", message: "may not\nperform" } } }
    const { items, error } = await answering(/[/]subscriptions$/, second, () =>
      collect(account().virtualMachinePools?.(unending())),
    )
    expect(items.map(({ name }) => name)).toEqual(["aaaa"])
    expect(error).toBeInstanceOf(CredentialsError)
    expect(error).toMatchObject({ code: "AuthorizationFailed" })
  })

  it("sends tokens only to Azure's hosts, whatever a response names", async () => {
    vi.stubEnv("AZURE_AUTHORITY_HOST", "https://login.attacker.example")
    const elsewhere: Operation["answer"] = () => ({
      json: {
        value: [{ id: "x", name: "x", properties: { primaryEndpoints: { blob: "https://x.blob.attacker.example/" } } }],
      },
    })
    const { items, error } = await answering(/storageAccounts$/, elsewhere, () =>
      collect(account().storages?.(unending())),
    )
    expect(items).toEqual([])
    expect(error).toBeInstanceOf(InvalidRequestError)
    expect((error as Error).message).toContain("not one of the provider's hosts")
    const redirect: Operation["answer"] = () => ({
      status: 307,
      text: "",
      headers: { location: "http://169.254.169.254/" },
    })
    const redirected = await answering(/[/]subscriptions$/, redirect, () =>
      collect(account().virtualMachinePools?.(unending())),
    )
    expect(redirected.error).toMatchObject({ code: "Redirected" })
  })

  it("reports a missing response of Azure as a temporary error, and ends when it is aborted", async () => {
    await answering(
      /[/]subscriptions$/,
      () => "reset",
      async () => {
        const { error } = await collect(account().virtualMachinePools?.(unending()))
        expect(error).toBeInstanceOf(TransientError)
      },
    )
    for (const answer of ["reset", { status: 503, text: "<html>" }] as const) {
      await answering(
        /token$/,
        () => answer,
        async () => {
          await expect(account().verify(unending())).rejects.toThrow(TransientError)
        },
      )
    }
    const giveUp = new AbortController()
    const hang: Operation["answer"] = () => {
      giveUp.abort()
      return "hang"
    }
    const { error } = await answering(/token$/, hang, () => collect(account().virtualMachinePools?.(giveUp.signal)))
    expect(error).toMatchObject({ code: "Aborted" })
  })
})
