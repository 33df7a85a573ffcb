import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import { API_KEY, API_KEY_FINALIZER, isBound, type Role, type StoredApiKey } from "../../src/core/apis/apikey.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { ANNOTATIONS, API_VERSION, LABELS } from "../../src/core/apis/meta.ts"
import { makeApiKey } from "../../src/core/identity/apikeys.ts"
import { IDENTITIES_NAMESPACE, SERVICE_ACCOUNTS, type ServiceAccount } from "../../src/core/identity/machine-users.ts"
import { ROLE_BINDINGS, type RoleBinding } from "../../src/core/identity/role-bindings.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { isNotFound } from "../../src/core/kube/errors.ts"
import { API_KEYS } from "../../src/core/resources.ts"
import { buildBinding, buildMachineUser } from "../../src/operator/apikey/decide.ts"
import { kubeConfig, kubectl, testNamespace } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"
import { type KeyController, startKeyController } from "../harness/machine-users.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"

const client = new KubeClient(kubeConfig())
const namespace = testNamespace("apikeys")
const elsewhere = testNamespace("apikeys-else")
let running: KeyController[] = []

async function start(overrides: Parameters<typeof startKeyController>[1] = {}): Promise<KeyController> {
  const controller = await startKeyController(namespace, overrides)
  running.push(controller)
  return controller
}

async function stopAll(): Promise<void> {
  await Promise.all(running.map((controller) => controller.stop()))
  running = []
}

beforeAll(() => installBase(client, AbortSignal.timeout(120_000)))
beforeEach(stopAll)
afterAll(async () => {
  await stopAll()
  await client.close()
})

async function make(name: string, role: Role = "developer", expiresAt?: string): Promise<StoredApiKey> {
  const { keyId, tokenHash } = makeApiKey()
  const spec = { role, keyId, tokenHash, ...(expiresAt && { expiresAt }) }
  const key = { apiVersion: API_VERSION, kind: API_KEY.kind, metadata: { name, namespace }, spec }
  return client.create(API_KEYS, key as StoredApiKey)
}

const get = (name: string): Promise<StoredApiKey> => client.get(API_KEYS, { namespace, name })

async function userOf(key: StoredApiKey): Promise<ServiceAccount | undefined> {
  try {
    return await client.get(SERVICE_ACCOUNTS, buildMachineUser(key).metadata)
  } catch (error) {
    if (isNotFound(error)) return undefined
    throw error
  }
}

/** Returns the roles of the key's machine user in the namespace, from the API server. */
async function rolesOf(key: StoredApiKey): Promise<string[]> {
  const user = buildMachineUser(key).metadata.name
  const { items } = await client.list(ROLE_BINDINGS, { namespace })
  return items
    .filter(({ subjects = [] }) => subjects.some(({ name }) => name === user))
    .map(({ roleRef }) => `${roleRef.kind}/${roleRef.name}`)
}

const becomesBound = (name: string): Promise<StoredApiKey> =>
  eventually(async () => {
    const key = await get(name)
    expect(isBound(key), JSON.stringify(key.status)).toBe(true)
    return key
  })

const becomesReady = (name: string, reason: string): Promise<StoredApiKey> =>
  eventually(async () => {
    const key = await get(name)
    expect(findCondition(key.status?.conditions, "Ready")?.reason).toBe(reason)
    return key
  })

