import {
  type CryptoKey,
  exportJWK,
  exportSPKI,
  generateKeyPair,
  importJWK,
  type JWK,
  SignJWT,
  UnsecuredJWT,
} from "jose"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { systemClock } from "../../src/apis/clock.ts"
import { CreationTimes } from "../../src/apis/creation-times.ts"
import { ANNOTATIONS } from "../../src/apis/meta.ts"
import type { StoredOrganization } from "../../src/apis/organization.ts"
import type { StoredProject } from "../../src/apis/project.ts"
import { ACCOUNT_LIMITS, Accounts } from "../../src/facade/accounts/accounts.ts"
import type { MemberRecord, OrganizationRecord, ProjectRecord } from "../../src/facade/accounts/schema.ts"
import { CACHE_OPTIONS } from "../../src/facade/caches.ts"
import { TokenVerifier } from "../../src/identity/oidc.ts"
import { Memberships } from "../../src/identity/persons.ts"
import type { CallerClient } from "../../src/identity/principal.ts"
import { ORGANIZATIONS, PROJECTS } from "../../src/identity/projects.ts"
import { IndexedStore } from "../../src/kube/store.ts"
import { eventually } from "../cloud/eventually.ts"
import { type TendedProjects, tendProjects } from "../controllers/tended-projects.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import {
  BASE_DOMAIN,
  type Call,
  caller,
  plainClient,
  problemIn,
  type Replica,
  startReplica,
  testWorld,
} from "./harness.ts"
import { type TendedKeys, tendKeys } from "./machine-users.ts"

const world = testWorld("facade-accounts")
let replica: Replica
let other: Replica
let issuer: Issuer
/** Another one that is trusted. */
let rotating: Issuer
/** By how much the time since what is known of issuers was read is more than it is; seconds. */
let later = 0
const DISCOVERED_ANEW_SECONDS = 601
let tended: TendedProjects
const tendedKeys: TendedKeys[] = []

beforeAll(async () => {
  issuer = await startIssuer()
  rotating = await startIssuer()
  const issuers = [issuer, rotating].map(({ url }) => ({ issuer: url, audience: AUDIENCE }))
  const clock = { ...systemClock, monotonic: () => later + systemClock.monotonic() }
  const tokens = new TokenVerifier({ issuers, clock })
  tended = await tendProjects()
  replica = await startReplica({ tokens })
  other = await startReplica({ tokens })
})
afterAll(async () => {
  await Promise.all([replica.close(), other.close(), issuer.close(), rotating.close(), tended.stop()])
  await Promise.all(tendedKeys.map((keys) => keys.stop()))
})

const here = caller(() => replica, world)
const there = caller(() => other, world)

/** What a person's program does: the account scope by default, a project where one is named. */
interface PersonCall extends Omit<Call, "key" | "host"> {
  project?: string
  /** Through the other replica. */
  elsewhere?: boolean
}

async function as(subject: string, path: string, { project, elsewhere, ...call }: PersonCall = {}) {
  const token = await issuer.token({ sub: subject, email: `${subject}@example.com` })
  const host = project === undefined ? BASE_DOMAIN : `${project}.${BASE_DOMAIN}`
  const headers = { ...call.headers, Authorization: `Bearer ${token}` }
  return (elsewhere ? there : here)(path, { ...call, key: "", host, headers })
}

async function answer<T>(response: Awaited<ReturnType<typeof as>>, status: number): Promise<T> {
  const text = await response.text()
  expect(response.status, text).toBe(status)
  return JSON.parse(text === "" ? "null" : text) as T
}

let count = 0
/** People whom no other test knows. */
const somebody = (): string => `person-${++count}`
const userId = (subject: string): string => `${issuer.url}#${subject}`

async function newOrganization(owner: string, body: object = { name: "Acme" }): Promise<OrganizationRecord> {
  const response = await as(owner, "/1/organizations", { body })
  // No GET has it by itself.
  expect(response.headers.get("location")).toBeNull()
  return answer(response, 201)
}

async function newProject(owner: string, organization: string): Promise<ProjectRecord> {
  const response = await as(owner, `/1/organizations/${organization}/projects`, { body: { name: "Trains" } })
  const project = await answer<ProjectRecord>(response, 201)
  await eventually(async () => {
    const { status } = await world.client.get(PROJECTS, { name: project.id })
    expect(status?.namespace, JSON.stringify(status)).toBe(project.id)
  })
  return project
}

async function setRole(by: string, organization: string, whom: string, role: string) {
  const path = `/1/organizations/${organization}/members/${encodeURIComponent(userId(whom))}`
  return as(by, path, { method: "PUT", body: { role } })
}

