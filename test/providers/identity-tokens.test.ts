import { once } from "node:events"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import express from "express"
import { decodeJwt } from "jose"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { createFederation } from "../../src/accounts/credentials.ts"
import { problemHandler } from "../../src/api/http/problem.ts"
import { requestLog } from "../../src/api/http/request-log.ts"
import { identityRouter } from "../../src/api/identity-documents.ts"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { awsBuckets } from "../../src/clouds/aws/bucket-credentials.ts"
import { AssumedRoles } from "../../src/clouds/aws/temporary-keys.ts"
import { azureAccounts } from "../../src/clouds/azure/account.ts"
import { gcpAccounts } from "../../src/clouds/gcp/account.ts"
import { gcsBuckets } from "../../src/clouds/gcp/bucket-credentials.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { ensureIdentityKeys, IdentityIssuer } from "../../src/core/identity/identity-tokens.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { CredentialsError, TransientError } from "../../src/core/outbound/errors.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import {
  type ApiAnswer,
  type ApiRequest,
  type ApiServer,
  collect,
  type Operation,
  startApiServer,
  unending,
} from "./api-server.ts"
import { type StsFront, startStsFront } from "./sts-front.ts"
import { verifyAsCloud } from "./trust.ts"

const systemNamespace = testNamespace("identity-tokens")
let client: KubeClient
let server: Server
let identity: IdentityIssuer

beforeAll(async () => {
  client = new KubeClient(kubeConfig())
  const app = express()
  app.use(requestLog(silentLogger))
  app.use("/.well-known", (req, res, next) => identityRouter(identity)(req, res, next))
  app.use(problemHandler)
  server = createServer(app).listen(0, "127.0.0.1")
  await once(server, "listening")
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  identity = new IdentityIssuer({ client, systemNamespace, issuer, clock: systemClock })
})
afterAll(async () => {
  server.close()
  await client.close()
})

const project = (name: string, uid: string) => ({ metadata: { name, uid } }) as Parameters<typeof createFederation>[0]
const ACME = createFederation(project("acme", "6a1f111d-0000-4000-8000-000000000001"), "main")
const EVIL = createFederation(project("evil", "6a1f111d-0000-4000-8000-000000000002"), "main")

describe("the subject of a connection", () => {
  it("names project and connection, and ends with an id that a later project of that name does not have", () => {
    expect(ACME.identity_subject).toBe(`acme:main:${ACME.external_id}`)
    const later = createFederation(project("acme", "6a1f111d-0000-4000-8000-000000000003"), "main")
    expect(later.identity_subject).not.toBe(ACME.identity_subject)
    expect(createFederation(project("acme", "6a1f111d-0000-4000-8000-000000000001"), "other").external_id).not.toBe(
      ACME.external_id,
    )
  })

  it("has at most the 127 bytes that Google accepts", () => {
    const long = createFederation(project("p".repeat(63), "u"), "c".repeat(63))
    expect(Buffer.byteLength(long.identity_subject)).toBeLessThanOrEqual(127)
    expect(long.identity_subject).toContain(long.external_id)
  })
})

describe("the issuer", () => {
  it("answers 503 until the operator has created the keys", async () => {
    expect((await fetch(`${identity.issuer}/.well-known/jwks.json`)).status).toBe(503)
    await expect(identity.token("a", "b")).rejects.toThrow(/berth-identity-keys/)
    await ensureIdentityKeys(client, systemNamespace)
    expect((await fetch(`${identity.issuer}/.well-known/jwks.json`)).status).toBe(200)
  })

  it("issues tokens that verify by its documents, for one subject and audience, for ten minutes", async () => {
    const token = await identity.token("acme:main:1", "sts.amazonaws.com")
    const trust = { issuer: identity.issuer, subject: "acme:main:1", audience: "sts.amazonaws.com" }
    await verifyAsCloud(token, trust)
    await expect(verifyAsCloud(token, { ...trust, subject: "evil:main:1" })).rejects.toThrow(/sub/)
    await expect(verifyAsCloud(token, { ...trust, audience: "api://other" })).rejects.toThrow(/aud/)
    const { iat = 0, exp = 0, jti } = decodeJwt(token)
    expect(exp - iat).toBe(600)
    expect(jti).toMatch(/^[0-9a-f-]{36}$/)
  })

  it("publishes no private part of a key", async () => {
    const { keys } = (await (await fetch(`${identity.issuer}/.well-known/jwks.json`)).json()) as { keys: object[] }
    expect(keys.map((key) => Object.keys(key).sort())).toEqual([["alg", "e", "kid", "kty", "n", "use"]])
  })

  it("keeps its keys when the operator starts again", async () => {
    const read = () => client.get(SECRETS, { namespace: systemNamespace, name: "berth-identity-keys" })
    const before = await read()
    await ensureIdentityKeys(client, systemNamespace)
    expect((await read()).data).toEqual(before.data)
  })
})

