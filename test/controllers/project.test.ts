import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { ANNOTATIONS, API_VERSION } from "../../src/core/apis/meta.ts"
import type { Organization, StoredOrganization } from "../../src/core/apis/organization.ts"
import type { Project, StoredProject } from "../../src/core/apis/project.ts"
import { IDENTITIES_NAMESPACE, roleUserName, SERVICE_ACCOUNTS } from "../../src/core/identity/machine-users.ts"
import { ROLE_BINDINGS } from "../../src/core/identity/role-bindings.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import { isNotFound } from "../../src/core/kube/errors.ts"
import type { ApiObject, ObjectRef, Resource } from "../../src/core/kube/resource.ts"
import { JOBS, ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { gather } from "../../src/operator/project/gather.ts"
import { RESOURCE_QUOTAS } from "../../src/operator/project/objects.ts"
import { kubeConfig, kubectl } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"
import { type ProjectControllers, projectOptions, startProjectControllers } from "../harness/project-controllers.ts"
import { isAllowed, rightsOf, type Subject } from "../harness/rights.ts"

const ISSUER = "https://issuer.test"

/** Projects are cluster-scoped, so these controllers must watch only this suite's. */
const SUITE = { "test/suite": randomBytes(4).toString("hex") }
const labelSelector = Object.entries(SUITE)
  .map(([key, value]) => `${key}=${value}`)
  .join()

const admin = new KubeClient(kubeConfig())
let controllers: ProjectControllers

beforeAll(async () => {
  await installBase(admin, AbortSignal.timeout(120_000))
  controllers = await startProjectControllers(labelSelector)
})

afterAll(async () => {
  await controllers.stop()
  await admin.close()
})

function unique(prefix: string): string {
  return `${prefix}-${randomBytes(4).toString("hex")}`
}

async function makeOrganization(spec: Partial<Organization["spec"]> = {}): Promise<string> {
  const name = unique("org")
  await admin.create(ORGANIZATIONS, {
    ...{ apiVersion: API_VERSION, kind: "Organization", metadata: { name, labels: SUITE } },
    spec: { displayName: "Acme", ...spec },
  } as unknown as StoredOrganization)
  return name
}

async function makeProject(
  organization: string,
  spec: Partial<Project["spec"]> = {},
  name = unique("project"),
): Promise<string> {
  await admin.create(PROJECTS, {
    ...{ apiVersion: API_VERSION, kind: "Project", metadata: { name, labels: SUITE } },
    spec: { displayName: "Trains", organization, ...spec },
  } as unknown as StoredProject)
  return name
}

const reasonOf = async (name: string, type = "Ready"): Promise<string | undefined> => {
  const project = await admin.get(PROJECTS, { name })
  const condition = findCondition(project.status?.conditions, type)
  return condition === undefined ? undefined : `${condition.status} ${condition.reason}`
}

const becomes = (name: string, state: string): Promise<void> =>
  eventually(async () => expect(await reasonOf(name)).toBe(state))

async function find<T extends ApiObject>(resource: Resource<T>, ref: ObjectRef): Promise<T | undefined> {
  try {
    return await admin.get(resource, ref)
  } catch (error) {
    if (isNotFound(error)) return undefined
    throw error
  }
}

/** Returns true if Kubernetes itself allows a user an action on jobs of a namespace. */
function can(user: string, verb: string, namespace: string): Promise<boolean> {
  return isAllowed(admin, { user }, { verb, resource: "jobs.berth.dev", namespace })
}

/** Resolves when the API server agrees: its decisions come from a cache of its own. */
const comesTo = (answer: boolean, ...act: Parameters<typeof can>): Promise<void> =>
  eventually(async () => expect(await can(...act)).toBe(answer))

const userId = (subject: string): string => `${ISSUER}#${subject}`

describe("the controller of Projects", () => {
  it("gives a Project a namespace of its own, with a quota and rights for its roles", async () => {
    const name = await makeProject(await makeOrganization())
    await becomes(name, "True Ready")
    const project = await admin.get(PROJECTS, { name })
    expect(project.status).toMatchObject({ namespace: name, observedGeneration: 1 })
    expect(await find(RESOURCE_QUOTAS, { namespace: name, name: "berth-default" })).toBeDefined()
    await kubectl(["get", "networkpolicy", "berth-default", "-n", name])
    const developer = roleUserName(project.metadata.uid, "developer")
    const user = await admin.get(SERVICE_ACCOUNTS, { namespace: IDENTITIES_NAMESPACE, name: developer })
    expect(user).toMatchObject({ automountServiceAccountToken: false })
    const as = `system:serviceaccount:${IDENTITIES_NAMESPACE}:${developer}`
    await comesTo(true, as, "create", name)
    expect(await can(as, "create", "default")).toBe(false)
    await kubectl(["wait", "--for=condition=Ready", `bproj/${name}`, "--timeout=120s"])
  })

  it("keeps the quota of a Project's namespace as its owners change it", async () => {
    const name = await makeProject(await makeOrganization())
    await becomes(name, "True Ready")
    await admin.delete(RESOURCE_QUOTAS, { namespace: name, name: "berth-default" })
    await admin.patch(PROJECTS, { name }, { merge: { spec: { displayName: "Other" } } })
    await eventually(async () => expect((await admin.get(PROJECTS, { name })).status?.observedGeneration).toBe(2))
    expect(await find(RESOURCE_QUOTAS, { namespace: name, name: "berth-default" })).toBeUndefined()
  })

  it("grants the organization's people their rights in Kubernetes, and revokes them", async () => {
    const organization = await makeOrganization({
      members: [
        { userId: userId("olga"), role: "owner" },
        { userId: userId("mike"), role: "member" },
      ],
    })
    const name = await makeProject(organization, { members: [{ userId: userId("vera"), role: "viewer" }] })
    await becomes(name, "True Ready")
    await comesTo(true, userId("olga"), "delete", name)
    await comesTo(true, userId("mike"), "create", name)
    await comesTo(true, userId("vera"), "get", name)
    expect(await can(userId("vera"), "create", name)).toBe(false)
    expect(await can(userId("stranger"), "get", name)).toBe(false)
    await admin.patch(
      ORGANIZATIONS,
      { name: organization },
      {
        merge: { spec: { members: [{ userId: userId("olga"), role: "owner" }] } },
      },
    )
    await comesTo(false, userId("mike"), "get", name)
    await comesTo(true, userId("olga"), "delete", name)
  })

  it("repairs a Project's rights that a user changed or deleted", async () => {
    const name = await makeProject(await makeOrganization({ members: [{ userId: userId("olga"), role: "owner" }] }))
    await becomes(name, "True Ready")
    const ref = { namespace: name, name: "berth-project-admin" }
    const { subjects } = await admin.get(ROLE_BINDINGS, ref)
    await admin.patch(ROLE_BINDINGS, ref, { merge: { subjects: [{ kind: "User", name: "mallory" }] } })
    await eventually(async () => expect((await admin.get(ROLE_BINDINGS, ref)).subjects).toEqual(subjects))
    await comesTo(false, "mallory", "get", name)
    await admin.delete(ROLE_BINDINGS, ref)
    await eventually(async () => expect((await admin.get(ROLE_BINDINGS, ref)).subjects).toEqual(subjects))
    await comesTo(true, userId("olga"), "delete", name)
  })

  it("adopts no namespace that isn't lent to the Project, and grants no rights there", async () => {
    const namespace = unique("theirs")
    await admin.create(NAMESPACES, { metadata: { name: namespace } })
    const name = await makeProject(await makeOrganization({ members: [{ userId: userId("olga"), role: "owner" }] }), {
      namespace,
    })
    await becomes(name, "False NamespaceTaken")
    expect(await reasonOf(name, "Stalled")).toBe("True NamespaceTaken")
    expect((await admin.get(PROJECTS, { name })).status?.namespace).toBeUndefined()
    expect(await can(userId("olga"), "get", namespace)).toBe(false)
    expect((await admin.list(ROLE_BINDINGS, { namespace })).items).toEqual([])
  })

  it.each(["kube-system", "berth-system", IDENTITIES_NAMESPACE])(
    "never adopts the namespace %s, whether lent or not",
    async (namespace) => {
      // Without an organization: another suite's operator has another system namespace, so it could accept this project.
      const name = await makeProject(unique("orphan"), { namespace })
      const annotations = { [ANNOTATIONS.adopt]: name }
      await admin.patch(NAMESPACES, { name: namespace }, { merge: { metadata: { annotations } } })
      await becomes(name, "False NamespaceReserved")
      const { items } = await admin.list(ROLE_BINDINGS, { namespace })
      expect(items.filter(({ metadata }) => metadata.name.startsWith("berth-project"))).toEqual([])
      await admin.delete(PROJECTS, { name })
    },
  )

  it("waits for a Project's organization", async () => {
    const organization = unique("org")
    const name = await makeProject(organization)
    await becomes(name, "False OrganizationNotFound")
    expect(await find(NAMESPACES, { name })).toBeUndefined()
    await admin.create(ORGANIZATIONS, {
      ...{ apiVersion: API_VERSION, kind: "Organization", metadata: { name: organization, labels: SUITE } },
      spec: { displayName: "Late" },
    } as unknown as StoredOrganization)
    await becomes(name, "True Ready")
  })

  it("rejects a change of a Project's organization or namespace", async () => {
    const name = await makeProject(await makeOrganization())
    const other = await makeOrganization()
    for (const spec of [{ organization: other }, { namespace: "elsewhere" }]) {
      await expect(admin.patch(PROJECTS, { name }, { merge: { spec } })).rejects.toMatchObject({ code: 422 })
    }
  })
})

describe("a person with kubectl", () => {
  const READ = ["get", "list", "watch"]
  const ALL = [...READ, "create", "update", "patch", "delete", "deletecollection"]
  const GRANTS = ["grant-viewer", "grant-developer", "grant-admin"]
  const NOTHING: Record<string, string[]> = {}
  const VIEWER = { jobs: READ, cronjobs: READ, jobarrays: READ, machines: READ }
  const DEVELOPER = { jobs: ALL, cronjobs: ALL, jobarrays: ALL, machines: READ }
  const ADMIN = { ...DEVELOPER, machines: ALL, apikeys: [...ALL, ...GRANTS], connections: ALL, webhooks: ALL }
  /** Complete list of each person's rights in Acme's project (DESIGN, sections 8 and 9). */
  const MATRIX: Record<string, Record<string, string[]>> = {
    ...{ owner: ADMIN, admin: ADMIN, member: DEVELOPER },
    ...{ projectAdmin: ADMIN, projectDeveloper: DEVELOPER, projectViewer: VIEWER },
    ...{ inOwningGroup: ADMIN, inMemberGroup: DEVELOPER, inViewingGroup: VIEWER, inOthersGroup: NOTHING },
    stranger: NOTHING,
  }

  const people: Record<string, Required<Subject>> = Object.fromEntries(
    Object.keys(MATRIX).map((who) => {
      const groups = who.startsWith("in") ? [userId(who)] : []
      return [who, { user: userId(unique(who)), groups: ["system:authenticated", ...groups] }]
    }),
  )
  const user = (who: string): string => people[who]?.user ?? ""
  let own: string
  let others: string

  beforeAll(async () => {
    const organization = await makeOrganization({
      members: [
        { userId: user("owner"), role: "owner" },
        { userId: user("admin"), role: "admin" },
        { userId: user("member"), role: "member" },
      ],
      groups: [
        { group: userId("inOwningGroup"), role: "owner" },
        { group: userId("inMemberGroup"), role: "member" },
      ],
    })
    own = await makeProject(organization, {
      members: [
        { userId: user("projectAdmin"), role: "admin" },
        { userId: user("projectDeveloper"), role: "developer" },
        { userId: user("projectViewer"), role: "viewer" },
      ],
      groups: [{ group: userId("inViewingGroup"), role: "viewer" }],
    })
    const eves = await makeOrganization({
      members: [{ userId: userId("eve"), role: "owner" }],
      groups: [{ group: userId("inOthersGroup"), role: "owner" }],
    })
    others = await makeProject(eves)
    await Promise.all([becomes(own, "True Ready"), becomes(others, "True Ready")])
  })

  it.each(Object.entries(MATRIX))(
    "gives a person the rights of their role in the own project, and none in others: %s",
    async (who, resources) => {
      const known = people[who] ?? { user: "", groups: [] }
      const rights = (allowed: Record<string, string[]>): Record<string, string[]> =>
        Object.fromEntries(Object.entries(allowed).map(([plural, verbs]) => [`${plural}.berth.dev`, verbs.toSorted()]))
      // The API server's own cache of bindings may be later than the controller's.
      await eventually(async () => {
        expect(await rightsOf(admin, known, own)).toEqual(rights(resources))
        expect(await rightsOf(admin, known, others)).toEqual(rights(who === "inOthersGroup" ? ADMIN : NOTHING))
      })
    },
  )

  it("serves kubectl under the identity of the person's token", async () => {
    const wrong = Object.entries(MATRIX).map(async ([who, resources]) => {
      const { user, groups } = people[who] ?? { user: "", groups: [] }
      const as = ["--as", user, ...groups.flatMap((group) => ["--as-group", group])]
      const readable = Object.entries(resources).filter(([, verbs]) => verbs.includes("list"))
      const kinds = readable.map(([plural]) => `${plural}.berth.dev`)
      const get = (namespace: string, what: string[]): Promise<string> =>
        kubectl(["get", what.join(), "-n", namespace, "-o", "name", ...as])
      if (kinds.length > 0) expect(await get(own, kinds), who).toBe("")
      const elsewhere = who === "inOthersGroup" ? own : others
      await expect(get(elsewhere, ["jobs.berth.dev"]), who).rejects.toThrow(/Forbidden/)
    })
    await Promise.all(wrong)
  })
})

describe("the controller of a deleted Project", () => {
  const job = { apiVersion: API_VERSION, kind: "Job", metadata: { name: "held" }, spec: { image: "x" } }

  it("keeps a Project with a condition until its jobs are over, and deletes its namespace", async () => {
    const organization = await makeOrganization()
    const name = await makeProject(organization)
    await becomes(name, "True Ready")
    const { uid } = (await admin.get(PROJECTS, { name })).metadata
    await admin.create(JOBS, { ...job, metadata: { ...job.metadata, namespace: name } } as StoredJob)
    await admin.delete(PROJECTS, { name })
    await becomes(name, "False JobsNotOver")
    expect((await admin.get(NAMESPACES, { name })).metadata.deletionTimestamp).toBeUndefined()
    await admin.delete(JOBS, { namespace: name, name: "held" })
    await eventually(async () => expect(await find(PROJECTS, { name })).toBeUndefined(), 150)
    expect(await find(NAMESPACES, { name })).toBeUndefined()
    const user = { namespace: IDENTITIES_NAMESPACE, name: roleUserName(uid, "admin") }
    expect(await find(SERVICE_ACCOUNTS, user)).toBeUndefined()
  })

  it("keeps a Project while jobs exist that its cache lacks: it may be stale, or filled from another namespace", async () => {
    const namespace = unique("busy")
    await admin.create(NAMESPACES, { metadata: { name: namespace } })
    await admin.create(JOBS, { ...job, metadata: { ...job.metadata, namespace } } as StoredJob)
    const metadata = { name: namespace, uid: "of-a-test", deletionTimestamp: "2026-05-01T12:00:00Z" }
    const project = {
      metadata,
      spec: { displayName: "Busy", organization: "o", namespace },
    } as unknown as StoredProject
    expect((await gather(project, projectOptions(admin))).unfinishedJobs).toBe(1)
    await admin.patchStatus(JOBS, { namespace, name: "held" }, { merge: { status: { phase: "succeeded" } } })
    expect((await gather(project, projectOptions(admin))).unfinishedJobs).toBe(0)
    await admin.delete(NAMESPACES, { name: namespace })
  })

  it("keeps the lent namespace of a deleted Project, without its rights", async () => {
    const organization = await makeOrganization({ members: [{ userId: userId("olga"), role: "owner" }] })
    const namespace = unique("lent")
    const name = unique("project")
    // Before the project, whose controller would create it.
    await admin.create(NAMESPACES, { metadata: { name: namespace, annotations: { [ANNOTATIONS.adopt]: name } } })
    await makeProject(organization, { namespace }, name)
    await becomes(name, "True Ready")
    await comesTo(true, userId("olga"), "get", namespace)
    expect(await find(RESOURCE_QUOTAS, { namespace, name: "berth-default" })).toBeUndefined()
    await admin.delete(PROJECTS, { name })
    await eventually(async () => expect(await find(PROJECTS, { name })).toBeUndefined(), 150)
    expect((await admin.get(NAMESPACES, { name: namespace })).metadata.deletionTimestamp).toBeUndefined()
    await comesTo(false, userId("olga"), "get", namespace)
  })
})

describe("the controller of a deleted Organization", () => {
  it("keeps an Organization until its last project is deleted, and lists the remaining ones", async () => {
    const organization = await makeOrganization()
    const name = await makeProject(organization)
    await becomes(name, "True Ready")
    await admin.delete(ORGANIZATIONS, { name: organization })
    await eventually(async () => {
      const { status } = await admin.get(ORGANIZATIONS, { name: organization })
      expect(findCondition(status?.conditions, "Ready")).toMatchObject({ status: "False", reason: "HasProjects" })
      expect(findCondition(status?.conditions, "Ready")?.message).toContain(name)
    })
    await admin.delete(PROJECTS, { name })
    await eventually(async () => expect(await find(ORGANIZATIONS, { name: organization })).toBeUndefined(), 150)
  })

  it("keeps an Organization while a project exists that its stale cache lacks", async () => {
    const organization = await makeOrganization()
    const held = () => find(ORGANIZATIONS, { name: organization })
    await eventually(async () => expect((await held())?.metadata.finalizers).toHaveLength(1))
    const name = unique("unseen")
    const unseen = {
      ...{ apiVersion: API_VERSION, kind: "Project", metadata: { name } },
      spec: { displayName: "Trains", organization },
    }
    await admin.create(PROJECTS, unseen as unknown as StoredProject)
    await admin.delete(ORGANIZATIONS, { name: organization })
    await eventually(async () => {
      const condition = findCondition((await held())?.status?.conditions, "Ready")
      expect(condition).toMatchObject({ status: "False", reason: "HasProjects" })
      expect(condition?.message).toContain(name)
    })
    await admin.delete(PROJECTS, { name })
    await eventually(async () => expect(await held()).toBeUndefined())
  })
})