describe("the controller of ApiKeys", () => {
  it("gives a key a machine user without tokens, bound only to its role", async () => {
    await start()
    await make("plain")
    const key = await becomesBound("plain")
    expect(key.metadata.finalizers).toEqual([API_KEY_FINALIZER])
    expect(key.status).toMatchObject({ machineUser: `apikey-${key.metadata.uid}`, observedGeneration: 1 })
    expect(await userOf(key)).toMatchObject({ automountServiceAccountToken: false })
    expect(await rolesOf(key)).toEqual(["ClusterRole/berth-developer"])
    const wide = JSON.parse(await kubectl(["get", "clusterrolebindings", "-o", "json"])) as { items: RoleBinding[] }
    const subjects = wide.items.flatMap((binding) => binding.subjects ?? [])
    expect(subjects.filter(({ name }) => name.includes(key.metadata.uid))).toEqual([])
    await kubectl(["wait", "--for=condition=Ready", "bkey/plain", "-n", namespace, "--timeout=120s"])
    await eventually(async () =>
      expect(await kubectl(["get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}"])).toContain("Bound"),
    )
  })

  it("binds a key's machine user again when its role changes, and kubectl can wait for it", async () => {
    await start()
    await make("changing", "viewer")
    const key = await becomesBound("changing")
    await client.patch(API_KEYS, key.metadata, { merge: { spec: { role: "admin" } } })
    await becomesBound("changing")
    expect(await rolesOf(key)).toEqual(["ClusterRole/berth-admin"])
  })

  it("deletes a key together with its machine user, and only after it", async () => {
    const { stop } = await start()
    await make("going")
    const key = await becomesBound("going")
    await stop()
    running = []
    await client.delete(API_KEYS, key.metadata)
    expect((await get("going")).metadata.deletionTimestamp).toBeDefined()
    expect(await userOf(key)).toBeDefined()
    await start()
    await eventually(() => expect(get("going")).rejects.toMatchObject({ code: 404 }))
    expect(await userOf(key)).toBeUndefined()
    expect(await rolesOf(key)).toEqual([])
  })

  it("removes a key's rights at its expiry, and restores them when the expiry is postponed", async () => {
    const clock = new ShiftedClock()
    await start({ clock })
    await make("expiring", "admin", timestamp(new Date(Date.now() + 3_600_000)))
    const key = await becomesBound("expiring")
    clock.advance(3600)
    await becomesReady("expiring", "Expired")
    await eventually(async () => expect(await rolesOf(key)).toEqual([]))
    expect(await userOf(key)).toBeDefined()
    await kubectl(["wait", "--for=condition=Expired", "bkey/expiring", "-n", namespace, "--timeout=120s"])
    await client.patch(API_KEYS, key.metadata, { merge: { spec: { expiresAt: null } } })
    await becomesBound("expiring")
    expect(await rolesOf(key)).toEqual(["ClusterRole/berth-admin"])
  })

  it("reconciles keys correctly with several concurrent controllers", async () => {
    await Promise.all([start(), start(), start()])
    const names = ["a", "b", "c", "d"].map((letter) => `shared-${letter}`)
    await Promise.all(names.map((name) => make(name, "viewer")))
    for (const name of names) {
      const key = await becomesBound(name)
      await client.patch(API_KEYS, key.metadata, { merge: { spec: { role: "developer" } } })
      await becomesBound(name)
      // A controller with a later cache may repeat a change that was undone. It repairs that when its cache catches up.
      await eventually(async () => expect(await rolesOf(key)).toEqual(["ClusterRole/berth-developer"]))
      await client.delete(API_KEYS, key.metadata)
      await eventually(async () => {
        expect(await userOf(key)).toBeUndefined()
        expect(await rolesOf(key)).toEqual([])
      })
    }
  })
})