const aws = needing(missingTool("moto"))

aws.describe("AWS by a role", () => {
  const ROLE = "arn:aws:iam::123456789012:role/berth"
  let moto: Moto
  let front: StsFront
  const account = (fields: Record<string, string>) =>
    awsAccounts({ endpoint: front.url, roles: new AssumedRoles({ tokens: identity, endpoint: front.url }) })(fields)

  beforeAll(async () => {
    await ensureIdentityKeys(client, systemNamespace)
    moto = await startMoto()
    front = await startStsFront(moto.url)
  })
  beforeEach(() => {
    const { identity_subject: subject } = ACME
    front.roles.clear()
    front.roles.set(ROLE, { issuer: identity.issuer, subject, audience: "sts.amazonaws.com" })
    front.actions.length = 0
  })
  afterAll(async () => {
    await front.stop()
    await moto.stop()
  })

  it("opens the account that trusts the connection's subject, and no key is stored", async () => {
    expect(await account({ role_arn: ROLE, ...ACME }).verify(unending())).toEqual({ account: "123456789012" })
    expect(front.actions).toEqual(["AssumeRoleWithWebIdentity"])
  })

  it("is refused for another project that names the same role, and the error says what to trust", async () => {
    const refused = account({ role_arn: ROLE, ...EVIL }).verify(unending())
    await expect(refused).rejects.toBeInstanceOf(CredentialsError)
    await expect(refused).rejects.toThrow(`its trust policy must allow the subject ${EVIL.identity_subject}`)
  })

  it("assumes the role once for many calls", async () => {
    const roles = new AssumedRoles({ tokens: identity, endpoint: front.url })
    for (const region of ["us-east-1", "eu-west-1"]) await roles.keyOf({ role_arn: ROLE, ...ACME }, region)
    expect(front.actions).toHaveLength(1)
  })

  it("assumes the role once for concurrent calls, and again after a failure", async () => {
    const roles = new AssumedRoles({ tokens: identity, endpoint: front.url })
    const both = () => Promise.allSettled(["us-east-1", "eu-west-1"].map((region) => roles.keyOf(credentials, region)))
    const credentials = { role_arn: ROLE, ...ACME }
    const trust = front.roles.get(ROLE)
    front.roles.delete(ROLE)
    expect((await both()).map(({ status }) => status)).toEqual(["rejected", "rejected"])
    expect(front.actions).toHaveLength(1)
    if (trust !== undefined) front.roles.set(ROLE, trust)
    expect((await both()).map(({ status }) => status)).toEqual(["fulfilled", "fulfilled"])
    expect(front.actions).toHaveLength(2)
  })

  it("issues keys for buckets by the role, with the session policy", async () => {
    const roles = new AssumedRoles({ tokens: identity, endpoint: front.url })
    const scope = { bucket: "data", prefix: "run", launch: "job-1", region: "us-east-1", lifetimeSeconds: 3600 }
    const access = awsBuckets({ endpoint: front.url, roles })
    const given = await access({ role_arn: ROLE, ...ACME }, scope, unending())
    expect(given).toMatchObject({ path: "data/run", keys: { sessionToken: expect.any(String) } })
    expect(Date.parse(given.expiration ?? "")).toBeGreaterThan(Date.now())
  })

  it("assumes the role by a key only with the connection's own external id", async () => {
    const key = { access_key_id: "AKIAOFATEST000000000", secret_access_key: "a-secret-of-a-test", role_arn: ROLE }
    front.roles.set(ROLE, { externalId: ACME.external_id })
    expect(await account({ ...key, ...ACME }).verify(unending())).toEqual({ account: "123456789012" })
    expect(front.actions).toEqual(["AssumeRole"])
    await expect(account({ ...key, ...EVIL }).verify(unending())).rejects.toThrow(`external id ${EVIL.external_id}`)
  })

  it("fails with advice in an installation without an issuer", async () => {
    const refused = awsAccounts({ endpoint: front.url })({ role_arn: ROLE, ...ACME }).verify(unending())
    await expect(refused).rejects.toThrow(/--identity-issuer/)
  })
})

