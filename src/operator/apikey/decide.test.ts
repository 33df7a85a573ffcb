import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { API_KEY_FINALIZER, isBound, ROLES, type StoredApiKey } from "../../core/apis/apikey.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import { ANNOTATIONS, LABELS } from "../../core/apis/meta.ts"
import type { ServiceAccount } from "../../core/identity/machine-users.ts"
import type { RoleBinding } from "../../core/identity/role-bindings.ts"
import { keysNamedBy } from "../caches.ts"
import { type ApiKeyObservation, buildBinding, buildMachineUser, decide } from "./decide.ts"

const NOW = new Date("2026-01-01T00:00:00Z")

function keyOf(more: { metadata?: object; spec?: object; status?: object } = {}): StoredApiKey {
  return {
    apiVersion: "berth.dev/v1alpha1",
    kind: "ApiKey",
    metadata: {
      name: "ci",
      namespace: "shop",
      uid: "uid-1",
      resourceVersion: "1",
      generation: 3,
      creationTimestamp: "2025-01-01T00:00:00Z",
      finalizers: [API_KEY_FINALIZER],
      ...more.metadata,
    },
    spec: { role: "developer", keyId: "abcdefgh", tokenHash: "0".repeat(64), ...more.spec },
    ...(more.status && { status: more.status }),
  }
}

/** Returns an object with the fields that the API server adds. */
function stored<T extends { metadata: object }>(object: T): T {
  return { ...object, metadata: { ...object.metadata, uid: "uid-of-it", resourceVersion: "2" } }
}

const whole = (key: StoredApiKey): ApiKeyObservation => ({
  user: stored(buildMachineUser(key)),
  bindings: [stored(buildBinding(key))],
})

/** Returns the status and reason of the Ready condition. */
function ready(key: StoredApiKey, observed: ApiKeyObservation, now = NOW): string {
  const { status = key.status } = decide(key, observed, now)
  const { status: is, reason } = findCondition(status?.conditions, "Ready") ?? {}
  return `${is} ${reason}`
}

const acts = (key: StoredApiKey, observed: ApiKeyObservation, now = NOW): string[] =>
  decide(key, observed, now).actions.map((action) => action.do)

describe("a key", () => {
  it("gets its finalizer, then its user, then its binding, and is Reconciling until then", () => {
    const key = keyOf({ metadata: { finalizers: ["other"] } })
    const nothing = { user: undefined, bindings: [] }
    expect(acts(key, nothing)).toEqual(["addFinalizer", "createUser", "createBinding"])
    expect(ready(key, nothing)).toBe("False Binding")
    const { status } = decide(key, nothing, NOW)
    expect(findCondition(status?.conditions, "Reconciling")).toMatchObject({ status: "True", observedGeneration: 3 })
    expect(status).toMatchObject({ observedGeneration: 3, machineUser: "apikey-uid-1" })
  })

  it("is Ready if all objects exist, and then has no actions and no status to write", () => {
    const key = keyOf()
    const { status, actions, requeueAfter } = decide(key, whole(key), NOW)
    expect(actions).toEqual([])
    expect(requeueAfter).toBeUndefined()
    const after = keyOf({ ...(status && { status }) })
    expect(isBound(after)).toBe(true)
    expect(decide(after, whole(after), new Date("2027-01-01T00:00:00Z"))).toEqual({ actions: [] })
  })

  it("is bound in its own namespace to the ClusterRole of its role, as the only subject", () => {
    for (const role of ROLES) {
      const binding = buildBinding(keyOf({ spec: { role } }))
      expect(binding.metadata.namespace).toBe("shop")
      expect(binding.roleRef).toEqual({
        apiGroup: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        name: `berth-${role}`,
      })
      expect(binding.subjects).toEqual([
        { kind: "ServiceAccount", name: "apikey-uid-1", namespace: "berth-identities" },
      ])
    }
  })

  it("gets the new role's binding before the old one is deleted", () => {
    const key = keyOf({ spec: { role: "viewer" } })
    const former = whole(keyOf({ spec: { role: "admin" } }))
    expect(acts(key, former)).toEqual(["createBinding", "deleteBinding"])
    expect(ready(key, former)).toBe("False Binding")
  })

  it.each<[string, Partial<RoleBinding>]>([
    [
      "another role",
      { roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "cluster-admin" } },
    ],
    ["a Role", { roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name: "berth-developer" } }],
    ["another subject", { subjects: [{ kind: "ServiceAccount", name: "apikey-uid-1", namespace: "shop" }] }],
    ["a User", { subjects: [{ kind: "User", name: "apikey-uid-1", namespace: "berth-identities" }] }],
    ["no subject", { subjects: [] }],
    ["a second subject", { subjects: [...(buildBinding(keyOf()).subjects ?? []), { kind: "User", name: "eve" }] }],
  ])("gets a new binding if the old one has %s", (_what, drift) => {
    const key = keyOf()
    const bindings = [{ ...stored(buildBinding(key)), ...drift }]
    expect(acts(key, { ...whole(key), bindings })).toEqual(["deleteBinding", "createBinding"])
  })

  it("loses its binding at the second of its expiry, and gets it again if the expiry moves", () => {
    const key = keyOf({ spec: { expiresAt: "2026-01-01T00:00:10+00:00" } })
    expect(decide(key, whole(key), NOW)).toMatchObject({ actions: [], requeueAfter: 10 })
    const before = new Date(NOW.getTime() + 9999)
    const at = new Date(NOW.getTime() + 10_000)
    expect(acts(key, whole(key), before)).toEqual([])
    expect(acts(key, whole(key), at)).toEqual(["deleteBinding"])
    expect(ready(key, whole(key), at)).toBe("False Expired")
    const { status, requeueAfter } = decide(key, whole(key), at)
    expect(requeueAfter).toBeUndefined()
    for (const type of ["Expired", "Stalled"]) {
      expect(findCondition(status?.conditions, type)?.status).toBe("True")
    }
    const prolonged = keyOf({ spec: { expiresAt: "2026-02-01T00:00:00Z" }, ...(status && { status }) })
    const unbound = { ...whole(prolonged), bindings: [] }
    expect(acts(prolonged, unbound, at)).toEqual(["createBinding"])
    const again = decide(prolonged, whole(prolonged), at).status
    for (const type of ["Expired", "Stalled"]) {
      expect(findCondition(again?.conditions, type)?.status).toBe("False")
    }
  })

  it("never uses a ServiceAccount or RoleBinding that was not made for it", () => {
    const key = keyOf()
    const foreign = { labels: { [LABELS.apiKeyUid]: "uid-2" } }
    const user: ServiceAccount = { metadata: { ...buildMachineUser(key).metadata, ...foreign } }
    const binding = { ...buildBinding(key), metadata: { ...buildBinding(key).metadata, labels: {} } }
    for (const observed of [
      { user, bindings: [] },
      { ...whole(key), bindings: [binding] },
    ]) {
      const decision = decide(key, observed, NOW)
      expect(decision).toMatchObject({ actions: [], requeueAfter: 60 })
      expect(ready(key, observed)).toBe("False NameTaken")
      expect(findCondition(decision.status?.conditions, "Stalled")?.status).toBe("True")
    }
  })
})

