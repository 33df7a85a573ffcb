import { generateKeyPairSync } from "node:crypto"
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest"
import { azureRegistries } from "../../src/clouds/azure/container-registry.ts"
import { dockerHubRegistry } from "../../src/clouds/dockerhub/account.ts"
import { artifactRegistries } from "../../src/clouds/gcp/artifact-registry.ts"
import { githubRegistry } from "../../src/clouds/github/account.ts"
import { pullAccess } from "../../src/clouds/registries/pulls.ts"
import { challengeIn } from "../../src/clouds/registries/registry.ts"
import type { RegistryOpener } from "../../src/clouds/registry-access.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { parseImage } from "../../src/core/apis/image.ts"
import { CredentialsError, InvalidRequestError } from "../../src/core/outbound/errors.ts"
import { type ApiServer, type Operation, startApiServer, unending } from "./api-server.ts"

const TENANT = "11111111-2222-3333-4444-555555555555"
const AZURE = { tenant_id: TENANT, client_id: TENANT, client_secret: "a~Secret-of.a_test", subscription_id: TENANT }
const TOKEN_USER = "00000000-0000-0000-0000-000000000000"
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })
const KEYFILE = {
  type: "service_account",
  private_key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  client_email: "berth@yard.iam.gserviceaccount.com",
}

/** A registry with a token service for one user, according to its own documentation of signing in. */
function registry(host: string, realm: string, service: string, basic: string): Operation[] {
  const { host: realmHost, pathname } = new URL(realm)
  const authorization = new RegExp(`^Basic ${Buffer.from(basic).toString("base64").replace(/[+/=]/g, "\\$&")}$`)
  const challenge = `Bearer realm="${realm}",service="${service}"`
  return [
    {
      method: "GET",
      host,
      path: /^[/]v2[/]$/,
      answer: () => ({ status: 401, json: { errors: [] }, headers: { "www-authenticate": challenge } }),
    },
    {
      method: "GET",
      host: realmHost,
      path: new RegExp(`^${pathname}$`),
      query: { service: new RegExp(`^${service.replaceAll(".", "\\.")}$`), scope: /^repository:acme[/]app:pull$/ },
      headers: { authorization },
      answer: () => ({ json: { token: `pull-from-${host}`, expires_in: 300 } }),
    },
    {
      method: "HEAD",
      host,
      path: /^[/]v2[/]acme[/]app[/]manifests[/]1$/,
      headers: {
        authorization: new RegExp(`^Bearer pull-from-${host}$`),
        accept: /oci\.image\.index.*docker.*manifest\.list/,
      },
      answer: () => ({ text: "", headers: { "docker-content-digest": `sha256:${"a".repeat(64)}` } }),
    },
  ]
}

/**
 * References: https://docs.docker.com/docker-hub, https://docs.github.com/packages,
 * https://cloud.google.com/artifact-registry/docs/docker/authentication,
 * https://learn.microsoft.com/azure/container-registry/container-registry-authentication,
 * https://github.com/Azure/acr/blob/main/docs/AAD-OAuth.md
 */
const OPERATIONS: Operation[] = [
  ...registry("registry-1.docker.io", "https://auth.docker.io/token", "registry.docker.io", "acme:dckr_pat_1"),
  ...registry("ghcr.io", "https://ghcr.io/token", "ghcr.io", "octo:ghp_1"),
  ...registry(
    "europe-docker.pkg.dev",
    "https://europe-docker.pkg.dev/v2/token",
    "europe-docker.pkg.dev",
    "oauth2accesstoken:ya29.1",
  ),
  ...registry("yard.azurecr.io", "https://yard.azurecr.io/oauth2/token", "yard.azurecr.io", `${TOKEN_USER}:refresh.1`),
  {
    method: "POST",
    host: "oauth2.googleapis.com",
    path: /^[/]token$/,
    body: /^grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=[^&]+$/,
    answer: () => ({ json: { access_token: "ya29.1", expires_in: 3599, token_type: "Bearer" } }),
  },
  {
    method: "GET",
    host: "login.microsoftonline.com",
    path: /openid-configuration$/,
    answer: () => ({
      json: {
        issuer: `https://login.microsoftonline.com/${TENANT}/v2.0`,
        authorization_endpoint: `https://login.microsoftonline.com/${TENANT}/oauth2/v2.0/authorize`,
        token_endpoint: `https://login.microsoftonline.com/${TENANT}/oauth2/v2.0/token`,
      },
    }),
  },
  {
    method: "POST",
    host: "login.microsoftonline.com",
    path: /[/]oauth2[/]v2\.0[/]token$/,
    query: { "?client-request-id": /./ },
    body: /grant_type=client_credentials/,
    answer: () => ({ json: { token_type: "Bearer", expires_in: 3599, access_token: "aad.1" } }),
  },
  {
    method: "POST",
    host: "yard.azurecr.io",
    path: /^[/]oauth2[/]exchange$/,
    headers: { "content-type": /^application[/]x-www-form-urlencoded/ },
    body: new RegExp(`^grant_type=access_token&service=yard\\.azurecr\\.io&tenant=${TENANT}&access_token=aad\\.1$`),
    answer: () => ({ json: { refresh_token: "refresh.1" } }),
  },
]

