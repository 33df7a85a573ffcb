import { generateKeyPairSync, verify } from "node:crypto"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { gcpAccounts } from "../../src/clouds/gcp/account.ts"
import { CredentialsError, InvalidRequestError, TransientError } from "../../src/core/outbound/errors.ts"
import { type ApiServer, collect, type Operation, startApiServer, unending } from "./api-server.ts"

const PROJECT = "ship-yard"
const EMAIL = `berth@${PROJECT}.iam.gserviceaccount.com`
const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })

const keyfile = (changes: object = {}) =>
  JSON.stringify({
    type: "service_account",
    project_id: PROJECT,
    private_key_id: "key-1",
    private_key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    client_email: EMAIL,
    token_uri: "https://oauth2.googleapis.com/token",
    universe_domain: "googleapis.com",
    ...changes,
  })

/** True if it is a JWT signed with the key. */
function isSigned(token: string): boolean {
  const [header = "", claims = "", signature = ""] = token.split(".")
  const data = Buffer.from(`${header}.${claims}`)
  const { iss, exp } = JSON.parse(Buffer.from(claims, "base64url").toString() || "{}") as { iss?: string; exp?: number }
  const isOurs = iss === EMAIL && Number(exp) * 1000 > Date.now()
  return isOurs && verify("RSA-SHA256", data, publicKey, Buffer.from(signature, "base64url"))
}

const ISSUED = "ya29.of-a-test"
const BEARER = { authorization: /^Bearer (ya29\.of-a-test|ey[^.]+\.[^.]+\.[^.]+)$/ }
const PAGING = { "?pageSize": /^[0-9]+$/, "?pageToken": /./, "?$alt": /^json/ }

/**
 * References: https://developers.google.com/identity/protocols/oauth2/service-account,
 * https://cloud.google.com/storage/docs/json_api/v1/buckets/list,
 * https://cloud.google.com/artifact-registry/docs/reference/rest,
 * https://cloud.google.com/resource-manager/reference/rest/v3/projects/search.
 */
const GOOGLE: Operation[] = [
  {
    method: "POST",
    host: "oauth2.googleapis.com",
    path: /^[/]token$/,
    body: /^grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=[^&]+$/,
    answer: ({ body }) => {
      const assertion = new URLSearchParams(body).get("assertion") ?? ""
      if (isSigned(assertion)) return { json: { access_token: ISSUED, expires_in: 3599, token_type: "Bearer" } }
      return { status: 400, json: { error: "invalid_grant", error_description: "Invalid JWT Signature." } }
    },
  },
  {
    method: "GET",
    host: "storage.googleapis.com",
    path: /^[/]storage[/]v1[/]b$/,
    query: { project: /^ship-yard$/, "?maxResults": /^[0-9]+$/, "?pageToken": /^2$/ },
    headers: BEARER,
    answer: ({ query }) =>
      query.get("pageToken") === null
        ? { json: { items: [{ name: "first", location: "EUROPE-WEST1" }], nextPageToken: "2" } }
        : { json: { items: [{ name: "second", location: "EU" }] } },
  },
  {
    method: "GET",
    host: "artifactregistry.googleapis.com",
    path: /^[/]v1[/]projects[/]ship-yard[/]locations$/,
    query: PAGING,
    headers: BEARER,
    answer: ({ query }) => {
      const location = (locationId: string) => ({ name: `projects/${PROJECT}/locations/${locationId}`, locationId })
      return query.get("pageToken") === null
        ? { json: { locations: [location("us"), location("europe-west1")], nextPageToken: "2" } }
        : { json: { locations: [location("asia-east1")] } }
    },
  },
  {
    method: "GET",
    host: "artifactregistry.googleapis.com",
    path: /^[/]v1[/](projects[/]ship-yard[/]locations[/]([a-z0-9-]+))[/]repositories$/,
    query: PAGING,
    headers: BEARER,
    answer: ({ query }, match) => {
      const repository = (name: string, format = "DOCKER") => ({
        name: `${match[1]}/repositories/${name}`,
        format,
        createTime: "2026-01-02T03:04:05.678Z",
        sizeBytes: "4096",
      })
      if (match[2] !== "us") return { json: match[2] === "asia-east1" ? {} : { repositories: [repository("eu")] } }
      return query.get("pageToken") === null
        ? { json: { repositories: [repository("first"), repository("wheels", "PYTHON")], nextPageToken: "2" } }
        : { json: { repositories: [repository("second")] } }
    },
  },
  {
    method: "GET",
    host: "cloudresourcemanager.googleapis.com",
    path: /^[/]v3[/]projects:search$/,
    query: { ...PAGING, query: /^state:ACTIVE$/ },
    headers: BEARER,
    answer: ({ query }) => {
      const project = (projectId: string) => ({
        name: "projects/415104041262",
        projectId,
        state: "ACTIVE",
        displayName: "The Yard",
        createTime: "2020-01-02T03:04:05Z",
      })
      return query.get("pageToken") === null
        ? { json: { projects: [project(PROJECT)], nextPageToken: "2" } }
        : { json: { projects: [project("other-yard")] } }
    },
  },
]

