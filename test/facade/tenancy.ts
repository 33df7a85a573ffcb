import { randomBytes } from "node:crypto"
import type { Response } from "undici"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { openApiDocument } from "../../src/api/document.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import type { ApiObject, Resource } from "../../src/core/kube/resource.ts"
import {
  API_KEYS,
  CONNECTIONS,
  CRON_JOBS,
  JOB_ARRAYS,
  JOBS,
  LAUNCHES,
  ORGANIZATIONS,
  PROJECTS,
} from "../../src/core/resources.ts"
import { type AddressForm, BASE_DOMAIN, type Caller, caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { type ProjectFixture, projectFixture } from "../harness/facade-project.ts"
import { type ProjectControllers, startProjectControllers } from "../harness/project-controllers.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { AUDIENCE, type Issuer, startIssuer } from "../oidc.ts"
import {
  addressOf,
  bearer,
  type Credentials,
  type Endpoint,
  endpointsOf,
  makeTenant,
  type PersonRole,
  ROLE_OF,
  type Tenant,
  textOf,
  unusedIdLike,
} from "./tenants.ts"

/**
 * Two tenants, and every operation of the OpenAPI document: a new endpoint is tested here without further work. A
 * tenant must not read, write, count or guess another tenant's objects. Responses for them equal those for missing
 * objects.
 */
let fixture: ProjectFixture
const ENDPOINTS = withHeads(endpointsOf(openApiDocument(["aws", "gcp", "azure"]) as never))
const OF_PROJECTS = ENDPOINTS.filter(({ isAccounts }) => !isAccounts)
/** Without the PUT of an upload: it creates an object, under the hash of its own content. */
const WITH_IDS = ENDPOINTS.filter(({ method, path }) => path.includes("{") && !(method === "PUT" && isUpload(path)))

function isUpload(path: string): boolean {
  return path.startsWith("/uploads/")
}

let issuer: Issuer
let replica: Replica
let controllers: ProjectControllers
let ours: Tenant
let theirs: Tenant
let stranger: string
/** Namespaces whose connections a discovery used. */
const discovered = new Set<string | undefined>()
/** Name that only objects of the other tenant have. */
const ONLY_THEIRS = "only-theirs"

/** Form of the addresses that the requests use. */
let form: AddressForm = "host"
let call: Caller

/** Makes two tenants for the tests of a file. */
export function prepareTenants(): void {
  fixture = projectFixture("facade-tenancy")
  call = caller(
    () => replica,
    fixture,
    () => form,
  )
  beforeAll(async () => {
    issuer = await startIssuer()
    const tokens = new TokenVerifier({ issuers: [{ issuer: issuer.url, audience: AUDIENCE }], clock: systemClock })
    controllers = await startProjectControllers()
    replica = await startReplica({
      tokens,
      discover: async (_sort, connections) => {
        for (const { metadata } of connections) discovered.add(metadata.namespace)
        return { found: [], failures: [] }
      },
      settings: { requestsPerMinute: 0, discoveriesPerMinute: 0, clouds: ["aws", "gcp", "azure"] },
    })
    const options = { call, client: fixture.client, issuer, endpoints: ENDPOINTS }
    const run = randomBytes(4).toString("hex")
    ours = await makeTenant({ ...options, name: `ours-${run}` })
    theirs = await makeTenant({ ...options, name: `theirs-${run}` })
    stranger = await issuer.token({ sub: `stranger-${run}`, exp: Math.floor(Date.now() / 1000) + 3600 })
    await makeNamed(theirs, ONLY_THEIRS)
  })
  afterAll(async () => {
    const idle = [ours, theirs].flatMap(({ made }) =>
      ["idle", "running"].map((kind) => ({ namespace: SYSTEM_NAMESPACE, name: made[kind]?.id ?? "" })),
    )
    await Promise.all([
      ...idle.map((ref) => fixture.client.delete(LAUNCHES, ref)),
      ours.keyController.stop(),
      theirs.keyController.stop(),
      controllers.stop(),
      replica.close(),
      issuer.close(),
    ])
  })
}

/** Creates one object of every kind in a tenant's project, under a unique name. */
async function makeNamed({ people, project }: Tenant, name: string): Promise<void> {
  for (const { path, example } of OF_PROJECTS.filter(({ creates }) => creates)) {
    const { namePrefix: _, ...body }: Record<string, unknown> = { ...example, name }
    const response = await call(`/1${path}`, { key: "", ...bearer(people.owner), host: hostOf(project), body })
    expect(response.status, await response.clone().text()).toBe(201)
  }
}

function withHeads(endpoints: Endpoint[]): Endpoint[] {
  return endpoints.flatMap((endpoint) =>
    endpoint.method === "GET" ? [endpoint, { ...endpoint, method: "HEAD" }] : [endpoint],
  )
}

const titleOf = ({ method, path }: Endpoint): string => `${method} ${path}`
const hostOf = (project: string): string => `${project}.${BASE_DOMAIN}`

/** Returns all callers with rights in a tenant. */
function callersOf({ keys, people }: Tenant): [string, Credentials][] {
  const byKey = Object.entries(keys).map(([role, key]): [string, Credentials] => [`the ${role}'s key`, { key }])
  const signedIn = Object.entries(people).map(([who, token]): [string, Credentials] => [who, bearer(token)])
  return [...byKey, ...signedIn]
}

/** Parts of a response that must be equal, so that the response reveals nothing. */
interface Visible {
  status: number
  headers: Record<string, string>
  body: string
}

/** Headers that differ by response, or by moment. */
const OWN_HEADERS = ["date", "x-request-id", "content-length", "keep-alive"]

async function visibleIn(response: Response, ids: readonly string[]): Promise<Visible> {
  const text = await textOf(response)
  const own = [response.headers.get("x-request-id") ?? "", ...ids]
  const body = own.filter((id) => id !== "").reduce((rest, id) => rest.replaceAll(id, "ID"), text)
  const headers = [...response.headers].filter(([name]) => !OWN_HEADERS.includes(name))
  return { status: response.status, headers: Object.fromEntries(headers), body }
}

interface Target {
  /** Project whose host is called. */
  project: string
  idOf: (collection: string) => string | undefined
  query?: string
}

async function ask(endpoint: Endpoint, { project, idOf, query = "" }: Target, by: Credentials): Promise<Visible> {
  const { method, isAccounts, example } = endpoint
  const credentials = { key: "", headers: {}, ...by }
  const host = isAccounts ? BASE_DOMAIN : hostOf(project)
  const path = addressOf(endpoint, idOf)
  const sent = { ...(example !== undefined && { body: example }) }
  const response = await call(`${path}${query}`, { ...credentials, method, host, ...sent })
  const ids = Object.keys({ ...theirs.made, ...ours.made }).map((collection) => idOf(collection) ?? "")
  return visibleIn(response, [...ids, project])
}

/** Checks that both targets get the same responses for every caller; returns the statuses by caller. */
async function sameForAll(
  endpoint: Endpoint,
  [real, none]: readonly Target[],
  callers: readonly [string, Credentials][],
): Promise<Record<string, number>> {
  const statuses = await Promise.all(
    callers.map(async ([who, by]): Promise<[string, number]> => {
      const [one, other] = await Promise.all([real, none].map((target) => target && ask(endpoint, target, by)))
      expect(one, `${who}: ${titleOf(endpoint)}`).toEqual(other)
      return [who, one?.status ?? 0]
    }),
  )
  return Object.fromEntries(statuses)
}

const theirIds = (collection: string): string | undefined => theirs.made[collection]?.id

function madeUp(): (collection: string) => string | undefined {
  const ids = Object.fromEntries(
    Object.entries(theirs.made).map(([collection, { id }]) => [collection, unusedIdLike(id)]),
  )
  return (collection) => ids[collection]
}

/** Resources that a project's lists show. */
const KINDS = {
  jobs: JOBS,
  cronjobs: CRON_JOBS,
  arrays: JOB_ARRAYS,
  keys: API_KEYS,
  connections: CONNECTIONS,
} as unknown as Record<string, Resource<ApiObject & { spec: unknown }>>

async function stateOf({ project, organization }: Tenant): Promise<unknown> {
  const lists = await Promise.all(
    Object.values(KINDS).map((resource) => fixture.client.list(resource, { namespace: project })),
  )
  const objects = lists.flatMap(({ items }) => items.map(({ metadata: { uid }, spec }) => ({ uid, spec })))
  const { spec: owners } = await fixture.client.get(ORGANIZATIONS, { name: organization })
  const projects = (await fixture.client.list(PROJECTS)).items.filter(({ spec }) => spec.organization === organization)
  return { objects, owners, projects: projects.map(({ spec }) => spec) }
}

/** Declares the tests of one form of addresses. */
export function addressSuite(addressForm: AddressForm): void {
  describe(`the API for an object of another tenant, addressed by ${addressForm}`, () => {
    let before: unknown
    beforeAll(async () => {
      form = addressForm
      before = await stateOf(theirs)
    })

    it.each(
      ENDPOINTS.filter((endpoint) => !endpoint.isAccounts || endpoint.path.includes("{")).map(
        (e) => [titleOf(e), e] as const,
      ),
    )("hides another tenant's objects at their own host: %s", async (_title, endpoint) => {
      const callers: [string, Credentials][] = [
        ...callersOf(ours),
        ["a stranger", bearer(stranger)],
        ["a caller without credentials", { key: "" }],
        ["an unknown key", { key: "berth_0123456789abcdef_nonsense" }],
        ["an unknown token", bearer("e30.e30.")],
      ]
      const there = { project: theirs.project, idOf: theirIds }
      const nowhere = { project: unusedIdLike(theirs.project), idOf: madeUp() }
      const statuses = await sameForAll(endpoint, [there, nowhere], callers)
      const expected = ([who]: [string, Credentials]): number => {
        if (who.includes("key")) return endpoint.isAccounts ? 403 : 401
        return ["a caller without credentials", "an unknown token"].includes(who) ? 401 : 404
      }
      expect(statuses).toEqual(Object.fromEntries(callers.map((one) => [one[0], expected(one)])))
    })

    it.each(WITH_IDS.map((endpoint) => [titleOf(endpoint), endpoint] as const))(
      "returns the 404 of a missing object for its id in the caller's own project: %s",
      async (_title, endpoint) => {
        const targets = [theirIds, madeUp()].map((idOf) => ({ project: ours.project, idOf }))
        const statuses = await sameForAll(endpoint, targets, callersOf(ours))
        for (const [who, status] of Object.entries(statuses)) expect([403, 404], who).toContain(status)
        if (!endpoint.isAccounts)
          expect(statuses).toMatchObject({ owner: 404, admin: 404, projectAdmin: 404, "the admin's key": 404 })
      },
    )

    // An upload has no name.
    const withNames = WITH_IDS.filter(({ isAccounts, path }) => !isAccounts && !isUpload(path))
    it.each(withNames.map((endpoint) => [titleOf(endpoint), endpoint] as const))(
      "returns the 404 of a missing object for its name in the caller's own project: %s",
      async (_title, endpoint) => {
        const targets = [ONLY_THEIRS, "never-made"].map((name) => ({ project: ours.project, idOf: () => name }))
        const statuses = await sameForAll(endpoint, targets, callersOf(ours))
        expect(statuses).toMatchObject({ owner: 404, "the admin's key": 404 })
      },
    )

    it.each(
      OF_PROJECTS.flatMap((endpoint) =>
        endpoint.query
          .filter((name) => name.endsWith("_id"))
          .map((name) => [name, titleOf(endpoint), endpoint] as const),
      ),
    )("returns the 404 of a missing object for its id as %s in a query: %s", async (name, _title, endpoint) => {
      const collection = name.replace(/_id$/, "s")
      const [real = "", none = ""] = [theirIds(collection), madeUp()(collection)]
      const targets = [real, none].map((id) => ({ project: ours.project, idOf: () => id, query: `?${name}=${id}` }))
      const statuses = await sameForAll(endpoint, targets, callersOf(ours))
      expect(new Set(Object.values(statuses))).toEqual(new Set([404]))
    })

    it("allows names and Idempotency-Keys that another tenant uses", () => {
      for (const [collection, { id, name }] of Object.entries(ours.made)) {
        expect(id, collection).not.toBe(theirs.made[collection]?.id)
        if (name !== undefined && collection !== "jobs") expect(name).toBe(theirs.made[collection]?.name)
      }
    })

    it("counts no objects of another tenant in lists", async () => {
      for (const [collection, resource] of Object.entries(KINDS)) {
        const { items } = await fixture.client.list(resource, { namespace: ours.project })
        const own = items.map(({ metadata }) => metadata.uid).sort()
        for (const [who, by] of callersOf(ours)) {
          const response = await call(`/1/${collection}`, { key: "", ...by, host: hostOf(ours.project) })
          const list = (await response.json()) as Record<string, { id: string }[]> & { total: number }
          expect(list.total, `${who}: ${collection}`).toBe(own.length)
          expect(list[collection]?.map(({ id }) => id).sort()).toEqual(own)
        }
      }
    })

    it("lists no organizations and projects of another tenant", async () => {
      const expected = (who: PersonRole): string[] => (who.startsWith("project") ? [] : [ours.organization])
      for (const [who, token] of Object.entries(ours.people)) {
        const response = await call("/1/organizations", { key: "", ...bearer(token), host: BASE_DOMAIN })
        const { organizations } = (await response.json()) as { organizations: { id: string }[] }
        expect(
          organizations.map(({ id }) => id),
          who,
        ).toEqual(expected(who as PersonRole))
      }
      const path = `/1/organizations/${ours.organization}/projects`
      const response = await call(path, { key: "", ...bearer(ours.people.owner), host: BASE_DOMAIN })
      expect(await response.json()).toMatchObject({ projects: [{ id: ours.project }] })
    })

    it("discovers nothing with another tenant's connections", async () => {
      for (const { path } of OF_PROJECTS.filter(({ path }) => path.startsWith("/resources/"))) {
        for (const [, by] of callersOf(ours)) {
          expect((await call(`/1${path}`, { key: "", ...by, host: hostOf(ours.project) })).status).toBe(200)
        }
      }
      expect(discovered).toEqual(new Set([ours.project]))
    })

    it("leaves another tenant's objects unchanged after all these requests", async () => {
      expect(await stateOf(theirs)).toEqual(before)
    })
  })

  describe(`the API for the caller's own project, addressed by ${addressForm}`, () => {
    beforeAll(() => {
      form = addressForm
    })

    it.each(OF_PROJECTS.map((endpoint) => [titleOf(endpoint), endpoint] as const))(
      "gives a person the same statuses as a key of that role: %s",
      async (_title, endpoint) => {
        const target = { project: ours.project, idOf: madeUp() }
        const bare = { ...endpoint, ...(endpoint.example !== undefined && { example: {} }) }
        for (const [who, role] of Object.entries(ROLE_OF)) {
          const person = await ask(bare, target, bearer(ours.people[who as PersonRole]))
          const { status } = await ask(bare, target, { key: ours.keys[role] })
          expect(person.status, who).toBe(status)
        }
      },
    )
  })
}

/** Declares the tests for which the form of addresses does not matter. */
export function tenantSuite(): void {
  describe("the API for a Project that requests another tenant's namespace", () => {
    beforeAll(() => {
      form = "host"
    })

    const name = `evil-${randomBytes(4).toString("hex")}`

    it("returns 503 to the admin of a Project with another tenant's namespace, and 401 for that namespace's keys", async () => {
      await fixture.client.create(PROJECTS, {
        ...{ apiVersion: API_VERSION, kind: "Project", metadata: { name } },
        spec: { displayName: "Evil", organization: ours.organization, namespace: theirs.project },
      } as StoredProject)
      const target = { project: name, idOf: theirIds }
      discovered.clear()
      /** @param waits allowed values of Retry-After: longer once the controller has rejected the namespace */
      const look = async (waits: readonly string[]): Promise<void> => {
        for (const endpoint of OF_PROJECTS) {
          const { status, headers } = await ask(endpoint, target, bearer(ours.people.owner))
          expect(status, titleOf(endpoint)).toBe(503)
          expect(waits, titleOf(endpoint)).toContain(headers["retry-after"])
          for (const key of [theirs.keys.admin, ours.keys.admin])
            expect((await ask(endpoint, target, { key })).status, titleOf(endpoint)).toBe(401)
        }
      }
      await look(["1", "60"])
      await eventually(async () => {
        const { status } = await fixture.client.get(PROJECTS, { name })
        expect(findCondition(status?.conditions, "Ready")).toMatchObject({ status: "False", reason: "NamespaceTaken" })
      })
      await look(["60"])
      expect(discovered).toEqual(new Set())
      await fixture.client.delete(PROJECTS, { name })
    })
  })

  describe("the API for the caller's own organization", () => {
    beforeAll(() => {
      form = "host"
    })

    const OF_ORGANIZATIONS = ENDPOINTS.filter(({ isAccounts, path }) => isAccounts && path.includes("{"))
    const OTHERS: PersonRole[] = ["projectAdmin", "projectDeveloper", "projectViewer"]

    it.each(OF_ORGANIZATIONS.map((endpoint) => [titleOf(endpoint), endpoint] as const))(
      "allows members to read, admins and owners to change, and returns 404 for people of a project alone: %s",
      async (_title, endpoint) => {
        const target = { project: ours.project, idOf: (collection: string) => ours.made[collection]?.id }
        const reads = ["GET", "HEAD"].includes(endpoint.method)
        for (const [who, token] of Object.entries(ours.people)) {
          const { status } = await ask(endpoint, target, bearer(token))
          if (OTHERS.includes(who as PersonRole)) expect(status, who).toBe(404)
          else if (reads || who === "owner" || who === "admin") expect([200, 201], who).toContain(status)
          else expect(status, who).toBe(403)
        }
      },
    )
  })

  describe("tokens", () => {
    it("accepts tokens of a group's people while the group belongs to the organization", async () => {
      const submit = () =>
        call("/1/jobs", { key: "", ...bearer(ours.people.inGroup), host: hostOf(ours.project), body: { image: "a" } })
      expect((await submit()).status).toBe(201)
      await fixture.client.patch(ORGANIZATIONS, { name: ours.organization }, { merge: { spec: { groups: [] } } })
      await eventually(async () => expect((await problemIn(await submit())).status).toBe(404))
    })
  })
}