const PROVIDER = "projects/123/locations/global/workloadIdentityPools/berth/providers/berth"
const ACCOUNT = "berth@yard.iam.gserviceaccount.com"
const TENANT = "11111111-2222-3333-4444-555555555555"

/** Subject that the service account, or the application, trusts. */
const trusted = { google: ACME.identity_subject, azure: ACME.identity_subject }

/** Returns the reason why a cloud rejects the token; undefined if it accepts it. */
async function rejection(token: string, trust: { subject: string; audience: string }): Promise<string | undefined> {
  try {
    await verifyAsCloud(token, { issuer: identity.issuer, ...trust })
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

/**
 * References: https://cloud.google.com/iam/docs/reference/sts/rest/v1/TopLevel/token,
 * https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken,
 * https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow (third case)
 */
const OPERATIONS: Operation[] = [
  {
    method: "POST",
    host: "sts.googleapis.com",
    path: /^[/]v1[/]token$/,
    answer: (request) => (request.headers["content-type"] === "application/json" ? exchanged(request) : downscoped()),
  },
  {
    method: "POST",
    host: "iamcredentials.googleapis.com",
    path: /^[/]v1[/]projects[/]-[/]serviceAccounts[/]([^/]+):generateAccessToken$/,
    headers: { authorization: /^Bearer federated:/ },
    answer: (request, match) => impersonated(request, decodeURIComponent(match[1] ?? "")),
  },
  {
    method: "GET",
    host: "storage.googleapis.com",
    path: /^[/]storage[/]v1[/]b$/,
    query: { project: /^yard$/, maxResults: /./ },
    headers: { authorization: /^Bearer impersonated$/ },
    answer: () => ({ json: { items: [{ name: "data", location: "EUROPE-WEST1" }] } }),
  },
  {
    method: "GET",
    host: "login.microsoftonline.com",
    path: /openid-configuration$/,
    answer: () => ({
      json: {
        issuer: `${ENTRA}/v2.0`,
        authorization_endpoint: `${ENTRA}/oauth2/v2.0/authorize`,
        token_endpoint: `${ENTRA}/oauth2/v2.0/token`,
      },
    }),
  },
  {
    method: "POST",
    host: "login.microsoftonline.com",
    path: /[/]oauth2[/]v2\.0[/]token$/,
    query: { "?client-request-id": /./ },
    body: /(?=.*grant_type=client_credentials)(?=.*client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer)(?=.*client_assertion=)/,
    answer: signedInToEntra,
  },
  {
    method: "GET",
    host: "management.azure.com",
    path: new RegExp(`^/subscriptions/${TENANT}$`),
    query: { "api-version": /./ },
    headers: { authorization: /^Bearer aad\.1$/ },
    answer: () => ({ json: { subscriptionId: TENANT, state: "Enabled" } }),
  },
  {
    method: "GET",
    host: "management.azure.com",
    path: new RegExp(`^/subscriptions/${TENANT}/providers/Microsoft.Authorization/permissions$`),
    query: { "api-version": /./ },
    answer: () => ({ status: 403, json: { error: { code: "AuthorizationFailed", message: "denied" } } }),
  },
]

const ENTRA = `https://login.microsoftonline.com/${TENANT}`

const FORM = {
  grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
  requested_token_type: "urn:ietf:params:oauth:token-type:access_token",
  subject_token_type: "urn:ietf:params:oauth:token-type:jwt",
}

async function exchanged({ body }: ApiRequest): Promise<ApiAnswer> {
  const { subject_token = "", audience, scope, ...rest } = JSON.parse(body) as Record<string, string>
  expect(rest).toEqual(FORM)
  expect(audience).toBe(`//iam.googleapis.com/${PROVIDER}`)
  expect(scope).toBe("https://www.googleapis.com/auth/cloud-platform")
  const { sub: subject = "" } = decodeJwt(subject_token)
  const why = await rejection(subject_token, { subject, audience: `https:${audience}` })
  if (why !== undefined) return { status: 400, json: { error: "invalid_grant", error_description: why } }
  return { json: { access_token: `federated:${subject}`, token_type: "Bearer", expires_in: 3600 } }
}

/** Entra finds the federated credential by issuer, subject and audience. */
async function signedInToEntra({ body }: ApiRequest): Promise<ApiAnswer> {
  const form = new URLSearchParams(body)
  const trust = { subject: trusted.azure, audience: "api://AzureADTokenExchange" }
  const why = await rejection(form.get("client_assertion") ?? "", trust)
  if (why === undefined) return { json: { token_type: "Bearer", expires_in: 3599, access_token: "aad.1" } }
  const error_description = `AADSTS70021: No matching federated identity record found for presented assertion. ${why}`
  return { status: 401, json: { error: "invalid_client", error_codes: [70021], error_description } }
}

function downscoped() {
  return { json: { access_token: "downscoped", token_type: "Bearer", expires_in: 3600 } }
}

function impersonated({ headers, body }: ApiRequest, account: string) {
  expect(JSON.parse(body)).toEqual({ scope: [expect.stringMatching(/^https:/)] })
  const isTrusted = headers.authorization === `Bearer federated:${trusted.google}` && account === ACCOUNT
  const error = {
    code: 403,
    status: "PERMISSION_DENIED",
    message: "Permission 'iam.serviceAccounts.getAccessToken' denied",
  }
  if (!isTrusted) return { status: 403, json: { error } }
  const expireTime = new Date(Date.now() + 3_600_000).toISOString()
  return { json: { accessToken: "impersonated", expireTime } }
}

describe("Google Cloud by a workload identity provider", () => {
  let google: ApiServer
  const CREDENTIALS = { gcp_project_id: "yard", workload_identity_provider: PROVIDER, service_account: ACCOUNT }
  const account = (fields: Record<string, string>) => gcpAccounts({ send: google.send, tokens: identity })(fields)

  beforeAll(async () => {
    await ensureIdentityKeys(client, systemNamespace)
    google = await startApiServer(OPERATIONS)
  })
  afterAll(async () => {
    expect(google.faults).toEqual([])
    await google.stop()
  })

  it("reads as the service account that trusts the connection's subject", async () => {
    expect(await account({ ...CREDENTIALS, ...ACME }).verify(unending())).toEqual({ account: "yard" })
    const { items, error } = await collect(account({ ...CREDENTIALS, ...ACME }).storages?.(unending()))
    expect(error).toBeUndefined()
    expect(items).toMatchObject([{ name: "data" }])
  })

  it("is refused for another project that names the same service account", async () => {
    const refused = account({ ...CREDENTIALS, ...EVIL }).verify(unending())
    await expect(refused).rejects.toBeInstanceOf(CredentialsError)
    await expect(refused).rejects.toThrow(
      `the subject ${EVIL.identity_subject} needs the role roles/iam.workloadIdentityUser on ${ACCOUNT}`,
    )
  })

  it("issues tokens for one bucket by the service account", async () => {
    const scope = { bucket: "data", prefix: "run", launch: "job-1", lifetimeSeconds: 3600 }
    const access = gcsBuckets({ send: google.send, tokens: identity })
    const given = await access({ ...CREDENTIALS, ...ACME }, scope, unending())
    expect(given.remote["token"]).toContain("downscoped")
  })

  it("retries later if Google does not answer", async () => {
    google.override(/^[/]v1[/]token$/, () => ({ status: 503, json: { error: "unavailable" } }))
    const failed = account({ ...CREDENTIALS, ...ACME }).verify(unending())
    await expect(failed).rejects.toBeInstanceOf(TransientError)
    google.override(/^[/]v1[/]token$/, undefined)
  })
})

describe("Azure by a federated credential", () => {
  let azure: ApiServer
  const CREDENTIALS = { tenant_id: TENANT, client_id: TENANT, subscription_id: TENANT }
  const account = (fields: Record<string, string>) => azureAccounts({ send: azure.send, tokens: identity })(fields)

  beforeAll(async () => {
    await ensureIdentityKeys(client, systemNamespace)
    azure = await startApiServer(OPERATIONS)
  })
  afterAll(async () => {
    expect(azure.faults).toEqual([])
    await azure.stop()
  })

  it("opens the subscription of the application that trusts the connection's subject", async () => {
    expect(await account({ ...CREDENTIALS, ...ACME }).verify(unending())).toMatchObject({ account: TENANT })
  })

  it("is refused for another project that names the same application", async () => {
    const refused = account({ ...CREDENTIALS, ...EVIL }).verify(unending())
    await expect(refused).rejects.toBeInstanceOf(CredentialsError)
    await expect(refused).rejects.toThrow(/AADSTS70021/)
  })
})