describe("the controller of ApiKeys after drift", () => {
  it("repairs a deleted machine user, a deleted binding, and changed subjects of a binding", async () => {
    await start()
    await make("drifting")
    const key = await becomesBound("drifting")
    const binding = buildBinding(key).metadata
    await client.delete(SERVICE_ACCOUNTS, buildMachineUser(key).metadata)
    await eventually(async () => expect(await userOf(key)).toBeDefined())
    await client.delete(ROLE_BINDINGS, binding)
    await eventually(async () => expect(await rolesOf(key)).toEqual(["ClusterRole/berth-developer"]))
    const subjects = [
      ...(buildBinding(key).subjects ?? []),
      { kind: "User", apiGroup: "rbac.authorization.k8s.io", name: "eve" },
    ]
    await client.patch(ROLE_BINDINGS, binding, { merge: { subjects } })
    await eventually(async () => {
      expect((await client.get(ROLE_BINDINGS, binding)).subjects).toEqual(buildBinding(key).subjects)
    })
    await becomesBound("drifting")
  })

  it("repairs drift that happened while no controller ran", async () => {
    const { stop } = await start()
    await make("unattended")
    const key = await becomesBound("unattended")
    await stop()
    running = []
    await client.delete(SERVICE_ACCOUNTS, buildMachineUser(key).metadata)
    await client.delete(ROLE_BINDINGS, buildBinding(key).metadata)
    await start()
    await eventually(async () => {
      expect(await userOf(key)).toBeDefined()
      expect(await rolesOf(key)).toEqual(["ClusterRole/berth-developer"])
    })
  })

  it("repairs the machine user of a key that was deleted without its finalizer and replaced by another", async () => {
    await start()
    await make("forced")
    const first = await becomesBound("forced")
    await stopAll()
    await client.patch(API_KEYS, first.metadata, { merge: { metadata: { finalizers: null } } })
    await client.delete(API_KEYS, first.metadata)
    await make("forced", "viewer")
    await start()
    const second = await becomesBound("forced")
    await eventually(async () => expect(await userOf(first)).toBeUndefined())
    expect(await rolesOf(first)).toEqual([])
    expect(await rolesOf(second)).toEqual(["ClusterRole/berth-viewer"])
  })
})

describe("the controller of ApiKeys beside objects of others", () => {
  it("never adopts another author's ServiceAccount with the machine user's name", async () => {
    const key = await make("squatted")
    const user = {
      ...buildMachineUser(key),
      metadata: { name: buildMachineUser(key).metadata.name, namespace: IDENTITIES_NAMESPACE },
    }
    const foreign = await client.create(SERVICE_ACCOUNTS, user)
    await start()
    await becomesReady("squatted", "NameTaken")
    expect(await rolesOf(key)).toEqual([])
    expect((await userOf(key))?.metadata.resourceVersion).toBe(foreign.metadata.resourceVersion)
    const said = await kubectl(["describe", "bkey/squatted", "-n", namespace])
    expect(said).toContain(`ServiceAccount ${user.metadata.name} was not created for this key`)
    await stopAll()

    await client.delete(SERVICE_ACCOUNTS, foreign.metadata)
    await start()
    await becomesBound("squatted")
  })

  it("never adopts another author's RoleBinding with the machine user's name", async () => {
    const key = await make("planted")
    const { name } = buildBinding(key).metadata
    const planted = await client.create(ROLE_BINDINGS, { ...buildBinding(key), metadata: { name, namespace } })
    await start()
    const taken = await becomesReady("planted", "NameTaken")
    expect(findCondition(taken.status?.conditions, "Ready")?.message).toContain(
      `RoleBinding ${name} was not created for this key`,
    )
    expect(await client.get(ROLE_BINDINGS, planted.metadata)).toEqual(planted)
    await stopAll()
    await client.delete(ROLE_BINDINGS, planted.metadata)
    await start()
    await becomesBound("planted")
  })

  it("ignores a binding of another namespace whose annotation names a key", async () => {
    await start()
    await make("quiet")
    const key = await becomesBound("quiet")
    const { metadata: _, ...binding } = buildBinding(key)
    const planted = await client.create(ROLE_BINDINGS, {
      ...binding,
      metadata: {
        name: "planted",
        namespace: elsewhere,
        labels: { [LABELS.apiKeyUid]: "another" },
        annotations: { [ANNOTATIONS.apiKey]: `${namespace}/quiet` },
      },
    })
    await client.patch(API_KEYS, key.metadata, { merge: { spec: { role: "viewer" } } })
    await becomesBound("quiet")
    expect(await client.get(ROLE_BINDINGS, planted.metadata)).toEqual(planted)
  })
})
