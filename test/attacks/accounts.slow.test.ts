import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import type { Cached } from "../../src/api/gateway/answered.ts"
import { kubeLaunches } from "../../src/api/gateway/launches.ts"
import { kubeMachines } from "../../src/api/gateway/machines.ts"
import { registered } from "../../src/api/gateway/report.ts"
import type { StoredApiKey } from "../../src/core/apis/apikey.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { StoredCronJob } from "../../src/core/apis/cronjob.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { Host, StoredMachine } from "../../src/core/apis/machine.ts"
import { API_VERSION, LABELS, type ObjectMeta } from "../../src/core/apis/meta.ts"
import type { StoredOrganization } from "../../src/core/apis/organization.ts"
import type { StoredProject } from "../../src/core/apis/project.ts"
import { makeApiKey } from "../../src/core/identity/apikeys.ts"
import { ensureInstallation, OPERATOR_LEASE } from "../../src/core/identity/installation.ts"
import { IDENTITIES_NAMESPACE, SERVICE_ACCOUNTS } from "../../src/core/identity/machine-users.ts"
import { RBAC_GROUP, ROLE_BINDINGS, type Subject } from "../../src/core/identity/role-bindings.ts"
import { ensureSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES, SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { type Lease, leases } from "../../src/core/kube/lease.ts"
import { type ApiObject, declareResource, type Resource } from "../../src/core/kube/resource.ts"
import {
  API_KEYS,
  CONNECTIONS,
  CRON_JOBS,
  JOBS,
  LAUNCHES,
  MACHINES,
  ORGANIZATIONS,
  PROJECTS,
} from "../../src/core/resources.ts"
import { NETWORK_POLICIES, RESOURCE_QUOTAS } from "../../src/operator/project/objects.ts"
import { kubeConfig, testNamespace } from "../control-plane.ts"
import { jobOf, launchOf, vmStatus } from "../harness/builders.ts"
import { eventually } from "../harness/eventually.ts"
import { clientOf, makeSystemNamespace } from "../harness/machine-users.ts"
import { startProjectControllers } from "../harness/project-controllers.ts"

/**
 * Attacks with the tokens of Berth's own ServiceAccounts, which have the rights of manifests/base and no others. Each attack
 * is a dry run. Admission validators it in the same way, and nothing changes for the other suites.
 */

const SUITE = `attacks-${randomBytes(4).toString("hex")}`
const MINE = { "test/suite": SUITE }

const admin = new KubeClient(kubeConfig())
/** Has the roles of Berth's own namespace, without the operators of other suites. */
const system = testNamespace("attacks-system")
const tenant = testNamespace("attacks-tenant")
let facade: KubeClient
let operator: KubeClient

beforeAll(async () => {
  await installBase(admin, AbortSignal.timeout(120_000))
  await makeSystemNamespace(admin, system)
  facade = await clientOf("berth-facade")
  operator = await clientOf("berth-operator")
})
afterAll(async () => {
  await Promise.all([admin, facade, operator].map((client) => client?.close()))
})

const NO_CACHE: Cached<never> = { get: () => undefined, reached: () => true, waitUntil: async () => undefined }

/** Passes once the API server refuses with these words: it takes up roles and policies in its own time. */
async function refused(
  attack: (options: { dryRun: true }) => Promise<unknown>,
  words: string,
  reason = "Forbidden",
): Promise<void> {
  const refusal = { reason, message: expect.stringContaining(words) }
  await eventually(() => expect(attack({ dryRun: true })).rejects.toMatchObject(refusal))
}

/** Words of RBAC, where the account has no right at all. */
const NO_RIGHT = "cannot"

describe("the façade's account", () => {
  let launch: StoredLaunch
  const ref = () => ({ namespace: system, name: launch.metadata.name })
  const keys = { signingKey: "{}", encryptionKey: "{}", version: "1", runtime: "docker", abilities: [] }
  const agent = () => registered({ ...keys, protocol: 1, launch: "l-1" }, new Date())

  beforeAll(async () => {
    const { metadata, ...rest } = launchOf(jobOf({ metadata: { namespace: tenant } }))
    await admin.create(LAUNCHES, { ...rest, metadata: { name: metadata.name, namespace: system } } as StoredLaunch)
    launch = await admin.patchStatus(
      LAUNCHES,
      { namespace: system, name: metadata.name },
      { merge: { status: vmStatus() } },
    )
  })

  it.each<[string, object, string]>([
    ["change the VM of a Launch", { vm: { state: "running", id: "i-of-somebody-else" } }, "not status.vm"],
    ["hide the VM of a Launch", { vm: null }, "not status.vm"],
    ["end the record of a VM that still runs", { phase: "terminated" }, "not status.phase"],
    ["change what a VM has cost", { costUsd: 0 }, "not status.costUsd"],
    [
      "let a VM count as lost",
      { loss: { reason: "VMLost", message: "no", time: "2026-01-01T00:00:00Z" } },
      "status.loss",
    ],
    [
      "keep everybody from an offer",
      { refusal: { class: "Capacity", message: "no", time: "2026-01-01T00:00:00Z" } },
      "status.refusal",
    ],
    ["hide a change among its own", { agent: agent(), conditions: [], imageId: "ami-1" }, "status.imageId"],
  ])("cannot %s", async (_what, status, words) => {
    await refused((options) => facade.patchStatus(LAUNCHES, ref(), { merge: { status } }, options), words)
    const json = Object.entries(status).map(([field, value]: [string, unknown]) => {
      const path = `/status/${field}`
      return value === null ? ({ op: "remove", path } as const) : ({ op: "add", path, value } as const)
    })
    await refused((options) => facade.patchStatus(LAUNCHES, ref(), { json }, options), words)
  })

  it("cannot change the spec or the finalizers of a Launch", async () => {
    const merge = { metadata: { finalizers: ["a/b"] }, spec: { ended: true } }
    await refused((options) => facade.patch(LAUNCHES, ref(), { merge }, options), NO_RIGHT)
    await facade.patchStatus(LAUNCHES, ref(), { merge: { ...merge, status: { agent: agent() } } })
    const { spec, metadata } = await admin.get(LAUNCHES, ref())
    expect({ spec, finalizers: metadata.finalizers }).toEqual({ spec: launch.spec, finalizers: undefined })
  })

  it("can write what an agent reports", async () => {
    const { read, patchAgentStatus, patchBootFailure } = kubeLaunches(facade, NO_CACHE, system)
    const current = async (): Promise<StoredLaunch> => (await read(launch.metadata.name)) ?? launch
    const heard = { ...agent(), sequence: 7, startTime: "2026-05-01T12:00:00Z", lastExitCode: 3 }
    await patchAgentStatus(await current(), heard)
    const finish = { reason: "Succeeded", exitCode: 0, time: "2026-05-01T12:01:00Z" } as const
    await patchAgentStatus(await current(), { ...heard, finish })
    const failure = { reason: "GPUUnavailable", message: "none", time: "2026-05-01T12:00:00Z" } as const
    await patchBootFailure(await current(), failure)
    expect((await current()).status).toMatchObject({ ...vmStatus(), agent: { ...heard, finish }, bootFailure: failure })
  })

  it("can write what a host reports of a machine, and can't give the machine to a Launch", async () => {
    const metadata = { name: "gpu-1", namespace: tenant }
    await admin.create(MACHINES, { metadata, spec: { joinNumber: 1 } } as StoredMachine)
    const { read, writeHost } = kubeMachines(facade, NO_CACHE)
    const current = async () => (await read(metadata)) as StoredMachine
    const time = "2026-01-01T00:00:00Z"
    const facts = { cpu: 1, memoryGib: 1, diskGib: 1, architecture: "amd64" } as const
    const host: Host = {
      ...{ joinNumber: 1, joinTime: time, signingKey: "{}", encryptionKey: "{}", version: "1", facts, sequence: 1 },
      ...{ lastHeartbeatTime: time, leaseSeconds: 900, running: "l-1" },
    }
    await eventually(async () => expect((await writeHost(await current(), host)).status?.host).toEqual(host))
    const { running: _, ...freed } = { ...host, freed: "l-1", freedTime: time }
    await writeHost(await current(), freed)
    expect((await current()).status?.host).toEqual(freed)
    const launch = { name: "l", installation: "i", namespace: tenant, region: "own", specDigest: "d", createTime: time }
    await refused(
      (options) => facade.patchStatus(MACHINES, metadata, { merge: { status: { launch } } }, options),
      "not status.launch",
    )
    await refused(
      (options) => facade.patch(MACHINES, metadata, { merge: { spec: { shared: true } } }, options),
      NO_RIGHT,
    )
  })

  it("writes heartbeats where it can't reach the operators' Lease", async () => {
    const lease = (namespace: string, name: string) => ({ metadata: { namespace, name }, spec: {} }) as Lease
    const dryRun = { dryRun: true } as const
    const written = await facade.create(leases, lease(IDENTITIES_NAMESPACE, `heartbeats-${SUITE}`), dryRun)
    expect(written.metadata.namespace).toBe(IDENTITIES_NAMESPACE)
    const merge = { spec: { holderIdentity: "mine" } }
    const elected = { namespace: "berth-system", name: OPERATOR_LEASE }
    await refused((options) => facade.patch(leases, elected, { merge }, options), NO_RIGHT)
    await refused((options) => facade.create(leases, lease("berth-system", "mine"), options), NO_RIGHT)
    const foreign = { namespace: IDENTITIES_NAMESPACE, name: `heartbeats-${SUITE}` }
    await refused((options) => operator.patch(leases, foreign, { merge }, options), NO_RIGHT)
    await refused((options) => operator.create(leases, lease(IDENTITIES_NAMESPACE, "mine"), options), NO_RIGHT)
  })

  it("cannot create a Secret, an ApiKey or a RoleBinding", async () => {
    await refused((options) => facade.create(SECRETS, tokenSecret("mine", "berth-operator"), options), NO_RIGHT)
    await refused((options) => facade.create(API_KEYS, apiKey("mine"), options), NO_RIGHT)
    await refused((options) => facade.create(ROLE_BINDINGS, bindingOf({ subjects: [USER] }), options), NO_RIGHT)
  })
})

/** A Secret that Kubernetes would fill with a token. */
function tokenSecret(name: string, account: string): Secret {
  const annotations = { "kubernetes.io/service-account.name": account }
  return { metadata: { name, namespace: system, annotations }, type: "kubernetes.io/service-account-token" } as Secret
}

function apiKey(name: string): StoredApiKey {
  const { keyId, tokenHash } = makeApiKey()
  const spec = { role: "viewer", keyId, tokenHash }
  return { apiVersion: API_VERSION, kind: "ApiKey", metadata: { name, namespace: tenant }, spec } as StoredApiKey
}

const USER: Subject = { kind: "User", apiGroup: RBAC_GROUP, name: "https://issuer.test#eve" }

function bindingOf({ subjects, role = "berth-viewer", kind = "ClusterRole" }: BindingOptions) {
  const labels = { [LABELS.projectUid]: "1" }
  return {
    metadata: { name: "up", namespace: tenant, labels },
    roleRef: { apiGroup: RBAC_GROUP, kind, name: role },
    subjects,
  }
}

interface BindingOptions {
  subjects: Subject[]
  role?: string
  kind?: string
}

describe("the operator's account", () => {
  const quota = { spec: { hard: { pods: "0" } } }
  const isolation = { spec: { podSelector: {}, policyTypes: ["Ingress", "Egress"] } }
  const labels = { [LABELS.project]: "mine", [LABELS.projectUid]: "1" }
  const named = (name: string, namespace: string): { metadata: ObjectMeta } => ({
    metadata: { name, namespace, labels },
  })

  it.each(["kube-system", "berth-system", "default", "kube-public"])(
    "cannot stop the pods of %s by a quota or a network policy",
    async (namespace) => {
      const object = named("berth-default", namespace)
      const words = `only in namespaces made for a Project: ${namespace} has no label`
      await refused((options) => operator.create(RESOURCE_QUOTAS, { ...object, ...quota } as ApiObject, options), words)
      await refused(
        (options) => operator.create(NETWORK_POLICIES, { ...object, ...isolation } as ApiObject, options),
        words,
      )
      const mark = { merge: { metadata: { labels } } }
      await refused((options) => operator.patch(NAMESPACES, { name: namespace }, mark, options), NO_RIGHT)
    },
  )

  it("cannot create quotas and network policies of other names in a project's namespace", async () => {
    const name = `${SUITE}-own`
    await admin.create(NAMESPACES, { metadata: { name, labels } })
    const create = (resource: Resource<ApiObject>, object: object) => (options: object) =>
      operator.create(resource, { ...named("another", name), ...object } as ApiObject, options)
    await refused(create(RESOURCE_QUOTAS, quota), "named berth-default")
    await refused(create(NETWORK_POLICIES, isolation), "named berth-default")
  })

  it("cannot change the spec of a Job, nor undo its cancellation", async () => {
    const ref = { namespace: tenant, name: `${SUITE}-job` }
    await admin.create(JOBS, { metadata: ref, spec: { image: "theirs", cancelled: true } } as StoredJob)
    const patch = (spec: object) => (options: object) => operator.patch(JOBS, ref, { merge: { spec } }, options)
    await refused(patch({ image: "eve" }), "spec.image is immutable", "Invalid")
    await refused(patch({ cancelled: false }), "spec.cancelled cannot be set back to false", "Invalid")
    await admin.delete(JOBS, ref)
  })

  it("cannot get a token of the façade or of another ServiceAccount", async () => {
    for (const name of ["token", "berth-installation"]) {
      const secret = tokenSecret(name, "berth-facade")
      await refused((options) => operator.create(SECRETS, secret, options), "create no token of a ServiceAccount")
    }
    const token = { apiVersion: "authentication.k8s.io/v1", kind: "TokenRequest", spec: {} }
    const facadeRef = { namespace: "berth-system", name: "berth-facade" }
    const ask = () => operator.createSubresource(SERVICE_ACCOUNTS, facadeRef, token, { subresource: "token" })
    await refused(ask, NO_RIGHT)
  })

  it("cannot create Secrets but the installation's own", async () => {
    const secret = { metadata: { name: "another", namespace: system }, type: "Opaque" } as Secret
    await refused(
      (options) => operator.create(SECRETS, secret, options),
      "only the Secrets berth-installation, berth-sealing-keys and",
    )
    const elsewhere = { metadata: { name: "berth-installation", namespace: tenant } } as Secret
    await refused((options) => operator.create(SECRETS, elsewhere, options), NO_RIGHT)
  })

  it.each<[string, BindingOptions, string]>([
    ["to itself", { subjects: [account("berth-operator", "berth-system")] }, "gives roles to machine users"],
    ["to everybody", { subjects: [{ kind: "Group", name: "system:authenticated" }] }, "gives roles to machine users"],
    ["to an account of Kubernetes", { subjects: [{ kind: "User", name: "kubernetes-admin" }] }, "gives roles to"],
    ["to read Secrets, which it has itself", { subjects: [USER], role: "berth-operator-secrets" }, "gives the roles"],
    ["that it has itself", { subjects: [USER], role: "berth-operator" }, "gives the roles"],
    ["that it has not", { subjects: [USER], role: "cluster-admin" }, "gives the roles"],
    ["of the namespace's own", { subjects: [USER], role: "berth-viewer", kind: "Role" }, "gives the roles"],
  ])("cannot give a role %s", async (_whom, options, words) => {
    const create = (dry: object) => operator.create(ROLE_BINDINGS, bindingOf(options), dry)
    // RBAC's own check against escalation may come first.
    await eventually(() =>
      expect(create({ dryRun: true })).rejects.toMatchObject({
        reason: expect.stringMatching(/Forbidden|NotFound/),
        message: expect.stringMatching(new RegExp(`${words}|attempting to grant RBAC permissions|not found`)),
      }),
    )
  })

  it("cannot create or delete machine users, namespaces and RoleBindings of others", async () => {
    const words = "touches only what was made for a Project or an ApiKey"
    const users = { namespace: IDENTITIES_NAMESPACE, name: "berth-accounts" }
    await refused((options) => operator.delete(SERVICE_ACCOUNTS, users, options), words)
    const user = { metadata: { name: "mine", namespace: IDENTITIES_NAMESPACE } }
    await refused((options) => operator.create(SERVICE_ACCOUNTS, user, options), words)
    await refused((options) => operator.delete(NAMESPACES, { name: tenant }, options), words)
    await refused((options) => operator.create(NAMESPACES, { metadata: { name: `${SUITE}-no` } }, options), words)
    const binding = { ...bindingOf({ subjects: [USER] }), metadata: { name: "theirs", namespace: tenant } }
    await admin.create(ROLE_BINDINGS, binding)
    await refused((options) => operator.delete(ROLE_BINDINGS, binding.metadata, options), words)
    await refused((options) => operator.replace(ROLE_BINDINGS, binding, options), words)
  })

  describe("the operator's account and objects of others", () => {
    const eve = { userId: "https://issuer.test#eve", role: "admin" }
    const written = { apiVersion: API_VERSION, metadata: { name: SUITE, labels: MINE } }
    const inTenant = { apiVersion: API_VERSION, metadata: { name: "theirs", namespace: tenant } }

    beforeAll(async () => {
      await admin.create(ORGANIZATIONS, {
        ...written,
        kind: "Organization",
        spec: { displayName: "A" },
      } as unknown as StoredOrganization)
      const project = { displayName: "A", organization: SUITE }
      await admin.create(PROJECTS, { ...written, kind: "Project", spec: project } as unknown as StoredProject)
      await admin.create(API_KEYS, apiKey("theirs"))
      const schedule = { active: false, schedule: "0 0 1 1 *", jobDefinition: { image: "theirs" } }
      await admin.create(CRON_JOBS, { ...inTenant, kind: "CronJob", spec: schedule } as StoredCronJob)
      const connection = { type: "aws", sealedCredentials: "sealed" }
      await admin.create(CONNECTIONS, { ...inTenant, kind: "Connection", spec: connection } as StoredConnection)
    })

    const patch = (resource: Resource<ApiObject>, merge: object, options: object = {}) => {
      const ref = resource.namespaced ? { namespace: tenant, name: "theirs" } : { name: SUITE }
      return operator.patch(resource, ref, { merge }, options)
    }
    const finalizer = { metadata: { finalizers: ["berth.dev/test"] } }

    it.each<[string, Resource, object, string?]>([
      ["add a member to a Project", PROJECTS, { members: [eve] }],
      ["raise the spend caps of a Project", PROJECTS, { caps: { maxVms: 1000 } }],
      ["add an owner to an Organization", ORGANIZATIONS, { members: [{ ...eve, role: "owner" }] }],
      ["change the image of a CronJob", CRON_JOBS, { jobDefinition: { image: "eve" } }],
      ["resume a CronJob", CRON_JOBS, { active: true }],
      ["give an ApiKey another role", API_KEYS, { role: "admin" }, "may not give a key the role admin"],
      [
        "let a Connection use another Secret",
        CONNECTIONS,
        { sealedCredentials: null, credentialsSecretRef: { name: "eve" } },
      ],
    ])("cannot %s", async (_what, resource, spec, words = `changes no spec of ${resource.plural}`) => {
      const any = resource as unknown as Resource<ApiObject>
      await refused((options) => patch(any, { spec }, options), words)
    })

    it("can write finalizers, and seal credentials again", async () => {
      for (const resource of [PROJECTS, ORGANIZATIONS, CRON_JOBS, API_KEYS, CONNECTIONS]) {
        const any = resource as unknown as Resource<ApiObject>
        await eventually(() => patch(any, finalizer))
        await patch(any, { metadata: { finalizers: null } })
      }
      await patch(CONNECTIONS as unknown as Resource<ApiObject>, { spec: { sealedCredentials: "again" } })
      const { spec } = await admin.get(CONNECTIONS, { namespace: tenant, name: "theirs" })
      expect(spec.sealedCredentials).toBe("again")
    })
  })

  it("can make a Project with its namespace, quota, network policy and rights, and delete it", async () => {
    const name = `${SUITE}-made`
    const labels = { "test/suite": name }
    const tended = await startProjectControllers(`test/suite=${name}`)
    try {
      const object = { apiVersion: API_VERSION, metadata: { name, labels } }
      await admin.create(ORGANIZATIONS, {
        ...object,
        kind: "Organization",
        spec: { displayName: "A" },
      } as unknown as StoredOrganization)
      const spec = { displayName: "A", organization: name }
      await admin.create(PROJECTS, { ...object, kind: "Project", spec } as unknown as StoredProject)
      await eventually(async () => {
        const { status } = await admin.get(PROJECTS, { name })
        expect(findCondition(status?.conditions, "Ready")?.status).toBe("True")
      })
      await admin.get(RESOURCE_QUOTAS, { namespace: name, name: "berth-default" })
      await admin.get(NETWORK_POLICIES, { namespace: name, name: "berth-default" })
      await admin.delete(PROJECTS, { name })
      await eventually(() => expect(admin.get(PROJECTS, { name })).rejects.toMatchObject({ reason: "NotFound" }))
      await admin.delete(ORGANIZATIONS, { name })
      await eventually(() => expect(admin.get(ORGANIZATIONS, { name })).rejects.toMatchObject({ reason: "NotFound" }))
    } finally {
      await tended.stop()
    }
  })

  it("can create the installation's own Secrets", async () => {
    await eventually(() => ensureInstallation(operator, system))
    await ensureSealingKeys(operator, system)
    const { type } = await admin.get(SECRETS, { namespace: system, name: "berth-sealing-keys" })
    expect(type).toBe("berth.dev/sealing-keys")
  })

  it("lets the façade's account read these, without the right to read Secrets of projects", async () => {
    await eventually(() => ensureInstallation(operator, system))
    await ensureSealingKeys(operator, system)
    await admin.create(SECRETS, { metadata: { name: "another", namespace: system } })
    // Only the Role of Berth's own namespace, as with watchNamespace.
    const as = { user: `${SUITE}-facade` }
    const roleRef = { apiGroup: RBAC_GROUP, kind: "Role", name: "berth-facade" }
    const subjects = [{ kind: "User", apiGroup: RBAC_GROUP, name: as.user }]
    await admin.create(ROLE_BINDINGS, { metadata: { name: as.user, namespace: system }, roleRef, subjects })
    for (const name of ["berth-installation", "berth-sealing-keys"]) {
      await eventually(() => admin.get(SECRETS, { namespace: system, name }, { as }))
    }
    await refused(() => admin.get(SECRETS, { namespace: system, name: "another" }, { as }), NO_RIGHT)
  })
})

/**
 * Rights of Berth's accounts at the API server: in every namespace, and what they have more in Berth's own. docs/security.md says
 * what a thief can do with them, and the tests above what the admission policies take away again.
 */
const RIGHTS = {
  operator: {
    everywhere: {
      apikeys: "get list patch watch",
      "apikeys/status": "patch",
      "clusterroles/berth-admin": "bind",
      "clusterroles/berth-developer": "bind",
      "clusterroles/berth-viewer": "bind",
      connections: "list patch watch",
      "connections/status": "patch",
      cronjobs: "get list patch watch",
      "cronjobs/status": "update",
      events: "create patch",
      jobarrays: "delete get list patch watch",
      "jobarrays/status": "update",
      jobs: "create delete get list patch watch",
      "jobs/status": "update",
      machines: "get list patch watch",
      "machines/status": "patch",
      namespaces: "create delete get list watch",
      networkpolicies: "create",
      organizations: "list patch watch",
      "organizations/status": "patch",
      projects: "list patch watch",
      "projects/status": "patch",
      resourcequotas: "create",
      rolebindings: "create delete get list update watch",
      secrets: "list watch",
      webhooks: "list patch watch",
      "webhooks/status": "update",
    },
    system: {
      "configmaps/berth-catalogue": "list watch",
      "configmaps/berth-installation": "create get patch",
      "configmaps/berth-prices": "create list patch watch",
      "configmaps/berth-spending": "create get patch",
      launches: "create delete deletecollection get list patch watch",
      "launches/status": "patch",
      leases: "create get update",
      secrets: "create",
      "secrets/berth-identity-keys": "get",
      "secrets/berth-installation": "get",
      "secrets/berth-sealing-keys": "get list patch watch",
      statements: "create delete list watch",
      "statements/status": "update",
    },
    identities: { leases: "list watch", serviceaccounts: "create delete get list watch" },
    others: {},
  },
  facade: {
    everywhere: {
      apikeys: "get list watch",
      connections: "get list watch",
      cronjobs: "get list watch",
      events: "create patch",
      jobarrays: "get list watch",
      jobs: "list watch",
      machines: "get list watch",
      "machines/status": "patch",
      organizations: "get list watch",
      projects: "get list watch",
      secrets: "get",
      webhooks: "get list watch",
    },
    system: {
      "configmaps/berth-catalogue": "list watch",
      "configmaps/berth-prices": "list watch",
      launches: "get list watch",
      "launches/status": "patch",
      "leases/berth-operator": "get",
      "secrets/berth-identity-keys": "get",
      "secrets/berth-installation": "get",
      "secrets/berth-sealing-keys": "get",
      statements: "list watch",
    },
    identities: { leases: "create delete get list patch watch", serviceaccounts: "impersonate" },
    others: {},
  },
  accounts: {
    everywhere: { organizations: "create get update", projects: "create get update" },
    system: {},
    identities: {},
    others: {},
  },
}

describe("a stolen token of Berth's own accounts", () => {
  const accounts = { user: `system:serviceaccount:${IDENTITIES_NAMESPACE}:berth-accounts` }
  const tokens = {
    operator: (review: ApiObject) => operator.create(RULES, review),
    facade: (review: ApiObject) => facade.create(RULES, review),
    // The façade acts as this one: there is no token of it.
    accounts: (review: ApiObject) => admin.create(RULES, review, { as: accounts }),
  }

  /** Returns the verbs in a namespace, by resource or `resource/name`. */
  async function rightsIn(namespace: string, review: (typeof tokens)["operator"]): Promise<Map<string, Set<string>>> {
    const { status } = (await review({ metadata: {}, spec: { namespace } } as unknown as ApiObject)) as RulesReview
    expect(status.incomplete).toBe(false)
    const rights = new Map<string, Set<string>>()
    for (const { apiGroups, resources, resourceNames = [], verbs } of status.resourceRules) {
      // Every account may ask for its own rights.
      if (apiGroups.every((group) => /^auth/.test(group))) continue
      const names = resourceNames.length === 0 ? resources : resourceNames.map((name) => `${resources[0]}/${name}`)
      for (const name of names) rights.set(name, new Set([...(rights.get(name) ?? []), ...verbs]))
    }
    return rights
  }

  it.each(["operator", "facade", "accounts"] as const)("has these rights, and no others anywhere: %s", async (name) => {
    const everywhere = await rightsIn("kube-system", tokens[name])
    const rightsOf = async (namespace: string) => {
      const rights = [...(await rightsIn(namespace, tokens[name]))].map(([on, verbs]) => {
        const known = namespace === "kube-system" ? undefined : everywhere.get(on)
        return [
          on,
          [...verbs]
            .filter((verb) => !known?.has(verb))
            .toSorted()
            .join(" "),
        ] as const
      })
      return Object.fromEntries(rights.filter(([, verbs]) => verbs !== "").toSorted())
    }
    expect({
      everywhere: await rightsOf("kube-system"),
      system: await rightsOf("berth-system"),
      identities: await rightsOf(IDENTITIES_NAMESPACE),
      others: { ...(await rightsOf(tenant)), ...(await rightsOf("default")) },
    }).toEqual(RIGHTS[name])
  })
})

interface RulesReview extends ApiObject {
  status: {
    incomplete: boolean
    resourceRules: { apiGroups: string[]; resources: string[]; resourceNames?: string[]; verbs: string[] }[]
  }
}

const RULES = declareResource<ApiObject>({
  ...{ group: "authorization.k8s.io", version: "v1" },
  ...{ kind: "SelfSubjectRulesReview", plural: "selfsubjectrulesreviews", namespaced: false },
})

function account(name: string, namespace: string): Subject {
  return { kind: "ServiceAccount", name, namespace }
}

interface Policy extends ApiObject {
  metadata: ObjectMeta
  status?: { observedGeneration?: number; typeChecking?: { expressionWarnings?: object[] } }
}

describe("the admission policies of manifests/base", () => {
  it("have no expression that Kubernetes warns of", async () => {
    const policies = declareResource<Policy>({
      ...{ group: "admissionregistration.k8s.io", version: "v1" },
      ...{ kind: "ValidatingAdmissionPolicy", plural: "validatingadmissionpolicies", namespaced: false },
    })
    const { items } = await admin.list(policies, { labelSelector: "app.kubernetes.io/part-of=berth" })
    expect(items.length).toBeGreaterThanOrEqual(6)
    for (const { metadata } of items) {
      await eventually(async () => {
        const { status } = await admin.get(policies, { name: metadata.name })
        expect(status?.observedGeneration, metadata.name).toBeDefined()
        expect(status?.typeChecking?.expressionWarnings ?? [], metadata.name).toEqual([])
      })
    }
  })
})
