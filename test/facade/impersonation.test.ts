import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { API_KEY, ROLES, type Role, type StoredApiKey } from "../../src/core/apis/apikey.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { makeApiKey } from "../../src/core/identity/apikeys.ts"
import {
  asMachineUser,
  IDENTITIES_NAMESPACE,
  machineUserName,
  SERVICE_ACCOUNTS,
} from "../../src/core/identity/machine-users.ts"
import { impersonating, type Principal } from "../../src/core/identity/principal.ts"
import type { Impersonation, KubeClient } from "../../src/core/kube/client.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { type ApiObject, declareResource } from "../../src/core/kube/resource.ts"
import { API_KEYS, CONNECTIONS, JOBS } from "../../src/core/resources.ts"
import { kubectl } from "../control-plane.ts"
import { makeKey } from "../harness/api-keys.ts"
import { eventually } from "../harness/eventually.ts"
import { applyJob, projectFixture } from "../harness/facade-project.ts"
import { clientOf } from "../harness/machine-users.ts"

const fixture = projectFixture("facade-trust")
let facade: KubeClient
let operator: KubeClient

beforeAll(async () => {
  facade = await clientOf("berth-facade")
  operator = await clientOf("berth-operator")
})
afterAll(async () => {
  await facade.close()
  await operator.close()
})

const NAMESPACES = declareResource({
  group: "",
  version: "v1",
  kind: "Namespace",
  plural: "namespaces",
  namespaced: false,
})
const rbac = { group: "rbac.authorization.k8s.io", version: "v1" }
const CLUSTER_ROLE_BINDINGS = declareResource<ApiObject & { roleRef: object; subjects: object[] }>({
  ...rbac,
  kind: "ClusterRoleBinding",
  plural: "clusterrolebindings",
  namespaced: false,
})
const ROLE_BINDINGS = declareResource<ApiObject & { roleRef: object; subjects: object[] }>({
  ...rbac,
  kind: "RoleBinding",
  plural: "rolebindings",
  namespaced: true,
})
const roleRef = (name: string) => ({ apiGroup: rbac.group, kind: "ClusterRole", name })
const forbidden = { reason: "Forbidden" }

async function machineUserOf(name: string, role: Role): Promise<string> {
  await makeKey(fixture.client, fixture.namespace, role, { name })
  const { metadata } = await fixture.client.get(API_KEYS, { namespace: fixture.namespace, name })
  const user = machineUserName(metadata.uid)
  // The API server applies new rights after a delay.
  await eventually(() => fixture.client.list(JOBS, { namespace: fixture.namespace, as: asMachineUser(user) }))
  return user
}

