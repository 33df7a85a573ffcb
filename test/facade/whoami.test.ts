import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { systemClock, timestamp } from "../../src/core/apis/clock.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { PROJECTS } from "../../src/core/resources.ts"
import { makeKey } from "../harness/api-keys.ts"
import { BASE_DOMAIN, caller } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { bearer } from "./tenants.ts"

const fixture = projectFixture("facade-whoami")
let issuer: Issuer
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  issuer = await startIssuer()
  const tokens = new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock })
  const signIn = { issuer: issuer.url, audience: AUDIENCE, clientId: "cli" }
  const settings = { requestsPerMinute: 1000, projectLimits: { apiKeys: 7 }, version: "4.5.6", signIn }
  replica = await startReplica({ tokens, settings })
})
afterAll(() => Promise.all([replica.close(), issuer.close()]))

describe("GET /1/whoami", () => {
  it("shows a key, its role, its expiry and the limits", async () => {
    const expiresAt = timestamp(new Date(Date.now() + 3600_000))
    const key = await makeKey(fixture.client, fixture.namespace, "developer", { name: "ci", expiresAt })
    const shown = (await (await call("/1/whoami", { key })).json()) as { id: string }
    expect(shown).toEqual({
      kind: "key",
      id: expect.any(String),
      name: "ci",
      role: "developer",
      groups: null,
      warning: null,
      project_id: fixture.project,
      organization_id: fixture.organization,
      namespace: fixture.namespace,
      expires_at: expiresAt,
      limits: {
        requests_per_minute: 1000,
        discoveries_per_minute: 30,
        followed_logs: 50,
        body_bytes: 131_072,
        unfinished_jobs: 20_000,
        cronjobs: 1000,
        arrays: 1000,
        keys: 7,
        connections: 100,
        webhooks: 50,
        machines: 50,
        project_mib: 256,
        upload_mib: 100,
        uploads_mib: 2048,
      },
      version: "4.5.6",
    })
    expect(await (await call(`/1/keys/${shown.id}`)).json()).toMatchObject({ name: "ci", role: "developer" })
  })

  it("shows a key without an expiry", async () => {
    expect(await (await call("/1/whoami")).json()).toMatchObject({ role: "admin", expires_at: null })
  })

  it("shows a person with the token's expiry, and the address that the issuer has verified", async () => {
    const members = [{ userId: `${issuer.url}#vera`, role: "viewer" }]
    await fixture.client.patch(PROJECTS, { name: fixture.project }, { merge: { spec: { members } } })
    const exp = Math.floor(Date.now() / 1000) + 200
    const shown = async (claims: object) => {
      const token = await issuer.token({ sub: "vera", email: "vera@example.com", exp, ...claims })
      return (await call("/1/whoami", { key: "", ...bearer(token) })).json()
    }
    expect(await shown({ email_verified: true })).toMatchObject({
      kind: "person",
      id: `${issuer.url}#vera`,
      name: "vera@example.com",
      role: "viewer",
      expires_at: timestamp(new Date(exp * 1000)),
    })
    expect(await shown({ email_verified: false })).toMatchObject({ name: null })
  })
})

describe("/.well-known/berth", () => {
  const documentOf = async (by: typeof call) => {
    const response = await by("/.well-known/berth", { key: "", host: BASE_DOMAIN })
    expect([response.status, response.headers.get("cache-control")]).toEqual([200, "public, max-age=300"])
    return response.json()
  }

  it("shows clients how to sign in and how to address projects, without credentials", async () => {
    expect(await documentOf(call)).toEqual({
      version: "4.5.6",
      issuer: issuer.url,
      client_id: "cli",
      audience: AUDIENCE,
      console: { client_id: "cli", audience: AUDIENCE, scope: "openid email", exchange: "browser" },
      project_host: `{project}.${BASE_DOMAIN}`,
      project_path: "/projects/{project}/1",
      default_project: null,
      session_domain: null,
    })
    expect((await call("/.well-known/berth", { key: "", method: "POST", host: BASE_DOMAIN })).status).toBe(405)
  })

  it("shows an installation without sign-in and without hosts of projects", async () => {
    const other = await startReplica({ settings: { projectHosts: false, defaultProject: fixture.project } })
    expect(await documentOf(caller(() => other, fixture))).toMatchObject({
      issuer: null,
      client_id: null,
      audience: null,
      project_host: null,
      default_project: fixture.project,
    })
    await other.close()
  })
})