describe("people", () => {
  it("make an organization and a project, a key and a job, invite somebody and demote them", async () => {
    const [olga, mike] = [somebody(), somebody()]
    const organization = await newOrganization(olga, { name: "Île de Café", category: "company" })
    expect(organization).toEqual({
      id: expect.stringMatching(/^ile-de-cafe-[0-9a-f]{10}$/),
      displayName: "Île de Café",
      category: "company",
      role: "owner",
    })
    const project = await newProject(olga, organization.id)
    expect(project).toEqual({ id: expect.any(String), displayName: "Trains", organizationId: organization.id })
    const submitted = await as(olga, "/1/jobs", { project: project.id, body: { name: "first", image: "alpine" } })
    expect(submitted.status, await submitted.clone().text()).toBe(201)
    tendedKeys.push(await tendKeys(project.id))
    const key = await answer<{ value: string }>(
      await as(olga, "/1/keys", { project: project.id, body: { name: "ci-key", role: "viewer" } }),
      201,
    )
    const jobs = await here("/1/jobs", { key: key.value, host: `${project.id}.${BASE_DOMAIN}` })
    expect(await jobs.json()).toMatchObject({ total: 1, jobs: [{ name: "first", project_id: project.id }] })

    expect(await answer(await setRole(olga, organization.id, mike, "admin"), 200)).toBeNull()
    const { members } = await answer<{ members: MemberRecord[] }>(
      await as(mike, `/1/organizations/${organization.id}/members`),
      200,
    )
    expect(members).toEqual([
      { userId: userId(olga), email: `${olga}@example.com`, role: "owner" },
      { userId: userId(mike), email: null, role: "admin" },
    ])
    await answer(await as(mike, "/1/keys", { project: project.id, body: { name: "mikes", role: "admin" } }), 201)
    await answer(await setRole(olga, organization.id, mike, "member"), 200)
    const refused = await as(mike, "/1/keys", { project: project.id, body: { name: "again", role: "admin" } })
    expect(await problemIn(refused)).toMatchObject({
      status: 403,
      detail: expect.stringContaining("yours is developer"),
    })
  })

  it("have what they made in their lists, newest first, page by page", async () => {
    const olga = somebody()
    const made = [await newOrganization(olga, { name: "One" }), await newOrganization(olga, { name: "Two" })]
    const { organizations } = await answer<{ organizations: OrganizationRecord[] }>(
      await as(olga, "/1/organizations"),
      200,
    )
    expect(organizations).toEqual(made.toReversed())
    const page = await answer(await as(olga, "/1/organizations?offset=1&limit=1"), 200)
    expect(page).toEqual({ organizations: [made[0]] })
    const { id = "" } = made[0] ?? {}
    const projects = [await newProject(olga, id), await newProject(olga, id)]
    expect(await answer(await as(olga, `/1/organizations/${id}/projects`), 200)).toEqual({
      projects: projects.toReversed(),
    })
    for (const query of ["limit=0", "limit=101", "offset=-1", "sort=x"]) {
      expect((await as(olga, `/1/organizations?${query}`)).status, query).toBe(400)
    }
  })

  it("change names and categories; null leaves a category as it is", async () => {
    const olga = somebody()
    const { id } = await newOrganization(olga, { name: "Acme", category: "lab" })
    const path = `/1/organizations/${id}`
    const changed = await as(olga, path, { method: "PATCH", body: { displayName: "Acme Trains", category: null } })
    expect(await answer(changed, 200)).toEqual({ id, displayName: "Acme Trains", category: "lab", role: "owner" })
    const project = await newProject(olga, id)
    const renamed = await as(olga, `/1/projects/${project.id}`, { method: "PATCH", body: { displayName: "Ships" } })
    expect(await answer(renamed, 200)).toEqual({ ...project, displayName: "Ships" })
  })

  it("may send a creation again under an Idempotency-Key", async () => {
    const olga = somebody()
    const headers = { "Idempotency-Key": "once" }
    const send = (name: string) => as(olga, "/1/organizations", { body: { name }, headers })
    const [first, second] = await Promise.all([send("Acme"), send("Acme")])
    const record = await answer<OrganizationRecord>(first, 201)
    expect(await answer(second, 201)).toEqual(record)
    expect(await problemIn(await send("Other"))).toMatchObject({ status: 422 })
    const stranger = await as(somebody(), "/1/organizations", { body: { name: "Acme" }, headers })
    expect((await answer<OrganizationRecord>(stranger, 201)).id).not.toBe(record.id)
  })

  it("are answered a replay by what they are in it now, and only while it is what that request made", async () => {
    const [olga, otto] = [somebody(), somebody()]
    const send = () => as(olga, "/1/organizations", { body: { name: "Acme" }, headers: { "Idempotency-Key": "k" } })
    const { id } = await answer<OrganizationRecord>(await send(), 201)
    expect(id).toMatch(/^o-[0-9a-f]{32}$/)
    await answer(await setRole(olga, id, otto, "owner"), 200)
    await answer(await setRole(otto, id, olga, "member"), 200)
    expect(await answer(await send(), 201)).toMatchObject({ id, role: "member" })
    const change = (merge: object) => world.client.patch(ORGANIZATIONS, { name: id }, { merge })
    await change({ spec: { members: [{ userId: userId(otto), role: "owner" }] } })
    expect((await problemIn(await send())).detail).toMatch(/You no longer have access to the organization/)
    await change({ metadata: { annotations: { [ANNOTATIONS.idempotencyKey]: "another" } } })
    expect(await problemIn(await send())).toMatchObject({ status: 422, detail: expect.stringContaining('"k"') })
  })

  it("change the version that If-Match names, where it is sent", async () => {
    const olga = somebody()
    const organization = await newOrganization(olga)
    const project = await newProject(olga, organization.id)
    for (const path of [`/1/organizations/${organization.id}`, `/1/projects/${project.id}`]) {
      const change = (displayName: string, tag?: string) =>
        as(olga, path, { method: "PATCH", body: { displayName }, ...(tag && { headers: { "If-Match": tag } }) })
      const first = (await change("One")).headers.get("etag") ?? ""
      const second = (await change("Two", first)).headers.get("etag") ?? ""
      expect(await problemIn(await change("Three", first))).toMatchObject({ status: 412 })
      expect((await change("Three", "123")).status).toBe(400)
      expect(await answer(await change("Three", second), 200)).toMatchObject({ displayName: "Three" })
    }
  })

  it("are told in a 400 what the API server refuses", async () => {
    const olga = "x".repeat(600)
    const problem = await problemIn(await as(olga, "/1/organizations", { body: { name: "Acme" } }))
    expect(problem).toMatchObject({ status: 400, errors: [{ detail: expect.stringContaining("512") }] })
  })

  it.each<[string, object, string]>([
    ["no name", {}, "/name"],
    ["an empty name", { name: "" }, "/name"],
    ["a name of 65 characters", { name: "x".repeat(65) }, "/name"],
    ["a category of 33 characters", { name: "a", category: "x".repeat(33) }, "/category"],
    ["an unknown field", { name: "a", id: "mine" }, "/id"],
  ])("make no organization with %s", async (_what, body, pointer) => {
    const problem = await problemIn(await as(somebody(), "/1/organizations", { body }))
    expect(problem).toMatchObject({ status: 400, errors: [{ pointer }] })
  })

  it("are no owners of what others own: only owners grant owner, change owners, and one stays", async () => {
    const [olga, adam, mike] = [somebody(), somebody(), somebody()]
    const { id } = await newOrganization(olga)
    await answer(await setRole(olga, id, adam, "admin"), 200)
    await answer(await setRole(adam, id, mike, "member"), 200)
    for (const [by, whom, role, status] of [
      [adam, mike, "owner", 403],
      [adam, olga, "member", 403],
      [mike, mike, "admin", 403],
      [olga, olga, "admin", 409],
    ] as const) {
      expect((await setRole(by, id, whom, role)).status, `${by} makes ${whom} ${role}`).toBe(status)
    }
    const path = `/1/organizations/${id}/members/${encodeURIComponent("system:masters")}`
    expect((await as(olga, path, { method: "PUT", body: { role: "admin" } })).status).toBe(400)
    expect((await as(mike, `/1/organizations/${id}`, { method: "PATCH", body: { displayName: "Mine" } })).status).toBe(
      403,
    )
    expect((await as(mike, `/1/organizations/${id}/projects`, { body: { name: "Mine" } })).status).toBe(403)
  })

  it("lose their role on every replica within a second, and at once where it is taken", async () => {
    const [olga, mike] = [somebody(), somebody()]
    const { id } = await newOrganization(olga)
    const project = await newProject(olga, id)
    await answer(await setRole(olga, id, mike, "admin"), 200)
    const submit = (elsewhere: boolean) => as(mike, "/1/jobs", { project: project.id, elsewhere, body: { image: "a" } })
    await answer(await submit(true), 201)
    await world.client.patch(
      ORGANIZATIONS,
      { name: id },
      { merge: { spec: { members: [{ userId: userId(olga), role: "owner" }] } } },
    )
    await new Promise((resolve) => setTimeout(resolve, 1100))
    expect((await submit(true)).status).toBe(404)
    expect((await submit(false)).status).toBe(404)
  })
})