let server: ApiServer
beforeAll(async () => {
  server = await startApiServer(OPERATIONS)
})
afterAll(() => server.stop())
afterEach(() => {
  server.override(/^[/]v2[/]$/, undefined)
  server.override(/^[/]oauth2[/]exchange$/, undefined)
})

function access(opener: RegistryOpener, image: string, credentials: Record<string, string>) {
  const scope = { ...parseImage(image), launch: "job-1" }
  expect(opener.serves(scope.registry)).toBe(true)
  return pullAccess(opener, { credentials, scope }, { signal: unending(), clock: systemClock, send: server.send })
}

describe("a pull token for one image", () => {
  const hub = { username: "acme", token: "dckr_pat_1" }
  it.each<[string, () => RegistryOpener, string, Record<string, string>]>([
    ["Docker Hub", () => dockerHubRegistry, "acme/app:1", hub],
    ["GitHub", () => githubRegistry, "ghcr.io/acme/app:1", { username: "octo", token: "ghp_1" }],
    [
      "Artifact Registry",
      () => artifactRegistries({ send: server.send }),
      "europe-docker.pkg.dev/acme/app:1",
      { gcp_project_id: "yard", keyfile_json: JSON.stringify(KEYFILE) },
    ],
    ["Azure", () => azureRegistries({ send: server.send }), "yard.azurecr.io/acme/app:1", AZURE],
  ])("returns a pull token for one image of %s", async (_, opener, image, credentials) => {
    const given = await access(opener(), image, credentials)
    expect(given).toEqual({ token: expect.stringMatching(/^pull-from-/), expiration: expect.any(String) })
    expect(server.faults.splice(0)).toEqual([])
  })

  it("requests no pull token if the registry sends the login elsewhere, or without encryption", async () => {
    for (const realm of ["https://attacker.example/token", "http://auth.docker.io/token"]) {
      const header = { "www-authenticate": `Bearer realm="${realm}",service="registry.docker.io"` }
      server.override(/^[/]v2[/]$/, () => ({ status: 401, json: {}, headers: header }))
      await expect(access(dockerHubRegistry, "acme/app:1", hub)).rejects.toBeInstanceOf(InvalidRequestError)
    }
    expect(server.requests.some(({ host }) => host === "attacker.example")).toBe(false)
  })

  it.each(["acme/../app:1", "acme/app?x=1:1", "acme/app:1/../../x", "docker.io@attacker.example/app", "acme/App"])(
    "requests no pull token if %s is not an image name",
    async (image) => {
      server.requests.length = 0
      const scope = { ...parseImage(image), launch: "job-1" }
      const options = { signal: unending(), clock: systemClock, send: server.send }
      await expect(pullAccess(dockerHubRegistry, { credentials: hub, scope }, options)).rejects.toThrow(
        /is not an image/,
      )
      expect(server.requests).toEqual([])
    },
  )

  it("reports a rejected login without any secret", async () => {
    server.override(/^[/]oauth2[/]exchange$/, () => ({ status: 401, json: { errors: [{ code: "UNAUTHORIZED" }] } }))
    const refused = access(azureRegistries({ send: server.send }), "yard.azurecr.io/acme/app:1", AZURE)
    await expect(refused).rejects.toBeInstanceOf(CredentialsError)
    await expect(refused).rejects.toThrow(/^yard\.azurecr\.io rejected the service principal's token$/)
  })

  it("sends logins only to registries of the account's type, whatever name others use", () => {
    const google = artifactRegistries()
    for (const host of ["gcr.io", "eu.gcr.io", "us-central1-docker.pkg.dev"]) expect(google.serves(host)).toBe(true)
    for (const host of ["gcr.io.evil.example", "docker.pkg.dev.evil.example"]) expect(google.serves(host)).toBe(false)
    expect(azureRegistries().serves("yard.azurecr.io.evil.example")).toBe(false)
    expect(githubRegistry.serves("docker.io")).toBe(false)
  })
})

describe("a registry's challenge", () => {
  it.each([
    ['Basic realm="registry"', { scheme: "basic" }],
    [
      'Bearer realm="https://r.example/token",service="r"',
      { scheme: "bearer", realm: "https://r.example/token", service: "r" },
    ],
    [
      'Basic realm="r", bearer Realm="https://r.example/token"',
      { scheme: "bearer", realm: "https://r.example/token", service: "" },
    ],
    ["Negotiate", undefined],
    ['Bearer service="r"', undefined],
  ])("accepts or ignores the challenge %s", (header, challenge) => {
    expect(challengeIn(header)).toEqual(challenge)
  })
})
