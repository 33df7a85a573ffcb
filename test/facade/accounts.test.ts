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
import { CACHE_OPTIONS } from "../../src/api/caches.ts"
import { KeyedMutex } from "../../src/api/idempotency.ts"
import { ACCOUNT_LIMITS, Accounts } from "../../src/api/resources/accounts/accounts.ts"
import type { MemberRecord, OrganizationRecord, ProjectRecord } from "../../src/api/resources/accounts/schema.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { CreationTimes } from "../../src/core/apis/creation-times.ts"
import { ANNOTATIONS } from "../../src/core/apis/meta.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import { MemberEmails } from "../../src/core/identity/member-emails.ts"
import { Memberships } from "../../src/core/identity/memberships.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import type { CallerClient } from "../../src/core/identity/principal.ts"
import { IndexedStore } from "../../src/core/kube/store.ts"
import { ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { BASE_DOMAIN, type Call, caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { type KeyController, startKeyController } from "../harness/machine-users.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { type ProjectControllers, startProjectControllers } from "../harness/project-controllers.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import { plainClient } from "./plain-client.ts"

const fixture = projectFixture("facade-accounts")
let replica: Replica
let other: Replica
let issuer: Issuer
/** A second trusted issuer. */
let rotating: Issuer
/** Seconds by which a test moves the verifier's clock forward, so that cached facts about issuers expire. */
let later = 0
const DISCOVERED_AGAIN_SECONDS = 601
let controllers: ProjectControllers
const keyControllers: KeyController[] = []

beforeAll(async () => {
  issuer = await startIssuer()
  rotating = await startIssuer()
  const issuers = [issuer, rotating].map(({ url }) => ({ issuer: url, audience: AUDIENCE }))
  const clock = { ...systemClock, monotonic: () => later + systemClock.monotonic() }
  const tokens = new TokenVerifier({ issuers, clock })
  controllers = await startProjectControllers()
  replica = await startReplica({ tokens })
  other = await startReplica({ tokens })
})
afterAll(async () => {
  await Promise.all([replica.close(), other.close(), issuer.close(), rotating.close(), controllers.stop()])
  await Promise.all(keyControllers.map((keys) => keys.stop()))
})

const here = caller(() => replica, fixture)
const there = caller(() => other, fixture)

/** Request of a person: to the account scope by default, or to the named project. */
interface PersonCall extends Omit<Call, "key" | "host"> {
  project?: string
  /** True to send the request to the other replica. */
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
/** Returns a subject that no other test uses. */
const newPerson = (): string => `person-${++count}`
const userId = (subject: string): string => `${issuer.url}#${subject}`

async function newOrganization(owner: string, body: object = { name: "Acme" }): Promise<OrganizationRecord> {
  const response = await as(owner, "/1/organizations", { body })
  // No GET returns a single organization, so there is no Location.
  expect(response.headers.get("location")).toBeNull()
  return answer(response, 201)
}

async function newProject(owner: string, organization: string): Promise<ProjectRecord> {
  const response = await as(owner, `/1/organizations/${organization}/projects`, { body: { name: "Trains" } })
  const project = await answer<ProjectRecord>(response, 201)
  await eventually(async () => {
    const { status } = await fixture.client.get(PROJECTS, { name: project.id })
    expect(status?.namespace, JSON.stringify(status)).toBe(project.id)
  })
  return project
}

async function setRole(by: string, organization: string, whom: string, role: string) {
  const path = `/1/organizations/${organization}/members/${encodeURIComponent(userId(whom))}`
  return as(by, path, { method: "PUT", body: { role } })
}

describe("a person", () => {
  it("creates an organization, a project, a key and a job; invites a member and changes the role", async () => {
    const [olga, mike] = [newPerson(), newPerson()]
    const organization = await newOrganization(olga, { name: "Île de Café", category: "company" })
    expect(organization).toEqual({
      id: expect.stringMatching(/^ile-de-cafe-[0-9a-f]{10}$/),
      displayName: "Île de Café",
      category: "company",
      role: "owner",
    })
    const project = await newProject(olga, organization.id)
    expect(project).toEqual({
      id: expect.any(String),
      displayName: "Trains",
      organizationId: organization.id,
      caps: null,
      spending: null,
    })
    const submitted = await as(olga, "/1/jobs", { project: project.id, body: { name: "first", image: "alpine" } })
    expect(submitted.status, await submitted.clone().text()).toBe(201)
    keyControllers.push(await startKeyController(project.id))
    const key = await answer<{ value: string }>(
      await as(olga, "/1/keys", { project: project.id, body: { name: "ci-key", role: "viewer" } }),
      201,
    )
    // The list is read from a cache, which learns of the job a moment later.
    await eventually(async () => {
      const jobs = await here("/1/jobs", { key: key.value, host: `${project.id}.${BASE_DOMAIN}` })
      expect(await jobs.json()).toMatchObject({ total: 1, jobs: [{ name: "first", project_id: project.id }] })
    })

    expect(await answer(await setRole(olga, organization.id, mike, "admin"), 200)).toBeNull()
    const { members } = await answer<{ members: MemberRecord[] }>(
      await as(mike, `/1/organizations/${organization.id}/members`),
      200,
    )
    expect(members).toEqual([
      { userId: userId(olga), email: `${olga}@example.com`, role: "owner" },
      {
        userId: userId(mike),
        email: expect.toSatisfy((email) => [null, `${mike}@example.com`].includes(email)),
        role: "admin",
      },
    ])
    await answer(await as(mike, "/1/keys", { project: project.id, body: { name: "mikes", role: "admin" } }), 201)
    await answer(await setRole(olga, organization.id, mike, "member"), 200)
    const refused = await as(mike, "/1/keys", { project: project.id, body: { name: "again", role: "admin" } })
    expect(await problemIn(refused)).toMatchObject({
      status: 403,
      detail: expect.stringContaining("yours is developer"),
    })
  })

  it("lists the caller's organizations and projects newest first, page by page", async () => {
    const olga = newPerson()
    const made = [await newOrganization(olga, { name: "One" }), await newOrganization(olga, { name: "Two" })]
    const { organizations } = await answer<{ organizations: OrganizationRecord[] }>(
      await as(olga, "/1/organizations"),
      200,
    )
    expect(organizations).toEqual(made.toReversed())
    const page = await answer(await as(olga, "/1/organizations?offset=1&limit=1"), 200)
    expect(page).toEqual({ organizations: [made[0]], warning: null })
    const { id = "" } = made[0] ?? {}
    const projects = [await newProject(olga, id), await newProject(olga, id)]
    expect(await answer(await as(olga, `/1/organizations/${id}/projects`), 200)).toEqual({
      projects: projects.toReversed(),
    })
    for (const query of ["limit=0", "limit=101", "offset=-1", "sort=x"]) {
      expect((await as(olga, `/1/organizations?${query}`)).status, query).toBe(400)
    }
  })

  it("changes names and categories; a null category stays unchanged", async () => {
    const olga = newPerson()
    const { id } = await newOrganization(olga, { name: "Acme", category: "lab" })
    const path = `/1/organizations/${id}`
    const changed = await as(olga, path, { method: "PATCH", body: { displayName: "Acme Trains", category: null } })
    expect(await answer(changed, 200)).toEqual({ id, displayName: "Acme Trains", category: "lab", role: "owner" })
    const project = await newProject(olga, id)
    const renamed = await as(olga, `/1/projects/${project.id}`, { method: "PATCH", body: { displayName: "Ships" } })
    expect(await answer(renamed, 200)).toEqual({ ...project, displayName: "Ships" })
  })

  it("answers 409 to a repeated creation whose organization or project is being deleted", async () => {
    const olga = newPerson()
    const create = (path: string, name: string) =>
      as(olga, path, { body: { name }, headers: { "Idempotency-Key": "ending" } })
    const { id } = (await (await create("/1/organizations", "Ending")).json()) as OrganizationRecord
    const projectPath = `/1/organizations/${id}/projects`
    const project = (await (await create(projectPath, "Ending too")).json()) as ProjectRecord
    const objects = [
      { resource: PROJECTS, name: project.id, path: projectPath, body: "Ending too" },
      { resource: ORGANIZATIONS, name: id, path: "/1/organizations", body: "Ending" },
    ] as const
    for (const { resource, name, path, body } of objects) {
      const held = { merge: { metadata: { finalizers: ["test.berth.dev/hold"] } } }
      await fixture.client.patch<StoredOrganization | StoredProject>(resource as never, { name }, held)
      await fixture.client.delete(resource as never, { name })
      const problem = await problemIn(await create(path, body))
      expect([problem.status, problem.type]).toEqual([409, "https://berth.dev/problems/being-deleted"])
    }
    for (const { resource, name } of objects)
      await fixture.client.patch(resource as never, { name }, { merge: { metadata: { finalizers: null } } })
  })

  it("creates no second object when a creation is repeated with its Idempotency-Key", async () => {
    const olga = newPerson()
    const headers = { "Idempotency-Key": "once" }
    const send = (name: string) => as(olga, "/1/organizations", { body: { name }, headers })
    const [first, second] = await Promise.all([send("Acme"), send("Acme")])
    const record = await answer<OrganizationRecord>(first, 201)
    expect(await answer(second, 201)).toEqual(record)
    expect(await problemIn(await send("Other"))).toMatchObject({ status: 422 })
    const stranger = await as(newPerson(), "/1/organizations", { body: { name: "Acme" }, headers })
    expect((await answer<OrganizationRecord>(stranger, 201)).id).not.toBe(record.id)
  })

  it("creates one readable project for a key, whatever the replicas and names of its requests", async () => {
    const olga = newPerson()
    const { id: organization } = await newOrganization(olga)
    const path = `/1/organizations/${organization}/projects`
    const send = (name: string, elsewhere: boolean) =>
      as(olga, path, { elsewhere, body: { name }, headers: { "Idempotency-Key": "k" } })
    const names = ["Weekly Reports", "Weekly Reports", "Other", "Weekly Reports", "Another"]
    const answers = await Promise.all(names.map((name, index) => send(name, index % 2 === 1)))
    const { items } = await fixture.client.list(PROJECTS)
    const made = items.filter(({ spec }) => spec.organization === organization)
    expect(made).toHaveLength(1)
    const [project] = made
    const slug = project?.spec.displayName.toLowerCase().replace(" ", "-")
    expect(project?.metadata.name).toMatch(new RegExp(`^${slug}-[0-9a-f]{10}$`))
    const isOurs = (index: number) => names[index] === project?.spec.displayName
    expect(answers.map(({ status }) => status)).toEqual(names.map((_, index) => (isOurs(index) ? 201 : 422)))
    const other = await as(olga, path, { body: { name: "Weekly Reports" }, headers: { "Idempotency-Key": "l" } })
    expect((await answer<ProjectRecord>(other, 201)).id).not.toBe(project?.metadata.name)
  })

  it("returns the person's present role in a repeated answer, and only while the object is what that request created", async () => {
    const [olga, otto] = [newPerson(), newPerson()]
    const send = () => as(olga, "/1/organizations", { body: { name: "Acme" }, headers: { "Idempotency-Key": "k" } })
    const { id } = await answer<OrganizationRecord>(await send(), 201)
    expect(id).toMatch(/^acme-[0-9a-f]{10}$/)
    await answer(await setRole(olga, id, otto, "owner"), 200)
    await answer(await setRole(otto, id, olga, "member"), 200)
    expect(await answer(await send(), 201)).toMatchObject({ id, role: "member" })
    const change = (merge: object) => fixture.client.patch(ORGANIZATIONS, { name: id }, { merge })
    await change({ spec: { members: [{ userId: userId(otto), role: "owner" }] } })
    expect((await problemIn(await send())).detail).toMatch(/You no longer have access to the organization/)
    await change({ metadata: { annotations: { [ANNOTATIONS.idempotencyKey]: "another" } } })
    expect(await problemIn(await send())).toMatchObject({ status: 422, detail: expect.stringContaining('"k"') })
  })

  it("changes an organization only at the version of If-Match", async () => {
    const olga = newPerson()
    const organization = await newOrganization(olga)
    const project = await newProject(olga, organization.id)
    const both = [
      [`/1/organizations/${organization.id}`, ORGANIZATIONS, organization.id],
      [`/1/projects/${project.id}`, PROJECTS, project.id],
    ] as const
    for (const [path, resource, name] of both) {
      /** Returns the tag of the object's version, after its controller has recorded what it saw. */
      const tagOf = () =>
        eventually(async () => {
          const { metadata, status } = await fixture.client.get<StoredOrganization | StoredProject>(resource, { name })
          expect(status?.observedGeneration).toBe(metadata.generation)
          return `W/"${metadata.resourceVersion}"`
        })
      const change = (displayName: string, tag: string) =>
        as(olga, path, { method: "PATCH", body: { displayName }, headers: { "If-Match": tag } })
      const first = await tagOf()
      const changed = await change("Two", first)
      expect(changed.headers.get("etag")).toMatch(/^W\/"\d+"$/)
      await answer(changed, 200)
      expect(await problemIn(await change("Three", first))).toMatchObject({ status: 412 })
      expect((await change("Three", "123")).status).toBe(400)
      expect(await answer(await change("Three", await tagOf()), 200)).toMatchObject({ displayName: "Three" })
    }
  })

  it("sets and removes the caps of a project as an admin of its organization", async () => {
    const [olga, mike] = [newPerson(), newPerson()]
    const organization = await newOrganization(olga)
    const project = await newProject(olga, organization.id)
    expect((await setRole(olga, organization.id, mike, "member")).status).toBe(200)
    const patch = (by: string, caps: unknown) =>
      as(by, `/1/projects/${project.id}`, { method: "PATCH", body: { displayName: "Trains", caps } })
    const caps = { maxMonthlyUsd: 90, onExceeded: "cancel" }
    expect(await problemIn(await patch(mike, caps))).toMatchObject({ status: 403 })
    expect(await answer(await patch(olga, caps), 200)).toMatchObject({ caps, spending: null })
    expect(await answer(await patch(olga, null), 200)).toMatchObject({ caps })
    const listed = await as(olga, `/1/organizations/${organization.id}/projects`)
    expect(await answer(listed, 200)).toMatchObject({ projects: [{ id: project.id, caps }] })
    expect((await fixture.client.get(PROJECTS, { name: project.id })).spec.caps).toEqual(caps)
    expect(await answer(await patch(olga, {}), 200)).toMatchObject({ caps: null })
    const problem = await problemIn(await patch(olga, { maxMonthlyUsd: -1, onExceeded: "stop" }))
    expect(problem.errors.map(({ pointer }) => pointer)).toEqual(["/caps/maxMonthlyUsd", "/caps/onExceeded"])
  })

  it("keeps all of 20 members that are added in parallel, here and on another replica", async () => {
    const olga = newPerson()
    const { id } = await newOrganization(olga)
    const people = Array.from({ length: 20 }, newPerson)
    const pathOf = (subject: string) => `/1/organizations/${id}/members/${encodeURIComponent(userId(subject))}`
    const added = await Promise.all(
      people.map((subject, i) =>
        as(olga, pathOf(subject), { method: "PUT", body: { role: "member" }, elsewhere: i % 2 === 1 }),
      ),
    )
    expect(added.map(({ status }) => status)).toEqual(people.map(() => 200))
    const { spec } = await fixture.client.get(ORGANIZATIONS, { name: id })
    expect(spec.members?.map((member) => member.userId).toSorted()).toEqual([olga, ...people].map(userId).toSorted())
  })

  it("accepts the records that it has returned, with a changed name", async () => {
    const olga = newPerson()
    const organization = await newOrganization(olga)
    const project = await newProject(olga, organization.id)
    for (const [path, record, other] of [
      [`/1/organizations/${organization.id}`, organization, { role: "member" }],
      [`/1/projects/${project.id}`, project, { organizationId: "other" }],
    ] as const) {
      const change = (more: object) =>
        as(olga, path, { method: "PATCH", body: { ...record, displayName: "New", ...more } })
      expect(await answer(await change({}), 200)).toEqual({ ...record, displayName: "New" })
      const { errors } = await problemIn(await change({ id: "other", ...other }))
      expect(errors.map(({ pointer }) => pointer)).toEqual(["/id", ...Object.keys(other).map((field) => `/${field}`)])
    }
  })

  it.each(["", " ", "\u00a0\t", "a\u0000b", "line\nbreak"])("rejects the name %j of an organization", async (name) => {
    const problem = await problemIn(await as(newPerson(), "/1/organizations", { body: { name } }))
    expect(problem).toMatchObject({ status: 400, errors: [{ pointer: "/name" }] })
    expect(problem.errors).toHaveLength(1)
  })

  it("returns a 400 with the reason why the API server rejected an organization", async () => {
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
  ])("rejects an organization with %s", async (_what, body, pointer) => {
    const problem = await problemIn(await as(newPerson(), "/1/organizations", { body }))
    expect(problem).toMatchObject({ status: 400, errors: [{ pointer }] })
  })

  it("forbids admins to grant owner or change owners, and keeps at least one owner", async () => {
    const [olga, adam, mike] = [newPerson(), newPerson(), newPerson()]
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

  describe("the email address of an invited member", () => {
    const membersOf = async (by: string, id: string): Promise<MemberRecord[]> =>
      (await answer<{ members: MemberRecord[] }>(await as(by, `/1/organizations/${id}/members`), 200)).members
    const stored = (id: string) => fixture.client.get(ORGANIZATIONS, { name: id })
    const asWith = async (claims: object, path: string) => {
      const headers = { Authorization: `Bearer ${await issuer.token({ ...claims })}` }
      return here(path, { key: "", host: BASE_DOMAIN, headers })
    }

    it("is unknown until the member sends a request, and is then written once", async () => {
      const [olga, mike] = [newPerson(), newPerson()]
      const { id } = await newOrganization(olga)
      await answer(await setRole(olga, id, mike, "member"), 200)
      expect(await membersOf(olga, id)).toContainEqual({ userId: userId(mike), email: null, role: "member" })
      await answer(await as(mike, "/1/organizations"), 200)
      const known = { userId: userId(mike), email: `${mike}@example.com`, role: "member" }
      await eventually(async () => expect(await membersOf(olga, id)).toContainEqual(known))
      // The controller's writes to the status don't change it.
      const { generation = 0 } = (await stored(id)).metadata
      // Former tokens stay valid for a while.
      for (const email of [`${mike}@example.com`, "former@example.com"])
        await answer(await asWith({ sub: mike, email }, "/1/organizations"), 200)
      await answer(await as(mike, "/1/organizations", { elsewhere: true }), 200)
      const sara = newPerson()
      await answer(await setRole(olga, id, sara, "member"), 200)
      for (const elsewhere of [false, true]) await answer(await as(sara, "/1/organizations", { elsewhere }), 200)
      const next = { userId: userId(sara), email: `${sara}@example.com`, role: "member" }
      await eventually(async () => expect(await membersOf(olga, id)).toContainEqual(next))
      // One write for her role and one for her address, and none for his.
      expect((await stored(id)).metadata.generation).toBe(generation + 2)
      expect(await membersOf(olga, id)).toContainEqual(known)
    })

    it("changes at most once in 10 minutes, and the role stays", async () => {
      const [olga, mike] = [newPerson(), newPerson()]
      const { id } = await newOrganization(olga)
      await answer(await setRole(olga, id, mike, "admin"), 200)
      const organizations = new IndexedStore(CACHE_OPTIONS.organizations.indexes)
      const clock = new ManualClock()
      const memberships = new Memberships({ client: fixture.client, organizations, clock })
      const emails = new MemberEmails({
        client: fixture.client,
        memberships,
        organizations,
        clock,
        logger: silentLogger,
      })
      const noted = async (email: string): Promise<unknown> => {
        const present = await stored(id)
        organizations.put(present)
        organizations.advance(present.metadata.resourceVersion)
        await emails.note({ userId: userId(mike), email })
        return (await stored(id)).spec.members?.[1]
      }
      const first = { userId: userId(mike), email: "first@example.com", role: "admin" }
      expect(await noted("first@example.com")).toEqual(first)
      expect(await noted("second@example.com")).toEqual(first)
      clock.advance(600)
      expect(await noted("second@example.com")).toEqual({ ...first, email: "second@example.com" })
    })

    it("is never one that the issuer has not verified", async () => {
      const [olga, mike] = [newPerson(), newPerson()]
      const { id } = await newOrganization(olga)
      await answer(await setRole(olga, id, mike, "member"), 200)
      for (const email_verified of [false, "false"])
        await answer(await asWith({ sub: mike, email: "boss@example.com", email_verified }, "/1/organizations"), 200)
      await new Promise((resolve) => setTimeout(resolve, 300))
      expect(await membersOf(olga, id)).toContainEqual({ userId: userId(mike), email: null, role: "member" })
    })
  })

  it("removes a role within a second on every replica, and at once on the replica that removed it", async () => {
    const [olga, mike] = [newPerson(), newPerson()]
    const { id } = await newOrganization(olga)
    const project = await newProject(olga, id)
    await answer(await setRole(olga, id, mike, "admin"), 200)
    const submit = (elsewhere: boolean) => as(mike, "/1/jobs", { project: project.id, elsewhere, body: { image: "a" } })
    await answer(await submit(true), 201)
    await fixture.client.patch(
      ORGANIZATIONS,
      { name: id },
      { merge: { spec: { members: [{ userId: userId(olga), role: "owner" }] } } },
    )
    await new Promise((resolve) => setTimeout(resolve, 1100))
    expect((await submit(true)).status).toBe(404)
    expect((await submit(false)).status).toBe(404)
  })
})

describe("a façade with a cache that doesn't change", () => {
  const user = { userId: "https://issuer.test#ada" }
  const member = { ...user, role: "owner" } as const

  /** Returns accounts whose cache shows so many organizations of the user, and so many projects in the first. */
  function accountsWith(count: { organizations: number; projects: number }, client: CallerClient = fixture.client) {
    const organizations = new IndexedStore(CACHE_OPTIONS.organizations.indexes)
    const projects = new IndexedStore(CACHE_OPTIONS.projects.indexes)
    const accounts = new Accounts({
      ...{ client, reader: fixture.client, organizations, projects, creationTimes: new CreationTimes(systemClock) },
      creations: new KeyedMutex(),
      memberships: new Memberships({ client: fixture.client, organizations, clock: systemClock }),
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

  it("returns 503 for lists and limits of organizations while the cache is empty", async () => {
    const { accounts, advance } = accountsWith({ organizations: 0, projects: 0 })
    const page = { limit: 100, offset: 0 }
    expect(() => accounts.organizationsOf(user, page)).toThrow(expect.objectContaining({ status: 503 }))
    await expect(accounts.createOrganization(user, { name: "Acme" })).rejects.toMatchObject({ status: 503 })
    advance()
    expect(accounts.organizationsOf(user, page)).toEqual([])
  })

  it("returns the same organization and project for a repeated Idempotency-Key, although the limit is reached", async () => {
    const { accounts, projects, fill, advance } = accountsWith({
      organizations: ACCOUNT_LIMITS.createdOrganizations,
      projects: ACCOUNT_LIMITS.projects,
    })
    advance()
    const made = await accounts.createOrganization(user, { name: "Acme" }, "k")
    const { name: id } = made.organization.metadata
    const inOrganization = (key: string) => accounts.createProject(id, user, { name: "Trains" }, key)
    const making = inOrganization("k")
    const project = await eventually(async () => {
      const { items } = await fixture.client.list(PROJECTS)
      const found = items.find(({ spec }) => spec.organization === id)
      if (found === undefined) throw new Error("not there yet")
      return found
    })
    projects.put({ ...project, status: { namespace: project.metadata.name } })
    advance()
    expect((await making).metadata.uid).toBe(project.metadata.uid)
    fill(id)
    const again = await accounts.createOrganization(user, { name: "Acme" }, "k")
    expect([again.organization.metadata.uid, again.role]).toEqual([made.organization.metadata.uid, "owner"])
    expect((await inOrganization("k")).metadata.uid).toBe(project.metadata.uid)
    await expect(accounts.createOrganization(user, { name: "Acme" }, "new")).rejects.toMatchObject({ status: 403 })
    await expect(inOrganization("new")).rejects.toMatchObject({ status: 403 })
  })

  it("generates another organization id when the first is taken", async () => {
    const { client } = fixture
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
    const { organization } = await accounts.createOrganization(user, { name: "Acme" })
    expect(organization.metadata.name).not.toBe(taken[0])
    expect(organization.metadata.name).toMatch(/^acme-/)
  })
})

describe("tenants", () => {
  it("accepts tokens on the account scope, and rejects every API key there", async () => {
    for (const key of [fixture.keys.admin, "berth_nonsense"]) {
      const response = await here("/1/organizations", { key, host: BASE_DOMAIN })
      expect(await problemIn(response)).toMatchObject({ status: 403, detail: expect.stringContaining("API keys") })
    }
    expect((await here("/1/organizations", { key: "", host: BASE_DOMAIN })).status).toBe(401)
    const both = {
      key: fixture.keys.admin,
      host: BASE_DOMAIN,
      headers: { Authorization: `Bearer ${await issuer.token()}` },
    }
    expect((await here("/1/organizations", both)).status).toBe(400)
    expect((await as(newPerson(), "/1/organizations", { project: fixture.project })).status).toBe(404)
  })
})

describe("a token", () => {
  const now = (): number => Math.floor(Date.now() / 1000)
  const usual = () => ({ sub: "ada", iss: issuer.url, aud: AUDIENCE, exp: now() + 300 })

  /** HMAC signature whose secret is the issuer's public key. */
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
      await call("/1/jobs", `${fixture.project}.${BASE_DOMAIN}`),
      await call("/1/resources/storages", `${fixture.project}.${BASE_DOMAIN}`),
    ]
  }

  it("accepts a token with a valid signature on both scopes, and returns 404 for a project without a role for the person", async () => {
    expect(await statuses(await issuer.token())).toEqual([200, 404, 404])
  })

  it.each<[string, () => Promise<string>]>([
    ["of another issuer", () => issuer.token({ iss: "https://elsewhere.test" })],
    ["for another audience", () => issuer.token({ aud: "other" })],
    ["for no audience", () => issuer.token({ aud: null })],
    ["that has expired", () => issuer.token({ exp: now() - 60 })],
    ["that never expires", () => issuer.token({ exp: null })],
    ["that is not valid yet", () => issuer.token({ nbf: now() + 60 })],
    ["without a subject", () => issuer.token({ sub: null })],
    ["under an unknown key id", () => issuer.token({}, { kid: "unknown" })],
    ["without a signature", async () => new UnsecuredJWT(usual()).encode()],
    ["signed with the public key as HMAC's secret", () => signedByPublicKey(async (key) => JSON.stringify(key))],
    [
      "signed with the public key's PEM as HMAC's secret",
      () => signedByPublicKey(async (key) => exportSPKI((await importJWK(key, "ES256")) as CryptoKey)),
    ],
    ["with changed content", changed],
    ["that contains its own key", withOwnKey],
    ["that is not a JWT", async () => "no.token.atall"],
  ])("rejects a token %s with 401 on both scopes", async (_what, token) => {
    expect(await statuses(await token())).toEqual([401, 401, 401])
  })

  it("rejects a token signed with a removed key after the issuer's keys are read again, and accepts the new key", async () => {
    const old = await rotating.token()
    expect(await statuses(old)).toEqual([200, 404, 404])
    await rotating.rotate()
    later += DISCOVERED_AGAIN_SECONDS
    expect(await statuses(await rotating.token())).toEqual([200, 404, 404])
    expect(await statuses(old)).toEqual([401, 401, 401])
  })
})