describe("with a cache that is held still", () => {
  const person = { userId: "https://issuer.test#ada" }
  const member = { ...person, role: "owner" } as const

  /** As if there were so many organizations, all of them the person's, and so many projects in the first. */
  function accountsWith(count: { organizations: number; projects: number }, client: CallerClient = world.client) {
    const organizations = new IndexedStore(CACHE_OPTIONS.organizations.indexes)
    const projects = new IndexedStore(CACHE_OPTIONS.projects.indexes)
    const accounts = new Accounts({
      ...{ client, organizations, projects, creationTimes: new CreationTimes(systemClock) },
      memberships: new Memberships({ client: world.client, organizations, clock: systemClock }),
    })
    const put = <T extends StoredOrganization | StoredProject>(store: IndexedStore<T>, name: string, spec: T["spec"]) =>
      store.put({ metadata: { name, uid: name, resourceVersion: "1" }, spec } as T)
    const fill = (organization: string): void => {
      const spec = { displayName: "Acme", members: [member] }
      for (let n = 0; n < count.organizations; n++) put<StoredOrganization>(organizations, `full-${n}`, spec)
      for (let n = 0; n < count.projects; n++)
        put<StoredProject>(projects, `full-${n}`, { displayName: "p", organization })
    }
    const advance = (): void => {
      for (const store of [organizations, projects]) store.advance(String(Number.MAX_SAFE_INTEGER))
    }
    return { accounts, projects, fill, advance }
  }

  it("lists and limits say 503 until there is something to go by", async () => {
    const { accounts, advance } = accountsWith({ organizations: 0, projects: 0 })
    const page = { limit: 100, offset: 0 }
    expect(() => accounts.organizationsOf(person, page)).toThrow(expect.objectContaining({ status: 503 }))
    await expect(accounts.createOrganization(person, { name: "Acme" })).rejects.toMatchObject({ status: 503 })
    advance()
    expect(accounts.organizationsOf(person, page)).toEqual([])
  })

  it("a replay is answered where nothing new may be made any more", async () => {
    const { accounts, projects, fill, advance } = accountsWith({
      organizations: ACCOUNT_LIMITS.ownedOrganizations,
      projects: ACCOUNT_LIMITS.projects,
    })
    advance()
    const made = await accounts.createOrganization(person, { name: "Acme" }, "k")
    const { name: id } = made.organization.metadata
    const inOrganization = (key: string) => accounts.createProject(id, person, { name: "Trains" }, key)
    const making = inOrganization("k")
    const project = await eventually(async () => {
      const { items } = await world.client.list(PROJECTS)
      const found = items.find(({ spec }) => spec.organization === id)
      if (found === undefined) throw new Error("not there yet")
      return found
    })
    projects.put({ ...project, status: { namespace: project.metadata.name } })
    advance()
    expect((await making).metadata.uid).toBe(project.metadata.uid)
    fill(id)
    const again = await accounts.createOrganization(person, { name: "Acme" }, "k")
    expect([again.organization.metadata.uid, again.role]).toEqual([made.organization.metadata.uid, "owner"])
    expect((await inOrganization("k")).metadata.uid).toBe(project.metadata.uid)
    await expect(accounts.createOrganization(person, { name: "Acme" }, "new")).rejects.toMatchObject({ status: 403 })
    await expect(inOrganization("new")).rejects.toMatchObject({ status: 403 })
  })

  it("an id that was made up and is taken becomes another", async () => {
    const { client } = world
    const taken: string[] = []
    const faster: CallerClient["create"] = async (resource, object, options) => {
      if (taken.length === 0) {
        taken.push(object.metadata.name)
        await client.create(resource, object)
      }
      return client.create(resource, object, options)
    }
    const slow = { ...plainClient(client), create: faster }
    const { accounts, advance } = accountsWith({ organizations: 0, projects: 0 }, slow)
    advance()
    const { organization } = await accounts.createOrganization(person, { name: "Acme" })
    expect(organization.metadata.name).not.toBe(taken[0])
    expect(organization.metadata.name).toMatch(/^acme-/)
  })
})