describe("a deleted key", () => {
  const going = { metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" } }

  it("first loses its rights, then its user, then its finalizer", () => {
    const key = keyOf(going)
    expect(acts(key, whole(key))).toEqual(["deleteBinding", "deleteUser", "dropFinalizer"])
    expect(acts(key, { user: undefined, bindings: [] })).toEqual(["dropFinalizer"])
  })

  it("does not delete objects of others", () => {
    const key = keyOf(going)
    const user: ServiceAccount = { metadata: { ...buildMachineUser(key).metadata, labels: {} } }
    const binding = { ...buildBinding(key), metadata: { ...buildBinding(key).metadata, labels: {} } }
    expect(acts(key, { user, bindings: [binding] })).toEqual(["dropFinalizer"])
  })
})

it("the actions lead from any set of objects to the wanted objects, and delete no others", () => {
  const key = keyOf({ metadata: { finalizers: [] } })
  const drifted = (role: (typeof ROLES)[number], subjects: number): RoleBinding => {
    const binding = buildBinding(keyOf({ spec: { role } }))
    return stored({
      ...binding,
      subjects: Array.from({ length: subjects }, () => binding.subjects?.[0] ?? { kind: "", name: "" }),
    })
  }
  const bindings = fc
    .uniqueArray(fc.record({ role: fc.constantFrom(...ROLES), subjects: fc.nat(2) }), { selector: ({ role }) => role })
    .map((all) => all.map(({ role, subjects }) => drifted(role, subjects)))
  fc.assert(
    fc.property(fc.boolean(), bindings, (hasUser, found) => {
      const { actions } = decide(key, { user: hasUser ? whole(key).user : undefined, bindings: found }, NOW)
      const left = new Map(found.map((binding) => [binding.metadata.name, binding]))
      for (const action of actions) {
        if (action.do === "deleteBinding") left.delete(action.binding.metadata.name)
        if (action.do !== "createBinding") continue
        expect(left.has(action.binding.metadata.name)).toBe(false)
        left.set(action.binding.metadata.name, action.binding)
      }
      expect([...left.values()].map(({ roleRef, subjects }) => ({ roleRef, subjects }))).toEqual([
        { roleRef: buildBinding(key).roleRef, subjects: buildBinding(key).subjects },
      ])
      expect(actions.some((action) => action.do === "createUser")).toBe(!hasUser)
    }),
  )
})

it("a binding counts only for keys of its own namespace", () => {
  const named = (namespace: string, key: string) =>
    keysNamedBy({ metadata: { name: "x", namespace, annotations: { [ANNOTATIONS.apiKey]: key } } })
  expect(named("shop", "shop/ci")).toEqual(["shop/ci"])
  expect(named("shop", "bank/ci")).toEqual([])
  expect(named("berth-identities", "bank/ci")).toEqual(["bank/ci"])
  expect(keysNamedBy({ metadata: { name: "x", namespace: "shop" } })).toEqual([])
})

it("a key beyond the maximum number of the project gets no machine user, and is checked again", () => {
  const key = keyOf()
  const observed = { user: undefined, bindings: [], overLimit: "the project has 3 API keys; the limit is 2" }
  const decision = decide(key, observed, NOW)
  expect(decision.actions).toEqual([])
  expect(decision.requeueAfter).toBe(120)
  expect(ready(key, observed)).toBe("False ProjectLimit")
  expect(findCondition(decision.status?.conditions, "Stalled")?.status).toBe("True")
  expect(decision.events).toEqual([{ type: "Warning", reason: "ProjectLimit", message: observed.overLimit }])
})
