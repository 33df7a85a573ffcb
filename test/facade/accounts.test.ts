import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { systemClock } from "../../src/apis/clock.ts"
import type { MemberRecord, OrganizationRecord, ProjectRecord } from "../../src/facade/schemas/account.ts"
import { TokenVerifier } from "../../src/identity/oidc.ts"
import { ORGANIZATIONS, PROJECTS } from "../../src/identity/projects.ts"
import { eventually } from "../cloud/eventually.ts"
import { type TendedProjects, tendProjects } from "../controllers/tended-projects.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { BASE_DOMAIN, type Call, caller, problemIn, type Replica, startReplica, testWorld } from "./harness.ts"
import { type TendedKeys, tendKeys } from "./machine-users.ts"

const world = testWorld("facade-accounts")
let replica: Replica
let other: Replica
let issuer: Issuer
let tended: TendedProjects
const tendedKeys: TendedKeys[] = []

beforeAll(async () => {
  issuer = await startIssuer()
  const tokens = new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock })
  tended = await tendProjects()
  replica = await startReplica({ tokens })
  other = await startReplica({ tokens })
})
afterAll(async () => {
  await Promise.all([replica.close(), other.close(), issuer.close(), tended.stop()])
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
  return answer(await as(owner, "/1/organizations", { body }), 201)
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

describe("tenants", () => {
  it("see, change and count nothing of each other, and the answer is the same as for what is not there", async () => {
    const [olga, eve, mike] = [somebody(), somebody(), somebody()]
    const { id } = await newOrganization(olga)
    const project = await newProject(olga, id)
    const eves = await newOrganization(eve)
    await answer(await setRole(eve, eves.id, mike, "admin"), 200)
    await answer(await as(olga, "/1/jobs", { project: project.id, body: { name: "hers", image: "a" } }), 201)
    const requests = (organization: string, its: string): [string, string, (object | undefined)?, string?][] => [
      ["PATCH", `/1/organizations/${organization}`, { displayName: "x" }],
      ["GET", `/1/organizations/${organization}/members`],
      ["PUT", `/1/organizations/${organization}/members/${encodeURIComponent(userId(eve))}`, { role: "member" }],
      ["GET", `/1/organizations/${organization}/projects`],
      ["POST", `/1/organizations/${organization}/projects`, { name: "x" }],
      ["PATCH", `/1/projects/${its}`, { displayName: "x" }],
      ["GET", "/1/jobs", undefined, its],
      ["GET", "/1/jobs/hers", undefined, its],
      ["POST", "/1/jobs", { image: "a" }, its],
      ["POST", "/1/jobs/hers/cancel", undefined, its],
      ["GET", "/1/jobs/hers/logs", undefined, its],
      ["GET", "/1/cronjobs", undefined, its],
      ["GET", "/1/keys", undefined, its],
      ["POST", "/1/keys", { name: "evil", role: "admin" }, its],
      ["GET", "/1/connections", undefined, its],
    ]
    for (const stranger of [eve, mike]) {
      const theirs = requests(id, project.id)
      const nobodys = requests("nobodys-0000000000", "nobodys-0000000000")
      for (const [index, [method, path, body, host]] of theirs.entries()) {
        const [, nowhere = "", , nohost] = nobodys[index] ?? []
        const call = (at: string, on?: string) =>
          as(stranger, at, { method, ...(body && { body }), ...(on && { project: on }) })
        const real = await problemIn(await call(path, host))
        const none = await problemIn(await call(nowhere, nohost))
        expect(real.status, `${method} ${path}`).toBe(404)
        const anonymous = ({ detail }: { detail: string }) => detail.replaceAll(/[a-z]+-[0-9a-f]{10}/g, "ID")
        expect({ ...none, detail: anonymous(none), instance: "" }).toEqual({
          ...real,
          detail: anonymous(real),
          instance: "",
        })
      }
    }
    expect(await answer(await as(eve, "/1/organizations"), 200)).toEqual({ organizations: [eves] })
  })

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

  it.each<[string, Record<string, unknown>, Record<string, unknown>?]>([
    ["another issuer", { iss: "https://elsewhere.test" }],
    ["another audience", { aud: "other" }],
    ["an expiry in the past", { exp: 1 }],
    ["a start in the future", { nbf: 4_000_000_000 }],
    ["an unknown key id", {}, { kid: "unknown" }],
  ])("are refused with a token of %s, on both scopes", async (_what, claims, header) => {
    const headers = { Authorization: `Bearer ${await issuer.token(claims, header)}` }
    for (const host of [BASE_DOMAIN, `${world.project}.${BASE_DOMAIN}`]) {
      const path = host === BASE_DOMAIN ? "/1/organizations" : "/1/jobs"
      const response = await here(path, { key: "", host, headers })
      expect(response.headers.get("www-authenticate"), path).toMatch(/Bearer/)
      expect(await problemIn(response)).toMatchObject({ status: 401 })
    }
  })
})