describe("tenants", () => {
  it("sign in with tokens, not with keys; keys are refused on the account scope, good or not", async () => {
    for (const key of [world.keys.admin, "berth_nonsense"]) {
      const response = await here("/1/organizations", { key, host: BASE_DOMAIN })
      expect(await problemIn(response)).toMatchObject({ status: 403, detail: expect.stringContaining("API keys") })
    }
    expect((await here("/1/organizations", { key: "", host: BASE_DOMAIN })).status).toBe(401)
    const both = {
      key: world.keys.admin,
      host: BASE_DOMAIN,
      headers: { Authorization: `Bearer ${await issuer.token()}` },
    }
    expect((await here("/1/organizations", both)).status).toBe(400)
    expect((await as(somebody(), "/1/organizations", { project: world.project })).status).toBe(404)
  })
})

describe("a token", () => {
  const now = (): number => Math.floor(Date.now() / 1000)
  const usual = () => ({ sub: "ada", iss: issuer.url, aud: AUDIENCE, exp: now() + 300 })

  /** With what everybody can read of the issuer as an HMAC's secret. */
  async function signedByPublicKey(encoded: (key: JWK) => Promise<string>): Promise<string> {
    const { keys } = (await (await fetch(`${issuer.url}/jwks`)).json()) as { keys: JWK[] }
    const secret = new TextEncoder().encode(await encoded(keys[0] ?? {}))
    return new SignJWT(usual()).setProtectedHeader({ alg: "HS256", kid: "key-1" }).sign(secret)
  }

  async function changed(): Promise<string> {
    const [header, , signature] = (await issuer.token()).split(".")
    return `${header}.${Buffer.from(JSON.stringify({ ...usual(), sub: "root" })).toString("base64url")}.${signature}`
  }

  async function withOwnKey(): Promise<string> {
    const { privateKey, publicKey } = await generateKeyPair("ES256", { extractable: true })
    const header = { alg: "ES256", kid: "key-1", jwk: await exportJWK(publicKey) }
    return new SignJWT(usual()).setProtectedHeader(header).sign(privateKey)
  }

  async function statuses(token: string): Promise<number[]> {
    const headers = { Authorization: `Bearer ${token}` }
    const call = async (path: string, host: string): Promise<number> => {
      const response = await here(path, { key: "", host, headers })
      if (response.status === 401) {
        expect(response.headers.get("www-authenticate"), path).toMatch(/Bearer/)
        await problemIn(response)
      }
      return response.status
    }
    return [
      await call("/1/organizations", BASE_DOMAIN),
      await call("/1/jobs", `${world.project}.${BASE_DOMAIN}`),
      await call("/1/resources/storages", `${world.project}.${BASE_DOMAIN}`),
    ]
  }

  it("that is good is taken on both scopes; without a role a project isn't there", async () => {
    expect(await statuses(await issuer.token())).toEqual([200, 404, 404])
  })

  it.each<[string, () => Promise<string>]>([
    ["of another issuer", () => issuer.token({ iss: "https://elsewhere.test" })],
    ["for another audience", () => issuer.token({ aud: "other" })],
    ["for no audience", () => issuer.token({ aud: null })],
    ["that has expired", () => issuer.token({ exp: now() - 60 })],
    ["that never expires", () => issuer.token({ exp: null })],
    ["that is not valid yet", () => issuer.token({ nbf: now() + 60 })],
    ["of nobody", () => issuer.token({ sub: null })],
    ["under an unknown key id", () => issuer.token({}, { kid: "unknown" })],
    ["without a signature", async () => new UnsecuredJWT(usual()).encode()],
    ["signed with the public key as HMAC's secret", () => signedByPublicKey(async (key) => JSON.stringify(key))],
    [
      "signed with the public key's PEM as HMAC's secret",
      () => signedByPublicKey(async (key) => exportSPKI((await importJWK(key, "ES256")) as CryptoKey)),
    ],
    ["that was changed", changed],
    ["that brings its own key", withOwnKey],
    ["that is none", async () => "no.token.atall"],
  ])("%s is refused on both scopes", async (_what, token) => {
    expect(await statuses(await token())).toEqual([401, 401, 401])
  })

  it("by a key that its issuer has given up is refused once its keys are read anew; one by the new key is taken", async () => {
    const old = await rotating.token()
    expect(await statuses(old)).toEqual([200, 404, 404])
    await rotating.rotate()
    later += DISCOVERED_ANEW_SECONDS
    expect(await statuses(await rotating.token())).toEqual([200, 404, 404])
    expect(await statuses(old)).toEqual([401, 401, 401])
  })
})