describe("a façade with the rights of manifests/base", () => {
  it.each<[string, Impersonation]>([
    ["a user in system:masters", { user: "kubernetes-admin", groups: ["system:masters"] }],
    ["a machine user in system:masters", { ...asMachineUser("apikey-x"), groups: ["system:masters"] }],
    ["a machine user with a uid", { ...asMachineUser("apikey-x"), uid: "1" }],
    ["a machine user with extras", { ...asMachineUser("apikey-x"), extra: { scopes: ["all"] } }],
    ["a user", { user: "kubernetes-admin" }],
    ["the controller manager", { user: "system:kube-controller-manager" }],
    ["a controller's ServiceAccount", { user: "system:serviceaccount:kube-system:clusterrole-aggregation-controller" }],
    ["the operator", { user: "system:serviceaccount:berth-system:berth-operator" }],
    ["a ServiceAccount of the tenant", { user: `system:serviceaccount:${fixture.namespace}:default` }],
    ["a name that begins like a machine user's", { user: "system:serviceaccount:berth-identities:a:b" }],
    ["an anonymous caller", { user: "system:anonymous", groups: ["system:unauthenticated"] }],
  ])("forbids the façade to act as %s", async (_what, as) => {
    await expect(facade.list(JOBS, { namespace: fixture.namespace, as })).rejects.toMatchObject({
      ...forbidden,
      message: expect.stringMatching(/cannot impersonate|not allowed to impersonate|impersonat/),
    })
  })

  it("forbids the façade to grant itself rights", async () => {
    const me = { kind: "ServiceAccount", name: "berth-facade", namespace: "berth-system" }
    const admin = { metadata: { name: "gotcha" }, roleRef: roleRef("cluster-admin"), subjects: [me] }
    await expect(facade.create(CLUSTER_ROLE_BINDINGS, admin)).rejects.toMatchObject(forbidden)
    const local = { ...admin, metadata: { name: "gotcha", namespace: fixture.namespace } }
    await expect(facade.create(ROLE_BINDINGS, local)).rejects.toMatchObject(forbidden)
    const identities = { ...admin, metadata: { name: "gotcha", namespace: IDENTITIES_NAMESPACE } }
    await expect(facade.create(ROLE_BINDINGS, identities)).rejects.toMatchObject(forbidden)
    for (const namespace of [IDENTITIES_NAMESPACE, "berth-system"]) {
      const token = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} }
      const ref = { namespace, name: "berth-operator" }
      const asked = facade.createSubresource(SERVICE_ACCOUNTS, ref, token, { subresource: "token" })
      await expect(asked).rejects.toMatchObject(forbidden)
    }
  })

  it("forbids the façade to write objects as itself", async () => {
    const job = await applyJob(fixture, "not-mine")
    await expect(
      facade.create(JOBS, { ...job, metadata: { name: "mine", namespace: fixture.namespace } } as StoredJob),
    ).rejects.toMatchObject(forbidden)
    const merge = { spec: { cancelled: true } }
    await expect(facade.patch(JOBS, job.metadata, { merge })).rejects.toMatchObject(forbidden)
    await expect(facade.delete(JOBS, job.metadata)).rejects.toMatchObject(forbidden)
    const key = apiKey("mine", "admin")
    await expect(facade.create(API_KEYS, key)).rejects.toMatchObject(forbidden)
  })

  it("acts as a machine user with that user's rights, in its own project only", async () => {
    const as = asMachineUser(await machineUserOf("reaches", "admin"))
    await facade.create(JOBS, jobNamed("reached"), { as })
    for (const namespace of ["default", "berth-system", IDENTITIES_NAMESPACE]) {
      await expect(facade.list(JOBS, { namespace, as })).rejects.toMatchObject(forbidden)
    }
    await expect(facade.list(SECRETS, { namespace: fixture.namespace, as })).rejects.toMatchObject(forbidden)
    await expect(facade.get(NAMESPACES, { name: fixture.namespace }, { as })).rejects.toMatchObject(forbidden)
    await expect(
      facade.patchStatus(JOBS, { namespace: fixture.namespace, name: "reached" }, { merge: { status: {} } }, { as }),
    ).rejects.toMatchObject(forbidden)
  })
})

function jobNamed(name: string): StoredJob {
  const { namespace } = fixture
  return { apiVersion: API_VERSION, kind: "Job", metadata: { name, namespace }, spec: { image: "a" } } as StoredJob
}

function apiKey(name: string, role: Role): StoredApiKey {
  const { keyId, tokenHash } = makeApiKey()
  const metadata = { name, namespace: fixture.namespace }
  return { apiVersion: API_VERSION, kind: API_KEY.kind, metadata, spec: { role, keyId, tokenHash } } as StoredApiKey
}