/** The SDKs of some APIs send a JWT of their own as the token. Google accepts that too. */
const signedOnly = (operation: Operation): Operation => ({
  ...operation,
  answer: (request, match) => {
    const token = String(request.headers.authorization ?? "").replace(/^Bearer /, "")
    if (token === "" || token === ISSUED || isSigned(token)) return operation.answer(request, match)
    const message = "Request had invalid authentication credentials."
    return { status: 401, json: { error: { code: 401, message, status: "UNAUTHENTICATED" } } }
  },
})

let google: ApiServer
beforeAll(async () => {
  google = await startApiServer(GOOGLE.map(signedOnly))
})
afterAll(() => google.stop())
beforeEach(() => {
  google.requests.length = 0
})
afterEach(() => {
  vi.unstubAllEnvs()
  expect(google.faults.splice(0)).toEqual([])
})

const account = (keyfile_json = keyfile()) =>
  gcpAccounts({ send: google.send })({ gcp_project_id: PROJECT, keyfile_json })

async function answering<T>(path: RegExp, answer: Operation["answer"], work: () => Promise<T>): Promise<T> {
  google.override(path, answer)
  try {
    return await work()
  } finally {
    google.override(path, undefined)
  }
}

describe("Google Cloud", () => {
  it("verifies the key with Google's own token endpoint", async () => {
    expect(await account().verify(unending())).toEqual({ account: PROJECT })
    expect(google.requests.map(({ host, path }) => host + path)).toEqual(["oauth2.googleapis.com/token"])
  })

  it("lists all pages of buckets", async () => {
    const { items, error } = await collect(account().storages?.(unending()))
    expect(error).toBeUndefined()
    expect(items.map(({ name, metadata }) => [name, metadata["region"]])).toEqual([
      ["first", "europe-west1"],
      ["second", "eu"],
    ])
  })

  it("lists all pages of Docker repositories in all pages of locations", async () => {
    const { items, error } = await collect(account().repositories?.(unending()))
    expect(error).toBeUndefined()
    expect(items.map(({ name }) => name).sort()).toEqual([
      "europe-west1-docker.pkg.dev/ship-yard/eu",
      "us-docker.pkg.dev/ship-yard/first",
      "us-docker.pkg.dev/ship-yard/second",
    ])
    expect(items.find(({ name }) => name.endsWith("/first"))).toMatchObject({
      id: "//artifactregistry.googleapis.com/projects/ship-yard/locations/us/repositories/first",
      platform: "artifact-registry",
      type: "repository",
      metadata: { region: "us", created: "2026-01-02T03:04:05.000Z", size: 4096 },
    })
  })

  it("keeps the other locations when one fails, and names it", async () => {
    const { items, error } = await answering(
      /us[/]repositories/,
      () => ({ status: 503, text: "<html>" }),
      () => collect(account().repositories?.(unending())),
    )
    expect(items.map(({ name }) => name)).toEqual(["europe-west1-docker.pkg.dev/ship-yard/eu"])
    expect(error).toBeInstanceOf(TransientError)
    expect((error as Error).message).toBe("Artifact Registry in us: Google answered with HTTP 503")
  })

  it("lists all pages of the projects that the key can see", async () => {
    const { items, error } = await collect(account().virtualMachinePools?.(unending()))
    expect(error).toBeUndefined()
    expect(items.map(({ name }) => name)).toEqual([PROJECT, "other-yard"])
    expect(items[0]).toMatchObject({
      id: "//cloudresourcemanager.googleapis.com/projects/415104041262",
      platform: "gcp",
      type: "project",
      metadata: { display_name: "The Yard", created: "2020-01-02T03:04:05.000Z" },
    })
  })

  it("reports a denied permission in Google's words", async () => {
    const message = "Cloud Resource Manager API has not been used in project 1 before or it is disabled."
    const details = [
      { "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason: "SERVICE_DISABLED", domain: "googleapis.com" },
    ]
    const disabled: Operation["answer"] = () => ({
      status: 403,
      json: { error: { code: 403, message, status: "PERMISSION_DENIED", details } },
    })
    const { error } = await answering(/projects:search/, disabled, () =>
      collect(account().virtualMachinePools?.(unending())),
    )
    expect(error).toBeInstanceOf(CredentialsError)
    expect(error).toMatchObject({ code: "SERVICE_DISABLED", message })
  })
})

describe("a key file of Google", () => {
  it("rejects a deleted Google key with an error that contains no part of the key", async () => {
    const other = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey.export({
      type: "pkcs8",
      format: "pem",
    })
    const foreign = account(keyfile({ private_key: other.toString() }))
    const refused = await foreign.verify(unending()).catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(CredentialsError)
    expect(refused).toMatchObject({ code: "invalid_grant" })
    for (const sort of ["storages", "repositories", "virtualMachinePools"] as const) {
      expect(await collect(foreign[sort]?.(unending())), sort).toEqual({
        items: [],
        error: expect.any(CredentialsError),
      })
    }
    await expect(foreign.bucket?.("beta", unending())).rejects.toThrow(CredentialsError)
  })

  it.each([
    ["that is not JSON", "{"],
    ["of another type", keyfile({ type: "external_account" })],
    ["without a key", keyfile({ private_key: undefined })],
    ["with an invalid key", keyfile({ private_key: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" })],
  ])("rejects a key file %s before any request", async (_, content) => {
    const refused = account(content).verify(unending())
    await expect(refused).rejects.toThrow(CredentialsError)
    await expect(refused).rejects.toThrow(/create a new key|create a JSON key|create a new one/)
    expect(google.requests).toEqual([])
  })

  it("sends requests only to Google's own addresses, whatever address a key file contains", async () => {
    vi.stubEnv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")
    vi.stubEnv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "attacker.example")
    const tricked = account(keyfile({ token_uri: "http://127.0.0.1:1/token", universe_domain: "attacker.example" }))
    expect((await collect(tricked.storages?.(unending()))).items).toHaveLength(2)
    const hosts = new Set(["oauth2.googleapis.com", "storage.googleapis.com"])
    expect(new Set(google.requests.map(({ host }) => host))).toEqual(hosts)
  })

  it("sends no key to a host that Google redirects to", async () => {
    const redirect: Operation["answer"] = () => ({
      status: 302,
      text: "",
      headers: { location: "http://127.0.0.1:1/" },
    })
    await answering(/token$/, redirect, async () => {
      await expect(account().verify(unending())).rejects.toThrow(InvalidRequestError)
    })
    const { error } = await answering(/projects:search/, redirect, () =>
      collect(account().virtualMachinePools?.(unending())),
    )
    expect(error).toMatchObject({ code: "Redirected" })
  })

  it("reports a missing response of Google as a temporary error, and ends when it is aborted", async () => {
    await answering(
      /token$/,
      () => "reset",
      async () => {
        await expect(account().verify(unending())).rejects.toThrow(TransientError)
      },
    )
    const giveUp = new AbortController()
    const hang: Operation["answer"] = () => {
      giveUp.abort()
      return "hang"
    }
    const { error } = await answering(/projects:search/, hang, () =>
      collect(account().virtualMachinePools?.(giveUp.signal)),
    )
    expect(error).toMatchObject({ code: "Aborted" })
  })
})