describe("RBAC for the caller", () => {
  const principal = (role: Role, machineUser: string): Principal => ({
    kind: "apiKey",
    id: "apiKey/test",
    publicId: "test",
    role,
    project: { id: fixture.project, organizationId: fixture.organization, namespace: fixture.namespace },
    machineUser,
    isBound: true,
  })

  it("denies a viewer a write even if the façade omits its own check (contract, Jobs: roles)", async () => {
    // The façade takes the viewer for an admin.
    const viewer = impersonating(facade)(principal("admin", await machineUserOf("peeper", "viewer")))
    expect((await viewer.list(JOBS, { namespace: fixture.namespace })).items).toBeDefined()
    await expect(viewer.create(JOBS, jobNamed("by-viewer"))).rejects.toMatchObject(forbidden)
    for (const resource of [API_KEYS, CONNECTIONS]) {
      const { group, version, kind, plural, namespaced } = resource
      const any = declareResource({ group, version, kind, plural, namespaced })
      await expect(viewer.list(any, { namespace: fixture.namespace })).rejects.toMatchObject(forbidden)
    }
  })

  it("allows a developer to write jobs but no keys", async () => {
    const developer = impersonating(facade)(principal("admin", await machineUserOf("builder", "developer")))
    await developer.create(JOBS, jobNamed("by-developer"))
    await expect(developer.create(API_KEYS, apiKey("by-developer", "viewer"))).rejects.toMatchObject(forbidden)
  })

  it("distinguishes a caller whose rights are pending from a forbidden caller", async () => {
    const pending = { ...principal("admin", machineUserName("pending")), isBound: false }
    await expect(impersonating(facade)(pending).list(JOBS, { namespace: fixture.namespace })).rejects.toMatchObject({
      name: "NotBoundYet",
    })
    const known = { ...pending, isBound: true }
    await expect(impersonating(facade)(known).list(JOBS, { namespace: fixture.namespace })).rejects.toMatchObject(
      forbidden,
    )
  })
})

describe("a tenant with Kubernetes' role edit in its namespace", () => {
  const tenant: Impersonation = { user: "tenant-edit" }

  beforeAll(async () => {
    const subjects = [{ kind: "User", apiGroup: rbac.group, name: tenant.user }]
    const metadata = { name: "tenant-edit", namespace: fixture.namespace }
    await fixture.client.create(ROLE_BINDINGS, { metadata, roleRef: roleRef("edit"), subjects })
    await eventually(() => fixture.client.list(JOBS, { namespace: fixture.namespace, as: tenant }))
  })

  const canI = (...question: string[]): Promise<string> =>
    kubectl(["auth", "can-i", ...question, `--as=${tenant.user}`]).catch((error: { stdout: string }) => error.stdout)

  it("allows a tenant to impersonate ServiceAccounts of its own namespace, which have no more rights", async () => {
    expect((await canI("impersonate", "serviceaccounts", "-n", fixture.namespace)).trim()).toBe("yes")
    expect((await canI("impersonate", "serviceaccounts", "-n", IDENTITIES_NAMESPACE)).trim()).toBe("no")
    const bindings = await kubectl(["get", "rolebindings", "-n", fixture.namespace, "-o", "json"])
    const { items } = JSON.parse(bindings) as { items: { subjects?: { kind: string; namespace?: string }[] }[] }
    const local = items.flatMap(({ subjects = [] }) => subjects).filter(({ kind }) => kind === "ServiceAccount")
    expect(local.length).toBeGreaterThan(0)
    for (const { namespace } of local) expect(namespace).toBe(IDENTITIES_NAMESPACE)
  })

  it("forbids a tenant to read or write keys, create machine users, or bind them", async () => {
    const as = tenant
    await expect(fixture.client.list(API_KEYS, { namespace: fixture.namespace, as })).rejects.toMatchObject(forbidden)
    await expect(fixture.client.create(API_KEYS, apiKey("forged", "viewer"), { as })).rejects.toMatchObject(forbidden)
    const metadata = { name: "apikey-forged", namespace: IDENTITIES_NAMESPACE }
    await expect(fixture.client.create(SERVICE_ACCOUNTS, { metadata }, { as })).rejects.toMatchObject(forbidden)
    const subjects = [{ kind: "User", apiGroup: rbac.group, name: tenant.user }]
    const binding = {
      metadata: { name: "up", namespace: fixture.namespace },
      roleRef: roleRef("berth-admin"),
      subjects,
    }
    await expect(fixture.client.create(ROLE_BINDINGS, binding, { as })).rejects.toMatchObject(forbidden)
  })
})

describe("the admission policy on ApiKeys (design, section 9: no escalation through custom resources)", () => {
  const author: Impersonation = { user: "key-author" }
  const ROLES_KIND = declareResource<ApiObject & { rules: object[] }>({
    ...rbac,
    kind: "Role",
    plural: "roles",
    namespaced: true,
  })

  /** Creates a custom role that may write ApiKeys, and grant only the role viewer. */
  beforeAll(async () => {
    const metadata = { name: "key-author", namespace: fixture.namespace }
    const keys = { apiGroups: ["berth.dev"], resources: ["apikeys"] }
    const rules = [
      { ...keys, verbs: ["get", "list", "create", "update", "patch", "delete"] },
      { ...keys, verbs: ["grant-viewer"] },
    ]
    await fixture.client.create(ROLES_KIND, { metadata, rules })
    const subjects = [{ kind: "User", apiGroup: rbac.group, name: author.user }]
    const role = { apiGroup: rbac.group, kind: "Role", name: "key-author" }
    await fixture.client.create(ROLE_BINDINGS, { metadata, roleRef: role, subjects })
    // The API server applies rights and a new policy after a delay: at first it rejects everything.
    const attempt = (role: Role) => fixture.client.create(API_KEYS, apiKey("probe", role), { as: author, dryRun: true })
    await eventually(() => attempt("viewer"))
    await eventually(() =>
      expect(attempt("admin")).rejects.toMatchObject({ ...forbidden, message: expect.stringContaining("grant-admin") }),
    )
  })

  it("rejects a role that the author may not grant, and names the required verb", async () => {
    const as = author
    await fixture.client.create(API_KEYS, apiKey("granted", "viewer"), { as })
    for (const role of ["developer", "admin"] as const) {
      await expect(fixture.client.create(API_KEYS, apiKey(`no-${role}`, role), { as })).rejects.toMatchObject({
        ...forbidden,
        message: expect.stringContaining(`this needs the verb grant-${role} on apikeys.berth.dev`),
      })
    }
  })

  it("rejects a higher role or a later expiry for an existing key, but allows new labels and deletion", async () => {
    const as = author
    const mine = { namespace: fixture.namespace, name: "climbs" }
    await fixture.client.create(API_KEYS, apiKey("climbs", "viewer"), { as })
    await expect(
      fixture.client.patch(API_KEYS, mine, { merge: { spec: { role: "admin" } } }, { as }),
    ).rejects.toMatchObject(forbidden)
    await fixture.client.patch(API_KEYS, mine, { merge: { spec: { expiresAt: "2099-01-01T00:00:00Z" } } }, { as })
    const others = { namespace: fixture.namespace, name: "others" }
    await makeKey(fixture.client, fixture.namespace, "admin", { name: "others", expiresAt: "2020-01-01T00:00:00Z" })
    const revive = { merge: { spec: { expiresAt: "2099-01-01T00:00:00Z" } } }
    await expect(fixture.client.patch(API_KEYS, others, revive, { as })).rejects.toMatchObject(forbidden)
    await expect(
      fixture.client.patch(API_KEYS, others, { merge: { spec: { expiresAt: null } } }, { as }),
    ).rejects.toMatchObject(forbidden)
    await fixture.client.patch(API_KEYS, others, { merge: { metadata: { labels: { a: "b" } } } }, { as })
    await fixture.client.delete(API_KEYS, others, { as })
  })

  it("allows an admin's machine user to grant every role through the façade", async () => {
    const as = asMachineUser(await machineUserOf("grants", "admin"))
    for (const role of ROLES) await facade.create(API_KEYS, apiKey(`granted-${role}`, role), { as })
  })

  it("forbids the operator to grant any role, though it may write finalizers and status", async () => {
    const ref = { namespace: fixture.namespace, name: "tended" }
    await makeKey(fixture.client, fixture.namespace, "viewer", { name: "tended" })
    await operator.patch(API_KEYS, ref, { merge: { metadata: { annotations: { a: "b" } } } })
    const merge = { spec: { role: "admin" } }
    await expect(operator.patch(API_KEYS, ref, { merge })).rejects.toMatchObject(forbidden)
    await expect(operator.create(API_KEYS, apiKey("by-operator", "viewer"))).rejects.toMatchObject(forbidden)
  })

  it("allows the operator to bind only the three roles", async () => {
    const subjects = [{ kind: "ServiceAccount", name: "berth-operator", namespace: "berth-system" }]
    for (const name of ["cluster-admin", "admin", "edit", "view"]) {
      const binding = { metadata: { name: "up", namespace: fixture.namespace }, roleRef: roleRef(name), subjects }
      await expect(operator.create(ROLE_BINDINGS, binding)).rejects.toMatchObject(forbidden)
    }
  })
})
